"""How the metric model is fitted: the choices of a new analysis, and of what a view shows."""

from __future__ import annotations

from typing import Any

from pages.parts import choices

MISSING_NAMES = {"ignore": "no distance to any value", "level": "a value of its own"}


def estimator(name: str, default: str) -> str:
    """The estimator; `name` is that of the choice in the URL."""
    from mlem_core.estimators.registry import ESTIMATORS

    return choices.choose_one(
        "Estimator",
        list(ESTIMATORS),
        name,
        default,
        format_func=lambda one: ESTIMATORS[one].label,
        help="How the metric model is fitted: ridge as in the first paper, the highest rank "
        "correlation as in the second.",
    )


def interactions(name: str, default: bool) -> bool:
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


def missing(name: str, default: str, help: str, **more: Any) -> str:
    """The policy for missing values."""
    from mlem_core.pairs.patterns import MISSING

    return choices.choose_one(
        "Missing values",
        MISSING,
        name,
        default,
        format_func=lambda one: MISSING_NAMES.get(one, one),
        help=help,
        **more,
    )
