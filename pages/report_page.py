"""Report: the figures and tables that one has chosen, at one size, with names of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.errors import InputError
from pages.parts import frame, naming, report_cards, stored
from pages.parts.choices import plain
from pages.parts.exporting import paper
from pages.parts.opening import open_view

if TYPE_CHECKING:
    from mlem_core.base.labels import Names
    from mlem_core.figures import Paper
    from mlem_core.figures.plots import RenderedFigure
    from pages.parts.view import View


def body() -> None:
    view = open_view("report")
    if view is None:
        return
    size, flags = _how_printed()
    chosen, lost = report_cards.report()
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
    _names(view)
    frame.attempt(lambda: _methods_texts(view))
    if chosen:
        frame.attempt(lambda: _download(view, cards, size))


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


def _names(view: View) -> None:
    """A table of what features and models are called, to be changed."""
    import pandas as pd

    with st.expander("Names of features and models", icon=":material/badge:"):
        called = naming.now()
        features = view.shown().all_features
        models = list(dict.fromkeys(model for model, _ in view.analysis.layers))
        table = pd.DataFrame(
            {
                "what": ["feature"] * len(features) + ["model"] * len(models),
                "name": [*features, *models],
                "shown as": [*map(called.feature, features), *map(called.model, models)],
            }
        )
        key = f"report names {view.job_id}"
        if key not in st.session_state:
            # Another table begins anew and loses what is typed before its names are there.
            st.session_state[f"{key} table"] = table
        st.data_editor(
            st.session_state[f"{key} table"],
            key=key,
            hide_index=True,
            disabled=["what", "name"],
            on_change=_rename,
            args=(key, table["name"].tolist()),
        )
        st.caption(
            "What stands in *shown as* is written on all screens, and in all figures, captions and "
            "LaTeX tables of the report; CSV files keep the names on the left."
        )


def _rename(key: str, identifiers: Sequence[str]) -> None:
    from mlem_core.tasks import notes

    edited: dict[int, dict[str, Any]] = st.session_state[key]["edited_rows"]

    def change(kept: notes.Notes) -> notes.Notes:
        for row, cells in edited.items():
            kept = kept.showing(identifiers[row], str(cells.get("shown as") or ""))
        return kept

    notes.change_notes(report_cards.analysis_id(), stored.store(), change)


def _written(view: View, called: Names) -> dict[str, str]:
    """methods.md, methods.tex and references.bib."""
    from mlem_core.report import methods

    return methods.texts(view.analysis, view.results, view.selection, called)


@st.fragment
def _methods_texts(view: View) -> None:
    """The methods paragraph and the references, folded away."""
    part = st.expander(
        "Methods paragraph and references", icon=":material/article:", key="report texts",
        on_change="rerun",
    )  # fmt: skip
    if not part.open:
        return
    with part:
        written = _written(view, naming.now())
        st.markdown(written["methods.md"])
        st.caption("As LaTeX, and the references as BibTeX; both are in the zip.")
        st.code(written["methods.tex"], language="latex", wrap_lines=True, height=200)
        st.code(written["references.bib"], language="bibtex", height=200)


@st.fragment
def _download(view: View, cards: Sequence[report_cards.Card], paper: Paper) -> None:
    """LaTeX of all figures and tables, and everything in one zip."""
    from mlem_core import figures
    from mlem_core.report.chosen import as_zip
    from mlem_core.report.formats import FORMATS, as_latex, pictures

    called = naming.now()  # a file is written where the address is not known
    row = st.container(horizontal=True, vertical_alignment="bottom")
    forms = [one.name for one in pictures(figures.can_write_images())]
    form = row.segmented_control(
        "Pictures", forms, default=forms[0], required=True, key="report form",
        format_func=lambda one: FORMATS[one].label,
        help="What the pictures in the zip are; LaTeX reads PDF.",
    )  # fmt: skip

    def whole() -> tuple[list[str], list[RenderedFigure]]:
        made = [(card.name, card.drawn(called)) for card in cards]
        there = [(name, one) for name, one in made if one is not None]
        if len(there) < len(made):
            raise InputError("a figure is still computed; try again when it is there.")
        return [name for name, _ in there], [one for _, one in there]

    def tex() -> bytes:
        parts = [as_latex(one, name, paper) for name, one in zip(*whole(), strict=True)]
        return "\n".join(parts).encode()

    def everything() -> bytes:
        return as_zip(*whole(), paper, str(form), _written(view, called))

    name = Path(view.analysis.stimuli.name).stem
    row.download_button(
        "Download the report",
        data=stored.token_bound(everything),
        file_name=f"{name}-report.zip",
        mime="application/zip",
        key="report zip",
        type="primary",
        icon=":material/folder_zip:",
        on_click="ignore",
        help="All figures, their tables as CSV, all of it as LaTeX, methods and references. About "
        "two seconds a figure.",
    )
    row.download_button(
        "LaTeX of all",
        data=stored.token_bound(tex),
        file_name=f"{name}-report.tex",
        mime="application/x-tex",
        key="report tex",
        icon=":material/download:",
        on_click="ignore",
        help="A figure environment and a table for each, to be put into a paper.",
    )


frame.page(body)
