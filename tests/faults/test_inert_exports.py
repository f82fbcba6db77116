import csv
import io
import re
from html.parser import HTMLParser
from itertools import chain
from typing import Any

import numpy as np
import pytest
from archives import contents
from inputs import noise, words
from markdown_it import MarkdownIt

from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.labels import Names
from mlem_core.data.columns import NUMBER
from mlem_core.data.stimulus_csv import read_written, write_csv
from mlem_core.figures.plots import Drawing
from mlem_core.report import capsule
from mlem_core.report.methods import methods_paragraph
from mlem_core.storage.store import Store

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "[read](javascript:alert(2)) ![x](http://example.org/x.png)",
    "</script><script>alert(3)</script>",
    '=HYPERLINK("http://example.org";"x")',
    r"$\input{/etc/passwd}$ \write18{ls} %",
    "*a* _b_ `c` <b>d</b> | e",
)
_TAGS = {"html", "head", "meta", "title", "style", "body", "div", "script", "p"}


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    """Names of features, of a model, of a file and cells that try to be more than text."""
    folder = tmp_path_factory.mktemp("hostile")
    table = words(20)
    own = ["sentence", "word_index", *HOSTILE[:3]]
    table = table.rename(columns=dict(zip(table.columns, own, strict=True)))
    table[HOSTILE[3]] = [HOSTILE[n % len(HOSTILE)] for n in range(len(table))]
    path = folder / "<u>[a](javascript:x).csv"
    write_csv(table, path)
    layers: dict[str, Any] = {f"layer_{n:02d}": rows for n, rows in noise(len(table)).items()}
    np.savez(folder / "brain.npz", **layers)
    files = ((HOSTILE[5], str(folder / "brain.npz")),)
    spec = AnalysisSpec(stimuli=str(path), representations=files, folds=3)
    return run(spec, Store(folder / "store"))


@pytest.fixture(scope="module")
def files(analysis, tmp_path_factory):
    names = Names({HOSTILE[0]: HOSTILE[4]}, {HOSTILE[5]: HOSTILE[1]})
    drawing = Drawing(images=False, names=names)
    target = tmp_path_factory.mktemp("out") / "x.zip"
    return contents(capsule.write(analysis, target, drawing=drawing))


class Tags(HTMLParser):
    """The elements of a page, and their attributes that run."""

    found: tuple[str, ...] = ()

    def handle_starttag(self, tag, attributes):
        self.found += (tag, *(name for name, _ in attributes if name.startswith("on")))


def test_pages_have_no_element_of_a_name(files):
    for name in [name for name in files if name.endswith(".html")]:
        tags = Tags()
        tags.feed(files[name].decode())
        assert set(tags.found) <= _TAGS, name
        assert tags.found.count("script") <= 3, name


def active(text):
    """What Markdown makes of a text beside text, paragraphs and strong type."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens = [one for token in parser.parse(text) for one in (token, *(token.children or ()))]
    plain = "paragraph_open paragraph_close inline text text_special softbreak"
    return {one.type for one in tokens} - {*plain.split(), "strong_open", "strong_close"}


def test_markdown_is_text(files, analysis):
    for name in ("methods.md", "figures/captions.md"):
        text = files[name].decode()
        assert not active(text), name
        # Dollar signs that stand for no formula in any dialect.
        assert not re.search(r"(?<!\\)\$", text), name
    rendered = MarkdownIt().render(files["methods.md"].decode())
    assert "javascript:alert(2)" in rendered  # it is there, as text
    plain = methods_paragraph(analysis, analysis.results())
    assert not active(plain) and "\n" not in plain.strip()


def test_latex_has_no_command_of_a_name(files):
    for name in [name for name in files if name.endswith(".tex")]:
        assert rb"\input" not in files[name] and rb"\write" not in files[name], name


def test_no_cell_is_a_formula(files, analysis):
    seen = 0
    for name in [name for name in files if name.endswith(".csv")]:
        for cell in chain.from_iterable(csv.reader(io.StringIO(files[name].decode()))):
            if cell[:1] in "=+-@\t\r" and cell:
                assert NUMBER.fullmatch(cell), (name, cell)
            seen += cell.startswith("'=")
    assert seen > 10
    read = read_written(files["stimuli.csv"], nominal=[one.name for one in analysis.whole.features])
    assert list(read.table.columns) == list(analysis.whole.table.columns)
    assert read.table[HOSTILE[3]].tolist() == analysis.whole.table[HOSTILE[3]].tolist()
