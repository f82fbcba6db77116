"""How wide the browser's window is, as far as a figure has to know."""

from __future__ import annotations

import streamlit as st

# Below this many pixels panels beside each other are too small to be read.
_NARROW = 760
_SCRIPT = """
export default function ({ setStateValue }) {
  const narrow = window.matchMedia("(max-width: %dpx)");
  const tell = () => setStateValue("narrow", narrow.matches);
  if (narrow.matches) tell();
  narrow.addEventListener("change", tell);
  return () => narrow.removeEventListener("change", tell);
}
"""
_KEY = "window"


def watch() -> None:
    """Hear from the browser whether its window is narrow; one that is not says nothing at first."""
    hear = st.components.v2.component("window", js=_SCRIPT % _NARROW)
    hear(key=_KEY, default={"narrow": False}, on_narrow_change=_remember, height=1)


def _remember() -> None:
    st.session_state["narrow window"] = bool(st.session_state[_KEY].narrow)


def narrow() -> bool:
    """Whether the window is so narrow that panels stand below each other."""
    return bool(st.session_state.get("narrow window", False))
