"""The pair of layers that all figures look at, and the ways to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.typing import layer_name
from pages.parts import choices, naming
from pages.parts.screens import SCREENS
from pages.parts.wording import plain

if TYPE_CHECKING:
    from pages.parts.view import View


def look_at_cell(view: View, points: list[dict[str, Any]]) -> None:
    """Look at the two layers of a cell of a matrix that was clicked, if it has two."""
    clicked = [point["customdata"] for point in points if "customdata" in point]
    layers = [layer_name(clicked[0][at : at + 2]) for at in (0, 2)] if clicked else []
    if len(set(layers)) == 2 and set(layers) <= set(view.layer_names):
        look_at(view, *layers)


def look_at(view: View, a: str, b: str) -> None:
    """Make two layers "model:layer" the pair that all pages look at."""
    choices.open_job(view.analysis_id)  # it may be shown without having been chosen
    choices.put_all({"a": [a], "b": [b]})


def open_why(view: View, a: str, b: str) -> None:
    """Open the canvas of two layers "model:layer"."""
    look_at(view, a, b)
    st.switch_page(SCREENS["home"].file)


def one_after_the_other(view: View, points: list[dict[str, Any]], where: str) -> None:
    """Two layers are chosen by two clicks, on points that stand for one layer each.

    Parameters
    ----------
    points : that are selected now; `customdata` begins with model and layer
    where : of the figure, in the key of the button
    """
    now = [layer_name(point["customdata"][:2]) for point in points if "customdata" in point]
    now = [layer for layer in dict.fromkeys(now) if layer in view.layer_names]
    # The layer of the click before is the other one of the pair.
    clicked = st.session_state.setdefault(f"clicked {view.job_id}", [])
    if now and now != clicked[-len(now) :]:
        clicked[:] = [*(layer for layer in clicked if layer not in now), *now][-2:]
    clicked[:] = [layer for layer in clicked if layer in view.layer_names]
    if len(clicked) == 2:
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            a, b = clicked
            st.markdown(f"**{plain(naming.layer(a))}** and **{plain(naming.layer(b))}**")
            if st.button(
                "Look at these two",
                icon=SCREENS["home"].icon,
                key=f"look at {where}",
                type="primary",
                help="Shows how similar they are, and why.",
            ):
                open_why(view, a, b)
    elif clicked:
        st.info(
            f"{plain(naming.layer(clicked[0]))} is chosen; click a second layer.",
            icon=":material/ads_click:",
        )
