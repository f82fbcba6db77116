"""Distances of the pairs of a design, one after the other, compiled by numba."""

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
def squared_along(
    rows: Array, stimulus: Array, starts: Array, partner: Array, begin: int, found: Array
) -> None:
    """Squared Euclidean distances, summed in float64, of the pairs in some rows of a design.

    Parameters
    ----------
    rows : (n_stimuli, n_units)
    stimulus, starts, partner : of those rows of a `PairDesign`
    begin : where the pairs of the first of them begin
    found : (n_pairs,) filled for these pairs
    """
    for row in range(len(stimulus)):
        own = rows[stimulus[row]]
        for k in range(starts[row] - begin, starts[row + 1] - begin):
            other = rows[partner[k]]
            total = 0.0
            for unit in range(len(own)):
                difference = np.float64(own[unit]) - np.float64(other[unit])
                total += difference * difference
            found[k] = total


@numba.njit(nogil=True, cache=True, fastmath=_LANES)  # type: ignore[untyped-decorator, unused-ignore]
def cityblock_along(
    rows: Array, stimulus: Array, starts: Array, partner: Array, begin: int, found: Array
) -> None:
    """Manhattan distances; otherwise as `squared_along`."""
    for row in range(len(stimulus)):
        own = rows[stimulus[row]]
        for k in range(starts[row] - begin, starts[row + 1] - begin):
            other = rows[partner[k]]
            total = 0.0
            for unit in range(len(own)):
                total += abs(np.float64(own[unit]) - np.float64(other[unit]))
            found[k] = total


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
