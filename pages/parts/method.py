"""Parameters of an analysis as they are chosen on a screen, in a form and beside a view.

Beside a view some need other pair tables than the analysis has, which are made once, in the
background.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.text import listed
from pages.parts import background, choices, naming, stored

if TYPE_CHECKING:
    from mlem_core.analysis.analysis import Analysis
    from mlem_core.analysis.selection import Selection

VALUES = (
    "Whether two values of a feature only differ or not, as in the papers, or every two have a "
    "distance of their own: a noun may then be nearer to a pronoun than to a verb."
)
NO_VALUES = (
    "No feature here has values that are better told apart: it takes at least three values, and "
    "enough pairs of stimuli for each two."
)
HOW = (
    "Another answer needs other pair tables, which are made once, in the background, from the "
    "representations in the store."
)


def choose(parameter: str, name: str = "", **more: Any) -> str:
    """One of the values of a field of `AnalysisSpec`, with its label; of one that is so or not,
    "yes" or "no".

    Parameters
    ----------
    name : in the URL, where that is not the field's
    more : `default` and `help`, where they are not the field's; the rest goes to the widget
    """
    from mlem_core.analysis.spec import AnalysisSpec, parameters

    described = parameters()[parameter]
    default, labels = more.pop("default", getattr(AnalysisSpec, parameter)), described.labels
    if isinstance(default, bool):
        default, labels = "yes" if default else "no", {"no": "no", "yes": "yes"}
    more = {"help": described.text, **more}
    return choices.choose_one(described.label, labels, name or parameter, default, **more)


@stored.kept(64, copied=True)
def values_to_tell_apart(job_id: str) -> tuple[str, ...]:
    """The features whose values an analysis tells apart, or else had better; none may be."""
    from mlem_core.analysis.values import recommended_values

    analysis = stored.open_analysis(job_id)
    # With which estimator it is fitted is chosen beside it.
    spec = replace(analysis.spec, estimator="ridge", interactions=False)
    return analysis.tables.resolved or recommended_values(analysis.stimuli, spec)


def choose_tables(job_id: str, analysis: Analysis) -> dict[str, Any]:
    """What is chosen other than in the analysis: entries of its `AnalysisSpec`."""
    none = not analysis.stimuli.has_missing
    cells = choose(
        "missing",
        "cells",
        default=analysis.spec.missing,
        help="No value is missing here." if none else f"What an empty cell means. {HOW}",
        disabled=none,
    )
    chosen = {"missing": cells, "values": _choose_values(job_id, analysis)}
    as_run = {"missing": analysis.spec.missing, "values": analysis.tables.resolved}
    return {name: value for name, value in chosen.items() if value != as_run[name]}


def _choose_values(job_id: str, analysis: Analysis) -> tuple[str, ...]:
    names = values_to_tell_apart(job_id)
    told = ", ".join(map(naming.of_features(names), names))
    apart = choices.choose_one(
        "Values",
        ["no", "yes"] if names else ["no"],
        "apart",
        "yes" if analysis.tables.resolved else "no",
        format_func=lambda one: (
            f"told apart: {told}" if one == "yes" else "only whether they differ"
        ),
        help=f"{VALUES} {HOW}" if names else NO_VALUES,
        disabled=not names,
    )
    return names if apart == "yes" else ()


def other_tables(job_id: str, changes: dict[str, Any], selection: Selection) -> str | None:
    """The same analysis with other tables; None while there is none, and what is done about it.

    Parameters
    ----------
    changes : entries of its `AnalysisSpec`, see `choose_tables`
    selection : what is kept of it
    """
    from mlem_core.analysis.manifest import same_content
    from mlem_core.estimators.registry import can_resolve
    from mlem_core.tasks import analyses

    spec = replace(stored.find_job(job_id).spec, **changes)
    if spec.values and not can_resolve(spec.estimator, spec.interactions):
        # The tables are the same for every estimator; the run would refuse its own.
        spec = replace(spec, estimator=selection.estimator, interactions=selection.interactions)
    start = partial(analyses.start, spec, stored.store())
    other = analyses.find(analyses.job_id(spec), stored.store()) or start()
    if other.status().state == "done":
        before, now = (stored.open_analysis(one).manifest["models"] for one in (job_id, other.id))
        if all(same_content(before[name], now[name]) for name in before if name in now):
            return other.id
        st.error(
            "A model has changed since this analysis, so that other tables are of another model: "
            "duplicate the analysis and run it again.",
            icon=":material/error:",
        )
        return None
    with st.container(border=True):
        if other.status().state in background.UNDER_WAY:
            st.markdown(
                f"The {_named(changes)} needs pair tables of its own, which are made once. Until "
                "then the figures below are those of the analysis as it was run."
            )
        background.show_work(
            other,
            "Make these tables",
            "Makes the pair tables for this choice, in the background.",
            start,
        )
    return None


def _named(changes: dict[str, Any]) -> str:
    parts = ["other treatment of missing values"] if "missing" in changes else []
    return listed([*parts, *(["other coding of values"] if "values" in changes else [])])
