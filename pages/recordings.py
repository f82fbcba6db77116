"""The part of the importance profiles on models beside a group of subjects."""

from __future__ import annotations

import streamlit as st

from mlem_core.extensions.recordings.figures import MOST_BARS, MOST_PANELS, has_bars
from mlem_core.extensions.recordings.stage import find_comparison
from pages.parts import choices, exporting, stored, uncertainty
from pages.parts.choices import plain
from pages.parts.view import View

_CAPTION = "Intervals and tests are over subjects and stimuli; p_corrected is by Holm."


def show_models(view: View) -> None:
    """RSA of each model with the subjects, the noise ceiling, and the distances as matrices."""
    comparison = find_comparison(view.shown())
    if comparison is None:
        st.caption("No group of two subjects or more is among the layers that are shown.")
        return
    st.markdown("\n".join(f"- {plain(line)}" for line in comparison.sentences))
    uncertainty.offer_intervals(view)
    models, pairs = comparison.models, comparison.differences
    exporting.show_figure(view, "model_comparison")
    if not has_bars(comparison):
        st.caption(
            f"Bars are drawn for up to {MOST_PANELS} regions and {MOST_BARS} models; the table has "
            "all. Leave out models or layers."
        )
    exporting.show_table(models, "model-ceilings", "Models and noise ceilings", _CAPTION)
    if not pairs.empty:
        exporting.show_table(pairs, "model-differences", "Differences of models", _CAPTION)
    features = list(view.selection.features)
    feature = choices.choose_one(
        "Order of the stimuli",
        stored.feature_titles(features),
        "ordered_by",
        view.results.most_important(features),
        help="The feature whose values are together in the matrices.",
    )
    exporting.show_figure(view, "group_rdms", feature=feature)
