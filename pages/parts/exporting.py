"""Figures and tables in a page, and how they leave it."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from pages.parts import frame, tables

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from mlem_core.figures import Paper

# Of each format: file ending, MIME type, and what it is for.
FORMATS = {
    "PDF": (
        "pdf",
        "application/pdf",
        "For papers: lines and text stay sharp at any size, and the fonts are in the file.",
    ),
    "SVG": (
        "svg",
        "image/svg+xml",
        "For papers and for drawing programs: lines and text stay sharp and can be edited.",
    ),
    "PNG": ("png", "image/png", "For slides and web pages: pixels."),
    "HTML": ("html", "text/html", "An interactive page that needs no network (5 MB)."),
    "CSV": (
        "csv",
        "text/csv",
        "The table that the figure is drawn from. Cells that a spreadsheet would run as formulas "
        "are escaped.",
    ),
    "LaTeX": (
        "tex",
        "application/x-tex",
        "The numbers of the figure as a table for a paper; it needs the package booktabs.",
    ),
}


def as_csv(table: pd.DataFrame) -> bytes:
    """A table as CSV; cells that a spreadsheet would run are escaped."""
    from mlem_core.data.csvfile import write_table

    buffer = io.BytesIO()
    write_table(table, buffer)
    return buffer.getvalue()


@dataclass(frozen=True)
class Panel:
    """A figure of a page, how it was computed, and what leaves the page with it.

    Attributes
    ----------
    figure : what is drawn
    data : the table that it is drawn from
    name : file name of the downloads, without ending
    caption : how it was computed, and on how much
    narrow : gives the figure for one column of a journal, where it is another one
    table : gives the LaTeX table, where it is not `data`
    """

    figure: Figure
    data: pd.DataFrame
    name: str
    caption: str
    narrow: Callable[[], Figure] | None = None
    table: Callable[[], pd.DataFrame] | None = None

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
        state = st.plotly_chart(
            self.figure,
            key=f"figure {self.name}",
            theme="streamlit",
            config={"displaylogo": False, "modeBarButtonsToRemove": ["toImage"]},
            alt=self.caption,
            **selecting,
        )
        st.caption(self.caption)
        _export(self)
        return state


def _pick(
    label: str, options: list[Any], name: str, setting: str, help: str, first: int = 0, **more: Any
) -> Any:
    """A choice that is the same in the export of all figures; `first` is taken until it is made."""
    settings = st.session_state.setdefault("export", {})
    key = f"export {setting} {name}"
    chosen = settings.get(setting)
    st.session_state[key] = chosen if chosen in options else options[first]

    def remember() -> None:
        settings[setting] = st.session_state[key]

    return st.segmented_control(
        label, options, key=key, required=True, on_change=remember, help=help, **more
    )


@st.fragment
def _export(drawing: Panel) -> None:
    # What is in it is made only when it is opened, so that a redraw does not wait for it.
    popover = st.popover(
        "Export",
        icon=":material/download:",
        key=f"export {drawing.name}",
        on_change="rerun",
        help="This figure as a file for a paper, and the numbers behind it.",
    )
    if not popover.open:
        return
    with popover:
        format = _pick("Format", list(FORMATS), drawing.name, "format", "What the file is.")
        st.caption(FORMATS[format][2])
        paper = _paper(drawing.name, format) if format in ("PDF", "SVG", "PNG") else None
        if paper is not None and paper.narrow and drawing.narrow is not None:
            drawing = replace(drawing, figure=drawing.narrow())
        _download(drawing, format, paper)


def _paper(name: str, format: str) -> Paper:
    from mlem_core.figures import DPI, FONTS, WIDTHS_MM, Paper

    width = _pick(
        "Width",
        list(WIDTHS_MM),
        name,
        "width",
        "The width of the printed figure; text keeps its size.",
        first=1,
        format_func=lambda one: f"{one}, {WIDTHS_MM[one]:.0f} mm",
    )
    font = _pick(
        "Font",
        list(FONTS),
        name,
        "font",
        "The font of all text; a server without it takes one of the same widths.",
    )
    points = _pick(
        "Text size", [6, 7, 8, 9, 10], name, "points", "In points, as in a journal's guidelines.",
        first=1, format_func=lambda one: f"{one} pt",
    )  # fmt: skip
    dpi = DPI[0]
    if format == "PNG":
        dpi = _pick("Resolution", list(DPI), name, "dpi", "Pixels an inch.",
                    format_func=lambda one: f"{one} dpi")  # fmt: skip
    return Paper(width_mm=WIDTHS_MM[width], font=font, points=float(points), dpi=int(dpi))


def _download(drawing: Panel, format: str, paper: Paper | None) -> None:
    from mlem_core import figures
    from mlem_core.report import latex

    if paper is not None and not figures.can_write_images():
        _from_the_browser(drawing, format, paper)
        return
    name, (ending, mime, _) = drawing.name, FORMATS[format]

    def content() -> bytes:
        if format == "CSV":
            return as_csv(drawing.data)
        if format == "LaTeX":
            table = drawing.data if drawing.table is None else drawing.table()
            return latex.table(table, drawing.caption, f"tab:{name}").encode()
        return figures.as_file(
            drawing.figure, format.lower(), paper, title=name, caption=drawing.caption
        )

    st.download_button(
        f"Download {format}",
        data=content,
        file_name=f"{name}.{ending}",
        mime=mime,
        key=f"download {name}",
        type="primary",
        icon=":material/download:",
        on_click="ignore",
        help="A picture takes a few seconds." if paper is not None else "Made at once.",
    )


def _from_the_browser(drawing: Panel, format: str, paper: Paper) -> None:
    """Without Chrome on the server, the visitor's browser writes the picture; PDF it cannot."""
    from mlem_core import figures

    if format == "PDF":
        st.info(
            "PDF is written by Chrome or Chromium, and this server has none. Install one, or name "
            "its path in BROWSER_PATH; SVG and PNG can be saved without.",
            icon=":material/info:",
        )
        return
    drawn = figures.on_paper(drawing.figure, paper)
    scale = paper.scale * (paper.dpi / 96 if format == "PNG" else 1)
    st.plotly_chart(
        drawn,
        theme=None,
        key=f"preview {drawing.name}",
        config={
            "displaylogo": False,
            "displayModeBar": True,
            "modeBarButtons": [["toImage"]],
            "toImageButtonOptions": {
                "format": format.lower(),
                "filename": drawing.name,
                "width": paper.width,
                "height": drawn.layout.height,
                "scale": scale,
            },
        },
    )
    st.caption(f"The camera over the picture saves it as {format}, from your browser.")


def show_table(
    table: pd.DataFrame, name: str, title: str, caption: str, *, first: bool = False
) -> None:
    """A table with its download, folded away unless it comes first on the page."""
    if first:
        st.subheader(title)
        draw_table(table, name, caption, height=380)
    else:
        draw = partial(draw_table, table, name, caption)
        frame.folded(title, ":material/table:", name, draw)


def draw_table(
    table: pd.DataFrame, name: str, caption: str, height: int = 300, **more: Any
) -> None:
    """A table with its download; `more` goes to `st.dataframe`."""
    more |= {"hide_index": True, "placeholder": "", "key": f"table {name}", "height": height}
    st.dataframe(tables.without_minus_zero(table), **more)
    st.caption(caption)
    st.download_button(
        "CSV",
        data=lambda: as_csv(table),
        file_name=f"{name}.csv",
        mime="text/csv",
        key=f"table csv {name}",
        icon=":material/download:",
        on_click="ignore",
        help="This table. Cells that a spreadsheet would run as formulas are escaped.",
    )
