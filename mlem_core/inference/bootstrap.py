"""Drawing the stimuli of an analysis again: every quantity of some of its layers, draw by draw.

What is drawn is the sentence (the group of stimuli), never the pair. The metric models keep the
weights that they were fitted with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import representations_of
from mlem_core.analysis.selection import check_layers
from mlem_core.base.parallel import side_by_side
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.measures.importance import feature_distribution
from mlem_core.measures.shapley import shapley, summed
from mlem_core.measures.similarity import agreement, weighted_tau
from mlem_core.pairs.condensed import row_slices
from mlem_core.pairs.distances import condensed_from_matrix, squared_distances
from mlem_core.pairs.patterns import PairIndex, block_numbers, feature_columns, group_rows
from mlem_core.pairs.ranks import average_ranks, order_pairs, tied_order
from mlem_core.pairs.resampling import Draws, RankedPairs
from mlem_core.pairs.tables import HeldOut, PairTables
from mlem_core.storage.store import Store

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LayerPairs:
    """All pairs of the stimuli of an analysis, with their ranks in some of its layers.

    Attributes
    ----------
    layers : (model, layer) of each of the n_layers layers
    tables : their pair tables, with the chosen features
    ranks : for each layer (n_pairs,) twice the average rank of each pair
    squared : for each layer (n_pairs,) squared neural distances
    pattern : (n_pairs,) pattern of each pair, a row of `tables.codes`
    groups, folds : (n_stimuli,) sentence and fold of each stimulus
    """

    layers: tuple[Layer, ...]
    tables: PairTables
    ranks: tuple[NDArray[np.uint32], ...]
    squared: tuple[NDArray[np.float32], ...]
    pattern: NDArray[np.int32]
    groups: IntArray
    folds: IntArray

    @classmethod
    def of(
        cls,
        analysis: Analysis,
        layers: Sequence[Layer],
        store: Store,
        features: Sequence[str] | None = None,
        interactions: bool | None = None,
    ) -> LayerPairs:
        """Rank the pairs of some layers again, from the representations in the store.

        Parameters
        ----------
        features, interactions : None is what the analysis has

        Raises
        ------
        InputError
            A layer or feature that the analysis does not have; representations that are no longer
            in the store.
        """
        check_layers(layers, analysis.layers)
        if interactions is None:
            interactions = analysis.spec.interactions

        def ranked(layer: Layer) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
            model, number = layer
            rows = np.asarray(representations_of(analysis, model, store)[number])
            name, distance = f"{model} layer {number}", analysis.spec.distance
            if distance == "precomputed":
                squared = condensed_from_matrix(rows, layer=name)
            else:
                squared = squared_distances(rows, distance, layer=name)
            order, value = order_pairs(squared)
            doubled = np.empty(len(squared), dtype=np.uint32)
            doubled[order] = average_ranks(value).doubled
            return doubled, squared.astype(np.float32)

        index = PairIndex.build(
            feature_columns(analysis.stimuli), analysis.folds, analysis.spec.missing
        )
        tables = analysis.tables.of_layers([analysis.layers.index(layer) for layer in layers])
        pattern = (index.pattern_cell % index.n_patterns).astype(np.int32)
        if features is not None:
            fewer = tables.of_features(features)
            if fewer is not tables:
                kept = [tables.features.index(name) for name in fewer.features]
                pattern = group_rows(index.codes[:, kept])[1][pattern].astype(np.int32)
            tables = fewer
        ranks, squared = zip(*side_by_side(ranked, layers), strict=True)
        return cls(
            layers=tuple(layers),
            tables=tables.with_interactions(interactions),
            ranks=ranks,
            squared=squared,
            pattern=pattern,
            groups=np.unique(analysis.stimuli.groups, return_inverse=True)[1].astype(np.int64),
            folds=analysis.folds,
        )

    @property
    def n_groups(self) -> int:
        return int(self.groups.max()) + 1

    @cached_property
    def group_folds(self) -> IntArray:
        """(n_groups,) the fold of each sentence."""
        found = np.empty(self.n_groups, dtype=np.int64)
        found[self.groups] = self.folds
        return found

    @cached_property
    def cells(self) -> IntArray:
        """(n_pairs,) the cell of `tables` (block of folds and pattern) of each pair."""
        n_patterns, blocks = len(self.tables.codes), block_numbers(self.tables.n_folds)
        number = np.full((int(blocks.max()) + 1) * n_patterns, -1)
        number[self.tables.cell_block * n_patterns + self.tables.cell_pattern] = np.arange(
            len(self.tables.counts)
        )
        found = np.empty(len(self.pattern), dtype=np.int64)
        for i, at in row_slices(len(self.folds)):
            block = blocks[self.folds[i], self.folds[i + 1 :]]
            found[at] = number[block * n_patterns + self.pattern[at]]
        return found

    @cached_property
    def whole(self) -> RankedPairs:
        """All pairs, ranked among each other."""
        return RankedPairs.of(self.ranks, self.pattern, self.groups, len(self.tables.codes))

    @cached_property
    def inside(self) -> tuple[RankedPairs, ...]:
        """For each fold its held-out pairs, ranked among each other, with their patterns only."""
        found = []
        for fold in range(self.tables.n_folds):
            stimuli = np.flatnonzero(self.folds == fold)
            pairs = RankedPairs.of(
                self.ranks, self.pattern, self.groups, len(self.tables.codes), stimuli
            )
            kept = self.tables.cell_pattern[self.tables.held_out(fold)]
            number = np.full(len(self.tables.codes), -1, dtype=np.int32)
            number[kept] = np.arange(len(kept))
            found.append(replace(pairs, cells=number[pairs.cells], n_patterns=len(kept)))
        return tuple(found)

    def by_fold(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Bootstrap weights (n_draws, n_groups): in each fold as many sentences as it has."""
        weights = np.empty((n_draws, self.n_groups))
        for fold in range(self.tables.n_folds):
            own = np.flatnonzero(self.group_folds == fold)
            weights[:, own] = rng.multinomial(len(own), np.full(len(own), 1 / len(own)), n_draws)
        return weights


@dataclass(frozen=True)
class TermDraws:
    """The decomposition of two layers, draw by draw.

    terms : (n_draws, n_features)
    unexplained, rsa : (n_draws,)
    ceilings : (n_draws, 2) √ of the share of each layer's rank variance between patterns
    """

    terms: FloatArray
    unexplained: FloatArray
    rsa: FloatArray
    ceilings: FloatArray

    @property
    def values(self) -> FloatArray:
        """(n_draws, n_features + 1) the terms and "unexplained"."""
        return np.column_stack((self.terms, self.unexplained))


def term_draws(
    pairs: RankedPairs, codes: IntArray, weights: FloatArray, progress: Progress | None = None
) -> TermDraws:
    """The terms of the RSA correlation of two layers for each draw of the stimuli.

    Parameters
    ----------
    pairs : of two layers
    codes : (n_patterns, n_features), see `mlem_core.measures.shapley.shapley`
    weights : (n_draws, n_groups) how often each sentence counts
    """
    parts = []
    for draws in pairs.draw(weights, products=True, progress=progress):
        n = len(draws.counts)
        one, other = draws.squares.T
        scales = np.sqrt(np.stack((one * other, one * one, other * other)))

        def value(
            own: FloatArray, _: object, n: int = n, scales: FloatArray = scales
        ) -> FloatArray:
            counts, a, b = own[:, :n], own[:, n : 2 * n], own[:, 2 * n :]
            # A pattern that is not drawn has the sum 0.
            share = 1.0 / np.where(counts > 0, counts, 1.0)
            products = np.stack([(x * y * share).sum(axis=0) for x, y in ((a, b), (a, a), (b, b))])
            return np.divide(products, scales, out=np.zeros_like(products), where=scales > 0)

        stacked = np.concatenate((draws.counts, draws.sums[:, 0], draws.sums[:, 1])).T
        found = shapley(codes, np.ascontiguousarray(stacked), value)
        rsa = draws.rsa()[:, 0, 1]
        parts.append((found.terms[:, 0].T, rsa - found.whole[0], rsa, np.sqrt(found.whole[1:]).T))
    return TermDraws(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class ScoreDraws:
    """Held-out scores of the models of n_layers layers, draw by draw; means over folds.

    rho, ceiling : (n_draws, n_layers)
    importance : (n_draws, n_layers, n_columns)
    """

    rho: FloatArray
    ceiling: FloatArray
    importance: FloatArray

    def tau(self) -> FloatArray:
        """(n_draws, n_layers, n_layers) weighted Kendall τ of the importance profiles."""
        return np.stack([weighted_tau(profiles) for profiles in self.importance])


def score_draws(
    pairs: LayerPairs,
    weights: FloatArray,
    draws: FloatArray,
    *,
    importance: bool = True,
    progress: Progress | None = None,
) -> ScoreDraws:
    """ρ, ceiling and importance on the held-out pairs of each draw, the models as they are.

    A fold of which a draw holds fewer than two stimuli counts as 0 there.

    Parameters
    ----------
    weights : (n_layers, n_folds, n_columns) of the models, see `mlem_core.estimators.base.FoldFits`
    draws : (n_draws, n_groups) how often each sentence counts, such as `LayerPairs.by_fold` gives
    importance : False leaves it 0, which is quicker
    """
    n_layers, n_folds, _ = weights.shape
    parts: list[list[FloatArray]] = []
    for fold in range(n_folds):
        inside, held_out = pairs.inside[fold], pairs.tables.inside(fold)
        own = draws[:, np.flatnonzero(pairs.group_folds == fold)]
        found: list[list[FloatArray]] = []
        for part in inside.draw(own):
            between = part.sums**2 / np.where(part.counts > 0, part.counts, 1.0)[:, None]
            ceiling = _root_share(between.sum(axis=-1), part.squares)

            def one(
                layer: int, fold: int = fold, held_out: HeldOut = held_out, part: Draws = part
            ) -> tuple[FloatArray, FloatArray]:
                own = weights[layer, fold]
                return _scores(held_out.x, held_out.codes, own, part, layer, importance)

            rho, drops = (
                np.stack(column, axis=1)
                for column in zip(*side_by_side(one, range(n_layers)), strict=True)
            )
            found.append([rho, ceiling, drops])
        parts.append([np.concatenate(column) for column in zip(*found, strict=True)])
        if progress is not None:
            progress(fold + 1, n_folds)
    return ScoreDraws(*(np.mean(column, axis=0) for column in zip(*parts, strict=True)))


def _root_share(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.sqrt(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0))


def _scores(
    x: FloatArray, codes: IntArray, weights: FloatArray, draws: Draws, layer: int, importance: bool
) -> tuple[FloatArray, FloatArray]:
    """ρ (n_draws,) and its drops (n_draws, n_columns) of one layer's model in one fold."""
    n_draws = len(draws.counts)
    drops = np.zeros((n_draws, len(weights)))
    used = np.flatnonzero(weights)
    if not len(used):
        return np.zeros(n_draws), drops
    stacked = np.concatenate((draws.counts, draws.sums[:, layer])).T
    squares = draws.squares[:, layer]

    def merged(columns: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predictions, and counts and sums (n_draws, n_groups), by patterns of these columns."""
        first, group = group_rows(codes[:, columns])
        both = summed(group, stacked).T
        predicted = x[np.ix_(first, columns)] @ weights[columns]
        return predicted, np.ascontiguousarray(both[:n_draws]), np.ascontiguousarray(both[n_draws:])

    predicted, counts, sums = merged(used)
    rho = _rho(predicted, counts, sums, np.ones((n_draws, 1)), squares)
    if not importance:
        return rho, drops
    for f in used:
        rest, counts, sums = merged(used[used != f])
        values, shares = feature_distribution(x[:, f], codes[:, f], draws.counts, len(rest))
        permuted = rest[:, None] + weights[f] * values
        drops[:, f] = rho - _rho(permuted, counts, sums, shares, squares)
    return rho, drops


def _rho(
    predicted: FloatArray,
    counts: FloatArray,
    sums: FloatArray,
    shares: FloatArray,
    squares: FloatArray,
) -> FloatArray:
    """ρ (n_draws,) of predictions (n_patterns, n_levels), see `kernels.cell_scores`."""
    from mlem_core.pairs.kernels import cell_scores

    order, begins = tied_order(predicted.ravel())
    pattern, level = np.divmod(order, shares.shape[1])
    found = np.empty(len(counts))
    cell_scores(pattern, level, begins, counts, sums, np.ascontiguousarray(shares), squares, found)
    return found


def agreement_draws(
    pairs: LayerPairs, weights: FloatArray, draws: FloatArray, progress: Progress | None = None
) -> FloatArray:
    """How far the feature-based and the feature-agnostic similarities agree, draw by draw.

    Slow with many layers: every draw ranks all pairs in all of them.

    Returns
    -------
    (n_draws,) Spearman ρ of the upper triangles of τ and RSA of the layers of `pairs`
    """
    tau = score_draws(pairs, weights, draws).tau()
    rsa = [part.rsa() for part in pairs.whole.draw(draws, products=True, progress=progress)]
    return np.array([agreement(t, r) for t, r in zip(tau, np.concatenate(rsa), strict=True)])
