"""Numbers of layers without each block of sentences and words, by influence.

A block's influence on a number follows from the sums over the pairs of its stimuli
(`mlem_core.inference.influence`). The number without the block is what the jackknife takes
(`mlem_core.inference.resample`): no model is fitted again, no pair is looked at again. Of a sample
of the stimuli the influences are smaller by the square root of the share of its units in all.

Similarities that are no RSA are compared again without each block, as if its stimuli had never been
there: squared distances of the others are U-centred again, neighbours are looked for among them,
and one layer is turned onto the other by them (the components stay those of all stimuli). What
they give a pair depends on all stimuli, so that the influences of pairs alone would make intervals
of their terms too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.similarities import check_comparable, compared, layer_input
from mlem_core.base.resources import check_memory
from mlem_core.base.typing import Counted, FloatArray, counted, counting
from mlem_core.estimators.normal_equations import NOT_APART
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.influence import score_influence, similarity_influence
from mlem_core.inference.intervals import PERMUTATIONS
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation_null import ContributionNull, chance_at_level
from mlem_core.inference.resample import PERMUTED, check_enough, standard_error
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import Fits, fitted
from mlem_core.pairs.designs import pairs_among
from mlem_core.pairs.moments import moments_of_columns
from mlem_core.pairs.resampling_units import Blocks, StimulusUnits
from mlem_core.pairs.scored_pairs import ScoredPairs
from mlem_core.pairs.similarities import SIMILARITIES, Similarity
from mlem_core.pairs.similarity_moments import aligned_similarities, similarity_moments
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.pairs.unit_sums import UnitSums, unit_sums
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Store


@dataclass(frozen=True)
class BlockSums:
    """Sums over the pairs of each block of stimuli, and what an influence on a number counts.

    Attributes
    ----------
    sums : of n_blocks blocks
    sizes : how many of them are of each kind of unit, see `mlem_core.inference.resample`
    tests : the pairs that test each fold
    shares : of the units of each kind in those of all stimuli, where these are a sample
    """

    sums: UnitSums
    sizes: tuple[int, ...]
    tests: ScoredPairs
    shares: tuple[float, ...]

    @classmethod
    def from_pairs(
        cls,
        pairs: LayerPairs,
        stimuli: StimulusSet | None = None,
        *,
        blocks: Blocks | None = None,
        with_distances: bool = False,
        progress: Counted | None = None,
    ) -> BlockSums:
        """Sums of the blocks of the stimuli of these pairs.

        Parameters
        ----------
        pairs : of all stimuli of an analysis, or of a sample of them
        stimuli : of the analysis; None: the pairs are of all of them
        blocks : of the stimuli of the pairs; None is those that intervals are from
        with_distances : whether a metric is fitted to squared distances
        progress : called with the number of stimuli done and their number
        """
        blocks = pairs.units.blocks() if blocks is None else blocks
        sums = unit_sums(
            pairs.statistics.moments,
            blocks.weights == 0,
            pairs.ranks,
            pairs.squared if with_distances else None,
            progress,
        )
        shares = (1.0,) * len(blocks.sizes) if stimuli is None else unit_shares(pairs, stimuli)
        return cls(sums, blocks.sizes, pairs.statistics.tests, shares)

    def without(self, value: FloatArray, influence: FloatArray) -> FloatArray:
        """(n_blocks, ...) a value (...) without each block, from influences (n_blocks, ...)."""
        return without_blocks(value, influence, self.sizes, self.shares)


def without_blocks(
    value: FloatArray, influence: FloatArray, sizes: Sequence[int], shares: Sequence[float]
) -> FloatArray:
    """(n_blocks, ...) a value (...) without each block; the others are as of `BlockSums`."""
    scale = [
        np.full(n, n / max(1, n - 1) * np.sqrt(share))
        for n, share in zip(sizes, shares, strict=True)
    ]
    scales = np.concatenate(scale).reshape(-1, *[1] * (influence.ndim - 1))
    return np.asarray(value - scales * influence)


def unit_shares(pairs: LayerPairs, stimuli: StimulusSet) -> tuple[float, ...]:
    """Share of the units of each kind of some stimuli that the stimuli of pairs have."""
    no_folds = np.zeros(len(stimuli), dtype=np.int64)
    population = StimulusUnits(no_folds, stimuli.groups, stimuli.items)
    counts = zip(pairs.units.counts, population.counts, strict=False)
    return tuple(few / many for few, many in counts)


class SimilarityWithout(NamedTuple):
    """A similarity of n_layers layers and its terms, also without each of n_blocks blocks.

    Attributes
    ----------
    values : (n_layers, n_layers)
    values_without : (n_blocks, n_layers, n_layers)
    terms : (n_features + 1, n_layers, n_layers) contributions, "unexplained" last; (0, ...) of a
        similarity without terms
    terms_without : (n_blocks, n_features + 1, n_layers, n_layers)
    sizes : how many blocks are of each kind of unit
    """

    values: FloatArray
    values_without: FloatArray
    terms: FloatArray
    terms_without: FloatArray
    sizes: tuple[int, ...]

    def residual_error(self, shares: FloatArray) -> FloatArray:
        """(n_features + 1,) standard errors of T - r S, with T the terms of two layers.

        These are the first and the last. S is their similarity, and r the `shares`
        (n_features + 1,).
        """
        residuals = self.terms_without[:, :, 0, -1] - shares * self.values_without[:, 0, -1:]
        return standard_error(residuals, self.sizes)


def jackknife_rsa(
    statistics: PairStatistics, blocks: BlockSums, progress: Counted | None = None
) -> SimilarityWithout:
    """RSA and its terms, also without each block.

    Parameters
    ----------
    statistics : of all compared pairs of the layers
    blocks : of the same layers and features
    progress : called with the number of steps done and their total
    """
    split = decompose(statistics.moments)
    rsa_influence, terms_influence = similarity_influence(blocks.sums, progress)
    return SimilarityWithout(
        split.rsa,
        blocks.without(split.rsa, rsa_influence),
        split.values,
        blocks.without(split.values, terms_influence),
        blocks.sizes,
    )


def fitted_target(estimator: str) -> str | None:
    """What the weights of an estimator are fitted to, "distance" or "rank".

    None of an estimator whose weights are held, see `mlem_core.inference.resample.FITTED`.
    """
    entry = estimator_named(estimator)
    return getattr(entry.model(), "target", None) if entry.refitted else None


def jackknife_scores(pairs: LayerPairs, estimator: str, blocks: Blocks) -> FloatArray:
    """(n_blocks, n_layers, 1 + n_parts) held-out ρ and importances without each block of stimuli.

    Parameters
    ----------
    pairs : of all stimuli
    estimator : whose metrics are fitted to these pairs
    blocks : of the stimuli
    """
    target = fitted_target(estimator)
    sums = BlockSums.from_pairs(pairs, blocks=blocks, with_distances=target == "distance")
    statistics = pairs.statistics
    return jackknife_fit_scores(sums, fitted(statistics, estimator), statistics.n_pairs, target)


def jackknife_fit_scores(
    blocks: BlockSums, fits: Fits, n_pairs: int, target: str | None, progress: Counted | None = None
) -> FloatArray:
    """(n_blocks, n_layers, 1 + n_parts) held-out ρ and importances of fits without each block.

    Parameters
    ----------
    blocks : of the same layers and columns
    fits : of the metrics
    n_pairs : how many pairs they were fitted to
    target : see `fitted_target`
    progress : called with the number of folds done and their number
    """
    strength = None
    if target is not None:
        # Moments of a sample are sums over fewer pairs.
        strength = fits.fits.alpha * (blocks.sums.moments.n_pairs / n_pairs)
        strength = np.where(fits.fits.alpha == NOT_APART, NOT_APART, strength)
    influence = score_influence(
        blocks.sums,
        fits.fits.weights,
        strength,
        target or "distance",
        tests=blocks.tests,
        progress=progress,
    )
    return blocks.without(fits.mean_scores, influence)


@dataclass(frozen=True)
class ComparedLayers:
    """Layers of all stimuli of an analysis, compared by a similarity other than RSA.

    Attributes
    ----------
    similarity : which
    statistics : of the layers, with what is compared in the place of ranks
    units : of the stimuli
    inputs : what is compared of each layer, see `mlem_core.pairs.similarity_moments.LayerInput`
    """

    similarity: Similarity
    statistics: PairStatistics
    units: StimulusUnits
    inputs: Sequence[FloatArray]

    @classmethod
    def from_analysis(
        cls, analysis: Analysis, selection: Selection, store: Store, progress: Counted | None = None
    ) -> ComparedLayers:
        """Layers of a selection, from the representations in the store.

        Raises as `mlem_core.analysis.similarities.compared`.
        """
        similarity = SIMILARITIES[selection.similarity]
        check_comparable(analysis, similarity)
        of_layers = compared(analysis, similarity.name, store, progress)
        inputs = [layer_input(analysis, similarity, layer, store)() for layer in selection.layers]
        return cls(
            similarity,
            of_layers.select(analysis, selection).pairs,
            StimulusUnits.from_stimuli(analysis.stimuli, analysis.folds),
            inputs,
        )

    def among(self, is_left: NDArray[np.bool_]) -> FloatArray:
        """(1 + n_terms, n_layers, n_layers) the similarity over some stimuli, then its terms.

        Nothing that is left of the others: only components stay those of all stimuli.

        `is_left` (n_stimuli,) says which stimuli these are.
        """
        folds = self.units.folds
        if not self.similarity.divides:
            inputs = [partial(np.asarray, layer) for layer in self.inputs]
            left = np.where(is_left, folds, -1)
            return aligned_similarities(self.similarity, inputs, left)[None]
        rows = np.flatnonzero(is_left)
        places = pairs_among(rows, len(folds))
        columns = self.statistics.columns.select_stimuli(rows)
        inputs = [partial(layer.take, places) for layer in self.inputs]
        moments = similarity_moments(self.similarity, inputs, columns, folds[rows])
        of_columns = moments_of_columns(columns, folds[rows], len(inputs))
        terms = decompose(moments.replace_ranks(of_columns)).values
        return np.concatenate((moments.values[None], terms))

    def without(self, progress: Counted | None = None) -> SimilarityWithout:
        """The similarity and its terms, also without each block of stimuli.

        Raises InputError: too few sentences, or too few stimuli without a block.

        `progress` is called with the number of blocks left out and their number.
        """
        blocks = self.units.blocks()
        values = self.among(np.ones(len(self.units.folds), dtype=bool))
        weights = counted(blocks.weights, len(blocks.weights), progress)
        without = np.stack([self.among(of_block > 0) for of_block in weights])
        return SimilarityWithout(values[0], without[:, 0], values[1:], without[:, 1:], blocks.sizes)

    def chance(
        self,
        stimuli: StimulusSet,
        progress: Counted | None = None,
        n_permutations: int = PERMUTATIONS,
    ) -> ContributionNull:
        """Contributions of each feature by chance, see `mlem_core.inference.permutation_null`.

        `stimuli` are those of the analysis.
        """
        units = self.units
        pairs = LayerPairs((), self.statistics, (), (), units.groups, units.folds, units.items)
        values = map(self.similarity.pair_values, self.inputs)
        centred = [sides.mean(axis=0) - mean for sides, mean in values]
        return chance_at_level(pairs, stimuli, n_permutations, values=centred, progress=progress)


def jackknife_similarity(context: SelectionContext) -> SimilarityWithout:
    """The similarity of a selection and its terms, also without each block of stimuli.

    Raises InputError: too few sentences; representations that are no longer in the store; more
    layers than fit into memory.
    """
    analysis, selection, report = context.analysis, context.selection, context.report
    similarity = SIMILARITIES[selection.similarity]
    check_blocks(analysis, selection)
    if not similarity.of_ranks:
        by_layer = counting(report, f"{similarity.short}", "layers")
        store = context.required_store
        layers = ComparedLayers.from_analysis(analysis, selection, store, by_layer)
        return layers.without(counting(report, f"intervals of {similarity.short}", "blocks"))
    steps = counting(report, f"confidence intervals of {similarity.short}", "steps")
    return jackknife_rsa(analysis.compute_pairs(selection), resampled_blocks(context), steps)


def resampled_blocks(context: SelectionContext, *, with_distances: bool = False) -> BlockSums:
    """Sums of the blocks of stimuli in the selected layers; of many stimuli those of a sample.

    Raises InputError: representations that are no longer in the store.
    """
    analysis, report = context.analysis, context.report
    by_layer = counting(report, "distances", "layers")
    pairs = LayerPairs.from_analysis(
        analysis,
        context.selection,
        context.required_store,
        most_stimuli=PERMUTED,
        progress=by_layer,
    )
    progress = counting(report, "sums over pairs", "stimuli")
    return BlockSums.from_pairs(
        pairs, analysis.stimuli, with_distances=with_distances, progress=progress
    )


def check_blocks(analysis: Analysis, selection: Selection) -> None:
    """Raise InputError for too few sentences, or more layers than fit into memory."""
    units = StimulusUnits.from_stimuli(analysis.stimuli, analysis.folds)
    check_enough(len(np.unique(units.groups)))
    n, n_layers = min(len(analysis.stimuli), PERMUTED), len(selection.layers)
    n_blocks = sum(units.blocks().sizes)
    of_two = len(selection.features) + analysis.pairs.n_folds + 3
    check_memory(
        12 * n_layers * n * (n - 1) // 2 + 8 * n_blocks * n_layers**2 * of_two,
        f"confidence intervals of {n_layers} layers",
        "choose fewer layers",
    )
