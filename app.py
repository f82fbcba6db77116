"""The app: page set-up and navigation. `make app` serves it."""

from __future__ import annotations

import streamlit as st

from mlem_core.tasks.access import view_only
from pages.parts import frame, login, opening, screens
from pages.parts.screens import SCREENS

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
    """A page a screen."""
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
    return pages


frame.dress()
if login.is_needed():
    login.login_page()
    st.stop()
page = st.navigation(_pages(), position="top")
# Where a screen needs less than the whole width, what is selected stands beside what is shown.
wide = SCREENS[page.url_path or next(iter(SCREENS))].wide
st.set_page_config(initial_sidebar_state="collapsed" if wide else "auto")
page.run()
screens.links()
with st.sidebar:
    frame.watch_width()
    login.logout_button()
