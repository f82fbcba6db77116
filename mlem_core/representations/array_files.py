"""Arrays in files of each format: what is in them, read with care where they lie, never unpickled.

What is not compressed is memory-mapped, and looked at in blocks of rows.
"""

from __future__ import annotations

import csv
import math
import struct
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, readable
from mlem_core.base.parameters import Registry
from mlem_core.base.resources import check_memory
from mlem_core.base.text import listed, short
from mlem_core.extending import entry_modules
from mlem_core.stimuli.columns import NUMBER, cell_text, parse_number, rows_of_numbers
from mlem_core.stimuli.neural_rows import are_distances
from mlem_core.storage.digests import Stamp, stamp

T = TypeVar("T")

_PIECE = 2**20  # bytes that are read at a time
_READING_HEADER = threading.Lock()
# Kinds of safetensors' numbers that NumPy has, or that floats of 32 bits hold (BF16).
_NUMBERS = {"F16", "F32", "F64", "BF16", "BOOL"} | {
    f"{sign}{bits}" for sign in "IU" for bits in (8, 16, 32, 64)
}
# Kinds of safetensors' floats: name there -> name in numpy; bfloat16 has none.
_FLOATS = {"F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16"}
ADVICE = "choose fewer units, or save it as float32 without compression (numpy.savez)"
# What a first column may be that counts or names the rows.
FIRST_COLUMN = {
    "skip": "row numbers, left out",
    "unit": "a unit, as the others",
    "names": "names of the stimuli, values of one of their columns",
}
# What the names in the first column of a CSV are called as an array, and columns of identifiers.
FIRST_NAME = "the first column"
_IDENTIFIERS = frozenset(
    ("id", "idx", "index", "item", "participant", "row", "stim", "stimulus", "subject", "trial")
)


class CountsRows(InputError):
    """The first column of a CSV may be row numbers or names, and it was not said."""


class HoldsDistances(InputError):
    """The arrays of a file are distances, and it was not said."""


class FileArray(NamedTuple):
    """An array of a file.

    shape, dtype : of its numbers
    is_text : whether it holds texts, which are no layer but may name the rows
    problem : what is wrong with its type, "" for nothing
    read : gives the array, memory-mapped where it is not compressed; raises `InputError` where it
        is damaged
    is_distances : whether its format says that it holds distances
    read_rows : gives rows start to stop of two-dimensional numbers; None: `read` maps the file
    """

    shape: tuple[int, ...]
    dtype: str
    problem: str
    read: Callable[[], NDArray[Any]]
    is_text: bool = False
    is_distances: bool = False
    read_rows: Callable[[int, int], NDArray[Any]] | None = None


@dataclass(frozen=True)
class ArrayFormat:
    """A kind of files that hold representations.

    Attributes
    ----------
    name : of the format, as messages have it: "NumPy archive"
    suffixes : of its files, in lower case
    list_arrays : gives the arrays of a path with their names; what is damaged may raise any error.
        With an option, a function of the path and its value, "" where it has none
    fits : whether a file with one of the suffixes is of this format; None: if of no other
    option : name of the field of an analysis that says how a file is read, such as "first_column"
    """

    name: str
    suffixes: tuple[str, ...]
    list_arrays: Callable[..., Iterable[tuple[str, FileArray]]]
    fits: Callable[[Path], bool] | None = None
    option: str = ""


ARRAY_FORMATS = Registry[ArrayFormat]("array format", entry_modules)


def array_suffixes() -> list[str]:
    """Endings of files that can hold representations."""
    return list(dict.fromkeys(s for entry in ARRAY_FORMATS.values() for s in entry.suffixes))


def array_suffix(path: str | Path) -> str:
    """The ending of a file that can hold representations: ".npz", ".nii.gz"; "" for others."""
    name = Path(path).name.lower()
    return max((s for s in array_suffixes() if name.endswith(s)), key=len, default="")


def formats_help() -> str:
    """Which files can hold representations, in a sentence."""
    return (
        f"A file ({listed(array_suffixes(), last='or')}) with layer_00, layer_01, ... or arrays "
        "with names; a .csv or .npy holds one layer."
    )


def plain_name(name: str) -> str:
    """The name of an array, as messages have it."""
    return name if name.isprintable() and 0 < len(name) <= 60 else short(name)


def array_name(name: str, path: Path) -> str:
    """Name of an array of a file in messages."""
    return f"array {plain_name(name)} of {path.name}"


def npy_file(path: Path) -> NDArray[Any]:
    """The array of an .npy file, memory-mapped; several threads may call it at once.

    Raises ValueError: the file is longer or shorter than its array, or no array of numbers.
    """
    array = _with_header(lambda: np.lib.format.open_memmap(path, mode="r"))
    _check_length(array.shape, array.dtype, path.stat().st_size - array.offset)
    return np.asarray(array)


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type of an array in NumPy's format."""

    def read() -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        file.seek(0)
        if np.lib.format.read_magic(file) == (1, 0):
            return np.lib.format.read_array_header_1_0(file)
        return np.lib.format.read_array_header_2_0(file)

    return _with_header(read)


def _with_header(read: Callable[[], T]) -> T:
    """The result of `read`, which has NumPy read a header.

    NumPy takes a header for Python, which CPython 3.11 confuses where two threads do it. One thread
    at a time reads here; a file is read again if one that reads elsewhere was in the way.
    """
    with _READING_HEADER:
        try:
            return read()
        except SystemError:
            return read()


def _check_length(shape: tuple[int, ...], dtype: np.dtype[Any], n_bytes: int) -> None:
    """Raise ValueError where so many bytes are no array of this shape, or one and something else.

    NumPy leaves unread what is behind an array, a second one for instance.
    """
    expected = math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and n_bytes != expected:
        raise ValueError(f"{n_bytes} bytes for an array of {expected} bytes of {dtype}")


def _list_npz(path: Path) -> Iterator[tuple[str, FileArray]]:
    with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            read: Callable[[], NDArray[Any]] = partial(_read_packed, path, name)
            if member.filename == name:
                yield name, FileArray((), "", "is no array", read)
                continue
            packed = member.compress_type != zipfile.ZIP_STORED
            if packed:
                what = f"{array_name(name, path)}, which is compressed,"
                check_memory(member.file_size, what, ADVICE)
            with archive.open(member) as file:
                shape, columns_first, dtype = _npy_header(file)
                begin = file.tell()
                _check_length(shape, dtype, member.file_size - begin)
                if not packed and not dtype.hasobject:
                    # What is mapped later is checked against its checksum now.
                    while file.read(_PIECE):
                        pass
                    # The lengths of name and extra field are those of the member's own header.
                    raw.seek(member.header_offset + 26)
                    begin += member.header_offset + 30 + sum(struct.unpack("<HH", raw.read(4)))
                    order = "F" if columns_first else "C"
                    read = partial(np.memmap, path, dtype, "r", begin, shape, order)
            yield name, FileArray(shape, str(dtype), type_problem(dtype), read, dtype.kind in "US")


def type_problem(dtype: np.dtype[Any]) -> str:
    """What is wrong with a type of numbers, "" for nothing."""
    if dtype.hasobject:
        return (
            "holds Python objects (a pickle), which are never read; expected numbers, so save each "
            "layer of a dict or list as an array: numpy.savez(file, layer_00=..., layer_01=...)"
        )
    if dtype.kind not in "fiub":
        return f"holds {dtype}; expected real numbers"
    if dtype.itemsize > 8:
        return f"holds {dtype}; expected floats of at most 64 bits"
    return ""


def _read_packed(path: Path, name: str) -> NDArray[Any]:
    def read() -> NDArray[Any]:
        with np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays[name])

    return _with_header(read)


def _list_npy(path: Path) -> Iterator[tuple[str, FileArray]]:
    with path.open("rb") as file:
        shape, _, dtype = _npy_header(file)
    if not dtype.hasobject:
        npy_file(path)
    yield "layer_00", FileArray(shape, str(dtype), type_problem(dtype), partial(npy_file, path))


def _list_safetensors(path: Path) -> Iterator[tuple[str, FileArray]]:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 (it is no dict)
            part = file.get_slice(name)
            kind, shape = part.get_dtype(), tuple(part.get_shape())
            problem = "" if kind in _NUMBERS else f"holds {kind}; expected real numbers"
            read = partial(_read_safetensors, path, name)
            yield name, FileArray(shape, _FLOATS.get(kind, kind), problem, read)


def _read_safetensors(path: Path, name: str) -> NDArray[Any]:
    import torch
    from safetensors import safe_open

    # PyTorch maps the file, where NumPy would get a copy, and knows bfloat16.
    with safe_open(path, framework="pt") as file:
        tensor = file.get_tensor(name)
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return np.asarray(tensor.numpy())


def read_arrays(path: Path, options: Mapping[str, str] | None = None) -> dict[str, FileArray]:
    """The arrays of a file of a known format, by their names.

    Parameters
    ----------
    options : values of the options of formats, by their names

    Raises InputError: it is damaged. Raises CountsRows: as `_csv_arrays`.
    """
    suffix = array_suffix(path)
    read_all = partial(readable, path.name, f"{suffix} file", Exception)

    def guarded(read: Callable[..., NDArray[Any]], *rows: int) -> NDArray[Any]:
        with read_all():
            return np.asarray(read(*rows))

    arrays: dict[str, FileArray] = {}
    with read_all():
        entry = _format_of(path, suffix)
        value = ((options or {}).get(entry.option, ""),) if entry.option else ()
        for name, array in entry.list_arrays(path, *value):
            if name in arrays:
                raise InputError(f"{path.name} has two arrays named {short(name)}; expected one.")
            read_rows = array.read_rows and partial(guarded, array.read_rows)
            arrays[name] = array._replace(read=partial(guarded, array.read), read_rows=read_rows)
    return arrays


def _format_of(path: Path, suffix: str) -> ArrayFormat:
    formats = [entry for entry in ARRAY_FORMATS.values() if suffix in entry.suffixes]
    fitting = (entry for entry in formats if entry.fits and entry.fits(path))
    return next(fitting, next(entry for entry in formats if entry.fits is None))


def _csv_arrays(path: Path, first_column: str) -> Iterator[tuple[str, FileArray]]:
    """The layer of a CSV, with or without a header, and the names of its rows where it has some.

    Raises InputError: it cannot be read; a cell is no number. Raises CountsRows: it is not said
    what the first column is, which may be row numbers (`_counting`).
    """
    table = _parse_csv(path, stamp(path))
    names, without = table.names, first_column in ("skip", "names")
    if names and first_column == "unit":
        raise InputError(
            f"the first column of {path.name} has {short(names[0])} in row 1; expected numbers for "
            "a unit, so leave the column out or let it name the stimuli."
        )
    if not names and not first_column and (how := _counting(table)):
        raise CountsRows(
            f"the first column of {path.name} {how}, as row numbers that pandas writes or an "
            "identifier; save the file without it (to_csv(..., index=False)), or say whether to "
            "skip it, that it is a unit, or that it names the stimuli (--first-column NAME=skip, "
            "NAME=unit or NAME=names)."
        )
    if first_column == "names" and not names:
        names = tuple(str(cell_text(number)) for number in table.numbers[:, 0].tolist())

    def read() -> NDArray[Any]:
        table = _parse_csv(path, stamp(path))
        return table.numbers[:, 1:] if without and not table.names else table.numbers

    yield "layer_00", FileArray(read().shape, "float64", "", read)
    if names and first_column != "skip":
        yield FIRST_NAME, FileArray((len(names),), "text", "", partial(np.array, names), True)


class _Csv(NamedTuple):
    """The numbers (n_rows, n_units) of a CSV, names of its rows or (), and of its first column."""

    numbers: NDArray[np.float64]
    names: tuple[str, ...]
    corner: str | None


def _counting(table: _Csv) -> str:
    """Description of a first column that counts or names the rows; "" where it does not."""
    n, width = table.numbers.shape
    if table.corner is not None and not table.corner.strip():
        return "has no name"
    if width < 2:
        return ""
    name = (table.corner or "").strip().casefold()
    if name in _IDENTIFIERS or name.endswith("_id"):
        return f"is called {short(str(table.corner).strip())}"
    ascending = np.sort(table.numbers[:, 0])
    steps = np.diff(ascending)
    all_whole = (ascending == np.rint(ascending)).all()
    # Distances from the first of stimuli in a row count, too.
    if n < 2 or not all_whole or steps[0] == 0 or (steps != steps[0]).any():
        return ""
    if n == width and are_distances(table.numbers):
        return ""
    return f"counts its rows, {ascending[0]:g} to {ascending[-1]:g}"


@lru_cache(maxsize=1)  # it is looked at several times in a row
def _parse_csv(path: Path, now: Stamp | None) -> _Csv:
    with (
        readable(path.name, "CSV file", csv.Error, ValueError),
        path.open(encoding="utf-8-sig") as file,
    ):
        lines = filter(None, csv.reader(file, strict=True))
        first, second = next(lines, []), next(lines, [])
        is_number = [parse_number(cell) is not None for cell in second]
        # Names stand before numbers.
        named = int(bool(second and second[0].strip()) and not is_number[0] and any(is_number))
        header = _has_header(path, first[named:])
        rows = chain([first] * (not header), [second] * bool(second), lines)
        numbers, names = rows_of_numbers(rows, len(first), path.name, "a number", names=named)
    return _Csv(numbers, tuple(map(str.strip, names)), first[0] if header else None)


def _has_header(path: Path, first: list[str]) -> bool:
    """Whether a first line is one of names; raises where there is none or it is no CSV's."""
    if not first:
        raise InputError(f"{path.name} is empty; expected a row of numbers for each stimulus.")
    # A header is a first row with a name in it, or the numbers 0, 1, 2 ... of the columns.
    names = [cell for cell in first if parse_number(cell) is None]
    if names and (numbers := [c for c in first if NUMBER.fullmatch(c) and not c.isdigit()]):
        raise InputError(
            f"the first row of {path.name} has {names[0][:40]!r} beside numbers such as "
            f"{numbers[0]}; expected numbers only, or a header of names."
        )
    return bool(names) or (len(first) > 1 and first == [str(i) for i in range(len(first))])


for entry in (
    ArrayFormat("NumPy archive", (".npz",), _list_npz),
    ArrayFormat("NumPy array", (".npy",), _list_npy),
    ArrayFormat("safetensors", (".safetensors",), _list_safetensors),
    ArrayFormat("CSV", (".csv",), _csv_arrays, option="first_column"),
):
    ARRAY_FORMATS.register(entry)
