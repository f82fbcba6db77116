"""Two finished analyses: what differs, and whether the second repeats the first."""

from __future__ import annotations

from functools import partial

import streamlit as st

from mlem_core.estimators.registry import estimator_named
from mlem_core.extensions.replication import comparison
from mlem_core.extensions.replication.figures import draw_importance_differences
from mlem_core.figures.naming import naming as named
from mlem_core.inference.resample import FITTED
from pages.parts import frame, opening, stored
from pages.parts.choices import plain
from pages.parts.exporting import Panel
from pages.parts.view import open_view


def offer_comparison() -> None:
    """A choice of two finished analyses, and the button that compares them."""
    done = opening.finished()
    if len(done) < 2:
        return
    names, key = stored.analysis_names(), "compared analyses"
    # One that was chosen may have been deleted since.
    st.session_state[key] = [job_id for job_id in st.session_state.get(key, []) if job_id in done]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.multiselect(
            "Compare two analyses",
            list(done),
            format_func=lambda job_id: names.get(job_id, job_id),
            max_selections=2,
            placeholder="Choose two finished analyses",
            key=key,
            help="The importances of the first less those of the second, and whether the second "
            "repeats the first.",
        )
        st.button(
            "Compare",
            icon=":material/difference:",
            key="compare analyses",
            disabled=len(chosen) != 2,
            help="Opens their differences.",
            on_click=partial(frame.open_dialog, "comparison"),
        )
    if frame.shown_dialog() == "comparison" and len(chosen) == 2:
        _show_dialog(*chosen)


@st.dialog("Two analyses", width="large", on_dismiss=frame.close_dialog)
def _show_dialog(first: str, second: str) -> None:
    frame.attempt(partial(_show_comparison, first, second))


def _show_comparison(first_id: str, second_id: str) -> None:
    """What differs, whether the result replicates, and the difference of importances."""
    first, second = open_view(first_id), open_view(second_id)
    if first is None or second is None:
        return
    both, results = (first.analysis, second.analysis), (first.results, second.results)
    st.markdown(plain(comparison.differences_in_words(*both)))
    intervals = comparison.Paired.find(*both, stored.store())
    sentences, _ = comparison.replication(both, results, intervals)
    st.markdown("\n".join(f"- {plain(sentence)}" for sentence in sentences))
    if intervals is None:
        st.caption(
            "There are intervals once both have theirs: add them in Checks, on Explore, or use "
            "`mlem replicate`."
        )
    names = stored.analysis_names()
    called = names.get(first_id, "first"), names.get(second_id, "second")
    features = list(dict.fromkeys([*first.shown().all_features, *second.shown().all_features]))
    over = "" if intervals is None else intervals.over
    with named(stored.shared_names(first_id, second_id)):
        family = comparison.importance_differences(results, intervals)
        # Their metrics are not fitted anew in the intervals.
        estimators = {view.selection.estimator: None for view in (first, second)}
        fitted = [name for name in estimators if not estimator_named(name).refitted]
        caveat = " ".join(f"{name}: {FITTED}" for name in fitted)
        drawn = draw_importance_differences(family, called, features, over, caveat)
        Panel(drawn, "importance-differences").show()
