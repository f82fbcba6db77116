"""Block principal pivoting, compiled by numba (imported on first use)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from mlem_core.base.room import keep_compiled

keep_compiled()

Array = NDArray[Any]

ROUNDS = 30
# A pivot below this part of the diagonal is none: columns are copies of one another.
SINGULAR = 1e-15


# Sums may be taken in any order: several numbers at once.
@numba.njit(nogil=True, cache=True, fastmath={"reassoc"})  # type: ignore[untyped-decorator, unused-ignore]
def _dot(one: Array, other: Array, n: int) -> float:
    total = 0.0
    for k in range(n):
        total += one[k] * other[k]
    return total


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _factor(gram: Array, chosen: Array, lower: Array) -> bool:
    """Cholesky's decomposition of the chosen rows and columns; False where there is none."""
    n = len(chosen)
    for i in range(n):
        for j in range(i + 1):
            total = gram[chosen[i], chosen[j]] - _dot(lower[i], lower[j], j)
            if i == j:
                if total <= SINGULAR:
                    return False
                lower[i, i] = np.sqrt(total)
            else:
                lower[i, j] = total / lower[j, j]
    return True


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _substitute(lower: Array, moment: Array, chosen: Array, solved: Array) -> None:
    """Solve the chosen equations by their decomposition."""
    n = len(chosen)
    for i in range(n):
        total = moment[chosen[i]]
        for k in range(i):
            total -= lower[i, k] * solved[k]
        solved[i] = total / lower[i, i]
    for i in range(n - 1, -1, -1):
        total = solved[i]
        for k in range(i + 1, n):
            total -= lower[k, i] * solved[k]
        solved[i] = total / lower[i, i]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def pivot(grams: Array, which: Array, moments: Array, weights: Array, done: Array) -> None:
    """Minimise w' G w / 2 - m' w over w >= 0, for many (G, m).

    Parameters
    ----------
    grams : (n_grams, n, n) with a diagonal of 1, or 0 for a variable that is not used
    which : (n_problems,) the matrix of each problem
    moments : (n_problems, n)
    weights : (n_problems, n), filled
    done : (n_problems,) booleans, set where the solution was found

    Source: Kim and Park (2011), full exchange.
    """
    n_problems, n = moments.shape
    lower, solved, own = np.empty((n, n)), np.empty(n), np.empty(n)
    # All equations of a matrix are decomposed once for the problems that follow each other.
    whole, of, fine = np.empty((n, n)), -1, False
    free, wrong = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
    for problem in range(n_problems):
        gram, moment = grams[which[problem]], moments[problem]
        top = np.abs(moment).max() if n else 0.0
        tolerance = 1e-11 * (top if top > 0 else 1.0)
        for i in range(n):
            free[i] = gram[i, i] > 0
        for step in range(ROUNDS):
            chosen = np.flatnonzero(free)
            if step == 0 and of != which[problem]:
                of, fine = which[problem], _factor(gram, chosen, whole)
            if not (fine if step == 0 else _factor(gram, chosen, lower)):
                break
            _substitute(whole if step == 0 else lower, moment, chosen, solved)
            own[:] = 0.0
            for k in range(len(chosen)):
                own[chosen[k]] = solved[k]
            exchanged = False
            for i in range(n):
                if free[i]:
                    wrong[i] = own[i] < -tolerance
                else:
                    slope = -moment[i]
                    for k in range(len(chosen)):
                        slope += gram[i, chosen[k]] * solved[k]
                    wrong[i] = slope < -tolerance and gram[i, i] > 0
                exchanged |= wrong[i]
            if not exchanged:
                weights[problem] = own
                done[problem] = True
                break
            for i in range(n):
                if wrong[i]:
                    free[i] = not free[i]
