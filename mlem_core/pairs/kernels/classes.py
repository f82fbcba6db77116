"""Classes of distances, tile by tile: counts, ranks and sums by cell, compiled by numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlem_core.pairs.kernels.cells import Lookup, pattern_of
from mlem_core.pairs.kernels.sweep import NEGATIVE_ZERO

Array = NDArray[Any]

# The classes of so many pairs are looked up before any is counted: what is read from far apart in
# memory is then read side by side.
WINDOW = 2**9


class ClassMap(NamedTuple):
    """Which class each distance is of: a function of its key that is linear between knots.

    The key of a distance is its bits, rounded to those that are kept.

    dropped : how many low bits of a float64 are rounded away
    knots : (n_segments + 1,) int64 keys, ascending, the first 0, the last above all
    base : (n_segments,) int64 the first class of each segment
    scale : (n_segments,) classes a key
    low, shift : a key from `low` on is in slot (key - low) >> shift
    slots : (n_slots, 2) the first class of a slot and its classes a key; or, below 0, no such thing
        where a slot is of several segments
    alone : (n_classes,) whether a class is of one key
    """

    dropped: int
    knots: Array
    base: Array
    scale: Array
    low: int
    shift: int
    slots: Array
    alone: Array


class Tile(NamedTuple):
    """Some rows of a band of the matrix of distances, and whose they are.

    values, bits : (n_left, n_right) squared distances of the distinct rows from `start` on, above
        the diagonal, and their bits (uint64)
    start : the first distinct row
    order : (n_stimuli,) int64 the stimuli, by their distinct rows
    row : (n_stimuli,) int64 the distinct row of each of them, ascending
    part : (n_stimuli,) int64 which folds each of them belongs to
    first, stop : of these stimuli, those of which the pairs with later ones are meant
    """

    values: Array
    bits: Array
    start: int
    order: Array
    row: Array
    part: Array
    first: int
    stop: int


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _search(key: Any, to: ClassMap) -> int:
    segment, top = 0, len(to.base) - 1
    while segment < top:
        middle = (segment + top + 1) >> 1
        if to.knots[middle] <= key:
            segment = middle
        else:
            top = middle - 1
    return to.base[segment] + np.int64(float(key - to.knots[segment]) * to.scale[segment])


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def classes_of(bits: Array, to: ClassMap, classes: Array) -> None:
    """The classes (n,) int64 of distances of at least 0, given by their bits (n,)."""
    dropped = np.uint64(to.dropped)
    half = (np.uint64(1) << dropped) >> np.uint64(1)
    mask = (np.int64(1) << to.shift) - 1
    for k in range(len(bits)):
        value = np.uint64(0) if bits[k] == NEGATIVE_ZERO else bits[k]
        key = np.int64((value + half) >> dropped)
        beyond = key - to.low
        slot = np.uint64(beyond) >> np.uint64(to.shift)
        # Products of floats are monotone, and so is what is left when their ends are cut off.
        if slot < len(to.slots) and to.slots[slot, 0] >= 0:
            within = float(beyond & mask) * to.slots[slot, 1]
            classes[k] = np.int64(to.slots[slot, 0]) + np.int64(within)
        else:
            classes[k] = _search(key, to)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _look_up(tile: Tile, a: int, b: int, found: Array) -> Array:
    """The bits of the distances of the a-th stimulus to the b-th and those after it.

    Stimuli of one row are at distance 0, and all of them at the same distance from any other.
    Returns those that are filled (n,), or a part of the tile that has them.
    """
    own, n = tile.bits[tile.row[a] - tile.start], len(found)
    first = tile.row[b] - tile.start
    if tile.row[b] > tile.row[a] and tile.row[b + n - 1] - tile.row[b] == n - 1:
        return own[first : first + n]
    for k in range(n):
        other = tile.row[b + k]
        found[k] = np.uint64(0) if other == tile.row[a] else own[other - tile.start]
    return found


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def count_classes(tile: Tile, column: Array, to: ClassMap, counts: Array) -> int:
    """How many pairs each class has, by column; returns what means nothing.

    Parameters
    ----------
    column : (n_parts, n_parts) int64 the column of the pairs between two parts
    counts : (n_classes, n_columns) uint32, added to
    """
    memory, classes = np.empty(WINDOW, dtype=np.uint64), np.empty(WINDOW, dtype=np.int64)
    n, touched = len(tile.row), 0
    for a in range(tile.first, tile.stop):
        columns = column[tile.part[a]]
        for b in range(a + 1, n, WINDOW):
            size = min(WINDOW, n - b)
            bits = _look_up(tile, a, b, memory[:size])
            classes_of(bits, to, classes)
            for k in range(size):
                touched += counts[classes[k], 0]
            for k in range(size):
                counts[classes[k], columns[tile.part[b + k]]] += np.uint32(1)
    return touched


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def fill_ranks(
    counts: Array,
    alone: Array,
    members: Array,
    pairs: Array,
    ranks: Array,
    ties: Array,
    largest: Array,
) -> None:
    """Average ranks of classes among several sets of pairs.

    Parameters
    ----------
    counts : (n_classes, n_columns), see `count_classes`; more columns are not looked at
    alone : (n_classes,) see `ClassMap`
    members : (n_columns, n_sets) int64, 1 where the pairs of a column are in a set, else 0
    pairs : (n_sets,) int64 how many pairs each set has
    ranks : (n_classes, n_sets), or more columns, filled with twice the centred average rank
    ties : (n_sets,) float64 zeros, filled with Σ (t³ - t) over the classes of t pairs
    largest : (n_sets,) int64 zeros, filled with the pairs of the largest class of several keys
    """
    n_columns, n_sets = members.shape
    below, own = np.zeros(n_sets, dtype=np.int64), np.empty(n_sets, dtype=np.int64)
    for c in range(len(counts)):
        own[:] = 0
        for k in range(n_columns):
            count = np.int64(counts[c, k])
            for s in range(n_sets):
                own[s] += count * members[k, s]
        for s in range(n_sets):
            ranks[c, s] = 2 * below[s] + own[s] - pairs[s]
            below[s] += own[s]
            t = float(own[s])
            ties[s] += t * t * t - t
            if not alone[c]:
                largest[s] = max(largest[s], own[s])


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def sum_classes(
    tile: Tile,
    look: Lookup,
    type_: Array,
    one: Array,
    block: Array,
    lane: Array,
    to: ClassMap,
    ranks: Array,
    targets: Array,
    sums: Array,
    ends: Array,
) -> int:
    """Sums of squared distances and of the ranks of their classes, by cell; returns nothing of use.

    Parameters
    ----------
    look : see `mlem_core.pairs.kernels.cells.pattern_of`
    type_, one : (n_stimuli,) the type of each stimulus, those with equal values being of one, and
        (n_types,) a stimulus of each
    block : (n_parts, n_parts) int64 the block of the pairs between two parts
    lane : (n_blocks,) int64 which of the sets is that of the pairs of a block alone
    ranks : (n_classes, n_sets) of `fill_ranks`
    targets : (n_cells,) sums of squared distances, added to
    sums : (n_cells, n_shared + 1) int64 sums of the ranks in the first n_shared sets, and in the
        block's own; added to
    ends : (2, n_blocks) lowest and highest squared distance
    """
    memory, classes = np.empty(WINDOW, dtype=np.uint64), np.empty(WINDOW, dtype=np.int64)
    n, n_shared, touched = len(tile.row), sums.shape[1] - 1, 0
    patterns = np.empty(len(one), dtype=np.int32)
    for a in range(tile.first, tile.stop):
        i = tile.order[a]
        blocks, offsets = block[tile.part[a]], look.offset[look.part[i]]
        known = n - a > len(one)
        if known:
            for t in range(len(one)):
                patterns[t] = pattern_of(i, one[t], look)
        for b in range(a + 1, n, WINDOW):
            size = min(WINDOW, n - b)
            bits = _look_up(tile, a, b, memory[:size])
            values = bits.view(np.float64)
            classes_of(bits, to, classes)
            for k in range(size):
                touched += ranks[classes[k], 0]
            for k in range(size):
                j = tile.order[b + k]
                pattern = patterns[type_[j]] if known else pattern_of(i, j, look)
                cell = look.number[offsets[look.part[j]] + pattern]
                of, own, value = ranks[classes[k]], blocks[tile.part[b + k]], values[k]
                targets[cell] += value
                for s in range(n_shared):
                    sums[cell, s] += of[s]
                sums[cell, n_shared] += of[lane[own]]
                if value < ends[0, own]:
                    ends[0, own] = value
                if value > ends[1, own]:
                    ends[1, own] = value
    return touched


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def rank_rows(bits: Array, to: ClassMap, ranks: Array, found: Array) -> None:
    """The rank of the class of each pair, row by row, for pairs above the diagonal.

    Parameters
    ----------
    bits : (n_left, n_right) uint64, of squared distances of stimuli to those from the first on
    ranks : (n_classes,)
    found : (n_pairs,) filled
    """
    n, at = bits.shape[1], 0
    classes = np.empty(n, dtype=np.int64)
    for a in range(len(bits)):
        size = n - a - 1
        classes_of(bits[a, a + 1 :], to, classes)
        for k in range(size):
            found[at + k] = ranks[classes[k]]
        at += size
