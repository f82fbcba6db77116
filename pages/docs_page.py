"""Docs: the pages of docs/ as they are, how to cite, and where the source is."""

from __future__ import annotations

import streamlit as st

from pages.parts import choices, frame, screens
from pages.parts.screens import SCREENS


def docs_body() -> None:
    st.title(SCREENS["docs"].title)
    pages, requested = screens.docs_pages(), st.query_params.get("page", "")
    path = st.selectbox(
        "Page",
        list(pages),
        format_func=pages.__getitem__,
        help="What to read. `make docs` builds all of it as a site that can be searched.",
        **choices.bound(
            "docs page",
            requested if requested in pages else next(iter(pages)),
            lambda page: st.query_params.update(page=page),
        ),
    )
    # Said each time: a link from one page of Docs to another leaves the browser's address as it is.
    st.query_params["page"] = path
    with st.container(key="docs text"):
        if path == screens.CITE:
            screens.cite()
        else:
            screens.show_docs(path)


frame.page("docs", docs_body)
