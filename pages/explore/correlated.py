"""Importance where features correlate: what permuting one feature alone does not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import choices, frame, naming
from pages.parts.exporting import Panel
from pages.parts.wording import plain

if TYPE_CHECKING:
    from pages.parts.view import View

WAYS = {
    "conditional": "permuted among pairs that agree on all other features",
    "left_out": "left out, and the model fitted without it",
    "group": "permuted together with others",
}


def warning(view: View) -> str:
    """Which of the shown features correlate, in words; empty where none do."""
    from mlem_core.measures import correlated

    tables = view.analysis.tables.of_features(view.features)
    return correlated.warning(correlated.correlated_features(tables), naming.now())


def show(view: View) -> None:
    """The other importances, of the layers that are shown; folded away."""
    frame.folded(
        "Where features correlate: other importances",
        ":material/link:",
        "correlated",
        lambda: _show(view),
    )


def _show(view: View) -> None:
    from mlem_core.estimators.registry import estimator_named

    st.caption(plain(warning(view) or "No two of these features correlate by 0.3 or more."))
    if estimator_named(view.selection.estimator).slow:
        st.caption("They are computed with ridge; choose it in the sidebar.")
        return
    way = choices.choose_one(
        "The feature is",
        list(WAYS),
        "way",
        "conditional",
        format_func=lambda one: WAYS[one],
        help="Another question than what permuting it alone answers.",
    )
    group: list[str] = []
    if way == "group":
        group = choices.choose_many(
            "Features", view.features, "group", view.features[:2],
            format_func=naming.of_features(view.features),
            help="They are permuted together.",
        )  # fmt: skip
        if not group:
            st.info("Choose at least one feature.", icon=":material/info:")
            return
    with st.spinner("Computing the importances …"):
        panel = Panel.of(view, f"importance_{way}", f"importance-{way}", group="\n".join(group))
    if panel is not None:
        panel.show()
