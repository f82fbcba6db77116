"""Figure 3 of paper 1: the importance of each feature over the layers of each model.

Where features correlate, permuting one alone does not tell all: other importances are below.
"""

from __future__ import annotations

from functools import partial

import streamlit as st

from mlem_core.estimators.registry import estimator_named
from mlem_core.figures import captions
from mlem_core.inference.resample import ceiling_caveats
from mlem_core.measures import importance
from pages.parts import exporting, frame, stored, uncertainty
from pages.parts.choices import plain
from pages.parts.exporting import Panel
from pages.parts.opening import view_page
from pages.parts.view import View


def _show_profiles(view: View) -> None:
    """The profiles of all layers, and what else there is to say of them."""
    exporting.show_figure(view, "profiles")
    if sentence := ceiling_caveats(view.results, view.selection.estimator):
        st.caption(plain(sentence))
    uncertainty.offer_intervals(view)
    uncertainty.offer_chance(view)
    exporting.show_table(
        view.results.scores,
        "scores",
        "Held-out scores of each layer and fold",
        captions.scores(view.shown().coding),
    )
    title = "Where features correlate: left out and fitted again"
    frame.folded_part(title, "link", "correlated", partial(_correlated, view))
    exporting.show_panels(view, "profiles")
    exporting.show_tab(view, "profiles")


def _correlated(view: View) -> None:
    """Importance where features correlate: what permuting one feature alone does not tell."""
    selection = view.selection
    if estimator_named(selection.estimator).slow:
        st.caption("They are computed with ridge: run the analysis with it.")
        return
    pairs = view.analysis.compute_pairs(selection)
    weights = importance.fitted(pairs, selection.estimator)[0].weights
    warning = importance.correlation_warning(pairs, weights, stored.names())
    st.caption(plain(warning or "What these features predict correlates by less than 0.3."))
    with st.spinner("Computing the importances …"):
        panel = Panel.from_view(view, "importance_left_out", "importance-left-out")
    if panel is not None:
        panel.show()


view_page("profiles", _show_profiles)
