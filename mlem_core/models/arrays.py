"""Arrays that a user brings as representations: read with care, never unpickled."""

from __future__ import annotations

import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.text import listed, short
from mlem_core.models.csv_array import csv_array
from mlem_core.models.files import damaged, first_line
from mlem_core.models.mapped import (
    are_distances,
    check_whole,
    not_finite,
    npy_array,
    npy_header,
    npz_array,
    rounded_share,
    safetensors_array,
)
from mlem_core.storage.room import check_memory
from mlem_core.storage.watched import Digested, Watched

_LAYER = re.compile(r"layer_0*(\d+)", re.ASCII)
_MOST_DIGITS = 6  # of the number of a layer
MOST_LAYERS = 2_000
MOST_ROUNDED = 1e-3  # of the variance of a layer
SUFFIXES = (".npz", ".npy", ".safetensors", ".csv")
# Kinds of safetensors' numbers: name there -> name in numpy; bfloat16 has none.
_FLOATS = {"F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16"}
_BLOCK = 2**20  # bytes
_WHOLE = ("I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "BOOL")
# What a damaged archive, or an array in it, leads to.
_BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, ValueError, TypeError,
    LookupError, EOFError, RuntimeError, ArithmeticError,
)  # fmt: skip
_ADVICE = "choose fewer units, or save it as float32 without compression (numpy.savez)"
# A larger array that is packed tighter was made to fill the memory: the numbers of a layer pack to
# nine tenths, and to a tenth where most are 0.
_MOST_PACKED, _LARGE = 200, 100_000_000


@dataclass(frozen=True)
class Arrays:
    """A checked file.

    names : layer -> array; numbered in the order of the file where no array is called `layer_00`
    named : whether the arrays have names of their own, which are those of the layers
    read(layer) : its (n_stimuli, n_units) array, memory-mapped where the file has it as floats of
        at least 32 bits, not compressed; where there are repetitions, (n_repetitions, n_stimuli,
        n_units)
    repeated : layer -> how many repetitions it has, where the array has three axes
    left_out : a sentence for each layer that holds a value that is not finite
    notes : a sentence for each layer whose numbers have too few digits for their differences, and
        one for arrays that are no layers
    """

    digest: str
    names: dict[int, str]
    dtypes: dict[str, str]
    read: Callable[[int], NDArray[np.floating]]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    named: bool = False
    repeated: Mapping[int, int] = field(default_factory=dict)


def open_arrays(
    path: Path, n_stimuli: int, *, distances: bool = False, first_column: str = ""
) -> Arrays:
    """Check every layer of a file, one at a time; `representations.from_file` says which fit."""
    describe, read = _reader(path, first_column)
    try:
        file = Digested.of(path)
        watched = Watched(file.digest, (file,))
        described = describe(path)
        names = _layers(path, described)
        bad: dict[int, str] = {}
        notes = _unused(path, described, names)
        for layer, name in names.items():
            shape, problem, _ = described[name]
            where = path.name if path.suffix.lower() in (".csv", ".npy") else _where(name, path)
            if problem:
                raise InputError(f"{where} {problem}.")
            if len(shape) not in (2, 3) or shape[-1] == 0 or (len(shape) == 3 and shape[0] == 0):
                raise InputError(
                    f"{where} has the shape {_shape(shape)}; expected (stimuli, units), here "
                    f"({n_stimuli}, any number), or (repetitions, stimuli, units)."
                )
            if distances and shape != (n_stimuli, n_stimuli):
                raise InputError(
                    f"{where} has the shape {_shape(shape)}; precomputed distances of {n_stimuli} "
                    f"stimuli have the shape ({n_stimuli}, {n_stimuli})."
                )
            if shape[-2] != n_stimuli:
                raise InputError(
                    f"{where} has {shape[-2]} rows; expected one for each of {n_stimuli} stimuli."
                )
            array = read(path, name)
            if len(shape) == 3:
                array = array.reshape(-1, shape[2])
            n, row, unit = not_finite(array)
            if n:
                bad[layer] = (
                    f"{where} has {array[row, unit]} in {_row(row, shape)}, unit {unit + 1}"
                    f"{f' and in {n - 1} more places' if n > 1 else ''}; expected finite numbers."
                )
            elif not distances and (share := rounded_share(array)) > MOST_ROUNDED:
                notes.append(_rounded(where, share))
        if len(bad) == len(names):
            raise InputError(next(iter(bad.values())))
        watched.check()
    except OSError as error:
        raise InputError(f"the file {path.name!r} cannot be read: {first_line(error)}.") from error

    def layer_of(layer: int) -> NDArray[np.floating]:
        array = _as_float(read(path, names[layer]), _where(names[layer], path))
        watched.is_read()
        return array

    return Arrays(
        digest=watched.digest,
        names={layer: name for layer, name in names.items() if layer not in bad},
        dtypes={name: described[name][2] for name in names.values()},
        read=layer_of,
        left_out=tuple(bad.values()),
        notes=tuple(notes),
        named=not any(_LAYER.fullmatch(name) for name in names.values()),
        repeated={
            layer: described[name][0][0]
            for layer, name in names.items()
            if layer not in bad and len(described[name][0]) == 3
        },
    )


def _reader(
    path: Path, first_column: str
) -> tuple[Callable[[Path], _Described], Callable[[Path, str], NDArray[Any]]]:
    """What describes the arrays of a file, and what reads one of them."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"the representations file {path.name!r} ends in {suffix or 'nothing'!r}; "
            f"expected {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}."
        )
    if not path.is_file():
        raise InputError(f"there is no representations file {str(path)!r}.")
    readers: dict[str, tuple[Callable[[Path], _Described], Callable[[Path, str], NDArray[Any]]]] = {
        ".npz": (_describe_npz, _read_npz),
        ".npy": (_describe_npy, _read_npy),
        ".safetensors": (_describe_st, _read_st),
        ".csv": (
            partial(_describe_csv, first_column=first_column),
            partial(_read_csv, first_column=first_column),
        ),
    }
    if first_column and suffix != ".csv":
        raise InputError(f"{path.name} is no CSV; what its first column is cannot be chosen.")
    return readers[suffix]


def check_repeated(path: Path, arrays: Arrays, n_stimuli: int) -> None:
    """Raise `InputError` where an array of a file has no repetitions of the stimuli."""
    for layer, array in arrays.names.items():
        if arrays.repeated.get(layer, 0) < 2:
            raise InputError(
                f"{_where(array, path)} has no repetitions; a distance over repetitions "
                f"needs arrays of the shape (repetitions, {n_stimuli}, units) with at least two, "
                "so choose another distance."
            )


def seem_distances(arrays: Arrays, n_stimuli: int) -> bool:
    """Whether every array of a file is square, symmetric, and 0 on its diagonal and nowhere < 0."""
    squares = map(arrays.read, arrays.names)
    return not arrays.repeated and all(
        one.shape == (n_stimuli, n_stimuli) and are_distances(one) for one in squares
    )


# Name of an array -> its shape, what is wrong with its type ("" for nothing), and the type.
_Described = dict[str, tuple[tuple[int, ...], str, str]]


def _layers(path: Path, names: Iterable[str]) -> dict[int, str]:
    names = list(names)
    layers: dict[int, str] = {}
    for name in sorted(names):
        match = _LAYER.fullmatch(name)
        if match is None:
            continue
        if len(match[1]) > _MOST_DIGITS:
            raise InputError(
                f"{_where(name, path)} has a number of {len(match[1])} digits; the number of a "
                f"layer has at most {_MOST_DIGITS}."
            )
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
    if not layers and not all(map(str.strip, names)):
        raise InputError(f"{path.name} has an array without a name; expected a name for each.")
    layers = dict(sorted(layers.items())) if layers else dict(enumerate(names))
    if len(layers) > MOST_LAYERS:
        raise InputError(
            f"{path.name} has {len(layers):,} layers; expected at most {MOST_LAYERS:,}, so put "
            "those to be compared into a file of their own."
        )
    return layers


def _unused(path: Path, described: Iterable[str], layers: Mapping[int, str]) -> list[str]:
    used = set(layers.values())
    others = [_plain(name) for name in described if name not in used]
    if not others:
        return []
    verb = "is no layer" if len(others) == 1 else "are no layers"
    return [
        f"{listed(others, most=5)} of {path.name} {verb} here, because others are named as "
        f"{next(iter(used))} is; name every layer so, or none."
    ]


def _plain(name: str) -> str:
    return name if name.isprintable() and 0 < len(name) <= 60 else short(name)


def _where(name: str, path: Path) -> str:
    return f"array {_plain(name)} of {path.name}"


def _row(row: int, shape: tuple[int, ...]) -> str:
    """Which row it is, of an array of two axes or of repetitions one below the other."""
    if len(shape) == 2:
        return f"row {row + 1}"
    return f"repetition {row // shape[1] + 1}, row {row % shape[1] + 1}"


def _as_float(array: NDArray[Any], where: str) -> NDArray[np.floating]:
    floats = array.dtype.kind == "f"
    kind = np.result_type(array.dtype, np.float32) if floats else np.dtype(np.float64)
    if array.dtype != kind:
        check_memory(array.size * kind.itemsize, f"{where} as floats", _ADVICE)
    return array.astype(kind, copy=False)


def _rounded(where: str, share: float) -> str:
    what = f"{share:.1%} of their variance is rounding to floats"
    if share == 1:
        what = "rounding leaves hardly a difference"
    where = where[:1].upper() + where[1:]
    return (
        f"{where} has values so far from 0 that {what}, and distances tell little: subtract the "
        "mean of each unit before the numbers are saved, or save them as float64."
    )


def _shape(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def _describe_npz(path: Path) -> _Described:
    described: _Described = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                described[name] = _describe_member(path, archive, member, name in described)
    except InputError:
        raise
    except _BROKEN as error:
        raise damaged(path, ".npz", error) from error
    return described


def _describe_member(
    path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, seen: bool
) -> tuple[tuple[int, ...], str, str]:
    name = member.filename.removesuffix(".npy")
    if seen:
        raise InputError(f"{path.name} has two arrays named {short(name)}; expected one.")
    if name.startswith("/") or ".." in name.split("/"):
        raise InputError(
            f"{path.name} has an array named {short(name)}, which leads out of it; expected names "
            "such as layer_00."
        )
    if member.filename == name:
        return (), "is no array", ""
    if member.file_size > max(_LARGE, _MOST_PACKED * member.compress_size):
        raise InputError(
            f"{_where(name, path)} unpacks {member.compress_size:,} bytes to "
            f"{member.file_size:,}, more than {_MOST_PACKED} times as many; expected an array of "
            "numbers (save it with numpy.savez, which packs nothing)."
        )
    with archive.open(member) as file:
        shape, _, dtype = npy_header(file)
        if not dtype.hasobject:
            check_whole(shape, dtype, member.file_size - file.tell())
        if member.compress_type == zipfile.ZIP_STORED:
            # What is mapped later is checked against its checksum now.
            while file.read(_BLOCK):
                pass
    return shape, _problem(dtype), str(dtype)


def _problem(dtype: np.dtype[Any]) -> str:
    if dtype.hasobject:
        return "holds Python objects (a pickle), which are never read; expected numbers"
    if dtype.kind not in "fiub":
        return f"holds {dtype}; expected real numbers"
    if dtype.itemsize > 8:
        return f"holds {dtype}; expected floats of at most 64 bits"
    return ""


def _read_npz(path: Path, name: str) -> NDArray[Any]:
    try:
        mapped = npz_array(path, name)
        if mapped is not None:
            return mapped
        with zipfile.ZipFile(path) as packed:
            size = packed.getinfo(f"{name}.npy").file_size
        check_memory(size, f"{_where(name, path)}, which is compressed,", _ADVICE)
        with np.load(path, allow_pickle=False) as archive:
            array: NDArray[Any] = archive[name]
            return array
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{_where(name, path)} does not fit into memory; {_ADVICE}.") from error
    except _BROKEN as error:
        raise damaged(path, ".npz", error) from error


def _describe_npy(path: Path) -> _Described:
    try:
        with path.open("rb") as file:
            shape, _, dtype = npy_header(file)
    except ValueError as error:
        raise damaged(path, ".npy", error) from error
    return {"layer_00": (shape, _problem(dtype), str(dtype))}


def _read_npy(path: Path, name: str) -> NDArray[Any]:
    try:
        with path.open("rb") as file:
            return npy_array(path, file, path.stat().st_size)
    except ValueError as error:
        raise damaged(path, ".npy", error) from error


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
        raise damaged(path, ".safetensors", error) from error
    return described


def _read_st(path: Path, name: str) -> NDArray[Any]:
    mapped = safetensors_array(path, name)
    if mapped is not None:
        return mapped
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:  # numpy has no bfloat16
        return np.asarray(file.get_tensor(name).float().numpy())


def _describe_csv(path: Path, first_column: str = "") -> _Described:
    return {"layer_00": (csv_array(path, first_column).shape, "", "float64")}


def _read_csv(path: Path, name: str, first_column: str = "") -> NDArray[Any]:
    return csv_array(path, first_column)
