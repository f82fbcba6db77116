"""Undo and Reset: the ways back from what was chosen in a view."""

from __future__ import annotations

import streamlit as st

from pages.parts import choices


def offer() -> None:
    """Both buttons, for the sidebar; what cannot be taken back now is greyed out."""
    with st.container(horizontal=True):
        st.button(
            "Undo",
            icon=":material/undo:",
            key="undo",
            disabled=not choices.can_undo(),
            on_click=choices.undo,
            width="stretch",
            help="Takes back the last choice: a feature, a layer, a pair, another analysis.",
        )
        st.button(
            "Reset",
            icon=":material/restart_alt:",
            key="reset",
            disabled=not choices.can_reset(),
            on_click=choices.reset,
            width="stretch",
            help="Takes back all choices: shows this analysis as it was run. Undo brings them "
            "back.",
        )
