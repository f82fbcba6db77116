"""Files as models: distances, CSV, names of layers; and models that cannot be."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from helpers.inputs import RIDGE, for_each, in_files, refused, words
from scipy.spatial.distance import pdist, squareform

from mlem_core import AnalysisSpec, Store, run, stimulus_map
from mlem_core.analysis import layer_statistics
from mlem_core.cli.commands import main

TABLE = words()
N = len(TABLE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
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
    return folder


def spec(folder, *files, **more):
    named = tuple((Path(file).stem, str(folder / file)) for file in files)
    return AnalysisSpec(str(folder / "words.csv"), representations=named, folds=4, **RIDGE, **more)


def same(a, b):
    ours, theirs = a.results(), b.results()
    for name in ("scores", "importance", "weights"):
        x, y = (getattr(r, name).drop(columns="model") for r in (ours, theirs))
        pd.testing.assert_frame_equal(x, y, atol=1e-9, rtol=0)
    np.testing.assert_allclose(ours.similarity_rsa, theirs.similarity_rsa, atol=1e-12)


@for_each("suffix, positions", (".npz", "all"), (".safetensors", "without-first"))
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


@for_each(
    "name, content, fact",
    ("config.json", b"{", "config.json is not valid JSON"),
    ("model.safetensors", b"\xff" * 999, "header too large"),
)
def test_an_unusable_model_is_left_out(folder, bert, store, tmp_path, name, content, fact):
    bad = Path(shutil.copytree(bert, tmp_path / "bad"))
    (bad / name).write_bytes(content)
    given = spec(folder, "rows.npz", models=(str(bad), str(bert)), layers=(1, 2), device="cpu")
    analysis = run(given, store)
    assert analysis.layers == [(str(bert), 1), (str(bert), 2), ("rows", 1)]
    (notice,) = [one for one in analysis.notices if "left out" in one]
    assert notice.startswith(f"{bad} was left out: ") and fact in notice
    with refused(fact):
        run(replace(given, models=(str(bad),), representations=()), store)
    # Models that share a reason share a sentence.
    other = shutil.copytree(bad, tmp_path / "other")
    both = run(replace(given, models=(str(bad), str(other), str(bert))), store)
    assert f"{bad} and {other} were left out: each" in " ".join(both.notices)


def test_the_command_line_has_the_choices(folder, bert, store, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(store.root))
    common = ["analyze", "--stimuli", str(folder / "words.csv"), "--folds", "4", "--as", "paper1"]
    distances = ["--representations", f"apart={folder / 'distances.csv'}"]
    assert main([*common, *distances, "--distance", "precomputed", "--out", f"{tmp_path}/a"]) == 0
    scores = pd.read_csv(tmp_path / "a" / "scores.csv")
    expected = run(spec(folder, "rows.csv"), store).results().scores
    np.testing.assert_allclose(scores["rho"], expected["rho"])
    choices = ["--special-tokens", "none", "--dtype", "bfloat16", "--device", "cpu"]
    model = ["--model", str(bert), "--layers", "1"]
    assert main([*common, *model, *choices, "--out", f"{tmp_path}/b"]) == 0
    facts = json.loads((tmp_path / "b" / "manifest.json").read_text())["models"][str(bert)]
    assert (facts["dtype"], facts["special_tokens"]["start"]) == ("bfloat16", [])


WRITE = {
    ".npz": lambda path, rows: np.savez(path, layer_00=rows),
    ".csv": lambda path, rows: pd.DataFrame(rows).to_csv(path, index=False),
}


@pytest.mark.parametrize("after", ["_check_room", "give_back_memory"])
@pytest.mark.parametrize("suffix", WRITE)
def test_nothing_is_kept_of_a_file_changed_in_a_run(folder, tmp_path, monkeypatch, suffix, after):
    """After its room is checked, so before its rows are read, and after its pairs are summed up."""
    path, write, known = tmp_path / f"a{suffix}", WRITE[suffix], getattr(layer_statistics, after)
    a, b = np.random.default_rng(0).standard_normal((2, N, 3))
    own = Store(tmp_path / "store", overlays=())
    asked = replace(spec(folder), representations=(("a", str(path)),))
    with monkeypatch.context() as patch:
        patch.setattr(layer_statistics, after, lambda *args: (known(*args), write(path, b))[0])
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


def test_distances_that_are_squared_already_are_fitted_as_they_are(folder, store, tmp_path):
    squares = {name: own**2.0 for name, own in np.load(folder / "distances.npz").items()}
    np.savez(tmp_path / "m.npz", **squares)
    plain = spec(folder, "distances.npz", distance="precomputed")
    files = (("m", str(tmp_path / "m.npz")),)
    same(run(replace(plain, representations=files, already_squared=True), store), run(plain, store))
    # Of rows: cosine is, and the Euclidean distance is not.
    for distance, changes in (("cosine", True), ("euclidean", False)):
        rows = spec(folder, "rows.npz", distance=distance)
        squared = run(replace(rows, already_squared=True), store)
        weights = [one.results().weights["weight"] for one in (squared, run(rows, store))]
        assert np.allclose(*weights) != changes


def test_a_map_is_not_kept_of_a_file_that_has_changed_since_the_analysis(folder, tmp_path):
    own, path = Store(tmp_path / "store"), Path(shutil.copy(folder / "rows.npz", tmp_path))
    analysis = run(replace(spec(folder), representations=(("rows", str(path)),)), own)
    with np.load(path) as layers:
        other = {name: rows[::-1] for name, rows in layers.items()}
    np.savez(path, **other)
    with refused("rows is no longer what was analysed"):
        stimulus_map(analysis, "rows", 0, own)
    shutil.copy(folder / "rows.npz", path)
    stimulus_map(analysis, "rows", 0, own)
