"""Bounded least squares of many problems at once, Student's t, and numbers of any size."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import cores, map_on_all_cores
from mlem_core.base.resources import keep_compiled
from mlem_core.base.typing import FloatArray, IntArray

keep_compiled()

Array = NDArray[Any]

ROUNDS = 30
# A pivot below this part of the diagonal is none: columns are copies of one another.
SINGULAR = 1e-15


# Sums may be taken in any order: several numbers at once.
@numba.njit(nogil=True, cache=True, fastmath={"reassoc"})  # type: ignore[untyped-decorator, unused-ignore]
def _dot(row: Array, other: Array, n: int) -> float:
    total = 0.0
    for k in range(n):
        total += row[k] * other[k]
    return total


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _factor(gram: Array, places: Array, lower: Array) -> bool:
    """Cholesky's decomposition of the chosen rows and columns; False where there is none."""
    n = len(places)
    for i in range(n):
        for j in range(i + 1):
            total = gram[places[i], places[j]] - _dot(lower[i], lower[j], j)
            if i == j:
                if total <= SINGULAR:
                    return False
                lower[i, i] = np.sqrt(total)
            else:
                lower[i, j] = total / lower[j, j]
    return True


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _substitute(lower: Array, moment: Array, places: Array, solved: Array) -> None:
    """Solve the chosen equations by their decomposition."""
    n = len(places)
    for i in range(n):
        total = moment[places[i]]
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
    factor, of, fine = np.empty((n, n)), -1, False
    free, wrong = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
    for problem in range(n_problems):
        gram, moment = grams[which[problem]], moments[problem]
        top = np.abs(moment).max() if n else 0.0
        tolerance = 1e-11 * (top if top > 0 else 1.0)
        for i in range(n):
            free[i] = gram[i, i] > 0
        for step in range(ROUNDS):
            places = np.flatnonzero(free)
            if step == 0 and of != which[problem]:
                of, fine = which[problem], _factor(gram, places, factor)
            if not (fine if step == 0 else _factor(gram, places, lower)):
                break
            _substitute(factor if step == 0 else lower, moment, places, solved)
            own[:] = 0.0
            for k in range(len(places)):
                own[places[k]] = solved[k]
            exchanged = False
            for i in range(n):
                if free[i]:
                    wrong[i] = own[i] < -tolerance
                else:
                    slope = -moment[i]
                    for k in range(len(places)):
                        slope += gram[i, places[k]] * solved[k]
                    wrong[i] = slope < -tolerance and gram[i, i] > 0
                exchanged |= wrong[i]
            if not exchanged:
                weights[problem] = own
                done[problem] = True
                break
            for i in range(n):
                if wrong[i]:
                    free[i] = not free[i]


# Fewer multiplications than this are not worth threads.
SMALL = 2**20
CONFIDENCE = 0.95
# A fourth power of what lies between these is neither 0 nor infinite, nor is a sum of many.
SMALLEST, LARGEST = 2.0**-150, 2.0**150


def nonnegative_quadratic(gram: FloatArray, moment: FloatArray) -> FloatArray:
    """Minimise w' G w / 2 - m' w over w >= 0, for many (G, m) at once.

    Block principal pivoting (Kim and Park 2011); the few problems on which it cycles, or whose
    matrix is singular, go to `scipy.optimize.nnls`.

    Parameters
    ----------
    gram : (..., n, n) symmetric positive semi-definite; it is broadcast against the moments
        without being copied
    moment : (..., n)

    Returns (..., n) weights of at least 0.
    """
    leading = np.broadcast_shapes(gram.shape[:-2], moment.shape[:-1])
    n = moment.shape[-1]
    grams = np.ascontiguousarray(gram, dtype=np.float64).reshape(-1, n, n)
    numbered = np.arange(len(grams)).reshape(gram.shape[:-2])
    which = np.broadcast_to(numbered, leading).ravel()
    m = np.broadcast_to(moment, (*leading, n)).reshape(-1, n)
    # A common scale a problem, so that one tolerance serves all.
    size = np.abs(m).max(axis=-1, initial=0.0)
    m = m / np.where(size > 0, size, 1.0)[:, None]
    diagonal = np.sqrt(np.maximum(np.einsum("ijj->ij", grams), 0.0))
    unused = diagonal == 0
    diagonal[unused] = 1.0
    scaled = grams / (diagonal[:, :, None] * diagonal[:, None, :])
    scale = diagonal[which]
    m = m / scale
    weights, done = np.zeros_like(m), np.zeros(len(m), dtype=np.bool_)

    def solve(part: IntArray) -> None:
        solutions, converged = np.zeros((len(part), n)), np.zeros(len(part), dtype=np.bool_)
        pivot(scaled, which[part], m[part], solutions, converged)
        weights[part], done[part] = solutions, converged

    # Those of one matrix follow each other.
    order = np.argsort(which, kind="stable")
    shares = np.array_split(order, cores() if m.size * n * n > SMALL else 1)
    map_on_all_cores(solve, shares) if len(shares) > 1 else solve(shares[0])
    for i in np.flatnonzero(~done):
        weights[i] = _solve_nnls(scaled[which[i]], m[i])
    weights = np.maximum(weights, 0.0) / scale * size[:, None]
    weights[unused[which]] = 0.0
    return weights.reshape(*leading, n)


def _solve_nnls(gram: FloatArray, moment: FloatArray) -> FloatArray:
    from scipy.optimize import nnls

    values, vectors = np.linalg.eigh(gram)
    keep = values > values.max() * 1e-13
    root = np.sqrt(values[keep])
    solved: FloatArray = nnls(
        (vectors[:, keep] * root).T, (vectors[:, keep] / root).T @ moment, maxiter=100 * len(moment)
    )[0]
    return solved


def student_quantile(degrees: int | FloatArray) -> Any:
    """Half-width of a 95 % interval in standard errors, from Student's t.

    `degrees` of freedom are at least 1 and not necessarily whole; a number or an array (...).
    """
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    quantile = stdtrit(degrees, 1 - (1 - CONFIDENCE) / 2)
    return float(quantile) if isinstance(degrees, int) else quantile


def moderate(values: NDArray[np.floating]) -> NDArray[Any]:
    """Numbers divided by a power of 2 where the largest is far from 1, else as they are.

    No digit is lost, and ranks, angles and ratios stay; numbers of single precision never need it.
    """
    if values.dtype.itemsize <= 4 or not values.size:
        return values
    # A power where some number is not finite would be none.
    largest = float(max(values.max(), -values.min()))
    if not 0 < largest < np.inf or SMALLEST < largest < LARGEST:
        return values
    return np.ldexp(values, -int(np.frexp(largest)[1]))
