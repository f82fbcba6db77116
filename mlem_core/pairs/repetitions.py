"""Distances of stimuli that were measured several times, cross-validated over the repetitions.

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

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray

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
    whitened: FloatArray = rows * (known / np.sqrt(np.where(known, variance, 1.0)))
    return whitened


def shrunken(rows: FloatArray, residuals: FloatArray, degrees: int) -> FloatArray:
    """Rows in which the noise of all units has the covariance 1, which is shrunk to its mean."""
    from scipy.linalg import cholesky, solve_triangular
    from sklearn.covariance import ledoit_wolf

    covariance, _ = ledoit_wolf(residuals, assume_centered=True)
    factor = cholesky(covariance * (len(residuals) / degrees), lower=True)
    whitened: FloatArray = solve_triangular(factor, rows.T, lower=True).T
    return whitened


def check_repetitions(given: NDArray[np.floating], layer: str) -> None:
    """Raise InputError for an array that is not (n_repetitions, n_stimuli, n_units), finite."""
    if given.ndim != 3 or len(given) < 2:
        raise InputError(
            f"{layer} has the shape {given.shape}; distances over repetitions need at least two of "
            "each stimulus, (repetitions, stimuli, units): choose another distance, or give them."
        )
    if given.shape[1] < 2 * GROUPS:
        raise InputError(
            f"found {given.shape[1]} stimuli; distances over repetitions need at least "
            f"{2 * GROUPS}, as the noise of each pair is taken from others."
        )
    if not np.isfinite(given).all():
        at = np.argwhere(~np.isfinite(given))[0] + 1
        raise InputError(
            f"{layer} holds a value that is not finite in repetition {at[0]}, row {at[1]}; every "
            "value must be a finite number."
        )


def cross_validated(
    given: NDArray[np.floating], whiten: Whiten = shrunken, *, layer: str = "the layer"
) -> FloatArray:
    """Squared distances of all pairs of stimuli without the part that is noise.

    Parameters
    ----------
    given : (n_repetitions, n_stimuli, n_units)
    whiten : what is done about the noise, `diagonal` or `shrunken`
    layer : how an error message calls these representations

    Returns (n_pairs,) in the order (0,1), (0,2), ..., (1,2), ...; below 0 by chance.

    Raises InputError: fewer than two repetitions or 10 stimuli, values that are not finite, or
    repetitions that do not differ, so that there is no noise to measure in.
    """
    check_repetitions(given, layer)
    # What a whole repetition shares, such as the drift of a session, is in no difference.
    own = given - given.mean(axis=1, keepdims=True, dtype=np.float64)
    if not np.abs(own - own.mean(axis=0)).max() > _NOTHING * np.abs(own).max():
        raise InputError(
            f"the repetitions of {layer} are all the same; expected separate measurements of each "
            "stimulus, whose differences say how large the noise is."
        )
    n_stimuli = own.shape[1]
    group = np.arange(n_stimuli) % GROUPS
    found = np.empty((n_stimuli, n_stimuli))
    # Every pair of groups leaves as many others, so that all pairs are measured alike; those of one
    # group are in several.
    for two in itertools.combinations(range(GROUPS), 2):
        inside = np.isin(group, two)
        noise = _residuals(own[:, ~inside])
        degrees = (noise.shape[0] - 1) * (noise.shape[1] - 1)
        both = own[:, inside]
        white = whiten(_flat(both), _flat(noise), degrees).reshape(both.shape)
        rows = np.flatnonzero(inside)
        found[np.ix_(rows, rows)] = _between(white)
    squared: FloatArray = found[np.triu_indices(n_stimuli, 1)]
    return squared


def _flat(values: FloatArray) -> FloatArray:
    return values.reshape(-1, values.shape[-1])


def _residuals(values: FloatArray) -> FloatArray:
    """Residuals of (n_repetitions, n_stimuli, n_units) without stimuli and repetitions."""
    own = values - values.mean(axis=0)
    residuals: FloatArray = own - own.mean(axis=1, keepdims=True)
    return residuals


def _between(white: FloatArray) -> FloatArray:
    """The distances (n_stimuli, n_stimuli) of whitened (n_repetitions, n_stimuli, n_units)."""
    n, whole = len(white), white.sum(axis=0)
    products = whole @ whole.T
    for one in white:
        products -= one @ one.T
    norms = np.diagonal(products)
    found: FloatArray = (norms[:, None] + norms - 2 * products) / (n * (n - 1))
    return found


def raised(given: NDArray[np.floating], whiten: Whiten) -> FloatArray:
    """`cross_validated`, with a constant added to all if one is below 0: none is then.

    Ranks, scaled distances, models with an intercept and U-centred distances stay as they are; so
    do the axes of a classical map (Lingoes 1971).
    """
    squared = cross_validated(given, whiten)
    return squared - min(0.0, float(squared.min(initial=0.0)))
