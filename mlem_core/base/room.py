"""Whether there is room for what a run needs, checked before it starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil

from mlem_core.base.errors import InputError

# The memory that a container may use, and what it uses: there free memory is that of the machine.
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
GB = 1e9


def free_memory() -> int:
    """Bytes of memory that a run could still take."""
    free = int(psutil.virtual_memory().available)
    for limit, used in _LIMITS:
        try:
            most, now = (int(Path(path).read_text().strip()) for path in (limit, used))
        except (OSError, ValueError):
            continue  # no such limit, or "max"
        # Files that are read count as used until the memory is wanted.
        free = min(free, max(most - now, most // 4))
    return free


def free_disk(folder: Path) -> int:
    """Bytes that the disk of a folder, which may not be there yet, still has."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_memory(n_bytes: float, what: str, advice: str) -> None:
    """Raise InputError where that much memory is not free; `advice` is what to change."""
    free = free_memory()
    if n_bytes > free:
        raise InputError(
            f"{what} needs about {n_bytes / GB:.1f} GB of memory, and {free / GB:.1f} GB are free; "
            f"{advice}."
        )


def check_disk(folder: Path, n_bytes: float, what: str, advice: str) -> None:
    """Raise InputError where a folder's disk has not that much free; `advice` is what to change."""
    free = free_disk(folder)
    if n_bytes > free:
        raise InputError(
            f"{what} needs about {n_bytes / GB:.1f} GB of disk in {str(folder)!r}, and "
            f"{free / GB:.1f} GB are free; {advice}."
        )
