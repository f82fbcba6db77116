"""Figure 3 of paper 1: the importance of each feature over the layers of each model.

Where features correlate, permuting one alone does not tell all: other importances are below.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.report import captions
from pages.explore import methods, values
from pages.parts import choices, exporting, frame, naming, uncertainty
from pages.parts.exporting import Panel
from pages.parts.wording import plain

if TYPE_CHECKING:
    from pages.parts.view import View

WAYS = {
    "conditional": "permuted among pairs that agree on all other features",
    "left_out": "left out, and the model fitted without it",
    "group": "permuted together with others",
}


def show_profiles(view: View) -> None:
    """The profiles of all layers, and what else there is to say of them."""
    results = view.results()
    panel = Panel.of(view, "profiles")
    if results is None or panel is None:
        return
    panel.show()
    uncertainty.offer_intervals(view)
    exporting.show_table(
        results.scores,
        "scores",
        "Held-out scores of each layer and fold",
        captions.scores(view.coding),
    )
    frame.folded(
        values.TITLE,
        ":material/call_split:",
        "values",
        partial(values.show_in_layers, view, results),
    )
    frame.folded(
        "Where features correlate: other importances",
        ":material/link:",
        "correlated",
        partial(_correlated, view),
    )
    methods.show_methods(view)


def _correlated(view: View) -> None:
    """Importance where features correlate: what permuting one feature alone does not tell."""
    from mlem_core.estimators.registry import estimator_named
    from mlem_core.measures import correlated

    found = correlated.correlated_features(view.analysis.tables.of_features(view.features))
    said = correlated.warning(found, naming.now())
    st.caption(plain(said or "No two of these features correlate by 0.3 or more."))
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
