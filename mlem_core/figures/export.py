"""A figure as a file, at the size at which a journal prints it; letters that have no font here."""

from __future__ import annotations

import contextlib
import html
import io
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import plotly.graph_objects as go

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.files import scratch
from mlem_core.figures.print_layout import PX_PER_MM, Paper, print_copy
from mlem_core.figures.style import DARK, INK, SIMILARITY, upper_half

_PICTURES = ("pdf", "svg", "png", "html")
_SOCKET = 107  # bytes of the path of a socket, at most
_sharing = False
# Fonts of any system have these (Latin, Greek, Cyrillic); of the others so many are looked up.
_COMMON, _MOST = 0x0530, 100
_NOT_DRAWN = ("customdata", "hovertemplate", "hovertext", "meta", "template")


def dark_copy(figure: go.Figure) -> go.Figure:
    """A copy whose similar layers are light; the figure itself where cells have numbers."""
    of_layers = any((trace.name or "").startswith("cells") for trace in figure.data)
    axes = [name for name in ("coloraxis", "coloraxis2") if name in figure.layout]
    if not of_layers and "coloraxis2" not in axes:
        return figure
    scales = {}
    for name in axes:
        axis = figure.layout[name]
        # From 0 up, distances are dark at 0 and similarities at 1; on a dark page it is light.
        scales[name] = DARK if axis.cmin else upper_half(DARK)
        if not axis.cmin and axis.colorscale[0][1] == SIMILARITY[2][1]:
            scales[name] = [[1 - at, color] for at, color in upper_half(DARK)[::-1]]
    return go.Figure(figure).update_layout(
        {name: {"colorscale": colors} for name, colors in scales.items()}
    )


def as_file(
    figure: go.Figure,
    format: str,
    paper: Paper | None = None,
    *,
    title: str = "",
    caption: str = "",
) -> bytes:
    """Content of the file of a figure.

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
    # Pixels are whole: the exact resolution goes into the file.
    scale = paper.scale * (paper.dpi / 96 if format == "png" else 1)
    copy = print_copy(figure, paper)
    size = {"width": copy.layout.width, "height": copy.layout.height}
    written = image(copy, format, **size, scale=scale)
    if format == "pdf":
        return _document(written, title)
    return _with_dpi(written, paper.dpi) if format == "png" else _size_svg(written, paper, title)


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
    session = contextlib.nullcontext() if _sharing else _browser(path)
    try:
        with session as how:
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
        # It sees no temporary folder, and is given another one.
        yield {"page_generator": sheet, "path": path}
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


def _size_svg(svg: bytes, paper: Paper, title: str) -> bytes:
    """The SVG with its size in mm, and what programs and screen readers call it.

    Its viewBox keeps the units of what is in it.
    """
    head = re.match(rb"<svg[^>]*>", svg)
    if head is None:
        return svg

    def in_mm(side: re.Match[bytes]) -> bytes:
        length = paper.width_mm if side[1] == b"width" else float(side[2]) / PX_PER_MM
        return side[1] + f'="{length:.2f}mm"'.encode()

    root = re.sub(rb'\b(width|height)="([\d.]+)(?:px)?"', in_mm, head.group())
    called = f"<title>{html.escape(title, quote=False)}</title>" if title else ""
    return root + called.encode() + svg[head.end() :]


def _document(pdf: bytes, title: str) -> bytes:
    """The PDF with a title in place of its writer's."""
    from pypdf import PdfWriter

    document, file = PdfWriter(clone_from=io.BytesIO(pdf)), io.BytesIO()
    document.add_metadata({"/Title": title} if title else {})
    document.write(file)
    return file.getvalue()


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


def missing_glyphs(texts: Iterable[str]) -> str:
    """A sentence on letters that no font here has; "" where all have one.

    Chromium finds its fonts by fontconfig on Linux; where there is none, nothing is known.
    """
    letters = sorted({char for text in texts for char in text if ord(char) >= _COMMON})
    missing = [char for char in letters if char.isalpha()][:_MOST]
    missing = [char for char in missing if not _has_font(char)]
    if not missing:
        return ""
    shown = " ".join(missing[:10]) + " ..." * (len(missing) > 10)
    return (
        f"No font of this machine has {shown}: PDF and PNG show boxes in their place. Install one "
        "that has them, such as Noto."
    )


def drawn_texts(figure: go.Figure) -> Iterator[str]:
    """The texts of a figure that a picture shows."""
    parts = [json.loads(figure.to_json())]
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            parts += [value for name, value in part.items() if name not in _NOT_DRAWN]
        elif isinstance(part, list):
            parts += part


@cache
def _has_font(letter: str) -> bool:
    if (command := shutil.which("fc-list")) is None:
        return True
    arguments = [command, f":charset={ord(letter):x}", "family"]
    fonts = subprocess.run(arguments, capture_output=True, timeout=30, check=False)
    return fonts.returncode != 0 or bool(fonts.stdout.strip())
