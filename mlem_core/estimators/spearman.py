"""The metric of the highest rank correlation with the neural distances, found on pair tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlem_core.base.parallel import on_all_cores
from mlem_core.base.typing import FloatArray
from mlem_core.estimators.ascent import RankObjective, WeightForm, maximise
from mlem_core.estimators.base import Solution, TableModel
from mlem_core.estimators.normal_equations import training_blocks
from mlem_core.pairs.tables import PairTables


def training_sums(
    tables: PairTables, layer: int, left_out: Sequence[int | None], *, ranked: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Pairs of each pattern, and sums of what is fitted of them, on several training sets.

    Ranks are those among the pairs that leave out the fold: held-out pairs have no part in them.

    Parameters
    ----------
    layer : position of the layer in the tables
    left_out : the fold that each training set leaves out, or None for all pairs
    ranked : whether centred average ranks of the distances are fitted, or squared distances

    Returns two arrays (n_sets, n_patterns). Raises InputError: the tables have no ranks among
    training pairs.
    """
    n_patterns = len(tables.codes)
    counts, sums = np.zeros((2, len(left_out), n_patterns))
    sets = [() if fold is None else (fold,) for fold in left_out]
    for k, (fold, blocks) in enumerate(zip(left_out, training_blocks(tables, sets), strict=True)):
        at = np.flatnonzero(blocks[tables.cell_block])
        pattern, fitted = tables.cell_pattern[at], tables.rank_sums[layer]
        if not ranked:
            fitted = tables.target_sums[layer]
        elif fold is not None:
            fitted = tables.training_ranks[layer, fold]
        counts[k] = np.bincount(pattern, tables.counts[at], n_patterns)
        sums[k] = np.bincount(pattern, fitted[at], n_patterns)
    return counts, sums


def training_objective(
    tables: PairTables, layer: int, left_out: Sequence[int | None] | None = None
) -> RankObjective:
    """The rank correlation of one layer on several training sets.

    Parameters
    ----------
    layer : position of the layer in the tables
    left_out : the fold that each training set leaves out, or None for all pairs; by default each
        fold in turn

    Raises InputError: the tables have no ranks among training pairs.
    """
    chosen = range(tables.n_folds) if left_out is None else left_out
    counts, sums = training_sums(tables, layer, chosen)
    squares = np.full(len(chosen), tables.rank_squares[layer])
    if tables.train_squares is not None:
        for k, fold in enumerate(chosen):
            if fold is not None:
                squares[k] = tables.train_squares[layer, fold]
    return RankObjective(tables.terms.dense, counts, sums, squares)


class SpearmanMLEM(TableModel):
    """Metric-learning encoding model fitted by maximising a rank correlation, ρ_a.

    Predicts the squared neural distance of two stimuli, up to a monotone function, as Δᵀ W Δ, where
    Δ are their distances on the features. W is diagonal with entries of at least 0; with
    interactions it is symmetric positive definite. Its Frobenius norm is 1. The search is on the
    pair table, where the objective is exact, and has no randomness;
    `mlem_core.estimators.soft_rank.SoftRankMLEM` is the published recipe.

    Parameters
    ----------
    interactions : whether W is full
    distance, missing : as in `mlem_core.estimators.base.MetricModel`

    Attributes are those of `mlem_core.estimators.base.MetricModel`; intercept_ is 0.

    Source: Jalouzot et al. 2024, sections 2.1.2 and 2.2.
    """

    _constraint = "metric"
    needs_training_ranks = True

    def solve(self, tables: PairTables, left_out: Sequence[int | None]) -> Solution:
        """Search for the metric of each layer and training set.

        A layer's training sets are searched side by side; layers are independent of one another,
        so that a layer's result does not depend on which others are there.
        """
        shape = WeightForm(tables.columns, self._constraint)

        def one(layer: int) -> FloatArray:
            return maximise(training_objective(tables, layer, left_out), shape)

        return Solution(np.stack(on_all_cores(one, range(tables.n_layers))))


class FRRSA(SpearmanMLEM):
    """Feature-reweighted RSA, the baseline: the same model and fit without constraint on W.

    Weights of any sign; with interactions (FR-RSA-I) W is symmetric but need not be positive
    definite, so that predictions may be no distance. The rest is as in `SpearmanMLEM`.

    Source: Jalouzot et al. 2024, section 2.4.
    """

    _constraint = "none"
