"""Feature importance (FI): how much the held-out score drops when a feature is permuted."""

from __future__ import annotations

import numpy as np

from mlem_core.parallel import side_by_side
from mlem_core.patterns import FloatArray, IntArray
from mlem_core.ranks import score_patterns
from mlem_core.tables import HeldOut, PairTables

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
    weights : (n_layers, n_folds, n_features), see `mlem_core.metric.FoldFits`

    Returns
    -------
    (n_layers, n_folds, n_features)

    Source: Salle et al. 2024, section 4; Jalouzot et al. 2024, section 2.3.
    """
    drops = np.zeros_like(weights)

    def one(fold: int) -> None:
        inside = tables.inside(fold)
        # Permuting a feature without weight changes nothing.
        for layers, features in inside.by_support(weights[:, fold, None]):
            pairs, own = inside.only(layers, features), weights[layers, fold][:, None, features]
            whole = score_patterns(
                own @ pairs.x.T, pairs.counts, pairs.rank_sums, pairs.rank_squares
            ).rho[:, 0]
            for f, feature in enumerate(features):
                drops[layers, fold, feature] = whole - _permuted_rho(f, pairs, own[:, 0])

    if len(tables.counts) > SMALL:
        side_by_side(one, range(tables.n_folds))
    else:
        # Many short calls: threads would only wait for one another.
        for fold in range(tables.n_folds):
            one(fold)
    return drops


def _permuted_rho(f: int, pairs: HeldOut, weights: FloatArray) -> FloatArray:
    """(n_layers,) ρ under the product of the marginals of feature f and of the other features."""
    others = np.delete(np.arange(weights.shape[1]), f)
    rest = pairs.only(np.arange(len(weights)), others)
    values, share = _distribution(
        pairs.x[:, f], pairs.codes[:, f], pairs.counts, max(2, MAX_CELLS // len(rest.x))
    )
    predicted = (weights[:, others] @ rest.x.T)[:, :, None] + weights[:, f, None, None] * values
    n_layers = len(weights)
    return score_patterns(
        predicted.reshape(n_layers, 1, -1),
        (rest.counts[:, None] * share).ravel(),
        (rest.rank_sums[:, :, None] * share).reshape(n_layers, -1),
        rest.rank_squares,
    ).rho[:, 0]


def _distribution(
    values: FloatArray, codes: IntArray, counts: FloatArray, limit: int
) -> tuple[FloatArray, FloatArray]:
    """Distinct values and their shares; with more than `limit` of them, means of equal bins."""
    distinct = np.zeros(codes.max() + 1)
    distinct[codes] = values
    share: FloatArray = np.bincount(codes, weights=counts) / counts.sum()
    distinct, share = distinct[share > 0], share[share > 0]
    if len(distinct) <= limit:
        return distinct, share
    bins = np.minimum((np.cumsum(share) - share / 2) * limit, limit - 1).astype(np.int64)
    _, bins = np.unique(bins, return_inverse=True)
    total = np.bincount(bins, weights=share).astype(np.float64)
    mean: FloatArray = np.bincount(bins, weights=share * distinct) / total
    return mean, total
