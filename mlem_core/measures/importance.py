"""Feature importance (FI): how much the held-out score drops when a feature is permuted."""

from __future__ import annotations

import numpy as np

from mlem_core.base.parallel import side_by_side
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.base import FoldFits
from mlem_core.estimators.registry import estimator_named
from mlem_core.pairs.ranks import score_patterns
from mlem_core.pairs.tables import HeldOut, PairTables

# A permuted score needs (patterns of the other features) x (values of the permuted one) cells;
# beyond this many the values are put into bins of equal count.
MAX_CELLS = 2**21
SMALL = 2**16


def permutation_importance(tables: PairTables, weights: FloatArray) -> FloatArray:
    """Drop of the held-out ρ when a feature is permuted over the pairs inside each fold.

    Computed, not sampled: permuting feature f makes Δ_f independent of everything else, so the
    permuted predictions are those of every pattern of the other features with every value of Δ_f,
    as often as the product of the two distributions says. Equals the mean over permutations up to
    terms of order 1 / n_pairs.

    Parameters
    ----------
    tables : pair tables of n_layers layers
    weights : (n_layers, n_folds, n_features), see `mlem_core.estimators.base.FoldFits`

    Returns
    -------
    (n_layers, n_folds, n_features)

    Source: Salle et al. 2024, section 4; Jalouzot et al. 2024, section 2.3.
    """
    drops = np.zeros_like(weights)

    def permute_in(fold: int) -> None:
        inside = tables.inside(fold)
        # A replicate may leave a fold without pairs.
        if not len(inside.counts):
            return
        # Permuting a feature without weight changes nothing.
        for layers, features in inside.by_support(weights[:, fold, None]):
            pairs, used = inside.only(layers, features), weights[layers, fold][:, None, features]
            whole = score_patterns(
                used @ pairs.x.T, pairs.counts, pairs.rank_sums, pairs.rank_squares
            ).rho[:, 0]
            for f, feature in enumerate(features):
                drops[layers, fold, feature] = whole - _permuted_rho(f, pairs, used[:, 0])

    if len(tables.counts) > SMALL:
        side_by_side(permute_in, range(tables.n_folds))
    else:
        # Many short calls: threads would only wait for one another.
        for fold in range(tables.n_folds):
            permute_in(fold)
    return drops


def _permuted_rho(f: int, pairs: HeldOut, weights: FloatArray) -> FloatArray:
    """(n_layers,) ρ under the product of the marginals of feature f and of the other features."""
    others = np.delete(np.arange(weights.shape[1]), f)
    rest = pairs.only(np.arange(len(weights)), others)
    values, shares = feature_distribution(
        pairs.x[:, f], pairs.codes[:, f], pairs.counts[None], len(rest.x)
    )
    share = shares[0]
    predicted = (weights[:, others] @ rest.x.T)[:, :, None] + weights[:, f, None, None] * values
    n_layers = len(weights)
    return score_patterns(
        predicted.reshape(n_layers, 1, -1),
        (rest.counts[:, None] * share).ravel(),
        (rest.rank_sums[:, :, None] * share).reshape(n_layers, -1),
        rest.rank_squares,
    ).rho[:, 0]


def feature_distribution(
    values: FloatArray, codes: IntArray, counts: FloatArray, n_others: int
) -> tuple[FloatArray, FloatArray]:
    """The distinct values of a permuted column, and their shares of the pairs.

    With so many that `n_others` patterns of the other columns times the values are more than
    `MAX_CELLS`, the means of bins with equal shares.

    Parameters
    ----------
    values, codes : (n_patterns,) the column, and a number for each of its distinct values
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
    share = share / share.sum()
    bins = np.minimum((np.cumsum(share) - share / 2) * limit, limit - 1).astype(np.int64)
    _, bins = np.unique(bins, return_inverse=True)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    mean = np.add.reduceat(share * distinct, starts) / np.add.reduceat(share, starts)
    return mean, np.add.reduceat(shares, starts, axis=1)


def fitted(tables: PairTables, estimator: str = "ridge") -> tuple[FoldFits, FloatArray]:
    """The fits and importances of all layers: what a redraw of the profiles needs.

    Parameters
    ----------
    tables : `with_interactions` decides whether products of features are weighed too
    estimator : name, see `mlem_core.estimators.registry`

    Raises
    ------
    InputError
        An unknown estimator, or one that fits ranks on tables without them.
    """
    fits = estimator_named(estimator).model().cross_validate(tables)
    return fits, permutation_importance(tables, fits.weights)
