"""Parts of a page of which one is drawn, and which one the URL says."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pages.parts import choices
from pages.parts.screens import TABS, Tab


def chosen(name: str) -> str:
    """Which of the tabs `TABS[name]` is chosen, in the URL by that name; else the first."""
    names = [tab.name for tab in TABS[name]]
    now = choices.get_one(name, names[0])
    return now if now in names else names[0]


def choose(name: str, help: str) -> str:
    """Let the user choose one of the tabs `TABS[name]`; its name."""
    tabs: Sequence[Tab] = TABS[name]
    labels = {tab.name: tab.label for tab in tabs}
    key = choices.key_of(name)
    st.session_state[key] = chosen(name)

    def remember() -> None:
        now = st.session_state[key]
        choices.put(name, None if now == tabs[0].name else [now])

    now = st.segmented_control(
        tabs[0].title,
        list(labels),
        format_func=lambda one: labels[one],
        key=key,
        required=True,
        on_change=remember,
        help=help,
        label_visibility="collapsed",
    )
    return str(now)
