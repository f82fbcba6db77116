"""Store of computations on disk, under keys of all that they depend on.

A kind of entry says how a result is found, made, and kept by the types of its fields.

A key is the SHA-256 of a canonical JSON of everything that an entry depends on, so that a
change of any of it is another entry and nothing ever has to be invalidated. An entry is a
folder; it is made under another name, gets an `entry.json` with the size and digest of each of
its files, and is renamed. Whatever has its own name is therefore finished, and what
does not match its `entry.json` is damaged and is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

import filelock
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.files import is_full
from mlem_core.base.parameters import frozen
from mlem_core.base.resources import default_root
from mlem_core.storage.digests import canonical, making, moved, seal, sealed

LAYOUT = 1  # of the store itself: counted up when `entry.json` or the folders change
# Entries that come with the program (of its example), beside those that a store makes.
OVERLAYS = (Path(__file__).resolve().parents[1] / "tasks" / "example_data" / "store",)
_POLL = 0.2  # seconds between two looks at a lock that another process holds


class Store:
    """A folder of finished computations that any number of processes may share.

    >>> store = Store("kept")

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

    def find(self, stage: str, version: int, /, **depends_on: Any) -> Path | None:
        """The folder of a finished and sound entry, or None."""
        identity = _identity(stage, version, depends_on)
        key = self.key(stage, version, **depends_on)
        for root in (self.root, *self._overlays):
            if sealed(root / stage / key, identity):
                return root / stage / key
        return None

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
        key = self.key(stage, version, **depends_on)
        with self._locked(key, waiting):
            # Another process may have made it while we waited.
            existing = self.find(stage, version, **depends_on)
            if existing is not None:
                return existing
            self._clean(key)
            folder = self.root / stage / key
            try:
                with self._unfinished(key) as unfinished:
                    with making(canonical(depends_on).decode()):
                        make(unfinished)
                    seal(unfinished, _identity(stage, version, depends_on))
                    folder.parent.mkdir(exist_ok=True)
                    self._remove(folder, key)
                    moved(unfinished, folder)
            except OSError as error:
                if is_full(error):
                    raise _full(self.root) from error
                raise
            return folder

    def remove(self, stage: str, version: int, /, **depends_on: Any) -> None:
        """Remove an entry that nobody asks for any more."""
        key = self.key(stage, version, **depends_on)
        self.check_writable()
        with self._locked(key, None):
            self._remove(self.root / stage / key, key)

    @contextlib.contextmanager
    def _unfinished(self, key: str) -> Iterator[Path]:
        """A new folder, which is removed at the end, whenever a signal comes."""
        folder = self._temporary / f"{key}.{secrets.token_hex(4)}"
        try:
            folder.mkdir(0o700)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

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
        if folder.exists() or folder.is_symlink():
            with self._unfinished(key) as grave:
                folder.rename(grave / "entry")


def _full(root: Path) -> InputError:
    return InputError(
        f"the disk of the cache folder {str(root)!r} is full: "
        "free some space or name another folder in MLEM_CACHE."
    )


def _identity(stage: str, version: int, depends_on: dict[str, Any]) -> dict[str, Any]:
    return {"layout": LAYOUT, "stage": stage, "version": version, "depends_on": depends_on}


T = TypeVar("T")
Tables = dict[str, pd.DataFrame]
_ARRAYS, _ABOUT = "arrays.npz", "about.json"


class Packed(NamedTuple):
    """Form of an array in its file, as the annotation of its field; it is read as float64.

    dtype : of its numbers in the file
    symmetric : whether arrays (..., n, n) are, whose upper triangles are kept
    """

    dtype: type[np.floating] = np.float64
    symmetric: bool = False

    def packed(self, array: NDArray[Any]) -> NDArray[Any]:
        """Array as the file holds it."""
        if self.symmetric:
            rows, columns = np.triu_indices(array.shape[-1])
            array = array[..., rows, columns]
        return array.astype(self.dtype)

    def unpacked(self, kept: NDArray[Any]) -> NDArray[Any]:
        """The array of what is in the file."""
        array = kept.astype(np.float64)
        if not self.symmetric:
            return array
        n = (round((1 + 8 * array.shape[-1]) ** 0.5) - 1) // 2
        rows, columns = np.triu_indices(n)
        square = np.empty((*array.shape[:-1], n, n))
        square[..., rows, columns] = square[..., columns, rows] = array
        return square


class InFile(NamedTuple):
    """Saving and loading of a field that has a file of its own, as its annotation."""

    save: Callable[[Any, Path], None]
    load: Callable[[Path], Any]


def save_result(result: Any, folder: Path, *, compressed: bool = False) -> None:
    """Write a result into an existing folder: plain CSV, JSON and arrays, no pickle.

    A table becomes a CSV, what is a result by itself a folder, all arrays are in one .npz, and the
    rest is in one JSON, beside the types of the tables' columns. None is left out.

    Parameters
    ----------
    result : a dataclass, a named tuple, a table, or tables by name
    compressed : whether arrays are
    """
    arrays: dict[str, Any] = {}
    values: dict[str, Any] = {}
    tables: dict[str, dict[str, str]] = {}
    annotated = _annotated(type(result))
    for name, value in _parts(result).items():
        how = _how(annotated.get(name))
        if isinstance(how, InFile):
            how.save(value, folder / f"{name}.npz")
        elif isinstance(value, pd.DataFrame):
            value.to_csv(folder / f"{name}.csv", index=False)
            tables[name] = {str(of): _kind(column) for of, column in value.infer_objects().items()}
        elif isinstance(value, np.ndarray):
            arrays[name] = how.packed(value) if isinstance(how, Packed) else value
        elif _is_record(value):
            (folder / name).mkdir()
            save_result(value, folder / name, compressed=compressed)
        elif value is not None:
            values[name] = value
    if arrays:
        (np.savez_compressed if compressed else np.savez)(folder / _ARRAYS, **arrays)
    about = json.dumps({"tables": tables, "values": values})
    (folder / _ABOUT).write_text(about, encoding="utf-8")


def load_result(kind: type[T], folder: Path) -> T:
    """Read what `save_result` wrote of a result of this kind.

    Raises OSError, ValueError, LookupError, TypeError: it is not there, or of another form.
    """
    about, annotated = json.loads((folder / _ABOUT).read_bytes()), _annotated(kind)
    fields: dict[str, Any] = {
        name: _read(folder / f"{name}.csv", columns) for name, columns in about["tables"].items()
    }
    for name, value in about["values"].items():
        fields[name] = frozen(value) if get_origin(annotated[name]) is tuple else value
    if (folder / _ARRAYS).exists():
        with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
            # An entry may have arrays that this version no longer reads.
            for name in filter(annotated.__contains__, arrays.files):
                how, array = _how(annotated[name]), arrays[name]
                fields[name] = how.unpacked(array) if isinstance(how, Packed) else array
    for name, hint in annotated.items():
        if isinstance(how := _how(hint), InFile):
            fields[name] = how.load(folder / f"{name}.npz")
        elif (folder / name).is_dir():
            fields[name] = load_result(
                next(filter(_is_record, (hint, *get_args(hint)))), folder / name
            )
    return cast("T", fields["table"]) if kind is pd.DataFrame else kind(**fields)


def _parts(result: Any) -> Mapping[str, Any]:
    if isinstance(result, pd.DataFrame):
        return {"table": result}
    if isinstance(result, dict):
        return result
    return {name: getattr(result, name) for name in _annotated(type(result))}


def _annotated(kind: Any) -> dict[str, Any]:
    """The annotations of the fields of a kind of result."""
    if not _is_record(kind):
        return {}
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
    annotations = get_type_hints(kind, include_extras=True)
    return {name: annotations[name] for name in names}


def _is_record(value: Any) -> bool:
    return is_dataclass(value) or hasattr(value, "_fields")


def _how(annotation: Any) -> Any:
    """Annotation beside the type in `Annotated`; None where there is none."""
    return next(iter(getattr(annotation, "__metadata__", ())), None)


def _kind(column: pd.Series[Any]) -> str:
    if pd.api.types.is_numeric_dtype(column):
        return str(column.dtype)
    return "str" if len(column) else "object"  # an empty column may be one of numbers


def _read(path: Path, columns: Mapping[str, str]) -> pd.DataFrame:
    """A table with columns of these types; an empty cell is a missing number or an empty text."""
    numbers = {name: [""] for name, kind in columns.items() if kind.startswith("float")}
    return pd.read_csv(path, dtype=dict(columns), keep_default_na=False, na_values=numbers or None)


@dataclass(frozen=True)
class EntryKind(Generic[T]):
    """A kind of result that a store keeps.

    Attributes
    ----------
    name, version : with what a result depends on, its key; the version is counted up when the same
        input gives another result or other files
    kind : what results are, see `save_result`
    compressed : whether their arrays are
    """

    name: str
    version: int
    kind: type[T]
    compressed: bool = False

    def where(self, store: Store, depends_on: Mapping[str, Any]) -> Path | None:
        """The folder of a kept result, in the store or in one of its overlays; else None."""
        return store.find(self.name, self.version, **depends_on)

    def find(self, store: Store, depends_on: Mapping[str, Any]) -> T | None:
        """A kept result; None where there is none."""
        folder = self.where(store, depends_on)
        return None if folder is None else load_result(self.kind, folder)

    def get(self, store: Store, depends_on: Mapping[str, Any], make: Callable[[], T]) -> T:
        """A kept result, or what `make` gives, which is then kept."""

        def fill(folder: Path) -> None:
            save_result(make(), folder, compressed=self.compressed)

        return load_result(self.kind, store.entry(self.name, self.version, fill, **depends_on))
