"""Files that results are computed from: their digests, and whether they have changed since.

A digest says what an entry of the store was computed from, and the numbers are read later, from
the same path. So whoever reads them says so (`Watched.is_read`), and `Store.entry` keeps nothing
whose key has the digest of files that have changed when it is made.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from mlem_core.base.errors import InputError
from mlem_core.storage.sealed import sha256_file

# Two changes within a tick of a file system's clock (4 ms on Linux) have one time.
_TICK = 20_000_000  # ns


class Stamp(NamedTuple):
    """What of a file is another one after each change of its content.

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
    """What a file is now, such that every later change gives another stamp; None if it is not."""
    found = _now(path)
    if found is not None and abs(time.time_ns() - max(found.modified, found.changed)) < _TICK:
        time.sleep(_TICK / 1e9)
        return _now(path)
    return found


class Digested(NamedTuple):
    """A file whose digest (SHA-256, hex) was taken, and what it was then."""

    path: Path
    stamp: Stamp
    digest: str

    @classmethod
    def of(cls, path: Path) -> Digested:
        """Hash a file, once by a process as long as it does not change.

        Raises OSError, and InputError where it changes meanwhile.
        """
        path = path.absolute()
        found = stamp(path)
        if found is None:
            os.stat(path)  # says why
            raise changed(path.name)
        return cls(path, found, _sha256(path, found))

    def is_same(self) -> bool:
        """Whether its content is what it was."""
        found = _now(self.path)
        if found is None or found[:-1] != self.stamp[:-1]:
            return False
        # Other rights or another name of the same file leave its content.
        return found == self.stamp or Digested.of(self.path).digest == self.digest


@lru_cache(maxsize=256)
def _sha256(path: Path, found: Stamp) -> str:
    digest = sha256_file(path)
    if _now(path) != found:
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
        watched = [one for one in _read if one.digest in key]
    for one in watched:
        one.check()
