"""Distances over repetitions: cross-validated, so that noise is no part of them.

The squared distance of two noisy vectors is too large by the noise of both, and most so for what is
measured worst. The product of the differences in two repetitions m and n,

    d²(i, j) = mean over m ≠ n of (x_im - x_jm)ᵀ P (x_in - x_jn),

has no such part, as the noise of different repetitions has nothing in common: it is 0 on average
where two stimuli evoke the same, and so is below 0 as often as above. P is the inverse of the
covariance of the noise over units, shrunk, or only its diagonal; both come from what the
repetitions of a stimulus differ by. They come from other stimuli than i and j: the noise of these
two would be too small in a metric of its own, by which noise alone is at a distance.

Sources: Walther et al. (2016); Ledoit and Wolf (2004) for the covariance.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.numbers import moderate
from mlem_core.base.typing import FloatArray
from mlem_core.pairs.distances import Distance, register
from mlem_core.stimuli.neural_rows import check_finite

# The stimuli are in so many groups; those of two say nothing of the noise in the others.
GROUPS = 5
# A variance below this part of the largest is rounding.
_NOTHING = 1e-12

# What gives the rows (n, n_units) whitened, from residuals (n, n_units) and the degrees of freedom.
Whiten = Callable[[FloatArray, FloatArray, int], FloatArray]


def diagonal(rows: FloatArray, residuals: FloatArray, degrees: int) -> FloatArray:
    """Each unit divided by the standard deviation of its noise; one without any noise is 0.

    Not by `degrees`, but by 2 less: so the inverse of the variance is right on average.
    """
    variance = np.einsum("ij,ij->j", residuals, residuals) / (degrees - 2)
    known = variance > _NOTHING * variance.max()
    return np.asarray(rows * (known / np.sqrt(np.where(known, variance, 1.0))))


def shrunken(rows: FloatArray, residuals: FloatArray, degrees: int) -> FloatArray:
    """Rows in which the noise of all units has the covariance 1, which is shrunk to its mean."""
    from scipy.linalg import cholesky, solve_triangular
    from sklearn.covariance import ledoit_wolf

    covariance, _ = ledoit_wolf(residuals, assume_centered=True)
    factor = cholesky(covariance * (len(residuals) / degrees), lower=True)
    return np.asarray(solve_triangular(factor, rows.T, lower=True).T)


def check_repetitions(measured: NDArray[np.floating], layer: str) -> None:
    """Raise InputError for an array that is not (n_repetitions, n_stimuli, n_units), finite.

    Nor may the repetitions be all the same, so that there is no noise to measure in.
    """
    if measured.ndim != 3 or len(measured) < 2:
        raise InputError(
            f"{layer} has the shape {measured.shape}; distances over repetitions need at least two "
            "of each stimulus, (repetitions, stimuli, units): choose another distance, or give "
            "them."
        )
    if measured.shape[1] < 2 * GROUPS:
        raise InputError(
            f"found {measured.shape[1]} stimuli; distances over repetitions need at least "
            f"{2 * GROUPS}, as the noise of each pair is taken from others."
        )
    check_finite(measured, layer)
    centred = measured - measured.mean(axis=1, keepdims=True, dtype=np.float64)
    if not np.abs(centred - centred.mean(axis=0)).max() > _NOTHING * np.abs(centred).max():
        raise InputError(
            f"the repetitions of {layer} are all the same; expected separate measurements of each "
            "stimulus, whose differences say how large the noise is."
        )


def cross_validated_distances(
    measured: NDArray[np.floating], whiten: Whiten = shrunken
) -> FloatArray:
    """Squared distances of all pairs of stimuli without the part that is noise.

    Parameters
    ----------
    measured : (n_repetitions, n_stimuli, n_units), see `check_repetitions`
    whiten : what is done about the noise, `diagonal` or `shrunken`

    Returns (n_pairs,) in the order (0,1), (0,2), ..., (1,2), ...; below 0 by chance.
    """
    # What a whole repetition shares, such as the drift of a session, is in no difference.
    centred = measured - measured.mean(axis=1, keepdims=True, dtype=np.float64)
    n, n_stimuli, n_units = centred.shape
    group, squared = np.arange(n_stimuli) % GROUPS, np.empty((n_stimuli, n_stimuli))
    # Every pair of groups leaves as many others, so that all pairs are measured alike; those of one
    # group are in several.
    for pair in itertools.combinations(range(GROUPS), 2):
        inside = np.isin(group, pair)
        noise, compared = centred[:, ~inside], centred[:, inside]
        noise = noise - noise.mean(axis=0)
        noise -= noise.mean(axis=1, keepdims=True)
        degrees = (n - 1) * (noise.shape[1] - 1)
        flat = whiten(compared.reshape(-1, n_units), noise.reshape(-1, n_units), degrees)
        white, rows = flat.reshape(compared.shape), np.flatnonzero(inside)
        total = white.sum(axis=0)
        products = total @ total.T
        for repetition in white:
            products -= repetition @ repetition.T
        norms = np.diagonal(products)
        squared[np.ix_(rows, rows)] = (norms[:, None] + norms - 2 * products) / (n * (n - 1))
    return squared[np.triu_indices(n_stimuli, 1)]


def non_negative_distances(measured: NDArray[np.floating], whiten: Whiten) -> FloatArray:
    """`cross_validated_distances`, with a constant added to all if one is below 0: none is then.

    Ranks, scaled distances, models with an intercept and U-centred distances stay as they are; so
    do the axes of a classical map (Lingoes 1971).
    """
    squared = cross_validated_distances(measured, whiten)
    return squared - min(0.0, float(squared.min(initial=0.0)))


def _check_and_compare(measured: NDArray[np.floating], layer: str, whiten: Whiten) -> FloatArray:
    check_repetitions(measured, layer)
    return non_negative_distances(moderate(measured.astype(np.float64)), whiten)


for _name, _whiten, _weight in (
    ("crossnobis", shrunken, "the inverse covariance (Ledoit-Wolf)"),
    ("crossnobis-diagonal", diagonal, "the inverse variances"),
):
    register(
        Distance(
            _name,
            over_repetitions=partial(_check_and_compare, whiten=_whiten),
            label=f"{_name}: over the repetitions in the files, by {_weight} of the noise",
            phrase=f"the {_name} distance over repetitions (by {_weight} of the noise; of language "
            "models, which have none, the Euclidean distance)",
        )
    )
