"""Bootstrap and jackknife replicates of the terms and scores of layers, a row of weights each.

What is resampled is the sentence (the group of stimuli), never the pair: a row of weights says how
often each counts. The metric models keep the weights that they were fitted with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mlem_core.base.parallel import cores, side_by_side
from mlem_core.base.typing import Counted, FloatArray, IntArray
from mlem_core.inference.layer_pairs import LayerPairs, bare
from mlem_core.inference.shares import by_share
from mlem_core.measures.decomposition import divide
from mlem_core.measures.importance import feature_distribution
from mlem_core.measures.partial import with_ratios
from mlem_core.pairs.crossfit import CrossFit, ceiling, outside_means
from mlem_core.pairs.ranks import tied_order
from mlem_core.pairs.resampling import Draws, RankedPairs, Weights
from mlem_core.pairs.tables import HeldOut, PairTables, group_rows, summed, without_training_ranks

# Bootstrap replicates for the shape of the intervals of scores and importances of all layers, and
# for those of τ; as many as the calibration has (docs/validation).
REPLICATES = 200


@dataclass(frozen=True)
class TermReplicates:
    """The cross-fitted decomposition of two layers in each replicate.

    terms : (n_replicates, n_features)
    unexplained, rsa : (n_replicates,)
    own : (n_replicates, 2) what the features explain of each layer with itself
    """

    terms: FloatArray
    unexplained: FloatArray
    rsa: FloatArray
    own: FloatArray

    @property
    def ceilings(self) -> FloatArray:
        """(n_replicates, 2) cross-fitted feature ceilings of all pairs."""
        return np.sqrt(np.maximum(self.own, 0.0))

    @property
    def values(self) -> FloatArray:
        """(n_replicates, n_features + 1) the terms and "unexplained"."""
        return np.column_stack((self.terms, self.unexplained))


def term_replicates(
    pairs: RankedPairs, tables: PairTables, weights: Weights, progress: Counted | None = None
) -> TermReplicates:
    """The terms of the RSA correlation of two layers in each replicate.

    Parameters
    ----------
    pairs : of two layers, by cells of the tables
    tables : of these layers. Features keep the priority that they have there
    weights : (n_replicates, n_groups) how often each sentence counts
    """
    shared = pairs, without_training_ranks(tables), CrossFit.of(tables).priority
    parts = [part for share in by_share(_terms, shared, weights, progress) for part in share]
    return TermReplicates(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _terms(
    pairs: RankedPairs,
    tables: PairTables,
    priority: IntArray,
    weights: Weights,
    progress: Counted | None = None,
) -> list[tuple[FloatArray, ...]]:
    """The fields of `TermReplicates`, for some replicates at a time."""
    parts: list[tuple[FloatArray, ...]] = []
    for sums in pairs.draw(weights, products=True, progress=progress):

        def split(at: IntArray, sums: Draws = sums) -> list[FloatArray]:
            drawn = (sums.counts[at], sums.sums[at], sums.squares[at])
            divided = divide(CrossFit.of_draws(tables, *drawn, priority))
            terms, whole = divided.terms[:, :, 0, 1].T, divided.whole
            return [terms, whole[:, 0, 1], np.diagonal(whole, axis1=-2, axis2=-1)]

        shares = np.array_split(np.arange(len(sums.counts)), min(cores(), len(sums.counts)))
        columns = zip(*side_by_side(split, shares), strict=True)
        terms, explained, own = (np.concatenate(column) for column in columns)
        rsa = sums.rsa()[:, 0, 1]
        parts.append((terms, rsa - explained, rsa, own))
    return parts


@dataclass(frozen=True)
class ScoreReplicates:
    """Held-out scores of the models of n_layers layers in each replicate, means over folds.

    rho, ceiling : (n_replicates, n_layers)
    importance : (n_replicates, n_layers, n_parts)
    """

    rho: FloatArray
    ceiling: FloatArray
    importance: FloatArray

    @classmethod
    def joined(cls, parts: Iterable[ScoreReplicates]) -> ScoreReplicates:
        """All replicates, those of the first part first."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    @property
    def values(self) -> FloatArray:
        """(n_replicates, n_layers, 2 + n_parts) ρ, ceiling and importances."""
        scores = (self.rho[..., None], self.ceiling[..., None])
        return np.concatenate((*scores, self.importance), axis=-1)


def score_replicates(
    pairs: LayerPairs, coefficients: FloatArray, weights: Weights, *, importance: bool = True
) -> ScoreReplicates:
    """ρ, ceiling and importance on the held-out pairs of each replicate, the models as they are.

    So are the means by pattern of the pairs outside a fold, with which the ceiling compares. A fold
    of which a replicate has fewer than two stimuli counts as 0 there.

    Parameters
    ----------
    coefficients : (n_layers, n_folds, n_columns) weights of the models, see
        `mlem_core.estimators.solver.FoldFits`
    weights : (n_replicates, n_groups) how often each sentence counts, such as
        `LayerPairs.bootstrap_weights` gives
    importance : False leaves it 0, which is quicker
    """
    shared = bare(pairs), coefficients, importance
    return ScoreReplicates.joined(by_share(_of_models, shared, weights))


def transfer_replicates(
    pairs: LayerPairs, coefficients: FloatArray, weights: Weights
) -> FloatArray:
    """What the models of two layers make of each other, the models as they are.

    Parameters
    ----------
    coefficients, weights : as in `score_replicates`

    Returns
    -------
    (n_replicates, 6), see `mlem_core.measures.partial.TRANSFERS`
    """
    own, swapped = (
        score_replicates(pairs, of, weights, importance=False).rho
        for of in (coefficients, coefficients[::-1])
    )
    # The model of the first on the second is what the second has with swapped coefficients.
    means = np.stack((own[:, 0], swapped[:, 1], swapped[:, 0], own[:, 1]), axis=-1)
    return with_ratios(means.reshape(-1, 2, 2))


def _of_models(
    pairs: LayerPairs,
    coefficients: FloatArray,
    importance: bool,
    weights: Weights,
    _: Counted | None = None,
) -> ScoreReplicates:
    n_layers, n_folds, _columns = coefficients.shape
    means = outside_means(pairs.tables)
    folds: list[list[FloatArray]] = []
    for fold in range(n_folds):
        inside, held_out = pairs.inside[fold], pairs.tables.inside(fold)
        parts: list[list[FloatArray]] = []
        for sums in inside.draw(weights[:, pairs.groups_in(fold)]):
            pairs_inside = sums.counts.sum(axis=1)[:, None]
            ceilings = ceiling(means[fold], sums.sums, sums.squares, pairs_inside)

            def scores_of(
                layer: int, fold: int = fold, held_out: HeldOut = held_out, sums: Draws = sums
            ) -> tuple[FloatArray, FloatArray]:
                return _scores(held_out, coefficients[layer, fold], sums, layer, importance)

            rho, drops = (
                np.stack(column, axis=1)
                for column in zip(*side_by_side(scores_of, range(n_layers)), strict=True)
            )
            parts.append([rho, ceilings, drops])
        folds.append([np.concatenate(column) for column in zip(*parts, strict=True)])
    return ScoreReplicates(*(np.mean(column, axis=0) for column in zip(*folds, strict=True)))


def _scores(
    held_out: HeldOut, coefficients: FloatArray, sums: Draws, layer: int, importance: bool
) -> tuple[FloatArray, FloatArray]:
    """ρ (n_replicates,) and its drops (n_replicates, n_parts) of a layer's model in one fold."""
    x, codes, n = held_out.x, held_out.codes, len(sums.counts)
    drops = np.zeros((n, codes.shape[1]))
    used = np.unique(held_out.part[coefficients != 0])
    if not len(used):
        return np.zeros(n), drops
    stacked = np.concatenate((sums.counts, sums.sums[:, layer])).T
    squares = sums.squares[:, layer]

    def merged(parts: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predictions, and counts and sums (n_replicates, n_groups), by patterns of parts."""
        first, group = group_rows(codes[:, parts])
        both = summed(group, stacked).T
        columns = held_out.columns_of(parts)
        predicted = x[np.ix_(first, columns)] @ coefficients[columns]
        return predicted, np.ascontiguousarray(both[:n]), np.ascontiguousarray(both[n:])

    predicted, counts, rank_sums = merged(used)
    rho = _rho(predicted, counts, rank_sums, np.ones((n, 1)), squares)
    if not importance:
        return rho, drops
    for f in used:
        rest, counts, rank_sums = merged(used[used != f])
        own = held_out.columns_of(np.array([f]))
        added = x[:, own] @ coefficients[own]
        values, shares = feature_distribution(added, codes[:, f], sums.counts, len(rest))
        permuted = rest[:, None] + values
        drops[:, f] = rho - _rho(permuted, counts, rank_sums, shares, squares)
    return rho, drops


def _rho(
    predicted: FloatArray,
    counts: FloatArray,
    rank_sums: FloatArray,
    shares: FloatArray,
    squares: FloatArray,
) -> FloatArray:
    """ρ (n_replicates,) of predictions (n_patterns, n_levels), see `kernels.cell_scores`."""
    from mlem_core.pairs.kernels.scores import cell_scores

    order, begins = tied_order(predicted.ravel())
    pattern, level = np.divmod(order, shares.shape[1])
    shares, rho = np.ascontiguousarray(shares), np.empty(len(counts))
    cell_scores(pattern, level, begins, counts, rank_sums, shares, squares, rho)
    return rho
