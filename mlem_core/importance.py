"""Feature importance (FI): how much the held-out score drops when a feature is permuted."""

from __future__ import annotations

import numpy as np

from mlem_core.pairs import PairTables
from mlem_core.patterns import FloatArray, IntArray, group_rows
from mlem_core.ranks import score_patterns

# A permuted score needs (patterns of the other features) x (values of the permuted one) cells;
# beyond this many the values are put into bins of equal count.
MAX_CELLS = 2**21


def permutation_importance(tables: PairTables, weights: FloatArray) -> FloatArray:
    """Drop of the held-out ρ when a feature is permuted over the pairs inside each fold.

    Computed, not sampled: permuting feature f makes Δ_f independent of everything else, so the
    permuted predictions are those of every pattern of the other features with every value of Δ_f,
    as often as the product of the two distributions says. Equals the mean over permutations up to
    terms of order 1 / n_pairs.

    Parameters
    ----------
    tables : pair tables of n_layers layers
    weights : (n_layers, n_folds, n_features), see `mlem_core.metric.FoldFits`

    Returns
    -------
    (n_layers, n_folds, n_features)

    Source: Salle et al. 2024, section 4; Jalouzot et al. 2024, section 2.3.
    """
    squared = tables.patterns**2
    drops = np.zeros_like(weights)
    for fold in range(tables.n_folds):
        at = tables.held_out(fold)
        pattern, counts = tables.cell_pattern[at], tables.counts[at]
        if not len(counts):
            continue
        x, codes = squared[pattern], tables.codes[pattern]
        sums, squares = tables.within_sums[:, at], tables.within_squares[:, fold]
        w = weights[:, fold]
        base = score_patterns((w @ x.T)[:, None], counts, sums, squares).rho[:, 0]
        for f in range(len(tables.features)):
            # A feature without weight does not enter the prediction: permuting it changes nothing.
            used = np.flatnonzero(w[:, f] > 0)
            if len(used):
                permuted = _permuted_rho(f, x, codes, counts, sums[used], squares[used], w[used])
                drops[used, fold, f] = base[used] - permuted
    return drops


def _permuted_rho(
    f: int,
    x: FloatArray,
    codes: IntArray,
    counts: FloatArray,
    sums: FloatArray,
    squares: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """(n_layers,) ρ under the product of the marginals of feature f and of the other features."""
    others = np.delete(np.arange(codes.shape[1]), f)
    first, group = group_rows(codes[:, others])
    group_counts = np.bincount(group, weights=counts)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(first)))
    group_sums = np.add.reduceat(sums[:, order], starts, axis=1)
    values, share = _distribution(x[:, f], counts, max(2, MAX_CELLS // len(first)))
    rest = weights[:, others] @ x[np.ix_(first, others)].T
    predicted = rest[:, :, None] + weights[:, f, None, None] * values
    n_layers = len(weights)
    return score_patterns(
        predicted.reshape(n_layers, 1, -1),
        (group_counts[:, None] * share).ravel(),
        (group_sums[:, :, None] * share).reshape(n_layers, -1),
        squares,
    ).rho[:, 0]


def _distribution(
    values: FloatArray, counts: FloatArray, limit: int
) -> tuple[FloatArray, FloatArray]:
    """Distinct values and their shares; with more than `limit` of them, means of equal bins."""
    distinct, inverse = np.unique(values, return_inverse=True)
    share: FloatArray = np.bincount(inverse, weights=counts) / counts.sum()
    if len(distinct) <= limit:
        return distinct, share
    bins = np.minimum((np.cumsum(share) - share / 2) * limit, limit - 1).astype(np.int64)
    _, bins = np.unique(bins, return_inverse=True)
    total = np.bincount(bins, weights=share).astype(np.float64)
    mean: FloatArray = np.bincount(bins, weights=share * distinct) / total
    return mean, total
