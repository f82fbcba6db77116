"""The figures of a report: added from the view of a page, and drawn again with words and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import choices, naming, stored

if TYPE_CHECKING:
    from mlem_core.base.labels import Names
    from mlem_core.figures import Paper
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
    shown = view.selection, view.chosen_pair, view.options(**options)
    return Chosen(figure, view.job_id, *shown)


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
    from pages.parts.view import view_of

    view = view_of(one.analysis, one.selection)
    drawing = Drawing(store=stored.store(), narrow=narrow, flags=flags, names=called)
    return None if view is None else one.drawn(view.analysis, view.results, drawing)


_HELPS = {
    "csv": "The numbers that it is drawn from, with the identifiers.",
    "tex": "The figure and its table for a paper.",
}


def add(figure: str) -> None:
    """Put a figure of what is shown at the end of the report."""
    chosen = chosen_figure(figure, {})
    if chosen is not None:
        change(lambda there: [*there, chosen])


@stored.kept(64, show_spinner="Drawing the figure …")
def _drawn(_chosen: Chosen, _called: Names, key: str, narrow: bool, flags: bool) -> RenderedFigure:
    made = drawn(_chosen, _called, narrow=narrow, flags=flags)
    if made is None:
        raise LookupError("it is computed first")  # what raises is not kept
    return made


@dataclass(frozen=True)
class Card:
    """A figure of the report, at its place.

    Attributes
    ----------
    at : its place, from 0
    chosen : what it is
    paper : size and font of all figures
    flags : whether what an audit flags is marked
    """

    at: int
    chosen: Chosen
    paper: Paper
    flags: bool

    @property
    def name(self) -> str:
        """Name of the figure's files, and of its widgets."""
        return f"{self.at + 1:02d}-{self.chosen.figure.replace('_', '-')}"

    def drawn(self, called: Names) -> RenderedFigure | None:
        """The figure as it is printed; None while its tables are computed."""
        key = repr((self.chosen.to_dict(), called))
        try:
            return _drawn(self.chosen, called, key, self.paper.narrow, self.flags)
        except LookupError:
            return None

    def show(self) -> None:
        """Draw it with its words, its place and its files."""
        with st.container(border=True):
            head = st.container(horizontal=True, vertical_alignment="center")
            made = self.drawn(naming.now())
            with head:
                st.markdown(f"**{self.at + 1}**", width="content")
                self._move()
            if made is None:
                return
            self._preview(made)
            self._words(made)
            self._files(made)

    def _move(self) -> None:
        up, down = (partial(_moved, at=self.at, by=by) for by in (-1, 1))
        out = partial(_without, at=self.at)
        for label, icon, how, help in (
            ("Up", "arrow_upward", up, "Before the figure above."),
            ("Down", "arrow_downward", down, "Behind the figure below."),
            ("Remove", "delete", out, "Takes it out of the report; it can be added again."),
        ):
            st.button(
                label,
                icon=f":material/{icon}:",
                key=f"report {label} {self.name}",
                type="tertiary",
                on_click=change,
                args=(how,),
                help=help,
            )

    def _preview(self, made: RenderedFigure) -> None:
        from mlem_core import figures

        drawn = figures.on_paper(made.figure, self.paper)
        # As wide as in print; on a window that is narrower it is moved sideways, not squeezed.
        place = f"report-preview-{self.name}"
        st.html(
            f"<style>.st-key-{place} {{overflow-x: auto}} "
            f".st-key-{place} > * {{min-width: {drawn.layout.width:.0f}px}}</style>"
        )
        with st.container(key=place):
            st.plotly_chart(
                drawn,
                key=f"report figure {self.name}",
                theme=None,
                width="content",
                config={"staticPlot": True},
                alt=made.title,
            )

    def _words(self, made: RenderedFigure) -> None:
        """Title and caption, to be changed; empty fields give the program's own again."""
        for part, label, field in (
            ("title", "Title", st.text_input),
            ("caption", "Caption", st.text_area),
        ):
            # Another figure at this place has fields of its own.
            key = f"report {part} {self.name} {hash(repr(self.chosen.to_dict()))}"
            st.session_state.setdefault(key, getattr(made, part))
            field(
                label,
                key=key,
                on_change=partial(self._say, part, key),
                help="As it is printed. Empty it to have the program's own words again.",
            )

    def _say(self, part: str, key: str) -> None:
        said = st.session_state[key]
        change(
            lambda there: [
                one.worded(part, said) if at == self.at else one for at, one in enumerate(there)
            ]
        )

    def _files(self, made: RenderedFigure) -> None:
        from mlem_core import figures
        from mlem_core.report.formats import FORMATS, as_latex

        def tex() -> bytes:
            return as_latex(made, self.name, self.paper).encode()

        images = figures.can_write_images()
        with st.container(horizontal=True):
            for name, form in FORMATS.items():
                # A page stands in the place of pictures that nothing here can write.
                if (form.printed and not images) or (name == "html" and images):
                    continue
                write = partial(form.write, made, self.name, self.paper)
                st.download_button(
                    form.label,
                    # Here LaTeX has the figure beside its table.
                    data=stored.token_bound(tex if name == "tex" else write),
                    file_name=f"{self.name}.{name}",
                    key=f"report {name} {self.name}",
                    icon=":material/download:",
                    on_click="ignore",
                    help=_HELPS.get(name, "This figure at the size above; it takes some seconds."),
                )


def _moved(there: list[Chosen], at: int, by: int) -> Sequence[Chosen]:
    """The report with one figure moved up or down by one."""
    to = at + by
    if not (0 <= at < len(there) and 0 <= to < len(there)):
        return there
    there[at], there[to] = there[to], there[at]
    return there


def _without(there: list[Chosen], at: int) -> Sequence[Chosen]:
    return [one for place, one in enumerate(there) if place != at]
