"""Non-negative least squares from normal equations, many problems at once."""

from __future__ import annotations

import numpy as np

from mlem_core.base.typing import FloatArray

ROUNDS = 30


def nonnegative_quadratic(gram: FloatArray, moment: FloatArray) -> FloatArray:
    """Minimise w' G w / 2 - m' w over w >= 0, for many (G, m) at once.

    Block principal pivoting over the whole batch (Kim and Park 2011); the few problems on which it
    cycles go to `scipy.optimize.nnls`.

    Parameters
    ----------
    gram : (..., n, n) symmetric positive semi-definite
    moment : (..., n)

    Returns (..., n) weights of at least 0.
    """
    leading = np.broadcast_shapes(gram.shape[:-2], moment.shape[:-1])
    n = moment.shape[-1]
    g = np.broadcast_to(gram, (*leading, n, n)).reshape(-1, n, n)
    m = np.broadcast_to(moment, (*leading, n)).reshape(-1, n)
    # A common scale a problem, so that one tolerance serves all.
    size = np.abs(m).max(axis=-1, initial=0.0)
    m = m / np.where(size > 0, size, 1.0)[:, None]
    diagonal = np.sqrt(np.maximum(np.einsum("ijj->ij", g), 0.0))
    unused = diagonal == 0
    diagonal[unused] = 1.0
    g = g / (diagonal[:, :, None] * diagonal[:, None, :])
    m = m / diagonal
    top = np.abs(m).max(axis=-1, initial=0.0)
    tolerance = 1e-11 * np.where(top > 0, top, 1.0)[:, None]
    free = ~unused
    weights = np.zeros_like(m)
    todo = np.arange(len(m))
    identity = np.eye(n)
    for _ in range(ROUNDS):
        if not len(todo):
            break
        on = free[todo]
        both = on[:, :, None] & on[:, None, :]
        system = np.where(both, g[todo], identity)
        try:
            solved = np.linalg.solve(system, np.where(on, m[todo], 0.0)[..., None])[..., 0]
        except np.linalg.LinAlgError:
            break
        slope = np.einsum("ijk,ik->ij", g[todo], solved) - m[todo]
        wrong = np.where(on, solved < -tolerance[todo], slope < -tolerance[todo])
        wrong &= ~unused[todo]
        weights[todo] = solved
        free[todo] ^= wrong
        todo = todo[wrong.any(axis=-1)]
    for i in todo:
        weights[i] = _by_nnls(g[i], m[i])
    weights = np.maximum(weights, 0.0) / diagonal * size[:, None]
    weights[unused] = 0.0
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
