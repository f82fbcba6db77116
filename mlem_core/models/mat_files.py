"""Arrays of numbers in MATLAB files of versions 5 to 7.2, by their names.

They are read here, as SciPy's reader (1.17) ends the program on some damaged files.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.room import check_memory

# Types of elements, and of the numbers in them; classes of arrays, by their codes in the format.
_MATRIX, _COMPRESSED = 14, 15
_STORED = dict(zip((1, 2, 3, 4, 5, 6, 7, 9, 12, 13), "bBhHiIfdqQ", strict=True))
_NUMBERS = dict(zip(range(6, 16), "dfbBhHiIqQ", strict=True))
_OPAQUE, _COMPLEX = 17, 0x800
_OTHERS = {
    1: "cell",
    2: "struct",
    3: "object",
    4: "text",
    5: "sparse",
    16: "function",
    17: "object",
}
_HEAD = 4_096  # bytes of an array in which its header is

# Name, shape, type, problem and reader; number of bytes of the numbers, and of what they are packed
# into, or 0.
_Array = tuple[str, tuple[int, ...], str, str, Callable[[], NDArray[Any]], int, int]


def arrays_of_mat(path: Path) -> Iterator[_Array]:
    """The arrays of a file in their order, what `FileArray` has of each, and how it is packed.

    Raises
    ------
    InputError
        It is of version 7.3, or no MATLAB file; what is read does not fit into memory.
    ValueError, struct.error, zlib.error
        It is damaged; readers raise them too.
    """
    with path.open("rb") as file:
        first = file.read(516)
        order = {b"IM": "<", b"MI": ">"}.get(first[126:128], "")
        new = b"\x89HDF" in first or first.startswith(b"MATLAB 7.3")
        if new or not order:
            what = "of version 7.3" if new else "of no version from 5 to 7.2"
            raise InputError(
                f"{path.name} is a MATLAB file {what}; save it with save('file.mat', ..., '-v7'), "
                "or as .npz."
            )
        end, place = path.stat().st_size, 128
        while place < end:
            file.seek(place)
            kind, size = struct.unpack(f"{order}II", file.read(8))
            if place + 8 + size > end:
                raise ValueError("it is cut short")
            packed = size * (kind == _COMPRESSED)
            element = (place + 8, size) if packed else (place, size + 8)
            file.seek(element[0])
            data = file.read(min(element[1], 2 * _HEAD))
            if packed:
                data = zlib.decompressobj().decompress(data, _HEAD)
            name, shape, dtype, problem, numbers = _header(data, order)
            read = partial(_read, path, element, bool(packed), shape, dtype, numbers)
            if name:  # without one it is what functions of the file share
                yield name, shape, str(np.dtype(dtype or "V")), problem, read, numbers[2], packed
            place += 8 + size


def _header(data: bytes, order: str) -> tuple[str, tuple[int, ...], str, str, tuple[str, int, int]]:
    """Name, shape, type and problem of an array; its numbers: their type, begin and bytes."""

    def part(at: int) -> tuple[int, int, int, int]:
        """Type, begin and bytes of the part at a place, and the place of the next one."""
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:  # a small one, whose size stands beside its type
            return kind & 0xFFFF, at + 4, kind >> 16, at + 8
        return kind, at + 8, size, at + 8 + size + -size % 8

    matrix, at, _, _ = part(0)
    _, at, _, after = part(at)
    (flags,), shape = struct.unpack_from(f"{order}I", data, at), tuple[int, ...]()
    kind = flags & 0xFF
    if kind != _OPAQUE:
        _, at, n, after = part(after)
        shape = struct.unpack_from(f"{order}{n // 4}i", data, at)
    _, at, n, after = part(after)
    name = data[at : at + n].decode("utf-8", "replace").rstrip("\0")
    if matrix != _MATRIX or kind not in {**_NUMBERS, **_OTHERS} or min(shape, default=0) < 0:
        raise ValueError(f"an element of type {matrix} and class {kind}")
    if kind in _OTHERS or flags & _COMPLEX:
        problem = f"is a {_OTHERS.get(kind, 'complex')} array; expected one of real numbers"
        return name, shape, "", problem, ("", 0, 0)
    stored, at, n, _ = part(after)
    if prod(shape) * np.dtype(_STORED[stored]).itemsize != n:
        raise ValueError(f"{n} bytes for the shape {shape}")
    return name, shape, _NUMBERS[kind], "", (order + _STORED[stored], at, n)


def _read(
    path: Path,
    element: tuple[int, int],
    packed: bool,
    shape: tuple[int, ...],
    dtype: str,
    numbers: tuple[str, int, int],
) -> NDArray[Any]:
    stored, begin, n_bytes = numbers
    check_memory(2 * n_bytes, path.name, "choose fewer units, or save it as .npz")
    with path.open("rb") as file:
        file.seek(element[0])
        data = file.read(element[1])
    if packed:
        unpack = zlib.decompressobj()
        data = unpack.decompress(data, begin + n_bytes + 8)
        if not unpack.eof:  # which is where its checksum is
            raise ValueError("more or fewer bytes than its shape needs")
    own = np.frombuffer(data, stored, prod(shape), begin).astype(dtype)
    return np.ascontiguousarray(own.reshape(shape, order="F"))
