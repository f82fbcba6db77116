"""The zip of everything and a manifest are run again; what was changed in them is said."""

import io
import json
import os
import shutil
import zipfile
from functools import partial

import pandas as pd
import pytest
from damaging import contents, packed
from inputs import for_each, in_files, noise, probing, refused

from mlem_core import Store, figures, run
from mlem_core.cli.commands import main
from mlem_core.report import archive
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
    import tiny

    table, models = probing(40), (str(tiny.save("bert", folder / "bert")),)
    chosen = {"models": models, "layers": (0, 1), "nominal": ("word_position",), "folds": 3}
    features = ("part_of_speech", "tense", "word_position")
    spec = in_files(folder, table, {"brain": noise(len(table))}, features=features, **chosen)
    return run(spec, Store(folder / "cache"))


@pytest.fixture(scope="module")
def path(analysis, folder):
    store, options = Store(folder / "cache"), TableOptions(bootstrap=20, similarities=("cka",))
    return write_archive(analysis, folder / "all.zip", store, options, images=False)


@pytest.fixture(scope="module")
def bert(folder):
    return ["--model", f"bert={folder / 'bert'}"]


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
    assert files["representations/00.npz"] == (folder / "brain.npz").read_bytes()
    assert b'<script src="plotly.min.js">' in files["figures/profiles.html"]
    assert b"citep{salle2024}" in files["methods.tex"] and b"@article" in files["references.bib"]
    tables = json.loads(files["manifest.json"])["tables"]
    assert {"intervals.csv", "similarity_cka.csv"} < {*tables} < {*files}
    assert not [name for name, data in files.items() if folder.name.encode() in data]


def test_a_zip_is_rerun_and_its_changed_tables_are_said(path, bert, tmp_path, capsys):
    table = pd.read_csv(io.BytesIO(contents(path)["importance.csv"]))
    rows = "model == 'brain' and layer == 1 and fold == 2 and feature == 'tense'"
    at = table.query(rows).index
    table.loc[at, "importance"] += 0.25
    importance = table.to_csv(index=False).encode()
    wrong = changed(path, tmp_path / "x.zip", importance__csv=importance, folds__csv=b"fold\n0\n")
    assert main(["rerun", str(wrong), *bert]) == 1
    folds, line, *_, outcome = capsys.readouterr().out.splitlines()
    assert folds.startswith("folds.csv differs: its columns are ")
    where = "most importance of model brain, layer 1, fold 2, feature tense: "
    assert line.startswith("importance.csv differs: 1 of ") and where in line
    n = len(json.loads(contents(path)["manifest.json"])["tables"])
    assert n > 9 and outcome == f"{n} tables compared: 2 differ by more than 0.0001."


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
    assert main(["rerun", str(tmp_path / "out")]) == 1
    assert "importance_chance.csv is listed in the manifest" in capsys.readouterr().out
    other = (folder / "words.csv").read_text().replace("present", "past", 1)
    (tmp_path / "words.csv").write_text(other)
    assert main(["rerun", manifest, brain, f"--stimuli={tmp_path / 'words.csv'}"]) == 2
    assert "are not those of the analysis" in capsys.readouterr().err


def test_a_zip_without_stimuli_is_rerun_with_the_users_own(out, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(folder / "store"))
    monkeypatch.setattr(figures, "can_write_images", lambda: False)
    monkeypatch.setattr(archive, "all_figures", lambda context, report: {})
    monkeypatch.chdir(folder)
    path = tmp_path / "x.zip"
    assert main(["export", str(out), f"--zip={path}", "--without-stimuli"]) == 0
    assert not {"stimuli.csv", "words.csv", "representations/00.npz"} & {*contents(path)}
    brain = {"brain": str(folder / "brain.npz")}
    with refused("words.csv", "--stimuli FILE"):
        rerun(path, representations=brain)
    assert rerun(path, representations=brain, stimuli=str(folder / "words.csv")).same


def test_files_that_have_changed_since_are_not_put_in(analysis, folder, tmp_path):
    brain = folder / "brain.npz"
    data = brain.read_bytes()
    try:
        brain.write_bytes(data + b"x")
        with refused("changed"):
            write_archive(analysis, tmp_path / "all.zip", Store(folder / "cache"), images=False)
    finally:
        brain.write_bytes(data)
    assert not list(tmp_path.iterdir())


def outside(manifest, entry, value):
    manifest["parameters"][entry] = value


@for_each(
    "files, fact",
    ({"manifest__json": b"[" * 100_000}, "manifest"),
    ({"manifest__json": b"{}"}, "missing"),
    ({"manifest__json": None}, "no manifest.json"),
    ({"../importance__csv": b"x"}, "outside"),
    ({"/tmp/importance__csv": b"x"}, "outside"),
    ({"stimuli__csv": bytes(5_000_000)}, "too much"),
    ({"stimuli__csv": b"sentence,tense\na b,x\nb c,y\n"}, "part_of_speech"),
    ({"representations/00__npz": b"x"}, "--representations brain=FILE"),
    ({"manifest__json": partial(outside, entry="stimuli", value="/etc/passwd")}, "/etc/passwd"),
    ({"manifest__json": partial(outside, entry="stimuli", value="../../x.csv")}, "x.csv"),
    ({"manifest__json": partial(outside, entry="models", value=["/etc"])}, "/etc"),
    ({"manifest__json": partial(outside, entry="models", value=["some/model"])}, "--download"),
    ({"manifest__json": partial(outside, entry="folds", value=-1)}, "folds"),
    ({"manifest__json": partial(outside, entry="nothing", value=1)}, "nothing"),
    ({"manifest__json": lambda m: m.update(options={"bootstrap": 10**9})}, "10,000,000"),
    ({"manifest__json": lambda m: m.update(options={"similarity": "x"})}, "similarity"),
    ({"manifest__json": lambda m: m.update(written={})}, "nothing can be compared"),
)
def test_a_hostile_zip_is_one_sentence(path, folder, tmp_path, monkeypatch, files, fact):
    monkeypatch.setitem(rerunning.LARGEST_READ, ".csv", 1_000_000)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    files = {name: edited(path, data) if callable(data) else data for name, data in files.items()}
    with refused(fact):
        rerun(changed(path, tmp_path / "x.zip", **files), models={})
    assert [*os.listdir(tmp_path)] == ["x.zip"]


@for_each("data", b"", b"no zip", b"PK\3\4" + b"x" * 99)
def test_what_is_no_zip_is_one_sentence(data, tmp_path):
    (tmp_path / "x.zip").write_bytes(data)
    with refused("x.zip", "no zip"):
        rerun(tmp_path / "x.zip")


def test_the_largest_difference_is_the_one_that_is_named():
    now = pd.DataFrame({"model": ["a", "b", "b"], "layer": [0, 0, 1], "rho": [0.1, None, 1e6]})
    assert table_difference(now.copy(), now, 1e-4) == ""
    assert table_difference(now.assign(rho=[0.1, None, 1e6 + 1]), now, 1e-4) == ""
    found = table_difference(now.assign(rho=[0.2, None, 2e6]), now, 1e-4)
    assert found.startswith("2 of 9 cells, most rho of model b, layer 1: 2000000 before")
    found = table_difference(now.assign(rho="x"), now, 1e-4)
    assert "most rho of model a, layer 0: 'x' before, 0.1 in the rerun" in found
    assert "has 2 rows" in table_difference(now.iloc[:2], now, 1e-4)
