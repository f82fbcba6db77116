"""A figure as a file, at the size at which a journal prints it."""

from __future__ import annotations

import contextlib
import html
import os
import re
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.files import scratch
from mlem_core.figures.press import for_print
from mlem_core.figures.style import DARK, INK, SIZE

_PICTURES = ("pdf", "svg", "png", "html")
# One, one and a half and two columns of Nature, and nearly those of most journals.
WIDTHS_MM = {"one column": 89.0, "one and a half": 120.0, "two columns": 183.0}
# What is asked for, then fonts of the same widths that free systems have.
FONTS = {
    "Arial": "Arial, 'Liberation Sans', Helvetica, sans-serif",
    "Times": "'Times New Roman', 'Liberation Serif', Times, serif",
    "DejaVu Sans": "'DejaVu Sans', Verdana, sans-serif",
}
DPI = (300, 600)

_PX_PER_MM = 96 / 25.4
_NARROW = 640  # px; on less than this the legend goes below the panels
_PHONE = 330  # px, about
_LEGEND_ROW = 20  # px
_BAR = 110  # px; a colour bar with its numbers
_SOCKET = 107  # bytes of the path of a socket, at most
_sharing = False


@dataclass(frozen=True)
class Paper:
    """Typesetting of a figure in print.

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
        """Factor for all of a figure's lines, marks and texts."""
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
        check_choice("font", self.font, FONTS)
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
    for_print(copy)
    if (paper.narrow or _has_long_legend(copy)) and copy.layout.showlegend is not False:
        _legends_below(copy)
    else:
        _beside(copy)
    return copy


def in_narrow_window(figure: go.Figure) -> go.Figure:
    """A copy for a window of a phone: its legends below the panels, which keep the whole width."""
    copy = go.Figure(figure)
    if copy.layout.showlegend is False:
        return copy
    copy.update_layout(width=_PHONE, height=int(copy.layout.height or 460))
    _legends_below(copy)
    # The window says how wide it is.
    return copy.update_layout(width=None)


def on_dark_page(figure: go.Figure) -> go.Figure:
    """A copy whose similar layers are light; the figure itself where cells have numbers."""
    of_layers = any((trace.name or "").startswith("cells") for trace in figure.data)
    axes = [name for name in ("coloraxis", "coloraxis2") if name in figure.layout]
    if not of_layers and "coloraxis2" not in axes:
        return figure
    return go.Figure(figure).update_layout({name: {"colorscale": DARK} for name in axes})


def _in_legends(figure: go.Figure) -> dict[str, list[str]]:
    """The names that stand in each legend."""
    names: dict[str, list[str]] = {}
    for trace in figure.data:
        if trace.type == "scatter" and trace.showlegend is not False:
            names.setdefault(trace.legend or "legend", []).append(str(trace.name))
    return names


def _wide(names: Sequence[str]) -> int:
    """Width of the entries of a legend in px."""
    lines = (html.unescape(line) for name in names for line in name.split("<br>"))
    return 7 * max(map(len, lines)) + 48


def _has_long_legend(figure: go.Figure) -> bool:
    """Whether a legend is higher than the figure, which would cut it off in print."""
    longest = max(map(len, _in_legends(figure).values()), default=0)
    return bool(longest * _LEGEND_ROW > figure.layout.height - 80)


def _legends_below(figure: go.Figure) -> None:
    """Set each legend in rows below the panels, one below the other, and make room for them."""
    names = _in_legends(figure)
    room, places = 8, []
    for legend in sorted(names, reverse=True):  # from the bottom upwards
        wide = _wide(names[legend])
        across = max(1, int((figure.layout.width - 40) // wide))
        high = [name.count("<br>") + 1 for name in names[legend]]
        rows = sum(max(high[at : at + across]) for at in range(0, len(high), across))
        rows += bool(figure.layout[legend].title.text)
        places.append((legend, room, wide))
        room += rows * _LEGEND_ROW + 8
    if not places:
        return
    below = 48 if figure.layout.margin.b is None else figure.layout.margin.b
    figure.update_layout(margin_b=below + room, height=figure.layout.height + room)
    side = {"x": 0.5, "xanchor": "center"}
    if len(places) > 1:
        side = {"x": (figure.layout.margin.l or 0) / figure.layout.width, "xanchor": "left"}
    for legend, bottom, wide in places:
        place = {
            "orientation": "h",
            **side,
            "xref": "container",
            "y": bottom / figure.layout.height,
            "yanchor": "bottom",
            "yref": "container",
            "entrywidth": wide - 40,
            "title_side": "top",
        }
        figure.update_layout({legend: place})


def _beside(figure: go.Figure) -> None:
    """Bring a square panel into the middle, and what explains its colours next to it."""
    if "xaxis2" in figure.layout or figure.layout.yaxis.scaleanchor is None:
        return
    margin, names = figure.layout.margin, _in_legends(figure).get("legend", [])
    scales = [trace.marker.showscale for trace in figure.data if trace.type == "scatter"]
    has_bar = any(scales) or figure.layout.coloraxis.colorscale is not None
    right = max(margin.r, _wide(names) if names else 0, _BAR if has_bar else 0)
    side = figure.layout.height - margin.t - margin.b
    more = (figure.layout.width - margin.l - right - side) / 2
    if more > 0:
        figure.update_layout(margin={"l": margin.l + more, "r": right + more})


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
    format : "pdf", "svg", "png" or "html"; PDF and SVG are vector graphics whose text stays text.
        An SVG names its font, a PDF carries it. HTML is interactive, needs no network and keeps the
        figure's own size.
    paper : size and font of a PDF, SVG or PNG
    title : of the document, as a reader shows it in place of a file name; a PNG has none
    caption : of an HTML page

    Raises
    ------
    InputError
        An unknown format, a size or font that cannot be; no Chrome or Chromium where one is needed.
    """
    check_choice("format of a figure", format, _PICTURES)
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
    if format == "pdf":
        return _pdf_with_title(written, title)
    return _svg_with_title(_in_mm(written, paper), title)


def can_write_images() -> bool:
    """Whether there is a Chrome or Chromium for `image`; only looks, starts nothing."""
    return _found() is not None


def _found() -> str | None:
    """The path of the browser that draws."""
    if named := os.environ.get("BROWSER_PATH"):
        return shutil.which(named)
    from choreographer.browsers.chromium import Chromium

    return Chromium.find_browser(skip_local=False)


def image(
    figure: go.Figure, format: str, *, width: float = 900, height: float = 600, scale: float = 2
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
    check_choice("image format", format, ("svg", "png", "pdf"))
    if (path := _found()) is None:
        raise InputError(
            f"no Chrome or Chromium was found to write the {format.upper()}: install one, or name "
            "its path in BROWSER_PATH."
        )
    import kaleido

    on_white = go.Figure(figure)
    on_white.update_layout(paper_bgcolor="white", plot_bgcolor="white")
    options = {"format": format, "width": width, "height": height, "scale": scale}
    one = contextlib.nullcontext() if _sharing else _browser(path)
    try:
        with one as how:
            written: bytes = kaleido.calc_fig_sync(on_white.to_dict(), opts=options, kopts=how)
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

    with _browser(_found()) as how:
        kaleido.start_sync_server(n=1, silence_warnings=True, **how)
        _sharing = True
        try:
            yield
        finally:
            _sharing = False
            kaleido.stop_sync_server(silence_warnings=True)


@contextlib.contextmanager
def _browser(path: str | None) -> Iterator[dict[str, Any]]:
    """Arguments to start a browser, with a folder of its own that a kill leaves to the next one.

    `path` is where it was found; without one the error is that of who starts it.

    The page on which it draws has no margins, which would shrink and cut a PDF, and no MathJax,
    which would come from the network.
    """
    import kaleido

    sheet = kaleido.PageGenerator(mathjax=False)
    sheet.header += "<style>@page { margin: 0 }</style>"
    if "snap" in (path or ""):
        yield {
            "page_generator": sheet,
            "path": path,
        }  # sees no temporary folder, and is given another one
        return
    _check_temporary()
    with scratch("browser") as folder:
        page = folder / "index.html"
        page.write_text(sheet.generate_index(), encoding="utf-8")
        yield {"page_generator": page, "tmp_dir": folder, "path": path}


def _check_temporary() -> None:
    """Raise InputError where a browser could not open its socket, and would end without a word."""
    home = tempfile.gettempdir()
    longest = _SOCKET - len(os.fsencode("/org.chromium.Chromium.XXXXXX/SingletonSocket"))
    if len(os.fsencode(home)) > longest:
        raise InputError(
            f"the path of the temporary folder, {home!r}, is too long for the browser that draws: "
            f"name one of up to {longest} characters in TMPDIR."
        )


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


def _svg_with_title(svg: bytes, title: str) -> bytes:
    """The SVG with what programs and screen readers call it."""
    head = re.match(rb"<svg[^>]*>", svg)
    if head is None or not title:
        return svg
    element = f"<title>{html.escape(title, quote=False)}</title>".encode()
    return head.group() + element + svg[head.end() :]


def _pdf_with_title(pdf: bytes, title: str) -> bytes:
    """The PDF with another title than its writer's, as an update at its end (PDF 1.4, 3.4.5)."""
    trailer = re.search(rb"trailer\s*<<(.*?)>>\s*startxref\s*(\d+)\s*%%EOF\s*$", pdf, re.DOTALL)
    info = trailer and re.search(rb"/Info (\d+) 0 R", trailer[1])
    if not trailer or not info:
        return pdf
    number = info[1]
    found = re.search(rb"(?:^|\n)" + number + rb" 0 obj\s*<<(.*?)>>\s*endobj", pdf, re.DOTALL)
    entries = re.findall(
        rb"/(?:Producer|CreationDate|ModDate) ?\([^)]*\)", found[1] if found else b""
    )
    coded = b"<FEFF" + title.encode("utf-16-be").hex().upper().encode() + b">"
    start = len(pdf) + 1
    update = number + b" 0 obj\n<</Title " + coded + b"\n" + b"\n".join(entries) + b">>\nendobj\n"
    table = b"xref\n%s 1\n%010d 00000 n \n" % (number, start)
    return b"".join(
        (
            pdf, b"\n", update, table,
            b"trailer\n<<", trailer[1].strip(), b"\n/Prev ", trailer[2], b">>\n",
            b"startxref\n%d\n%%%%EOF\n" % (start + len(update)),
        )
    )  # fmt: skip


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
    # A name of its own would be another one each time.
    drawn = copy.to_html(
        config=options,
        full_html=False,
        include_plotlyjs=True,
        include_mathjax=False,
        div_id="figure",
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
