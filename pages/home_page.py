"""Home: the canvas of two layers of an analysis, and the list of one's analyses."""

from __future__ import annotations

import streamlit as st

from pages.explore.why import show_pair
from pages.parts import choices, frame, my_analyses
from pages.parts.opening import show_view
from pages.parts.screens import SCREENS


def home_body() -> None:
    if any(name in st.query_params for name in choices.FORM):
        # An address of before there was a Home: it was the form's.
        st.switch_page(SCREENS["new"].file)
    show_view("home", show_pair)
    frame.attempt(my_analyses.show_my_analyses)


frame.page(home_body)
