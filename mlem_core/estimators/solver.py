"""Interface of every estimator to the pipeline: fits of pair tables, cross-validated.

Nothing here needs scikit-learn, which takes a second to import; `mlem_core.estimators.base` adds
its API.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import each, if_large
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.crossfit import fold_ceilings
from mlem_core.pairs.ranks import Score, few_at_once, score_patterns
from mlem_core.pairs.tables import PairTables


@dataclass(frozen=True)
class FoldFits:
    """Metric models of n_layers layers, one a fold, each tested on that fold's pairs.

    weights : (n_layers, n_folds, n_columns), see `mlem_core.pairs.terms.Columns`
    alpha, rho, rho_a, ceiling : (n_layers, n_folds); ρ, ρ_a and the cross-fitted feature ceiling
        (see `mlem_core.pairs.crossfit.fold_ceilings`) are held-out; α is NaN where the estimator
        has none
    """

    weights: FloatArray
    alpha: FloatArray
    rho: FloatArray
    rho_a: FloatArray
    ceiling: FloatArray


def held_out_scores(tables: PairTables, weights: FloatArray, fold: int, series: int = 1) -> Score:
    """ρ and ρ_a (n_layers, n_predictions) of weights on the pairs inside a fold.

    Weights are (n_layers, n_predictions, n_columns); `series` as in
    `mlem_core.pairs.ranks.score_patterns`.
    """
    inside = tables.inside(fold)
    rho, rho_a = np.empty(weights.shape[:2]), np.empty(weights.shape[:2])
    for layers, parts in inside.by_support(weights):
        pairs, used = inside.only(layers, parts), weights[layers][:, :, inside.columns_of(parts)]
        for at in few_at_once(len(layers), used.shape[1] * len(pairs.counts)):
            predicted = pairs.terms.predictions(used[at])
            rho[layers[at]], rho_a[layers[at]] = score_patterns(
                predicted, pairs.counts, pairs.rank_sums[at], pairs.rank_squares[at], series
            )
    return Score(rho, rho_a)


def tested_fits(
    tables: PairTables, weights: FloatArray, alpha: FloatArray | None = None
) -> FoldFits:
    """Held-out scores of weights (n_layers, n_folds, n_columns), each fold's on its own pairs."""
    n_folds = tables.n_folds
    threads = if_large(tables.within_sums.size)
    scores = each(
        lambda k: held_out_scores(tables, weights[:, k, None], k), range(n_folds), threads
    )
    return FoldFits(
        weights=weights,
        alpha=np.full(weights.shape[:2], np.nan) if alpha is None else alpha,
        rho=np.concatenate([score.rho for score in scores], axis=1),
        rho_a=np.concatenate([score.rho_a for score in scores], axis=1),
        ceiling=fold_ceilings(tables),
    )


@dataclass(frozen=True)
class Solution:
    """Metrics of n_layers layers, one for each of n_sets training sets.

    coef : (n_layers, n_sets, n_columns)
    intercept : (n_layers, n_sets), or None where the model has none
    alpha : (n_layers, n_sets) the penalty that was chosen, or None where there is none
    choice : (n_layers, n_sets) its number among those to choose from, or None
    """

    coef: FloatArray
    intercept: FloatArray | None = None
    alpha: FloatArray | None = None
    choice: IntArray | None = None


class Solver(ABC):
    """Metrics that are fitted on pair tables; a subclass says how in `solve`.

    `cross_validate` is what an analysis calls, for all of its layers at once.
    """

    @property
    def needs_training_ranks(self) -> bool:
        """Whether `solve` uses the ranks among the training pairs of each fold."""
        return False

    def check(self) -> None:  # noqa: B027 (most have nothing to check)
        """Raise InputError for a parameter that cannot be used, before anything is computed."""

    @abstractmethod
    def solve(self, tables: PairTables, left_out: Sequence[int | None]) -> Solution:
        """Fit every layer on several training sets.

        Parameters
        ----------
        tables : they decide which terms are weighed; the parameters `interactions`, `distance` and
            `missing` have had their effect
        left_out : for each training set the fold whose stimuli are in none of its pairs; None for
            all pairs
        """

    def refit(self, tables: PairTables, held: Solution | None = None) -> FloatArray:
        """Weights (n_layers, n_folds, n_columns), fitted without each fold.

        Parameters
        ----------
        held : of other stimuli, whose penalties are kept, where there are any; None chooses them
        """
        self.check()
        return self.solve(tables, range(tables.n_folds)).coef

    def cross_validate(self, tables: PairTables) -> FoldFits:
        """Fit every layer once a fold, on the pairs that leave out the fold, and test it there.

        Raises InputError: a parameter that cannot be used; ranks among training pairs that the
        tables lack.
        """
        self.check()
        solution = self.solve(tables, range(tables.n_folds))
        return tested_fits(tables, solution.coef, solution.alpha)


def check_number(
    name: str, value: Any, least: float, below: float = np.inf, whole: bool = False
) -> None:
    """Raise InputError for a parameter that is no number from `least` to below another."""
    types = int | np.integer if whole else int | float | np.integer | np.floating
    if isinstance(value, bool) or not (isinstance(value, types) and least <= value < below):
        until = "" if below == np.inf else f" and below {below:,.12g}"
        raise InputError(
            f"{name} is {value!r:.60}; expected a {'whole' if whole else 'finite'} number of at "
            f"least {least:g}{until}."
        )


def check_numbers(name: str, values: Any, least: float, below: float = np.inf) -> None:
    """Raise InputError for a parameter that is no list of one or more such numbers."""
    if not isinstance(values, Sequence | np.ndarray | pd.Series) or isinstance(values, str):
        raise InputError(f"{name} is {values!r:.60}; expected a list of numbers.")
    if len(values) == 0:
        raise InputError(f"{name} is empty; expected a list of one or more numbers.")
    for at, value in enumerate(values):
        check_number(f"{name}[{at}]", value, least, below)
