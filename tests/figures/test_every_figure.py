"""What every figure keeps to, on the screen and as a file for a journal."""

import io
import json
import os
import re
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable
from itertools import product
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from helpers.figure_tables import (
    FEATURES,
    layer_map_of,
    mean_importance,
    repetition_distances,
    scores_of,
)
from pypdf import PdfReader

from mlem_core import InputError
from mlem_core.base.labels import Names
from mlem_core.extensions.audit.figures import audit_map
from mlem_core.extensions.stimulus_maps.figures import stimulus_map
from mlem_core.extensions.value_coding.figures import value_matrices
from mlem_core.figures.compare import importance_scatter
from mlem_core.figures.context import RenderedFigure
from mlem_core.figures.export import as_file, can_write_images, image, one_browser
from mlem_core.figures.maps import layer_maps
from mlem_core.figures.naming import feature_name, naming
from mlem_core.figures.print_layout import Paper, print_pages
from mlem_core.figures.profiles import profiles
from mlem_core.figures.similarity import similarity_matrices
from mlem_core.figures.stimuli import feature_correlations, feature_counts
from mlem_core.figures.terms import HOVER, term_matrices
from mlem_core.figures.why import waterfall
from mlem_core.report import formats


class Given(NamedTuple):
    """What a user wrote: two features, two models of two layers each, two values of a feature."""

    features: tuple[str, str] = ("f_one", "f_two")
    models: tuple[str, str] = ("m_one", "m_two")
    values: tuple[str, str] = ("u", "v")

    @property
    def layers(self):
        return list(product(self.models, (0, 1)))

    @property
    def importance(self):
        return mean_importance(self.features, dict.fromkeys(self.models, 2))

    @property
    def square(self):
        return near_nothing([f"{model}:{layer}" for model, layer in self.layers])

    @property
    def points(self):
        at = [0.0, 1.0]
        said = {"label": list(self.values), self.features[0]: list(self.values)}
        return pd.DataFrame({"stimulus": [0, 1], "x": at, "y": at, **said})

    @property
    def distances(self):
        return repetition_distances(self.layers, self.features[0], self.values)


def near_nothing(names):
    return pd.DataFrame(np.full((len(names),) * 2, -0.0001), index=names, columns=names)


def audited(of):
    table = pd.DataFrame(of.layers, columns=["model", "layer"]).assign(position0_ranks=0.1)
    changes = table.assign(
        variant="cosine",
        rho_before=0.5,
        rho=0.4,
        rsa_change=0.1,
        tau=0.3,
        rsa_with=f"{of.models[0]}:0",
    )
    marks = ["measure", "model_a", "layer_a", "model_b", "layer_b", "variant", "reason"]
    return audit_map(table, changes, pd.DataFrame(columns=marks))


def contributions(of):
    terms = [*of.features, " × ".join(of.features)]
    table = pd.DataFrame({"term": terms, "value": [0.1, -0.0001, 0.2]})
    return waterfall(table, of.features)


# A new figure gets a line here, and with it all tests of this file.
OF_LAYERS: dict[str, Callable[[Given], go.Figure]] = {
    "profiles": lambda of: profiles(of.importance, scores_of(of.importance), of.features),
    "similarity": lambda of: similarity_matrices(of.square, of.square),
    "clustering": lambda of: similarity_matrices(of.square, of.square, order="clustering"),
    "maps": lambda of: layer_maps(layer_map_of(dict.fromkeys(of.models, (0, 1))), of.importance),
    "compare": lambda of: importance_scatter(
        of.importance, (of.layers[0], of.layers[-1]), of.features, -0.001, 0.5
    ),
    "terms": lambda of: term_matrices(dict.fromkeys(of.features, of.square)),
    "values": lambda of: value_matrices(of.distances, of.features[0], of.layers),
    "audit": audited,
}
DRAWN = OF_LAYERS | {
    "stimuli": lambda of: stimulus_map(of.points, of.features[0], "nominal", of.values[0]),
    "waterfall": contributions,
    "correlations": lambda of: feature_correlations(near_nothing(of.features)),
    "counts": lambda of: feature_counts(
        pd.DataFrame(dict.fromkeys(of.features, of.values)), [(f, "nominal") for f in of.features]
    ),
}
PLAIN = Given()
MARKUP = Given(("<b>f</b>", "$x$ & %{y}"), ("<i>m</i>", "very long " * 20), ("<u>v</u>", "$z$"))
NAMES = Names(
    features={"f_one": "Erstes <Merkmal>", "f_two": "عدد الكلمات"},
    models={"m_one": "Das $ Modell", "m_two": "模型"},
)
REGIONS = Names(layers={"m_two:0": "V1 <left>", "m_two:1": "IT"})
# What clicks, colours and groups go by, and what is never written.
HIDDEN = ("customdata", "legendgroup", "uid")


def written(figure):
    def texts(of):
        if isinstance(of, dict):
            return [t for key, value in of.items() if key not in HIDDEN for t in texts(value)]
        if isinstance(of, list | tuple):
            return [t for value in of for t in texts(value)]
        return [of] if isinstance(of, str) else []

    return "\n".join(texts(json.loads(figure.to_json())))


@pytest.mark.parametrize("name", DRAWN)
def test_names_that_are_given_are_written_and_identifiers_are_not(name):
    with naming(NAMES):
        text = written(DRAWN[name](PLAIN))
    assert not any(identifier in text for identifier in (*PLAIN.features, *PLAIN.models))
    called = ("Erstes &lt;Merkmal&gt;", "\u2068عدد الكلمات\u2069", "Das &#36; Modell", "模型")
    assert any(one in text for one in called)
    assert "<Merkmal>" not in text and "Das $" not in text


@pytest.mark.parametrize("name", OF_LAYERS)
def test_names_of_layers_are_written_where_they_are_given(name):
    with naming(REGIONS):
        text = written(DRAWN[name](PLAIN))
    assert "IT" in text and "V1" not in written(DRAWN[name](PLAIN))
    assert "<left>" not in text
    assert not any(wrong in text for wrong in ("m_two layer", "m_two, layer", "m_two 1"))


@pytest.mark.parametrize("name", DRAWN)
def test_features_have_no_underscores_and_nothing_is_minus_nothing(name):
    text = written(DRAWN[name](PLAIN))
    assert not any(identifier in text for identifier in PLAIN.features)
    assert not any(f"{sign}0.{'0' * n}\n" in f"{text}\n" for sign in "-−" for n in (1, 2, 3))
    assert "-0.0" not in text and "−0.00" not in text.replace("−0.001", "")


@pytest.mark.parametrize("name", DRAWN)
def test_what_a_user_wrote_is_text_and_no_markup(name):
    figure = DRAWN[name](MARKUP)
    text = written(figure)
    assert "&lt;" in text or "&#36;" in text
    assert not [tag for tag in ("<b>f", "<i>", "<u>", "$", "long " * 20) if tag in text]
    assert all(trace.hovertemplate in (None, HOVER) for trace in figure.data)
    # Plotly, which checks each property, takes it; ground and text are left to the page.
    go.Figure(figure.to_dict())
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.font.color in (None, "#444")


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
    height = print_pages(figure_of(), paper)[0].layout.height * paper.scale / 96 * 25.4
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


def test_what_does_not_fit_a_page_has_further_files_or_further_pages_of_one(browser):
    importance, paper = mean_importance(layers=dict.fromkeys("abcde", 2)), Paper(width_mm=89)
    panels = profiles(importance, scores_of(importance), FEATURES, across=1)
    drawn = RenderedFigure(panels, "a & b", "", importance)
    both = formats.lay_out_pages(drawn, paper)
    assert len({axis.range for page in both for axis in page.select_yaxes()}) == 1
    legends = [{one.name for one in page.data if one.showlegend is not False} for page in both]
    assert legends[0] == legends[1] and len(legends[0]) > len(FEATURES)
    (name, svg), (other, pdf) = (
        formats.FORMATS[form].download(drawn, "a", paper) for form in ("svg", "pdf")
    )
    with zipfile.ZipFile(io.BytesIO(svg())) as archive:
        svgs = {file: archive.read(file) for file in archive.namelist()}
    assert (name, other, set(svgs)) == ("a.zip", "a.pdf", {"a.svg", "a-2.svg"})
    assert all(b"<title>a &amp; b</title>" in svg for svg in svgs.values())
    pages = PdfReader(io.BytesIO(pdf())).pages
    assert len(pages) == 2
    assert all(float(page.mediabox.height) * MM <= 120.5 for page in pages)
    tex = formats.as_latex(drawn, "a", paper)
    assert "[width=89mm]{figures/a.pdf}" in tex and "[width=89mm,page=2]{figures/a.pdf}" in tex


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
