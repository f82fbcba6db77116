"""Report: the figures and tables that one has chosen, at one size, with names of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import adding, frame, naming, report_cards, report_whole
from pages.parts.opening import open_view
from pages.parts.paper import paper
from pages.parts.wording import plain

if TYPE_CHECKING:
    from mlem_core.figures import Paper
    from pages.parts.view import View


def body() -> None:
    view = open_view("report")
    if view is None:
        return
    size, flags = _how_printed()
    chosen, lost = adding.report()
    for sentence in lost:
        st.warning(plain(sentence), icon=":material/warning:")
    _offer_figures(view)
    if not chosen:
        st.info(
            "Nothing is chosen yet. Add a figure here, or with *Add to report* under *Export* "
            "below any figure.",
            icon=":material/info:",
        )
    cards = [report_cards.Card(at, one, size, flags) for at, one in enumerate(chosen)]
    for card in cards:
        frame.attempt(card.show)
    report_whole.names(view)
    frame.attempt(lambda: report_whole.methods_texts(view))
    if chosen:
        frame.attempt(lambda: report_whole.download(view, cards, size))


def _how_printed() -> tuple[Paper, bool]:
    """The size and font of all figures, and whether what an audit flags is marked in them."""
    with st.expander("Size and font of all figures", icon=":material/straighten:"):
        size = paper("report")
        flags = st.checkbox(
            "Mark what the audit flags",
            value=True,
            key="report flags",
            help="Triangles and dots at layers, and pairs of layers, whose conclusions change in "
            "the audit.",
        )
    return size, flags


def _offer_figures(view: View) -> None:
    """All figures of what is shown now, a button each."""
    from mlem_core.figures.plots import FIGURES

    popover = st.popover("Add a figure", icon=":material/add_chart:", key="report add")
    with popover:
        a, b = map(naming.layer, view.pair)
        st.caption(plain(f"Of what is chosen on the left; two layers are {a} and {b}."))
        for figure, record in FIGURES.items():
            if not record.offered:
                continue
            st.button(
                record.title,
                key=f"report add {figure}",
                type="tertiary",
                on_click=report_cards.add,
                args=(figure,),
            )


frame.page(body)
