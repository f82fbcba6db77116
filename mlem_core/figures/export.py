"""A figure as a file, at the size at which a journal prints it."""

from __future__ import annotations

import contextlib
import html
import os
import re
import shutil
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from mlem_core.base.errors import InputError, unknown
from mlem_core.figures.style import INK, SIZE

FORMATS = ("pdf", "svg", "png", "html")
# One and two columns of Nature, and nearly those of most journals.
WIDTHS_MM = {"one column": 89.0, "two columns": 183.0}
# What is asked for, then fonts of the same widths that free systems have.
FONTS = {
    "Arial": "Arial, 'Liberation Sans', Helvetica, sans-serif",
    "Times": "'Times New Roman', 'Liberation Serif', Times, serif",
    "DejaVu Sans": "'DejaVu Sans', Verdana, sans-serif",
}
DPI = (300, 600)

_PX_PER_MM = 96 / 25.4
_NARROW = 640  # px; on less than this the legend goes below the panels
_LEGEND_ROW = 20  # px
_sharing = False


@dataclass(frozen=True)
class Paper:
    """How a figure is set in print.

    Attributes
    ----------
    width_mm : width of the figure in mm
    font : one of `FONTS`
    points : size of the text in points (1/72 inch); titles are a little larger
    dpi : pixels an inch of a PNG
    """

    width_mm: float = WIDTHS_MM["two columns"]
    font: str = "Arial"
    points: float = 7.0
    dpi: int = DPI[0]

    @property
    def scale(self) -> float:
        """What all of a figure's lines, marks and texts are multiplied by."""
        return self.points * 96 / 72 / SIZE

    @property
    def width(self) -> float:
        """Width in the figure's own pixels, before scaling."""
        return self.width_mm * _PX_PER_MM / self.scale

    @property
    def narrow(self) -> bool:
        """Whether panels should stand below each other."""
        return self.width < _NARROW

    def check(self) -> None:
        """Raise InputError for a size or font that cannot be."""
        if self.font not in FONTS:
            raise unknown("font", self.font, FONTS)
        if not 30 <= self.width_mm <= 500:
            raise InputError(f"found a width of {self.width_mm:g} mm; expected 30 to 500 mm.")
        if not 4 <= self.points <= 16:
            raise InputError(f"found text of {self.points:g} points; expected 4 to 16 points.")
        if not 72 <= self.dpi <= 1200:
            raise InputError(f"found {self.dpi} dpi; expected 72 to 1200.")


def on_paper(figure: go.Figure, paper: Paper) -> go.Figure:
    """A copy as it is printed: dark text on white, in the paper's font, of the paper's width.

    The copy is `paper.width` pixels wide; multiplied by `paper.scale` it has the paper's size. So
    text, lines and marks keep their proportions at every size.

    Raises
    ------
    InputError
        A size or font that cannot be.
    """
    paper.check()
    copy = go.Figure(figure)
    copy.update_layout(
        width=paper.width,
        height=int(copy.layout.height or 460),
        paper_bgcolor="white",
        plot_bgcolor="white",
        font={"family": FONTS[paper.font], "color": INK},
        title_font_weight=400,
    )
    names = [
        str(trace.name)
        for trace in copy.data
        if trace.type == "scatter" and trace.showlegend is not False
    ]
    if paper.narrow and names and copy.layout.showlegend is not False:
        title = copy.layout.legend.title.text
        wide = max(len(html.unescape(name)) for name in names) * 7 + 48
        across = max(1, int((paper.width - 40) // wide))
        rows = -(-len(names) // across) + bool(title)
        room = rows * _LEGEND_ROW + 8
        below = 48 if copy.layout.margin.b is None else copy.layout.margin.b
        copy.update_layout(
            legend={
                "orientation": "h",
                "x": 0.5,
                "xanchor": "center",
                "xref": "container",
                "y": 0,
                "yanchor": "bottom",
                "yref": "container",
                "entrywidth": wide - 40,
                "title_side": "top",
            },
            margin_b=below + room,
            height=copy.layout.height + room,
        )
    return copy


def as_file(
    figure: go.Figure,
    format: str,
    paper: Paper | None = None,
    *,
    title: str = "",
    caption: str = "",
) -> bytes:
    """A figure as a file's content.

    Parameters
    ----------
    format : one of `FORMATS`; PDF and SVG are vector graphics whose text stays text. An SVG names
        its font, a PDF carries it. HTML is interactive, needs no network and keeps the figure's own
        size.
    paper : size and font of a PDF, SVG or PNG
    title, caption : of an HTML page

    Raises
    ------
    InputError
        An unknown format, a size or font that cannot be; no Chrome or Chromium where one is needed.
    """
    if format not in FORMATS:
        raise unknown("format of a figure", format, FORMATS)
    if format == "html":
        return _page(figure, title, caption)
    paper = paper or Paper()
    drawn = on_paper(figure, paper)
    size = {"width": drawn.layout.width, "height": drawn.layout.height}
    if format == "png":
        # Pixels are whole: the exact resolution goes into the file.
        written = image(drawn, "png", **size, scale=paper.scale * paper.dpi / 96)
        return _with_dpi(written, paper.dpi)
    written = image(drawn, format, **size, scale=paper.scale)
    return _in_mm(written, paper) if format == "svg" else written


def can_write_images() -> bool:
    """Whether there is a Chrome or Chromium for `image`; only looks, starts nothing."""
    named = os.environ.get("BROWSER_PATH")
    if named:
        return shutil.which(named) is not None
    from choreographer.browsers.chromium import Chromium

    return Chromium.find_browser(skip_local=False) is not None


def image(
    figure: go.Figure,
    format: str,
    *,
    width: float = 900,
    height: float = 600,
    scale: float = 2,
) -> bytes:
    """A figure as a file's content, on white.

    Parameters
    ----------
    format : "svg", "png" or "pdf"
    width, height : in CSS pixels (96 an inch)
    scale : all of it is multiplied by this

    Raises
    ------
    InputError
        An unknown format; no Chrome or Chromium, or it could not draw.
    """
    if format not in ("svg", "png", "pdf"):
        raise unknown("image format", format, ("svg", "png", "pdf"))
    if not can_write_images():
        raise InputError(
            f"no Chrome or Chromium was found to write the {format.upper()}: install one, or name "
            "its path in BROWSER_PATH."
        )
    import kaleido

    on_white = go.Figure(figure)
    on_white.update_layout(paper_bgcolor="white", plot_bgcolor="white")
    options = {"format": format, "width": width, "height": height, "scale": scale}
    try:
        # Without MathJax, which would come from the network.
        written: bytes = kaleido.calc_fig_sync(
            on_white.to_dict(), opts=options, kopts=None if _sharing else {"mathjax": False}
        )
    except (RuntimeError, OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"the browser could not write the {format.upper()}: {' '.join(str(error).split())}"
        ) from error
    return written


@contextlib.contextmanager
def one_browser() -> Iterator[None]:
    """Within it, all images are written by one browser; each one by itself starts its own."""
    global _sharing
    import kaleido

    kaleido.start_sync_server(n=1, mathjax=False, silence_warnings=True)
    _sharing = True
    try:
        yield
    finally:
        _sharing = False
        kaleido.stop_sync_server(silence_warnings=True)


def _in_mm(svg: bytes, paper: Paper) -> bytes:
    """The SVG with its size in mm; its viewBox keeps the units of what is in it."""
    head = re.match(rb"<svg[^>]*>", svg)
    if head is None:
        return svg
    root = head.group()
    for side in (b"width", b"height"):
        attribute = re.search(rb"\b" + side + rb'="([\d.]+)(?:px)?"', root)
        if attribute:
            length = paper.width_mm
            if side == b"height":
                length = float(attribute[1]) / _PX_PER_MM
            root = root.replace(attribute[0], side + f'="{length:.2f}mm"'.encode(), 1)
    return root + svg[head.end() :]


def _with_dpi(png: bytes, dpi: int) -> bytes:
    """The PNG with its resolution written into it (the chunk pHYs, pixels a metre)."""
    at = 8 + 8 + 13 + 4  # signature; then length, name, content and checksum of the header
    metre = round(dpi / 0.0254)
    chunk = b"pHYs" + struct.pack(">IIB", metre, metre, 1)
    return b"".join(
        (png[:at], struct.pack(">I", 9), chunk, struct.pack(">I", zlib.crc32(chunk)), png[at:])
    )


def _page(figure: go.Figure, title: str, caption: str) -> bytes:
    copy = go.Figure(figure)
    copy.update_layout(paper_bgcolor="white", plot_bgcolor="white", font_color=INK)
    options: dict[str, Any] = {"displaylogo": False, "responsive": True}
    drawn = copy.to_html(
        full_html=False, include_plotlyjs=True, include_mathjax=False, config=options
    )
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title>"
        '<meta name="viewport" content="width=device-width">'
        "<style>body{font:15px/1.5 sans-serif;color:#1A1A1A;margin:2em auto;max-width:1200px;"
        "padding:0 1em}</style></head><body>"
        f"{drawn}<p>{html.escape(caption)}</p></body></html>\n"
    )
    return page.encode()
