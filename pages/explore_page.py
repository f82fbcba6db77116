"""Explore: two layers, what makes them similar, and all layers in four views."""

from __future__ import annotations

from functools import partial

import streamlit as st

from mlem_core import extending
from pages.my_analyses import show_my_analyses
from pages.parts import canvas, exporting, frame, opening
from pages.parts.drawers import show_drawers
from pages.parts.view import View, has_pairs
from pages.parts.view_details import show_view_details


def explore_body() -> None:
    opening.show_view("explore", _explore)
    frame.attempt(show_my_analyses)


def _explore(view: View) -> None:
    if has_pairs(view):
        frame.alone(partial(_two_layers, view))
    else:
        exporting.show_figure(view, "profiles")


def _two_layers(view: View) -> None:
    """All layers on the left, and on the right the two that are compared."""
    with st.container(key="explore"):
        left, right = st.columns((6, 7), gap="large")
    with right:
        canvas.show("finding", view.job_id)
        frame.attempt(partial(show_drawers, view))
        for panel in extending.panels("maps"):
            frame.attempt(partial(exporting.show_panel, view, panel))
        canvas.show("maps", view.job_id)
    with left:
        frame.attempt(partial(canvas.show_views, view))
        show_view_details(view)


frame.page("explore", explore_body)
