"""Non-negative ridge regression from moments of pairs, its strength chosen by nested validation.

Only the scores that choose a strength look at pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.parallel import cores, each, one_thread_each
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.normal_equations import NOT_APART, normal_equations, value_weights
from mlem_core.estimators.registry import Solution, Solver, check_numbers
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.pairs.scored_pairs import ScoredPairs
from mlem_core.pairs.statistics import PairStatistics

# Salle et al. 2024, appendix B: "α ∈ 10^[-4, 4]".
ALPHAS: tuple[float, ...] = tuple(10.0**e for e in range(-4, 5))
# From features coded by value freely to features coded as same or different.
BETAS: tuple[float, ...] = (1.0, 10.0, 100.0, 1e3, 1e4)
TARGETS = ("distance", "rank")


class RidgeSolver(Solver):
    """Fits the model of `mlem_core.estimators.base.RidgeMLEM`, whose parameters these are.

    Parameters
    ----------
    target : "distance" or "rank"

    Attributes
    ----------
    alphas, betas : strengths to choose from
    """

    alphas: Sequence[float] = ALPHAS
    betas: Sequence[float] = BETAS

    def __init__(self, target: str = "distance") -> None:
        self.target = target

    def check(self) -> None:
        check_choice("target", self.target, TARGETS)
        check_numbers("alphas", self.alphas, 0, NOT_APART)
        check_numbers("betas", self.betas, 0, NOT_APART)

    def solve(
        self,
        pairs: PairStatistics,
        left_out: Sequence[int | None],
        training_pairs: TrainingPairs | None = None,
    ) -> Solution:
        """Fit every layer on several training sets, each with its own strength.

        For a training set, the strength is the one with the highest mean ρ when each other fold in
        turn is left out too; of those that score the same the smallest is taken. Where features are
        coded by value the strengths are `betas` and, beside several of them (or none), `alphas`
        with the features coded as same or different.

        Raises InputError: fewer than three folds for nested cross-validation.

        Source: Salle et al. 2024, appendix B.
        """
        moments, columns, n_folds = pairs.moments, pairs.columns, pairs.n_folds
        betas = self.betas if columns.by_value else ()
        alphas = self.alphas if len(betas) != 1 else ()
        strengths = (*betas, *([NOT_APART] * len(alphas) if columns.by_value else alphas))
        several = len(strengths) > 1
        if several and n_folds < 3 and any(fold is not None for fold in left_out):
            raise InputError(
                f"found {n_folds} folds; nested cross-validation needs at least 3, since one is "
                "left out to test and one to choose α."
            )
        outer = [() if fold is None else (fold,) for fold in left_out]
        inner = [
            tuple(sorted({*folds, j}))
            for folds in outer
            for j in range(n_folds * several)
            if j not in folds
        ]
        sets = list(dict.fromkeys([*inner, *outer]))
        equations = normal_equations(moments, sets, self.target)
        fitted = value_weights(columns, equations, betas, alphas)
        at = [sets.index(folds) for folds in outer]
        best = np.zeros((moments.n_layers, len(outer)), dtype=np.int64)
        inner_rho = np.full((n_folds, *best.shape), np.nan)
        if several:
            scores = _inner_scores(pairs.tests, outer, sets, fitted)
            best = first_best(np.nanmean(scores, axis=0))
            # Where it was chosen, the best of many strengths scores too high.
            best_in_others = first_best(np.nansum(scores, axis=0) - scores)
            inner_rho = np.take_along_axis(scores, best_in_others[..., None], axis=-1)[..., 0]
        coef = np.take_along_axis(fitted[:, at], best[:, :, None, None], axis=2)[:, :, 0]
        predicted = np.einsum("sc,lsc->ls", equations.x_mean[at], coef)
        intercept = equations.y_mean[:, at] - predicted
        return Solution(coef, intercept, np.asarray(strengths)[best], best, inner_rho)

    def refit(self, pairs: PairStatistics, held: Solution | None = None) -> FloatArray:
        if held is None or held.choice is None:
            return super().refit(pairs)
        choices, place = np.unique(held.choice, return_inverse=True)
        n_betas = len(self.betas) if pairs.resolved else 0
        betas = [self.betas[number] for number in choices if number < n_betas]
        alphas = [self.alphas[number - n_betas] for number in choices if number >= n_betas]
        sets = [(fold,) for fold in range(pairs.n_folds)]
        equations = normal_equations(pairs.moments, sets, self.target)
        weights = value_weights(pairs.columns, equations, betas, alphas)
        at = place.reshape(held.choice.shape)[:, :, None, None]
        return np.take_along_axis(weights, at, axis=2)[:, :, 0]


def _inner_scores(
    tests: ScoredPairs,
    outer: Sequence[tuple[int, ...]],
    sets: Sequence[tuple[int, ...]],
    weights: FloatArray,
) -> FloatArray:
    """(n_folds, n_layers, n_outer, n_strengths) ρ in each fold; NaN where a set leaves it out.

    Parameters
    ----------
    outer : folds that each of n_outer training sets leaves out
    sets : folds that those sets leave out which are fitted, also without one fold more
    weights : (n_layers, n_sets, n_strengths, n_columns) of these
    """

    def tested_fold(fold: int) -> tuple[list[int], FloatArray]:
        # Every model that saw nothing of the fold, at once; some are fitted to the same pairs.
        others = [number for number, out in enumerate(outer) if fold not in out]
        if not others:
            return others, np.zeros(0)
        without = [tuple(sorted((*outer[number], fold))) for number in others]
        stacked = weights[:, [sets.index(folds) for folds in without]]
        n_layers, n_others, n_strengths, n_columns = stacked.shape
        rho = tests.folds[fold].scores(stacked.reshape(n_layers, -1, n_columns)).rho
        return others, rho.reshape(n_layers, n_others, n_strengths)

    # Threads of matrix products would wait for each other longer than these take.
    with one_thread_each():
        of_folds = each(tested_fold, range(len(tests.folds)), cores())
    example = next(rho for others, rho in of_folds if others)
    shape = (len(of_folds), len(example), len(outer), example.shape[-1])
    scores = np.full(shape, np.nan)
    for fold, (others, rho) in enumerate(of_folds):
        if others:
            scores[fold][:, others] = rho
    return scores


def first_best(scores: FloatArray) -> IntArray:
    """The first of the highest scores (..., n), up to rounding."""
    return np.argmax(scores >= scores.max(axis=-1, keepdims=True) - 1e-12, axis=-1)


# How much ρ a choice has to gain that differs from the papers'.
GAIN = 0.01


def inner_scores(
    pairs: PairStatistics, *, ranked: bool = False, by_value: bool = True
) -> FloatArray:
    """(n_folds, n_folds) ρ of ridge in each inner fold (row) of each outer one: means over layers.

    Stimuli of the outer fold have no part in it; NaN where the inner fold is the same.

    Parameters
    ----------
    pairs : statistics of n_layers layers and at least 3 folds: to test, to choose, to fit
    ranked : whether ridge is fitted to the ranks
    by_value : whether features that are coded by value count as such; else as same or different
    """
    solver = RidgeSolver("rank" if ranked else "distance")
    if not by_value and pairs.resolved:
        solver.betas = ()
    inner_rho = solver.solve(pairs, range(pairs.n_folds)).inner_rho
    assert inner_rho is not None
    return np.asarray(inner_rho.mean(axis=1))
