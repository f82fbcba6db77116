"""Capsules: another result in them is found, what is none is not, and no name in them is active."""

import contextlib
import csv
import io
import json
import re
from html.parser import HTMLParser
from itertools import chain, islice

import hostile_capsules
import numpy as np
import pytest
from damaging import contents
from feeding import Found, feed
from hostile_capsules import edited, forged, places, small, zipped
from inputs import noise, words
from markdown_it import MarkdownIt

from mlem_core import AnalysisSpec, InputError, Store, run, write_csv
from mlem_core.base.labels import Names
from mlem_core.cli.commands import main
from mlem_core.data.columns import NUMBER
from mlem_core.data.stimulus_csv import read_written
from mlem_core.figures.plots import Drawing
from mlem_core.models import model_paths
from mlem_core.report import capsule
from mlem_core.report.contents import opened
from mlem_core.report.file_diff import compare
from mlem_core.report.methods import methods_paragraph
from mlem_core.report.verify import verify

DOCUMENTS = ("capsule.json", "manifest.json")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Those of a capsule without drawings, which take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capsule, "_figure_files", lambda *_: {})
        return contents(small(tmp_path_factory.mktemp("small")))


def verified(path):
    """What verify says; a capsule in which it finds something counts as refused."""
    found = verify(path)
    assert found.lines()
    if not found.same:
        raise InputError("Something was found.")
    return Found("", lambda holds: [])


def only_read(files):
    """The same without the stimuli, so that what passes the check ends there."""
    return {**files, "stimuli.csv": b"sentence\n"}


def test_changed_values_and_what_is_no_document(files, tmp_path, monkeypatch):
    n, own = {"capsule.json": 250, "manifest.json": 50}, only_read(files)
    made = chain(hostile_capsules.changed_values(own, n, 1), hostile_capsules.no_documents(own))
    feed(made, verified, tmp_path, monkeypatch).none_fails()


@pytest.mark.faults
@pytest.mark.parametrize("make", [hostile_capsules.archives, hostile_capsules.inputs])
def test_each_change_of_a_capsule(make, files, tmp_path, monkeypatch, capsys):
    feed(make(files), verified, tmp_path, monkeypatch).none_fails(make.__name__, capsys)


@pytest.mark.slow
def test_some_changes_of_a_capsule(files, tmp_path, monkeypatch):
    archives, inputs = hostile_capsules.archives(files), hostile_capsules.inputs(files)
    some = chain(islice(archives, 3, 28, 12), islice(inputs, 0, None, 5))
    feed(some, verified, tmp_path, monkeypatch).none_fails()


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.faults)])
def test_edits_of_tables(files, every):
    wrong = []
    edits = hostile_capsules.edited_tables(files, seed=1)
    for what, name, data, must in islice(edits, 0, None, every):
        try:
            found = not compare(name.removeprefix("tables/"), data, files[name]).same
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            found = True  # verify says that it is no table
        if must is not None and found != must:
            wrong.append(f"{name} {what}: {'found' if found else 'not found'}")
    assert not wrong


def test_the_capsule_itself_is_verified_whole(files, tmp_path):
    found = verify(zipped(files, tmp_path / "x.zip"))
    numbers = [name for name in files if "tables/" in name or name in DOCUMENTS]
    assert found.same and len(found.tables) + found.n_same == len(numbers)
    inputs = ("stimuli.csv", "representations/00.npz")
    assert found.n_following == len(files) - len(numbers) - len(inputs)


def test_an_edit_of_any_field_is_noticed(files, tmp_path):
    assert not opened(zipped(files, tmp_path / "x.zip")).changed
    tried, silent = 0, []
    for name in DOCUMENTS:
        document = json.loads(files[name])
        for place in places(document, leaves=True):
            data = json.dumps(edited(document, place)).encode()
            tried += 1
            with contextlib.suppress(InputError):
                if not opened(zipped({**files, name: data}, tmp_path / "x.zip")).changed:
                    silent.append((name, *place))
    assert tried > 100 and not silent


def other_array(data):
    file, array = io.BytesIO(), np.load(io.BytesIO(data))
    array.flat[1] += 1
    np.save(file, array)
    return file.getvalue()


FORGED = {
    "manifest.json": lambda data: data.replace(b'"n_stimuli": ', b'"n_stimuli": 1'),
    "pair_tables/rsa.npy": other_array,
    "pair_tables/folds.npy": other_array,
    "pair_tables/tables.npz": lambda data: data[:-30],
    "tables/folds.csv": lambda data: data + data.splitlines(keepends=True)[-1],
    "tables/importance.csv": lambda data: data[: data.rindex(b"\n", 0, -1) + 1],
    **dict.fromkeys(
        ["tables/why.csv", "tables/layer_map.csv"], lambda data: data[: data.index(b"\n") + 1]
    ),
}


def test_several_forged_files_are_found_at_once(files, tmp_path):
    changed = {name: forge(files[name]) for name, forge in FORGED.items()}
    found = verify(forged(files, tmp_path / "x.zip", **changed))
    assert not found.same and not found.changed
    different = {line.partition(":")[0] for line in found.findings}
    different |= {f"tables/{one.name}" for one in found.tables if not one.same}
    assert different == set(changed)


def test_no_model_is_fetched_unless_that_is_asked_for(files, tmp_path, monkeypatch, capsys):
    def fetched(*asked):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(model_paths, "_fetched", fetched)
    monkeypatch.setattr(model_paths, "cached", lambda *asked: None)
    about = json.loads(files["capsule.json"])
    for name, said in (
        ("someone/huge-model", "verify with --download"),
        ("gpt2@random3", "verify with --download"),
        ("/etc", "there is no model folder"),
        ("~root/model", "there is no model folder"),
        ("a b", "is no model's name"),
    ):
        about["spec"]["models"] = [name]
        bad = zipped({**files, "capsule.json": json.dumps(about).encode()}, tmp_path / "x.zip")
        assert main(["verify", str(bad)]) == 2
        told = capsys.readouterr().err
        assert said in told and told.count("\n") == 1, told


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
    layers = {f"layer_{n:02d}": rows for n, rows in noise(len(table)).items()}
    np.savez(folder / "brain.npz", **layers)
    exported = ((HOSTILE[5], str(folder / "brain.npz")),)
    spec = AnalysisSpec(stimuli=str(path), representations=exported, folds=3)
    return run(spec, Store(folder / "store"))


@pytest.fixture(scope="module")
def exported(analysis, tmp_path_factory):
    drawing = Drawing(images=False, names=Names({HOSTILE[0]: HOSTILE[4]}, {HOSTILE[5]: HOSTILE[1]}))
    target = tmp_path_factory.mktemp("out") / "x.zip"
    return contents(capsule.write(analysis, target, drawing=drawing))


class Tags(HTMLParser):
    """The elements of a page, and their attributes that run."""

    found: tuple[str, ...] = ()

    def handle_starttag(self, tag, attributes):
        self.found += (tag, *(name for name, _ in attributes if name.startswith("on")))


def test_pages_have_no_element_of_a_name(exported):
    for name in [name for name in exported if name.endswith(".html")]:
        tags = Tags()
        tags.feed(exported[name].decode())
        assert set(tags.found) <= _TAGS, name
        assert tags.found.count("script") <= 3, name


def active(text):
    """What Markdown makes of a text beside text, paragraphs and strong type."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens = [one for token in parser.parse(text) for one in (token, *(token.children or ()))]
    plain = "paragraph_open paragraph_close inline text text_special softbreak"
    return {one.type for one in tokens} - {*plain.split(), "strong_open", "strong_close"}


def test_markdown_is_text(exported, analysis):
    for name in ("methods.md", "figures/captions.md"):
        text = exported[name].decode()
        assert not active(text), name
        # Dollar signs that stand for no formula in any dialect.
        assert not re.search(r"(?<!\\)\$", text), name
    rendered = MarkdownIt().render(exported["methods.md"].decode())
    assert "javascript:alert(2)" in rendered  # it is there, as text
    plain = methods_paragraph(analysis, analysis.results())
    assert not active(plain) and "\n" not in plain.strip()


def test_latex_has_no_command_of_a_name(exported):
    for name in [name for name in exported if name.endswith(".tex")]:
        assert rb"\input" not in exported[name] and rb"\write" not in exported[name], name


def test_no_cell_is_a_formula(exported, analysis):
    seen = 0
    for name in [name for name in exported if name.endswith(".csv")]:
        for cell in chain.from_iterable(csv.reader(io.StringIO(exported[name].decode()))):
            if cell[:1] in "=+-@\t\r" and cell:
                assert NUMBER.fullmatch(cell), (name, cell)
            seen += cell.startswith("'=")
    assert seen > 10
    read = read_written(
        exported["stimuli.csv"], nominal=[one.name for one in analysis.whole.features]
    )
    assert list(read.table.columns) == list(analysis.whole.table.columns)
    assert read.table[HOSTILE[3]].tolist() == analysis.whole.table[HOSTILE[3]].tolist()
