"""Figures and tables in a page, and how they leave it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from mlem_core import extending
from mlem_core.base.errors import InputError
from mlem_core.figures import export
from mlem_core.figures.context import FigureContext, RenderedFigure
from mlem_core.figures.export import dark_copy
from mlem_core.figures.plots import FIGURES, draw
from mlem_core.figures.print_layout import DPI, FONTS, WIDTHS_MM, Paper, narrow_copy, print_copy
from mlem_core.figures.thumbnails import thumbnails
from mlem_core.report.chosen import Chosen
from mlem_core.report.formats import FORMATS, csv_bytes
from mlem_core.stimuli.levels import STIMULUS
from mlem_core.tasks import notes
from mlem_core.tasks.access import view_only
from mlem_core.tasks.notes import Notes
from pages.parts import background, choices, frame, stored
from pages.parts.choices import drop_minus_zero, plain
from pages.parts.view import View

OTHER = "other"


def pick(
    label: str, options: list[Any], name: str, setting: str, help: str, first: int = 0, **more: Any
) -> Any:
    """A choice that is the same wherever figures are saved; `first` is taken until it is made.

    Parameters
    ----------
    name : of the figure beside which the choice stands
    setting : what is chosen
    """
    more |= _bound(setting, name, options[first], options)
    return st.segmented_control(label, options, required=True, help=help, **more)


def _bound(setting: str, name: str, default: Any, options: Collection[Any]) -> dict[str, Any]:
    """Key and callback of a choice that stands beside each figure."""
    settings: dict[str, Any] = st.session_state.setdefault("export", {})
    value = settings.get(setting)
    value = value if value in options else default
    return choices.bound(f"export {setting} {name}", value, partial(settings.__setitem__, setting))


def paper(name: str, *, resolution: bool = False) -> Paper:
    """The size and font that are chosen beside a figure, and the resolution of pixels."""
    width = pick(
        "Width",
        [*WIDTHS_MM, OTHER],
        name,
        "width",
        "The width of the printed figure; text keeps its size.",
        first=list(WIDTHS_MM).index("two columns"),
        format_func=lambda one: f"{one}, {WIDTHS_MM[one]:.0f} mm" if one in WIDTHS_MM else one,
    )
    wide = WIDTHS_MM.get(width)
    if wide is None:
        about = "As the journal asks for it, from 30 to 500."
        chosen = _bound("mm", name, 136, range(30, 501))
        wide = float(st.number_input("Width in mm", 30, 500, help=about, **chosen))
    about = "The font of all text; a server without it takes one of the same widths."
    font = pick("Font", list(FONTS), name, "font", about)
    points = pick(
        "Text size", [6, 7, 8, 9, 10], name, "points", "In points, as in a journal's guidelines.",
        first=1, format_func=lambda one: f"{one} pt",
    )  # fmt: skip
    dpi = DPI[0]
    if resolution:
        dpi = pick("Resolution", list(DPI), name, "dpi", "Pixels an inch.",
                   format_func=lambda one: f"{one} dpi")  # fmt: skip
    return Paper(width_mm=wide, font=font, points=float(points), dpi=int(dpi))


# Of a table, those that the browser gets.
MOST_ROWS = 5_000


@dataclass(frozen=True)
class Panel:
    """A figure of a page, and what leaves the page with it.

    Attributes
    ----------
    drawn : the figure, with its title, its caption for print and its tables
    name : file name of the downloads, without ending
    figure : its name in `mlem_core.figures.plots.FIGURES`; empty where it is none of these, and no
        report can draw it
    job_id, context : the analysis that it is of, and what of it is drawn
    """

    drawn: RenderedFigure
    name: str
    figure: str = ""
    job_id: str = ""
    context: FigureContext | None = None

    @classmethod
    def from_view(cls, view: View, figure: str, **options: str) -> Panel | None:
        """A figure of the core's registry, of what a view shows; None where there is none.

        Parameters
        ----------
        figure : its name in `mlem_core.figures.plots.FIGURES`
        options : of the figure, see `mlem_core.figures.context.FigureOptions`
        """
        context = view.shown(**options)
        drawn = draw(figure, context)
        if drawn is None:
            return None
        return cls(drawn, figure.replace("_", "-"), figure, view.job_id, context)

    def drawn_again(self, *, narrow: bool, screen: bool) -> RenderedFigure:
        """The figure for little room or not, and on a screen or in print."""
        if self.context is None:
            return self.drawn
        drawing = replace(self.context.drawing, narrow=narrow, screen=screen)
        return draw(self.figure, replace(self.context, drawing=drawing)) or self.drawn

    def show(self) -> None:
        """Draw it, with its caption and its export."""
        self._chart(on_select="ignore")

    def on_click(self, choose: Callable[[Sequence[Any]], None]) -> None:
        """Draw it with points that can be clicked.

        Parameters
        ----------
        choose : gets the `customdata` of the one that was, before all is drawn anew
        """

        def clicked() -> None:
            points = st.session_state[f"figure {self.name}"]["selection"]["points"]
            if targets := [point["customdata"] for point in points if "customdata" in point]:
                choose(targets[0])

        self._chart(on_select=clicked, selection_mode="points")

    def _chart(self, **selecting: Any) -> None:
        figure = self.drawn.figure
        if frame.narrow():
            figure = narrow_copy(self.drawn_again(narrow=True, screen=True).figure)
        if st.context.theme.type == "dark":
            figure = dark_copy(figure)
        st.plotly_chart(
            figure,
            key=f"figure {self.name}",
            theme="streamlit",
            config={"displaylogo": False, "modeBarButtonsToRemove": ["toImage"]},
            alt=self.drawn.caption,
            **selecting,
        )
        _footer(self)


def show_figure(view: View, figure: str, **options: str) -> None:
    """Draw a figure of the registry, where there is something to draw; see `Panel.from_view`."""
    panel = Panel.from_view(view, figure, **options)
    if panel is not None:
        panel.show()


def show_tab(view: View, tab: str) -> None:
    """The figures whose record says that they stand in a part of a screen."""
    records = [record for record in FIGURES.values() if record.tab == tab]
    for record in sorted(records, key=lambda record: (record.place, record.name)):
        panel = Panel.from_view(view, record.name)
        if panel is not None:
            st.subheader(record.title)
            panel.show()


def show_panels(view: View, screen: str) -> None:
    """The folded parts that extensions add to a screen."""
    for panel in extending.panels(screen):
        if panel.applies and not extending.resolve(panel.applies)(view.shown()):
            continue
        part = panel.part or panel.figure
        frame.folded_part(panel.title, panel.icon, part, partial(show_panel, view, panel))


def show_panel(view: View, panel: extending.Panel) -> None:
    """The figures of a part that an extension adds, or the button that computes what it shows."""
    if panel.show:
        extending.resolve(panel.show)(view)
        return
    figure = None if panel.tab else Panel.from_view(view, panel.figure)
    if figure is None and not panel.tab:
        _offer_work(view, panel)
        return
    context = view.shown()
    if panel.sentences:
        lines = extending.resolve(panel.sentences)(context)
        st.markdown("\n".join(f"- {plain(line)}" for line in lines))
    if figure is None:
        show_tab(view, panel.tab)
    else:
        figure.show()
    if panel.tables:
        for name, (table, title, caption) in extending.resolve(panel.tables)(context).items():
            show_table(table, name, title, caption)
    if panel.runs and not view_only():
        with st.container(horizontal=True):
            for label, spec in extending.resolve(panel.runs)(context).items():
                help = panel.runs_help
                if st.button(plain(label), icon=":material/add:", key=f"run {label}", help=help):
                    background.start_analysis(spec)


def _offer_work(view: View, panel: extending.Panel) -> None:
    if panel.about:
        st.caption(panel.about)
    options: dict[str, Any] = {}
    if panel.subject == "layers":
        options = {"layers": view.layers}
    elif panel.subject == "pair":
        a, b = view.shown().pair
        options = {"a": a, "b": b, "features": view.features}
    background.offer(view.work(panel.stage, options), panel.button, panel.help)


@st.fragment
def _footer(panel: Panel) -> None:
    """The line below a figure, and what is folded beside it."""
    row = st.container(horizontal=True, vertical_alignment="center")
    caption = panel.drawn.caption
    line = "" if panel.context is None else FIGURES[panel.figure].below(panel.context)
    row.caption(line or caption, width="stretch")
    ways = row.container(horizontal=True, width="content")
    with ways.popover(
        "How computed",
        icon=":material/function:",
        key=f"how {panel.name}",
        help="What is seen, how it was computed and on how much: the caption in print.",
    ):
        st.markdown(plain(caption))
    ways.button(
        "Export",
        icon=":material/download:",
        key=f"export {panel.name}",
        on_click=partial(frame.open_dialog, f"export {panel.name}"),
        help="This figure as a file for a paper, and the numbers behind it; or into the report.",
    )
    if frame.shown_dialog() == f"export {panel.name}":
        open_export(panel)


def export_dialog(view: View, figure: str, **options: str) -> None:
    """Opens the dialog that downloads a figure of the registry; see `Panel.from_view`."""
    panel = Panel.from_view(view, figure, **options)
    if panel is None:
        choices.inform("There is nothing to draw: choose two layers, or compute what it shows.")
    else:
        open_export(panel)


@st.dialog("Export", width="large", on_dismiss=frame.close_dialog)
def open_export(panel: Panel) -> None:
    """The dialog with formats of a figure, and how it is printed."""
    frame.attempt(partial(_export, panel))


def _export(panel: Panel) -> None:
    pictures = export.can_write_images()
    labelled = {one.label: one for one in FORMATS.values() if pictures or not one.printed}
    form = labelled[pick("Format", list(labelled), panel.name, "format", "What the file is.")]
    st.caption(form.sentence)
    if not pictures:
        st.caption(
            "PDF, SVG and PNG are written by Chrome or Chromium, and this server has none: install "
            "one, or name its path in BROWSER_PATH."
        )
    size = paper(panel.name, resolution=form.resolution) if form.printed else None
    drawn = panel.drawn
    if size is not None:
        drawn = panel.drawn_again(narrow=size.narrow, screen=False)
    if size is not None and (missing := export.missing_glyphs(export.drawn_texts(drawn.figure))):
        st.warning(plain(missing), icon=":material/font_download_off:")
    with st.container(horizontal=True):
        st.download_button(
            f"Download {form.label}",
            data=partial(form.write, drawn, panel.name, size),
            file_name=f"{panel.name}.{form.name}",
            key=f"download {panel.name}",
            type="primary",
            icon=":material/download:",
            on_click="ignore",
            help="A picture takes a few seconds." if form.printed else "Made at once.",
        )
        if panel.context is not None and not view_only():
            st.button(
                "Add to report",
                icon=":material/note_add:",
                key=f"add {panel.name}",
                on_click=add_to_report,
                args=(panel.figure, panel.job_id, panel.context),
                help="Puts the figure as it is now into the page Report, where all chosen figures "
                "get one size and are saved together.",
            )
    if size is not None:
        st.caption("In print:")
        show_printed(drawn, size, f"printed-{panel.name}")


def show_printed(drawn: RenderedFigure, size: Paper, place: str) -> None:
    """A figure as it is printed, as large as on paper; a narrow window scrolls it.

    Parameters
    ----------
    place : key of its element, which a style sheet can name
    """
    printed = print_copy(drawn.figure, size)
    # Streamlit measures an element as it is seen, and draws the figure as large inside the zoom.
    width = round(printed.layout.width / size.scale)
    height = round(printed.layout.height / size.scale)
    st.html(f"<style>.st-key-{place} {{overflow: auto hidden; zoom: {size.scale:.3f}}}</style>")
    with st.container(
        key=place, height=round(printed.layout.height * size.scale) + 4, border=False
    ):
        st.plotly_chart(
            printed,
            key=f"chart {place}",
            theme=None,
            width=width,
            height=height,
            config={"staticPlot": True},
            alt=drawn.title,
        )


def add_to_report(figure: str, job_id: str, context: FigureContext) -> None:
    """Put a figure of the registry, of what is shown, at the end of the report of an analysis."""
    drawing = context.drawing
    chosen = Chosen(figure, job_id, context.selection, drawing.pair, drawing.options)
    change_report(job_id, lambda there: [*there, chosen])
    st.toast("Added to the report.", icon=":material/check:")


def change_report(job_id: str, how: Callable[[list[Chosen]], Sequence[Chosen]]) -> None:
    """Change the report of an analysis; what other tabs add meanwhile is kept."""

    def change(saved: Notes) -> Notes:
        figures = how(read_report(saved)[0])
        return replace(saved, report=tuple(figure.to_dict() for figure in figures))

    notes.change_notes(job_id, stored.store(), change)


def read_report(saved: Notes) -> tuple[list[Chosen], list[str]]:
    """The report in the notes on an analysis, and what of it cannot be read."""
    figures, lost = [], []
    for entry in saved.report:
        try:
            figures.append(Chosen.from_dict(entry))
        except InputError as error:
            lost.append(str(error))
    return figures, lost


def show_table(table: pd.DataFrame, name: str, title: str, caption: str) -> None:
    """A table with its download, folded away."""
    frame.folded_part(title, "table", name, partial(draw_table, table, name, caption))


def draw_table(
    table: pd.DataFrame,
    name: str,
    caption: str,
    height: int = 300,
    *,
    features: Sequence[str] = (),
    images: Path | None = None,
    **more: Any,
) -> None:
    """A table in the user's names, with its download, which has the identifiers.

    Parameters
    ----------
    features : that have a column
    images : the folder beside whose files the column of stimuli may name images
    more : goes to `st.dataframe`
    """
    more |= {"hide_index": True, "placeholder": "", "key": f"table {name}", "height": height}
    first = table.head(MOST_ROWS)
    named = stored.names().table(drop_minus_zero(first), features)
    seen = None if images is None else thumbnails(first[STIMULUS], images)
    if seen is not None:
        named.insert(0, "image", seen)
        more |= {"column_config": {"image": st.column_config.ImageColumn("")}, "row_height": 64}
    st.dataframe(named, **more)
    if len(named) < len(table):
        caption += f" The first {MOST_ROWS:,} of {len(table):,} rows; the CSV has all."
    st.caption(caption)
    st.download_button(
        "CSV",
        data=lambda: csv_bytes(table),
        file_name=f"{name}.csv",
        key=f"table csv {name}",
        icon=":material/download:",
        on_click="ignore",
        help="This table. Cells that a spreadsheet would run as formulas are escaped.",
    )
