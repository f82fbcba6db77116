"""Parameters of an analysis as they are chosen on a screen, in a form and beside a view."""

from __future__ import annotations

from typing import Any

from pages.parts import choices

VALUES = (
    "Whether two values of a feature only differ or not, as in the papers, or every two have a "
    "distance of their own: a noun may then be nearer to a pronoun than to a verb."
)
NO_VALUES = (
    "No feature here has values that are better told apart: it takes at least three values, and "
    "enough pairs of stimuli for each two."
)


def choose(parameter: str, help: str = "", name: str = "", **more: Any) -> str:
    """One of the values of a field of `AnalysisSpec`, with the label and the choices of it.

    Parameters
    ----------
    help : where it is not the field's
    name : in the URL, where that is not the field's
    more : `default`, where that is not the field's; the rest goes to the widget
    """
    from mlem_core.analysis.spec import AnalysisSpec, parameters

    described = parameters()[parameter]
    default, labels = more.pop("default", getattr(AnalysisSpec, parameter)), described.labels
    more |= {"help": help or described.text, "format_func": lambda one: labels.get(one, one)}
    return choices.choose_one(described.label, list(labels), name or parameter, default, **more)


def estimator(name: str = "", **more: Any) -> str:
    """The estimator; `name` and `more` as in `choose`."""
    return choose("estimator", "", name, **more)


def interactions(name: str, default: bool = False) -> bool:
    """Whether products of two features are weighed."""
    from mlem_core.analysis.spec import parameters

    described, now = parameters()["interactions"], "yes" if default else "no"
    chosen = choices.choose_one(described.label, ["no", "yes"], name, now, help=described.text)
    return chosen == "yes"


def missing(help: str, name: str = "", **more: Any) -> str:
    """The policy for missing values; `name` and `more` as in `choose`."""
    return choose("missing", help, name, **more)
