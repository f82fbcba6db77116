"""What every figure keeps to, on the screen and as a file for a journal."""

import io
import os
import re
import struct
import threading
import zlib
from collections.abc import Callable
from xml.etree import ElementTree

import pandas as pd
import plotly.graph_objects as go
import pytest
from helpers.figure_tables import (
    FEATURES,
    NAMES,
    UserTexts,
    check_texts,
    layer_map_of,
    mean_importance,
    near_nothing,
    scores_of,
)
from pypdf import PdfReader

from mlem_core import InputError
from mlem_core.figures.compare import importance_scatter
from mlem_core.figures.context import RenderedFigure
from mlem_core.figures.export import as_file, can_write_images, image, one_browser
from mlem_core.figures.maps import layer_maps
from mlem_core.figures.naming import feature_name, naming
from mlem_core.figures.print_layout import Paper, print_copy
from mlem_core.figures.profiles import profiles
from mlem_core.figures.similarity import similarity_matrices
from mlem_core.figures.stimuli import feature_correlations, feature_counts
from mlem_core.figures.terms import term_matrices
from mlem_core.figures.why import waterfall
from mlem_core.report import formats


def contributions(user):
    terms = [*user.features, " × ".join(user.features)]
    table = pd.DataFrame({"term": terms, "value": [0.1, -0.0001, 0.2]})
    return waterfall(table, user.features)


# A new figure gets a line here, or one of an extension a test beside it.
OF_LAYERS: dict[str, Callable[[UserTexts], go.Figure]] = {
    "profiles": lambda user: profiles(user.importance, scores_of(user.importance), user.features),
    "similarity": lambda user: similarity_matrices(user.square, user.square),
    "clustering": lambda user: similarity_matrices(user.square, user.square, order="clustering"),
    "maps": lambda user: layer_maps(layer_map_of(dict.fromkeys(user.models, (0, 1)))),
    "compare": lambda user: importance_scatter(
        user.importance, (user.layers[0], user.layers[-1]), user.features, -0.001, 0.5
    ),
    "terms": lambda user: term_matrices(dict.fromkeys(user.features, user.square)),
}
OF_FEATURES: dict[str, Callable[[UserTexts], go.Figure]] = {
    "waterfall": contributions,
    "correlations": lambda user: feature_correlations(near_nothing(user.features)),
    "counts": lambda user: feature_counts(
        pd.DataFrame(dict.fromkeys(user.features, user.values)),
        [(feature, "nominal") for feature in user.features],
    ),
}


@pytest.mark.parametrize("name", [*OF_LAYERS, *OF_FEATURES])
def test_texts_are_those_of_the_user_and_nothing_else(name):
    check_texts((OF_LAYERS | OF_FEATURES)[name], of_layers=name in OF_LAYERS)


def test_names_hold_inside_and_in_their_own_thread_only():
    elsewhere: list[str] = []
    with pytest.raises(ValueError), naming(NAMES):
        thread = threading.Thread(target=lambda: elsewhere.append(feature_name("f_one")))
        thread.start()
        thread.join()
        assert feature_name("f_one") == "Erstes &lt;Merkmal&gt;"
        raise ValueError
    assert elsewhere == [feature_name("f_one")] == ["f one"]


MM = 25.4 / 72  # of a point


@pytest.fixture(scope="module")
def browser(chromium_path):
    with one_browser():
        yield


def figure_of():
    features = ("part_of_speech", "tense")
    importance = mean_importance(features)
    return profiles(importance, scores_of(importance), features)


@pytest.mark.parametrize(
    ("width", "font", "points", "embedded"),
    [(89, "Arial", 6, "Arial|LiberationSans"), (183, "Times", 9, "Times|LiberationSerif")],
)
def test_a_pdf_has_the_asked_width_text_fonts_and_title(browser, width, font, points, embedded):
    paper, title = Paper(width_mm=width, font=font, points=points), "ρ (a) < \\b & ü"
    pdf = PdfReader(io.BytesIO(as_file(figure_of(), "pdf", paper, title=title)))
    (page,) = pdf.pages
    assert float(page.mediabox.width) * MM == pytest.approx(width, abs=0.5)
    height = print_copy(figure_of(), paper).layout.height * paper.scale / 96 * 25.4
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


def test_an_svg_is_in_mm_and_keeps_its_text_and_title(browser):
    svg = as_file(figure_of(), "svg", Paper(width_mm=89), title="a < b").decode()
    root = re.match("<svg[^>]*>", svg).group()
    assert 'width="89.00mm"' in root and "viewBox" in root
    assert "part of speech</text>" in svg and "Liberation Sans" in svg
    assert ElementTree.fromstring(svg)[0].text == "a < b"


def test_a_png_has_the_asked_pixels_and_says_its_resolution(browser):
    png = as_file(figure_of(), "png", Paper(width_mm=89, dpi=600))
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == pytest.approx(89 / 25.4 * 600, abs=2)
    at = png.index(b"pHYs")
    across, down, unit = struct.unpack(">IIB", png[at + 4 : at + 13])
    assert across == down == round(600 / 0.0254) and unit == 1
    assert struct.unpack(">I", png[at + 13 : at + 17])[0] == zlib.crc32(png[at : at + 13])


def test_many_panels_are_one_page_and_latex_has_its_width(browser):
    importance, paper = mean_importance(layers=dict.fromkeys("abcde", 2)), Paper(width_mm=89)
    panels = profiles(importance, scores_of(importance), FEATURES, across=1)
    drawn = RenderedFigure(panels, "", importance, title="a & b")
    (page,) = PdfReader(io.BytesIO(formats.FORMATS["pdf"].write(drawn, "a", paper))).pages
    assert float(page.mediabox.height) * MM <= 170.5
    assert b"<title>a &amp; b</title>" in formats.FORMATS["svg"].write(drawn, "a", paper)
    assert "[width=89mm]{figures/a.pdf}" in formats.as_latex(drawn, "a", paper)


def test_an_html_page_works_alone_and_takes_nothing_for_markup():
    page = as_file(figure_of(), "html", title="<b>", caption="a < b & c").decode()
    for part in ("part_of_speech", "<title>&lt;b&gt;</title>", "a &lt; b &amp; c"):
        assert part in page
    assert not re.search(r"<script[^>]+src=", page)  # plotly.js is in the file


def test_an_image_that_cannot_be_written_says_why(monkeypatch):
    with pytest.raises(InputError, match=r"'gif'.*svg, png, pdf"):
        image(go.Figure(), "gif")
    with pytest.raises(InputError, match=r"'gif'.*pdf, svg, png, html"):
        as_file(go.Figure(), "gif")
    monkeypatch.setitem(os.environ, "BROWSER_PATH", "/nowhere/chrome")
    assert not can_write_images()
    with pytest.raises(InputError, match="no Chrome or Chromium"):
        image(go.Figure(), "png")
