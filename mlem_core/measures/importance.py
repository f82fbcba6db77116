"""Feature importance (FI): how much the held-out score drops when a feature is permuted.

Where the pairs of a fold are grouped (`mlem_core.pairs.scored_pairs`) the drop is computed and not
drawn: permuting a feature makes its columns independent of everything else, so that the permuted
predictions are those of every row of the other columns with every row of the feature's, as often as
the product of the two distributions says. Elsewhere the feature is permuted over the stimuli of the
fold, with seeds that are common to all layers.

Where features correlate, permuting one of them alone breaks its link with the others, so that the
model is scored on combinations that do not occur, and two features that stand in for each other
both look important. Beside it stands the drop when the model is fitted anew without the feature
(leave one covariate out, LOCO).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names
from mlem_core.base.parallel import cores, each, one_thread_each
from mlem_core.base.text import minus
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.estimators.registry import FoldFits, check_values, estimator_named
from mlem_core.estimators.ridge_solver import ALPHAS, BETAS
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.measures.similarity import correlations_of_predictions
from mlem_core.pairs.ranks import few_at_once, score_patterns
from mlem_core.pairs.scored_pairs import (
    FoldPairs,
    ScoredPairs,
    feature_ceilings,
    group_rows,
    group_sums_of_columns,
)
from mlem_core.pairs.statistics import PairStatistics

# Permutations of the stimuli where the drop is drawn.
PERMUTATIONS = 10
# So many predictions of pairs are held while they are drawn.
MOST_PREDICTIONS = 2**21
# What permuting changes is known to so many decimals: beyond them is how sums were rounded, which
# must not order features that change nothing.
DECIMALS = 12


class Importance(NamedTuple):
    """Importances of n_parts parts (features; with interactions columns) in n_layers layers.

    Attributes
    ----------
    drop : (n_layers, n_folds, n_parts) drop of the held-out ρ
    error : (n_layers, n_folds, n_parts) its standard error from drawing permutations; 0 where it is
        computed
    """

    drop: FloatArray
    error: FloatArray


def permutation_importance(
    tests: ScoredPairs,
    weights: FloatArray,
    *,
    permutations: int = PERMUTATIONS,
    parts: Sequence[int] | None = None,
) -> Importance:
    """Drop of the held-out ρ of each fold when a part of the columns is permuted.

    Parameters
    ----------
    tests : the pairs that test each fold, with the ranks of n_layers layers
    weights : (n_layers, n_folds, n_columns) of the metric that each fold tests
    permutations : how often a part is permuted where the drop is drawn
    parts : numbers of those that are permuted, the others being 0; None is all

    Source: Salle et al. 2024, section 4; Jalouzot et al. 2024, section 2.3.
    """
    drop, error = np.zeros((2, *weights.shape[:2], len(tests.columns.parts)))

    def permute_fold(fold: int) -> None:
        pairs, of_fold = tests.folds[fold], weights[:, fold]
        predictions = pairs.predictions(of_fold)
        if pairs.is_grouped:
            rho = pairs.score(predictions[:, None]).rho[:, 0]
        else:
            # Drawn as those of permutations are, so that what changes nothing drops by 0.
            rho = pairs.drawn_scores(predictions[:, None])[:, 0]
        for part in range(drop.shape[2]) if parts is None else parts:
            used = (of_fold[:, tests.columns.part == part] != 0).any(axis=1)
            # Permuting what has no weight changes nothing.
            layers = np.flatnonzero(used)
            if not len(layers) or not len(pairs.counts):
                continue
            selected = pairs.select_layers(layers.tolist())
            if pairs.codes is not None:
                permuted = _computed_rho(selected, of_fold[layers], part)
            else:
                # The same permutations for all layers.
                rng = np.random.default_rng([0, fold, part])
                drawn = _drawn_rho(selected, of_fold[layers], part, permutations, rng)
                permuted = drawn.mean(axis=0)
                error[layers, fold, part] = drawn.std(axis=0, ddof=1) / np.sqrt(permutations)
            drop[layers, fold, part] = rho[layers] - permuted

    # Threads of matrix products would wait for each other longer than these take.
    with one_thread_each():
        each(permute_fold, range(len(tests.folds)), cores())
    drop = drop.round(DECIMALS)
    drop[drop == 0] = 0.0  # no zero with a sign
    return Importance(drop, error)


def _computed_rho(pairs: FoldPairs, weights: FloatArray, part: int) -> FloatArray:
    """(n_layers,) ρ under the product of the distributions of a part and of the others."""
    assert pairs.codes is not None
    part_groups, own_number = group_rows(pairs.codes[:, [part]])
    rest, rest_number = group_rows(np.delete(pairs.codes, part, axis=1))
    columns = pairs.columns.part == part
    share = np.bincount(own_number, pairs.counts) / pairs.counts.sum()
    counts = np.bincount(rest_number, pairs.counts)
    sums = group_sums_of_columns(rest_number, pairs.rank_sums)
    added = pairs.select_groups(part_groups).predictions(np.where(columns, weights, 0.0))
    others = pairs.select_groups(rest).predictions(np.where(columns, 0.0, weights))
    rho = np.empty(len(weights))
    every = np.outer(counts, share).ravel()
    for layers in few_at_once(len(weights), len(every)):
        predicted = others[layers][:, :, None] + added[layers][:, None]
        shared = sums[layers][:, :, None] * share
        score = score_patterns(
            predicted.reshape(-1, 1, len(every)),
            every,
            shared.reshape(-1, len(every)),
            pairs.rank_squares[layers],
        )
        rho[layers] = score.rho[:, 0]
    return rho


def _drawn_rho(
    pairs: FoldPairs, weights: FloatArray, part: int, permutations: int, rng: np.random.Generator
) -> FloatArray:
    """(n_permutations, n_layers) ρ with a part permuted over the stimuli of the fold."""
    n = len(pairs.stimuli)
    orders = np.stack([rng.permutation(n) for _ in range(permutations)])
    of_part = np.where(pairs.columns.part == part, weights, 0.0)
    rho = np.empty((permutations, len(weights)))
    step = max(1, MOST_PREDICTIONS // max(1, len(pairs.first)))
    for start in range(0, len(weights), step):
        layers = slice(start, start + step)
        selected = pairs.select_layers(range(len(weights))[layers])
        others = selected.predictions(weights[layers] - of_part[layers])
        for number, order in enumerate(orders):
            stimuli = pairs.stimuli[order]
            first, second = stimuli[pairs.first], stimuli[pairs.second]
            permuted = pairs.columns.predictions(of_part[layers], first, second)
            permuted += others
            rho[number, layers] = selected.drawn_scores(permuted[:, None])[:, 0]
    return rho


class Fits(NamedTuple):
    """Metrics of n_layers layers, one a fold, and what permuting a feature does to their scores.

    Attributes
    ----------
    fits : metrics and scores
    importance : (n_layers, n_folds, n_parts) drops of the held-out ρ
    """

    fits: FoldFits
    importance: FloatArray

    @classmethod
    def unknown(cls, pairs: PairStatistics) -> Fits:
        """Fits that nothing is known of but their ceilings."""
        layers_and_folds = pairs.moments.n_layers, pairs.n_folds
        scores = np.full(layers_and_folds, np.nan)
        weights = np.full((*layers_and_folds, len(pairs.columns)), np.nan)
        importance = np.full((*layers_and_folds, len(pairs.columns.parts)), np.nan)
        ceiling = feature_ceilings(pairs.tests)
        return cls(FoldFits(weights, scores, scores, scores, ceiling), importance)

    @property
    def mean_scores(self) -> FloatArray:
        """(n_layers, 1 + n_parts) held-out ρ and importances, means over folds."""
        return np.column_stack((self.fits.rho.mean(axis=1), self.importance.mean(axis=1)))

    def with_scores_of(self, other: Fits, folds: Sequence[int]) -> Fits:
        """These metrics with the scores and importances of others in some folds."""
        scores = {name: getattr(self.fits, name).copy() for name in ("rho", "rho_a", "ceiling")}
        for name, values in scores.items():
            values[:, folds] = getattr(other.fits, name)[:, folds]
        importance = self.importance.copy()
        importance[:, folds] = other.importance[:, folds]
        return Fits(replace(self.fits, **scores), importance)

    def select_layers(self, layers: Sequence[int]) -> Fits:
        """Those of some layers alone, by position."""
        at = list(layers)
        names = [part.name for part in fields(FoldFits)]
        selected = {name: getattr(self.fits, name)[at] for name in names}
        return Fits(FoldFits(**selected), self.importance[at])


def fitted(
    pairs: PairStatistics, estimator: str = "ridge", training_pairs: TrainingPairs | None = None
) -> Fits:
    """The fits and importances of all layers: what a redraw of the profiles needs.

    Parameters
    ----------
    pairs : statistics of n_layers layers
    estimator : name, see `mlem_core.estimators.registry`
    training_pairs : as in `mlem_core.estimators.registry.Solver.solve`

    Raises InputError: an unknown estimator, or one that cannot resolve features by value where
    these pairs do.
    """
    check_values(estimator, pairs.resolved, pairs.interactions)
    fits = estimator_named(estimator).model().cross_validate(pairs, training_pairs)
    return Fits(fits, permutation_importance(pairs.tests, fits.weights).drop)


def ranked_numbers(pairs: PairStatistics) -> int:
    """About how many numbers are ranked where ridge is fitted and its features are permuted.

    They take some 15 ns of processor time each.
    """
    strengths = len(ALPHAS) + len(BETAS) * bool(pairs.resolved)
    each = strengths * (pairs.n_folds - 1) + PERMUTATIONS * len(pairs.columns.parts)
    return each * pairs.moments.n_layers * sum(len(fold.counts) for fold in pairs.tests.folds)


def most_important(profiles: pd.DataFrame) -> str:
    """The feature with the highest mean importance, or another that is highest in most layers.

    `profiles` has importances, a row for each layer and a column for each feature.
    """
    first = profiles.idxmax(axis=1).value_counts()
    leads = first.index[first > len(profiles) / 2]
    return str(leads[0] if len(leads) else profiles.mean().idxmax())


# Feature distances that correlate at least so much are named in a warning.
CORRELATED = 0.3


def loco_importance(
    pairs: PairStatistics, rho: FloatArray, estimator: str, features: Sequence[str] | None = None
) -> FloatArray:
    """LOCO importance: drop of the held-out ρ when the model is fitted anew without a feature.

    It may be below 0: a model with fewer weights may generalise better.

    Parameters
    ----------
    rho : (n_layers, n_folds) of the models with all features
    estimator : name, see `mlem_core.estimators.registry`
    features : which are left out in turn; None is all

    Returns (n_layers, n_folds, n_features).

    Raises InputError: an unknown estimator, or fewer than two features.

    Source: Lei et al. (2018), leave one covariate out.
    """
    cross_validate = estimator_named(estimator).model().cross_validate
    if len(pairs.features) < 2:
        raise InputError("there is one feature only; without it there is no model to fit.")
    rho_without = []
    for left_out in pairs.features if features is None else features:
        others = [name for name in pairs.features if name != left_out]
        rho_without.append(cross_validate(pairs.select_features(others)).rho)
    return rho[..., None] - np.stack(rho_without, axis=-1)


def leading_features(
    pairs: PairStatistics, profiles: pd.DataFrame, rho: FloatArray, estimator: str
) -> tuple[str, ...]:
    """The feature that matters most, or the two that it is one of.

    Where features correlate, several sets of weights predict equally well, and importances depend
    on which was found. So the first feature is held against the second one by the drop of ρ when
    the model is fitted without it, too: where these two drops are in the other order, both are
    named. An estimator that is slow is not fitted again.

    Parameters
    ----------
    pairs : statistics of n_layers layers
    profiles : importances, a row for each layer and a column for each feature
    rho : (n_layers, n_folds) of the models with all features
    """
    first = most_important(profiles)
    others = profiles.drop(columns=first).mean()
    if others.empty or estimator_named(estimator).slow:
        return (first,)
    second = str(others.idxmax())
    if not {first, second} <= {*pairs.features}:
        return (first,)
    drops = loco_importance(pairs, rho, estimator, (first, second)).mean(axis=(0, 1))
    return (first,) if drops[0] >= drops[1] else (first, second)


def importances(
    pairs: PairStatistics, layers: Sequence[Layer], fits: FoldFits, estimator: str
) -> pd.DataFrame:
    """Each feature's importance, permuted and left out, means over folds.

    `fits` are those of the estimator on these pairs.

    Returns model, layer, feature, permuted, permutation_error (its standard error where
    permutations were drawn; 0 where it is computed), left_out. With interactions `permuted` is the
    sum over the columns that the feature has a part in.
    """
    drop, error = permutation_importance(pairs.tests, fits.weights)
    if pairs.interactions:
        columns, features = pairs.columns, np.arange(len(pairs.features))
        part_of = (columns.first_feature == features[:, None]) | (
            columns.second_feature == features[:, None]
        )
        drop = drop @ part_of.T.astype(np.float64)
        error = np.sqrt(error**2 @ part_of.T.astype(np.float64))
    left_out = loco_importance(pairs, fits.rho, estimator)
    rows = [(*layer, name) for layer in layers for name in pairs.features]
    frame = pd.DataFrame(rows, columns=["model", "layer", "feature"])
    return frame.assign(
        permuted=drop.mean(axis=1).ravel(),
        # Each fold draws its own permutations.
        permutation_error=np.sqrt((error**2).sum(axis=1)).ravel() / pairs.n_folds,
        left_out=left_out.mean(axis=1).ravel(),
    )


def correlation_warning(
    pairs: PairStatistics, weights: FloatArray, names: Names | None = None
) -> str:
    """Caveat on features whose parts of the prediction correlate, in words; empty where none do.

    Parameters
    ----------
    weights : (n_layers, n_folds, n_columns), see `mlem_core.estimators.registry.FoldFits`
    names : how the words call features
    """
    r, call = correlations_of_predictions(pairs.moments, weights), (names or Names()).feature
    correlated = [
        (float(r[f, g]), pairs.features[f], pairs.features[g])
        for f, g in itertools.combinations(range(len(pairs.features)), 2)
        if abs(r[f, g]) >= CORRELATED
    ]
    if not correlated:
        return ""
    correlated.sort(key=lambda pair: -abs(pair[0]))
    named = ", ".join(minus(f"{call(f)} and {call(g)} (r = {r:.2f})") for r, f, g in correlated)
    return (
        f"What these features predict correlates over the pairs: {named}. Importance permutes one "
        "of them alone, which makes pairs that do not occur; read it beside the drop in ρ when the "
        "feature is left out and the model fitted again."
    )
