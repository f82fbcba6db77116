"""Block principal pivoting, compiled by numba (imported on first use)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from mlem_core.base.folders import keep_compiled

keep_compiled()

Array = NDArray[Any]

ROUNDS = 30
# A pivot below this part of the diagonal is none: columns are copies of one another.
SINGULAR = 1e-15


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _solve(gram: Array, moment: Array, chosen: Array, lower: Array, solved: Array) -> bool:
    """Solve the chosen equations by Cholesky's decomposition; False where there is none."""
    n = len(chosen)
    for i in range(n):
        for j in range(i + 1):
            total = gram[chosen[i], chosen[j]]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            if i == j:
                if total <= SINGULAR:
                    return False
                lower[i, i] = np.sqrt(total)
            else:
                lower[i, j] = total / lower[j, j]
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
    return True


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
    free, wrong = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
    for problem in range(n_problems):
        gram, moment = grams[which[problem]], moments[problem]
        top = np.abs(moment).max() if n else 0.0
        tolerance = 1e-11 * (top if top > 0 else 1.0)
        for i in range(n):
            free[i] = gram[i, i] > 0
        for _ in range(ROUNDS):
            chosen = np.flatnonzero(free)
            if not _solve(gram, moment, chosen, lower, solved):
                break
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
