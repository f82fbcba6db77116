"""Figure 3 of paper 1: the importance of each feature over the layers of each model.

Where features correlate, permuting one alone does not tell all: other importances are below.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import streamlit as st

from mlem_core.analysis.planning import recommended_values
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures import captions
from mlem_core.figures.value_distances import table_caption
from mlem_core.inference.resample import below_ceiling
from mlem_core.measures import importance
from mlem_core.tasks.access import view_only
from pages.form.state import form_of
from pages.parts import choices, exporting, frame, stored, uncertainty
from pages.parts.choices import plain
from pages.parts.exporting import Panel
from pages.parts.opening import view_page
from pages.parts.screens import SCREENS
from pages.parts.view import View


def _show_profiles(view: View) -> None:
    """The profiles of all layers, and what else there is to say of them."""
    exporting.show_figure(view, "profiles")
    if said := below_ceiling(view.results, view.selection.estimator):
        st.caption(plain(said))
    uncertainty.offer_intervals(view)
    uncertainty.offer_chance(view)
    exporting.show_table(
        view.results.scores,
        "scores",
        "Held-out scores of each layer and fold",
        captions.scores(view.shown().coding),
    )
    for title, icon, name, body in (
        ("Features coded by value", "call_split", "values", _values),
        ("Where features correlate: left out and fitted again", "link", "correlated", _correlated),
    ):
        frame.folded_part(title, icon, name, partial(body, view))
    exporting.show_panels(view, "profiles")
    exporting.show_tab(view, "profiles")


def _values(view: View) -> None:
    """The distances of the values of a feature, a matrix a layer."""
    resolved = view.results.resolved
    if not resolved:
        _offer_by_value(view)
        return
    feature = choices.choose_one(
        "Feature",
        stored.feature_titles(resolved),
        "valued",
        view.results.most_important(resolved),
        help="Of the features that are coded by value.",
    )
    exporting.show_figure(view, "values_matrices", feature=feature)
    table = view.results.value_distances
    own = table[table["feature"] == feature]
    exporting.draw_table(own, "value-distances", table_caption(stored.names().feature(feature)))


def _offer_by_value(view: View) -> None:
    """Button that opens the form to code features by value, and what it would show."""
    analysis = view.analysis
    # With which estimator it is fitted is chosen there.
    spec = replace(analysis.spec, estimator="ridge", interactions=False)
    names = recommended_values(analysis.stimuli, spec)
    if not names:
        st.caption(
            "No feature of this analysis can be coded by value. A feature needs at least three "
            "values, and enough pairs of stimuli for each two."
        )
        return
    named = plain(", ".join(stored.feature_titles(names).values()))
    st.caption(
        f"Features are coded as same or different here. Coded by value, {named} also shows which "
        "values a layer holds together, and how far apart it puts others."
    )
    if not view_only() and st.button(
        f"Code {named} by value",
        icon=":material/call_split:",
        help="Opens New analysis with all choices of this one, and this coding.",
    ):
        choices.put_all(form_of(analysis.spec) | {"values": list(names)})
        st.switch_page(SCREENS["new"].file)


def _correlated(view: View) -> None:
    """Importance where features correlate: what permuting one feature alone does not tell."""
    selection = view.selection
    if estimator_named(selection.estimator).slow:
        st.caption("They are computed with ridge: run the analysis with it.")
        return
    pairs = view.analysis.pairs_of(selection)
    weights = importance.fitted(pairs, selection.estimator)[0].weights
    correlated = importance.correlated_features(pairs, weights)
    warning = importance.warning(correlated, stored.names())
    st.caption(plain(warning or "What these features predict correlates by less than 0.3."))
    with st.spinner("Computing the importances …"):
        panel = Panel.of(view, "importance_left_out", "importance-left-out")
    if panel is not None:
        panel.show()


view_page(__file__, _show_profiles)
