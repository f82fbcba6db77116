"""Report: the figures and tables that one has chosen, at one size, with names of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from mlem_core.base.errors import InputError
from mlem_core.base.labels import Names
from mlem_core.figures import export
from mlem_core.figures.plots import FIGURES, FigureOptions, RenderedFigure
from mlem_core.figures.print_layout import Paper
from mlem_core.report import methods
from mlem_core.report.chosen import Chosen, as_zip
from mlem_core.report.formats import FORMATS, pictures
from mlem_core.storage.store import Store
from mlem_core.tasks import notes
from mlem_core.tasks.access import view_only
from pages.parts import frame, stored
from pages.parts.choices import inform, plain
from pages.parts.exporting import add_to_report, change_report, paper, read_report, show_printed
from pages.parts.opening import view_page
from pages.parts.view import View, open_view


def _show_report(view: View) -> None:
    with st.expander("Size and font of all figures", icon=":material/straighten:"):
        size = paper("report")
    job_id = view.job_id
    figures, lost = read_report(notes.read_notes(job_id, stored.store()))
    for sentence in lost:
        st.warning(plain(sentence), icon=":material/warning:")
    if not view_only():
        _offer_figures(view)
    if not figures:
        how = " Add a figure here, or with *Add to report* under *Export* below any figure."
        inform(f"Nothing is chosen yet.{'' if view_only() else how}")
    cards = [_Card(job_id, at, figure, size) for at, figure in enumerate(figures)]
    for card in cards:
        frame.attempt(card.show)
    if not view_only():
        _names(view)
    title = "Methods paragraph and references"
    frame.folded_part(title, "article", "report texts", partial(_methods_texts, view))
    if figures:
        frame.attempt(lambda: _download(view, cards, size))
    st.caption("*Download*, at the top, has all tables and figures of the analysis as one zip.")


def _offer_figures(view: View) -> None:
    """All figures of what is shown now, a button each."""
    popover = st.popover("Add a figure", icon=":material/add_chart:", key="report add")
    with popover:
        a, b = map(stored.layer_title, view.pair)
        st.caption(plain(f"Of what is chosen on the left; two layers are {a} and {b}."))
        for figure, record in sorted(FIGURES.items()):
            if not record.offered:
                continue
            st.button(
                record.title,
                key=f"report add {figure}",
                type="tertiary",
                on_click=add_to_report,
                args=(figure, view.job_id, view.shown()),
            )


def _names(view: View) -> None:
    """A table of what features and models are called, to be changed."""
    with st.expander("Names of features and models", icon=":material/badge:"):
        called = stored.names()
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
            args=(view.job_id, key, table["name"].tolist()),
        )
        st.caption(
            "What stands in *shown as* is written on all screens, and in all figures, captions and "
            "LaTeX tables of the report; CSV files keep the names on the left."
        )


def _rename(job_id: str, key: str, identifiers: Sequence[str]) -> None:
    edited: dict[int, dict[str, Any]] = st.session_state[key]["edited_rows"]

    def change(saved: notes.Notes) -> notes.Notes:
        for row, cells in edited.items():
            saved = saved.showing(identifiers[row], str(cells.get("shown as") or ""))
        return saved

    notes.change_notes(job_id, stored.store(), change)


def _methods_texts(view: View) -> None:
    """The methods paragraph and the references."""
    written = methods.texts(view.analysis, view.results, view.selection, stored.names())
    st.markdown(written["methods.md"])
    st.caption("As LaTeX, and the references as BibTeX; both are in the zip.")
    st.code(written["methods.tex"], language="latex", wrap_lines=True, height=200)
    st.code(written["references.bib"], language="bibtex", height=200)


@st.fragment
def _download(view: View, cards: Sequence[_Card], paper: Paper) -> None:
    """LaTeX of all figures and tables, and everything in one zip."""
    called = stored.names()  # a file is written where the address is not known
    row = st.container(horizontal=True, vertical_alignment="bottom")
    forms = [one.name for one in pictures(export.can_write_images())]
    form = row.segmented_control(
        "Pictures", forms, default=forms[0], required=True, key="report form",
        format_func=lambda one: FORMATS[one].label,
        help="What the pictures in the zip are; LaTeX reads PDF.",
    )  # fmt: skip

    def everything() -> bytes:
        drawn = [figure for card in cards if (figure := card.drawn(called)) is not None]
        if len(drawn) < len(cards):
            raise InputError("a figure is still computed; try again when it is there.")
        names = [card.name for card in cards]
        written = methods.texts(view.analysis, view.results, view.selection, called)
        return as_zip(names, drawn, paper, str(form), written)

    name = Path(view.analysis.stimuli.name).stem
    row.download_button(
        "Download the report",
        data=everything,
        file_name=f"{name}-report.zip",
        key="report zip",
        type="primary",
        icon=":material/folder_zip:",
        on_click="ignore",
        help="All figures, their tables as CSV, all of it as LaTeX, methods and references. About "
        "two seconds a figure.",
    )


@stored.kept(64, show_spinner="Drawing the figure …")
def _drawn(store: Store, _card: _Card, _called: Names, _view: View, key: str) -> RenderedFigure:
    context = _view.shown()
    drawing = FigureOptions(narrow=_card.paper.narrow, names=_called)
    return _card.chosen.drawn(replace(context, drawing=drawing))


@dataclass(frozen=True)
class _Card:
    """A figure of the report, at its place.

    Attributes
    ----------
    job_id : the analysis whose report it is
    at : its place, from 0
    chosen : what it is
    paper : size and font of all figures
    """

    job_id: str
    at: int
    chosen: Chosen
    paper: Paper

    @property
    def name(self) -> str:
        """Name of the figure's files, and of its widgets."""
        return f"{self.at + 1:02d}-{self.chosen.figure.replace('_', '-')}"

    def drawn(self, called: Names) -> RenderedFigure | None:
        """The figure as it is printed; None while its tables are computed (which is shown)."""
        view = open_view(self.chosen.analysis, self.chosen.selection)
        key = repr((self.chosen.to_dict(), called, self.paper.narrow))
        return None if view is None else _drawn(stored.store(), self, called, view, key)

    def show(self) -> None:
        """Draw it with its place and its words."""
        with st.container(border=True):
            head = st.container(horizontal=True, vertical_alignment="center")
            with head:
                st.markdown(f"**{self.at + 1}**", width="content")
                if not view_only():
                    self._move()
            rendered = self.drawn(stored.names())
            if rendered is None:
                return
            show_printed(rendered, self.paper, f"report-figure-{self.name}")
            if view_only():
                st.caption(plain(rendered.caption))
            else:
                self._words(rendered)

    def _move(self) -> None:
        def moved(by: int, there: list[Chosen]) -> list[Chosen]:
            to = self.at + by
            if 0 <= to < len(there) > self.at:
                there[self.at], there[to] = there[to], there[self.at]
            return there

        def without(there: list[Chosen]) -> list[Chosen]:
            return [card for at, card in enumerate(there) if at != self.at]

        for label, icon, how, help in (
            ("Up", "arrow_upward", partial(moved, -1), "Before the figure above."),
            ("Down", "arrow_downward", partial(moved, 1), "Behind the figure below."),
            ("Remove", "delete", without, "Takes it out of the report; it can be added again."),
        ):
            st.button(
                label,
                icon=f":material/{icon}:",
                key=f"report {label} {self.name}",
                type="tertiary",
                on_click=change_report,
                args=(self.job_id, how),
                help=help,
            )

    def _words(self, rendered: RenderedFigure) -> None:
        """Title and caption, to be changed; empty fields give the program's own again."""
        for part, label, field in (
            ("title", "Title", st.text_input),
            ("caption", "Caption", st.text_area),
        ):
            # Another figure at this place has fields of its own.
            key = f"report {part} {self.name} {hash(repr(self.chosen.to_dict()))}"
            st.session_state.setdefault(key, getattr(rendered, part))
            field(
                label,
                key=key,
                on_change=partial(self._say, part, key),
                help="As it is printed. Empty it to have the program's own words again.",
            )

    def _say(self, part: str, key: str) -> None:
        text = st.session_state[key]
        change_report(
            self.job_id,
            lambda there: [
                card.worded(part, text) if at == self.at else card for at, card in enumerate(there)
            ],
        )


view_page("report", _show_report)
