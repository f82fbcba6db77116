"""Feature importance (FI): how much the held-out score drops when a feature is permuted.

Where features correlate there are conditional and grouped permutation, and LOCO: permuting a
feature alone breaks its link with the others, so the model is scored on combinations that do not
occur, and two features that stand in for each other both look unimportant or both important. Three
other questions have answers in the same tables: conditional permutation importance, grouped
permutation importance, and leaving one covariate out (LOCO).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.labels import Names
from mlem_core.base.text import minus
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.base.work import each, if_large
from mlem_core.estimators.registry import (
    FoldFits,
    Solution,
    check_values,
    estimator_named,
    tested_fits,
)
from mlem_core.measures import importance_of_moments
from mlem_core.measures.decomposition import by_pattern
from mlem_core.measures.similarity import feature_correlations
from mlem_core.pairs.ranks import TIE, score_patterns
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.pairs.tables import HeldOut, PairTables, group_rows, sums_by

# A permuted score needs (patterns of the other features) x (values of the permuted one) cells;
# beyond this many the values are put into bins of equal count.
MAX_CELLS = 2**21
# What permuting changes is known to so many decimals: beyond them is how sums were rounded, which
# must not order features that change nothing.
DECIMALS = 12
# Up to so many values are merged with the patterns of the rest; more are sorted with them.
MERGED = 16


def permutation_importance(tables: PairTables | PairStatistics, weights: FloatArray) -> FloatArray:
    """Drop of the held-out ρ when a feature is permuted over the pairs inside each fold.

    A feature that is resolved by value is permuted as a whole, with all its terms; with
    interactions each term is permuted alone.

    Computed, not sampled: permuting feature f makes Δ_f independent of everything else, so the
    permuted predictions are those of every pattern of the other features with every value of Δ_f,
    as often as the product of the two distributions says. Equals the mean over permutations up to
    terms of order 1 / n_pairs.

    Parameters
    ----------
    tables : pair tables of n_layers layers
    weights : (n_layers, n_folds, n_columns), see `mlem_core.estimators.registry.FoldFits`

    Returns (n_layers, n_folds, n_parts), see `mlem_core.pairs.terms.Columns`.

    Source: Salle et al. 2024, section 4; Jalouzot et al. 2024, section 2.3.
    """
    if isinstance(tables, PairStatistics):
        return importance_of_moments.permutation_importance(tables.tests, weights).drop
    drops = np.zeros((*weights.shape[:2], len(tables.columns.parts)))

    def permute_in(fold: int) -> None:
        inside = tables.inside(fold)
        # A replicate may leave a fold without pairs.
        if not len(inside.counts):
            return
        # Permuting a feature without weight changes nothing.
        for layers, parts in inside.by_support(weights[:, fold, None]):
            pairs = inside.only(layers, parts)
            used = weights[layers, fold][:, inside.columns_of(parts)]
            whole = _rho(pairs.terms.predictions(used), pairs)
            for own, part in enumerate(parts):
                drops[layers, fold, part] = whole - _permuted_rho(own, pairs, used)

    each(permute_in, range(tables.n_folds), if_large(tables.within_sums.size))
    drops = drops.round(DECIMALS)
    # No zero with a sign.
    drops[drops == 0] = 0.0
    return drops


def _rho(
    predicted: FloatArray, pairs: HeldOut, counts: FloatArray | None = None, sums: Any = None
) -> FloatArray:
    """ρ (n_layers,) of predictions (n_layers, n) of pairs; or of others, with sums of ranks."""
    counts, sums = (pairs.counts, pairs.rank_sums) if counts is None else (counts, sums)
    return score_patterns(predicted[:, None], counts, sums, pairs.rank_squares).rho[:, 0]


def _permuted_rho(part: int, pairs: HeldOut, weights: FloatArray) -> FloatArray:
    """(n_layers,) ρ under the product of the marginals of a part and of the others."""
    from mlem_core.pairs.kernels.scores import product_moments

    n_layers, n_parts = len(weights), pairs.codes.shape[1]
    others = np.delete(np.arange(n_parts), part)
    rest = pairs.only(np.arange(n_layers), others)
    of_rest = rest.terms.predictions(weights[:, pairs.columns_of(others)])
    own, codes, counts = pairs.columns_of(np.array([part])), pairs.codes[:, part], pairs.counts
    terms, n_rest = pairs.terms.only(np.array([part])), len(rest.counts)

    def rho(layers: slice, added: FloatArray, share: FloatArray) -> FloatArray:
        some, sums, squares = of_rest[layers], rest.rank_sums[layers], rest.rank_squares[layers]
        if len(share) > MERGED:
            predicted = (some[:, :, None] + added[:, None, :]).reshape(len(some), 1, -1)
            every = (rest.counts[:, None] * share).ravel()
            shared = (sums[:, :, None] * share).reshape(len(some), -1)
            return score_patterns(predicted, every, shared, squares).rho[:, 0]
        moments = covariance, spread = np.empty((2, len(some)))
        order = np.argsort(some, axis=1)
        product_moments(some, order, added, rest.counts, sums, share, TIE, *moments)
        both = spread * squares
        return np.divide(covariance, np.sqrt(both), out=np.zeros_like(both), where=both > 0)

    found = np.empty(n_layers)

    def some(added: FloatArray, share: FloatArray) -> FloatArray:
        """`rho` of all layers, so few at once that their cells are at most `MAX_CELLS`."""
        step = max(1, MAX_CELLS // (n_rest * len(share)))
        for start in range(0, n_layers, step):
            layers = slice(start, start + step)
            found[layers] = rho(layers, added[layers], share)
        return found

    if len(own) == 1:
        values = terms.predictions(np.ones(1))
        levels, shares = feature_distribution(values, codes, counts[None], n_rest)
        return some(weights[:, own] * levels, shares[0])
    added = terms.predictions(weights[:, own])
    present, first = np.unique(codes, return_index=True)
    if len(present) * n_rest <= MAX_CELLS:
        share = np.bincount(codes, counts)[present] / counts.sum()
        return some(added[:, first], share)
    # Too many to combine: each layer orders the pairs of values, and puts them into bins, its way.
    for layer, values in enumerate(added):
        levels, shares = feature_distribution(values, codes, counts[None], n_rest)
        found[layer] = rho(slice(layer, layer + 1), levels[None], shares[0])[0]
    return found


def feature_distribution(
    values: FloatArray, codes: IntArray, counts: FloatArray, n_others: int
) -> tuple[FloatArray, FloatArray]:
    """The distinct values of what is permuted, and their shares of the pairs.

    With so many that `n_others` patterns of the rest times the values are more than `MAX_CELLS`,
    the means of bins with equal shares.

    Parameters
    ----------
    values, codes : (n_patterns,) what is permuted, and a number for each of its distinct values
    counts : (n_draws, n_patterns) pairs of each pattern; bins are those of their sum

    Returns (n_values,) and (n_draws, n_values).
    """
    limit = max(2, MAX_CELLS // n_others)
    size = codes.max() + 1
    distinct = np.zeros(size)
    distinct[codes] = values
    totals = np.stack([np.bincount(codes, draw, size) for draw in counts])
    sums = np.maximum(totals.sum(axis=1, keepdims=True), 1e-300)
    shares: FloatArray = totals / sums
    share: FloatArray = shares.mean(axis=0)
    present = share > 0
    distinct, shares, share = distinct[present], shares[:, present], share[present]
    if len(distinct) <= limit:
        return distinct, shares
    order = np.argsort(distinct, kind="stable")
    distinct, shares, share = distinct[order], shares[:, order], share[order] / share.sum()
    bins = np.minimum((np.cumsum(share) - share / 2) * limit, limit - 1).astype(np.int64)
    _, bins = np.unique(bins, return_inverse=True)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    mean = np.add.reduceat(share * distinct, starts) / np.add.reduceat(share, starts)
    return mean, np.add.reduceat(shares, starts, axis=1)


def mean_scores(
    tables: PairTables | PairStatistics, estimator: str = "ridge", held: Solution | None = None
) -> FloatArray:
    """(n_layers, 2 + n_parts) ρ, ceiling and importances of `fitted`, means over folds."""
    fits, importance = fitted(tables, estimator, held)
    columns = (fits.rho.mean(axis=1)[:, None], fits.ceiling.mean(axis=1)[:, None])
    return np.concatenate((*columns, importance.mean(axis=1)), axis=1)


def fitted(
    tables: PairTables | PairStatistics, estimator: str = "ridge", held: Solution | None = None
) -> tuple[FoldFits, FloatArray]:
    """The fits and importances of all layers: what a redraw of the profiles needs.

    Parameters
    ----------
    tables : `with_interactions` decides whether products of features are weighed too
    estimator : name, see `mlem_core.estimators.registry`
    held : as in `mlem_core.estimators.registry.Solver.refit`

    Raises InputError: an unknown estimator, one that fits ranks on tables without them, or one that
    cannot resolve features by value where these tables do.
    """
    check_values(estimator, tables.resolved, tables.interactions)
    model = estimator_named(estimator).model()
    if held is None:
        fits = model.cross_validate(tables)
    else:
        fits = tested_fits(tables, model.refit(tables, held))
    return fits, permutation_importance(tables, fits.weights)


def most_important(profiles: pd.DataFrame) -> str:
    """The feature with the highest mean importance, or another that is highest in most layers.

    `profiles` has importances, a row for each layer and a column for each feature.
    """
    first = profiles.idxmax(axis=1).value_counts()
    leads = first.index[first > len(profiles) / 2]
    return str(leads[0] if len(leads) else profiles.mean().idxmax())


# Feature distances that correlate at least so much are named in a warning.
CORRELATED = 0.3


def conditional_importance(tables: PairTables, weights: FloatArray) -> FloatArray:
    """Drop of the held-out ρ when a feature is permuted among pairs that agree on the others.

    Computed, not sampled: pairs with the same pattern of the other features keep their predictions
    and share out their ranks evenly. It is 0 for a feature that the others determine.

    `weights` are (n_layers, n_folds, n_columns), see `mlem_core.estimators.registry.FoldFits`.

    Returns (n_layers, n_folds, n_features).

    Source: Strobl et al. (2008), conditional variable importance.
    """
    n_layers, n_folds, _ = weights.shape
    drops = np.zeros((n_layers, n_folds, len(tables.features)))
    for fold in range(n_folds):
        pairs = tables.inside(fold)
        codes = tables.codes[tables.cell_pattern[tables.held_out(fold)]]
        predicted = pairs.terms.predictions(weights[:, fold])
        whole = _rho(predicted, pairs)
        for f in range(len(tables.features)):
            _, group = group_rows(np.delete(codes, f, axis=1))
            share = pairs.counts / np.bincount(group, pairs.counts)[group]
            shared = sums_by(group, pairs.rank_sums)[:, group] * share
            drops[:, fold, f] = whole - _rho(predicted, pairs, pairs.counts, shared)
    return drops


def grouped_importance(tables: PairTables, weights: FloatArray, group: Sequence[str]) -> FloatArray:
    """Grouped permutation importance: drop of the held-out ρ when features are permuted together.

    Their links with each other stay, those with the other features go.

    Returns (n_layers, n_folds).

    Raises InputError: no feature, an unknown one, or too many patterns for this.
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
        codes = tables.codes[tables.cell_pattern[tables.held_out(fold)]]
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
        every = (counts[:, None] * share).ravel()
        shared = (sums[:, :, None] * share).reshape(n_layers, -1)
        permuted = _rho(terms.predictions(weights[:, fold]), pairs, every, shared)
        drops[:, fold] = _rho(pairs.terms.predictions(weights[:, fold]), pairs) - permuted
    return drops


def loco_importance(
    tables: PairTables | PairStatistics, rho: FloatArray, estimator: str
) -> FloatArray:
    """LOCO importance: drop of the held-out ρ when the model is fitted anew without a feature.

    It may be below 0: a model with fewer weights may generalise better.

    Source: Lei et al. (2018), leave one covariate out.

    Parameters
    ----------
    rho : (n_layers, n_folds) of the models with all features
    estimator : name, see `mlem_core.estimators.registry`

    Returns (n_layers, n_folds, n_features).

    Raises InputError: an unknown estimator, or fewer than two features.
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

    `fits` are those of the estimator on these tables.

    Returns model, layer, feature, permuted, conditional, left_out. With interactions `permuted` is
    the feature permuted in all its terms.
    """
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
    rows = [(*layer, name) for layer in layers for name in tables.features]
    frame = pd.DataFrame(rows, columns=["model", "layer", "feature"])
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
    """Caveat on features that correlate, in words; empty where none do.

    `names` are how the words call features.
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
