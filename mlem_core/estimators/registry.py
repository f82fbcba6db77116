"""Estimators: their interface to the pipeline, and one entry each, which everything else reads.

An estimator fits the statistics of pairs, cross-validated. The classes themselves are imported when
a model is made: scikit-learn takes seconds, and the command line's help or a form needs names only;
`mlem_core.estimators.base` adds its API.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores, each
from mlem_core.base.parameters import Registry
from mlem_core.base.text import listed
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.extending import Reference, entry_modules, resolve
from mlem_core.pairs.columns import AUTO
from mlem_core.pairs.scored_pairs import feature_ceilings
from mlem_core.pairs.statistics import PairStatistics

LARGE = 2**20  # threads for fewer numbers would only wait


@dataclass(frozen=True)
class FoldFits:
    """Metric models of n_layers layers, one a fold, each tested on that fold's pairs.

    weights : (n_layers, n_folds, n_columns), see `mlem_core.pairs.pair_columns.PairColumns`
    alpha, rho, rho_a, ceiling : (n_layers, n_folds); ρ, ρ_a and the cross-fitted feature ceiling
        (see `mlem_core.pairs.scored_pairs.feature_ceilings`) are held-out; α is NaN where the
        estimator has none
    """

    weights: FloatArray
    alpha: FloatArray
    rho: FloatArray
    rho_a: FloatArray
    ceiling: FloatArray


def tested_fits(
    pairs: PairStatistics, weights: FloatArray, alpha: FloatArray | None = None
) -> FoldFits:
    """Held-out scores of weights (n_layers, n_folds, n_columns), each fold's on its own pairs."""
    size = sum(fold.rank_sums.size for fold in pairs.tests.folds)
    threads = cores() if size > LARGE else 1
    scores = each(
        lambda k: pairs.tests.folds[k].scores(weights[:, k, None]), range(pairs.n_folds), threads
    )
    return FoldFits(
        weights=weights,
        alpha=np.full(weights.shape[:2], np.nan) if alpha is None else alpha,
        rho=np.concatenate([score.rho for score in scores], axis=1),
        rho_a=np.concatenate([score.rho_a for score in scores], axis=1),
        ceiling=feature_ceilings(pairs.tests),
    )


@dataclass(frozen=True)
class Solution:
    """Metrics of n_layers layers, one for each of n_sets training sets.

    coef : (n_layers, n_sets, n_columns)
    intercept : (n_layers, n_sets), or None where the model has none
    alpha : (n_layers, n_sets) the penalty that was chosen, or None where there is none
    choice : (n_layers, n_sets) its number among those to choose from, or None
    inner_rho : (n_folds, n_layers, n_sets) ρ in each fold of the training set with what is best in
        its other ones, NaN in the folds that it leaves out; or None
    """

    coef: FloatArray
    intercept: FloatArray | None = None
    alpha: FloatArray | None = None
    choice: IntArray | None = None
    inner_rho: FloatArray | None = None


class Solver(ABC):
    """Metrics that are fitted on the statistics of pairs; a subclass says how in `solve`.

    `cross_validate` is what an analysis calls, for all of its layers at once.

    needs_pairs : whether `solve` needs the pairs of the training sets
        (`mlem_core.estimators.training_pairs.TrainingPairs`) beside their statistics
    """

    needs_pairs: bool = False

    def check(self) -> None:  # noqa: B027 (most have nothing to check)
        """Raise InputError for a parameter that cannot be used, before anything is computed."""

    @abstractmethod
    def solve(
        self,
        pairs: PairStatistics,
        left_out: Sequence[int | None],
        training_pairs: TrainingPairs | None = None,
    ) -> Solution:
        """Fit every layer on several training sets.

        Parameters
        ----------
        pairs : they decide which columns are weighed; the parameters `interactions`, `distance` and
            `missing` have had their effect
        left_out : for each training set the fold whose stimuli are in none of its pairs; None for
            all pairs
        training_pairs : of the same layers and columns, where `needs_pairs`

        Raises InputError: there are no training pairs where they are needed.
        """

    def refit(self, pairs: PairStatistics, held: Solution | None = None) -> FloatArray:
        """Weights (n_layers, n_folds, n_columns), fitted without each fold.

        `held` is of other stimuli, whose penalties are kept, if there are any; None chooses them.
        """
        self.check()
        return self.solve(pairs, range(pairs.n_folds)).coef

    def cross_validate(
        self, pairs: PairStatistics, training_pairs: TrainingPairs | None = None
    ) -> FoldFits:
        """Fit every layer once a fold, on the pairs that leave out the fold, and test it there.

        Raises InputError: a parameter that cannot be used; as `solve`.
        """
        self.check()
        solution = self.solve(pairs, range(pairs.n_folds), training_pairs)
        return tested_fits(pairs, solution.coef, solution.alpha)


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
    several = isinstance(values, Sequence | np.ndarray | pd.Series) and not isinstance(values, str)
    if not several or len(values) == 0:
        raise InputError(f"{name} is {values!r:.60}; expected a list of one or more numbers.")
    for at, value in enumerate(values):
        check_number(f"{name}[{at}]", value, least, below)


@dataclass(frozen=True)
class EstimatorSpec:
    """An estimator as the pipeline, the screens, the command line and the archive know it.

    Attributes
    ----------
    name : what a user calls it
    model : makes the unfitted estimator, whose `cross_validate` the pipeline calls; a class derived
        from `mlem_core.estimators.base.TableModel` will do
    label : one line for forms and help texts
    caption : how it is named in "Fitted with ..." below a figure
    sentence : how it is named in "was fitted by ..." of the methods paragraph
    constrained : the metric is one: its weights are at least 0, its matrix positive definite
    reference : key of its paper in `mlem_core.report.methods`, or ""
    slow : takes about a second a layer: screens fit it in the background and cache the fits
    resolves : takes features that are resolved by value
    refitted : intervals of its scores are those of metrics that are fitted anew without each block
    of_pairs : fitted to single pairs of stimuli, see `Solver.needs_pairs`
    needs : the package that it needs beside those of the program, or ""
    among : the estimators that it stands for; each fold of an analysis has one of them, chosen by
        its training stimuli; see `mlem_core.analysis.planning`
    """

    name: str
    model: Callable[[], Solver]
    label: str
    caption: str
    sentence: str
    constrained: bool = False
    reference: str = ""
    slow: bool = False
    refitted: bool = False
    resolves: bool = False
    of_pairs: bool = False
    needs: str = ""
    among: tuple[str, ...] = ()

    def constraint(self, interactions: bool) -> str:
        """The words that follow the sentence and say how weights are constrained; or none."""
        if not self.constrained:
            return ""
        weights = "a symmetric positive definite matrix of weights"
        return f", with {weights if interactions else 'weights of at least 0'}"


def unfitted(place: Reference, **parameters: str) -> Solver:
    """Unfitted estimator of a class at a place, which is imported now."""
    solver: Solver = resolve(place)(**parameters)
    return solver


ESTIMATORS = Registry[EstimatorSpec]("estimator", entry_modules)
register = ESTIMATORS.register
estimator_named = ESTIMATORS.named


def check_installed(name: str) -> None:
    """Raise InputError where a package that an estimator needs is not installed."""
    needs = estimator_named(name).needs
    if needs and find_spec(needs) is None:
        raise InputError(
            f"the estimator {name} needs the package {needs}, which is not installed: "
            f"requirements-{needs}.txt says how to install it; or choose another estimator."
        )


def check_values(name: str, resolved: Sequence[str], interactions: bool) -> None:
    """Raise InputError where an estimator cannot take features that are resolved by value.

    Raises as `check_installed` too.
    """
    check_installed(name)
    if not resolved or tuple(resolved) == AUTO:
        return
    if interactions:
        raise InputError(
            f"found {listed(resolved)} coded by value, and interactions; these need features "
            "that are coded as same or different, so choose one of the two."
        )
    if not estimator_named(name).resolves:
        can = [
            other
            for other, entry in ESTIMATORS.items()
            if entry.resolves and not entry.needs and not entry.among
        ]
        raise InputError(
            f"the estimator {name} needs features that are coded as same or different, and "
            f"{listed(resolved)} is coded by value; choose {listed(can, last='or')}, or no values."
        )


_RIDGE = "mlem_core.estimators.ridge_solver:RidgeSolver"
for _spec in (
    EstimatorSpec(
        name="auto",
        model=partial(unfitted, _RIDGE),
        label="auto: ridge, or ridge on ranks where inner cross-validation prefers it",
        caption="ridge or ridge on ranks",
        sentence="non-negative ridge regression on squared distances or on their ranks",
        resolves=True,
        among=("ridge", "ridge-rank"),
    ),
    EstimatorSpec(
        name="ridge",
        # Not RidgeMLEM: an analysis does not wait for scikit-learn.
        model=partial(unfitted, _RIDGE),
        label="ridge: least squares, as in the first paper and, in effect, the code of the second",
        caption="non-negative ridge regression",
        sentence="non-negative ridge regression with an intercept on the squared neural distance, "
        "scaled to [0, 1] over the training pairs",
        reference="salle2024",
        refitted=True,
        resolves=True,
    ),
    EstimatorSpec(
        name="ridge-rank",
        model=partial(unfitted, _RIDGE, target="rank"),
        label="ridge on the ranks of the distances",
        caption="ridge on ranks",
        sentence="non-negative ridge regression with an intercept on the ranks of the neural "
        "distances",
        refitted=True,
        resolves=True,
    ),
):
    register(_spec)
