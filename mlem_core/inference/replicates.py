"""Terms, scores and transfers of layers with their bootstrap and jackknife replicates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mlem_core.base.typing import Counted, FloatArray
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.bootstrap import (
    mean_ceilings,
    mean_transfers,
    score_replicates,
    term_replicates,
    transfer_replicates,
    without_each,
)
from mlem_core.inference.layer_pairs import LayerPairs, for_replicates
from mlem_core.inference.resample import Replicates, check_enough, resample
from mlem_core.measures.importance import mean_scores
from mlem_core.measures.partial import with_ratios
from mlem_core.pairs.resampling import Weights
from mlem_core.pairs.resampling_units import Blocks

# Without so many blocks of each kind of unit penalties are chosen anew.
CHOSEN_ANEW = 12


def resampled_terms(pairs: LayerPairs, progress: Counted | None = None) -> Replicates:
    """The terms of two layers, "unexplained", their RSA and both ceilings: (n_features + 6,).

    The last two are what the features explain of each layer with itself. By blocks that are left
    out alone, as for all layers at once.

    Raises
    ------
    InputError
        Too few sentences.
    """
    check_enough(pairs.n_groups)
    blocks = pairs.units.blocks()
    weights = _after_all(blocks.weights)
    values = term_replicates(pairs.whole.by_stimulus, pairs.tables, weights, progress)
    return Replicates(values[0], values[:0], values[1:], blocks.sizes)


def resampled_scores(
    pairs: LayerPairs,
    estimator: str = "ridge",
    n_replicates: int = 1000,
    seed: int = 0,
    progress: Counted | None = None,
) -> Replicates:
    """ρ, ceiling, and importances of each layer, means over folds: (n_layers, 2 + n_columns).

    The models keep their weights, but the standard errors of importances are those of models that
    are fitted anew where blocks are left out (see `caveats.FITTED` for the estimators that cannot
    be), and those of ceilings of means by pattern that are made anew.

    Parameters
    ----------
    estimator : one of `mlem_core.estimators.registry.ESTIMATORS`

    Raises
    ------
    InputError
        Too few replicates or sentences; an unknown estimator.
    """
    check_enough(pairs.n_groups, n_replicates)
    entry, blocks = estimator_named(estimator), pairs.units.blocks()
    coefficients, rows = entry.model().cross_validate(pairs.tables).weights, blocks.weights
    weights = _after_all(pairs.units.bootstrap(n_replicates, np.random.default_rng(seed)))
    drawn = resample(score_replicates, (for_replicates(pairs), coefficients, True), weights)
    shared = for_replicates(pairs.by_stimulus)
    left_out = resample(score_replicates, (shared, coefficients, not entry.refitted), rows)
    # Weights are near the best for ρ, which does not notice how they vary; importances do. So does
    # the ceiling notice how the means by pattern vary, with which it compares.
    if entry.refitted:
        anew = _fitted_anew(pairs, mean_scores, estimator, blocks, progress)
        left_out[..., 1:] = anew[..., 1:]
    else:
        left_out[..., 1] = resample(without_each, (shared, mean_ceilings, True), rows)
    return Replicates(drawn[0], drawn[1:], left_out, blocks.sizes)


def resampled_transfers(
    pairs: LayerPairs, estimator: str = "ridge", progress: Counted | None = None
) -> Replicates:
    """What the metrics of two layers make of each other: `TRANSFERS` (6,).

    Metrics are fitted anew where blocks are left out (the weights of one layer need not be near the
    best for another), not with the estimators that cannot be, see `caveats.FITTED`.

    Raises
    ------
    InputError
        Too few sentences; an unknown estimator.
    """
    check_enough(pairs.n_groups)
    entry, blocks, alone = estimator_named(estimator), pairs.units.blocks(), pairs.by_stimulus
    rows, coefficients = blocks.weights, entry.model().cross_validate(pairs.tables).weights
    value = transfer_replicates(alone, coefficients, np.ones_like(rows[:1]))[0]
    if entry.refitted:
        left_out = _fitted_anew(pairs, mean_transfers, estimator, blocks, progress, ranks=False)
    else:
        left_out = transfer_replicates(alone, coefficients, rows)
    draws = with_ratios(np.concatenate((value[None], left_out)), drawn=True)
    return Replicates(draws[0], draws[:0], draws[1:], blocks.sizes)


def _fitted_anew(
    pairs: LayerPairs,
    statistic: Callable[..., FloatArray],
    estimator: str,
    blocks: Blocks,
    progress: Counted | None = None,
    *,
    ranks: bool = True,
) -> FloatArray:
    """A statistic (n_blocks, ...) of metrics that are fitted without each block.

    Penalties are chosen anew without `CHOSEN_ANEW` blocks of each kind, and held elsewhere, which
    spares nearly all fits. What choosing changes there is added to the others, block by block, so
    that the jackknife's variance has that of the choice too.

    Parameters
    ----------
    statistic : of tables, and by name of `estimator` and `held`, such as `mean_scores`
    ranks : as in `mlem_core.inference.bootstrap.tables_without`
    """
    held = estimator_named(estimator).model().solve(pairs.tables, range(pairs.tables.n_folds))
    kinds = np.split(np.arange(len(blocks.weights)), np.cumsum(blocks.sizes)[:-1])
    some = np.concatenate([kind[:CHOSEN_ANEW] for kind in kinds])
    total, shared = len(blocks.weights) + len(some), for_replicates(pairs.by_stimulus)

    def without(rows: Weights, before: int, **how: Any) -> FloatArray:
        def counted(done: int, _: int) -> None:
            if progress is not None:
                progress(before + done, total)

        of = partial(statistic, estimator=estimator, **how)
        return resample(without_each, (shared, of, ranks), rows, counted)

    left_out = without(blocks.weights, 0, held=held)
    off = without(blocks.weights[some], len(left_out)) - left_out[some]
    turns = [np.resize(np.searchsorted(some, kind[:CHOSEN_ANEW]), len(kind)) for kind in kinds]
    return left_out + off[np.concatenate(turns)]


def _after_all(weights: Weights) -> Weights:
    """Bootstrap weights, after a draw in which each sentence counts once."""
    return np.concatenate((np.ones_like(weights[:1]), weights))
