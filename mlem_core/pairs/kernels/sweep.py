"""Keys of the pairs of a layer, and their ranks in ascending order, compiled by numba.

A pair is a 64-bit key: its distance, rounded, in the high bits, and its number in the low ones.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

NEGATIVE_ZERO = np.uint64(1 << 63)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def to_keys(bits: Array, number_bits: int) -> None:
    """Make keys, in place, of distances (n_pairs,) of at least 0, given by their bits (uint64)."""
    dropped = np.uint64(number_bits - 1)
    # To the nearest, not down: a value just below a round one belongs to it.
    half = (np.uint64(1) << dropped) >> np.uint64(1)
    for k in range(len(bits)):
        value = np.uint64(0) if bits[k] == NEGATIVE_ZERO else bits[k]
        bits[k] = (((value + half) >> dropped) << np.uint64(number_bits)) | np.uint64(k)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def fill_doubled_ranks(keys: Array, number_bits: int, below: int, doubled: Array) -> None:
    """Twice the average ranks (n_pairs,) of pairs, filled for those of some keys.

    `keys` are (n,) sorted; so many pairs are `below` them, and none is tied with them.
    """
    bits, number = np.uint64(number_bits), np.uint64((1 << number_bits) - 1)
    start = 0
    while start < len(keys):
        stop = start + 1
        while stop < len(keys) and keys[stop] >> bits == keys[start] >> bits:
            stop += 1
        for k in range(start, stop):
            doubled[keys[k] & number] = 2 * below + start + stop + 1
        start = stop
