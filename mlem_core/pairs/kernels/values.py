"""Numbers of pairs from the squared distances of all of them, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def u_centre(squared: Array, n: int, found: Array) -> None:
    """U-centred distances of all pairs of n > 3 stimuli: each stimulus's add up to 0.

    Parameters
    ----------
    squared : (n_pairs,) in condensed order
    found : (n_pairs,) filled; it may be `squared`
    """
    sums = np.zeros(n)
    at = 0
    for i in range(n - 1):
        own = 0.0
        for j in range(i + 1, n):
            own += squared[at]
            sums[j] += squared[at]
            at += 1
        sums[i] += own
    whole = sums.sum() / ((n - 1) * (n - 2))
    sums /= n - 2
    at = 0
    for i in range(n - 1):
        for j in range(i + 1, n):
            found[at] = squared[at] - sums[i] - sums[j] + whole
            at += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def among_nearest(
    squared: Array, n: int, k: int, tie: float, first: int, last: int, found: Array
) -> None:
    """Which stimuli are among the k nearest of the stimuli first..last-1.

    Parameters
    ----------
    squared : (n_pairs,) in condensed order, of n > k stimuli
    tie : distances that differ by less than this part of themselves are equal
    found : (2, n_pairs) filled: of the pair (i, j), i < j, whether j is among those of i, and i
        among those of j. Equal distances share the places that are left
    """
    own, place = np.empty(n - 1), np.empty(n - 1, dtype=np.int64)
    for i in range(first, last):
        # Pair (j, i), then all pairs of i with later ones.
        at = i - 1
        for j in range(i):
            place[j] = at
            at += n - 2 - j
        start = i * n - i * (i + 1) // 2
        for j in range(i, n - 1):
            place[j] = start + j - i
        for j in range(n - 1):
            own[j] = squared[place[j]]
        edge = np.partition(own, k - 1)[k - 1]
        low, high = edge - tie * edge, edge + tie * edge
        below, equal = 0, 0
        for j in range(n - 1):
            below += own[j] < low
            equal += low <= own[j] <= high
        share = (k - below) / equal
        for j in range(n - 1):
            value = 1.0 if own[j] < low else (share if own[j] <= high else 0.0)
            found[1 if j < i else 0, place[j]] = value


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def sum_values(values: Array, cells: Array, sums: Array) -> float:
    """Add values (n_sides, n_pairs) to the cells (n_cells,) of their pairs; the sum of squares."""
    squares = 0.0
    for side in range(len(values)):
        for at in range(len(cells)):
            value = np.float64(values[side, at])
            sums[cells[at]] += value
            squares += value * value
    return squares
