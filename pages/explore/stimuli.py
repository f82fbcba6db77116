"""Table S1 and figure S5 of paper 1: the stimuli and their features."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from pages.parts import exporting
from pages.parts.exporting import Panel
from pages.parts.view import View
from pages.parts.wording import plain


def show(view: View) -> None:
    stimuli = view.analysis.stimuli
    exporting.show_table(
        stimuli.table,
        "stimuli",
        plain(stimuli.name),
        f"{len(stimuli):,} stimuli. An empty cell is a missing value.",
        first=True,
        features=[feature.name for feature in stimuli.features],
    )
    # How features vary together is the same whatever is fitted: with ridge there is no wait.
    quick = replace(view.selection, estimator="ridge", interactions=False)
    for figure, title in (
        ("feature_counts", "Values of the features"),
        ("feature_correlations", "Correlations between the feature distances"),
    ):
        st.subheader(title)
        panel = Panel.of(replace(view, selection=quick), figure)
        assert panel is not None
        panel.show()
