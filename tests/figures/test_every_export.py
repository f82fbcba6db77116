"""Every figure that can be saved, at both widths of a journal: no text is cut or covers another."""

import io
import re
import runpy
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np
import pypdfium2
import pytest
from helpers.inputs import in_files, probing
from helpers.repository import ROOT
from pypdf import PdfReader
from pypdfium2.raw import FPDF_PAGEOBJ_TEXT

from mlem_core import Store, compared, run
from mlem_core.figures.export import as_file, one_browser
from mlem_core.figures.plots import FIGURES, FigureContext, FigureOptions
from mlem_core.figures.print_layout import WIDTHS_MM, Paper
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.tasks import examples

WIDTHS = tuple(WIDTHS_MM[name] for name in ("one column", "two columns"))
CHOICES = {"folds": 3, "features": ("part_of_speech", "tense", "word_position")}
TALLEST = 170  # mm of a page above its caption
WORDS = 70  # of a caption
# What figures of extensions are drawn from, where the example has not what they show: functions of
# the `Sources`, by the name of the figure.
OF_EXTENSIONS: dict[str, Callable] = {}
for _path in sorted((ROOT / "tests" / "extensions").glob("*/figure_sources.py")):
    OF_EXTENSIONS |= runpy.run_path(str(_path))["FIGURE_SOURCES"]


class Sources:
    """What the figures are drawn from, each made when the first figure needs it."""

    def __init__(self, folder):
        self.folder, self.store = folder, Store(folder / "store")
        self.table, self.rng = probing(60), np.random.default_rng(0)
        self.codes = self.table["part_of_speech"].astype("category").cat.codes.to_numpy()

    def find(self, name):
        if name in OF_EXTENSIONS:
            return OF_EXTENSIONS[name](self)
        if name.endswith(tuple(SIMILARITIES)):
            return self.context(self.small)
        return FigureContext.from_analysis(examples.example(), Store(self.folder / "empty"))

    def analyze(self, layers, **choices):
        return run(in_files(self.folder, self.table, layers, **choices, **CHOICES), self.store)

    def layers(self, n):
        """Parts of speech that stand further apart from layer to layer."""
        rows = np.eye(9)[self.codes]
        return {k: rows * k + self.rng.standard_normal(rows.shape) for k in range(n)}

    def context(self, analysis, **options):
        drawing = FigureOptions(options=options)
        return FigureContext(analysis, analysis.select(), self.store, drawing=drawing)

    @cached_property
    def small(self):
        """An analysis with a feature that is coded by value, and every similarity of its layers."""
        layers = dict.fromkeys(("first", "second"), self.layers(2))
        analysis = self.analyze(layers, values=("part_of_speech",))
        for name in SIMILARITIES:
            compared(analysis, name, self.store)
        return analysis


@pytest.fixture(scope="module")
def draw(tmp_path_factory, chromium_path):
    """Draws a figure by its name for a width in mm, with one browser for all."""
    sources = Sources(tmp_path_factory.mktemp("exports"))

    def drawn(name, mm):
        source, narrow = sources.find(name), Paper(width_mm=mm).narrow
        made = FIGURES[name].draw(replace(source, drawing=replace(source.drawing, narrow=narrow)))
        assert made is not None, f"there is no figure {name}"
        return made

    with one_browser():
        yield drawn


@pytest.fixture(scope="module")
def page(browser):
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(
    ("name", "mm"),
    [
        pytest.param(name, mm, marks=() if name == "why" and mm == WIDTHS[0] else pytest.mark.slow)
        for name in FIGURES
        for mm in WIDTHS
    ],
)
def test_no_text_is_cut_or_covers_another(name, mm, draw, page):
    made, paper = draw(name, mm), Paper(width_mm=mm)
    pdf = as_file(made.figure, "pdf", paper, title=made.title)
    assert len(made.caption.split()) <= WORDS, made.caption
    for size, letters in letters_of(pdf):
        assert size[1] <= (TALLEST + 0.5) * 72 / 25.4, "the figure is too high"
        assert not overlapping(letters), "letters of two texts lie on each other"
        outside = "".join(letter for letter, box in letters if is_outside(box, size))
        assert not outside, "these letters are cut by the page"
    # pypdf reads all letters; PDFium leaves out some that look as if they were set twice.
    written = "".join(page.extract_text() for page in PdfReader(io.BytesIO(pdf)).pages)
    signs = re.findall(r"[-−+]0(?:\.0+)?(?![\d.])|Click|click|Hover", written)
    assert not signs, "a 0 with a sign, or a hint on how to use a screen"
    if mm != WIDTHS[0]:
        return  # one width shows that no letter is lost on the way
    texts = option_texts(as_file(made.figure, "svg", paper, title=made.title), page)
    missing = Counter(plain_letters("".join(texts))) - Counter(plain_letters(written))
    assert not missing, "letters of these texts are not on the page"


def letters_of(pdf):
    """Of each page the size in points, and each letter with the corners of its ink."""
    for sheet in pypdfium2.PdfDocument(pdf):
        text = sheet.get_textpage()
        found = [
            (one.extract(), np.array(one.get_quad_points()))
            for one in sheet.get_objects(filter=[FPDF_PAGEOBJ_TEXT], textpage=text)
        ]
        letters = [(letter.strip(), box) for letter, box in found if area(box) > 1e-6]
        yield sheet.get_size(), letters


def overlapping(letters):
    """Pairs of letters of which one covers more than a sixth of the other."""
    low = np.array([box.min(axis=0) for _, box in letters])
    high = np.array([box.max(axis=0) for _, box in letters])
    near = (low[:, None] < high[None]).all(axis=-1) & (low[None] < high[:, None]).all(axis=-1)
    return [
        (letters[i][0], letters[j][0])
        for i, j in zip(*np.nonzero(np.triu(near, 1)), strict=True)
        if shared(letters[i][1], letters[j][1]) > 1 / 6
    ]


def shared(one, other):
    """About the part of the smaller of two boxes that the other one covers."""
    small, large = sorted((one, other), key=area)
    steps = (np.arange(12) + 0.5) / 12
    across, up = (at.reshape(-1, 1) for at in np.meshgrid(steps, steps))
    points = small[0] + across * (small[1] - small[0]) + up * (small[3] - small[0])
    # A point is inside where all sides turn the same way about it.
    x, y = (np.roll(large, -1, axis=0) - large).T
    to = points[:, None] - large
    turns = x * to[..., 1] - y * to[..., 0] > 0
    return float((turns.all(axis=1) | ~turns.any(axis=1)).mean())


def area(box):
    x, y = box.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def is_outside(box, size):
    return bool((box < -0.2).any() or (box > np.array(size) + 0.2).any())


def option_texts(svg, page):
    """What each text of a picture says."""
    page.set_content(f"<body style='margin:0'>{svg.decode()}</body>")
    return page.evaluate(
        """() => [...document.querySelectorAll('text')]
            .filter(one => one.textContent.trim() && one.getBBox().width && one.checkVisibility())
            .map(one => one.textContent)"""
    )


def plain_letters(text):
    """Without spaces; letters that are set as one are taken apart."""
    return "".join(unicodedata.normalize("NFKC", text).split())
