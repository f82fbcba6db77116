"""Non-negative ridge regression from moments of pairs, its strength chosen by nested validation.

Every training set is the pairs inside a set of blocks, so that its normal equations are sums of
what `PairMoments` keeps. Only the scores that choose a strength look at pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.base.work import cores, each, one_thread_each
from mlem_core.estimators.normal_equations import LEAST, NOT_APART, Moments, ridge_weights
from mlem_core.pairs.moments import PairMoments
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.scored_pairs import ScoredPairs

# Salle et al. 2024, appendix B: "α ∈ 10^[-4, 4]".
ALPHAS: tuple[float, ...] = tuple(10.0**e for e in range(-4, 5))
# From features coded by value freely to features coded as same or different.
BETAS: tuple[float, ...] = (1.0, 10.0, 100.0, 1e3, 1e4)


@dataclass(frozen=True)
class RidgeFit:
    """Metrics of n_layers layers, one for each of n_sets training sets.

    Attributes
    ----------
    coef : (n_layers, n_sets, n_columns)
    intercept : (n_layers, n_sets)
    alpha : (n_layers, n_sets) the strength that was chosen
    choice : (n_layers, n_sets) its number among those to choose from
    inner_rho : (n_layers, n_sets) mean ρ over the inner folds with that strength; NaN where there
        was nothing to choose
    """

    coef: FloatArray
    intercept: FloatArray
    alpha: FloatArray
    choice: IntArray
    inner_rho: FloatArray


def normal_equations(
    moments: PairMoments, sets: Sequence[Sequence[int]], target: str = "distance"
) -> Moments:
    """Normal equations of every layer on training sets, by the folds that each leaves out.

    The target "distance" is the squared neural distance, min-max scaled to [0, 1] over the pairs of
    the training set (Salle et al. 2024, appendix B); a layer whose distances there are all equal
    has the target 0. The target "rank" is the rank of the distance among all pairs, scaled to
    [0, 1].
    """
    grams, means, with_target, target_means = [], [], [], []
    for without in sets:
        blocks = moments.training(*without)
        own = moments.within(blocks)
        grams.append(own.gram)
        means.append(own.means)
        scale = target_scales(moments, without, target)
        if target == "rank":
            with_target.append(own.with_ranks / scale[:, None])
            target_means.append(own.rank_means / scale + 0.5)
            continue
        low, high = moments.spans(blocks)
        constant = ~(high > low)
        scaled = own.with_distances / scale[:, None]
        with_target.append(np.where(constant[:, None], 0.0, scaled))
        target_means.append(np.where(constant, 0.0, (own.distance_means - low) / scale))
    return Moments(
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
        own = np.flatnonzero(columns.part == feature)
        if not names:
            fixed[own, own] = LEAST
            continue
        towards = columns.as_distance[own]
        shrunk[own, own] = 1.0
        shrunk[own, aim] = shrunk[aim, own] = -towards
        shrunk[aim, aim] = (towards**2).sum()
        fixed[aim, aim] = LEAST
        aim += 1
    return np.asarray(strengths)[:, None, None] * shrunk + fixed


def value_weights(
    columns: PairColumns,
    equations: Moments,
    betas: Sequence[float],
    alphas: Sequence[float],
) -> FloatArray:
    """Weights where features are coded by value: for each β of `penalty_matrices`, then each α.

    With an α they are those of features coded as same or different, so that pairs which only other
    values distinguish are tied; a β, however large, would leave small differences.

    Returns (n_layers, n_sets, n_betas + n_alphas, n_columns).
    """
    found = [ridge_weights(equations, penalty_matrices(columns, [beta])) for beta in betas]
    if len(alphas):
        # The columns as one distance a feature makes them, of the weights of the features.
        plain = np.zeros((len(columns), len(columns.features)))
        plain[np.arange(len(columns)), columns.part] = columns.as_distance
        merged = Moments(
            plain.T @ equations.gram @ plain,
            equations.moment @ plain,
            equations.x_mean @ plain,
            equations.y_mean,
        )
        penalties = np.asarray(alphas)[:, None, None] * np.eye(plain.shape[1])
        found.append(ridge_weights(merged, penalties) @ plain.T)
    return np.concatenate(found, axis=2)


def fit_ridge(
    moments: PairMoments,
    tests: ScoredPairs,
    left_out: Sequence[int | None],
    *,
    target: str = "distance",
    alphas: Sequence[float] = ALPHAS,
    betas: Sequence[float] = BETAS,
) -> RidgeFit:
    """Ridge of every layer on several training sets, each with its own strength.

    For a training set, the strength is the one with the highest mean ρ when each other fold in turn
    is left out too; of those that score the same the smallest is taken. Where features are coded by
    value the strengths are `betas` and, beside several of them (or none), `alphas` with the
    features coded as same or different.

    Parameters
    ----------
    moments : of n_layers layers
    tests : the pairs that test each fold
    left_out : for each training set the fold whose stimuli are in none of its pairs; None for all
        pairs
    target : "distance" or "rank", see `normal_equations`

    Raises
    ------
    InputError
        Fewer than three folds for nested cross-validation.

    Source: Salle et al. 2024, appendix B.
    """
    columns, n_folds = moments.columns, moments.n_folds
    strengths = tuple(alphas)
    if columns.by_value:
        plain = [NOT_APART] * (len(alphas) if len(betas) != 1 else 0)
        strengths = (*betas, *plain)
    several = len(strengths) > 1
    if several and n_folds < 3 and any(fold is not None for fold in left_out):
        raise InputError(
            f"found {n_folds} folds; nested cross-validation needs at least 3, since one is left "
            "out to test and one to choose α."
        )
    outer = [() if fold is None else (fold,) for fold in left_out]
    inner = [
        tuple(sorted({*own, j})) for own in outer for j in range(n_folds * several) if j not in own
    ]
    sets = list(dict.fromkeys([*inner, *outer]))
    equations = normal_equations(moments, sets, target)
    if columns.by_value:
        shared = alphas if len(betas) != 1 else ()
        fitted = value_weights(columns, equations, betas, shared)
    else:
        fitted = ridge_weights(equations, penalty_matrices(columns, strengths))
    at = [sets.index(own) for own in outer]
    best = np.zeros((moments.n_layers, len(outer)), dtype=np.int64)
    inner_rho = np.full(best.shape, np.nan)
    if several:

        def inner_weights(own: int, fold: int) -> FloatArray:
            return fitted[:, sets.index(tuple(sorted({*outer[own], fold})))]

        scores = _inner_scores(tests, outer, inner_weights)
        best = first_best(scores)
        inner_rho = np.take_along_axis(scores, best[..., None], axis=-1)[..., 0]
    coef = np.take_along_axis(fitted[:, at], best[:, :, None, None], axis=2)[:, :, 0]
    predicted = np.einsum("sc,lsc->ls", equations.x_mean[at], coef)
    intercept = equations.y_mean[:, at] - predicted
    return RidgeFit(coef, intercept, np.asarray(strengths)[best], best, inner_rho)


def _inner_scores(
    tests: ScoredPairs,
    outer: Sequence[tuple[int, ...]],
    weights: Callable[[int, int], FloatArray],
) -> FloatArray:
    """(n_layers, n_sets, n_strengths) mean ρ over the folds that a training set does not leave out.

    `weights` gives those (n_layers, n_strengths, n_columns) of a training set without a fold.
    """

    def tested_by(fold: int) -> tuple[list[int], FloatArray]:
        # Every model that saw nothing of the fold, at once; some are fitted to the same pairs.
        others = [number for number, out in enumerate(outer) if fold not in out]
        if not others:
            return others, np.zeros(0)
        stacked = np.stack([weights(number, fold) for number in others], axis=1)
        n_layers, n_others, n_strengths, n_columns = stacked.shape
        rho = tests.folds[fold].scores(stacked.reshape(n_layers, -1, n_columns)).rho
        return others, rho.reshape(n_layers, n_others, n_strengths)

    # Threads of matrix products would wait for each other longer than these take.
    with one_thread_each():
        of_folds = each(tested_by, range(len(tests.folds)), cores())
    example = next(rho for others, rho in of_folds if others)
    sums = np.zeros((len(example), len(outer), example.shape[-1]))
    n_tested = np.zeros(len(outer))
    for others, rho in of_folds:
        if others:
            sums[:, others] += rho
            n_tested[others] += 1
    return np.asarray(sums / n_tested[:, None])


def first_best(scores: FloatArray) -> IntArray:
    """The first of the highest scores (..., n), up to rounding."""
    return np.argmax(scores >= scores.max(axis=-1, keepdims=True) - 1e-12, axis=-1)
