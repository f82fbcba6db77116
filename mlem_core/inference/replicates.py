"""Terms, scores and transfers of layers with their bootstrap and jackknife replicates."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from mlem_core.base.typing import Counted, FloatArray
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.bootstrap import (
    mean_ceilings,
    mean_transfers,
    refitted,
    score_replicates,
    term_replicates,
    transfer_replicates,
)
from mlem_core.inference.jackknife import BLOCKS, REFITS
from mlem_core.inference.layer_pairs import LayerPairs, for_replicates
from mlem_core.inference.resample import Replicates, check_enough, resample
from mlem_core.measures.importance import mean_scores
from mlem_core.pairs.resampling import RankedPairs, Weights, multinomial
from mlem_core.pairs.resampling_units import Blocks


def resampled_terms(
    pairs: LayerPairs, n_replicates: int = 1000, seed: int = 0, progress: Counted | None = None
) -> Replicates:
    """The terms of two layers, "unexplained", their RSA and both ceilings: (n_features + 6,).

    The last two are what the features explain of each layer with itself.

    Raises
    ------
    InputError
        Too few replicates or sentences.
    """
    check_enough(pairs.n_groups, n_replicates)
    rng = np.random.default_rng(seed)
    weights = _after_all(multinomial(pairs.n_groups, n_replicates, rng))
    blocks = pairs.units.blocks(BLOCKS, rng)
    total = len(weights) + len(blocks.weights)

    def values(whole: RankedPairs, weights: Weights, before: int) -> FloatArray:
        def counted(done: int, _: int) -> None:
            if progress is not None:
                progress(before + done, total)

        return term_replicates(whole, pairs.tables, weights, counted)

    drawn = values(pairs.whole, weights, 0)
    left_out = values(pairs.whole.by_stimulus, blocks.weights, len(weights))
    return Replicates(drawn[0], drawn[1:], left_out, blocks.sizes)


def resampled_scores(
    pairs: LayerPairs,
    estimator: str = "ridge",
    n_replicates: int = 1000,
    seed: int = 0,
    progress: Counted | None = None,
    blocks: Blocks | None = None,
) -> Replicates:
    """ρ, ceiling, and importances of each layer, means over folds: (n_layers, 2 + n_columns).

    The models keep their weights, but the standard errors of importances are those of models that
    are fitted anew where blocks are left out (see `caveats.FITTED` for the estimators that cannot
    be), and those of ceilings of means by pattern that are made anew.

    Parameters
    ----------
    estimator : one of `mlem_core.estimators.registry.ESTIMATORS`
    blocks : of stimuli, to be left out in turn; None draws them

    Raises
    ------
    InputError
        Too few replicates or sentences; an unknown estimator.
    """
    of, shared = (
        _models(pairs, estimator, n_replicates, seed, blocks),
        for_replicates(pairs.by_stimulus),
    )
    drawn = resample(score_replicates, (for_replicates(pairs), of.coefficients, True), of.weights)
    rows, own = of.blocks.weights, (shared, of.coefficients, not of.refitted)
    left_out = resample(score_replicates, own, rows)
    # Weights are near the best for ρ, which does not notice how they vary; importances do. So does
    # the ceiling notice how the means by pattern vary, with which it compares.
    if of.refitted:
        scores = partial(mean_scores, estimator=estimator)
        left_out[..., 1:] = resample(refitted, (shared, scores), rows, progress)[..., 1:]
    else:
        left_out[..., 1] = resample(refitted, (shared, mean_ceilings), rows)
    return Replicates(drawn[0], drawn[1:], left_out, of.blocks.sizes)


def resampled_transfers(
    pairs: LayerPairs,
    estimator: str = "ridge",
    n_replicates: int = 1000,
    seed: int = 0,
    progress: Counted | None = None,
) -> Replicates:
    """What the metrics of two layers make of each other: `TRANSFERS` (6,).

    The metrics keep their weights in the bootstrap, but the standard errors are those of metrics
    that are fitted anew where blocks are left out: the weights of one layer need not be near the
    best for another. Not with the estimators that cannot be, see `caveats.FITTED`.

    Raises
    ------
    InputError
        Too few replicates or sentences; an unknown estimator.
    """
    of, alone = _models(pairs, estimator, n_replicates, seed), pairs.by_stimulus
    drawn = transfer_replicates(pairs, of.coefficients, of.weights)
    rows = of.blocks.weights
    if of.refitted:
        transfers = partial(mean_transfers, estimator=estimator)
        left_out = resample(refitted, (for_replicates(alone), transfers), rows, progress)
    else:
        left_out = transfer_replicates(alone, of.coefficients, rows)
    return Replicates(drawn[0], drawn[1:], left_out, of.blocks.sizes)


class _Models(NamedTuple):
    """The metric models of layers, and how the stimuli are drawn again for them.

    coefficients : of the models that are fitted to all stimuli
    refitted : whether they are fitted anew where blocks are left out
    weights : (1 + n_replicates, n_groups) how often each sentence counts, first each once
    blocks : of stimuli, to be left out in turn
    """

    coefficients: FloatArray
    refitted: bool
    weights: Weights
    blocks: Blocks


def _models(
    pairs: LayerPairs, estimator: str, n_replicates: int, seed: int, blocks: Blocks | None = None
) -> _Models:
    check_enough(pairs.n_groups, n_replicates)
    entry, rng = estimator_named(estimator), np.random.default_rng(seed)
    coefficients = entry.model().cross_validate(pairs.tables).weights
    weights = _after_all(pairs.units.bootstrap(n_replicates, rng))
    blocks = blocks or pairs.units.blocks(REFITS, rng)
    return _Models(coefficients, entry.refitted, weights, blocks)


def _after_all(weights: Weights) -> Weights:
    """Bootstrap weights, after a draw in which each sentence counts once."""
    return np.concatenate((np.ones_like(weights[:1]), weights))
