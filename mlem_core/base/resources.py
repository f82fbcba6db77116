"""What this machine has: memory, disk, folders, packages."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib.metadata
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import psutil

from mlem_core.base.errors import InputError

# The memory that a container may use, and what it uses: there free memory is that of the machine.
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
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


def check_memory(n_bytes: float, what: str, advice: str) -> None:
    """Raise InputError where that much memory is not free; `advice` is what to change."""
    free = free_memory()
    if n_bytes > free:
        raise InputError(
            f"{what} needs about {n_bytes / GB:.1f} GB of memory, and {free / GB:.1f} GB are free; "
            f"{advice}."
        )


def give_back_memory() -> None:
    """Return to the system what was freed; where the C library keeps it (glibc), it would stay."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def check_free(folder: Path, memory: float, disk: float, what: str, advice: str) -> None:
    """Raise InputError where that much memory, or disk of a folder of a store, is not free.

    The folder may not be there yet; `advice` is what to change.
    """
    check_memory(memory, what, advice)
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free
    if disk > free:
        raise InputError(
            f"{what} needs about {disk / GB:.1f} GB of disk in {str(folder)!r}, and "
            f"{free / GB:.1f} GB are free; {advice} or another folder for the store (MLEM_CACHE)."
        )


_PACKAGE = Path(__file__).resolve().parents[1]


def default_root() -> Path:
    """Folder of a store when nobody says: the first that can be written of those below.

    $MLEM_CACHE (this one in any case), the project's `cache/`, the user's cache, and a folder of
    the user's among the temporary ones.

    Raises InputError: none of them can be written.
    """
    named = os.environ.get("MLEM_CACHE")
    if named:
        return Path(named)
    project = _PACKAGE.parent / "cache"
    if (project / ".gitignore").is_file() and os.access(project, os.W_OK):
        return project
    import platformdirs

    # Without a home there is no such folder: RuntimeError.
    with contextlib.suppress(RuntimeError):
        users = Path(platformdirs.user_cache_dir("mlem", appauthor=False))
        there = next(folder for folder in (users, *users.parents) if folder.exists())
        if os.access(there, os.W_OK):
            return users
    with contextlib.suppress(OSError):
        temporary = Path(tempfile.gettempdir()) / f"mlem-{os.getuid()}"
        if _writable(temporary) and _private(temporary):
            return temporary
    raise InputError(
        "no folder for the cache can be written, neither in the user's home nor among the "
        "temporary ones: name one in MLEM_CACHE."
    )


@functools.lru_cache(maxsize=1)
def keep_compiled() -> None:
    """Have numba keep what it compiles where it can: called before the first kernel is defined.

    By itself it keeps it in the package or in the home of the user, and raises where both are
    read-only, as in most containers.

    Raises InputError: neither the package, the store nor the temporary folder can be written.
    """
    import numba

    config: Any = numba.config
    kernels = _PACKAGE / "pairs" / "kernels" / "__pycache__"
    if config.CACHE_DIR or _writable(kernels):
        return
    temporary = Path(tempfile.gettempdir()) / f"mlem-{os.getuid()}"
    for root in (default_root().absolute(), temporary):
        folder = root / "compiled"
        # numba runs what it finds there, so nobody else may write it.
        if _writable(folder) and _private(folder):
            config.CACHE_DIR = str(folder)
            return
    raise InputError(
        f"compiled code can be kept neither in the cache folder {str(default_root())!r} nor in "
        f"{str(temporary)!r}: name a folder of your own that can be written in MLEM_CACHE."
    )


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _private(folder: Path) -> bool:
    about = folder.lstat()
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022


def installed_version(package: str) -> str | None:
    """The version of an installed package; None of one that is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
