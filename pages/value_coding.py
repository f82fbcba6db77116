"""The part of the importance profiles on features that are coded by value."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from mlem_core.analysis.planning import recommended_values
from mlem_core.extensions.value_coding.computation import FILE
from mlem_core.extensions.value_coding.figures import table_caption
from mlem_core.tasks.access import view_only
from pages.form.state import form_state
from pages.parts import choices, exporting, stored
from pages.parts.choices import plain
from pages.parts.screens import SCREENS
from pages.parts.view import View


def show_values(view: View) -> None:
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
    table = view.results.added_tables[FILE]
    rows = table[table["feature"] == feature]
    exporting.draw_table(rows, "value-distances", table_caption(stored.names().feature(feature)))


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
        choices.put_all(form_state(analysis.spec) | {"values": list(names)})
        st.switch_page(SCREENS["new"].file)
