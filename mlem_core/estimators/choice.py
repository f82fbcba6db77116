"""The choice between estimators, by cross-validation among the pairs across folds.

A held-out ρ is of the pairs inside a fold. Pairs of stimuli of two folds are in no such score, so
that what is chosen on them is not chosen by the score that is then reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from mlem_core.base.typing import FloatArray
from mlem_core.estimators.normal_equations import moments, rank_equations, training_blocks
from mlem_core.estimators.ridge_solver import RidgeSolver
from mlem_core.estimators.solver import Solution, Solver
from mlem_core.pairs.ranks import few_at_once, score_patterns
from mlem_core.pairs.tables import PairTables

# Two folds to test between, and two to train between.
FEWEST_TO_CHOOSE = 4
# How much ρ a choice has to gain that differs from the papers'.
GAIN = 0.01


def across_folds(tables: PairTables, ranked: bool = False) -> FloatArray:
    """Mean ρ (n_layers,) of ridge on the pairs across two folds, trained across the others.

    Each layer has the strength α (or β) of the highest mean. Ranks are those among all pairs, and
    so is their spread: ρ is up to a factor close to 1, the same for all models of these pairs, what
    `scipy.stats.spearmanr` gives.

    Parameters
    ----------
    tables : of n_layers layers and at least `FEWEST_TO_CHOOSE` folds
    ranked : whether ridge is fitted to the ranks
    """
    out, pairs = ~tables.trains, list(itertools.combinations(range(tables.n_folds), 2))
    n_out = out.sum(axis=0)
    blocks = training_blocks(tables, pairs) & (n_out > 1)
    on_ranks = rank_equations(tables, blocks, [None] * len(pairs)) if ranked else None
    weights = RidgeSolver().weights(tables, on_ranks or moments(tables, blocks))
    rho = np.zeros((tables.n_layers, weights.shape[2]))
    for number, (a, b) in enumerate(pairs):
        block = int(np.flatnonzero(out[a] & out[b] & (n_out == 2))[0])
        at = slice(*tables.block_edges[block : block + 2])
        counts, sums = tables.counts[at], tables.rank_sums[:, at]
        n = max(float(counts.sum()), 1.0)
        sums = sums - counts * (sums.sum(axis=1, keepdims=True) / n)
        squares = tables.rank_squares * (n / tables.n_pairs)
        terms = tables.terms.of(tables.cell_pattern[at])
        for some in few_at_once(len(rho), rho.shape[1] * len(counts)):
            predicted = terms.predictions(weights[some, number])
            found = predicted, counts, sums[some], squares[some]
            rho[some] += score_patterns(*found, series=rho.shape[1]).rho
    best: FloatArray = rho.max(axis=1) / len(pairs)
    return best


class ChoosingSolver(Solver):
    """Fits ridge, or ridge on ranks where `across_folds` prefers it."""

    def solve(self, tables: PairTables, left_out: Sequence[int | None]) -> Solution:
        gained = 0.0
        if tables.n_folds >= FEWEST_TO_CHOOSE:
            gained = (across_folds(tables, ranked=True) - across_folds(tables)).mean()
        return RidgeSolver("rank" if gained > GAIN else "distance").solve(tables, left_out)
