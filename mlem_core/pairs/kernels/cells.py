"""Which cell each pair of stimuli has, and sums by group, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
from numpy.typing import NDArray

Array = NDArray[Any]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def count_cells(table: Array, types: Array, parts: Array, offsets: Array, counts: Array) -> None:
    """How many pairs of stimuli each block and pattern has.

    Parameters
    ----------
    table : (n_types, n_types) pattern of every two types of stimuli
    types, parts : (n_stimuli,) type of each, and which folds it belongs to
    offsets : (n_parts, n_parts) block of every two parts, times the number of patterns
    counts : (n_blocks · n_patterns,) zeros, filled
    """
    for i in range(len(types) - 1):
        own, offset = table[types[i]], offsets[parts[i]]
        for j in range(i + 1, len(types)):
            counts[offset[parts[j]] + own[types[j]]] += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def fill_cells(
    table: Array, types: Array, parts: Array, offsets: Array, number: Array, cells: Array
) -> None:
    """The number (n_pairs,) of the block and pattern of each pair; parameters as `count_cells`."""
    at = 0
    for i in range(len(types) - 1):
        own, offset = table[types[i]], offsets[parts[i]]
        for j in range(i + 1, len(types)):
            cells[at] = number[offset[parts[j]] + own[types[j]]]
            at += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def group_sums(group: Array, values: Array, sums: Array) -> None:
    """Sums of values (m, n) by the group (n,) of their column, added to sums (m, n_groups)."""
    for row in range(len(values)):
        for k in range(len(group)):
            sums[row, group[k]] += values[row, k]
