"""The canvas as an element of a page: the one place that knows both its sources and Streamlit."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

if TYPE_CHECKING:
    from mlem_core.figures.canvas import Canvas


# Each imports only what stands before it.
MODULES = ("dom", "state", "matrix", "chip", "bars", "maps", "words", "canvas")
_FOLDER = Path(__file__).parent
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
_ENTRY = """
export default function ({ data, parentElement, setTriggerValue }) {
  const content = JSON.parse(new TextDecoder().decode(data));
  mount(parentElement.querySelector(".holder"), content, setTriggerValue);
}
"""


@functools.cache
def script() -> str:
    """The modules as one script, in which `mount(element, data, tell)` draws the canvas.

    Modules are put one after the other, each in a scope of its own: nothing has to be built.
    """
    parts = []
    for name in MODULES:
        text = _IMPORT.sub("", (_FOLDER / f"{name}.js").read_text(encoding="utf-8"))
        names = re.findall(r"^export (?:function|const) (\w+)", text, re.MULTILINE)
        body = re.sub(r"^export ", "", text, flags=re.MULTILINE)
        given = f"{{{', '.join(names)}}}"
        parts.append(f"const {given} = (() => {{\n{body}\nreturn {given};\n}})();\n")
    return "".join(parts)


@functools.cache
def style() -> str:
    """The rules of the canvas."""
    return (_FOLDER / "canvas.css").read_text(encoding="utf-8")


def _component() -> Any:
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
