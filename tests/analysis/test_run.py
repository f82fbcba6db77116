"""A run and `analyze`: their tables and files, what is kept, what is refused and left out."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, finished, for_each, in_files, noise, probing, refused
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr, weightedtau

from mlem_core import AnalysisSpec, read_csv, run, stimulus_map
from mlem_core.analysis import files
from mlem_core.analysis.maps import representations_of, stimulus_map_stress
from mlem_core.cli.commands import main
from mlem_core.data import datasets

MODEL = "mini-bert"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Words of 30 probing sentences; a model, and two layers of noise in a file."""
    folder, table = tmp_path_factory.mktemp("input"), probing(30)
    layers = noise(len(table))
    chosen = {"models": (MODEL,), "layers": (0, 1, 3), "nominal": ("person",)}
    return finished(folder, in_files(folder, table, {"brain": layers}, **chosen), layers)


def test_tables_say_what_the_representations_are(made):
    results = made.analysis.results()
    assert made.analysis.layers == [*((MODEL, k) for k in (0, 1, 3)), ("brain", 0), ("brain", 1)]
    rsa = results.similarity_rsa
    expected = spearmanr(*(pdist(layer) for layer in made.layers.values())).statistic
    assert rsa.loc["brain:0", "brain:1"] == pytest.approx(expected, abs=1e-9)
    profiles = results.importance.groupby(["model", "layer", "feature"], sort=False)["importance"]
    profiles = profiles.mean().unstack(sort=False)
    tau = weightedtau(profiles.loc[(MODEL, 0)], profiles.loc[("brain", 1)]).statistic
    assert results.similarity_profiles.loc[f"{MODEL}:0", "brain:1"] == pytest.approx(tau)
    upper = np.triu_indices(5, 1)
    both = [m.to_numpy()[upper] for m in (results.similarity_profiles, rsa)]
    assert results.agreement == pytest.approx(spearmanr(*both).statistic)
    sentences = pd.Series(made.analysis.stimuli.sentences)
    assert (results.folds.groupby(sentences)["fold"].nunique() == 1).all()


@pytest.mark.parametrize("estimator", ["ridge", "ridge-rank", "spearman", "frrsa"])
@pytest.mark.parametrize("interactions", [False, True])
def test_another_estimator_from_the_same_tables(made, estimator, interactions):
    layers, features = made.analysis.layers[1:3], ("number", "tense", "word_position")
    found = made.analysis.results(features, layers, estimator, interactions)
    names = list(features)
    if interactions:
        names += ["number × tense", "number × word_position", "tense × word_position"]
    assert list(found.importance["feature"].unique()) == names
    assert len(found.weights) == len(layers) * 5 * len(names)
    assert found.scores["alpha"].isna().all() == (not estimator.startswith("ridge"))
    chosen = {"features": features, "estimator": estimator, "interactions": interactions}
    alone = replace(made.spec, layers=(1, 3), **chosen)
    expected = run(alone, made.store).results(layers=layers)
    for name in ("scores", "importance", "weights", "similarity_profiles", "similarity_rsa"):
        own, theirs = getattr(found, name), getattr(expected, name)
        pd.testing.assert_frame_equal(own, theirs, atol=1e-9, rtol=0)
    profiles = found.importance.groupby(["layer", "feature"])["importance"].mean().unstack()
    tau = weightedtau(*profiles.to_numpy()).statistic
    assert found.similarity_profiles.iloc[0, 1] == pytest.approx(tau)


def test_a_saved_analysis_is_the_same_with_its_map_and_stress(made, tmp_path):
    at, analysis = (MODEL, 3), made.analysis
    points = stimulus_map(analysis, *at, made.store)
    assert list(points["stimulus"]) == list(range(len(analysis.stimuli)))
    near = pdist(points[["x", "y"]])
    far = pdist(np.asarray(representations_of(analysis, MODEL, made.store)[3], dtype=np.float64))
    stress = stimulus_map_stress(analysis, *at, made.store)
    assert stress == pytest.approx(np.sqrt(((near - far) ** 2).sum() / (near @ near)), rel=1e-5)
    xy = points[["x", "y"]].to_numpy()
    files.save_analysis(replace(analysis, maps={at: xy}, map_stress={at: stress}), tmp_path)
    loaded = files.load_analysis(tmp_path)
    assert loaded.map_stress == {at: stress} and loaded.stimuli.digest == analysis.stimuli.digest
    assert loaded.spec == analysis.spec and loaded.manifest == analysis.manifest
    expected = analysis.results().importance
    pd.testing.assert_frame_equal(loaded.results().importance, expected)
    with refused(f"did you mean {MODEL}:3"):
        stimulus_map(analysis, MODEL, 33, made.store)


@for_each(
    "change, facts",
    ({"missing": "drop"}, ["ignore, level"]),
    ({"distance": "euclid"}, ["did you mean euclidean"]),
    ({"folds": 2}, ["at least 3"]),
    ({"models": (MODEL, MODEL)}, ["named twice"]),
    ({"stimuli": "probeing"}, ["did you mean probing"]),
    ({"layers": (40,)}, ["layers 40", "0 to"]),
    ({"dtype": "float16"}, ["'float16'", "float32, bfloat16"]),
    ({"first_column": (("other", "skip"),)}, ["unknown repres"]),
    ({"distance": "crossnobis", "representations": ()}, ["crossnobis", "repetitions"]),
    ({"distance": "precomputed"}, ["files only", f"'{MODEL}'"]),
    ({"distance": "precomputed", "models": (), "units": "standardised"}, ["no units"]),
    ({"pairs": 100}, ["a budget of 100 pairs"]),
)
def test_what_cannot_be_analysed_is_refused(made, change, facts):
    with refused(*facts):
        run(replace(made.spec, **change), made.store)


def test_features_that_leave_a_fit_undecided_are_named(tmp_path):
    table = probing(30)
    n, sentences = len(table), pd.factorize(table["sentence"])[0]
    stimuli = table[["sentence", "word_index"]].assign(
        one=[f"name {i}" for i in range(n)],
        rare=np.where(sentences == 0, "a", "b"),
        flag=np.where(np.arange(n) % 2 == 0, "yes", "no"),
        copy=np.where(np.arange(n) % 2 == 0, "ja", "nein"),
    )
    chosen = {"estimator": "spearman", "interactions": True}
    spec = in_files(tmp_path, stimuli, {"brain": noise(n)}, **chosen)
    analysis = finished(tmp_path, spec, {}).analysis
    fold, notices = analysis.folds[0], " ".join(analysis.notices)
    rare = f"distance in all pairs that are left to train on without fold {fold}"
    for fact in ("'one' has the same distance", "'flag' and 'copy'", "10 weights", "2 ways"):
        assert fact in notices
    assert f"'rare' has the same {rare}" in notices
    results = analysis.results()
    assert np.isfinite(results.scores[["rho", "rho_a"]]).all(axis=None)


def test_a_layer_that_cannot_be_used_is_left_out_and_the_others_go_on(tmp_path):
    table = probing(30)
    layers = noise(len(table))
    layers[2] = layers[0] * 1e200
    layers[3] = np.where(np.arange(5) == 1, np.inf, layers[0])
    layers[4] = np.ones((len(table), 3))
    made = finished(tmp_path, in_files(tmp_path, table, {"odd": layers}), layers)
    assert made.analysis.layers == [("odd", 0), ("odd", 1), ("odd", 2), ("odd", 4)]
    notices = " ".join(made.analysis.notices)
    assert "layer_03 of odd.npz has inf in row 1, unit 2" in notices
    assert "odd layer 4 represents all stimuli alike" in notices
    scores = made.analysis.results().scores
    assert (scores[scores["layer"] == 4]["rho"] == 0).all()
    good = run(replace(made.spec, layers=(0, 1)), made.store).results()
    found = run(replace(made.spec, layers=(0, 1, 2)), made.store).results()
    pd.testing.assert_frame_equal(found.importance.query("layer < 2"), good.importance)
    rsa = found.similarity_rsa.to_numpy()
    np.testing.assert_array_equal(rsa[:2, :2], good.similarity_rsa.to_numpy())
    # Numbers of any size have the same ranks.
    np.testing.assert_allclose(rsa[0, 2], 1.0)


LAYERS = "layer,brain:0,brain:1"
FILES = {
    "scores.csv": "model,layer,fold,rho,rho_a,ceiling,alpha",
    "importance.csv": "model,layer,fold,feature,importance",
    "weights.csv": "model,layer,fold,feature,weight",
    "folds.csv": "stimulus,fold",
    "similarity_profiles.csv": LAYERS,
    "similarity_rsa.csv": LAYERS,
    "layer_map.csv": "measure,model,layer,x,y",
}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    folder, table = tmp_path_factory.mktemp("input"), probing(30)
    layers, features = noise(len(table)), ("tense", "number")
    spec = in_files(folder, table, {"brain": layers}, features=features, folds=3)
    return finished(folder, spec, layers)


def analyzed(given, out, *more):
    """The names of the files that the command writes into the folder."""
    command = ["analyze", *arguments_of(given.spec), "--features", "tense,number", "--folds", "3"]
    assert main([*command, *more, "--out", str(out)]) == 0
    return {path.name for path in out.iterdir()}


def test_it_writes_the_files_of_the_contract(given, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(given.store.root))
    assert analyzed(given, tmp_path) == {*FILES, "manifest.json"}
    for name, header in FILES.items():
        assert (tmp_path / name).read_text().splitlines()[0] == header
    importance = pd.read_csv(tmp_path / "importance.csv")["importance"]
    np.testing.assert_allclose(importance, given.analysis.results().importance["importance"])
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["stimuli"]["digest"] == given.analysis.stimuli.digest
    assert manifest["models"]["brain"]["layers"] == [0, 1]
    again = AnalysisSpec.from_dict(manifest["parameters"])
    assert again.seed == 0 and again.representations == given.spec.representations
    with refused("did you mean models"):
        AnalysisSpec.from_dict({"model": []})


@pytest.mark.slow
def test_baselines_have_files_of_their_own(given, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(given.store.root))
    there = analyzed(given, tmp_path, "--baselines", "decoding,random-forest,univariate")
    assert there > {"decoding.csv", "random_forest.csv", "univariate.csv", *FILES}
    for name, n in (("random_forest", 2), ("univariate", 5)):
        table = pd.read_csv(tmp_path / f"{name}.csv")
        assert len(table) == 2 * 3 * n and table["rho"].between(-1, 1).all()


ASKED = ["analyze", "--out", "o", "--stimuli"]
BAD = [
    ([*ASKED, "probing", "--model", "minilm", "--baselines", "forest"], "random-forest"),
    ([*ASKED, "probing", "--model", "minilmm"], "did you mean minilm"),
    ([*ASKED, "none.csv", "--model", "minilm"], "none.csv"),
    ([*ASKED, "probing", "--layers", "x"], "'x' is not a list"),
    ([*ASKED, "probing", "--model", "minilm", "--pairs", "many"], "20000000, or all"),
    (["stimuli", "probin", "--out", "o.csv"], "did you mean probing"),
    (["stimuli", "probing", "--out", "no/such/folder/o.csv"], "no/such/folder"),
]


@pytest.mark.parametrize(("arguments", "fact"), BAD)
def test_bad_input_is_one_line_and_exit_code_2(arguments, fact, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "c"))
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr().err
    assert code == 2 and fact in said and len(said.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


def test_stimuli_writes_a_csv_that_is_read_back(tmp_path, capsys):
    assert main(["stimuli", "probing", "--out", str(tmp_path / "p.csv")]) == 0
    assert "--nominal person" in capsys.readouterr().err
    again = read_csv(tmp_path / "p.csv", nominal=["person"])
    assert again.digest == datasets.load("probing").digest
