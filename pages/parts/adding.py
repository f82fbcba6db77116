"""Adding a figure of a page to the report: what is needed to draw it again, from the view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.typing import parse_layer
from pages.parts import choices, stored

if TYPE_CHECKING:
    from mlem_core.base.labels import Names
    from mlem_core.figures.plots import RenderedFigure
    from mlem_core.report.chosen import Chosen
    from pages.parts.view import View

# Figures of two layers, in whose place figure 4 of the paper may be wanted.
OF_TWO = ("compare", "why", "stimulus_map_a", "stimulus_map_b")


def remember(view: View) -> None:
    """Keep what the page shows, from which `chosen_figure` takes what a figure is of."""
    st.session_state["view"] = view


def chosen_figure(figure: str, options: Mapping[str, str]) -> Chosen | None:
    """A figure of the view that is shown; None before one has been.

    Parameters
    ----------
    figure : in the core's registry
    options : what the page knows beside its choices
    """
    from mlem_core.report.chosen import Chosen

    view: View | None = st.session_state.get("view")
    if view is None:
        return None
    a, b = map(parse_layer, view.pair)
    pair = None if a == b else (a, b)
    return Chosen(figure, view.job_id, view.selection, pair, view.options(**options))


def analysis_id() -> str:
    """The analysis to whose report figures are added: the one that is chosen on all pages."""
    view: View | None = st.session_state.get("view")
    return choices.get_one("analysis") or (view.analysis_id if view else stored.EXAMPLE)


def change(how: Callable[[list[Chosen]], Sequence[Chosen]]) -> None:
    """Change the report of the chosen analysis; what other tabs add meanwhile is kept."""
    from mlem_core.tasks import notes

    notes.change_notes(
        analysis_id(),
        stored.store(),
        lambda kept: kept.reporting([one.to_dict() for one in how(_read(kept.report)[0])]),
    )


def report() -> tuple[list[Chosen], list[str]]:
    """The report of the chosen analysis, and what of it cannot be read."""
    from mlem_core.tasks import notes

    return _read(notes.read_notes(analysis_id(), stored.store()).report)


def _read(kept: Sequence[Mapping[str, object]]) -> tuple[list[Chosen], list[str]]:
    from mlem_core.base.errors import InputError
    from mlem_core.report.chosen import Chosen

    found, lost = [], []
    for one in kept:
        try:
            found.append(Chosen.from_dict(one))
        except InputError as error:
            lost.append(str(error))
    return found, lost


def drawn(one: Chosen, called: Names, *, narrow: bool, flags: bool = True) -> RenderedFigure | None:
    """A figure of the report, drawn again; None while its tables are computed (which is shown)."""
    from mlem_core.figures.plots import Drawing
    from pages.parts.view import View

    analysis = stored.open_analysis(one.analysis)
    results = View(one.analysis, analysis, one.selection).results()
    if results is None:
        return None
    drawing = Drawing(store=stored.store(), narrow=narrow, flags=flags, names=called)
    return one.drawn(analysis, results, drawing)
