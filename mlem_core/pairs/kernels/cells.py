"""Which pattern and cell each pair of stimuli has, and sums by group, compiled by numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Spreads keys over the slots (the golden ratio's fraction in 64 bits).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Differences(NamedTuple):
    """How the values of two stimuli become the key of a pattern: the sum over the features.

    values : (n_stimuli, n_features) int64 the number of each value; in a feature without a table,
        below 0 where it is missing and says nothing
    width : (n_features,) int64 side of a feature's table; 0 where values are only equal or not
    start : (n_features,) int64 where its table begins
    terms : (n,) int64 the tables one after the other, row by row: what two values add
    differ : (n_features,) int64 what two values that differ add where there is no table
    """

    values: Array
    width: Array
    start: Array
    terms: Array
    differ: Array


class Lookup(NamedTuple):
    """What tells the pattern and the cell of any two stimuli that some pair of the index is like.

    differences : of the stimuli
    keys, pattern : (n_slots,) int64 and int32; n_slots is a power of 2, pattern below 0 where a
        slot is empty
    part : (n_stimuli,) int64 which folds a stimulus belongs to
    offset : (n_parts, n_parts) int64 block of every two parts, times the number of patterns
    number : (n_blocks · n_patterns,) int32 number of the cell
    """

    differences: Differences
    keys: Array
    pattern: Array
    part: Array
    offset: Array
    number: Array


@numba.njit(nogil=True, cache=True, inline="always")  # type: ignore[untyped-decorator, unused-ignore]
def _slot_of(key: int, keys: Array, pattern: Array) -> Any:
    """Where a key stands, or would."""
    mask = len(keys) - 1
    slot = np.int64((np.uint64(key) * _SPREAD) >> np.uint64(20)) & mask
    while pattern[slot] >= 0 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def number_patterns(
    stimulus: Array,
    starts: Array,
    partner: Array,
    differences: Differences,
    keys: Array,
    pattern: Array,
    first: Array,
    found: Array,
) -> int:
    """The pattern of each pair, by number; new ones are numbered in the order they are met in.

    Parameters
    ----------
    stimulus, starts, partner : see `mlem_core.pairs.designs.PairDesign`
    keys, pattern : (n_slots,) see `Lookup`, with the patterns that are known; filled
    first : (limit, 2) int64, filled with the two stimuli of the first pair of each new pattern
    found : (n_pairs,) int32, filled with the number of each pair

    Returns the number of new patterns; limit + 1 as soon as there are more.
    """
    n, complete = 0, len(partner) == 0
    values, width, start, terms, differ = differences
    for row in range(len(stimulus)):
        i = stimulus[row]
        for k in range(starts[row], starts[row + 1]):
            j = i + 1 + k - starts[row] if complete else partner[k]
            key = 0
            for f in range(values.shape[1]):
                a, b = values[i, f], values[j, f]
                if width[f] > 0:
                    key += terms[start[f] + a * width[f] + b]
                elif a != b and a >= 0 and b >= 0:
                    key += differ[f]
            slot = _slot_of(key, keys, pattern)
            if pattern[slot] < 0:
                if n == len(first):
                    return n + 1
                keys[slot], pattern[slot] = key, n
                first[n, 0], first[n, 1] = i, j
                n += 1
            found[k] = pattern[slot]
    return n


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def place_patterns(numbered: Array, keys: Array, pattern: Array) -> None:
    """Fill the slots, all empty, with patterns of which these are the keys, in their order."""
    for number in range(len(numbered)):
        slot = _slot_of(numbered[number], keys, pattern)
        keys[slot], pattern[slot] = numbered[number], number


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def place_pairs(
    stimulus: Array, starts: Array, partner: Array, look: Lookup, found: Array, counts: Array
) -> None:
    """Count the pairs of each block and pattern; or, once these have numbers, find their cells.

    Parameters
    ----------
    found : (n_pairs,) int32 pattern of each pair; where there is nothing to count into, its cell
        takes its place
    counts : (n_blocks · n_patterns,) int64 zeros, filled, `look.number` not being used; or (0,)
    """
    complete, count = len(partner) == 0, len(counts) > 0
    for row in range(len(stimulus)):
        i = stimulus[row]
        offset = look.offset[look.part[i]]
        for k in range(starts[row], starts[row + 1]):
            j = i + 1 + k - starts[row] if complete else partner[k]
            at = offset[look.part[j]] + found[k]
            if count:
                counts[at] += 1
            else:
                found[k] = look.number[at]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def group_sums(group: Array, values: Array, sums: Array) -> None:
    """Sums of values (n,) by their group (n,), added to sums (n_groups,)."""
    for k in range(len(group)):
        sums[group[k]] += values[k]
