"""Table S1 and figure S5 of paper 1: the stimuli and their features."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import streamlit as st

from mlem_core.report import captions
from mlem_core.report.tables import value_counts
from pages.parts import exporting
from pages.parts.exporting import Panel
from pages.parts.view import View
from pages.parts.wording import plain


def show(view: View) -> None:
    from mlem_core import figures

    stimuli = view.analysis.stimuli
    # How features vary together is the same whatever is fitted: with ridge there is no wait.
    results = replace(
        view, selection=replace(view.selection, estimator="ridge", interactions=False)
    ).results()
    assert results is not None
    exporting.show_table(
        stimuli.table,
        "stimuli",
        plain(stimuli.name),
        f"{len(stimuli):,} stimuli. An empty cell is a missing value.",
        first=True,
        features=[feature.name for feature in stimuli.features],
    )
    st.subheader("Values of the features")
    counts = value_counts(stimuli.table, list(view.features))
    draw = partial(
        figures.feature_counts,
        stimuli.table,
        [(f.name, f.kind) for f in stimuli.features if f.name in view.features],
        [f.name for f in stimuli.features],
    )
    Panel(
        draw(),
        counts,
        "feature-counts",
        captions.feature_counts(len(stimuli)),
        narrow=partial(draw, across=2),
    ).show()
    st.subheader("Correlations between the feature distances")
    Panel(
        figures.feature_correlations(results.feature_correlations),
        results.feature_correlations.rename_axis("feature").reset_index(),
        "feature-correlations",
        captions.feature_correlations(captions.computed_on(results.n_stimuli, results.n_pairs)),
    ).show()
