import io
import json
import re
import zipfile
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from damaging import contents, packed
from inputs import arguments_of, in_files, noise, probing, refused, two_systems

from mlem_core import Store, compared, explain, run
from mlem_core.analysis.decoding import decode_layers
from mlem_core.analysis.files import load_analysis
from mlem_core.cli.commands import main
from mlem_core.figures.plots import Drawing
from mlem_core.inference.layer_intervals import layer_intervals
from mlem_core.report import capsule, file_diff
from mlem_core.report import contents as described
from mlem_core.report.file_diff import compare
from mlem_core.report.verify import verify as verify_anywhere

HTML = Drawing(images=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("capsule")


@pytest.fixture(scope="module")
def analysis(folder):
    """40 sentences in a tiny model and in a file of two made-up layers."""
    import tiny

    table, models = probing(40), (str(tiny.save("bert", folder / "bert")),)
    chosen = {"models": models, "layers": (0, 1), "nominal": ("word_position",), "folds": 3}
    features = ("part_of_speech", "tense", "word_position")
    spec = in_files(folder, table, {"brain": noise(len(table))}, features=features, **chosen)
    return run(spec, Store(folder / "cache"))


@pytest.fixture(scope="module")
def path(analysis, folder):
    return capsule.write(analysis, folder / "capsule.zip", drawing=HTML)


@pytest.fixture(scope="module")
def verify(folder):
    return partial(verify_anywhere, models={"bert": str(folder / "bert")})


@pytest.fixture(scope="module")
def bert(folder):
    return ["--model", f"bert={folder / 'bert'}"]


def changed(path, target, **files):
    """A copy with other files; of None, without them."""
    kept = {**contents(path), **files}
    kept = {name: data for name, data in kept.items() if data is not None}
    target.write_bytes(packed(kept, zipfile.ZIP_DEFLATED))
    return target


def as_bytes(table):
    return table.to_csv(index=False).encode()


def test_it_holds_all_that_was_made(path, analysis, folder):
    files = contents(path)
    results = analysis.results()
    called = {str(folder / "bert"): "bert"}
    scores = pd.read_csv(io.BytesIO(files["tables/scores.csv"]))
    expected = results.scores.replace({"model": called})
    pd.testing.assert_frame_equal(scores, expected, check_dtype=False)
    for name in ("profiles", "similarity", "layer_maps", "compare", "feature_correlations"):
        assert b'<script src="plotly.min.js">' in files[f"figures/{name}.html"]
    assert b"plotly.js" in files["figures/plotly.min.js"]
    assert b"citep{salle2024}" in files["methods.tex"] and b"@article" in files["references.bib"]
    assert f"numpy {np.__version__}" in files["versions.txt"].decode()
    assert files["representations/00.npz"] == (folder / "brain.npz").read_bytes()
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "unpacked")
    kept = folder / "unpacked" / "pair_tables"
    (kept / "stimuli.csv").write_bytes(files["stimuli.csv"])
    expected = results.importance.replace({"model": called})
    pd.testing.assert_frame_equal(load_analysis(kept).results().importance, expected)


def test_it_names_no_path_of_the_machine_it_was_made_on(path, analysis, folder):
    for name, data in contents(path).items():
        parts = [data]
        if name.endswith(".npz"):
            with zipfile.ZipFile(io.BytesIO(data)) as arrays:
                parts = [arrays.read(one) for one in arrays.namelist()]
        assert not [part for part in parts if str(folder.name).encode() in part], name


@pytest.mark.slow
def test_running_it_again_gives_the_same(path, bert, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "unused"))
    assert main(["verify", str(path), *bert]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "nothing differs" and told[0].startswith("scores.csv: the same")
    tables = [name for name in contents(path) if name.startswith("tables/")]
    assert len(told) == 3 + len(tables) and "files of figures and texts" in told[-2]
    assert any(line.startswith("why.csv: the same (4 numbers") for line in told)
    assert all("tolerance 0.0001" in line and "(0 numbers" not in line for line in told[:-3])
    assert not (tmp_path / "unused").exists()


def test_a_number_that_was_tampered_with_is_found_and_named(path, bert, tmp_path, capsys):
    """Of a fit, and of why two layers are alike."""
    files = contents(path)
    names = ("importance", "why")
    tables = {name: pd.read_csv(io.BytesIO(files[f"tables/{name}.csv"])) for name in names}
    importance = tables["importance"]
    where = "model == 'brain' and layer == 1 and fold == 2 and feature == 'tense'"
    at = importance.query(where).index
    value = float(importance.loc[at[0], "importance"])
    importance.loc[at, "importance"] = value + 0.25
    tables["why"].loc[tables["why"]["term"] == "tense", "value"] += 0.5
    other = {f"tables/{name}.csv": as_bytes(table) for name, table in tables.items()}
    assert main(["verify", str(changed(path, tmp_path / "x.zip", **other)), *bert]) == 1
    told = capsys.readouterr().out.splitlines()
    (line,) = [one for one in told if one.startswith("importance.csv: ")]
    worst = "importance, model brain, layer 1, fold 2, feature tense: "
    values = f"{value + 0.25:.6g} in the capsule, {value:.6g} now"
    assert all(fact in line for fact in ("1 of 36", "0.0001", "0.25", worst, values))
    (why,) = [one for one in told if one.startswith("why.csv: ")]
    assert "1 of 4" in why and "term tense" in why
    assert any(one.startswith("tables/importance.csv: ") for one in told)
    assert any(one.startswith("scores.csv: the same") for one in told)


def test_why_layers_are_alike_is_in_it(path, analysis):
    files = contents(path)
    pair = [tuple(layer) for layer in json.loads(files["capsule.json"])["pair"]]
    most = list(analysis.most_alike())
    assert pair == [("bert" if model.endswith("bert") else model, n) for model, n in most]
    why = explain(analysis, *most)
    table = pd.read_csv(io.BytesIO(files["tables/why.csv"]))
    pd.testing.assert_frame_equal(table, why.terms, check_dtype=False)


@pytest.mark.slow
def test_what_was_made_beside_the_results_is_in_it_and_said(analysis, folder, tmp_path):
    """Intervals are computed again; decoding and similarities take long, and are not."""
    store = Store(folder / "cache")
    layers = ("part_of_speech", "tense")
    analysis = run(replace(analysis.spec, models=(), features=layers, nominal=()), store)
    intervals = layer_intervals(analysis, store, n_replicates=100)
    compared(analysis, "cka", store)
    decode_layers(analysis, store)
    drawing = replace(HTML, store=store, replicates=100)
    path = capsule.write(analysis, tmp_path / "c.zip", drawing=drawing)
    files = contents(path)
    about = json.loads(files["capsule.json"])
    table = pd.read_csv(io.BytesIO(files["tables/intervals.csv"]))
    np.testing.assert_allclose(
        table.loc[table["quantity"] == "rho", "lower"], intervals.scores_lower[:, 0]
    )
    assert {"tables/similarity_intervals.csv", "tables/why_intervals.csv"} < set(files)
    written = files["methods.md"].decode()
    for told in ("The two layers in detail, ", "Confidence intervals are over ", " sentences"):
        assert told in written
    assert re.search(r"over 4 importances \(.+ and 1 RSA corr", written)
    assert about["replicates"] == 100
    assert "figures/baseline_decoding.html" in files
    # An interval that is another is found.
    table["lower"] -= 0.01
    found = verify_anywhere(
        changed(path, tmp_path / "x.zip", **{"tables/intervals.csv": as_bytes(table)})
    )
    assert [one.name for one in found.tables if not one.same] == ["intervals.csv"]
    assert found.changed == ["tables/intervals.csv"] and not found.findings
    assert "similarity_cka.csv" in found.derived


@pytest.mark.slow
def test_the_command_line_puts_its_intervals_into_the_capsule(tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    monkeypatch.setattr("mlem_core.figures.can_write_images", lambda: False)
    spec, _ = two_systems(tmp_path)
    asked = ["analyze", *arguments_of(spec), f"--out={tmp_path / 'out'}", "--layers=0,2"]
    assert main([*asked, "--bootstrap=20", f"--capsule={tmp_path / 'c.zip'}"]) == 0
    files = contents(tmp_path / "c.zip")
    for name in ("intervals.csv", "similarity_intervals.csv"):
        inside = pd.read_csv(io.BytesIO(files[f"tables/{name}"]))
        pd.testing.assert_frame_equal(inside, pd.read_csv(tmp_path / "out" / name), rtol=1e-5)
        assert inside.filter(like="lower").notna().any(axis=None)
    assert json.loads(files["capsule.json"])["replicates"] == 20
    assert b"95 % CI" in files["figures/captions.md"]


@pytest.mark.slow
def test_what_is_shown_is_what_is_written_and_verified(analysis, verify, tmp_path):
    shown = {
        "features": ["tense", "part_of_speech"],
        "layers": [("brain", 0), ("brain", 1)],
        "estimator": "ridge-rank",
        "interactions": True,
    }
    path = capsule.write(analysis, tmp_path / "capsule.zip", analysis.select(**shown), drawing=HTML)
    table = pd.read_csv(io.BytesIO(contents(path)["tables/weights.csv"]))
    assert set(table["feature"]) == {"part_of_speech", "tense", "part_of_speech × tense"}
    assert set(table["model"]) == {"brain"}
    assert verify(path).same


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_file_that_has_changed_since_is_not_put_in(analysis, folder, tmp_path, monkeypatch, when):
    brain = folder / "brain.npz"
    data = brain.read_bytes()

    def contents(*_):
        brain.write_bytes(data + b"x")
        return {}

    monkeypatch.setattr(capsule, "contents", contents)
    try:
        if when == "before":
            brain.write_bytes(data + b"x")
        with refused("changed"):
            capsule.write(analysis, tmp_path / "capsule.zip", drawing=HTML)
    finally:
        brain.write_bytes(data)
    assert not list(tmp_path.iterdir())


def test_a_zip_that_unpacks_to_too_much_is_not_unpacked(path, tmp_path, monkeypatch):
    for name, data in (("stimuli.csv", bytes(5_000_000)), ("manifest.json", b"[" * 2_000_000)):
        bomb = changed(path, tmp_path / "x.zip", **{name: data})
        monkeypatch.setitem(described.LARGEST_READ, name, 1_000_000)
        with refused(name, "1 MB"):
            verify_anywhere(bomb)
    monkeypatch.undo()
    for limits in ({"LARGEST": 3_000_000}, {"SMALLEST": 3_000_000, "TIMES_PACKED": 1}):
        for name, limit in limits.items():
            monkeypatch.setattr(described, name, limit)
        with refused(" MB"):
            verify_anywhere(bomb)
        monkeypatch.undo()
    # Nor is a file read that is far larger than its like.
    table = b"model,layer,fold,rho\n" + b"m,0,0,1.5\n" * 200_000
    assert file_diff.far_larger(table, table[:90]) and not file_diff.far_larger(
        table[:9000], table[:90]
    )
    assert file_diff.difference("manifest.json", b"[" * 2_000_000, b"{}") == "its size"


MAP = b"measure,model,layer,x,y\nrsa,a,0,0.5,0.0\nrsa,a,1,0.1,0.2\nrsa,a,2,0.0,0.4\n"
HEADER, *ROWS = MAP.splitlines(keepends=True)


def test_a_map_is_the_same_in_another_order_and_mirrored_and_not_with_other_columns():
    assert compare("layer_map.csv", MAP, HEADER + b"".join(ROWS[::-1])).same
    mirrored = MAP.replace(b",0.5,", b",-0.5,").replace(b",0.1,", b",-0.1,")
    assert compare("layer_map.csv", MAP, mirrored).same
    assert not compare("layer_map.csv", MAP, MAP.replace(b"0.2", b"0.3")).same
    with_x_twice = [HEADER.rstrip() + b",x\n", *(row.rstrip() + b",0.1\n" for row in ROWS)]
    assert compare("layer_map.csv", MAP, b"".join(with_x_twice)).n_missing
    found = compare("why.csv", b"quantity,value\na,p < .001\n", b"quantity,value\na,\n")
    assert found.n_different == 1 and "p < .001" in found.worst and "nothing" in found.worst
