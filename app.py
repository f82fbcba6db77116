"""The app: page set-up and navigation. `make app` serves it."""

from __future__ import annotations

from functools import partial

import streamlit as st

from mlem_core.tasks.access import view_only
from pages.parts import frame, login, opening, screens
from pages.parts.screens import MOVED, SCREENS

# Three bars of a profile, drawn here: Streamlit would fetch an icon of its own from the network.
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">'
    '<rect x="3" y="11" width="4" height="10" fill="#0072B2"/>'
    '<rect x="10" y="3" width="4" height="18" fill="#D55E00"/>'
    '<rect x="17" y="8" width="4" height="13" fill="#009E73"/></svg>'
)
st.set_page_config(page_title="MLEM Explorer", page_icon=ICON, layout="wide")
st.logo(
    ICON.replace("0 0 24 24", "0 0 152 24").replace("</svg>", "")
    + "<style>text{font:600 16px sans-serif;fill:#1b2430}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e8ed}}</style>"
    '<text x="34" y="18">MLEM Explorer</text></svg>'
)


def _pages() -> list[st.Page]:
    """A page a screen, and one for each address of earlier versions."""
    n_models, pages = opening.n_models(), []
    for screen in SCREENS.values():
        listed = screen.listed and n_models >= screen.least_models
        if screen.url_path == "new":
            listed = not view_only()
        pages.append(
            st.Page(
                screen.file,
                title=screen.title,
                url_path=screen.url_path,
                default=not pages,
                visibility="visible" if listed else "hidden",
            )
        )
    for url_path in MOVED:
        lead = partial(frame.lead, url_path)
        pages.append(st.Page(lead, title="Explore", url_path=url_path, visibility="hidden"))
    return pages


frame.dress()
if login.is_needed():
    login.login_page()
    st.stop()
page = st.navigation(_pages(), position="top")
page.run()
screens.links()
frame.watch_width()
login.logout_button()
