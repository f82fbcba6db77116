"""What is done with the tiles of a matrix of distances, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
from numpy.typing import NDArray

Array = NDArray[Any]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def finish_squared(
    tile: Array, left: Array, right: Array, squares: Array, cancellation: float
) -> None:
    """From a matrix product to squared distances |x|² + |y|² - 2xy, above the diagonal.

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
    condensed : (n_pairs,) filled for pairs of which the first, in the order, has a row in the tile
    """
    n = len(order)
    for a in range(n):
        if row[a] < start or row[a] >= start + len(tile):
            continue
        own = row[a] - start
        for b in range(a + 1, n):
            i, j = min(order[a], order[b]), max(order[a], order[b])
            value = 0.0 if row[b] == row[a] else tile[own, row[b] - start]
            condensed[i * n - i * (i + 1) // 2 - i - 1 + j] = value
