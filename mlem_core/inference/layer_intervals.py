"""All layers at once: confidence intervals of all their numbers, and terms of similarity by chance.

Blocks are of sentences and, where words recur, of words, always the same of these stimuli. Their
influence on every number (`mlem_core.inference.block_influence`) gives the number without each
block, and so its interval; of two layers alone (`mlem_core.inference.explanation`) it gives the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlem_core.analysis.context import FITS, SelectionContext, Stage, selection_key
from mlem_core.base.errors import InputError
from mlem_core.base.numbers import CONFIDENCE, student_quantile
from mlem_core.base.typing import FloatArray, Layer, Report, counting
from mlem_core.inference.block_influence import (
    BlockSums,
    ComparedLayers,
    SimilarityWithout,
    check_blocks,
    fitted_target,
    jackknife_fit_scores,
    jackknife_rsa,
    jackknife_similarity,
    resampled_blocks,
)
from mlem_core.inference.intervals import PERMUTATIONS, LayerIntervals, Left
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation_null import ContributionNull, chance_at_level
from mlem_core.inference.resample import (
    PERMUTED,
    covariances_of_kinds,
    jackknife,
    squared_effect_bounds,
    standard_error,
)
from mlem_core.measures.importance import Fits
from mlem_core.measures.similarity import weighted_tau
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.pairs.statistics import PairStatistics

# Profiles that are drawn for the intervals of τ.
DRAWS = 200
_SEED = 0
# Ranks and distances of all layers, which are in memory together for chance.
MOST_BYTES = 8 * 2**30


def compute_layer_intervals(context: SelectionContext) -> LayerIntervals:
    """The confidence intervals of the selected layers.

    Raises InputError: too few sentences; representations that are no longer in the store; more
    layers than fit into memory.
    """
    analysis, selection = context.analysis, context.selection
    if selection.similarity != RSA:
        # Scores, profiles and τ are those that stand beside RSA.
        beside_rsa = LAYER_INTERVALS.get(context.reselect(similarity=RSA))
        compared = jackknife_similarity(context)
        return replace(beside_rsa, similarity=selection.similarity, **_similarity_fields(compared))
    check_blocks(analysis, selection)
    fits = FITS.get(context)
    to_distances = fitted_target(selection.estimator) == "distance"
    return intervals_from_sums(
        analysis.compute_pairs(selection),
        fits,
        resampled_blocks(context, with_distances=to_distances),
        layers=selection.layers,
        estimator=selection.estimator,
        units=Units.from_stimuli(analysis.stimuli),
        report=context.report,
    )


def intervals_from_sums(
    statistics: PairStatistics,
    fits: Fits,
    blocks: BlockSums,
    *,
    layers: Sequence[Layer],
    estimator: str,
    units: Units,
    report: Report,
) -> LayerIntervals:
    """Intervals of the scores, similarities and terms of n_layers layers.

    Parameters
    ----------
    statistics : of the pairs of the layers
    fits : of the metrics of the layers
    blocks : sums over the pairs of each block of stimuli, in the same layers
    layers : (model, layer) of each
    estimator : of the metrics
    units : that are drawn
    """
    scores = fits.mean_scores
    without = jackknife_fit_scores(
        blocks,
        fits,
        statistics.n_pairs,
        fitted_target(estimator),
        counting(report, "confidence intervals of scores", "folds"),
    )
    sizes = blocks.sizes
    reach = standard_error(without, sizes) * student_quantile(max(1, min(sizes) - 1))
    # Importances are squared effects, and ρ is none.
    lower, upper = squared_effect_bounds(scores, reach)
    of_rho = jackknife(scores[:, 0], without[..., 0], sizes, (-1.0, 1.0))
    lower[:, 0], upper[:, 0] = of_rho.lower, of_rho.upper
    steps = counting(report, f"confidence intervals of {SIMILARITIES[RSA].short}", "steps")
    return LayerIntervals(
        layers=tuple(layers),
        features=tuple(statistics.features),
        columns=statistics.columns.parts,
        estimator=estimator,
        scores=scores,
        scores_lower=lower,
        scores_upper=upper,
        scores_without=without,
        units=units,
        sizes=sizes,
        **_tau(scores[:, 1:], Left(without[..., 1:], sizes)),
        **_similarity_fields(jackknife_rsa(statistics, blocks, steps)),
    )


def _tau(profiles: FloatArray, left: Left) -> dict[str, Any]:
    """τ of profiles (n_layers, n_columns), and its interval from draws of them."""
    moves, variance = left.moves(DRAWS, np.random.default_rng(_SEED))
    spread = np.where(variance > 0, np.sqrt(variance), 1.0)
    # What sentences and words have in common is in the moves of both, and in the error once.
    drawn = profiles + moves * (standard_error(*left) / spread)
    tau, tail = weighted_tau(profiles), (1 - CONFIDENCE) / 2
    resampled = np.stack([weighted_tau(draw) for draw in drawn])
    return {
        "tau": tau,
        "tau_lower": np.minimum(np.quantile(resampled, tail, axis=0), tau),
        "tau_upper": np.maximum(np.quantile(resampled, 1 - tail, axis=0), tau),
    }


def _similarity_fields(compared: SimilarityWithout) -> dict[str, Any]:
    """The fields of a similarity and its terms, of `LayerIntervals`."""
    terms, values = compared.terms_without, compared.values_without
    return {
        "values": compared.values,
        "values_without": values,
        "terms": compared.terms,
        "terms_variance": covariances_of_kinds(terms, terms, compared.sizes),
        "terms_covariance": covariances_of_kinds(terms, values[:, None], compared.sizes),
    }


def compute_layer_chance(
    context: SelectionContext, permutations: int = PERMUTATIONS
) -> ContributionNull:
    """Contributions of each feature to every two layers under permuted labels.

    The same permutations for all layers. Of the selection its features, layers, interactions and
    similarity count.

    Raises InputError: representations that are no longer in the store; more layers than fit into
    memory; a similarity without terms.
    """
    analysis, selection, store = context.analysis, context.selection, context.required_store
    similarity, stimuli = SIMILARITIES[selection.similarity], analysis.stimuli
    similarity.check_divides()
    progress = counting(context.report, "permuting labels", "permutations")
    if not similarity.of_ranks:
        compared = ComparedLayers.from_analysis(analysis, selection, store)
        return compared.chance(stimuli, progress, permutations)
    n = len(stimuli) if analysis.design.is_complete else min(len(stimuli), PERMUTED)
    most = MOST_BYTES // (12 * n_pairs(n))
    if len(selection.layers) > most:
        raise InputError(
            f"found {len(selection.layers)} layers; chance is computed for at most {most} of {n:,} "
            "stimuli at once, so choose fewer layers."
        )
    pairs = LayerPairs.from_analysis(analysis, selection, store)
    return chance_at_level(pairs, stimuli, permutations, progress=progress)


def _chance_key(context: SelectionContext) -> dict[str, Any]:
    """Key of contributions by chance: no metric is fitted."""
    return selection_key(context.reselect(estimator=""))


def _chance_of_layers(context: SelectionContext, chance: ContributionNull) -> ContributionNull:
    """Contributions by chance of the selected layers, of those of all layers."""
    return chance.select_layers(list(map(context.analysis.layers.index, context.selection.layers)))


# Intervals and chance of all layers of the analysis answer for any of them.
LAYER_INTERVALS = Stage[LayerIntervals](
    "error-bars",
    7,
    LayerIntervals,
    compute_layer_intervals,
    compressed=True,
    narrow=lambda context, intervals: intervals,
)
LAYER_CHANCE = Stage[ContributionNull](
    "terms-chance",
    5,
    ContributionNull,
    compute_layer_chance,
    key=_chance_key,
    compressed=True,
    narrow=_chance_of_layers,
)
