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
