"""The estimators by name: one entry each, which everything else reads.

The classes themselves are imported when a model is made: scikit-learn takes seconds, and the
command line's help or a form needs names only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mlem_core.base.errors import InputError
from mlem_core.base.parameters import Registry
from mlem_core.base.text import listed
from mlem_core.pairs.columns import AUTO

if TYPE_CHECKING:
    from mlem_core.estimators.solver import Solver


@dataclass(frozen=True)
class EstimatorSpec:
    """An estimator as the pipeline, the screens, the command line and the capsule know it.

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
    refitted : can be fitted again to every replicate of a bootstrap or jackknife. It must be fast
        and do without ranks, among all pairs or among training pairs
    needs : the package that it needs beside those of the program, or "". What takes all estimators
        takes those that need none
    among : the estimators that it stands for; an analysis has one of them, chosen before anything
        is scored; see `mlem_core.analysis.defaults`
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
    needs: str = ""
    among: tuple[str, ...] = ()

    def constraint(self, interactions: bool) -> str:
        """The words that follow the sentence and say how weights are constrained; or none."""
        if not self.constrained:
            return ""
        weights = "a symmetric positive definite matrix of weights"
        return f", with {weights if interactions else 'weights of at least 0'}"


def _model(module: str, name: str, **parameters: str) -> Solver:
    """An unfitted estimator of a module of this package, which is imported now."""
    solver: Solver = getattr(import_module(f"mlem_core.estimators.{module}"), name)(**parameters)
    return solver


ESTIMATORS = Registry[EstimatorSpec]("estimator")
register = ESTIMATORS.register
estimator_named = ESTIMATORS.named


def check_installed(name: str) -> None:
    """Raise InputError where a package that an estimator needs is not installed."""
    needs = estimator_named(name).needs
    if needs and find_spec(needs) is None:
        raise InputError(
            f"the estimator {name} needs the package {needs}, which is not installed: "
            f"requirements-{needs}.txt says how to install it; or choose spearman."
        )


def every_estimator() -> list[str]:
    """The names of the estimators that need no further package, without those that choose one."""
    return [name for name, one in ESTIMATORS.items() if not one.needs and not one.among]


def can_resolve(name: str, interactions: bool) -> bool:
    """Whether an estimator takes features that are resolved by value."""
    return estimator_named(name).resolves and not interactions


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
        can = [one for one in every_estimator() if ESTIMATORS[one].resolves]
        raise InputError(
            f"the estimator {name} needs features that are coded as same or different, and "
            f"{listed(resolved)} is coded by value; choose {listed(can, last='or')}, or no values."
        )


for _spec in (
    EstimatorSpec(
        name="auto",
        model=partial(_model, "ridge_solver", "ChoosingSolver"),
        label="auto: ridge, or ridge on ranks where inner cross-validation prefers it",
        caption="ridge or ridge on ranks",
        sentence="non-negative ridge regression on squared distances or on their ranks",
        resolves=True,
        among=("ridge", "ridge-rank"),
    ),
    EstimatorSpec(
        name="ridge",
        # Not RidgeMLEM: an analysis does not wait for scikit-learn.
        model=partial(_model, "ridge_solver", "RidgeSolver"),
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
        model=partial(_model, "ridge_solver", "RidgeSolver", target="rank"),
        label="ridge on the ranks of the distances",
        caption="ridge on ranks",
        sentence="non-negative ridge regression with an intercept on the ranks of the neural "
        "distances among the training pairs",
        resolves=True,
    ),
    EstimatorSpec(
        name="spearman",
        model=partial(_model, "spearman", "SpearmanMLEM"),
        label="spearman: the highest rank correlation, the aim stated in the second paper",
        caption="estimator spearman",
        sentence="maximising the rank correlation ρ_a with the neural distances over the training "
        "pairs",
        constrained=True,
        reference="jalouzot2024",
        slow=True,
    ),
    EstimatorSpec(
        name="frrsa",
        model=partial(_model, "spearman", "FRRSA"),
        label="FR-RSA: the same without constraints",
        caption="estimator frrsa",
        sentence="maximising the rank correlation ρ_a with the neural distances over the training "
        "pairs, the weights free (feature-reweighted RSA)",
        slow=True,
    ),
    EstimatorSpec(
        name="soft-rank",
        model=partial(_model, "spearman", "SoftRankMLEM"),
        label="soft-rank: the recipe of the second paper, which takes minutes a model",
        caption="estimator soft-rank",
        sentence="gradient ascent on the correlation of soft ranks of the predictions with the "
        "ranks of the neural distances, over batches of training pairs",
        constrained=True,
        reference="jalouzot2024",
        slow=True,
        needs="torchsort",
    ),
):
    register(_spec)
