"""Stage: a kind of result, how it is found, made, and kept by the types of its fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.parameters import frozen
from mlem_core.storage.store import Store

T = TypeVar("T")
Tables = dict[str, pd.DataFrame]
_ARRAYS, _ABOUT = "arrays.npz", "about.json"


class Packed(NamedTuple):
    """Form of an array in its file, as the annotation of its field; it is read as float64.

    dtype : of its numbers in the file
    diagonal : what is on the diagonals of symmetric arrays (..., n, n), whose upper
        triangles are kept; None for any other array
    """

    dtype: type[np.floating] = np.float64
    diagonal: float | None = None

    def packed(self, array: NDArray[Any]) -> NDArray[Any]:
        """Array as the file holds it."""
        if self.diagonal is not None:
            rows, columns = np.triu_indices(array.shape[-1], 1)
            array = array[..., rows, columns]
        return array.astype(self.dtype)

    def unpacked(self, kept: NDArray[Any]) -> NDArray[Any]:
        """The array of what is in the file."""
        array = kept.astype(np.float64)
        if self.diagonal is None:
            return array
        n = (1 + round((1 + 8 * array.shape[-1]) ** 0.5)) // 2
        rows, columns = np.triu_indices(n, 1)
        square = np.full((*array.shape[:-1], n, n), self.diagonal)
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
    found: dict[str, Any] = {
        name: _read(folder / f"{name}.csv", columns) for name, columns in about["tables"].items()
    }
    for name, value in about["values"].items():
        found[name] = frozen(value) if get_origin(annotated[name]) is tuple else value
    if (folder / _ARRAYS).exists():
        with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
            for name in arrays.files:
                how, array = _how(annotated[name]), arrays[name]
                found[name] = how.unpacked(array) if isinstance(how, Packed) else array
    for name, hint in annotated.items():
        if isinstance(how := _how(hint), InFile):
            found[name] = how.load(folder / f"{name}.npz")
        elif (folder / name).is_dir():
            found[name] = load_result(
                next(filter(_is_record, (hint, *get_args(hint)))), folder / name
            )
    return cast("T", found["table"]) if kind is pd.DataFrame else kind(**found)


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
class Stage(Generic[T]):
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
