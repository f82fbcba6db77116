"""U-centred distances and nearest neighbours, compiled by numba: imported where they are used."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from mlem_core.base.resources import keep_compiled

keep_compiled()

Array = NDArray[Any]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def u_centre(squared: Array, n: int, centred: Array) -> None:
    """U-centred distances of all pairs of n > 3 stimuli: each stimulus's add up to 0.

    Parameters
    ----------
    squared : (n_pairs,) in condensed order
    centred : (n_pairs,) filled; it may be `squared`
    """
    sums = np.zeros(n)
    at = 0
    for i in range(n - 1):
        row_sum = 0.0
        for j in range(i + 1, n):
            row_sum += squared[at]
            sums[j] += squared[at]
            at += 1
        sums[i] += row_sum
    mean = sums.sum() / ((n - 1) * (n - 2))
    sums /= n - 2
    at = 0
    for i in range(n - 1):
        for j in range(i + 1, n):
            centred[at] = squared[at] - sums[i] - sums[j] + mean
            at += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def among_nearest(
    squared: Array, n: int, k: int, tie: float, first: int, last: int, shares: Array
) -> None:
    """Mask of the k nearest of each of the stimuli first..last-1.

    Parameters
    ----------
    squared : (n_pairs,) in condensed order, of n > k stimuli
    tie : distances that differ by less than this part of themselves are equal
    shares : (2, n_pairs) filled: of the pair (i, j), i < j, whether j is among those of i, and i
        among those of j. Equal distances share the places that are left
    """
    distances, place = np.empty(n - 1), np.empty(n - 1, dtype=np.int64)
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
            distances[j] = squared[place[j]]
        edge = np.partition(distances, k - 1)[k - 1]
        low, high = edge - tie * edge, edge + tie * edge
        below, equal = 0, 0
        for j in range(n - 1):
            below += distances[j] < low
            equal += low <= distances[j] <= high
        share = (k - below) / equal
        for j in range(n - 1):
            value = 1.0 if distances[j] < low else (share if distances[j] <= high else 0.0)
            shares[1 if j < i else 0, place[j]] = value
