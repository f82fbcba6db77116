"""Distances over repetitions: cross-validated, so that noise is no part of them.

The squared distance of two noisy vectors is too large by the noise of both, and most so for what is
measured worst. The product of the differences in two repetitions m and n,

    d²(i, j) = mean over m ≠ n of (x_im - x_jm)ᵀ P (x_in - x_jn),

has no such part, as the noise of different repetitions has nothing in common: it is 0 on average
where two stimuli evoke the same, and so is below 0 as often as above. P is the inverse of the
covariance of the noise over units, shrunk, or only its diagonal; both come from what the
repetitions of a stimulus differ by. They come from other stimuli than i and j: the noise of these
two would be too small in a metric of its own, by which noise alone is at a distance (measured in
docs/validation).

Sources: Walther et al. (2016); Schäfer and Strimmer (2005) for the covariance.
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

# The stimuli are in so many groups, where there are as many; those of two groups say nothing of the
# noise in which they are measured. More groups leave more for it, and cost more.
GROUPS = 20
LEAST_STIMULI = 10
# A variance below this part of the largest is rounding; so is a shrinkage below it.
_NOTHING = 1e-12

# What gives rows (n, n_units) times the inverse covariance of the noise, from these, residuals of
# the noise (n_residuals, n_units) and their degrees of freedom.
Weigh = Callable[[FloatArray, FloatArray, int], FloatArray]


def diagonal(rows: FloatArray, residuals: FloatArray, degrees: int) -> FloatArray:
    """Rows with each unit divided by the variance of its noise; a unit without any noise is 0.

    Not by `degrees`, but by 2 less: so the inverse of the variance is right on average.
    """
    variance = np.einsum("ij,ij->j", residuals, residuals) / (degrees - 2)
    known = variance > _NOTHING * variance.max()
    return np.asarray(rows * (known / np.where(known, variance, 1.0)))


def shrunken(rows: FloatArray, residuals: FloatArray, degrees: int) -> FloatArray:
    """Rows times the inverse covariance of the noise; a unit without any noise is 0.

    Correlations of the noise are shrunk to 0 as in `rsatoolbox.data.noise`, "shrinkage_diag".
    """
    from scipy.linalg import cho_factor, cho_solve

    variance = np.einsum("ij,ij->j", residuals, residuals) / degrees
    known = variance > _NOTHING * variance.max()
    deviation = np.sqrt(variance[known])
    noise, scaled = residuals[:, known] / deviation, rows[:, known] / deviation
    # The smaller of the two matrices of products says as much.
    n, n_units = noise.shape
    inner = noise.T @ noise if n_units <= n else noise @ noise.T
    # Over all pairs of two units: squared correlations, and mean squares of products of the noise.
    size = (np.einsum("ij,ij->", inner, inner) - n_units * degrees**2) / (n - 1) ** 2
    squares = noise**2
    products = ((squares.sum(axis=1) ** 2).sum() - (squares**2).sum()) / (n - 1)
    uncertainty = n / degrees**2 * (products - size)
    shrinkage = min(max(uncertainty / size, _NOTHING), 1.0) if size > 0 else 1.0
    kept = (1 - shrinkage) / degrees
    inner *= kept
    inner[np.diag_indices_from(inner)] += shrinkage
    factor = cho_factor(inner, lower=True, overwrite_a=True)
    if n_units <= n:
        scaled = cho_solve(factor, scaled.T).T
    else:
        scaled = (scaled - kept * (cho_solve(factor, noise @ scaled.T).T @ noise)) / shrinkage
    weighed = np.zeros_like(rows)
    weighed[:, known] = scaled / deviation
    return weighed


def check_repetitions(measured: NDArray[np.floating], layer: str) -> None:
    """Raise InputError for an array that is not (n_repetitions, n_stimuli, n_units), finite."""
    if measured.ndim != 3 or len(measured) < 2:
        raise InputError(
            f"{layer} has the shape {measured.shape}; distances over repetitions need at least two "
            "of each stimulus, (repetitions, stimuli, units): choose another distance, or give "
            "them."
        )
    if measured.shape[1] < LEAST_STIMULI:
        raise InputError(
            f"found {measured.shape[1]} stimuli; distances over repetitions need at least "
            f"{LEAST_STIMULI}, as the noise of each pair is taken from others."
        )
    check_finite(measured, layer)


def cross_validated_distances(
    measured: NDArray[np.floating], weigh: Weigh = shrunken, layer: str = "the layer"
) -> FloatArray:
    """Squared distances of all pairs of stimuli without the part that is noise.

    Parameters
    ----------
    measured : (n_repetitions, n_stimuli, n_units), see `check_repetitions`
    weigh : what is done about the noise, `diagonal` or `shrunken`

    Returns (n_pairs,) in the order (0,1), (0,2), ..., (1,2), ...; below 0 by chance.

    Raises InputError: repetitions that are all the same, so that there is no noise to measure in.
    """
    # What a whole repetition shares, such as the drift of a session, is in no difference.
    centred = measured - measured.mean(axis=1, keepdims=True, dtype=np.float64)
    n, n_stimuli, n_units = centred.shape
    n_groups = min(GROUPS, n_stimuli)
    group, squared = np.arange(n_stimuli) % n_groups, np.empty((n_stimuli, n_stimuli))
    # Every pair of groups leaves as many others, so that all pairs are measured alike; those of one
    # group are in several.
    for pair in itertools.combinations(range(n_groups), 2):
        inside = np.isin(group, pair)
        noise, compared = centred[:, ~inside], centred[:, inside]
        noise = noise - noise.mean(axis=0)
        noise -= noise.mean(axis=1, keepdims=True)
        if not np.abs(noise).max() > _NOTHING * np.abs(centred).max():
            raise InputError(
                f"the repetitions of {layer} are all the same in {noise.shape[1]} stimuli or more; "
                "expected separate measurements of each stimulus, whose differences say how large "
                "the noise is."
            )
        degrees = (n - 1) * (noise.shape[1] - 1)
        flat = weigh(compared.reshape(-1, n_units), noise.reshape(-1, n_units), degrees)
        weighed, rows = flat.reshape(compared.shape), np.flatnonzero(inside)
        products = compared.sum(axis=0) @ weighed.sum(axis=0).T
        for repetition, weighed_repetition in zip(compared, weighed, strict=True):
            products -= repetition @ weighed_repetition.T
        norms = np.diagonal(products)
        squared[np.ix_(rows, rows)] = (norms[:, None] + norms - 2 * products) / (n * (n - 1))
    return squared[np.triu_indices(n_stimuli, 1)]


def non_negative_distances(
    measured: NDArray[np.floating], weigh: Weigh, layer: str = "the layer"
) -> FloatArray:
    """`cross_validated_distances`, with a constant added to all if one is below 0: none is then.

    Ranks, scaled distances, models with an intercept and U-centred distances stay as they are; so
    do the axes of a classical map (Lingoes 1971).
    """
    squared = cross_validated_distances(measured, weigh, layer)
    return squared - min(0.0, float(squared.min(initial=0.0)))


def _check_and_compare(measured: NDArray[np.floating], layer: str, weigh: Weigh) -> FloatArray:
    check_repetitions(measured, layer)
    return non_negative_distances(moderate(measured.astype(np.float64)), weigh, layer)


for _name, _weigh, _weight in (
    ("crossnobis", shrunken, "the inverse covariance (Schäfer-Strimmer)"),
    ("crossnobis-diagonal", diagonal, "the inverse variances"),
):
    register(
        Distance(
            _name,
            over_repetitions=partial(_check_and_compare, weigh=_weigh),
            label=f"{_name}: over the repetitions in the files, by {_weight} of the noise",
            phrase=f"the {_name} distance over repetitions (by {_weight} of the noise; of language "
            "models, which have none, the Euclidean distance)",
        )
    )
