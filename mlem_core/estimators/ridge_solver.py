"""Non-negative ridge regression on the moments of pairs, as the pipeline calls it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlem_core.base.errors import check_choice
from mlem_core.base.typing import FloatArray
from mlem_core.estimators.normal_equations import NOT_APART, ridge_weights
from mlem_core.estimators.registry import Solution, Solver, check_numbers
from mlem_core.estimators.ridge_of_moments import ALPHAS as ALPHAS
from mlem_core.estimators.ridge_of_moments import BETAS as BETAS
from mlem_core.estimators.ridge_of_moments import (
    fit_ridge,
    normal_equations,
    penalty_matrices,
    value_weights,
)
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.pairs.statistics import PairStatistics

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
        """Fit every layer on several training sets, each with its own α (or β).

        As `mlem_core.estimators.ridge_of_moments.fit_ridge`, which raises too.
        """
        fit = fit_ridge(
            pairs.moments,
            pairs.tests,
            left_out,
            target=self.target,
            alphas=self.alphas,
            betas=self.betas,
        )
        return Solution(fit.coef, fit.intercept, fit.alpha, fit.choice, fit.inner_rho)

    def refit(self, pairs: PairStatistics, held: Solution | None = None) -> FloatArray:
        if held is None or held.choice is None:
            return super().refit(pairs)
        choices, place = np.unique(held.choice, return_inverse=True)
        n_betas = len(self.betas) if pairs.resolved else 0
        betas = [self.betas[number] for number in choices if number < n_betas]
        alphas = [self.alphas[number - n_betas] for number in choices if number >= n_betas]
        sets = [(fold,) for fold in range(pairs.n_folds)]
        equations = normal_equations(pairs.moments, sets, self.target)
        if pairs.resolved:
            weights = value_weights(pairs.columns, equations, betas, alphas)
        else:
            weights = ridge_weights(equations, penalty_matrices(pairs.columns, alphas))
        at = place.reshape(held.choice.shape)[:, :, None, None]
        return np.take_along_axis(weights, at, axis=2)[:, :, 0]


# One fold to test, one to choose, one to fit.
FEWEST_TO_CHOOSE = 3
# How much ρ a choice has to gain that differs from the papers'.
GAIN = 0.01


def inner_scores(pairs: PairStatistics, *, ranked: bool = False, by_value: bool = True) -> float:
    """Mean ρ over the inner folds of ridge, over all layers and outer folds.

    Parameters
    ----------
    pairs : statistics of n_layers layers and at least `FEWEST_TO_CHOOSE` folds
    ranked : whether ridge is fitted to the ranks
    by_value : whether features that are coded by value count as such; else as same or different
    """
    fit = fit_ridge(
        pairs.moments,
        pairs.tests,
        range(pairs.n_folds),
        target="rank" if ranked else "distance",
        betas=BETAS if by_value or not pairs.resolved else (),
    )
    return float(fit.inner_rho.mean())
