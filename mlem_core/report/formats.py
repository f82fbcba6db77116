"""The formats of export of a figure: one table, which screens, reports and capsules read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO

import pandas as pd
from plotly.graph_objects import Figure

from mlem_core import figures
from mlem_core.base.parameters import Registry
from mlem_core.data.stimulus_csv import write_table
from mlem_core.figures.context import RenderedFigure
from mlem_core.report import latex
from mlem_core.report.contents import in_zip

# Gives the files of a figure by their names, at the size and in the font of a paper.
Write = Callable[[RenderedFigure, str, figures.Paper | None], dict[str, bytes]]


@dataclass(frozen=True)
class ExportFormat:
    """A format in which a figure, or its numbers, can be exported.

    Attributes
    ----------
    name : ending of its files
    label : what buttons call it
    mime : its MIME type
    sentence : what it is for
    write : gives the files of a figure; of pixels and SVG one a page
    printed : whether it is a picture with the size and font of a `figures.Paper`, which takes a
        Chrome or Chromium on the server
    resolution : whether that is of pixels
    by_visitor : whether the visitor's browser can write it where the server has none
    """

    name: str
    label: str
    mime: str
    sentence: str
    write: Write
    printed: bool = False
    resolution: bool = False
    by_visitor: bool = False

    def download(
        self, drawn: RenderedFigure, name: str, paper: figures.Paper | None
    ) -> tuple[str, Callable[[], bytes]]:
        """Name of the one file that is downloaded, a zip of several pages, and what gives it."""
        pages = paper and self.by_visitor and len(pages_of(drawn, paper)) > 1

        def content() -> bytes:
            files = self.write(drawn, name, paper)
            return in_zip(files) if pages else next(iter(files.values()))

        return f"{name}.{'zip' if pages else self.name}", content


FORMATS = Registry[ExportFormat]("format of export")


def pictures(images: bool) -> list[ExportFormat]:
    """Formats of the pictures in a zip: vector graphics, or pages where no browser can write them.

    Parameters
    ----------
    images : whether there is a browser, see `mlem_core.figures.can_write_images`
    """
    if not images:
        return [FORMATS["html"]]
    return [one for one in FORMATS.values() if one.printed and not one.resolution]


def pages_of(drawn: RenderedFigure, paper: figures.Paper) -> list[Figure]:
    """Pages of a figure on a paper, laid out once for all of its files, see `figures.on_pages`."""
    known: dict[figures.Paper, list[Figure]] = vars(drawn).setdefault("_pages", {})
    if paper not in known:
        known[paper] = figures.on_pages(drawn.figure, paper)
    return known[paper]


def as_latex(drawn: RenderedFigure, name: str, paper: figures.Paper, form: str = "pdf") -> str:
    """A figure and its table as LaTeX.

    Parameters
    ----------
    name : of its files
    paper : of the picture, which lies in the folder `figures`
    form : ending of the picture; LaTeX reads PDF
    """
    path, title = f"figures/{name}.{form}", drawn.title
    pages = len(pages_of(drawn, paper))
    size = paper.width_mm, pages
    picture = latex.figure(path, size, drawn.caption, f"fig:{name}", title)
    return "\n".join((picture, latex.table(drawn.printed, "", f"tab:{name}", title=title)))


def csv_bytes(table: pd.DataFrame) -> bytes:
    """A table as CSV; cells that a spreadsheet would run are escaped."""
    file = BytesIO()
    write_table(table, file)
    return file.getvalue()


def _picture(
    drawn: RenderedFigure, name: str, paper: figures.Paper | None, form: str
) -> dict[str, bytes]:
    words = {"title": drawn.title or name, "caption": drawn.caption}
    if form == "html":
        return figures.as_files(drawn.figure, name, form, None, **words)
    paper = paper or figures.Paper()
    return figures.as_files(pages_of(drawn, paper), name, form, paper, **words)


def _table(drawn: RenderedFigure, name: str, paper: figures.Paper | None) -> dict[str, bytes]:
    written = latex.table(drawn.printed, drawn.caption, f"tab:{name}", title=drawn.title)
    return {f"{name}.tex": written.encode()}


for _format in (
    ExportFormat(
        "pdf",
        "PDF",
        "application/pdf",
        "For papers: lines and text stay sharp at any size, and the fonts are in the file.",
        partial(_picture, form="pdf"),
        printed=True,
    ),
    ExportFormat(
        "svg",
        "SVG",
        "image/svg+xml",
        "For papers and for drawing programs: lines and text stay sharp and can be edited.",
        partial(_picture, form="svg"),
        printed=True,
        by_visitor=True,
    ),
    ExportFormat(
        "png",
        "PNG",
        "image/png",
        "For slides and web pages: pixels.",
        partial(_picture, form="png"),
        printed=True,
        resolution=True,
        by_visitor=True,
    ),
    ExportFormat(
        "html",
        "HTML",
        "text/html",
        "An interactive page that needs no network (5 MB).",
        partial(_picture, form="html"),
    ),
    ExportFormat(
        "csv",
        "CSV",
        "text/csv",
        "The table that the figure is drawn from. Cells that a spreadsheet would run as formulas "
        "are escaped.",
        lambda drawn, name, paper: {f"{name}.csv": csv_bytes(drawn.data)},
    ),
    ExportFormat(
        "tex",
        "LaTeX",
        "application/x-tex",
        "The numbers of the figure as a table for a paper; it needs the packages booktabs and "
        "longtable.",
        _table,
    ),
):
    FORMATS.register(_format)
