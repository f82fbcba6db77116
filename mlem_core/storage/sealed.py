"""Folders that are finished: `entry.json` has the size and digest of each of their files.

What does not match it is damaged: it is made again, or a sentence says so; nothing of it is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlem_core.storage.files import sync

INFO = "entry.json"
# What the seals of results say: counted up when their files change.
RESULT = {"layout": 1}
# Folders found sound by this process: folder -> (name, size, mtime) of their files. Hashing a few
# hundred MB at each look would be felt; a file that changes is seen by its size or time.
_sound: dict[Path, tuple[tuple[str, int, int], ...]] = {}


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical(value: Any) -> bytes:
    """One spelling for equal values: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def seal(folder: Path, about: Mapping[str, Any]) -> None:
    """Write the `entry.json` of a folder that is finished, and have all of it on the disk.

    Parameters
    ----------
    about : what else it says, as JSON can hold it; without "files"
    """
    files = {
        path.relative_to(folder).as_posix(): {
            "size": path.stat().st_size,
            "sha256": sha256_file(path),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / INFO
    }
    (folder / INFO).write_text(json.dumps({**about, "files": files}, indent=1, sort_keys=True))
    for path in (*folder.rglob("*"), folder):
        sync(path)


def sealed(folder: Path, about: Mapping[str, Any], only: str = "") -> bool:
    """Whether a folder was sealed with `about`, and its files are as they were then.

    Its files are hashed once by a process, and again where their sizes or times have changed.

    Parameters
    ----------
    only : the one file that is looked at; empty: all of them
    """
    try:
        info = json.loads((folder / INFO).read_bytes())
        files = info.pop("files")
        if canonical(info) != canonical(about):
            return False
        if only:
            files = {only: files[only]}
        stats = _stats(folder, files)
        if _sound.get(folder) == stats:
            return True
        for name, told in files.items():
            path = folder / name
            if path.stat().st_size != told["size"] or sha256_file(path) != told["sha256"]:
                return False
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False  # absent, or written by someone else
    if not only:
        _sound[folder] = stats
    return True


def moved(folder: Path, target: Path) -> None:
    """Rename a folder that this process has just sealed; it need not be hashed again."""
    folder.rename(target)
    sync(target.parent)
    files = json.loads((target / INFO).read_bytes())["files"]
    _sound[target] = _stats(target, files)


def forget(folder: Path) -> None:
    """Have a folder hashed when it is next looked at."""
    _sound.pop(folder, None)


def _stats(folder: Path, files: Mapping[str, Any]) -> tuple[tuple[str, int, int], ...]:
    stats = ((name, (folder / name).stat()) for name in files)
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)
