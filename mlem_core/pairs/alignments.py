"""Similarities by turning one layer onto another: Procrustes and CCA, on stimuli not turned by.

The rotation (of Procrustes), or the directions of either layer that go together (of CCA), are those
of the training stimuli; how alike the layers then are is measured on the stimuli of the fold that
is left out. So it is 0 on average for layers that have nothing to do with each other: what a
rotation makes of chance in the training stimuli, no other stimuli share. In-sample either is large
for any two layers with many units. 1 is one layer, however turned (and, for CCA, scaled).

A layer is its first principal components, as many as the stimuli can tell. No pair of stimuli has
a part in either, so there are no terms by feature.

Sources: Schönemann (1966) for the rotation; Hotelling (1936) for CCA; Raghu et al. (2017) for
principal components first, and the mean over directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import Counted, FloatArray, IntArray

# Of each layer so many principal components are turned, but at most one for so many stimuli.
COMPONENTS, STIMULI_A_COMPONENT = 50, 10
# A component of less than this part of the variance of the largest is rounding.
_NOTHING = 1e-10

# What gives the similarity of the components (n_stimuli, n_a) and (n_stimuli, n_b) of two layers.
Aligned = Callable[[FloatArray, FloatArray, IntArray], float]


def components(rows: NDArray[np.floating]) -> FloatArray:
    """The first principal components (n_stimuli, n_components) of a layer (n_stimuli, n_units)."""
    from scipy.linalg import eigh

    own = rows.astype(np.float64)
    own -= own.mean(axis=0)
    few_units = own.shape[1] <= len(own)
    products = own.T @ own if few_units else own @ own.T
    most = max(1, min(COMPONENTS, len(own) // STIMULI_A_COMPONENT, len(products)))
    last = len(products) - 1
    values, vectors = eigh(products, subset_by_index=(last - most + 1, last))
    given = values > _NOTHING * max(float(values[-1]), 0.0)
    vectors = vectors[:, given][:, ::-1]
    found: FloatArray = own @ vectors if few_units else vectors * np.sqrt(values[given][::-1])
    return found


def procrustes(one: FloatArray, other: FloatArray, folds: IntArray) -> float:
    """How alike two layers are in stimuli that one was not turned onto the other by.

    Parameters
    ----------
    one, other : (n_stimuli, n_components) of each
    folds : (n_stimuli,) the fold that leaves a stimulus out; one below 0 has no part

    Returns tr(A R Bᵀ) / (‖A‖ ‖B‖) of the stimuli that are left out, summed over the folds.
    """
    return _held_out(one, other, folds, _rotated)


def cca(one: FloatArray, other: FloatArray, folds: IntArray) -> float:
    """The same of the canonical variates of two layers, each of variance 1 in the training stimuli.

    So every direction counts alike, however little of a layer's variance lies along it.
    """
    return _held_out(one, other, folds, _canonical)


def _rotated(
    a: FloatArray, b: FloatArray, left_a: FloatArray, left_b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    u, _, vt = np.linalg.svd(a.T @ b, full_matrices=False)
    return left_a @ (u @ vt), left_b


def _canonical(
    a: FloatArray, b: FloatArray, left_a: FloatArray, left_b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    (a, left_a), (b, left_b) = _whitened(a, left_a), _whitened(b, left_b)
    u, _, vt = np.linalg.svd(a.T @ b, full_matrices=False)
    return left_a @ u, left_b @ vt.T


def _whitened(rows: FloatArray, left: FloatArray) -> tuple[FloatArray, FloatArray]:
    u, values, vt = np.linalg.svd(rows, full_matrices=False)
    given = values > np.sqrt(_NOTHING) * values.max(initial=0.0)
    return u[:, given], left @ (vt[given].T / values[given])


def _held_out(
    one: FloatArray,
    other: FloatArray,
    folds: IntArray,
    turned: Callable[..., tuple[FloatArray, ...]],
) -> float:
    product, squares = 0.0, np.zeros(2)
    if not one.size or not other.size:
        return 0.0
    for fold in np.unique(folds[folds >= 0]):
        train, test = (folds >= 0) & (folds != fold), folds == fold
        means = [layer[train].mean(axis=0) for layer in (one, other)]
        a, b, left_a, left_b = (
            layer[where] - mean
            for where in (train, test)
            for layer, mean in zip((one, other), means, strict=True)
        )
        left_a, left_b = turned(a, b, left_a, left_b)
        product += float((left_a * left_b).sum())
        squares += [(left_a**2).sum(), (left_b**2).sum()]
    return product / float(np.sqrt(squares.prod())) if (squares > 0).all() else 0.0


def every_two(
    aligned: Aligned,
    layers: Sequence[Callable[[], NDArray[np.floating]]],
    folds: IntArray,
    progress: Counted | None = None,
) -> FloatArray:
    """The similarity of every two layers (n_layers, n_layers), symmetric.

    Parameters
    ----------
    layers : for each what gives its rows (n_stimuli, n_units)
    progress : called with the number of layers done and their total
    """
    own: list[FloatArray] = []
    found = np.eye(len(layers))
    for at, rows in enumerate(layers):
        own.append(components(rows()))
        for before in range(at + 1):
            found[at, before] = found[before, at] = aligned(own[at], own[before], folds)
        if progress is not None:
            progress(at + 1, len(layers))
    return found
