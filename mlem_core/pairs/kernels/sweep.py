"""One sweep over the pairs of a layer in ascending order of their distance, compiled by numba.

A pair is a 64-bit key: its distance, rounded, in the high bits, and its number in the low ones.
Sorted keys are walked once; a running count for each set of pairs (all pairs, those that train each
fold's model, those of each block) is the rank of the pair in the set, and is added to the pair's
cell. Counts are whole numbers, so that the sums do not depend on the order or on threads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Sets are counted so many at a time: the counts stay in registers.
LANES = 8
# What is looked up by the number of a pair is looked up for so many pairs at once, not between two
# branches that cannot be foreseen.
WINDOW = 2**12
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
def sum_targets(
    squared: Array, cells: Array, cell_block: Array, sums: Array, low: Array, high: Array
) -> None:
    """Sums (n_cells,) of squared distances (n_pairs,), and the ends (n_blocks,) of each block.

    `low` is given as infinite, `high` as minus infinite.
    """
    for k in range(len(squared)):
        cell, value = cells[k], squared[k]
        block = cell_block[cell]
        sums[cell] += value
        low[block] = min(low[block], value)
        high[block] = max(high[block], value)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _end_of_tie(keys: Array, start: int, bits: np.uint64) -> int:
    stop = start + 1
    while stop < len(keys) and keys[stop] >> bits == keys[start] >> bits:
        stop += 1
    return stop


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def doubled_ranks(keys: Array, number_bits: int, below: int, doubled: Array) -> None:
    """Twice the average ranks (n_pairs,) of pairs, filled for those of some keys.

    Parameters
    ----------
    keys : (n,) sorted; so many pairs are `below` them, and none is tied with them
    """
    bits, number = np.uint64(number_bits), np.uint64((1 << number_bits) - 1)
    start = 0
    while start < len(keys):
        stop = _end_of_tie(keys, start, bits)
        for k in range(start, stop):
            doubled[keys[k] & number] = 2 * below + start + stop + 1
        start = stop


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def count_blocks(
    keys: Array, number_bits: int, cells: Array, cell_block: Array, counts: Array
) -> None:
    """How many pairs of each block (n_blocks,) there are among some keys (n,), added to counts."""
    number = np.uint64((1 << number_bits) - 1)
    for k in range(len(keys)):
        counts[cell_block[cells[keys[k] & number]]] += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _look_up(
    keys: Array, first: int, number_bits: int, cells: Array, cell: Array, ends: Array
) -> tuple[int, int]:
    """The cells (WINDOW,) of the pairs from `first` on, and where, after it, each tie ends.

    Returns the number of pairs, which is that of whole ties, and of ties. A tie that is longer than
    the window is alone, and its cells are not looked up.
    """
    bits, number = np.uint64(number_bits), np.uint64((1 << number_bits) - 1)
    last = min(len(keys), first + WINDOW)
    if last < len(keys):
        while last > first and keys[last - 1] >> bits == keys[last] >> bits:
            last -= 1
        if last == first:
            ends[0] = _end_of_tie(keys, first, bits) - first
            return ends[0], 1
    n_ties = 0
    for k in range(first, last):
        cell[k - first] = cells[keys[k] & number]
        ends[n_ties] = k + 1 - first
        n_ties += k + 1 == last or keys[k] >> bits != keys[k + 1] >> bits
    return last - first, n_ties


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def sweep(
    keys: Array,
    number_bits: int,
    cells: Array,
    cell_block: Array,
    members: Array,
    below: Array,
    sums: Array,
    ties: Array,
    own_sums: Array,
    own_ties: Array,
) -> None:
    """Sums of doubled average ranks by cell, among several sets of pairs at once, and by block.

    Parameters
    ----------
    keys : (n,) uint64, sorted, of some pairs, none of them tied with any other; their low
        `number_bits` bits are the numbers of the pairs
    cells : (n_pairs,) cell of each pair, by its number
    cell_block : (n_cells,) block of each cell
    members : (n_blocks, LANES) int64, 1 where the pairs of a block are in a set, else 0
    below : (n_blocks,) how many pairs of each block are below these
    sums : (n_cells, LANES) int64 zeros, filled with the sums of twice the average ranks in each
        set; where the block is not in the set, they mean nothing
    ties : (LANES,) zeros, filled with Σ (t³ - t) over the ties of t pairs in each set
    own_sums, own_ties : (n_cells,) and (n_blocks,) zeros, filled with the same for the pairs of the
        cell's own block
    """
    number = np.uint64((1 << number_bits) - 1)
    cell, ends = np.empty(WINDOW, dtype=np.int32), np.empty(WINDOW + 1, dtype=np.int64)
    before, rank = np.zeros(LANES, dtype=np.int64), np.empty(LANES, dtype=np.int64)
    for block in range(len(below)):
        for s in range(LANES):
            before[s] += below[block] * members[block, s]
    upto = before.copy()
    own_before, own_upto = below.copy(), below.copy()
    first = 0
    while first < len(keys):
        n, n_ties = _look_up(keys, first, number_bits, cells, cell, ends)
        start = 0
        for tie in range(n_ties):
            stop = ends[tie]
            for k in range(start, stop):
                c = cell[k] if n <= WINDOW else cells[keys[first + k] & number]
                block = cell_block[c]
                own_upto[block] += 1
                for s in range(LANES):
                    upto[s] += members[block, s]
            for s in range(LANES):
                rank[s] = before[s] + upto[s] + 1
            for k in range(start, stop):
                c = cell[k] if n <= WINDOW else cells[keys[first + k] & number]
                block = cell_block[c]
                own_sums[c] += own_before[block] + own_upto[block] + 1
                for s in range(LANES):
                    sums[c, s] += rank[s]
            for k in range(start, stop):
                block = cell_block[cell[k] if n <= WINDOW else cells[keys[first + k] & number]]
                t = float(own_upto[block] - own_before[block])
                own_ties[block] += t * t * t - t
                own_before[block] = own_upto[block]
            for s in range(LANES):
                if stop > start + 1:
                    t = float(upto[s] - before[s])
                    ties[s] += t * t * t - t
                before[s] = upto[s]
            start = stop
        first += n
