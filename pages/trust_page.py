"""Trust: how sure the numbers are, what an artefact could have made, and whether a claim holds."""

from __future__ import annotations

from functools import partial

import streamlit as st

from pages.parts import frame
from pages.parts.opening import open_view
from pages.trust import audit, claims, tested

PARTS = {
    "Intervals and tests": tested.show,
    "Audit of every layer": audit.show,
    "A claim under other analysis variants": claims.show,
}


def body() -> None:
    view = open_view(
        "trust",
        "How sure the numbers are, what an artefact could have made, and whether a finding holds "
        "when the analysis is done in another way.",
    )
    if view is None:
        return
    for number, (title, show) in enumerate(PARTS.items()):
        if number:
            st.divider()
        st.subheader(title)
        frame.attempt(partial(show, view))


frame.page(body)
