"""Replicates of terms, scores and transfers of layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mlem_core.base.typing import Counted, FloatArray
from mlem_core.data.levels import exchanges
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.bootstrap import (
    contribution_replicates,
    mean_ceilings,
    mean_transfers,
    score_replicates,
    term_replicates,
    transfer_replicates,
    without_each,
)
from mlem_core.inference.chance import Chance
from mlem_core.inference.layer_pairs import LayerPairs, for_replicates, relabelled_pairs
from mlem_core.inference.resample import Replicates, check_enough, resample, t_quantile
from mlem_core.measures.importance import mean_scores
from mlem_core.measures.partial import with_ratios
from mlem_core.measures.shapley import sampled_orders
from mlem_core.pairs.resampling_units import Blocks, Weights

# Permutations of the labels of each feature behind the interval of an identity, and blocks of each
# kind that are left out of each.
LABELS, LABELLED_BLOCKS = 3, 16
# Features below this part of an identity are not permuted for its interval.
SMALL_PART = 0.1
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
    pairs, blocks = pairs.coarse, pairs.units.blocks()
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
        anew = fitted_anew(pairs, mean_scores, estimator, blocks, progress)
        left_out[..., 1:] = anew[..., 1:]
    else:
        left_out[..., 1] = resample(without_each, (shared, mean_ceilings, True), rows)
    return Replicates(drawn[0], drawn[1:], left_out, blocks.sizes)


def resampled_transfers(
    pairs: LayerPairs, estimator: str = "ridge", progress: Counted | None = None
) -> Replicates:
    """Replicates of the cross-model prediction of two layers: `TRANSFERS` (6,).

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
        left_out = fitted_anew(pairs, mean_transfers, estimator, blocks, progress, ranks=False)
    else:
        left_out = transfer_replicates(alone, coefficients, rows)
    draws = with_ratios(np.concatenate((value[None], left_out)), drawn=True)
    return Replicates(draws[0], draws[:0], draws[1:], blocks.sizes)


def fitted_anew(
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


def identity_reach(pairs: LayerPairs, chance: Chance, stimuli: StimulusSet) -> FloatArray:
    """Half-widths of the 95 % intervals of word and sentence identity: (n_identities,).

    Labels are permuted `LABELS` times, and `LABELLED_BLOCKS` blocks of each kind are left out of
    what features contribute then. One permutation varies more than the mean of all does: what its
    own labels are has no part in the covariance of two. Features with a small part of the identity
    stand in by those with a large one.

    Parameters
    ----------
    pairs : all pairs of the stimuli, in two layers
    chance : of these
    stimuli : of the analysis
    """
    blocks, rng = pairs.units.blocks(LABELLED_BLOCKS), np.random.default_rng(0)
    pairs, some = pairs.coarse, pairs.stimuli_of(stimuli)
    sampled = sampled_orders(pairs.tables.codes) > 0
    ends, reach = np.cumsum(blocks.sizes)[:-1], []
    for identity in chance.identities:
        level = identity.partition(" ")[0]
        mean = np.where(np.array(chance.levels) == level, chance.mean[:, 0, -1], 0.0)
        chosen = np.flatnonzero(np.abs(mean) > SMALL_PART * np.abs(mean).sum())
        left = np.zeros((len(blocks.weights), LABELS))
        for f in chosen.tolist():
            ways = exchanges(some, pairs.folds, chance.features[f])
            way = next(way for way in ways if way.level == level)
            for at, givers in enumerate(way.draw(LABELS, rng)):
                labelled, tables = relabelled_pairs(pairs, f, givers)
                own = labelled.by_stimulus, tables
                if sampled:
                    order = rng.permutation(len(tables.features))
                    left[:, at] += contribution_replicates(*own, f, order, blocks.weights)
                else:
                    left[:, at] += term_replicates(*own, blocks.weights)[:, f]
        left *= np.abs(mean).sum() / max(np.abs(mean[chosen]).sum(), 1e-12)
        apart = ~np.eye(LABELS, dtype=bool)
        of_kinds = [
            (len(part) - 1) * np.cov(part.T, bias=True)[apart].mean()
            for part in np.split(left, ends)
        ]
        both = of_kinds[0] + of_kinds[1] - of_kinds[2] if len(of_kinds) > 1 else 0.0
        reach.append(np.sqrt(max(0.0, both, *of_kinds[:2])) * t_quantile(min(blocks.sizes)))
    return np.array(reach)
