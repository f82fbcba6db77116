"""Models fitted anew in each replicate: the whole cross-validation on other sentences.

With the coefficients as they are, replicates of the test stimuli say how sure the score of *these*
models is. How a score, an importance or a profile would come out with other stimuli altogether,
training included, takes a fit in each replicate; from the sums by cell it takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from mlem_core.base.typing import Counted, FloatArray
from mlem_core.estimators.solver import FoldFits
from mlem_core.inference.bootstrap import ScoreReplicates
from mlem_core.inference.layer_pairs import LayerPairs, bare
from mlem_core.inference.shares import by_share
from mlem_core.measures.importance import permutation_importance
from mlem_core.measures.partial import transfer, with_ratios
from mlem_core.pairs.crossfit import fold_ceilings
from mlem_core.pairs.resampling import Weights
from mlem_core.pairs.tables import PairTables


def replicate_tables(pairs: LayerPairs, weights: Weights) -> Iterator[PairTables]:
    """The pair tables of each replicate, one after the other; cells without pairs are left out.

    The target is scaled as on all stimuli. There are no ranks among training pairs.

    Parameters
    ----------
    weights : (n_replicates, n_groups) how often each sentence counts
    """
    from mlem_core.pairs.kernels.weighted import weighted_sums

    tables = pairs.tables
    n_layers, n_cells = tables.n_layers, len(tables.counts)
    distances = np.stack(pairs.squared)
    for row in weights:
        counts, targets = np.zeros(n_cells), np.zeros((n_layers, n_cells))
        times = np.ascontiguousarray(row, dtype=np.float64)
        weighted_sums(
            pairs.design.rows, times, pairs.groups, pairs.cells, distances, counts, targets
        )
        (of_all,) = pairs.whole.draw(row[None])
        within = np.zeros((n_layers, n_cells))
        squares = np.zeros((n_layers, tables.n_folds))
        for fold, inside in enumerate(pairs.inside):
            (sums,) = inside.draw(row[None, pairs.groups_in(fold)])
            within[:, tables.held_out(fold)] = sums.sums[0]
            squares[:, fold] = sums.squares[0]
        filled = counts > 0
        yield replace(
            tables,
            cell_block=tables.cell_block[filled],
            cell_pattern=tables.cell_pattern[filled],
            counts=counts[filled],
            target_sums=targets[:, filled],
            rank_sums=of_all.sums[0][:, filled],
            rank_squares=of_all.squares[0],
            within_sums=within[:, filled],
            within_squares=squares,
            train_sums=None,
            train_squares=None,
        )


def refitted_scores(
    pairs: LayerPairs,
    weights: Weights,
    fit: Callable[[PairTables], FoldFits],
    progress: Counted | None = None,
) -> ScoreReplicates:
    """ρ, ceiling and importance of models that are fitted in each replicate, means over folds.

    Parameters
    ----------
    weights : (n_replicates, n_groups) with some sentences left out, such as
        `mlem_core.pairs.resampling.leave_out` gives. In a bootstrap replicate the models would see
        a third of the sentences fewer
    fit : `cross_validate` of an estimator that can be refitted, see
        `mlem_core.estimators.registry.EstimatorSpec`
    """
    shared = bare(pairs), fit
    return ScoreReplicates.joined(by_share(_refitted, shared, weights, progress))


def _refitted(
    pairs: LayerPairs,
    fit: Callable[[PairTables], FoldFits],
    weights: Weights,
    progress: Counted | None = None,
) -> ScoreReplicates:
    scores: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    for done, tables in enumerate(replicate_tables(pairs, weights), 1):
        fits = fit(tables)
        importance = permutation_importance(tables, fits.weights)
        scores.append((fits.rho.mean(axis=1), fits.ceiling.mean(axis=1), importance.mean(axis=1)))
        if progress is not None:
            progress(done, len(weights))
    return ScoreReplicates(*(np.stack(column) for column in zip(*scores, strict=True)))


def replicated_ceilings(pairs: LayerPairs, weights: Weights) -> FloatArray:
    """Cross-fitted ceilings (n_replicates, n_layers), means over folds, without fitting a model.

    Parameters
    ----------
    weights : as in `refitted_scores`
    """
    shared = (bare(pairs),)
    return np.concatenate(by_share(_ceilings, shared, weights))


def _ceilings(pairs: LayerPairs, weights: Weights, _: Counted | None = None) -> FloatArray:
    tables = replicate_tables(pairs, weights)
    return np.stack([fold_ceilings(own).mean(axis=1) for own in tables])


def refitted_transfers(
    pairs: LayerPairs,
    weights: Weights,
    fit: Callable[[PairTables], FoldFits],
    progress: Counted | None = None,
) -> FloatArray:
    """What models of two layers make of each other that are fitted in each replicate.

    Parameters
    ----------
    weights, fit : as in `refitted_scores`

    Returns
    -------
    (n_replicates, 6), see `mlem_core.measures.partial.TRANSFERS`
    """
    shared = bare(pairs), fit
    return np.concatenate(by_share(_transfers, shared, weights, progress))


def _transfers(
    pairs: LayerPairs,
    fit: Callable[[PairTables], FoldFits],
    weights: Weights,
    progress: Counted | None = None,
) -> FloatArray:
    found = []
    for done, tables in enumerate(replicate_tables(pairs, weights), 1):
        found.append(transfer(tables, fit(tables).weights).mean(axis=-1))
        if progress is not None:
            progress(done, len(weights))
    return with_ratios(np.stack(found))
