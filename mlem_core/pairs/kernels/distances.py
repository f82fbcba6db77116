"""Distances of pairs, and numbers of pairs that follow from them, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# The sum over units may be taken in lanes: the order is fixed by the compiled code, and the same
# for (x, y) and (y, x), so that equal rows are at equal distances.
_LANES = {"reassoc", "contract", "nsz"}


@numba.njit(nogil=True, cache=True, fastmath=_LANES)  # type: ignore[untyped-decorator, unused-ignore]
def along(
    rows: Array,
    stimulus: Array,
    starts: Array,
    partner: Array,
    begin: int,
    distances: Array,
    cityblock: bool | None,
) -> None:
    """Squared Euclidean or Manhattan distances, in float64, of the pairs in some rows of a design.

    Parameters
    ----------
    rows : (n_stimuli, n_units)
    stimulus, starts, partner : of those rows of a `PairDesign`
    begin : where the pairs of the first of them begin
    found : (n_pairs,) filled for these pairs
    cityblock : True for Manhattan distances, else None: either is compiled without the other
    """
    for row in range(len(stimulus)):
        row_values = rows[stimulus[row]]
        for k in range(starts[row] - begin, starts[row + 1] - begin):
            other = rows[partner[k]]
            total = 0.0
            for unit in range(len(row_values)):
                difference = np.float64(row_values[unit]) - np.float64(other[unit])
                if cityblock is None:
                    total += difference * difference
                else:
                    total += abs(difference)
            distances[k] = total


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def join_equal(rows: Array, order: Array, projections: Array, reach: Array, first: Array) -> None:
    """The first of the rows that each row equals, going through them along one direction.

    Parameters
    ----------
    rows : (n_rows, n_units)
    order : (n_rows,) ascending in the first projection
    projections : (2, n_rows) on directions of length 1: no two rows are nearer than those of either
    reach : (n_rows,) how near another row equals a row
    first : (n_rows,) their own numbers; filled with that of the row which each equals
    """
    for position in range(len(order)):
        i = order[position]
        if first[i] != i:
            continue
        most = reach[i] * reach[i]
        for later in range(position + 1, len(order)):
            j = order[later]
            if projections[0, j] - projections[0, i] > reach[i]:
                break
            if first[j] != j or abs(projections[1, j] - projections[1, i]) > reach[i]:
                continue
            apart = 0.0
            for unit in range(rows.shape[1]):
                difference = np.float64(rows[i, unit]) - np.float64(rows[j, unit])
                apart += difference * difference
                if apart > most:
                    break
            if apart <= most:
                first[j] = i


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def finish_squared(
    tile: Array, left: Array, right: Array, squares: Array, cancellation: float
) -> None:
    """Squared distances |x|² + |y|² - 2xy above the diagonal, from a matrix product.

    Those that are below a share of |x|² + |y|² have lost too many digits and are computed afresh.

    Parameters
    ----------
    tile : (n_left, n_right) left @ right.T, filled
    left, right : (n_left, n_units) and (n_right, n_units), which begins with `left`
    squares : (n_right,) |y|²
    cancellation : that share
    """
    for a in range(len(tile)):
        for b in range(a + 1, tile.shape[1]):
            scale = squares[a] + squares[b]
            tile[a, b] = scale - 2.0 * tile[a, b]
        for b in range(a + 1, tile.shape[1]):
            if tile[a, b] < cancellation * (squares[a] + squares[b]):
                total = 0.0
                for unit in range(left.shape[1]):
                    difference = left[a, unit] - right[b, unit]
                    total += difference * difference
                tile[a, b] = total


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def fill_condensed(tile: Array, start: int, order: Array, row: Array, condensed: Array) -> None:
    """Copy the distances of distinct rows to all pairs of stimuli that have these rows.

    Copying is what makes ties exact; stimuli of one row are at distance 0.

    Parameters
    ----------
    tile : (n_left, n_right) distances of the distinct rows from `start` on, above the diagonal
    order : (n_stimuli,) the stimuli, by their distinct rows
    row : (n_stimuli,) the distinct row of each of them, ascending
    condensed : (n_pairs,) filled for pairs whose first, in the order, has a row in the tile
    """
    n = len(order)
    for a in range(n):
        if row[a] < start or row[a] >= start + len(tile):
            continue
        column = row[a] - start
        for b in range(a + 1, n):
            i, j = min(order[a], order[b]), max(order[a], order[b])
            value = 0.0 if row[b] == row[a] else tile[column, row[b] - start]
            condensed[i * n - i * (i + 1) // 2 - i - 1 + j] = value


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def u_centre(squared: Array, n: int, centred: Array) -> None:
    """U-centred distances of all pairs of n > 3 stimuli: each stimulus's add up to 0.

    Parameters
    ----------
    squared : (n_pairs,) in condensed order
    found : (n_pairs,) filled; it may be `squared`
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
    grand_mean = sums.sum() / ((n - 1) * (n - 2))
    sums /= n - 2
    at = 0
    for i in range(n - 1):
        for j in range(i + 1, n):
            centred[at] = squared[at] - sums[i] - sums[j] + grand_mean
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
    found : (2, n_pairs) filled: of the pair (i, j), i < j, whether j is among those of i, and i
        among those of j. Equal distances share the places that are left
    """
    row_distances, place = np.empty(n - 1), np.empty(n - 1, dtype=np.int64)
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
            row_distances[j] = squared[place[j]]
        edge = np.partition(row_distances, k - 1)[k - 1]
        low, high = edge - tie * edge, edge + tie * edge
        below, equal = 0, 0
        for j in range(n - 1):
            below += row_distances[j] < low
            equal += low <= row_distances[j] <= high
        share = (k - below) / equal
        for j in range(n - 1):
            value = 1.0 if row_distances[j] < low else (share if row_distances[j] <= high else 0.0)
            shares[1 if j < i else 0, place[j]] = value
