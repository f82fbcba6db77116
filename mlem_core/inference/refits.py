"""Models fitted anew to other stimuli: the whole cross-validation of each draw.

With the weights as they are, draws of the test stimuli say how sure the score of *these* models
is. How a score, an importance or a profile would come out with other stimuli altogether, training
included, takes a fit for each draw; from the sums by cell it is a matter of milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from mlem_core.base.typing import FloatArray
from mlem_core.estimators.base import FoldFits
from mlem_core.inference.bootstrap import LayerPairs, Progress, ScoreDraws
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.tables import PairTables


def draw_tables(pairs: LayerPairs, draws: FloatArray) -> Iterator[PairTables]:
    """The pair tables of each draw, one after the other; cells without pairs are left out.

    The target is scaled as on all stimuli. There are no ranks among all or among training pairs.

    Parameters
    ----------
    draws : (n_draws, n_groups) how often each sentence counts
    """
    from mlem_core.pairs.kernels import weighted_sums

    tables = pairs.tables
    n_layers, n_cells = tables.n_layers, len(tables.counts)
    values = np.stack(pairs.squared)
    for own in draws:
        counts, targets = np.zeros(n_cells), np.zeros((n_layers, n_cells))
        weighted_sums(np.ascontiguousarray(own), pairs.groups, pairs.cells, values, counts, targets)
        within = np.zeros((n_layers, n_cells))
        squares = np.zeros((n_layers, tables.n_folds))
        for fold, inside in enumerate(pairs.inside):
            (drawn,) = inside.draw(own[None, np.flatnonzero(pairs.group_folds == fold)])
            within[:, tables.held_out(fold)] = drawn.sums[0]
            squares[:, fold] = drawn.squares[0]
        kept = counts > 0
        yield replace(
            tables,
            cell_block=tables.cell_block[kept],
            cell_pattern=tables.cell_pattern[kept],
            counts=counts[kept],
            target_sums=targets[:, kept],
            rank_sums=np.zeros((n_layers, int(kept.sum()))),
            within_sums=within[:, kept],
            within_squares=squares,
            train_sums=None,
            train_squares=None,
        )


def refitted_scores(
    pairs: LayerPairs,
    draws: FloatArray,
    fit: Callable[[PairTables], FoldFits],
    progress: Progress | None = None,
) -> ScoreDraws:
    """ρ, ceiling and importance of models that are fitted to each draw, means over folds.

    Parameters
    ----------
    draws : (n_draws, n_groups); some left out, such as `mlem_core.pairs.resampling.leave_out`
        gives. In
        a bootstrap draw the models would see a third of the sentences fewer
    fit : an estimator that fits distances, see
        `mlem_core.estimators.registry.EstimatorSpec.refitted`
    """
    found: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    for d, tables in enumerate(draw_tables(pairs, draws), 1):
        fits = fit(tables)
        importance = permutation_importance(tables, fits.weights)
        found.append((fits.rho.mean(axis=1), fits.ceiling.mean(axis=1), importance.mean(axis=1)))
        if progress is not None:
            progress(d, len(draws))
    return ScoreDraws(*(np.stack(column) for column in zip(*found, strict=True)))
