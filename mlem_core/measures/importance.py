"""Feature importance (FI): how much the held-out score drops when a feature is permuted."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.base.parallel import each, if_large
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.registry import check_values, estimator_named
from mlem_core.estimators.solver import FoldFits, Solution, tested_fits
from mlem_core.pairs.ranks import TIE, score_patterns
from mlem_core.pairs.tables import HeldOut, PairTables

# A permuted score needs (patterns of the other features) x (values of the permuted one) cells;
# beyond this many the values are put into bins of equal count.
MAX_CELLS = 2**21
# What permuting changes is known to so many decimals: beyond them is how sums were rounded, which
# must not order features that change nothing.
DECIMALS = 12
# Up to so many values are merged with the patterns of the rest; more are sorted with them.
MERGED = 16


def permutation_importance(tables: PairTables, weights: FloatArray) -> FloatArray:
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
    weights : (n_layers, n_folds, n_columns), see `mlem_core.estimators.solver.FoldFits`

    Returns
    -------
    (n_layers, n_folds, n_parts), see `mlem_core.pairs.terms.Columns`

    Source: Salle et al. 2024, section 4; Jalouzot et al. 2024, section 2.3.
    """
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
            predicted = pairs.terms.predictions(used)[:, None]
            whole = score_patterns(
                predicted, pairs.counts, pairs.rank_sums, pairs.rank_squares
            ).rho[:, 0]
            for own, part in enumerate(parts):
                drops[layers, fold, part] = whole - _permuted_rho(own, pairs, used)

    each(permute_in, range(tables.n_folds), if_large(tables.within_sums.size))
    drops = drops.round(DECIMALS)
    # No zero with a sign.
    drops[drops == 0] = 0.0
    return drops


def _permuted_rho(part: int, pairs: HeldOut, weights: FloatArray) -> FloatArray:
    """(n_layers,) ρ under the product of the marginals of a part and of the others."""
    n_layers, n_parts = len(weights), pairs.codes.shape[1]
    others = np.delete(np.arange(n_parts), part)
    rest = pairs.only(np.arange(n_layers), others)
    of_rest = rest.terms.predictions(weights[:, pairs.columns_of(others)])
    own, codes, counts = pairs.columns_of(np.array([part])), pairs.codes[:, part], pairs.counts
    terms, n_rest = pairs.terms.only(np.array([part])), len(rest.counts)

    def rho(layers: slice, added: FloatArray, share: FloatArray) -> FloatArray:
        if len(share) <= MERGED:
            return _merged_rho(of_rest[layers], added, share, rest, layers)
        predicted = of_rest[layers, :, None] + added[:, None, :]
        return score_patterns(
            predicted.reshape(len(predicted), 1, -1),
            (rest.counts[:, None] * share).ravel(),
            (rest.rank_sums[layers, :, None] * share).reshape(len(predicted), -1),
            rest.rank_squares[layers],
        ).rho[:, 0]

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


def _merged_rho(
    of_rest: FloatArray, added: FloatArray, share: FloatArray, rest: HeldOut, layers: slice
) -> FloatArray:
    """(n_layers,) ρ of the sums of predictions of the rest and of the few levels of a part."""
    from mlem_core.pairs.kernels.scores import product_moments

    covariance, spread = np.empty((2, len(of_rest)))
    product_moments(
        of_rest,
        np.argsort(of_rest, axis=1),
        added,
        rest.counts,
        rest.rank_sums[layers],
        share,
        TIE,
        covariance,
        spread,
    )
    both = spread * rest.rank_squares[layers]
    return np.divide(covariance, np.sqrt(both), out=np.zeros_like(both), where=both > 0)


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

    Returns
    -------
    (n_values,) and (n_draws, n_values)
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
    tables: PairTables, estimator: str = "ridge", held: Solution | None = None
) -> FloatArray:
    """(n_layers, 2 + n_parts) ρ, ceiling and importances of `fitted`, means over folds."""
    fits, importance = fitted(tables, estimator, held)
    columns = (fits.rho.mean(axis=1)[:, None], fits.ceiling.mean(axis=1)[:, None])
    return np.concatenate((*columns, importance.mean(axis=1)), axis=1)


def fitted(
    tables: PairTables, estimator: str = "ridge", held: Solution | None = None
) -> tuple[FoldFits, FloatArray]:
    """The fits and importances of all layers: what a redraw of the profiles needs.

    Parameters
    ----------
    tables : `with_interactions` decides whether products of features are weighed too
    estimator : name, see `mlem_core.estimators.registry`
    held : as in `mlem_core.estimators.solver.Solver.refit`

    Raises
    ------
    InputError
        An unknown estimator, one that fits ranks on tables without them, or one that cannot
        resolve features by value where these tables do.
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

    Parameters
    ----------
    profiles : importance, a row for each layer and a column for each feature
    """
    first = profiles.idxmax(axis=1).value_counts()
    leads = first.index[first > len(profiles) / 2]
    return str(leads[0] if len(leads) else profiles.mean().idxmax())
