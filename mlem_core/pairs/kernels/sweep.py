"""One sweep over the pairs of a layer in ascending order of their distance, compiled by numba.

A pair is a 64-bit key: its distance, rounded, in the high bits, and in the low ones its number or
its cell. Sorted keys are walked once; a running count for each set of pairs (all pairs, those that
train each fold's model, those of each block) is the rank of the pair in the set, and is added to
the pair's cell. Counts are whole numbers, so that the sums depend on no order and no threads.

With cells in the keys nothing is looked up by the number of a pair, which would be a read from
memory each.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

NEGATIVE_ZERO = np.uint64(1 << 63)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def to_keys(bits: Array, number_bits: int, cells: Array) -> None:
    """Make keys, in place, of distances (n_pairs,) of at least 0, given by their bits (uint64).

    `cells` are those of the pairs, which go into the low bits; or (0,), then their numbers do.
    """
    dropped = np.uint64(number_bits - 1)
    # To the nearest, not down: a value just below a round one belongs to it.
    half = (np.uint64(1) << dropped) >> np.uint64(1)
    for k in range(len(bits)):
        value = np.uint64(0) if bits[k] == NEGATIVE_ZERO else bits[k]
        low = np.uint64(cells[k]) if len(cells) > 0 else np.uint64(k)
        bits[k] = (((value + half) >> dropped) << np.uint64(number_bits)) | low


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def sum_targets(
    squared: Array, cells: Array, cell_block: Array, sums: Array, low: Array, high: Array
) -> None:
    """Sums (n_cells,) of squared distances (n_pairs,), and the ends (n_blocks,) of each block.

    `low` is given as infinite, `high` as minus infinite.
    """
    for k in range(len(squared)):
        cell, value = np.uint32(cells[k]), squared[k]
        block = cell_block[cell]
        sums[cell] += value
        # Rarely written: what is written for each pair, the next one would have to wait for.
        if value < low[block]:
            low[block] = value
        if value > high[block]:
            high[block] = value


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _end_of_tie(keys: Array, start: int, bits: np.uint64) -> int:
    stop = start + 1
    while stop < len(keys) and keys[stop] >> bits == keys[start] >> bits:
        stop += 1
    return stop


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def fill_doubled_ranks(keys: Array, number_bits: int, below: int, doubled: Array) -> None:
    """Twice the average ranks (n_pairs,) of pairs, filled for those of some keys.

    `keys` are (n,) sorted; so many pairs are `below` them, and none is tied with them.
    """
    bits, number = np.uint64(number_bits), np.uint64((1 << number_bits) - 1)
    start = 0
    while start < len(keys):
        stop = _end_of_tie(keys, start, bits)
        for k in range(start, stop):
            doubled[keys[k] & number] = 2 * below + start + stop + 1
        start = stop


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def to_cells(keys: Array, number_bits: int, cells: Array) -> None:
    """Put the cells, of all pairs (n_pairs,), in the place of the numbers in some keys (n,)."""
    number = np.uint64((1 << number_bits) - 1)
    for k in range(len(keys)):
        keys[k] = (keys[k] & ~number) | np.uint64(cells[keys[k] & number])


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def count_block_pairs(keys: Array, number_bits: int, cell_block: Array, counts: Array) -> None:
    """Number of pairs of each block (n_blocks,) among some keys (n,), added to counts."""
    low = np.uint64((1 << number_bits) - 1)
    for k in range(len(keys)):
        counts[cell_block[keys[k] & low]] += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def sweep_ranks(
    keys: Array,
    number_bits: int,
    cell_block: Array,
    members: Array,
    below: Array,
    sums: Array,
    ties: Array,
    own_ties: Array,
) -> None:
    """Sums of doubled average ranks by cell, among sets of pairs and among those of a block.

    Parameters
    ----------
    keys : (n,) uint64, sorted, of some pairs, none of them tied with any other; their low
        `number_bits` bits are the cells
    cell_block : (n_cells,) block of each cell
    members : (n_blocks, n_sets) int64, 1 where the pairs of a block are in a set, else 0
    below : (n_blocks,) how many pairs of each block are below these
    sums : (n_cells, n_sets + 1) int64 zeros, filled with the sums of twice the average ranks among
        each set, and last among the cell's own block; where the block is not in the set, they mean
        nothing
    ties, own_ties : (n_sets,) and (n_blocks,) zeros, filled with Σ (t³ - t) over the ties of t
        pairs in each set, and in each block
    """
    bits, low = np.uint64(number_bits), np.uint64((1 << number_bits) - 1)
    n_sets, start = members.shape[1], 0
    # Counts are doubled, as the ranks are.
    own, before, twice = 2 * below, 2 * below, 2 * members
    count = np.zeros(n_sets, dtype=np.int64)
    old, rank = count.copy(), count.copy()
    for block in range(len(members)):
        count += below[block] * twice[block]
    while start < len(keys):
        stop = _end_of_tie(keys, start, bits)
        if stop == start + 1:
            cell = keys[start] & low
            block = cell_block[cell]
            own[block] += 2
            for s in range(n_sets):
                count[s] += twice[block, s]
                sums[cell, s] += count[s]
            sums[cell, n_sets] += own[block]
            start = stop
            continue
        for s in range(n_sets):
            old[s] = count[s]
        for k in range(start, stop):
            block = cell_block[keys[k] & low]
            before[block] = own[block]
        for k in range(start, stop):
            block = cell_block[keys[k] & low]
            own[block] += 2
            for s in range(n_sets):
                count[s] += twice[block, s]
        for s in range(n_sets):
            rank[s] = ((old[s] + count[s]) >> 1) + 1
            t = float((count[s] - old[s]) >> 1)
            ties[s] += t * t * t - t
        for k in range(start, stop):
            cell = keys[k] & low
            block = cell_block[cell]
            sums[cell, n_sets] += ((before[block] + own[block]) >> 1) + 1
            for s in range(n_sets):
                sums[cell, s] += rank[s]
        for k in range(start, stop):
            block = cell_block[keys[k] & low]
            t = float((own[block] - before[block]) >> 1)
            own_ties[block] += t * t * t - t
            before[block] = own[block]
        start = stop
