"""Digests of folders and files: whether they hold what was written, or what was read.

A finished folder is sealed: `entry.json` has the size and digest of each of its files. What does
not match it is damaged: it is made again, or a sentence says so; nothing of it is used.

Of a file that results are computed from, a digest says in an entry's key what that was, and the
numbers are read later, from the same path. So whoever reads them says so (`Watched.is_read`), and
`Store.entry` keeps nothing whose key has the digest of files that have changed when it is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from mlem_core.base.errors import InputError
from mlem_core.base.files import sync_path

INFO = "entry.json"
# What the seals of results say: counted up when their files change.
RESULT = {"layout": 2}
# Folders found sound by this process: folder -> (name, size, mtime) of their files. Hashing a few
# hundred MB at each look would be felt; a file that changes is seen by its size or time.
_sound: dict[Path, tuple[tuple[str, int, int], ...]] = {}
# Two changes within a tick of a file system's clock (4 ms on Linux) have one time.
_TICK = 20_000_000  # ns


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical(value: Any) -> bytes:
    """Canonical JSON, the same for equal values: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def seal(folder: Path, about: Mapping[str, Any]) -> None:
    """Write the `entry.json` of a folder that is finished, and have all of it on the disk.

    `about` is what else it says, as JSON can hold it; without "files".
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
        sync_path(path)


def sealed(folder: Path, about: Mapping[str, Any], only: str = "") -> bool:
    """Whether a folder was sealed with `about`, and its files are as they were then.

    Its files are hashed once by a process, and again where their sizes or times have changed.

    `only` is the one file that is looked at; empty: all of them.
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
        for name, digest in files.items():
            path = folder / name
            if path.stat().st_size != digest["size"] or sha256_file(path) != digest["sha256"]:
                return False
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False  # absent, or written by someone else
    if not only:
        _sound[folder] = stats
    return True


def moved(folder: Path, target: Path) -> None:
    """Rename a folder that this process has just sealed; it need not be hashed again."""
    folder.rename(target)
    sync_path(target.parent)
    files = json.loads((target / INFO).read_bytes())["files"]
    _sound[target] = _stats(target, files)


def _stats(folder: Path, files: Mapping[str, Any]) -> tuple[tuple[str, int, int], ...]:
    stats = ((name, (folder / name).stat()) for name in files)
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


class Stamp(NamedTuple):
    """The marks of a file that differ after each change of its content.

    `changed` is kept by the system: nobody can set it, and it never comes back.
    """

    size: int
    modified: int
    device: int
    inode: int
    changed: int


def _now(path: Path) -> Stamp | None:
    try:
        at = os.stat(path)
    except OSError:
        return None
    return Stamp(at.st_size, at.st_mtime_ns, at.st_dev, at.st_ino, at.st_ctime_ns)


def stamp(path: Path) -> Stamp | None:
    """The stamp of a file now, None where there is none; every later change gives another one."""
    now = _now(path)
    if now is not None and abs(time.time_ns() - max(now.modified, now.changed)) < _TICK:
        time.sleep(_TICK / 1e9)
        return _now(path)
    return now


class Digested(NamedTuple):
    """A file whose digest (SHA-256, hex) was taken, and what it was then."""

    path: Path
    stamp: Stamp
    digest: str

    @classmethod
    def from_file(cls, path: Path) -> Digested:
        """Hash a file, once by a process as long as it does not change.

        Raises OSError, and InputError where it changes meanwhile.
        """
        path = path.absolute()
        now = stamp(path)
        if now is None:
            os.stat(path)  # says why
            raise changed(path.name)
        return cls(path, now, _sha256(path, now))

    def is_same(self) -> bool:
        """Whether its content is what it was."""
        now = _now(self.path)
        if now is None or now[:-1] != self.stamp[:-1]:
            return False
        # Other rights or another name of the same file leave its content.
        return now == self.stamp or Digested.from_file(self.path).digest == self.digest


@lru_cache(maxsize=256)
def _sha256(path: Path, before: Stamp) -> str:
    digest = sha256_file(path)
    if _now(path) != before:
        raise changed(path.name)
    return digest


def changed(what: str) -> InputError:
    """The error for a file or a model that is not what it was when its digest was taken."""
    return InputError(
        f"{what} was changed while it was read, so nothing of it is kept: run this again once "
        "nobody writes to it."
    )


@dataclass(frozen=True, eq=False)
class Watched:
    """Files that are read under one digest.

    Attributes
    ----------
    digest : names their content in the keys of the store
    files : none where the content cannot change, as that of a commit
    """

    digest: str
    files: tuple[Digested, ...] = ()

    def check(self) -> None:
        """Raise `InputError` where a file has changed."""
        for file in self.files:
            if not file.is_same():
                raise changed(file.path.name)

    def is_read(self) -> None:
        """Say that numbers of these files are used from now on, which may be mapped; as `check`."""
        with _lock:
            if _making:
                _read.add(self)
        self.check()


# How many entries are being made in this process, and what has been read since there were some.
_making = 0
_read: set[Watched] = set()
_lock = threading.Lock()


@contextlib.contextmanager
def making(key: str) -> Iterator[None]:
    """While something is made under a key; raises as `check_unchanged` at its end."""
    global _making
    with _lock:
        _making += 1
    try:
        yield
        check_unchanged(key)
    finally:
        with _lock:
            _making -= 1
            if not _making:
                _read.clear()


def check_unchanged(key: str) -> None:
    """Raise `InputError` where files have changed that were read and whose digest is in a key."""
    with _lock:
        watched = [file for file in _read if file.digest in key]
    for file in watched:
        file.check()
