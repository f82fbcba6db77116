"""Figures as files: the size, the text and the fonts are what a journal asks for."""

from __future__ import annotations

import io
import os
import re
import struct
import zlib
from collections.abc import Iterator
from xml.etree import ElementTree

import pandas as pd
import plotly.graph_objects as go
import pypdfium2
import pytest
from pypdf import PdfReader

from mlem_core import figures
from mlem_core.base.errors import InputError
from mlem_core.figures import Paper, export

MM = 25.4 / 72  # of a point


@pytest.fixture(scope="module")
def one_browser(chromium_path: str) -> Iterator[None]:
    with figures.one_browser():
        yield


def figure_of(models: str = "ab") -> go.Figure:
    rows = [
        (model, layer, fold, feature, 0.1 * layer + 0.02 * fold)
        for model in models
        for layer in range(3)
        for fold in range(3)
        for feature in ("part_of_speech", "tense")
    ]
    table = pd.DataFrame(rows, columns=["model", "layer", "fold", "feature", "importance"])
    scores = table[["model", "layer", "fold"]].drop_duplicates().assign(rho=0.5, ceiling=0.6)
    return figures.profiles(table, scores, ("part_of_speech", "tense"))


@pytest.mark.parametrize("width", [89.0, 183.0])
@pytest.mark.parametrize(
    ("font", "embedded"), [("Arial", "Arial|LiberationSans"), ("Times", "Times|LiberationSerif")]
)
def test_a_pdf_has_the_asked_width_real_text_and_its_fonts(
    one_browser: None, width: float, font: str, embedded: str
) -> None:
    paper = Paper(width_mm=width, font=font, points=8)
    pdf = PdfReader(io.BytesIO(figures.as_file(figure_of(), "pdf", paper)))
    (page,) = pdf.pages
    assert float(page.mediabox.width) * MM == pytest.approx(width, abs=0.5)
    drawn = figures.on_paper(figure_of(), paper)
    height = drawn.layout.height * paper.scale / 96 * 25.4
    assert float(page.mediabox.height) * MM == pytest.approx(height, abs=0.5)
    text = page.extract_text()
    assert "part of speech" in text
    assert "held-out ρ" in text
    fonts = [reference.get_object() for reference in page["/Resources"]["/Font"].values()]
    assert fonts
    for one in fonts:
        assert re.search(embedded, one["/BaseFont"])
        (inner,) = one["/DescendantFonts"]
        assert "/FontFile2" in inner.get_object()["/FontDescriptor"]
    assert "/XObject" not in page["/Resources"]  # no picture: lines and text


@pytest.mark.parametrize("title", ["Importance of each feature", "ρ (a) < \\b & ü"])
def test_a_file_has_the_title_of_its_figure(one_browser: None, title: str) -> None:
    pdf = PdfReader(io.BytesIO(figures.as_file(figure_of(), "pdf", title=title)), strict=True)
    assert pdf.metadata is not None
    assert pdf.metadata.title == title
    assert "part of speech" in pdf.pages[0].extract_text()
    document = pypdfium2.PdfDocument(figures.as_file(figure_of(), "pdf", title=title))
    assert document.get_metadata_value("Title") == title
    svg = ElementTree.fromstring(figures.as_file(figure_of(), "svg", title=title))
    assert svg[0].tag.endswith("title") and svg[0].text == title


def test_the_text_of_a_pdf_has_the_asked_size(one_browser: None) -> None:
    sizes = {}
    for points in (6.0, 9.0):
        content = figures.as_file(figure_of(), "pdf", Paper(points=points))
        found: list[float] = []

        def visit(
            text: str, user: list[float], place: list[float], font: object, size: float,
            found: list[float] = found,
        ) -> None:  # fmt: skip
            if text.strip() == "tense":
                found.append(abs(size * place[0] * user[0]))

        PdfReader(io.BytesIO(content)).pages[0].extract_text(visitor_text=visit)
        sizes[points] = found[0]
    # A page with margins would shrink what is on it, and cut off its foot.
    assert sizes == pytest.approx({6.0: 6.0, 9.0: 9.0}, rel=0.01)


def test_an_svg_is_in_mm_and_keeps_its_text(one_browser: None) -> None:
    svg = figures.as_file(figure_of(), "svg", Paper(width_mm=89)).decode()
    root = re.match("<svg[^>]*>", svg)
    assert root is not None
    assert 'width="89.00mm"' in root.group()
    assert "viewBox" in root.group()
    assert "part of speech</text>" in svg
    assert "Liberation Sans" in svg


@pytest.mark.parametrize("dpi", [300, 600])
def test_a_png_has_the_asked_pixels_and_says_its_resolution(one_browser: None, dpi: int) -> None:
    png = figures.as_file(figure_of(), "png", Paper(width_mm=89, dpi=dpi))
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == pytest.approx(89 / 25.4 * dpi, abs=2)
    at = png.index(b"pHYs")
    across, down, unit = struct.unpack(">IIB", png[at + 4 : at + 13])
    assert across == down == round(dpi / 0.0254)
    assert unit == 1
    assert struct.unpack(">I", png[at + 13 : at + 17])[0] == zlib.crc32(png[at : at + 13])


def test_an_html_page_works_alone_and_takes_nothing_for_markup() -> None:
    page = figures.as_file(figure_of(), "html", title="<b>", caption="a < b & c").decode()
    assert "part_of_speech" in page
    assert "<title>&lt;b&gt;</title>" in page
    assert "a &lt; b &amp; c" in page
    assert not re.search(r"<script[^>]+src=", page)  # plotly.js is in the file


def test_a_narrow_figure_has_its_legend_below() -> None:
    wide, narrow = (figures.on_paper(figure_of(), Paper(width_mm=mm)) for mm in (183, 89))
    assert wide.layout.legend.orientation is None
    assert narrow.layout.legend.orientation == "h"
    assert narrow.layout.height > wide.layout.height
    assert narrow.layout.margin.b > wide.layout.margin.b


@pytest.mark.parametrize(
    ("paper", "message"),
    [
        (Paper(font="Comic"), "'Comic'.*Arial, Times"),
        (Paper(width_mm=1), "1 mm; expected 30 to 500"),
        (Paper(points=40), "40 points; expected 4 to 16"),
        (Paper(dpi=10_000), "10000 dpi; expected 72 to 1200"),
    ],
)
def test_a_size_that_cannot_be_says_why(paper: Paper, message: str) -> None:
    with pytest.raises(InputError, match=message):
        figures.as_file(figure_of(), "svg", paper)


def test_an_image_is_written_by_a_browser(chromium_path: str) -> None:
    figure = figure_of()
    assert figures.can_write_images()
    svg = figures.image(figure, "svg", width=500, height=300)
    assert svg.startswith(b"<svg")
    assert b"part of speech" in svg
    png = figures.image(figure, "png", width=500, height=300, scale=1)
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == 500
    assert int.from_bytes(png[20:24], "big") == 300
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"  # the figure itself is untouched


def test_an_image_that_cannot_be_written_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"'gif'.*svg, png, pdf"):
        figures.image(go.Figure(), "gif")
    with pytest.raises(InputError, match=r"'gif'.*pdf, svg, png, html"):
        figures.as_file(go.Figure(), "gif")
    monkeypatch.setitem(os.environ, "BROWSER_PATH", "/nowhere/chrome")
    assert not figures.can_write_images()
    with pytest.raises(InputError, match="no Chrome or Chromium"):
        figures.image(go.Figure(), "png")


def test_the_browser_is_looked_for_once_a_drawing(
    chromium_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from choreographer.browsers.chromium import Chromium

    looked = []

    def find(**_: bool) -> str:
        looked.append(1)
        return chromium_path

    monkeypatch.delenv("BROWSER_PATH", raising=False)
    monkeypatch.setattr(Chromium, "find_browser", find)
    monkeypatch.setattr(export, "_sharing", False)
    assert figures.image(figure_of(), "svg").startswith(b"<svg")
    assert len(looked) == 1


def lines(**layout: object) -> go.Figure:
    drawn = [go.Scatter(x=[0, 1], y=[0, n], name=f"feature {n}") for n in range(6)]
    return go.Figure(drawn, {"height": 300, **layout})


def test_in_a_narrow_window_legends_are_below_and_the_figure_is_as_much_higher() -> None:
    figure = lines()
    narrow = figures.in_narrow_window(figure)
    assert narrow.layout.legend.orientation == "h" and narrow.layout.legend.yanchor == "bottom"
    added = narrow.layout.height - figure.layout.height
    assert added > 0 and narrow.layout.margin.b == 48 + added
    assert narrow.layout.width is None and figure.layout.height == 300
    # One without a legend stays as it is.
    assert figures.in_narrow_window(lines(showlegend=False)) == lines(showlegend=False)
    heat = go.Figure(go.Heatmap(z=[[1]]), {"height": 200})
    assert figures.in_narrow_window(heat).layout.height == 200


def test_forty_features_have_their_legend_below_the_panels_in_print() -> None:
    names = [f"feature_{i}" for i in range(40)]
    table = pd.DataFrame(
        [("m", n, 0, f, 0.1) for n in (0, 1) for f in names],
        columns=["model", "layer", "fold", "feature", "importance"],
    )
    scores = table[["model", "layer", "fold"]].drop_duplicates()
    few, many = (
        figures.on_paper(figures.profiles(table, scores, kept), Paper())
        for kept in (names[:5], names)
    )
    assert few.layout.legend.orientation is None and many.layout.legend.orientation == "h"
