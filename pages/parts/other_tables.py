"""Choices of a view that need other pair tables, which are made once, in the background."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.text import listed
from pages.parts import background, choices, method, naming, stored
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.analysis.analysis import Analysis
    from mlem_core.analysis.selection import Selection

HOW = (
    "Another answer needs other pair tables, which are made once, in the background, from the "
    "representations in the store."
)


@stored.kept(64, copied=True)
def values_to_tell_apart(job_id: str) -> tuple[str, ...]:
    """The features whose values an analysis tells apart, or else had better; none may be."""
    from mlem_core.analysis.values import recommended_values

    analysis = stored.open_analysis(job_id)
    # With which estimator it is fitted is chosen beside it.
    spec = replace(analysis.spec, estimator="ridge", interactions=False)
    return analysis.tables.resolved or recommended_values(analysis.stimuli, spec)


def choose(job_id: str, analysis: Analysis) -> dict[str, Any]:
    """What is chosen other than in the analysis: entries of its `AnalysisSpec`."""
    none = not analysis.stimuli.has_missing
    missing = method.missing(
        "No value is missing here." if none else f"What an empty cell means. {HOW}",
        "cells",
        default=analysis.spec.missing,
        disabled=none,
    )
    chosen = {"missing": missing, "values": _choose_values(job_id, analysis)}
    own = {"missing": analysis.spec.missing, "values": analysis.tables.resolved}
    return {name: value for name, value in chosen.items() if value != own[name]}


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
        help=f"{method.VALUES} {HOW}" if names else method.NO_VALUES,
        disabled=not names,
    )
    return names if apart == "yes" else ()


def made(job_id: str, changes: dict[str, Any], selection: Selection) -> str | None:
    """The same analysis with other tables; None while there is none, and what is done about it.

    Parameters
    ----------
    changes : entries of its `AnalysisSpec`, see `choose`
    selection : what is kept of it
    """
    from mlem_core.analysis.manifest import same_content
    from mlem_core.estimators.registry import can_resolve
    from mlem_core.tasks import analyses

    spec = replace(stored.find_job(job_id).spec, **changes)
    if spec.values and not can_resolve(spec.estimator, spec.interactions):
        # The tables are the same for every estimator; the run would refuse its own.
        spec = replace(spec, estimator=selection.estimator, interactions=selection.interactions)
    other = analyses.find(analyses.job_id(spec), stored.store())
    if other is not None and other.status().state == "done":
        own, new = (stored.open_analysis(one).manifest["models"] for one in (job_id, other.id))
        if all(same_content(own[name], new[name]) for name in own if name in new):
            return other.id
        st.error(
            "A model has changed since this analysis, so that other tables are of another model: "
            "duplicate the analysis and run it again.",
            icon=":material/error:",
        )
        return None
    if other is None:
        other = analyses.start(spec, stored.store())
    _until_made(other.id, _named(changes))
    return None


def _named(changes: dict[str, Any]) -> str:
    parts = ["other treatment of missing values"] if "missing" in changes else []
    return listed([*parts, *(["other coding of values"] if "values" in changes else [])])


@st.fragment(run_every=0.5)
def _until_made(job_id: str, what: str) -> None:
    from mlem_core.tasks import analyses

    job = stored.find_job(job_id)
    status = job.status()
    if status.state == "done":
        st.rerun()
    with st.container(border=True):
        if status.state in ("queued", "running"):
            st.markdown(
                f"The {what} needs pair tables of its own, which are made once. Until then the "
                "figures below are those of the analysis as it was run."
            )
            background.show_progress(status, status.stages[-1:], "Starting …")
            background.offer_cancel(job, "Stops this work; the analysis stays as it is.")
            return
        if status.state == "failed":
            st.error(plain(status.message), icon=":material/error:")
        if st.button(
            "Make these tables",
            icon=":material/play_arrow:",
            key=f"start {job_id}",
            help="Makes the pair tables for this choice, in the background.",
        ):
            analyses.start(job.spec, stored.store())
            st.rerun()
