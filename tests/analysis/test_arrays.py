"""Files as models: distances, CSV, names of layers, repetitions; and models that cannot be."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import tiny
from inputs import in_files, refused, words
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr

from mlem_core.analysis import files, layer_tables
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.baselines import of_analysis
from mlem_core.analysis.maps import representations_of, stimulus_map
from mlem_core.analysis.run import run
from mlem_core.analysis.similarities import compared
from mlem_core.analysis.spec import AnalysisSpec, with_files
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.cli.options import parser, spec_of
from mlem_core.inference.explanation import explain
from mlem_core.pairs.repetitions import cross_validated, shrunken
from mlem_core.report.figures import Drawing, Shown, draw
from mlem_core.report.methods import methods_paragraph
from mlem_core.robustness.audit import audit
from mlem_core.robustness.multiverse import multiverse
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses

TABLE = words()
N = len(TABLE)
V1, NOTHING = ("brain", 0), ("brain", 1)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return Store(tmp_path_factory.mktemp("store"), overlays=())


@pytest.fixture(scope="module")
def repeated() -> dict[str, np.ndarray]:
    """Two regions measured four times: one that tells nouns apart, one of noise alone."""
    noise = np.random.default_rng(0).standard_normal((2, 4, N, 6))
    told = np.zeros((N, 6))
    told[:, 0] = 3 * TABLE["noun"]
    return {"V1": told + noise[0], "nothing": noise[1]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, repeated) -> Path:
    """Stimuli, two layers of a system, the distances in them, regions with and without names."""
    folder = tmp_path_factory.mktemp("input")
    in_files(folder, TABLE, {})
    rng = np.random.default_rng(0)
    layers = {f"layer_{k:02d}": rng.standard_normal((N, 6)) for k in range(2)}
    layers["layer_01"][:, 0] += 3 * TABLE["noun"]
    layers["layer_01"][5] = layers["layer_01"][2]  # a tie
    distances = {name: squareform(pdist(rows)) for name, rows in layers.items()}
    np.savez(folder / "rows.npz", **layers)
    np.savez(folder / "distances.npz", **distances)
    safetensors.numpy.save_file(distances, folder / "distances.safetensors")
    pd.DataFrame(layers["layer_01"]).to_csv(folder / "rows.csv", index=False)
    pd.DataFrame(distances["layer_01"]).to_csv(folder / "distances.csv", index=False, header=False)
    np.savez(folder / "brain.npz", V1=layers["layer_00"], IT=layers["layer_01"])
    np.savez(folder / "rated.npz", IT=distances["layer_01"])
    np.savez(folder / "scans.npz", **repeated)
    np.savez(folder / "once.npz", V1=repeated["V1"][0])
    return folder


def spec(folder: Path, *files: str, **more: object) -> AnalysisSpec:
    named = tuple((Path(file).stem, str(folder / file)) for file in files)
    return AnalysisSpec(str(folder / "words.csv"), representations=named, folds=4, **more)


def same(a: Analysis, b: Analysis) -> None:
    ours, theirs = a.results(), b.results()
    for name in ("scores", "importance", "weights"):
        x, y = (getattr(r, name).drop(columns="model") for r in (ours, theirs))
        pd.testing.assert_frame_equal(x, y, atol=1e-9, rtol=0)
    np.testing.assert_allclose(ours.similarity_rsa, theirs.similarity_rsa, atol=1e-12)


@pytest.mark.parametrize(
    ("suffix", "positions"), [(".npz", "all"), (".safetensors", "without-first")]
)
def test_precomputed_distances_give_what_their_rows_give(folder, store, suffix, positions):
    rows = run(spec(folder, "rows.npz", positions=positions), store)
    given = spec(folder, f"distances{suffix}", distance="precomputed", positions=positions)
    distances = run(given, store)
    same(distances, rows)
    assert rows.results().scores.query("layer == 1")["rho"].mean() > 0.3
    # The map of the stimuli is of the same distances.
    a = stimulus_map(rows, "rows", 1, store)
    b = stimulus_map(distances, "distances", 1, store)
    np.testing.assert_array_equal(a["stimulus"], b["stimulus"])
    np.testing.assert_allclose(*(pdist(points[["x", "y"]]) for points in (a, b)), atol=1e-3)


def test_a_map_of_a_sample_of_precomputed_distances(folder, store, monkeypatch):
    monkeypatch.setattr("mlem_core.analysis.maps.MAP_STIMULI", 20)
    given = spec(folder, "distances.npz", distance="precomputed", seed=3)
    assert len(stimulus_map(run(given, store), "distances", 0, store)) == 20


def test_a_csv_is_one_layer(folder, store):
    rows = run(spec(folder, "rows.npz", layers=(1,)), store)
    one = run(spec(folder, "rows.csv"), store)
    assert one.layers == [("rows", 0)]
    pd.testing.assert_series_equal(one.results().scores["rho"], rows.results().scores["rho"])
    same(run(spec(folder, "distances.csv", distance="precomputed"), store), one)


@pytest.mark.parametrize(
    ("damage", "facts"),
    [
        (lambda m: m[:, :6], ["layer_00", f"({N}, 6)", f"({N}, {N})"]),
        (lambda m: m[:90, :90], ["layer_00", "(90, 90)", f"({N}, {N})"]),
        (lambda m: m + np.triu(m, 1), ["layer 0", "not symmetric"]),
        (lambda m: m + np.eye(N), ["layer 0", "a stimulus to itself"]),
        (lambda m: -m, ["layer 0", "row 1", "negative"]),
    ],
)
def test_what_is_no_matrix_of_distances(folder, store, tmp_path, damage, facts):
    whole = np.load(folder / "distances.npz")["layer_00"]
    np.savez(tmp_path / "m.npz", layer_00=damage(whole))
    given = replace(spec(folder), distance="precomputed")
    with refused(*facts):
        run(replace(given, representations=(("m", str(tmp_path / "m.npz")),)), store)


def test_names_of_layers_are_in_sentences_and_figures(folder, store, tmp_path):
    analysis = run(spec(folder, "brain.npz", "rated.npz", precomputed=("rated",)), store)
    named = {("brain", 0): "V1", ("brain", 1): "IT", ("rated", 0): "IT"}
    assert analysis.layer_names == named
    files.save(analysis, tmp_path)
    assert files.load(tmp_path).layer_names == named
    why = explain(analysis, "brain:1", "rated:0")
    assert why.called == ("brain IT", "rated IT") and "brain IT and rated IT" in why.sentence
    assert [*analysis.plot.similarity().layout.xaxis.ticktext] == ["V1", "B IT", "R IT"]
    made = draw("profiles", Shown(analysis, analysis.select(), analysis.results(), Drawing()))
    assert "V1" not in made.data.to_csv() and "V1" in made.printed.to_csv()


def test_distances_beside_rows_are_what_their_rows_give(folder, store):
    given = spec(folder, "brain.npz", "rated.npz", precomputed=("rated",))
    analysis = run(given, store)
    scores = analysis.results().scores.set_index(["model", "layer"])["rho"]
    np.testing.assert_allclose(scores.loc["rated", 0], scores.loc["brain", 1])
    assert analysis.rsa[1, 2] == pytest.approx(1)
    # Of distances there is no other distance, nor are there units.
    other = run(replace(given, distance="cosine", units="standardised"), store)
    again = other.results().scores.set_index(["model", "layer"])["rho"]
    np.testing.assert_allclose(again.loc["rated", 0], scores.loc["rated", 0])
    assert not np.allclose(again.loc["brain", 1], scores.loc["brain", 1])
    layers = audit(analysis, store).layers.set_index(["model", "layer"])
    assert layers.loc[("rated", 0), "n_units"] == 0 and layers.loc[("brain", 1), "n_units"] == 6
    assert set(of_analysis(analysis, "univariate", store).table["model"]) == {"brain"}
    # The same file as distances is another analysis.
    square = spec(folder, "rated.npz", precomputed=("rated",))
    rows = replace(square, precomputed=())
    assert analyses.job_id(square) != analyses.job_id(rows)
    assert not np.allclose(run(rows, store).results().scores["rho"], scores.loc["rated", 0])
    same(run(replace(rows, distance="precomputed"), store), run(square, store))


def test_what_a_first_column_is_goes_with_the_analysis(folder, store, tmp_path):
    """Row numbers left out, a CSV gives what it gives without them, and not what they give."""
    frame = pd.DataFrame(np.random.default_rng(3).standard_normal((N, 4)))
    frame.to_csv(tmp_path / "with.csv")
    frame.to_csv(tmp_path / "without.csv", index=False)
    of = {
        name: replace(spec(folder), representations=(("b", str(tmp_path / f"{name}.csv")),))
        for name in ("with", "without")
    }
    with refused("--first-column NAME=skip"):
        run(of["with"], store)
    said = {how: replace(of["with"], first_column=(("b", how),)) for how in ("skip", "unit")}
    assert analyses.job_id(said["skip"]) != analyses.job_id(said["unit"])
    found = {
        how: run(asked, store).results().scores["rho"].tolist()
        for how, asked in {**said, "without": of["without"]}.items()
    }
    assert found["skip"] == found["without"] != found["unit"]
    line = ["analyze", "--stimuli", "s", "--out", "o", "--first-column", "b=skip"]
    assert spec_of(parser(None).parse_args(line)).first_column == said["skip"].first_column
    assert AnalysisSpec.from_dict(said["skip"].to_dict()) == said["skip"]
    assert "first_column" not in of["with"].to_dict()
    assert with_files(said["skip"], ()).first_column == ()


def test_an_analysis_is_of_the_distances_over_repetitions(folder, store, repeated):
    given = spec(folder, "scans.npz", distance="crossnobis")
    given = replace(given, representations=(("brain", given.representations[0][1]),))
    analysis = run(given, store)
    squared = [cross_validated(rows, shrunken) for rows in repeated.values()]
    assert all((own < 0).any() for own in squared)
    assert analysis.rsa[0, 1] == pytest.approx(spearmanr(*squared).statistic, abs=1e-7)
    assert abs(compared(analysis, "cka", store).values[0, 1]) < 0.1
    # What is planted is found, and it is all that there is.
    results = analysis.results()
    scores = results.scores.groupby("layer")["rho"].mean()
    assert scores[0] > 0.6 and abs(scores[1]) < 0.05
    importance = results.importance.groupby(["layer", "feature"])["importance"].mean()
    assert importance[0].idxmax() == "noun"
    # Everything that follows from distances works.
    assert explain(analysis, V1, NOTHING).value == pytest.approx(analysis.rsa[0, 1])
    assert len(stimulus_map(analysis, *V1, store)) == N
    assert set(audit(analysis, store).layers["n_units"]) == {0}
    seen = multiverse(analysis, analysis.layers, store, {"distance": ["cosine"]})
    assert list(seen.universes["distance"]) == ["crossnobis", "cosine"]
    assert "crossnobis distance over repetitions" in methods_paragraph(analysis, results)
    # Without the choice it is the mean.
    mean = run(replace(given, distance="euclidean"), store)
    means = [pdist(rows.mean(axis=0)) for rows in repeated.values()]
    assert mean.rsa[0, 1] == pytest.approx(spearmanr(*means).statistic, abs=1e-7)
    (note,) = [n for n in mean.notices if "repetitions" in n]
    assert "scans.npz" in note and "4 repetitions" in note and "mean" in note
    assert mean.manifest["models"]["brain"]["repetitions"] == {"0": 4, "1": 4}


def test_beside_repetitions_others_keep_their_distances(folder, store, bert, repeated):
    given = spec(folder, "scans.npz", "once.npz", "rated.npz", precomputed=("rated",))
    given = replace(given, distance="crossnobis", models=(str(bert),), layers=(0,), device="cpu")
    analysis = run(given, store)
    assert analysis.layers == [(str(bert), 0), ("scans", 0), ("rated", 0)]
    rows = representations_of(analysis, str(bert), store)[0]
    expected = spearmanr(pdist(rows), cross_validated(repeated["V1"], shrunken)).statistic
    assert analysis.rsa[0, 1] == pytest.approx(expected, abs=1e-5)
    rated = np.load(folder / "rated.npz")["IT"]
    np.testing.assert_allclose(representations_of(analysis, "rated", store)[0], rated)
    # What has no repetitions is left out beside what has some, and alone refused.
    assert any("once was left out" in notice and "V1" in notice for notice in analysis.notices)
    with refused("V1", "once.npz", f"(repetitions, {N}, units)"):
        run(spec(folder, "once.npz", distance="crossnobis"), store)


# --- one bad model among good ones ---------------------------------------------------------


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def another_tokenizer(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["enormous"] = 300
    (folder / "tokenizer.json").write_text(json.dumps(content))


BAD_FOLDERS = {
    "pickled": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "pytorch_model.bin",
    ),
    "missing": (lambda f: (f / "config.json").unlink(), "no config.json"),
    "corrupted": (
        lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 999),
        "model.safetensors is damaged",
    ),
    "no tokenizer": (no_tokenizer, "no tokenizer"),
    "another's": (another_tokenizer, "another model's"),
    "nowhere": (shutil.rmtree, "no model folder"),
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    return tiny.save("bert", tmp_path_factory.mktemp("models") / "bert")


@pytest.mark.parametrize("case", BAD_FOLDERS)
def test_a_model_that_cannot_be_used_is_left_out(folder, bert, store, tmp_path, case):
    spoil, fact = BAD_FOLDERS[case]
    bad = Path(shutil.copytree(bert, tmp_path / "bad"))
    spoil(bad)
    given = spec(folder, "rows.npz", models=(str(bad), str(bert)), layers=(1, 2), device="cpu")
    analysis = run(given, store)
    assert analysis.layers == [(str(bert), 1), (str(bert), 2), ("rows", 1)]
    (notice,) = [one for one in analysis.notices if "left out" in one]
    assert notice.startswith(f"{bad} was left out: ") and fact in notice
    assert list(analysis.manifest["models"]) == [str(bert), "rows"]
    with refused(fact):
        run(replace(given, models=(str(bad),), representations=()), store)


def test_a_sentence_too_long_for_one_model(folder, bert, store, tmp_path):
    short = tiny.save("bert", tmp_path / "short", max_position_embeddings=4)
    analysis = run(spec(folder, models=(str(short), str(bert)), device="cpu", layers=(1,)), store)
    assert analysis.layers == [(str(bert), 1)] and "row 1" in " ".join(analysis.notices)


def unequal_layers(path: Path) -> None:
    np.savez(path, layer_00=np.random.default_rng(0).random((N, 3)), layer_01=np.ones((N - 1, 3)))


@pytest.mark.parametrize(
    ("write", "facts"),
    [
        (lambda path: path.write_bytes(b"PK\x03\x04" + b"\x00" * 50), ["bad.npz is damaged"]),
        (
            lambda path: np.savez(path, layer_00=np.ones((4, 3))),
            ["layer_00 of bad.npz has 4 rows", f"each of {N} stimuli"],
        ),
        (unequal_layers, [f"layer_01 of bad.npz has {N - 1} rows", f"each of {N} stimuli"]),
        (lambda path: None, ["no representations file"]),
    ],
)
def test_a_file_that_cannot_be_used_is_left_out(folder, store, tmp_path, write, facts):
    write(tmp_path / "bad.npz")
    good = spec(folder, "rows.npz")
    both = (("bad", str(tmp_path / "bad.npz")), *good.representations)
    analysis = run(replace(good, representations=both), store)
    assert analysis.layers == [("rows", 0), ("rows", 1)]
    (notice,) = [one for one in analysis.notices if "left out" in one]
    assert all(fact in notice for fact in facts)
    same(analysis, run(good, store))
    with refused(*facts):
        run(replace(good, representations=both[:1]), store)
    with refused("no model is left", "bad was left out", "worse was left"):
        run(replace(good, representations=(both[0], ("worse", "no.npz"))), store)


def test_special_tokens_and_dtype_are_choices_that_the_manifest_records(folder, bert, store):
    given = spec(folder, models=(str(bert),), layers=(0, 2), device="cpu")
    first = run(given, store)
    changed = {
        "special_tokens": run(replace(given, special_tokens="none"), store),
        "dtype": run(replace(given, dtype="bfloat16"), store),
    }
    facts = first.manifest["models"][str(bert)]
    assert facts["special_tokens"]["start"] == ["[CLS]"] and facts["dtype"] == "float32"
    for name, other in changed.items():
        theirs = other.manifest["models"][str(bert)]
        assert theirs["identity"] != facts["identity"] and theirs[name] != facts[name]
        assert other.manifest["parameters"][name] == getattr(other.spec, name)
    assert len(stimulus_map(changed["dtype"], str(bert), 2, store)) == N
    exact, none, bf16 = (one.rsa[0, 1] for one in (first, *changed.values()))
    assert 0 < abs(bf16 - exact) < 0.02 and none != exact


def test_the_command_line_has_the_choices(folder, bert, store, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(store.root))
    common = ["analyze", "--stimuli", str(folder / "words.csv"), "--folds", "4"]
    distances = ["--representations", f"apart={folder / 'distances.csv'}"]
    assert main([*common, *distances, "--distance", "precomputed", "--out", f"{tmp_path}/a"]) == 0
    scores = pd.read_csv(tmp_path / "a" / "scores.csv")
    expected = run(spec(folder, "rows.csv"), store).results().scores
    np.testing.assert_allclose(scores["rho"], expected["rho"])
    choices = ["--special-tokens", "none", "--dtype", "bfloat16", "--device", "cpu"]
    model = ["--model", str(bert), "--layers", "1"]
    assert main([*common, *model, *choices, "--out", f"{tmp_path}/b"]) == 0
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    facts = manifest["models"][str(bert)]
    assert (facts["dtype"], facts["special_tokens"]["start"]) == ("bfloat16", [])
    assert manifest["parameters"]["special_tokens"] == "none"
    scans = ["--representations", f"scans={folder / 'scans.npz'}"]
    diagonal = ["--distance", "crossnobis-diagonal", "--out", f"{tmp_path}/c"]
    assert main([*common, *scans, *diagonal]) == 0
    scores = pd.read_csv(tmp_path / "c" / "scores.csv")
    assert scores[scores["layer"] == 0]["rho"].mean() > 0.6
    capsys.readouterr()
    given = [*common, *distances, *model, "--distance", "precomputed", "--out", f"{tmp_path}/d"]
    assert main(given) == 2
    said = capsys.readouterr().err
    assert "files only" in said and said.count("\n") == 1 and not (tmp_path / "d").exists()


# --- files that change ---------------------------------------------------------------------

WRITE = {
    ".npz": lambda path, rows: np.savez(path, layer_00=rows),
    ".npy": np.save,
    ".safetensors": lambda path, rows: safetensors.numpy.save_file({"layer_00": rows}, path),
    ".csv": lambda path, rows: pd.DataFrame(rows).to_csv(path, index=False),
}


@pytest.mark.parametrize("when", ["before the rows are read", "after"])
@pytest.mark.parametrize("suffix", WRITE)
def test_nothing_is_kept_of_a_file_that_changes_in_a_run(
    folder, tmp_path, monkeypatch, suffix, when
):
    path, write = tmp_path / f"a{suffix}", WRITE[suffix]
    a, b = np.random.default_rng(0).standard_normal((2, N, 3))
    own = Store(tmp_path / "store", overlays=())
    asked = replace(spec(folder), representations=(("a", str(path)),))
    check_room, made = layer_tables._check_room, layer_tables._made
    with monkeypatch.context() as patch:
        if when == "after":
            patch.setattr(layer_tables, "_made", lambda *args: (made(*args), write(path, b))[0])
        else:
            patch.setattr(
                layer_tables, "_check_room", lambda *args: (write(path, b), check_room(*args))
            )
        write(path, a)
        with refused(f"a{suffix} was changed"):
            run(asked, own)
    assert not list(own.root.glob("*/*/entry.json"))
    write(path, a)
    of_a = run(asked, own).results()
    new = run(asked, Store(tmp_path / "new", overlays=())).results()
    pd.testing.assert_frame_equal(of_a.scores, new.scores)
    write(path, b)
    assert not of_a.scores.equals(run(asked, own).results().scores)


def test_a_map_is_not_kept_of_a_file_that_has_changed_since_the_analysis(folder, tmp_path):
    own, path = Store(tmp_path / "store"), Path(shutil.copy(folder / "rows.npz", tmp_path))
    analysis = run(replace(spec(folder), representations=(("rows", str(path)),)), own)
    with np.load(path) as layers:
        other = {name: rows[::-1] for name, rows in layers.items()}
    np.savez(path, **other)
    with pytest.raises(InputError, match="rows is no longer what was analysed"):
        stimulus_map(analysis, "rows", 0, own)
    shutil.copy(folder / "rows.npz", path)
    stimulus_map(analysis, "rows", 0, own)
