"""Procrustes and CCA: similarities that turn one layer onto the other.

The rotation (of Procrustes), or the directions of either layer that go together (of CCA), are those
of the training stimuli; the similarity is then measured on the stimuli of the fold that is left
out. In-sample either is large for any two layers with many units; what a rotation gains from chance
in the training stimuli, no other stimuli share. 1 is one layer, however turned (and, for CCA,
scaled). A layer is its first principal components, as many as the stimuli can tell.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray

# Of each layer so many principal components are turned, but at most one for so many stimuli.
COMPONENTS, STIMULI_A_COMPONENT = 50, 10
# A component of less than this part of the variance of the largest is rounding.
_FLAT = 1e-10


def components(rows: NDArray[np.floating]) -> FloatArray:
    """The first principal components (n_stimuli, n_components) of a layer (n_stimuli, n_units)."""
    from scipy.linalg import eigh

    centred = rows.astype(np.float64)
    centred -= centred.mean(axis=0)
    few_units = centred.shape[1] <= len(centred)
    products = centred.T @ centred if few_units else centred @ centred.T
    most = max(1, min(COMPONENTS, len(centred) // STIMULI_A_COMPONENT, len(products)))
    last = len(products) - 1
    values, vectors = eigh(products, subset_by_index=(last - most + 1, last))
    has_variance = values > _FLAT * max(float(values[-1]), 0.0)
    vectors = vectors[:, has_variance][:, ::-1]
    if few_units:
        scores: FloatArray = centred @ vectors
    else:
        scores = vectors * np.sqrt(values[has_variance][::-1])
    return scores


def procrustes(layer_a: FloatArray, layer_b: FloatArray, folds: IntArray) -> float:
    """Procrustes similarity of two layers, in stimuli that the rotation was not fitted to.

    Parameters
    ----------
    layer_a, layer_b : (n_stimuli, n_components) of each
    folds : (n_stimuli,) the fold that leaves a stimulus out; one below 0 has no part

    Returns tr(A R Bᵀ) / (‖A‖ ‖B‖) of the stimuli that are left out, summed over the folds.
    """
    return _cross_fitted_similarity(layer_a, layer_b, folds, _rotated)


def cca(layer_a: FloatArray, layer_b: FloatArray, folds: IntArray) -> float:
    """Similarity of two layers' canonical variates, of variance 1 in the training stimuli.

    So every direction counts alike, however little of a layer's variance lies along it. Parameters
    are those of `procrustes`.
    """
    return _cross_fitted_similarity(layer_a, layer_b, folds, _canonical)


def _rotated(
    train_a: FloatArray, train_b: FloatArray, test_a: FloatArray, test_b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    u, _, vt = np.linalg.svd(train_a.T @ train_b, full_matrices=False)
    return test_a @ (u @ vt), test_b


def _canonical(
    train_a: FloatArray, train_b: FloatArray, test_a: FloatArray, test_b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    white_a, test_a = _whitened(train_a, test_a)
    white_b, test_b = _whitened(train_b, test_b)
    u, _, vt = np.linalg.svd(white_a.T @ white_b, full_matrices=False)
    return test_a @ u, test_b @ vt.T


def _whitened(train: FloatArray, test: FloatArray) -> tuple[FloatArray, FloatArray]:
    u, values, vt = np.linalg.svd(train, full_matrices=False)
    has_variance = values > np.sqrt(_FLAT) * values.max(initial=0.0)
    return u[:, has_variance], test @ (vt[has_variance].T / values[has_variance])


def _cross_fitted_similarity(
    layer_a: FloatArray,
    layer_b: FloatArray,
    folds: IntArray,
    align: Callable[..., tuple[FloatArray, ...]],
) -> float:
    product, squares = 0.0, np.zeros(2)
    if not layer_a.size or not layer_b.size:
        return 0.0
    for fold in np.unique(folds[folds >= 0]):
        train, test = (folds >= 0) & (folds != fold), folds == fold
        mean_a, mean_b = layer_a[train].mean(axis=0), layer_b[train].mean(axis=0)
        test_a, test_b = align(
            layer_a[train] - mean_a,
            layer_b[train] - mean_b,
            layer_a[test] - mean_a,
            layer_b[test] - mean_b,
        )
        product += float((test_a * test_b).sum())
        squares += [(test_a**2).sum(), (test_b**2).sum()]
    return product / float(np.sqrt(squares.prod())) if (squares > 0).all() else 0.0
