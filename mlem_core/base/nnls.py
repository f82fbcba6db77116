"""Non-negative least squares from normal equations, many problems at once."""

from __future__ import annotations

import numpy as np

from mlem_core.base.parallel import cores, side_by_side
from mlem_core.base.typing import FloatArray, IntArray

# Fewer multiplications than this are not worth threads.
SMALL = 2**20


def nonnegative_quadratic(gram: FloatArray, moment: FloatArray) -> FloatArray:
    """Minimise w' G w / 2 - m' w over w >= 0, for many (G, m) at once.

    Block principal pivoting (Kim and Park 2011); the few problems on which it cycles, or whose
    matrix is singular, go to `scipy.optimize.nnls`.

    Parameters
    ----------
    gram : (..., n, n) symmetric positive semi-definite; it is broadcast against the moments
        without being copied
    moment : (..., n)

    Returns
    -------
    (..., n) weights of at least 0
    """
    from mlem_core.base.pivoting import pivot

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
        own, found = np.zeros((len(part), n)), np.zeros(len(part), dtype=np.bool_)
        pivot(scaled, which[part], m[part], own, found)
        weights[part], done[part] = own, found

    shares = np.array_split(np.arange(len(m)), cores() if m.size * n * n > SMALL else 1)
    side_by_side(solve, shares) if len(shares) > 1 else solve(shares[0])
    for i in np.flatnonzero(~done):
        weights[i] = _by_nnls(scaled[which[i]], m[i])
    weights = np.maximum(weights, 0.0) / scale * size[:, None]
    weights[unused[which]] = 0.0
    return weights.reshape(*leading, n)


def _by_nnls(gram: FloatArray, moment: FloatArray) -> FloatArray:
    from scipy.optimize import nnls

    values, vectors = np.linalg.eigh(gram)
    keep = values > values.max() * 1e-13
    root = np.sqrt(values[keep])
    solved: FloatArray = nnls(
        (vectors[:, keep] * root).T, (vectors[:, keep] / root).T @ moment, maxiter=100 * len(moment)
    )[0]
    return solved
