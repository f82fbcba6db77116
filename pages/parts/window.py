"""The browser's window: how wide it is, and one entry of its history for each thing one does.

Streamlit makes an entry of each change of the address, and one click may change it several times:
to the bare address of a page that is opened, and then to what the page fills it with. Back would
lead from the second to the first, which fills itself again.
"""

from __future__ import annotations

import streamlit as st

# Below this many pixels panels beside each other are too small to be read.
_NARROW = 760
# What changes the address without the user having done anything since it last changed is no step of
# theirs. That is set up once in a window, however often the component is made.
_SCRIPT = """
function keepOneEntryEach() {
  if (window.oneEntryEach) return;
  window.oneEntryEach = true;
  const push = history.pushState.bind(history), replace = history.replaceState.bind(history);
  let acted = false;
  history.pushState = (...entry) => {
    (acted ? push : replace)(...entry);
    acted = false;
  };
  for (const action of ["pointerdown", "keydown", "click"])
    addEventListener(action, () => { acted = true; }, true);
  addEventListener("popstate", () => { acted = false; }, true);
}

export default function ({ setStateValue }) {
  keepOneEntryEach();
  const narrow = window.matchMedia("(max-width: %dpx)");
  const tell = () => setStateValue("narrow", narrow.matches);
  if (narrow.matches) tell();
  narrow.addEventListener("change", tell);
  return () => narrow.removeEventListener("change", tell);
}
"""
_KEY = "window"


def watch() -> None:
    """Keep the history so, and hear whether the window is narrow; a wide one says so later only."""
    hear = st.components.v2.component("window", js=_SCRIPT % _NARROW)
    hear(key=_KEY, default={"narrow": False}, on_narrow_change=_remember, height=1)


def _remember() -> None:
    st.session_state["narrow window"] = bool(st.session_state[_KEY].narrow)


def narrow() -> bool:
    """Whether the window is so narrow that panels stand below each other."""
    return bool(st.session_state.get("narrow window", False))
