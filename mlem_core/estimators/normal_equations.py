"""The normal equations of ridge for every layer and training set, and their solution.

A training set is the pairs inside a set of blocks, so that its normal equations are sums of what
`mlem_core.pairs.moments.PairMoments` keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlem_core.base.numbers import nonnegative_quadratic
from mlem_core.base.typing import FloatArray
from mlem_core.pairs.moments import PairMoments
from mlem_core.pairs.pair_columns import PairColumns

# The ridge penalty of weights that values are shrunk towards: hardly any.
LEAST = 1e-4
# What stands for the strength where no feature is coded by value.
NOT_APART = 1e12


@dataclass(frozen=True)
class NormalEquations:
    """Centred normal equations of the squared, min-max scaled distances on training sets.

    gram : (n_sets, n_features, n_features)
    moment : (n_layers, n_sets, n_features)
    x_mean : (n_sets, n_features) means of the squared feature distances
    y_mean : (n_layers, n_sets) means of the scaled target
    """

    gram: FloatArray
    moment: FloatArray
    x_mean: FloatArray
    y_mean: FloatArray


def normal_equations(
    moments: PairMoments, sets: Sequence[Sequence[int]], target: str = "distance"
) -> NormalEquations:
    """Normal equations of every layer on training sets, by the folds that each leaves out.

    The target "distance" is the squared neural distance, min-max scaled to [0, 1] over the pairs of
    the training set (Salle et al. 2024, appendix B); a layer whose distances there are all equal
    has the target 0. The target "rank" is the rank of the distance among all pairs, scaled to
    [0, 1].
    """
    grams, means, with_target, target_means = [], [], [], []
    for without in sets:
        blocks = moments.training(*without)
        sums = moments.within(blocks)
        grams.append(sums.gram)
        means.append(sums.means)
        scale = target_scales(moments, without, target)
        if target == "rank":
            with_target.append(sums.with_ranks / scale[:, None])
            target_means.append(sums.rank_means / scale + 0.5)
            continue
        low, high = moments.spans(blocks)
        constant = ~(high > low)
        scaled = sums.with_distances / scale[:, None]
        with_target.append(np.where(constant[:, None], 0.0, scaled))
        target_means.append(np.where(constant, 0.0, (sums.distance_means - low) / scale))
    return NormalEquations(
        np.stack(grams),
        np.stack(with_target, axis=1),
        np.stack(means),
        np.stack(target_means, axis=1),
    )


def target_scales(moments: PairMoments, without: Sequence[int], target: str) -> FloatArray:
    """(n_layers,) what the target is divided by on a training set, see `normal_equations`."""
    if target == "rank":
        return np.full(moments.n_layers, float(moments.n_pairs))
    low, high = moments.spans(moments.training(*without))
    return np.where(high > low, high - low, 1.0)


def penalty_matrices(columns: PairColumns, strengths: Sequence[float]) -> FloatArray:
    """The penalties of each strength: (n_strengths, n, n).

    α ||w||² where no feature is coded by value. A feature that is coded by value is shrunk towards
    the metric that does not distinguish its values: with u_f >= 0 the weight that the feature has
    there and Δ_ab the distance of two of its values, the penalty of strength β is

        β Σ_ab (w_ab - u_f Δ_ab²)² + β Σ_a s_a² + α Σ_f u_f²,

    α being `LEAST` here, for the other features too. The u_f follow the columns.
    """
    if not columns.by_value:
        return np.asarray(strengths)[:, None, None] * np.eye(len(columns))
    n_all = len(columns) + len(columns.by_value)
    shrunk, fixed = np.zeros((2, n_all, n_all))
    aim = len(columns)
    for feature, names in enumerate(columns.value_names):
        places = np.flatnonzero(columns.part == feature)
        if not names:
            fixed[places, places] = LEAST
            continue
        towards = columns.as_distance[places]
        shrunk[places, places] = 1.0
        shrunk[places, aim] = shrunk[aim, places] = -towards
        shrunk[aim, aim] = (towards**2).sum()
        fixed[aim, aim] = LEAST
        aim += 1
    return np.asarray(strengths)[:, None, None] * shrunk + fixed


def value_weights(
    columns: PairColumns,
    equations: NormalEquations,
    betas: Sequence[float],
    alphas: Sequence[float],
) -> FloatArray:
    """Weights for each β of `penalty_matrices` where features are coded by value, then for each α.

    With an α they are those of features coded as same or different, so that pairs which only other
    values distinguish are tied; a β, however large, would leave small differences.

    Returns (n_layers, n_sets, n_betas + n_alphas, n_columns).
    """
    weights = [ridge_weights(equations, penalty_matrices(columns, [beta])) for beta in betas]
    if len(alphas):
        # The columns as one distance a feature makes them, of the weights of the features.
        plain = np.zeros((len(columns), len(columns.parts)))
        plain[np.arange(len(columns)), columns.part] = columns.as_distance
        merged = NormalEquations(
            plain.T @ equations.gram @ plain,
            equations.moment @ plain,
            equations.x_mean @ plain,
            equations.y_mean,
        )
        penalties = np.asarray(alphas)[:, None, None] * np.eye(plain.shape[1])
        weights.append(ridge_weights(merged, penalties) @ plain.T)
    return np.concatenate(weights, axis=2)


def ridge_weights(equations: NormalEquations, penalties: FloatArray) -> FloatArray:
    """Non-negative ridge weights for each penalty.

    Minimises ||y - Xw - b||² + v' P v over v = (w, u) >= 0 and b, on the pairs of each training
    set; u are variables that only the penalty knows. With P = α I and no u that is the objective of
    scikit-learn's `Ridge(positive=True)`.

    `penalties` are (n_penalties, n, n) the matrices P, n at least n_columns; see
    `penalty_matrices`.

    Returns (n_layers, n_sets, n_penalties, n_columns).
    """
    n_columns, n = equations.gram.shape[-1], penalties.shape[-1]
    more = n - n_columns
    gram = np.pad(equations.gram, ((0, 0), (0, more), (0, more)))[:, None] + penalties
    moment = np.pad(equations.moment, ((0, 0), (0, 0), (0, more)))[:, :, None]
    return nonnegative_quadratic(gram, moment)[..., :n_columns]
