"""The stimuli: their features (table S1, figure S5 of paper 1)."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from mlem_core.stimuli.levels import STIMULUS
from pages.parts import exporting
from pages.parts.choices import plain
from pages.parts.opening import view_page
from pages.parts.view import View


def _show_stimuli(view: View) -> None:
    """The stimuli with their features, and how these are spread and go together."""
    stimuli = view.analysis.stimuli
    st.subheader(plain(stimuli.name))
    exporting.draw_table(
        stimuli.table,
        "stimuli",
        f"{len(stimuli):,} stimuli. An empty cell is a missing value.",
        height=380,
        features=[feature.name for feature in stimuli.features],
        images=Path(view.analysis.spec.stimuli).parent if STIMULUS in stimuli.table else None,
    )
    exporting.show_tab(view, "stimuli")


view_page("stimuli", _show_stimuli)
