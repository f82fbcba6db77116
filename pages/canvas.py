"""The canvas as an element of a page: the one place that knows both its sources and Streamlit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamlit as st

if TYPE_CHECKING:
    from mlem_core.figures.canvas import Canvas


_ENTRY = """
export default function ({ data, parentElement, setTriggerValue }) {
  const content = JSON.parse(new TextDecoder().decode(data));
  mount(parentElement.querySelector(".holder"), content, setTriggerValue);
}
"""


def _component() -> Any:
    from mlem_core.report.page import script, style

    holder = '<div class="holder" style="container-type: inline-size"></div>'
    return st.components.v2.component("canvas", html=holder, css=style(), js=script() + _ENTRY)


def show_canvas(
    data: Canvas,
    key: str,
    choose: Callable[[str, str], object],
    open_details: Callable[[str], object],
) -> None:
    """Show the canvas.

    Parameters
    ----------
    choose : gets the two layers "model:layer" that were clicked
    open_details : gets the term whose details are wanted, or "all"
    """

    def chosen() -> None:
        choose(*st.session_state[key]["pair"])

    _component()(
        # As bytes: Streamlit would write the same text twice.
        data=json.dumps(data).encode(),
        key=key,
        on_pair_change=chosen,
        on_details_change=lambda: open_details(st.session_state[key]["details"]),
    )
