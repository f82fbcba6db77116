"""The zip of everything and a manifest are run again; what was changed in them is said."""

import io
import json
import os
import shutil
import zipfile
from functools import partial

import pandas as pd
import pytest
from helpers.damaging import contents, packed
from helpers.inputs import for_each, in_files, noise, probing, refused

from mlem_core import Store, run
from mlem_core.cli.commands import main
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.report import rerun as rerunning
from mlem_core.report.analysis_tables import TableOptions
from mlem_core.report.archive import write_archive
from mlem_core.report.rerun import rerun, table_difference


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rerun")


@pytest.fixture(scope="module")
def analysis(folder):
    """40 sentences in a tiny model, which is a folder, and in a file of two made-up layers."""
    from helpers import tiny

    table, models = probing(40), (str(tiny.save("bert", folder / "bert")),)
    chosen = {"models": models, "layers": (0, 1), "nominal": ("word_position",), "folds": 3}
    features = ("part_of_speech", "tense", "word_position")
    spec = in_files(folder, table, {"brain": noise(len(table))}, features=features, **chosen)
    return run(spec, Store(folder / "cache"))


@pytest.fixture(scope="module")
def path(analysis, folder):
    others = tuple(SIMILARITIES)[1:2]  # the first is RSA
    store, options = Store(folder / "cache"), TableOptions(bootstrap=20, similarities=others)
    return write_archive(analysis, folder / "all.zip", store, options, images=False)


def changed(path, target, **files):
    """A copy of a zip with other files, `importance__csv` for importance.csv; of None without."""
    files = {name.replace("__", "."): data for name, data in files.items()}
    kept = {name: data for name, data in {**contents(path), **files}.items() if data is not None}
    target.write_bytes(packed(kept, zipfile.ZIP_DEFLATED))
    return target


def edited(path, change):
    """The manifest of a zip, changed in place by a function of it."""
    manifest = json.loads(contents(path)["manifest.json"])
    change(manifest)
    return json.dumps(manifest).encode()


def test_the_zip_has_all_that_analyze_writes_and_no_path_of_the_machine(path, analysis, folder):
    files = contents(path)
    table = pd.read_csv(io.BytesIO(files["scores.csv"]))
    expected = analysis.results().scores.replace({"model": {str(folder / "bert"): "bert"}})
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    assert b'<script src="plotly.min.js">' in files["figures/profiles.html"]
    assert b"citep{salle2024}" in files["methods.tex"] and b"@article" in files["references.bib"]
    tables = json.loads(files["manifest.json"])["tables"]
    others = {f"similarity_{name}.csv" for name in [*SIMILARITIES][1:2]}
    assert {"intervals.csv", *others} < {*tables} < {*files}
    assert not [name for name, data in files.items() if folder.name.encode() in data]


def test_a_zip_is_rerun_and_its_changed_tables_are_said(
    path, folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(folder)  # where the model and the file lie
    table = pd.read_csv(io.BytesIO(contents(path)["importance.csv"]))
    table.loc[7, "importance"] += 0.25
    importance = table.to_csv(index=False).encode()
    wrong = changed(path, tmp_path / "x.zip", importance__csv=importance, folds__csv=b"fold\n0\n")
    assert main(["rerun", str(wrong)]) == 1
    folds, line, *_, outcome = capsys.readouterr().out.splitlines()
    assert folds == "folds.csv: DataFrame shape mismatch"
    assert line.startswith('importance.csv: DataFrame.iloc[:, 4] (column name="importance") values')
    assert line.endswith("the largest difference of two numbers is 0.25")
    n = len(json.loads(contents(path)["manifest.json"])["tables"]) - 1  # without the map
    assert n > 9 and outcome == f"{n} tables compared: 2 not equal within 0.0001."


@pytest.fixture(scope="module")
def out(folder, analysis):
    """What `analyze` writes, with the paths of its inputs from `folder`."""
    files = ["--stimuli=words.csv", "--representations=brain=brain.npz", "--folds=3"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLEM_CACHE", str(folder / "store"))
        patch.chdir(folder)
        assert main(["analyze", *files, "--features=tense,number", "--chance=20", "--out=out"]) == 0
    return folder / "out"


def test_a_folder_of_analyze_is_rerun_and_its_inputs_are_checked(out, folder, tmp_path, capsys):
    capsys.readouterr()
    manifest = str(out / "manifest.json")
    assert main(["rerun", manifest]) == 2
    assert "name the file by --representations brain=FILE." in capsys.readouterr().err
    brain = f"--representations=brain={folder / 'brain.npz'}"
    given = [brain, f"--stimuli={folder / 'words.csv'}"]
    assert main(["rerun", manifest, *given]) == 0
    assert capsys.readouterr().out == "8 tables compared: all are equal within 0.0001.\n"
    shutil.copytree(out, tmp_path / "out")
    (tmp_path / "out" / "importance_chance.csv").unlink()
    for name in ("words.csv", "brain.npz"):
        shutil.copy(folder / name, tmp_path / "out")
    assert main(["rerun", str(tmp_path / "out" / "manifest.json")]) == 1
    assert "importance_chance.csv: it is not there" in capsys.readouterr().out
    other = (folder / "words.csv").read_text().replace("present", "past", 1)
    (tmp_path / "words.csv").write_text(other)
    assert main(["rerun", manifest, brain, f"--stimuli={tmp_path / 'words.csv'}"]) == 2
    assert "are not those of the analysis" in capsys.readouterr().err
    shutil.copy(folder / "words.csv", tmp_path / "brain.npz")
    brain = f"--representations=brain={tmp_path / 'brain.npz'}"
    assert main(["rerun", manifest, brain]) == 2
    assert main(["export", str(out), f"--zip={tmp_path / 'x.zip'}", "--without-stimuli"]) == 2
    assert "is not the file of the analysis" in capsys.readouterr().err


def outside(manifest, entry, value):
    manifest["parameters"][entry] = value


@for_each(
    "files, fact",
    ({"manifest__json": b"[" * 100_000}, "manifest"),
    ({"manifest__json": b"{}"}, "missing"),
    ({"manifest__json": None}, "no manifest.json"),
    ({"stimuli__csv": bytes(5_000_000)}, "unpacks to more"),
    ({"stimuli__csv": None}, "stimuli.csv"),
    ({"stimuli__csv": b"sentence,tense\na b,x\nb c,y\n"}, "part_of_speech"),
    ({"manifest__json": partial(outside, entry="folds", value=-1)}, "folds"),
    ({"manifest__json": lambda m: m.update(options={"bootstrap": 10**9})}, "10,000,000"),
    ({"manifest__json": lambda m: m.update(options={"similarity": "x"})}, "similarity"),
    ({"manifest__json": lambda m: m.update(written={})}, "none to compare"),
)
def test_a_hostile_zip_is_one_sentence(path, folder, tmp_path, monkeypatch, files, fact):
    monkeypatch.setattr(rerunning, "LARGEST", 4_000_000)
    monkeypatch.chdir(folder)
    files = {name: edited(path, data) if callable(data) else data for name, data in files.items()}
    with refused(fact):
        rerun(changed(path, tmp_path / "x.zip", **files))
    assert [*os.listdir(tmp_path)] == ["x.zip"]


@for_each(
    "entry, value, facts",
    ("models", ["/etc"], ("/etc", "left out")),
    ("nothing", 1, ("No installed extension", "nothing")),
)
def test_what_is_not_there_is_said(path, folder, tmp_path, entry, value, facts):
    manifest = edited(path, partial(outside, entry=entry, value=value))
    outcome = rerun(
        changed(path, tmp_path / "x.zip", manifest__json=manifest),
        representations={"brain": str(folder / "brain.npz")},
    )
    assert not outcome.same  # the model of the analysis is a folder, which is not there either
    assert any(all(fact in note for fact in facts) for note in outcome.notes)


def test_a_path_that_leads_out_of_a_zip_is_not_written(path, tmp_path):
    hostile = changed(path, tmp_path / "x.zip", **{"../y__csv": b"x", "/tmp/y__csv": b"x"})
    rerunning._unpack(hostile, tmp_path / "in" / "it")
    assert {*os.listdir(tmp_path)} == {"x.zip", "in"} and os.listdir(tmp_path / "in") == ["it"]
    assert "y.csv" not in os.listdir(tmp_path / "in" / "it")


@for_each("data", b"", b"no zip", b"PK\3\4" + b"x" * 99)
def test_what_is_no_zip_is_one_sentence(data, tmp_path):
    (tmp_path / "x.zip").write_bytes(data)
    with refused("x.zip", "no zip"):
        rerun(tmp_path / "x.zip")


def test_the_largest_difference_is_named():
    now = pd.DataFrame({"model": ["a", "b", "b"], "layer": [0, 0, 1], "rho": [0.1, None, 1e6]})
    assert table_difference(now.copy(), now) == ""
    assert table_difference(now.assign(rho=[0.1, None, 1e6 + 1]), now) == ""
    found = table_difference(now.assign(rho=[0.2, None, 2e6]), now)
    assert '"rho"' in found and found.endswith("two numbers is 1e+06")
    assert '"rho"' in table_difference(now.assign(rho="x"), now)
    assert '"model"' in table_difference(now.assign(model="a"), now)
    assert "shape mismatch" in table_difference(now.iloc[:2], now)
