"""Arrays in files that are read where they lie: memory-mapped, and looked at in blocks of rows."""

from __future__ import annotations

import json
import math
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 4_000_000  # numbers that are looked at a time
_SOME_ROWS = 1_000
_EXACT = 2.0**53  # the whole numbers up to it are floats of 64 bits
_LONGEST_HEADER = 2**16  # bytes of an array's header; of numbers it takes some 100
# Where two threads read Python at once, CPython 3.11 can mix up how deep each is: a SystemError,
# whatever was read (AST constructor recursion depth mismatch).
_TRIES = 5
# Of safetensors, as NumPy calls them; it has no bfloat16.
_TYPES = {
    "F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "?",
    "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
    "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8",
}  # fmt: skip


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type of an array in NumPy's format.

    Raises ValueError: it is in another format, or in a version of it that is not known.
    """
    start = file.tell()
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy format {version}")
    length = int.from_bytes(file.read(2 * version[0]), "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
    for tries_left in reversed(range(_TRIES)):
        file.seek(start)
        np.lib.format.read_magic(file)
        try:
            shape, fortran, dtype = header(file)
            break
        except OSError:
            raise
        except Exception as error:  # NumPy evaluates it as Python: whatever a damaged one leads to
            if isinstance(error, SystemError) and tries_left:
                continue
            raise ValueError(f"its header cannot be read: {error}") from error
    if not all(type(side) is int and 0 <= side < 2**62 for side in shape):
        raise ValueError(f"the shape {shape}")
    return shape, bool(fortran), dtype


def check_whole(shape: tuple[int, ...], dtype: np.dtype[Any], n_bytes: int) -> None:
    """Raise ValueError where so many bytes are no array of this shape, or one and something else.

    NumPy leaves unread what is behind an array, a second one for instance.
    """
    expected = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or n_bytes < expected:
        raise ValueError(f"{expected} bytes of {dtype} in {n_bytes}")
    if n_bytes > expected:
        raise ValueError(f"{n_bytes - expected} bytes are behind an array of {expected}")


def npz_array(path: Path, name: str) -> NDArray[Any] | None:
    """An array of an .npz file as it lies in it; None where it is compressed.

    Raises ValueError: the array is not all of its member of the archive, or no array of numbers.
    """
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        return None
    with path.open("rb") as file:
        # The lengths of name and extra field are those of the member's own header.
        file.seek(member.header_offset + 26)
        begin = member.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
        file.seek(begin)
        return npy_array(path, file, begin + member.file_size)


def npy_file(path: Path) -> NDArray[Any]:
    """The array of an .npy file, memory-mapped.

    Unlike `numpy.load` it may be called from several threads at once, see `npy_header`. Raises
    ValueError: the file is longer or shorter than its array, or no array of numbers.
    """
    with path.open("rb") as file:
        return npy_array(path, file, path.stat().st_size)


def npy_array(path: Path, file: IO[bytes], end: int) -> NDArray[Any]:
    """The array that begins where `file`, an open file of `path`, is, and ends at `end`.

    Raises ValueError: it ends elsewhere, or is no array of numbers.
    """
    shape, fortran, dtype = npy_header(file)
    begin = file.tell()
    check_whole(shape, dtype, end - begin)
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.asarray(np.memmap(path, dtype, "r", begin, shape, "F" if fortran else "C"))


def safetensors_array(path: Path, name: str) -> NDArray[Any] | None:
    """An array of a .safetensors file that is sound, as it lies in it; None for bfloat16."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(length))[name]
    if about["dtype"] not in _TYPES:
        return None
    shape, begin = tuple(about["shape"]), 8 + length + about["data_offsets"][0]
    if not all(shape):
        return np.empty(shape, _TYPES[about["dtype"]])
    return np.asarray(np.memmap(path, _TYPES[about["dtype"]], "r", begin, shape))


def not_finite(array: NDArray[Any]) -> tuple[int, int, int]:
    """How many values of (n_rows, n_units) are not finite; row and unit of the first."""
    n, first = 0, (0, 0)
    step = max(1, _BLOCK // array.shape[1])
    for start in range(0, len(array), step):
        finite = np.isfinite(array[start : start + step])
        if not finite.all():
            if not n:
                row, unit = divmod(int(finite.argmin()), array.shape[1])
                first = start + row, unit
            n += finite.size - int(np.count_nonzero(finite))
    return n, *first


def rounded_share(array: NDArray[Any]) -> float:
    """Which share of the variance of (n_rows, n_units) is its rounding to floats.

    It is looked at in `_SOME_ROWS` rows. A rounding error is spread evenly over the space between
    two floats, so that its variance is a twelfth of that space squared.
    """
    if array.dtype.kind != "f" and array.dtype.itemsize < 8:
        return 0.0
    rows = np.asarray(array[:: max(1, len(array) // _SOME_ROWS)])
    # The smallest whole number has no absolute value of its kind.
    sizes = np.abs(rows if rows.dtype.kind == "f" else rows.astype(np.float64)).max(axis=0)
    largest, space = sizes.astype(np.float64), np.spacing(sizes).astype(np.float64)
    if not (scale := largest.max()):
        return 0.0
    # Divided by the largest, so that squares stay finite.
    differences = rows.astype(np.float64) / scale - rows[0].astype(np.float64) / scale
    if rows.dtype.kind != "f":
        space[largest <= _EXACT] = 0.0  # whole numbers up to there are floats
        differences = (rows - rows[0]).view(np.int64) / scale
    variance = float(np.var(differences, axis=0).sum())
    rounding = float(((space / scale) ** 2 / 12).sum())
    return min(1.0, rounding / variance) if variance > 0 else 0.0


def are_distances(square: NDArray[Any]) -> bool:
    """Whether (n, n) is symmetric, and 0 on its diagonal and nowhere below 0."""
    if np.diag(square).any():
        return False
    step = max(1, _BLOCK // len(square))
    for start in range(0, len(square), step):
        block = square[start : start + step]
        if (block < 0).any() or not np.allclose(block, square[:, start : start + step].T):
            return False
    return True
