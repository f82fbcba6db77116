"""Arrays that a user brings as representations: read with care, never unpickled."""

from __future__ import annotations

import csv
import functools
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.models.files import first_line
from mlem_core.storage.store import sha256_file

_LAYER = re.compile(r"layer_(\d+)")
SUFFIXES = (".npz", ".safetensors", ".csv")
# Kinds of safetensors' numbers: name there -> name in numpy; bfloat16 has none.
_FLOATS = {"F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16"}
_WHOLE = ("I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "BOOL")


@dataclass(frozen=True)
class Arrays:
    """A checked file.

    names : layer -> array; numbered in the order of the file where no array is called `layer_00`
    named : whether the arrays have names of their own, which are those of the layers
    read(layer) : its (n_stimuli, n_units) array
    left_out : a sentence for each layer that holds a value that is not finite
    """

    digest: str
    names: dict[int, str]
    dtypes: dict[str, str]
    read: Callable[[int], NDArray[np.floating]]
    left_out: tuple[str, ...] = ()
    named: bool = False


def open_arrays(path: Path, n_stimuli: int, *, distances: bool = False) -> Arrays:
    """Check every layer of a file, one at a time; `representations.from_file` says which fit."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"the representations file {path.name!r} ends in {suffix or 'nothing'!r}; "
            f"expected {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}."
        )
    if not path.is_file():
        raise InputError(f"there is no representations file {str(path)!r}.")
    describe, read = {
        ".npz": (_describe_npz, _read_npz),
        ".safetensors": (_describe_st, _read_st),
        ".csv": (_describe_csv, _read_csv),
    }[suffix]
    try:
        digest = sha256_file(path)
        described = describe(path)
        names = _layers(path, described)
        bad: dict[int, str] = {}
        for layer, name in names.items():
            shape, problem, _ = described[name]
            where = path.name if suffix == ".csv" else f"array {name} of {path.name}"
            if problem:
                raise InputError(f"{where} {problem}.")
            if len(shape) != 2 or shape[1] == 0:
                raise InputError(
                    f"{where} has the shape {_shape(shape)}; expected (stimuli, units), here "
                    f"({n_stimuli}, any number)."
                )
            if distances and shape != (n_stimuli, n_stimuli):
                raise InputError(
                    f"{where} has the shape {_shape(shape)}; precomputed distances of {n_stimuli} "
                    f"stimuli have the shape ({n_stimuli}, {n_stimuli})."
                )
            if shape[0] != n_stimuli:
                raise InputError(
                    f"{where} has {shape[0]} rows; expected one for each of {n_stimuli} stimuli."
                )
            places = np.argwhere(~np.isfinite(_as_float(read(path, name))))
            if len(places):
                row, column = places[0]
                value = read(path, name)[row, column]
                bad[layer] = (
                    f"{where} has {value} in row {row + 1}, unit {column + 1}"
                    f"{f' and in {len(places) - 1} more places' if len(places) > 1 else ''}; "
                    "expected finite numbers."
                )
        if len(bad) == len(names):
            raise InputError(next(iter(bad.values())))
    except OSError as error:
        raise InputError(f"the file {path.name!r} cannot be read: {first_line(error)}.") from error
    return Arrays(
        digest=digest,
        names={layer: name for layer, name in names.items() if layer not in bad},
        dtypes={name: described[name][2] for name in names.values()},
        read=lambda layer: _as_float(read(path, names[layer])),
        left_out=tuple(bad.values()),
        named=not any(_LAYER.fullmatch(name) for name in names.values()),
    )


def seem_distances(arrays: Arrays, n_stimuli: int) -> bool:
    """Whether every array of a file is square, symmetric, and 0 on its diagonal and nowhere < 0."""
    for layer in arrays.names:
        square = arrays.read(layer)
        if square.shape != (n_stimuli, n_stimuli) or np.diag(square).any():
            return False
        if (square < 0).any() or not np.allclose(square, square.T):
            return False
    return True


# Name of an array -> its shape, what is wrong with its type ("" for nothing), and the type.
_Described = dict[str, tuple[tuple[int, ...], str, str]]


def _layers(path: Path, names: Iterable[str]) -> dict[int, str]:
    names = list(names)
    layers: dict[int, str] = {}
    for name in sorted(names):
        match = _LAYER.fullmatch(name)
        if match is None:
            continue
        number = int(match[1])
        if number in layers:
            raise InputError(
                f"{path.name} has two arrays for layer {number}: {layers[number]} and {name}."
            )
        layers[number] = name
    if not names:
        raise InputError(
            f"{path.name} has no array at all; expected one a layer: layer_00, layer_01 ..., or "
            "names of your own such as V1."
        )
    if not layers:
        return dict(enumerate(names))
    return dict(sorted(layers.items()))


def _as_float(array: NDArray[Any]) -> NDArray[np.floating]:
    if array.dtype.kind == "f":
        return array.astype(np.result_type(array.dtype, np.float32), copy=False)
    return array.astype(np.float64)


def _shape(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def _damaged(path: Path, kind: str, error: BaseException) -> InputError:
    return InputError(f"{path.name} is damaged or no {kind} file ({first_line(error)}).")


def _describe_npz(path: Path) -> _Described:
    described: _Described = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    name = member.removesuffix(".npy")
                    if not member.endswith(".npy"):
                        described[name] = ((), "is no array", "")
                        continue
                    version = np.lib.format.read_magic(file)
                    if version not in ((1, 0), (2, 0)):
                        described[name] = ((), f"has npy format {version}", "")
                        continue
                    header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
                    shape, _, dtype = header(file)
                    described[name] = (shape, _problem(dtype), str(dtype))
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError) as error:
        raise _damaged(path, ".npz", error) from error
    return described


def _problem(dtype: np.dtype[Any]) -> str:
    if dtype.hasobject:
        return "holds Python objects (a pickle), which are never read; expected numbers"
    if dtype.kind not in "fiub":
        return f"holds {dtype}; expected real numbers"
    return ""


def _read_npz(path: Path, name: str) -> NDArray[Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            array: NDArray[Any] = archive[name]
            return array
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as error:
        raise _damaged(path, ".npz", error) from error
    except MemoryError as error:
        raise InputError(f"array {name} of {path.name} does not fit into memory.") from error


def _describe_st(path: Path) -> _Described:
    from safetensors import SafetensorError, safe_open

    described: _Described = {}
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (it is no dict)
                part = file.get_slice(name)
                kind = part.get_dtype()
                fine = kind in _FLOATS or kind in _WHOLE
                problem = "" if fine else f"holds {kind}; expected real numbers"
                described[name] = (tuple(part.get_shape()), problem, _FLOATS.get(kind, kind))
    except (SafetensorError, ValueError) as error:
        raise _damaged(path, ".safetensors", error) from error
    return described


def _read_st(path: Path, name: str) -> NDArray[Any]:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        if file.get_slice(name).get_dtype() != "BF16":
            array: NDArray[Any] = file.get_tensor(name)
            return array
    with safe_open(path, framework="pt") as file:  # numpy has no bfloat16
        return np.asarray(file.get_tensor(name).float().numpy())


def _describe_csv(path: Path) -> _Described:
    return {"layer_00": (_read_csv(path, "layer_00").shape, "", "float64")}


def _read_csv(path: Path, name: str) -> NDArray[Any]:
    stat = path.stat()
    return _parse_csv(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=1)  # it is looked at several times in a row
def _parse_csv(path: Path, size: int, mtime: int) -> NDArray[np.float64]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        lines = [line for line in csv.reader(io.StringIO(text), strict=True) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise _damaged(path, "CSV", error) from error
    if not lines:
        raise InputError(f"{path.name} is empty; expected a row of numbers for each stimulus.")
    for separator, kind in ((";", "semicolons"), ("\t", "tabs")):
        if len(lines[0]) == 1 and separator in lines[0][0]:
            raise InputError(
                f"{path.name} seems to be separated by {kind}; the cells must be separated by "
                "commas."
            )
    # A header is a first row with a name in it, or the numbers 0, 1, 2 ... of the columns.
    named = any(_number(cell) is None for cell in lines[0])
    header = named or (len(lines[0]) > 1 and lines[0] == [str(i) for i in range(len(lines[0]))])
    if header and not lines[0][0].strip():
        raise InputError(
            f"the first column of {path.name} has no name, as a column of row numbers has none; "
            "expected units only (in pandas: to_csv(..., index=False))."
        )
    rows = lines[1:] if header else lines
    values = np.empty((len(rows), len(lines[0])))
    for row, cells in enumerate(rows):
        if len(cells) != len(lines[0]):
            raise InputError(
                f"row {row + 1} of {path.name} has {len(cells)} cells; the first one has "
                f"{len(lines[0])}."
            )
        for column, cell in enumerate(cells):
            value = _number(cell)
            if value is None:
                raise InputError(
                    f"{path.name} has {cell[:40]!r} in row {row + 1}, column {column + 1}; "
                    "expected a number."
                )
            values[row, column] = value
    return values


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
