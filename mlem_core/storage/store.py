"""Store of computations on disk, under keys of all that they depend on.

A key is the SHA-256 of a canonical JSON of everything that an entry depends on, so that a
change of any of it is another entry and nothing ever has to be invalidated. An entry is a
folder; it is made under another name, gets an `entry.json` with the size and digest of each of
its files, and is renamed. Whatever has its own name is therefore finished, and what
does not match its `entry.json` is damaged and is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import filelock

from mlem_core.base.errors import InputError
from mlem_core.base.files import is_full
from mlem_core.base.room import default_root
from mlem_core.storage.digests import canonical, forget, making, moved, seal, sealed

LAYOUT = 1  # of the store itself: counted up when `entry.json` or the folders change
# Entries that come with the program (of its example), beside those that a store makes.
OVERLAYS = (Path(__file__).resolve().parents[1] / "tasks" / "example_data" / "store",)
_POLL = 0.2  # seconds between two looks at a lock that another process holds


class Store:
    """A folder of finished computations that any number of processes may share.

    Parameters
    ----------
    root : folder to keep the entries in, made if needed; None takes `default_root()`.
    overlays : folders of entries that are only read, for what the root does not have.

    What is in it can be read where it cannot be written.
    """

    def __init__(self, root: Path | str | None = None, overlays: Sequence[Path] = OVERLAYS) -> None:
        self._overlays = tuple(overlays)
        named = Path(root if root is not None else default_root())
        try:
            self.root = named.expanduser().absolute()
        except RuntimeError as error:
            raise InputError(
                f"the cache folder {str(named)!r} stands in a home, and this user has none: name "
                "a whole path in MLEM_CACHE."
            ) from error
        self._temporary = self.root / "unfinished"
        self._locks = self.root / "locks"
        # Only read, it needs none of these.
        with contextlib.suppress(OSError):
            self._temporary.mkdir(parents=True, exist_ok=True)
            self._locks.mkdir(exist_ok=True)
            self._clean(None)

    def check_writable(self) -> None:
        """Make the folder, or raise `InputError` where it cannot be made or written."""
        try:
            self._temporary.mkdir(parents=True, exist_ok=True)
            self._locks.mkdir(exist_ok=True)
            writable = all(
                os.access(each, os.W_OK) for each in (self.root, self._temporary, self._locks)
            )
        except OSError as error:
            if is_full(error):
                raise _full(self.root) from error
            writable = False
        if not writable:
            raise InputError(
                f"the cache folder {str(self.root)!r} cannot be written: "
                "make it writable or name another one in MLEM_CACHE."
            )

    def key(self, stage: str, version: int, /, **depends_on: Any) -> str:
        """The key of an entry, 64 hex digits; `depends_on` holds what JSON can hold."""
        return hashlib.sha256(canonical(_identity(stage, version, depends_on))).hexdigest()

    def folder(self, stage: str, version: int, /, **depends_on: Any) -> Path:
        """Folder of an entry, once it is there."""
        return self.root / stage / self.key(stage, version, **depends_on)

    def find(self, stage: str, version: int, /, **depends_on: Any) -> Path | None:
        """The folder of a finished and sound entry, or None."""
        identity = _identity(stage, version, depends_on)
        entries = (_sound_entry(root, stage, identity) for root in (self.root, *self._overlays))
        return next((folder for folder in entries if folder is not None), None)

    def entry(
        self,
        stage: str,
        version: int,
        make: Callable[[Path], None],
        waiting: Callable[[], None] | None = None,
        /,
        **depends_on: Any,
    ) -> Path:
        """The folder of an entry, made by `make(folder)` where it is missing or damaged.

        `make` writes its files into the folder that it is given; whatever it raises passes
        through and leaves nothing behind. While another process makes the same entry,
        `waiting` is called a few times a second; it may raise to give up.

        Raises `InputError` where the store cannot be written, its disk is full, or a file that the
        entry is made of has changed meanwhile, see `mlem_core.storage.digests`.
        """
        existing = self.find(stage, version, **depends_on)
        if existing is not None:
            return existing
        self.check_writable()
        identity = _identity(stage, version, depends_on)
        key = self.key(stage, version, **depends_on)
        with self._locked(key, waiting):
            # Another process may have made it while we waited.
            existing = _sound_entry(self.root, stage, identity)
            if existing is not None:
                return existing
            self._clean(key)
            folder = self.root / stage / key
            unfinished = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=self._temporary))
            try:
                with making(canonical(depends_on).decode()):
                    make(unfinished)
                seal(unfinished, identity)
                folder.parent.mkdir(exist_ok=True)
                self._remove(folder, key)
                moved(unfinished, folder)
            except OSError as error:
                if is_full(error):
                    raise _full(self.root) from error
                raise
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
            return folder

    def remove(self, stage: str, version: int, /, **depends_on: Any) -> None:
        """Remove an entry that nobody asks for any more."""
        key = self.key(stage, version, **depends_on)
        self.check_writable()
        with self._locked(key, None):
            self._remove(self.root / stage / key, key)

    @contextlib.contextmanager
    def _locked(self, key: str, waiting: Callable[[], None] | None) -> Iterator[None]:
        # The system lets go of the lock when its process dies, however it dies.
        lock = filelock.FileLock(self._locks / f"{key}.lock")
        while True:
            try:
                lock.acquire(timeout=_POLL)
                break
            except filelock.Timeout:
                if waiting is not None:
                    waiting()
        try:
            yield
        finally:
            lock.release()

    def _clean(self, key: str | None) -> None:
        """Remove what killed processes left: folders whose lock is ours (`key`) or nobody's."""
        for left in self._temporary.iterdir():
            owner = left.name.partition(".")[0]
            if owner == key:
                shutil.rmtree(left, ignore_errors=True)
                continue
            lock = filelock.FileLock(self._locks / f"{owner}.lock")
            with contextlib.suppress(filelock.Timeout, OSError), lock.acquire(timeout=0):
                shutil.rmtree(left, ignore_errors=True)

    def _remove(self, folder: Path, key: str) -> None:
        """Take a damaged entry out of the way, in one step where readers are concerned."""
        forget(folder)
        if folder.exists() or folder.is_symlink():
            grave = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=self._temporary))
            folder.rename(grave / "entry")
            shutil.rmtree(grave, ignore_errors=True)


def _sound_entry(root: Path, stage: str, identity: dict[str, Any]) -> Path | None:
    folder = root / stage / hashlib.sha256(canonical(identity)).hexdigest()
    return folder if sealed(folder, identity) else None


def _full(root: Path) -> InputError:
    return InputError(
        f"the disk of the cache folder {str(root)!r} is full: "
        "free some space or name another folder in MLEM_CACHE."
    )


def _identity(stage: str, version: int, depends_on: dict[str, Any]) -> dict[str, Any]:
    return {"layout": LAYOUT, "stage": stage, "version": version, "depends_on": depends_on}
