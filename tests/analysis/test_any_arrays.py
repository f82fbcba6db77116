"""Anything as a model, from the command line's choices to the tables; and models that cannot be."""

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
from scipy.spatial.distance import pdist, squareform
from tiny import told, word_stimuli

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import stimulus_map
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.data.stimulus_csv import write_csv
from mlem_core.storage.store import Store

SENTENCES = [
    f"the {adjective} {noun} {verb}"
    for adjective in ("old", "new", "loud")
    for noun in ("dog", "cat", "dogs", "cats")
    for verb in ("runs", "sees")
]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Stimuli, two layers of a system, and the distances in them."""
    folder = tmp_path_factory.mktemp("input")
    table = word_stimuli(SENTENCES).table.rename(columns={"length": "letters"})
    table["place"] = [("first", "second", "third", "last")[i] for i in table["word_index"]]
    write_csv(table, folder / "words.csv")
    rng = np.random.default_rng(0)
    layers = {f"layer_{k:02d}": rng.standard_normal((len(table), 6)) for k in range(2)}
    layers["layer_01"][:, 0] += 9 * (table["place"] == "second")
    layers["layer_01"][5] = layers["layer_01"][2]  # a tie
    distances = {name: squareform(pdist(rows)) for name, rows in layers.items()}
    np.savez(folder / "rows.npz", **layers)
    np.savez(folder / "distances.npz", **distances)
    safetensors.numpy.save_file(distances, folder / "distances.safetensors")
    pd.DataFrame(layers["layer_01"]).to_csv(folder / "rows.csv", index=False)
    pd.DataFrame(distances["layer_01"]).to_csv(folder / "distances.csv", index=False, header=False)
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


@pytest.mark.parametrize("positions", ["all", "without-first"])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
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
    points = stimulus_map(run(given, store), "distances", 0, store)
    assert len(points) == 20


def test_a_csv_is_one_layer(folder, store):
    rows = run(spec(folder, "rows.npz", layers=(1,)), store)
    one = run(spec(folder, "rows.csv"), store)
    assert one.layers == [("rows", 0)]
    pd.testing.assert_series_equal(one.results().scores["rho"], rows.results().scores["rho"])
    distances = run(spec(folder, "distances.csv", distance="precomputed"), store)
    same(distances, one)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"models": ("minilm",)}, "goes with representations files only.*found the model 'minilm'"),
        ({"units": "standardised"}, "distances have no units"),
    ],
)
def test_precomputed_goes_with_files_alone(folder, store, change, says):
    given = spec(folder, "distances.npz", distance="precomputed")
    with pytest.raises(InputError, match=says) as error:
        run(replace(given, **change), store)
    told(error)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda m: m[:, :6], r"layer_00 .*shape \(96, 6\); precomputed .*shape \(96, 96\)"),
        (lambda m: m[:90, :90], r"layer_00 .*shape \(90, 90\); precomputed .*shape \(96, 96\)"),
        (lambda m: m + np.triu(m, 1), "layer 0 is not symmetric"),
        (lambda m: m + np.eye(96), "layer 0 has a distance of a stimulus to itself"),
        (lambda m: -m, "layer 0 holds a distance in row 1 that is negative"),
    ],
)
def test_what_is_no_matrix_of_distances(folder, store, tmp_path, damage, says):
    whole = np.load(folder / "distances.npz")["layer_00"]
    np.savez(tmp_path / "m.npz", layer_00=damage(whole))
    given = replace(
        spec(folder, distance="precomputed"), representations=(("m", str(tmp_path / "m.npz")),)
    )
    with pytest.raises(InputError, match=says) as error:
        run(given, store)
    told(error)


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
        "has its weights only as pytorch_model.bin",
    ),
    "missing": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "corrupted": (
        lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 999),
        "model.safetensors is damaged",
    ),
    "no tokenizer": (no_tokenizer, "has no tokenizer"),
    "another's": (another_tokenizer, "is another model's"),
    "nowhere": (shutil.rmtree, "there is no model folder"),
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    return tiny.save("bert", tmp_path_factory.mktemp("models") / "bert")


@pytest.mark.parametrize("case", BAD_FOLDERS)
def test_a_model_that_cannot_be_used_is_left_out(folder, bert, store, tmp_path, case):
    spoil, says = BAD_FOLDERS[case]
    bad = Path(shutil.copytree(bert, tmp_path / "bad"))
    spoil(bad)
    given = spec(folder, "rows.npz", models=(str(bad), str(bert)), layers=(1, 2), device="cpu")
    analysis = run(given, store)
    assert analysis.layers == [(str(bert), 1), (str(bert), 2), ("rows", 1)]
    assert len(analysis.notices) == 1
    assert analysis.notices[0].startswith(f"{bad} was left out: ") and says in analysis.notices[0]
    assert list(analysis.manifest["models"]) == [str(bert), "rows"]
    with pytest.raises(InputError, match=says) as error:
        run(replace(given, models=(str(bad),), representations=()), store)
    told(error)


def test_a_sentence_too_long_for_one_model(folder, bert, store, tmp_path):
    short = tiny.save("bert", tmp_path / "short", max_position_embeddings=4)
    analysis = run(spec(folder, models=(str(short), str(bert)), device="cpu", layers=(1,)), store)
    assert analysis.layers == [(str(bert), 1)]
    assert "row 1: the sentence has" in analysis.notices[0]


def damaged(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + b"\x00" * 50)


def fewer_rows(path: Path) -> None:
    np.savez(path, layer_00=np.ones((4, 3)))


def unequal_layers(path: Path) -> None:
    np.savez(path, layer_00=np.random.default_rng(0).random((96, 3)), layer_01=np.ones((95, 3)))


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (damaged, "bad.npz is damaged or no .npz file"),
        (fewer_rows, "layer_00 of bad.npz has 4 rows; expected one for each of 96 stimuli"),
        (unequal_layers, "layer_01 of bad.npz has 95 rows; expected one for each of 96 stimuli"),
        (lambda path: None, "there is no representations file"),
    ],
)
def test_a_file_that_cannot_be_used_is_left_out(folder, store, tmp_path, write, says):
    write(tmp_path / "bad.npz")
    good = spec(folder, "rows.npz")
    both = (("bad", str(tmp_path / "bad.npz")), *good.representations)
    analysis = run(replace(good, representations=both), store)
    assert analysis.layers == [("rows", 0), ("rows", 1)]
    assert len(analysis.notices) == 1 and says in analysis.notices[0]
    same(analysis, run(good, store))
    with pytest.raises(InputError, match=says) as error:
        run(replace(good, representations=both[:1]), store)
    told(error)
    with pytest.raises(InputError, match=r"no model is left: bad was left out: .*worse was left"):
        run(replace(good, representations=(both[0], ("worse", "no.npz"))), store)


# --- choices about the models --------------------------------------------------------------


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
        assert len(stimulus_map(other, str(bert), 2, store)) == len(other.stimuli)
    bf16, none = changed["dtype"].results(), changed["special_tokens"].results()
    exact = first.results()
    names = [f"{bert}:0", f"{bert}:2"]
    error = abs(bf16.similarity_rsa.loc[names[0], names[1]] - exact.similarity_rsa.iloc[0, 1])
    assert 0 < error < 0.02
    assert none.similarity_rsa.iloc[0, 1] != exact.similarity_rsa.iloc[0, 1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"special_tokens": "cls"}, "choice of special tokens 'cls'.*model, none, start"),
        ({"dtype": "float16"}, "unknown dtype 'float16'.*float32, bfloat16"),
        ({"distance": "precomputd"}, "did you mean precomputed"),
    ],
)
def test_a_choice_that_there_is_not(folder, store, change, says):
    with pytest.raises(InputError, match=says) as error:
        run(spec(folder, "rows.npz", **change), store)
    told(error)


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
    capsys.readouterr()
    given = [*common, *distances, *model, "--distance", "precomputed", "--out", f"{tmp_path}/c"]
    assert main(given) == 2
    said = capsys.readouterr().err
    assert "goes with representations files only" in said and said.count("\n") == 1
    assert not (tmp_path / "c").exists()


def kept(folder: Path) -> set[str]:
    """The stages of which a store has entries."""
    return {path.parent.parent.name for path in folder.glob("*/*/entry.json")}


@pytest.mark.parametrize("when", ["before the rows are read", "after"])
@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors", ".csv"])
def test_nothing_is_kept_of_a_file_that_changes_in_a_run(
    folder, tmp_path, monkeypatch, suffix, when
):
    from mlem_core.analysis import layer_tables

    rng, path = np.random.default_rng(0), tmp_path / f"a{suffix}"
    a, b = rng.standard_normal((2, len(pd.read_csv(folder / "words.csv")), 3))

    def write(rows: np.ndarray) -> None:
        {
            ".npz": lambda: np.savez(path, layer_00=rows),
            ".npy": lambda: np.save(path, rows),
            ".safetensors": lambda: safetensors.numpy.save_file({"layer_00": rows}, path),
            ".csv": lambda: pd.DataFrame(rows).to_csv(path, index=False),
        }[suffix]()

    own, asked = Store(tmp_path / "store"), spec(folder)
    asked = replace(asked, representations=(("a", str(path)),))
    check_room, made = layer_tables._check_room, layer_tables._made
    with monkeypatch.context() as patch:
        if when == "after":
            patch.setattr(layer_tables, "_made", lambda *args: (made(*args), write(b))[0])
        else:
            patch.setattr(layer_tables, "_check_room", lambda *args: (write(b), check_room(*args)))
        write(a)
        with pytest.raises(InputError, match=f"a{suffix} was changed") as error:
            run(asked, own)
    told(error)
    assert kept(own.root) == set()
    write(a)
    of_a = run(asked, own).results()
    pd.testing.assert_frame_equal(of_a.scores, run(asked, Store(tmp_path / "new")).results().scores)
    write(b)
    assert not of_a.scores.equals(run(asked, own).results().scores)


def test_a_map_is_not_kept_of_a_file_that_has_changed_since_the_analysis(folder, tmp_path):
    own, path = Store(tmp_path / "store"), Path(shutil.copy(folder / "rows.npz", tmp_path))
    asked = replace(spec(folder), representations=(("rows", str(path)),))
    analysis = run(asked, own)
    with np.load(path) as layers:
        other = {name: rows[::-1] for name, rows in layers.items()}
    np.savez(path, **other)
    with pytest.raises(InputError, match="rows is no longer what was analysed"):
        stimulus_map(analysis, "rows", 0, own)
    shutil.copy(folder / "rows.npz", path)
    stimulus_map(analysis, "rows", 0, own)
