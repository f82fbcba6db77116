"""Parameters of an analysis as they are chosen on a screen, in a form and beside a view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pages.parts import choices

MISSING_NAMES = {"ignore": "no distance to any value", "level": "a value of its own"}


VALUES = (
    "Whether two values of a feature only differ or not, as in the papers, or every two have a "
    "distance of their own: a noun may then be nearer to a pronoun than to a verb."
)
NO_VALUES = (
    "No feature here has values that are better told apart: it takes at least three values, and "
    "enough pairs of stimuli for each two."
)


def choose(
    parameter: str, help: str, name: str = "", *, label: Callable[[str], str] = str, **more: Any
) -> str:
    """One of the values of a field of `AnalysisSpec`.

    Parameters
    ----------
    name : in the URL, where that is not the field's
    label : gives what the screen calls a value
    more : `default`, where that is not the field's; the rest goes to the widget
    """
    from mlem_core.analysis.spec import AnalysisSpec, parameters

    described = parameters()[parameter]
    assert described.choices is not None
    default = more.pop("default", getattr(AnalysisSpec, parameter))
    options = list(described.choices())
    more |= {"help": help, "format_func": label}
    return choices.choose_one(described.label, options, name or parameter, default, **more)


def estimator(name: str = "", **more: Any) -> str:
    """The estimator; `name` and `more` as in `choose`."""
    from mlem_core.estimators.registry import ESTIMATORS

    help = (
        "How the metric model is fitted. Ridge is the first paper's; the code released with the "
        "second ends at its weights (profiles correlate at .999), because its soft ranks are in "
        "effect the values. spearman reaches what the second paper states: the highest rank "
        "correlation."
    )
    return choose("estimator", help, name, label=lambda one: ESTIMATORS[one].label, **more)


def interactions(name: str, default: bool = False) -> bool:
    """Whether products of two features are weighed."""
    chosen = choices.choose_one(
        "Interactions",
        ["no", "yes"],
        name,
        "yes" if default else "no",
        help="Whether the metric model weighs products of two features too; importances then "
        "have a line for each.",
    )
    return chosen == "yes"


def missing(help: str, name: str = "", **more: Any) -> str:
    """The policy for missing values; `name` and `more` as in `choose`."""
    return choose("missing", help, name, label=lambda one: MISSING_NAMES.get(one, one), **more)
