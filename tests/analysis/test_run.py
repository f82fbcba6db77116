from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr, weightedtau

from mlem_core.analysis import files
from mlem_core.analysis.maps import representations_of, stimulus_map, stimulus_map_stress
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.data import datasets
from mlem_core.data.stimulus_csv import read_csv, write_csv
from mlem_core.storage.store import Store

FILES = {
    "scores.csv": "model,layer,fold,rho,rho_a,ceiling,alpha",
    "importance.csv": "model,layer,fold,feature,importance",
    "weights.csv": "model,layer,fold,feature,weight",
    "folds.csv": "stimulus,fold",
    "similarity_profiles.csv": "layer,minilm:0,minilm:1,minilm:3,brain:0,brain:1",
    "similarity_rsa.csv": "layer,minilm:0,minilm:1,minilm:3,brain:0,brain:1",
    "layer_map.csv": "measure,model,layer,x,y",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A stimulus CSV of 40 probing sentences and a file of two made-up layers."""
    folder = tmp_path_factory.mktemp("input")
    table = datasets.load("probing").table
    table = table[table["sentence"].isin(table["sentence"].unique()[:60])]
    write_csv(table, folder / "words.csv")
    layers = brain(len(table))
    np.savez(folder / "brain.npz", **layers)
    return folder


def brain(n):
    rng = np.random.default_rng(0)
    return {f"layer_{k:02d}": rng.standard_normal((n, 5)).astype(np.float32) for k in range(2)}


@pytest.fixture(scope="module")
def spec(folder):
    return AnalysisSpec(
        stimuli=str(folder / "words.csv"),
        models=("minilm",),
        representations=(("brain", str(folder / "brain.npz")),),
        layers=(0, 1, 3),
        nominal=("person",),
    )


@pytest.fixture(scope="module")
def analysis(spec, store):
    return run(spec, store)


def test_tables_say_what_the_representations_are(analysis, folder):
    results = analysis.results()
    assert analysis.layers == [("minilm", k) for k in (0, 1, 3)] + [("brain", 0), ("brain", 1)]
    a, b = brain(len(analysis.stimuli)).values()
    rsa = results.similarity_rsa
    expected = spearmanr(pdist(a), pdist(b)).statistic
    assert rsa.loc["brain:0", "brain:1"] == pytest.approx(expected, abs=1e-9)
    profiles = results.importance.groupby(["model", "layer", "feature"], sort=False)["importance"]
    profiles = profiles.mean().unstack(sort=False)
    tau = weightedtau(profiles.loc[("minilm", 0)], profiles.loc[("brain", 1)]).statistic
    assert results.similarity_profiles.loc["minilm:0", "brain:1"] == pytest.approx(tau)
    upper = np.triu_indices(5, 1)
    both = [m.to_numpy()[upper] for m in (results.similarity_profiles, rsa)]
    assert results.agreement == pytest.approx(spearmanr(*both).statistic)
    assert "No model has the layers" not in " ".join(analysis.notices)


def test_a_sentence_is_never_in_two_folds(analysis):
    folds = analysis.results().folds
    sentences = pd.Series(analysis.stimuli.sentences)
    assert (folds.groupby(sentences)["fold"].nunique() == 1).all()


def test_dropping_features_and_layers_equals_a_run_without_them(analysis, spec, store):
    from dataclasses import replace

    features = ("part_of_speech", "word_position", "number")
    fewer = run(replace(spec, features=features, layers=(1, 3)), store).results()
    layers = [("minilm", 1), ("minilm", 3), ("brain", 1)]
    found = analysis.results(features, layers)
    for name in ("scores", "importance", "weights", "similarity_profiles", "similarity_rsa"):
        expected = getattr(fewer, name)
        pd.testing.assert_frame_equal(getattr(found, name), expected, atol=1e-9, rtol=0)


def test_a_saved_analysis_is_the_same(analysis, store, tmp_path):
    files.save(analysis, tmp_path)
    loaded = files.load(tmp_path)
    assert loaded.spec == analysis.spec and loaded.manifest == analysis.manifest
    assert loaded.stimuli.digest == analysis.stimuli.digest
    pd.testing.assert_frame_equal(loaded.results().importance, analysis.results().importance)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5e6


def test_map_of_the_stimuli(analysis, store):
    points = stimulus_map(analysis, "minilm", 3, store)
    assert list(points.columns) == ["stimulus", "x", "y"]
    assert list(points["stimulus"]) == list(range(len(analysis.stimuli)))
    with pytest.raises(InputError, match="did you mean minilm:3"):
        stimulus_map(analysis, "minilm", 33, store)


def test_the_stress_of_a_map_is_kept_with_it(analysis, store, tmp_path):
    points = pdist(stimulus_map(analysis, "minilm", 3, store)[["x", "y"]])
    far = pdist(np.asarray(representations_of(analysis, "minilm", store)[3], dtype=np.float64))
    expected = np.sqrt(((points - far) ** 2).sum() / (points @ points))
    stress = stimulus_map_stress(analysis, "minilm", 3, store)
    assert stress == pytest.approx(expected, rel=1e-5)
    at = ("minilm", 3)
    xy = stimulus_map(analysis, *at, store)[["x", "y"]].to_numpy()
    files.save(replace(analysis, maps={at: xy}, map_stress={at: stress}), tmp_path)
    assert files.load(tmp_path).map_stress == {at: stress}
    # One of an earlier version does not say it.
    np.savez(tmp_path / "maps.npz", layers=[3], points=xy[None])
    earlier = files.load(tmp_path)
    assert np.isnan(stimulus_map_stress(earlier, *earlier.layers[3], store))


def test_map_without_its_representations_says_so(spec, tmp_path):
    store = Store(tmp_path)
    analysis = run(spec, store)
    shutil.rmtree(tmp_path / "representations")
    with pytest.raises(InputError, match="run the analysis again"):
        stimulus_map(analysis, "minilm", 1, store)


def test_second_run_computes_nothing(analysis, spec, store):
    seen = []
    again = run(spec, store, seen.append)
    assert not [p for p in seen if p.stage == "pair tables"]
    assert all(p.done == p.total for p in seen)
    np.testing.assert_array_equal(again.rsa, analysis.rsa)


def test_progress_is_in_units_of_the_work(spec, tmp_path):
    seen = []
    run(spec, Store(tmp_path), seen.append)
    sentences = [p for p in seen if p.unit == "sentences"]
    layers = [p for p in seen if p.unit == "layers"]
    assert {p.model for p in sentences} == {"minilm"}
    assert sentences[-1].done == sentences[-1].total == 60
    assert [p.done for p in layers] == [0, 1, 2, 3, 4, 5]


def test_spec_survives_json(spec):
    assert AnalysisSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    with pytest.raises(InputError, match="did you mean models"):
        AnalysisSpec.from_dict({"model": []})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"missing": "drop"}, "the choices are ignore, level"),
        ({"estimator": "rigde"}, "did you mean ridge"),
        ({"distance": "euclid"}, "did you mean euclidean"),
        ({"device": "tpu"}, "the choices are auto, cpu, cuda"),
        ({"folds": 2}, "at least 3"),
        ({"models": (), "representations": ()}, "no model is chosen"),
        ({"models": ("minilm", "minilm")}, "named twice"),
        ({"models": ("minilmm",), "representations": ()}, "did you mean minilm"),
        ({"features": ("part_of_speach",)}, "did you mean part_of_speech"),
        ({"stimuli": "probeing"}, "did you mean probing"),
        ({"stimuli": "nowhere.csv"}, "nowhere.csv"),
        ({"layers": (40,)}, "has none of the layers 40; it has 0 to"),
    ],
)
def test_what_cannot_be_analysed_is_one_sentence(spec, store, change, message):
    from dataclasses import replace

    with pytest.raises(InputError, match=message) as error:
        run(replace(spec, **change), store)
    assert "\n" not in str(error.value)


def test_a_constant_layer_is_named_and_the_others_go_on(folder, store, tmp_path):
    n = len(read_csv(folder / "words.csv"))
    layers = brain(n) | {"layer_01": np.ones((n, 3), dtype=np.float32)}
    np.savez(tmp_path / "flat.npz", **layers)
    files = (("flat", str(tmp_path / "flat.npz")),)
    analysis = run(AnalysisSpec(str(folder / "words.csv"), representations=files), store)
    assert any("flat layer 1 represents all stimuli alike" in n for n in analysis.notices)
    scores = analysis.results().scores
    assert (scores[scores["layer"] == 1]["rho"] == 0).all()
    assert (scores[scores["layer"] == 0]["rho"] != 0).any()


@pytest.mark.parametrize("estimator", ["ridge-rank", "spearman", "frrsa"])
@pytest.mark.parametrize("interactions", [False, True])
def test_another_estimator_from_the_same_tables(analysis, spec, store, estimator, interactions):
    layers, features = analysis.layers[1:3], ("number", "tense", "word_position")
    found = analysis.results(features, layers, estimator, interactions)
    names = list(features)
    if interactions:
        names += ["number × tense", "number × word_position", "tense × word_position"]
    assert list(found.importance["feature"].unique()) == sorted(
        names, key=lambda name: ("×" in name, names.index(name))
    )
    assert len(found.weights) == len(layers) * 5 * len(names)
    assert found.scores["alpha"].isna().all() == (estimator != "ridge-rank")
    alone = replace(spec, features=features, estimator=estimator, interactions=interactions)
    expected = run(alone, store).results(layers=layers)
    pd.testing.assert_frame_equal(found.weights, expected.weights)
    pd.testing.assert_frame_equal(found.scores, expected.scores)
    profiles = found.importance.groupby(["layer", "feature"])["importance"].mean().unstack()
    tau = weightedtau(*profiles.to_numpy()).statistic
    assert found.similarity_profiles.iloc[0, 1] == pytest.approx(tau)


def test_an_unknown_estimator_is_named(analysis):
    with pytest.raises(InputError, match="did you mean spearman"):
        analysis.results(estimator="spaerman")


def test_features_that_leave_a_fit_undecided_are_named(folder, store, tmp_path):
    table = read_csv(folder / "words.csv").table
    n = len(table)
    sentences = pd.factorize(table["sentence"])[0]
    stimuli = table[["sentence", "word_index"]].assign(
        one=[f"name {i}" for i in range(n)],
        rare=np.where(sentences == 0, "a", "b"),
        flag=np.where(np.arange(n) % 2 == 0, "yes", "no"),
        copy=np.where(np.arange(n) % 2 == 0, "ja", "nein"),
    )
    write_csv(stimuli, tmp_path / "few.csv")
    spec = AnalysisSpec(
        stimuli=str(tmp_path / "few.csv"),
        representations=(("brain", str(folder / "brain.npz")),),
        estimator="spearman",
        interactions=True,
    )
    analysis = run(spec, store)
    notices = " ".join(analysis.notices)
    fold = analysis.folds[0]
    assert "The feature 'one' has the same distance in all pairs of stimuli" in notices
    assert (
        f"'rare' has the same distance in all pairs that are left to train on without fold {fold}"
        in notices
    )
    assert "The features 'flag' and 'copy' tell apart the same stimuli" in notices
    assert "The model has 10 weights, but" in notices and "in only 2 ways" in notices
    results = analysis.results()
    weights = results.weights.set_index(["layer", "fold", "feature"])["weight"].unstack()
    assert (weights["one"] == 0).all() and (weights.xs(fold, level="fold")["rare"] == 0).all()
    assert np.isfinite(results.scores[["rho", "rho_a"]]).all(axis=None)
    assert json.loads(json.dumps(analysis.manifest))["parameters"]["interactions"] is True
    plain = run(replace(spec, features=("flag",), interactions=False), store)
    assert not any("copy" in notice for notice in plain.notices)


def test_a_layer_that_cannot_be_used_is_left_out_and_the_others_go_on(folder, store, tmp_path):
    table = read_csv(folder / "words.csv").table
    layers = {name: rows.astype(np.float64) for name, rows in brain(len(table)).items()}
    layers["layer_02"] = layers["layer_00"] * 1e200
    layers["layer_03"] = np.where(np.arange(5) == 1, np.inf, layers["layer_00"])
    np.savez(tmp_path / "odd.npz", **layers)
    spec = AnalysisSpec(
        stimuli=str(folder / "words.csv"), representations=(("odd", str(tmp_path / "odd.npz")),)
    )
    analysis = run(spec, store)
    assert analysis.layers == [("odd", 0), ("odd", 1), ("odd", 2)]
    (said,) = analysis.notices
    assert "layer_03 of odd.npz has inf in row 1, unit 2" in said
    good = run(replace(spec, layers=(0, 1)), store).results()
    found = run(replace(spec, layers=(0, 1, 2)), store).results()
    pd.testing.assert_frame_equal(found.importance.query("layer < 2"), good.importance)
    rsa = found.similarity_rsa.to_numpy()
    np.testing.assert_array_equal(rsa[:2, :2], good.similarity_rsa.to_numpy())
    # Numbers of any size have the same ranks.
    np.testing.assert_allclose(rsa[0, 2], 1.0)


def command(*arguments, cwd, cache):
    return subprocess.run(
        [sys.executable, "-m", "mlem_core", *map(str, arguments)],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "MLEM_CACHE": str(cache), "HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_command_line_writes_the_files_of_the_contract(folder, store, analysis, tmp_path):
    done = command(
        "analyze", "--stimuli", folder / "words.csv", "--model", "minilm",
        "--representations", f"brain={folder / 'brain.npz'}", "--layers", "0,1,3",
        "--nominal", "person", "--out", tmp_path / "out",
        cwd=tmp_path, cache=store.root,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    out = tmp_path / "out"
    assert sorted(p.name for p in out.iterdir()) == sorted([*FILES, "manifest.json"])
    order = [f"{model}:{layer}" for model, layer in analysis.layers]
    for name, header in FILES.items():
        if name.startswith("similarity"):
            table = pd.read_csv(out / name, index_col="layer")
            assert list(table.index) == order
        assert (out / name).read_text().splitlines()[0] == header
    importance = pd.read_csv(out / "importance.csv")
    expected = analysis.results().importance
    np.testing.assert_allclose(importance["importance"], expected["importance"], atol=1e-12)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["stimuli"]["digest"] == analysis.stimuli.digest
    assert manifest["models"]["minilm"]["layers"] == [0, 1, 3]
    again = AnalysisSpec.from_dict(manifest["parameters"])
    assert again.seed == 0 and again.models == ("minilm",)


def test_baselines_stand_beside_the_tables(folder, store, tmp_path):
    from mlem_core.analysis.baselines import decoding

    arguments = [
        "analyze", "--stimuli", folder / "words.csv", "--features", "tense,number",
        "--representations", f"brain={folder / 'brain.npz'}", "--baselines",
        "decoding,random-forest,univariate", "--out", tmp_path / "out",
    ]  # fmt: skip
    done = command(*arguments, cwd=tmp_path, cache=store.root)
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(tmp_path / "out" / "decoding.csv")
    stimuli = read_csv(folder / "words.csv").select(("tense", "number"))
    folds = pd.read_csv(tmp_path / "out" / "folds.csv")["fold"].to_numpy()
    rows = {("brain", k): layer for k, layer in enumerate(brain(len(stimuli)).values())}
    expected = decoding(stimuli, rows, folds).table
    pd.testing.assert_frame_equal(found, expected)
    for name, key in (("random_forest", "feature"), ("univariate", "unit")):
        table = pd.read_csv(tmp_path / "out" / f"{name}.csv")
        assert len(table) == 2 * 5 * {"feature": 2, "unit": 5}[key]
        assert table["rho"].between(-1, 1).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["analyze", "--stimuli", "probing", "--model", "minilm", "--baselines", "forest",
          "--out", "o"], "random-forest"),
        (["analyze", "--stimuli", "probing", "--model", "minilmm", "--out", "o"], "mean minilm"),
        (["analyze", "--stimuli", "none.csv", "--model", "minilm", "--out", "o"], "none.csv"),
        (["analyze", "--stimuli", "probing", "--layers", "x", "--out", "o"], "'x' is not a list"),
        (["analyze", "--stimuli", "probing", "--representations", "a", "--out", "o"], "NAME=FILE"),
        (["analyse"], "choose from"),
        (["stimuli", "probin", "--out", "o.csv"], "did you mean probing"),
        (["stimuli", "probing", "--out", "no/such/folder/o.csv"], "no/such/folder"),
    ],
)  # fmt: skip
def test_bad_input_on_the_command_line_is_one_line_and_exit_code_2(arguments, message, tmp_path):
    done = command(*arguments, cwd=tmp_path, cache=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


def test_stimuli_command_writes_a_csv_that_is_read_back(tmp_path):
    done = command("stimuli", "probing", "--out", "p.csv", cwd=tmp_path, cache=tmp_path)
    assert done.returncode == 0
    again = read_csv(tmp_path / "p.csv", nominal=["person"])
    assert again.digest == datasets.load("probing").digest


def test_ctrl_c_while_source_text_runs_is_130():
    """As in the making of a dataclass, after which Python used to die of the signal."""
    program = (
        "import runpy, mlem_core.cli.commands as commands\n"
        "commands.main = lambda: exec('raise KeyboardInterrupt')\n"
        "runpy.run_module('mlem_core', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "stopped\n")


def test_ctrl_c_leaves_nothing_half_written(folder, tmp_path):
    import signal
    import time

    running = subprocess.Popen(
        [sys.executable, "-m", "mlem_core", "analyze", "--stimuli", "probing", "--model", "smollm2",
         "--out", "out"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "MLEM_CACHE": str(tmp_path / "c"), "HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        # A shell lets what it starts in the background ignore Ctrl-C, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    unfinished = tmp_path / "c" / "unfinished"
    end = time.monotonic() + 120
    # Not before it is at work on something that could be left half-written.
    while time.monotonic() < end and not (unfinished.exists() and list(unfinished.iterdir())):
        assert running.poll() is None
        time.sleep(0.1)
    time.sleep(2)
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()
    assert not list(unfinished.iterdir())
