"""Docs: the pages of docs/ as they are, how to cite, and where the source is."""

from __future__ import annotations

import streamlit as st

from pages.parts import frame, manual
from pages.parts.screens import SCREENS


def body() -> None:
    st.title(SCREENS["docs"].title)
    pages = manual.pages()
    names = list(pages)
    key, asked = "docs page", st.query_params.get("page", "")
    if asked in pages:
        st.session_state[key] = asked
    chosen = st.selectbox(
        "Page",
        names,
        key=key,
        format_func=lambda name: pages[name],
        on_change=lambda: st.query_params.update(page=st.session_state[key]),
        help="What to read. `make docs` builds all of it as a site that can be searched.",
    )
    # Said each time: a link from one page of Docs to another leaves the browser's address as it is.
    st.query_params["page"] = chosen
    with st.container(key="docs text"):
        if chosen == manual.CITE:
            manual.cite()
        else:
            manual.show(chosen)


frame.page(body)
