"""Importance where features correlate: conditional and grouped permutation, and LOCO.

Permuting a feature alone breaks its link with the others, so the model is scored on combinations
that do not occur, and two features that stand in for each other both look unimportant or both
important. Three other questions have answers in the same tables: conditional permutation
importance, grouped permutation importance, and leaving one covariate out (LOCO).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.labels import Names
from mlem_core.base.text import minus
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.estimators.solver import FoldFits
from mlem_core.measures.decomposition import by_pattern
from mlem_core.measures.importance import MAX_CELLS, permutation_importance
from mlem_core.measures.similarity import feature_correlations
from mlem_core.pairs.ranks import score_patterns
from mlem_core.pairs.tables import PairTables, group_rows, sums_by

# Feature distances that correlate at least so much are named in a warning.
CORRELATED = 0.3


def conditional_importance(tables: PairTables, weights: FloatArray) -> FloatArray:
    """Drop of the held-out ρ when a feature is permuted among pairs that agree on the others.

    Computed, not sampled: pairs with the same pattern of the other features keep their predictions
    and share out their ranks evenly. It is 0 for a feature that the others determine.

    Parameters
    ----------
    weights : (n_layers, n_folds, n_columns), see `mlem_core.estimators.solver.FoldFits`

    Returns
    -------
    (n_layers, n_folds, n_features)

    Source: Strobl et al. (2008), conditional variable importance.
    """
    n_layers, n_folds, _ = weights.shape
    drops = np.zeros((n_layers, n_folds, len(tables.features)))
    for fold in range(n_folds):
        pairs = tables.inside(fold)
        codes = tables.codes[tables.cell_pattern[tables.held_out(fold)]]
        predicted = pairs.terms.predictions(weights[:, fold])[:, None]
        score = partial(score_patterns, predicted, pairs.counts, rank_squares=pairs.rank_squares)
        whole = score(pairs.rank_sums).rho[:, 0]
        for f in range(len(tables.features)):
            _, group = group_rows(np.delete(codes, f, axis=1))
            share = pairs.counts / np.bincount(group, pairs.counts)[group]
            shared = sums_by(group, pairs.rank_sums)[:, group] * share
            drops[:, fold, f] = whole - score(shared).rho[:, 0]
    return drops


def grouped_importance(tables: PairTables, weights: FloatArray, group: Sequence[str]) -> FloatArray:
    """Grouped permutation importance: drop of the held-out ρ when features are permuted together.

    Their links with each other stay, those with the other features go.

    Returns
    -------
    (n_layers, n_folds)

    Raises
    ------
    InputError
        No feature, an unknown one, or too many patterns for this.
    """
    for name in group:
        check_choice("feature", name, tables.features)
    if not group:
        raise InputError("no feature is named; a group needs at least one.")
    inside = np.array([name in set(group) for name in tables.features])
    n_layers, n_folds, _ = weights.shape
    drops = np.zeros((n_layers, n_folds))
    for fold in range(n_folds):
        pairs = tables.inside(fold)
        pattern = tables.cell_pattern[tables.held_out(fold)]
        codes = tables.codes[pattern]
        first, member = group_rows(codes[:, inside])
        rest, other = group_rows(codes[:, ~inside])
        if len(first) * len(rest) > MAX_CELLS:
            raise InputError(
                f"the group of {len(group)} features has {len(first):,} patterns and the others "
                f"{len(rest):,}, which is too many to combine; choose fewer features."
            )
        share = np.bincount(member, pairs.counts) / pairs.counts.sum()
        combined = np.empty((len(rest), len(first), len(tables.features)), dtype=np.int64)
        combined[:, :, inside] = codes[first][None][:, :, inside]
        combined[:, :, ~inside] = codes[rest][:, None][:, :, ~inside]
        terms = tables.terms_of(combined.reshape(-1, len(tables.features)))
        counts = np.bincount(other, pairs.counts)
        sums = sums_by(other, pairs.rank_sums)
        permuted = score_patterns(
            terms.predictions(weights[:, fold])[:, None],
            (counts[:, None] * share).ravel(),
            (sums[:, :, None] * share).reshape(n_layers, -1),
            pairs.rank_squares,
        )
        whole = score_patterns(
            pairs.terms.predictions(weights[:, fold])[:, None],
            pairs.counts,
            pairs.rank_sums,
            pairs.rank_squares,
        )
        drops[:, fold] = (whole.rho - permuted.rho)[:, 0]
    return drops


def loco_importance(tables: PairTables, rho: FloatArray, estimator: str) -> FloatArray:
    """LOCO importance: drop of the held-out ρ when the model is fitted anew without a feature.

    It may be below 0: a model with fewer weights may generalise better.

    Source: Lei et al. (2018), leave one covariate out.

    Parameters
    ----------
    rho : (n_layers, n_folds) of the models with all features
    estimator : name, see `mlem_core.estimators.registry`

    Returns
    -------
    (n_layers, n_folds, n_features)

    Raises
    ------
    InputError
        An unknown estimator, or fewer than two features.
    """
    fit = estimator_named(estimator).model().cross_validate
    if len(tables.features) < 2:
        raise InputError("there is one feature only; without it there is no model to fit.")
    without = [
        fit(tables.of_features([name for name in tables.features if name != one])).rho
        for one in tables.features
    ]
    return rho[..., None] - np.stack(without, axis=-1)


def importances(
    tables: PairTables, layers: Sequence[Layer], fits: FoldFits, estimator: str
) -> pd.DataFrame:
    """Each feature's importance by each of the three ways, means over folds.

    Parameters
    ----------
    fits : of the estimator on these tables

    Returns
    -------
    model, layer, feature, permuted, conditional, left_out. With interactions `permuted` is the
    feature permuted in all its terms.
    """
    n_features = len(tables.features)
    if tables.interactions:
        drops = [grouped_importance(tables, fits.weights, [name]) for name in tables.features]
        permuted = np.stack(drops, axis=-1)
    else:
        permuted = permutation_importance(tables, fits.weights)
    by_way = {
        "permuted": permuted,
        "conditional": conditional_importance(tables, fits.weights),
        "left_out": loco_importance(tables, fits.rho, estimator),
    }
    frame = pd.DataFrame(
        {
            "model": np.repeat([model for model, _ in layers], n_features),
            "layer": np.repeat([number for _, number in layers], n_features),
            "feature": np.tile(np.array(tables.features, dtype=object), len(layers)),
        }
    )
    return frame.assign(**{name: drop.mean(axis=1).ravel() for name, drop in by_way.items()})


def correlated_features(
    tables: PairTables, at_least: float = CORRELATED
) -> list[tuple[str, str, float]]:
    """Features whose distances correlate over the pairs: (one, other, Pearson r), strongest first.

    Source: Salle et al. 2024, figure S5.
    """
    r = feature_correlations(tables.patterns, by_pattern(tables)[0])
    correlated = [
        (tables.features[f], tables.features[g], float(r[f, g]))
        for f, g in itertools.combinations(range(len(tables.features)), 2)
        if abs(r[f, g]) >= at_least
    ]
    return sorted(correlated, key=lambda pair: -abs(pair[2]))


def warning(correlated: Sequence[tuple[str, str, float]], names: Names | None = None) -> str:
    """What to mind where features correlate, in words; empty where none do.

    Parameters
    ----------
    names : how the words call features
    """
    if not correlated:
        return ""
    call = (names or Names()).feature
    named = ", ".join(minus(f"{call(f)} and {call(g)} (r = {r:.2f})") for f, g, r in correlated)
    return (
        f"The distances of these features correlate over the pairs: {named}. The plain importance "
        "permutes one of them alone, which makes pairs that do not occur; look at the conditional "
        "importance, at the score without the feature, or permute them together."
    )
