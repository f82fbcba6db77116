"""Figures and tables in a page, and how they leave it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from mlem_core.base.text import listed
from mlem_core.data.levels import STIMULUS
from pages.parts import choices, frame, naming, report_cards, stored
from pages.parts.choices import plain, without_minus_zero
from pages.parts.images import thumbnails

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from plotly.graph_objects import Figure

    from mlem_core.figures import Paper
    from mlem_core.figures.context import RenderedFigure
    from mlem_core.report.chosen import Chosen
    from mlem_core.report.formats import ExportFormat
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
    chosen = _settings().get(setting)
    more |= _bound(setting, name, chosen if chosen in options else options[first])
    return st.segmented_control(label, options, required=True, help=help, **more)


def _settings() -> dict[str, Any]:
    settings: dict[str, Any] = st.session_state.setdefault("export", {})
    return settings


def _bound(setting: str, name: str, value: object) -> dict[str, Any]:
    """Key and callback of a choice that stands beside each figure."""
    change = partial(_settings().__setitem__, setting)
    return choices.bound(f"export {setting} {name}", value, change)


def paper(name: str, *, resolution: bool = False) -> Paper:
    """The size and font that are chosen beside a figure, and the resolution of pixels."""
    from mlem_core.figures import DPI, FONTS, WIDTHS_MM, Paper

    width = pick(
        "Width",
        [*WIDTHS_MM, OTHER],
        name,
        "width",
        "The width of the printed figure; text keeps its size.",
        first=list(WIDTHS_MM).index("two columns"),
        format_func=lambda one: f"{one}, {WIDTHS_MM[one]:.0f} mm" if one in WIDTHS_MM else one,
    )
    wide = WIDTHS_MM[width] if width in WIDTHS_MM else _millimetres(name)
    font = pick(
        "Font",
        list(FONTS),
        name,
        "font",
        "The font of all text; a server without it takes one of the same widths.",
    )
    points = pick(
        "Text size", [6, 7, 8, 9, 10], name, "points", "In points, as in a journal's guidelines.",
        first=1, format_func=lambda one: f"{one} pt",
    )  # fmt: skip
    dpi = DPI[0]
    if resolution:
        dpi = pick("Resolution", list(DPI), name, "dpi", "Pixels an inch.",
                   format_func=lambda one: f"{one} dpi")  # fmt: skip
    return Paper(width_mm=wide, font=font, points=float(points), dpi=int(dpi))


def _millimetres(name: str) -> float:
    about = "As the journal asks for it, from 30 to 500."
    chosen = _bound("mm", name, _settings().get("mm", 136))
    return float(st.number_input("Width in mm", 30, 500, help=about, **chosen))


# The figures that can be saved where two layers are looked at.
THIS, WHOLE = "this one", "figure 4: scatter and both maps"
# Of a table, those that the browser gets at a time.
MOST_ROWS = 5_000


@dataclass(frozen=True)
class Panel:
    """A figure of a page, and what leaves the page with it.

    Attributes
    ----------
    drawn : the figure, with its title, its caption for print and its tables
    name : file name of the downloads, without ending
    narrow : gives the figure for a narrow window, and for one column of a journal, where it is
        another one
    line : what the screen says below it; by default its caption
    options : what a report needs beside the page's choices to draw it again, see
        `mlem_core.figures.context.Drawing`
    registered : its name in `mlem_core.figures.plots.FIGURES`; empty where it is none of these,
        and no report can draw it
    printed : draws it for print, in one column of a journal or not, where that differs
    """

    drawn: RenderedFigure
    name: str
    narrow: Callable[[], Figure] | None = None
    line: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    registered: str = ""
    printed: Callable[[bool], RenderedFigure] | None = None

    @classmethod
    def of(cls, view: View, figure: str, name: str = "", **options: str) -> Panel | None:
        """A figure of the core's registry, of what a view shows; None where there is none.

        Parameters
        ----------
        figure : its name in `mlem_core.figures.plots.FIGURES`
        name : of its files and its widgets, where that is not the figure's
        options : as of a panel
        """
        from mlem_core.figures.plots import FIGURES, draw

        context = view.shown(**options)
        drawn = draw(figure, context)
        if drawn is None:
            return None

        def narrow() -> Figure:
            drawing = replace(context.drawing, narrow=True)
            return (draw(figure, replace(context, drawing=drawing)) or drawn).figure

        def printed(narrow: bool) -> RenderedFigure:
            drawing = replace(context.drawing, narrow=narrow, screen=False)
            return draw(figure, replace(context, drawing=drawing)) or drawn

        name = name or figure.replace("_", "-")
        return cls(drawn, name, narrow, FIGURES[figure].below(context), options, figure, printed)

    def show(self) -> None:
        """Draw it, with its caption and its export."""
        self._chart(on_select="ignore")

    def select(self, *ways: Literal["points", "box", "lasso"]) -> list[dict[str, Any]]:
        """Draw it with points that can be selected in these ways; the points that are."""
        state = self._chart(on_select="rerun", selection_mode=ways)
        return list(state["selection"]["points"]) if state else []

    def on_click(self, choose: Callable[[list[dict[str, Any]]], None]) -> None:
        """Draw it with points that can be clicked; `choose` gets them before all is drawn anew."""

        def clicked() -> None:
            choose(list(st.session_state[f"figure {self.name}"]["selection"]["points"]))

        self._chart(on_select=clicked, selection_mode="points")

    def _chart(self, **selecting: Any) -> Any:
        from mlem_core import figures

        figure = self.drawn.figure
        if frame.narrow():
            figure = figures.in_narrow_window(figure if self.narrow is None else self.narrow())
        if st.context.theme.type == "dark":
            figure = figures.on_dark_page(figure)
        state = st.plotly_chart(
            figure,
            key=f"figure {self.name}",
            theme="streamlit",
            config={"displaylogo": False, "modeBarButtonsToRemove": ["toImage"]},
            alt=self.drawn.caption,
            **selecting,
        )
        _below(self)
        return state


def show_figure(view: View, figure: str, name: str = "", **options: Any) -> None:
    """Draw a figure of the core's registry, where there is something to draw; see `Panel.of`."""
    panel = Panel.of(view, figure, name, **options)
    if panel is not None:
        panel.show()


def show_tab(view: View, tab: str, *, titled: bool = True) -> None:
    """The figures whose record says that they stand on a tab of Explore, or in a part of one."""
    from mlem_core.figures.plots import FIGURES

    records = [record for record in FIGURES.values() if record.tab == tab]
    for record in sorted(records, key=lambda record: record.place):
        panel = Panel.of(view, record.name)
        if panel is not None:
            if titled:
                st.subheader(record.title)
            panel.show()


@st.fragment
def _below(panel: Panel) -> None:
    """The line below a figure, and what is folded beside it."""
    from mlem_core.figures.captions import glosses

    row = st.container(horizontal=True, vertical_alignment="center")
    caption = panel.drawn.caption
    line = panel.line or caption
    row.caption(line, width="stretch", help=glosses(f"{line} {caption}") or None)
    ways = row.container(horizontal=True, width="content")
    with ways.popover(
        "How computed",
        icon=":material/function:",
        key=f"how {panel.name}",
        help="What is seen, how it was computed and on how much: the caption in print.",
    ):
        st.markdown(plain(caption))
    # What is in it is made only when it is opened, so that a redraw does not wait for it.
    popover = ways.popover(
        "Export",
        icon=":material/download:",
        key=f"export {panel.name}",
        on_change="rerun",
        help="This figure as a file for a paper, and the numbers behind it; or into the report.",
    )
    if popover.open:
        with popover:
            frame.attempt(partial(_export, panel))


def _export(panel: Panel) -> None:
    from mlem_core.report.formats import FORMATS

    at, name, figure = panel.name, panel.name, panel.registered  # `at` of the widgets, always
    if figure in report_cards.OF_TWO:
        whole = pick(
            "Figure",
            [THIS, WHOLE],
            at,
            "whole",
            "The importances of the two layers and the maps of the stimuli in both, in one figure.",
        )
        if whole == WHOLE:
            figure, name = "two_layers", "figure-4"
    labelled = {one.label: one for one in FORMATS.values()}
    form = labelled[pick("Format", list(labelled), at, "format", "What the file is.")]
    st.caption(form.sentence)
    size = paper(at, resolution=form.resolution) if form.printed else None
    narrow = size is not None and size.narrow
    chosen = report_cards.chosen_figure(figure, panel.options) if figure else None
    row = st.container(horizontal=True)
    with row:
        drawn: RenderedFigure | None = panel.drawn
        if figure == "two_layers" and chosen is not None:
            drawn = report_cards.drawn(chosen, naming.now(), narrow=narrow)
        elif size is not None and panel.printed is not None:
            drawn = panel.printed(narrow)
        elif narrow and panel.narrow is not None:
            drawn = replace(panel.drawn, figure=panel.narrow())
        if drawn is None:
            return
        _download(drawn, name, form, size, at)
        if chosen is not None:
            _add(chosen, at)


def _add(chosen: Chosen, at: str) -> None:
    def add() -> None:
        report_cards.change(lambda there: [*there, chosen])
        st.toast("Added to the report.", icon=":material/check:")

    st.button(
        "Add to report",
        icon=":material/note_add:",
        key=f"add {at}",
        on_click=add,
        help="Puts the figure as it is now into the page Report, where all chosen figures get one "
        "size and are saved together.",
    )


def _download(
    made: RenderedFigure, name: str, form: ExportFormat, paper: Paper | None, at: str
) -> None:
    from mlem_core import figures

    if paper is not None and not figures.can_write_images():
        _from_the_browser(made, name, form, paper)
        return
    st.download_button(
        f"Download {form.label}",
        data=stored.token_bound(partial(form.write, made, name, paper)),
        file_name=f"{name}.{form.name}",
        mime=form.mime,
        key=f"download {at}",
        type="primary",
        icon=":material/download:",
        on_click="ignore",
        help="A picture takes a few seconds." if paper is not None else "Made at once.",
    )


def _from_the_browser(made: RenderedFigure, name: str, form: ExportFormat, paper: Paper) -> None:
    """Without Chrome on the server, the visitor's browser writes the picture; PDF it cannot."""
    from mlem_core import figures
    from mlem_core.report.formats import FORMATS

    if not form.by_visitor:
        others = listed([one.label for one in FORMATS.values() if one.by_visitor])
        st.info(
            f"{form.label} is written by Chrome or Chromium, and this server has none. Install "
            f"one, or name its path in BROWSER_PATH; {others} can be saved without.",
            icon=":material/info:",
        )
        return
    scale = paper.scale * (paper.dpi / 96 if form.resolution else 1)
    drawn = figures.on_paper(made.figure, paper)
    st.plotly_chart(
        drawn,
        theme=None,
        key=f"preview {name}",
        config={
            "displaylogo": False,
            "displayModeBar": True,
            "modeBarButtons": [["toImage"]],
            "toImageButtonOptions": {
                "format": form.name,
                "filename": name,
                "width": paper.width,
                "height": drawn.layout.height,
                "scale": scale,
            },
        },
    )
    st.caption(f"The camera over the picture saves it as {form.label}, from your browser.")


def show_table(
    table: pd.DataFrame,
    name: str,
    title: str,
    caption: str,
    *,
    first: bool = False,
    **more: Any,
) -> None:
    """A table with its download, folded away unless it comes first on the page.

    Parameters
    ----------
    more : as of `draw_table`
    """
    if first:
        st.subheader(title)
        draw_table(table, name, caption, height=380, **more)
    else:
        draw = partial(draw_table, table, name, caption, **more)
        frame.folded_part(title, ":material/table:", name, draw)


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
    from mlem_core.report.formats import csv_bytes

    more |= {"hide_index": True, "placeholder": "", "key": f"table {name}", "height": height}
    rows = _some_rows(table, name)
    shown = naming.now().table(without_minus_zero(table.iloc[rows]), features)
    seen = None if images is None else thumbnails(table[STIMULUS].iloc[rows], images)
    if seen is not None:
        shown.insert(0, "image", seen)
        more |= {"column_config": {"image": st.column_config.ImageColumn("")}, "row_height": 64}
    st.dataframe(shown, **more)
    if len(shown) < len(table):
        caption += (
            f" Rows {rows.start + 1:,} to {rows.start + len(shown):,} of {len(table):,}; the CSV "
            "has all."
        )
    st.caption(caption)
    st.download_button(
        "CSV",
        data=lambda: csv_bytes(table),
        file_name=f"{name}.csv",
        mime="text/csv",
        key=f"table csv {name}",
        icon=":material/download:",
        on_click="ignore",
        help="This table. Cells that a spreadsheet would run as formulas are escaped.",
    )


def _some_rows(table: pd.DataFrame, name: str) -> slice:
    """The rows that are sent to the browser: all, or those of the page that is chosen."""
    if len(table) <= MOST_ROWS:
        return slice(0, None)
    page = st.number_input(
        f"Page of {name}",
        1,
        -(-len(table) // MOST_ROWS),
        key=f"table page {name} {len(table)}",
        width=200,
        help=f"{MOST_ROWS:,} rows are shown at a time.",
    )
    return slice((page - 1) * MOST_ROWS, page * MOST_ROWS)
