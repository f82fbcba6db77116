"""Capsules with something else in them: what is another result is found, what is none is not."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import hostile_capsules
import numpy as np
import pandas as pd
import pytest
from feeding import Found, feed
from hostile_capsules import Files, contents, edited, forged, places, small, zipped
from inputs import refused

from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.models import hub
from mlem_core.report import capsule
from mlem_core.report.compared import compare
from mlem_core.report.opened import opened
from mlem_core.report.verify import verify


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return contents(small(tmp_path_factory.mktemp("small")))


@pytest.fixture(scope="module")
def undrawn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capsule, "_figure_files", lambda *_: {})
        yield contents(small(tmp_path_factory.mktemp("small")))


@pytest.fixture
def files(undrawn: Files, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Those of a capsule without drawings, which take most of the time of a verification."""
    monkeypatch.setattr(capsule, "_figure_files", lambda *_: {})
    return undrawn


def verified(path: Path) -> Found:
    """What verify says; a capsule in which it finds something counts as refused."""
    found = verify(path)
    assert found.lines()
    if not found.same:
        raise InputError("Something was found.")
    return Found("", lambda holds: [])


def only_read(files: Files) -> Files:
    """The same without the stimuli, so that what passes the check ends there."""
    return {**files, "stimuli.csv": b"sentence\n"}


def test_changed_values_and_what_is_no_document(files, tmp_path, monkeypatch):
    n, own = {"capsule.json": 250, "manifest.json": 50}, only_read(files)
    made = chain(hostile_capsules.changed_values(own, n, 1), hostile_capsules.no_documents(own))
    feed(made, verified, tmp_path, monkeypatch).none_fails()


@pytest.mark.faults
def test_900_capsules_with_changed_values(files, tmp_path, monkeypatch, capsys):
    n = {"capsule.json": 750, "manifest.json": 150}
    made = hostile_capsules.changed_values(files, n, 2)
    feed(made, verified, tmp_path, monkeypatch).none_fails("capsules", capsys)


MAKERS = {
    "recorded": lambda files: islice(hostile_capsules.recorded(files), 0, None, 3),
    "archives": hostile_capsules.archives,
    "texts": hostile_capsules.texts,
    "inputs": hostile_capsules.inputs,
}


@pytest.mark.faults
@pytest.mark.parametrize("what", MAKERS)
def test_each_change_of_a_capsule(what, files, tmp_path, monkeypatch, capsys):
    feed(MAKERS[what](files), verified, tmp_path, monkeypatch).none_fails(what, capsys)


def test_some_changes_of_a_capsule(files, tmp_path, monkeypatch):
    archives, inputs = hostile_capsules.archives(files), hostile_capsules.inputs(files)
    some = chain(islice(archives, 3, 28, 12), islice(inputs, 0, None, 5))
    feed(some, verified, tmp_path, monkeypatch).none_fails()


def wrongly_compared(files: Files, every: int) -> list[str]:
    wrong = []
    edits = hostile_capsules.edited_tables(files, seed=1)
    for what, name, data, must in islice(edits, 0, None, every):
        try:
            found = not compare(name.removeprefix("tables/"), data, files[name]).same
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            found = True  # verify says that it is no table
        if must is not None and found != must:
            wrong.append(f"{name} {what}: {'found' if found else 'not found'}")
    return wrong


def test_some_edits_of_tables(files):
    assert not wrongly_compared(files, 11)


@pytest.mark.faults
def test_each_edit_of_each_table(files):
    assert not wrongly_compared(files, 1)


def verified_whole(files: Files, path: Path) -> None:
    found = verify(zipped(files, path))
    assert found.same and not found.not_compared
    own = [name for name in files if name.startswith("representations/")]
    assert len(found.tables) + found.alike == len(files) - len(own)


def test_the_capsule_itself_is_verified_whole(files, tmp_path):
    verified_whole(files, tmp_path / "x.zip")


@pytest.mark.faults
def test_the_capsule_with_its_figures_is_verified_whole(drawn, tmp_path):
    verified_whole(drawn, tmp_path / "x.zip")


def test_an_edit_of_any_field_is_noticed(files, tmp_path):
    assert not opened(zipped(files, tmp_path / "x.zip")).changed
    tried, silent = 0, []
    for name in ("capsule.json", "manifest.json"):
        document = json.loads(files[name])
        for place in places(document, leaves=True):
            data = json.dumps(edited(document, place)).encode()
            tried += 1
            with contextlib.suppress(InputError):
                if not opened(zipped({**files, name: data}, tmp_path / "x.zip")).changed:
                    silent.append((name, *place))
    assert tried > 100 and not silent


# What only the capsule can say, and where it was computed.
UNKNOWN = {
    ("stimuli", "name"),
    ("models", "brain", "file"),
    ("machine",),
    ("parameters", "device"),
}


@pytest.mark.faults
@pytest.mark.parametrize("name", ["capsule.json", "manifest.json"])
def test_an_edit_of_any_field_under_a_fresh_seal_is_noticed(
    drawn: Files, tmp_path: Path, name: str
) -> None:
    document, silent = json.loads(drawn[name]), []
    usual = verify(zipped(drawn, tmp_path / "x.zip")).lines()
    for place in places(document, leaves=True):
        known = not any(place[: len(one)] == one for one in UNKNOWN)
        # Files and the seal are fresh; how figures were drawn is seen where they are drawn alike.
        if not known or (name == "capsule.json" and place[0] in ("files", "seal", "drawn")):
            continue
        data = json.dumps(edited(document, place)).encode()
        with contextlib.suppress(InputError):
            if verify(forged({**drawn, name: data}, tmp_path / "x.zip")).lines() == usual:
                silent.append(place)
    assert not silent


@pytest.mark.parametrize(
    ("field", "value"),
    [("add", ["length"]), ("rdms", [["a", "b.npy"]]), ("stimuli", "other.csv")],
)
def test_a_source_that_the_run_does_not_use_is_noticed(
    files: Files, tmp_path: Path, field: str, value: Any
) -> None:
    about = json.loads(files["capsule.json"])
    about["spec"][field] = value
    changed = {**files, "capsule.json": json.dumps(about).encode()}
    empty = {"tables__more.csv": b"model,layer\n"} if field == "add" else {}
    found = verify(forged(changed, tmp_path / "x.zip", **empty))
    assert not found.changed and not found.same
    assert [said for said in found.findings if said.startswith("capsule.json: ") and field in said]
    assert [one.name for one in found.tables if not one.same] == ["more.csv"] * bool(empty)


def other_array(data: bytes) -> bytes:
    array = np.load(io.BytesIO(data))
    array.flat[1] += 1
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def other_manifest(data: bytes) -> bytes:
    manifest = json.loads(data)
    manifest["stimuli"]["n_stimuli"] += 1
    return json.dumps(manifest).encode()


def lines_of(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


FORGED = {
    "methods.md": lambda data: data.replace(b"3-fold", b"5-fold"),
    "methods.tex": lambda data: data.replace(b"euclidean", b"cosine").replace(b"Euclid", b"cos"),
    "references.bib": lambda data: data.replace(b"@article", b"@misc", 1),
    "README.txt": lambda data: data + b"Send us your data.\n",
    "manifest.json": other_manifest,
    "figures/captions.md": lambda data: data.replace(b"3 folds", b"9 folds"),
    "figures/similarity.html": lambda data: data.replace(b"</body>", b"<p>p &lt; .001</p></body>"),
    "latex/profiles.tex": lambda data: data.replace(b"begin{table", b"begin{tabla"),
    "pair_tables/rsa.npy": other_array,
    "pair_tables/folds.npy": other_array,
    "pair_tables/tables.npz": lambda data: data[:-30],
    "tables/scores.csv": lambda data: lines_of(data)[0],
    "tables/folds.csv": lambda data: data + lines_of(data)[-1],
    "tables/importance.csv": lambda data: b"".join(lines_of(data)[:-1]),
    "tables/why.csv": lambda data: lines_of(data)[0],
    "tables/layer_map.csv": lambda data: lines_of(data)[0],
}


def marked(name: str) -> Any:
    """The figures are drawn nowhere else before each change."""
    mark = pytest.mark.slow if name.startswith("figures/") else pytest.mark.faults
    return pytest.param(name, marks=mark)


@pytest.mark.parametrize("name", map(marked, FORGED))
def test_what_was_forged_is_found(drawn: Files, tmp_path: Path, name: str) -> None:
    data = FORGED[name](drawn[name])
    assert data != drawn[name]
    found = verify(forged(drawn, tmp_path / "x.zip", **{name: data}))
    assert not found.same and not found.changed
    short = name.removeprefix("tables/")
    said = [line for line in found.lines() if line.startswith(short)]
    assert len(said) == 1 and "the same" not in said[0], found.lines()


def test_several_forged_files_are_found_at_once(files: Files, tmp_path: Path) -> None:
    names = [name for name in FORGED if name in files and name != "tables/scores.csv"]
    assert len(names) > 11
    found = verify(
        forged(files, tmp_path / "x.zip", **{name: FORGED[name](files[name]) for name in names})
    )
    different = {line.partition(":")[0] for line in found.findings}
    different |= {f"tables/{one.name}" for one in found.tables if not one.same}
    assert different == set(names)


def test_files_that_are_not_listed_or_not_made_are_refused(files: Files, tmp_path: Path) -> None:
    with refused("extra.html", "does not list"):
        verify(zipped({**files, "extra.html": b"x"}, tmp_path / "x.zip"))
    gone = {name: data for name, data in files.items() if name != "methods.md"}
    with refused("'methods.md'", "which it lists"):
        verify(zipped(gone, tmp_path / "x.zip"))
    listed = forged(files, tmp_path / "x.zip", **{"extra.html": b"x", "methods.md": None})
    said = verify(listed).findings
    assert [one.partition(":")[0] for one in said[:2]] == ["extra.html", "methods.md"]


@pytest.mark.faults
def test_a_table_said_to_take_long_is_compared_all_the_same(files: Files, tmp_path: Path) -> None:
    table = pd.read_csv(io.BytesIO(files["tables/scores.csv"]))
    table["rho"] += 0.1
    about = {**json.loads(files["capsule.json"]), "derived": ["scores.csv"]}
    changed = {**files, "capsule.json": json.dumps(about).encode()}
    bad = forged(
        changed, tmp_path / "x.zip", **{"tables__scores.csv": table.to_csv(index=False).encode()}
    )
    assert not verify(bad).same


def test_no_model_is_fetched_unless_that_is_asked_for(
    files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fetched(*asked: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(hub, "_fetched", fetched)
    monkeypatch.setattr(hub, "cached", lambda *asked: None)
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
