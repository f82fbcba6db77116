"""Figures as files: the size, the text and the fonts are what a journal asks for."""

import io
import os
import re
import struct
import zlib
from xml.etree import ElementTree

import plotly.graph_objects as go
import pytest
from figure_tables import importance_of, scores_of
from pypdf import PdfReader

from mlem_core import figures
from mlem_core.base.errors import InputError
from mlem_core.figures import Paper

MM = 25.4 / 72  # of a point


@pytest.fixture(scope="module")
def one_browser(chromium_path):
    with figures.one_browser():
        yield


def figure_of():
    features = ("part_of_speech", "tense")
    importance = importance_of(features)
    return figures.profiles(importance, scores_of(importance), features)


@pytest.mark.parametrize(
    ("width", "font", "points", "embedded"),
    [(89, "Arial", 6, "Arial|LiberationSans"), (183, "Times", 9, "Times|LiberationSerif")],
)
def test_a_pdf_has_the_asked_width_size_of_text_fonts_and_title(
    one_browser, width, font, points, embedded
):
    paper, title = Paper(width_mm=width, font=font, points=points), "ρ (a) < \\b & ü"
    pdf = PdfReader(io.BytesIO(figures.as_file(figure_of(), "pdf", paper, title=title)))
    (page,) = pdf.pages
    assert float(page.mediabox.width) * MM == pytest.approx(width, abs=0.5)
    height = figures.on_paper(figure_of(), paper).layout.height * paper.scale / 96 * 25.4
    assert float(page.mediabox.height) * MM == pytest.approx(height, abs=0.5)
    assert pdf.metadata.title == title
    sizes = []

    def visit(text, user, place, font, size):
        if text.strip() == "tense":
            sizes.append(abs(size * place[0] * user[0]))

    text = page.extract_text(visitor_text=visit)
    assert "part of speech" in text and "held-out ρ" in text
    # A page with margins would shrink what is on it, and cut off its foot.
    assert sizes[0] == pytest.approx(points, rel=0.01)
    fonts = [reference.get_object() for reference in page["/Resources"]["/Font"].values()]
    assert fonts
    for one in fonts:
        assert re.search(embedded, one["/BaseFont"])
        (inner,) = one["/DescendantFonts"]
        assert "/FontFile2" in inner.get_object()["/FontDescriptor"]
    assert "/XObject" not in page["/Resources"]  # no picture: lines and text


def test_an_svg_is_in_mm_and_keeps_its_text_and_title(one_browser):
    svg = figures.as_file(figure_of(), "svg", Paper(width_mm=89), title="a < b").decode()
    root = re.match("<svg[^>]*>", svg).group()
    assert 'width="89.00mm"' in root and "viewBox" in root
    assert "part of speech</text>" in svg and "Liberation Sans" in svg
    assert ElementTree.fromstring(svg)[0].text == "a < b"


def test_a_png_has_the_asked_pixels_and_says_its_resolution(one_browser):
    png = figures.as_file(figure_of(), "png", Paper(width_mm=89, dpi=600))
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == pytest.approx(89 / 25.4 * 600, abs=2)
    at = png.index(b"pHYs")
    across, down, unit = struct.unpack(">IIB", png[at + 4 : at + 13])
    assert across == down == round(600 / 0.0254) and unit == 1
    assert struct.unpack(">I", png[at + 13 : at + 17])[0] == zlib.crc32(png[at : at + 13])


def test_an_html_page_works_alone_and_takes_nothing_for_markup():
    page = figures.as_file(figure_of(), "html", title="<b>", caption="a < b & c").decode()
    for part in ("part_of_speech", "<title>&lt;b&gt;</title>", "a &lt; b &amp; c"):
        assert part in page
    assert not re.search(r"<script[^>]+src=", page)  # plotly.js is in the file


@pytest.mark.parametrize(
    ("paper", "message"),
    [
        (Paper(font="Comic"), "'Comic'.*Arial, Times"),
        (Paper(width_mm=1), "1 mm; expected 30 to 500"),
        (Paper(points=40), "40 points; expected 4 to 16"),
        (Paper(dpi=10_000), "10000 dpi; expected 72 to 1200"),
    ],
)
def test_a_size_that_cannot_be_says_why(paper, message):
    with pytest.raises(InputError, match=message):
        figures.as_file(figure_of(), "svg", paper)


def test_an_image_that_cannot_be_written_says_why(monkeypatch):
    with pytest.raises(InputError, match=r"'gif'.*svg, png, pdf"):
        figures.image(go.Figure(), "gif")
    with pytest.raises(InputError, match=r"'gif'.*pdf, svg, png, html"):
        figures.as_file(go.Figure(), "gif")
    monkeypatch.setitem(os.environ, "BROWSER_PATH", "/nowhere/chrome")
    assert not figures.can_write_images()
    with pytest.raises(InputError, match="no Chrome or Chromium"):
        figures.image(go.Figure(), "png")
