"""A run, and what is said of stimuli before: tables and files, what it takes, keeps and refuses."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import arguments_of, finished, for_each, in_files, noise, probing, refused
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr, weightedtau

from mlem_core import AnalysisSpec, Store, from_frame, read_csv, run, write_csv
from mlem_core.analysis import files, planning
from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.planning import estimate_cost, recommended_values
from mlem_core.cli.commands import main
from mlem_core.pairs.columns import resolved_columns
from mlem_core.pairs.pair_columns import number_of_columns
from mlem_core.representations.registry import check_availability
from mlem_core.stimuli import datasets
from mlem_core.stimuli.stimulus_set import BLOCK

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
    both = [m.to_numpy()[np.triu_indices(5, 1)] for m in (results.similarity_profiles, rsa)]
    assert results.agreement == pytest.approx(spearmanr(*both).statistic)
    sentences = pd.Series(made.analysis.stimuli.sentences)
    assert (results.folds.groupby(sentences)["fold"].nunique() == 1).all()


@pytest.mark.parametrize("estimator", ["ridge", "ridge-rank"])
@pytest.mark.parametrize("interactions", [False, True])
def test_another_estimator_from_the_same_statistics(made, estimator, interactions):
    layers, features = made.analysis.layers[1:3], ("number", "tense", "word_position")
    analysis = run(replace(made.spec, interactions=True), made.store)
    found = analysis.results(features, layers, estimator, interactions)
    names = list(features)
    if interactions:
        names += ["number × tense", "number × word_position", "tense × word_position"]
    assert list(found.importance["feature"].unique()) == names
    assert len(found.weights) == len(layers) * 5 * len(names)
    chosen = {"features": features, "estimator": estimator, "interactions": interactions}
    expected = run(replace(made.spec, layers=(1, 3), **chosen), made.store).results(layers=layers)
    for name in ("scores", "importance", "weights", "similarity_profiles", "similarity_rsa"):
        own, theirs = getattr(found, name), getattr(expected, name)
        pd.testing.assert_frame_equal(own, theirs, atol=1e-9, rtol=0)
    profiles = found.importance.groupby(["layer", "feature"])["importance"].mean().unstack()
    tau = weightedtau(*profiles.to_numpy()).statistic
    assert found.similarity_profiles.iloc[0, 1] == pytest.approx(tau)
    with refused("run it with interactions"):
        made.analysis.results(interactions=True)


def test_a_saved_analysis_is_the_same(made, tmp_path):
    analysis = made.analysis
    files.save_analysis(analysis, tmp_path)
    loaded = files.load_analysis(tmp_path)
    assert loaded.stimuli.digest == analysis.stimuli.digest
    assert loaded.spec == analysis.spec and loaded.manifest == analysis.manifest
    pd.testing.assert_frame_equal(loaded.results().importance, analysis.results().importance)
    # Choices of extensions that are not here, which nobody made, and one that somebody made.
    about = json.loads((tmp_path / "analysis.json").read_text())
    about["spec"] |= {"gone": ["x"], "gone_seed": 0, "lost": []}
    (tmp_path / "analysis.json").write_text(json.dumps(about))
    opened = files.load_analysis(tmp_path)
    assert opened.spec == analysis.spec == AnalysisSpec.from_dict(about["spec"])
    assert opened.notices == [
        *analysis.notices,
        "No installed extension reads these options: gone.",
    ]
    assert files.read_contents(tmp_path).notices == tuple(opened.notices)


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
    chosen = {"estimator": "spearman", "interactions": True, "roles": (("one", "nominal"),)}
    spec = in_files(tmp_path, stimuli, {"brain": noise(n)}, **chosen)
    analysis = finished(tmp_path, spec, {}).analysis
    fold, notices = analysis.folds[0], " ".join(analysis.notices)
    rare = f"distance in all pairs that are left to train on without fold {fold}"
    for fact in ("'one' has the same distance", "'flag' and 'copy'", "10 weights", "only 3 are"):
        assert fact in notices
    assert f"'rare' has the same {rare}" in notices
    assert np.isfinite(analysis.results().scores[["rho", "rho_a"]]).all(axis=None)


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
    assert "odd layer 4 has the same distance between all stimuli" in notices
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


ASKED = ["analyze", "--out", "o", "--stimuli"]
BAD = [
    ([*ASKED, "probing", "--model", "minilm", "--baselines", "random-forest"], "decoding"),
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


N = 240


def stimuli(n=N, **columns):
    """Sentences with two features that say different things."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sentence": [f"the {i} th sentence" for i in range(n)]})
    table["colour"] = rng.choice(["red", "green", "blue"], n)
    table["size"] = rng.integers(0, 5, n)
    return from_frame(table.assign(**columns), "mine")


def kinds(found):
    return {finding.kind for finding in found.findings}


def only(found, kind):
    (finding,) = [one for one in found.findings if one.kind == kind]
    text = finding.sentence
    assert not text[0].islower() and text.endswith(".") and "\n" not in text
    return finding


SIZE, COLOUR = (stimuli().table[name].to_numpy() for name in ("size", "colour"))
AT = np.arange(N)
ONCE = np.where(AT == 7, "odd", "even")
RARE = np.where(np.isin(AT, (4, 9)), "mauve", COLOUR)
STRETCHED = np.where(AT == 11, 1000, np.random.default_rng(3).random(N))
REPEATED = [f"the {3 if i == 30 else i} th sentence" for i in range(N)]
WEIGHT = SIZE + np.random.default_rng(2).integers(0, 3, N)
UNEQUAL = np.where(AT < 150, 0, AT)
LOUD = np.where((COLOUR == "red") == (SIZE > 2), "yes", "no")


def test_sound_stimuli_raise_no_finding():
    assert lint(stimuli()).findings == []
    found = lint(datasets.load("probing"))
    assert kinds(found) == {"missing", "correlated", "levels"}
    assert not [finding for finding in found.findings if finding.severity == "problem"]


@for_each(
    "columns, kind, features, severity, facts",
    ({"again": -2 * SIZE}, "copies", ("size", "again"), "problem", []),
    ({"weight": WEIGHT}, "correlated", ("size", "weight"), "caution", []),
    ({"warm": COLOUR == "red"}, "determined", ("warm", "colour"), "caution", []),
    ({"loud": LOUD}, "determined", ("loud", "colour", "size"), "caution", ["agree on both"]),
    ({"once": ONCE}, "constant", ("once",), "", ["without fold"]),
    ({"colour": RARE}, "rare", ("colour",), "", ["mauve (2)"]),
    ({"label": [f"item {i}" for i in AT]}, "identifier", ("label",), "problem", ["ignore"]),
    ({"frequency": STRETCHED}, "range", ("frequency",), "", ["logarithm"]),
    ({"sentence": REPEATED}, "duplicates", (), "", ["row 31", "row 4"]),
    ({"sentence_id": AT % 12}, "folds", (), "", ["12 different values of 'sentence_id'"]),
    ({"sentence_id": UNEQUAL}, "folds", (), "", ["150 of the 240"]),
    ({BLOCK: (AT // 30).astype(str)}, "folds", (), "", ["in 8 blocks", "2 a fold (here 10)"]),
    ({"sentence_id": AT % 3}, "folds", (), "problem", ["3 sentences", "choose 3 folds"]),
)
def test_what_is_planted_is_found(columns, kind, features, severity, facts):
    found = lint(stimuli(**columns))
    finding = only(found, kind)
    assert finding.features == features or not features
    assert not severity or finding.severity == severity == found.findings[0].severity
    assert not [fact for fact in facts if fact not in finding.sentence], finding.sentence
    if kind == "correlated":
        assert f"{found.correlations.loc[*features]:.2f}"[1:] in finding.sentence
    assert kind != "copies" or "correlated" not in kinds(found)


def test_correlations_are_those_of_the_distances_of_all_pairs():
    rng = np.random.default_rng(1)
    partly = np.where(rng.random(N) < 0.3, None, rng.choice(["a", "b"], N))
    found, size = lint(stimuli(partly=partly)), SIZE / 4
    distances = [
        (
            float(COLOUR[i] != COLOUR[j]),
            abs(size[i] - size[j]),
            float(partly[i] is not None and partly[j] is not None and partly[i] != partly[j]),
        )
        for i, j in itertools.combinations(range(N), 2)
    ]
    assert list(found.correlations) == ["colour", "size", "partly"] and found.n_stimuli == N
    squares = np.array(distances).T ** 2
    np.testing.assert_allclose(found.correlations, np.corrcoef(squares), atol=1e-9)


def test_missing_values_are_counted_and_those_that_go_together_are_named():
    rng = np.random.default_rng(4)
    tense = np.where(AT % 3 == 0, None, rng.choice(["past", "present"], N))
    person = np.where(AT % 3 == 0, None, rng.choice(["first", "third"], N))
    found = lint(stimuli(tense=tense, person=person))
    by = {finding.features: finding for finding in found.findings if finding.kind == "missing"}
    both = by[("tense", "person")]
    assert "80 of 240" in both.sentence and both.rows[:2] == (1, 4)
    assert f"{100 * 160 * 159 / (240 * 239):.0f} % of pairs" in both.sentence
    level = lint(stimuli(tense=tense, person=person), AnalysisSpec(missing="level"))
    assert "counts as a value" in only(level, "missing").sentence
    with refused("ignore, level"):
        lint(stimuli(), AnalysisSpec(missing="drop"))


def test_every_run_says_problems_cautions_and_identical_layers(tmp_path, monkeypatch, capsys):
    """Of a file of 12 sentences: too few for 4 folds, and one feature is another's copy."""
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    table = pd.DataFrame({"sentence": [f"the {i} th sentence" for i in range(12)]})
    table = table.assign(kind=["a", "b", "c"] * 4, copy=["x", "y", "z"] * 4)
    layers = noise(12)
    same = {"one": layers, "two": {**layers, 1: layers[1] + 1e-3 * layers[0]}}
    spec = in_files(tmp_path, table, same, folds=4)
    assert lint(spec.load_stimuli(), spec).counts == "1 problem and 2 cautions"
    asked = [*arguments_of(spec), "--folds=4"]
    for command in (["analyze", "--out", str(tmp_path / "out")], ["why", "one:0", "two:0"]):
        assert main([command[0], *command[1:], *asked]) == 0
        said = capsys.readouterr().err
        assert "'kind' and 'copy' divide the stimuli in the same way" in said
        assert "2 cautions (few and folds)" in said
        assert "same distances: one layer 0 and two layer 0." in said


def test_features_with_fewest_values_are_coded_by_value_first(monkeypatch):
    words = datasets.load("probing")
    assert recommended_values(words, AnalysisSpec()) == ("part_of_speech", "person")
    for other in (AnalysisSpec(estimator="spearman"), AnalysisSpec(interactions=True)):
        assert recommended_values(words, other) == ()
    columns = resolved_columns(words, ("part_of_speech", "person"))
    for most, expected in (
        (number_of_columns(columns), ("part_of_speech", "person")),
        (number_of_columns(columns) - 1, ("person",)),
        (len(columns), ()),
    ):
        monkeypatch.setattr(planning, "MOST_BY_VALUE", most)
        assert recommended_values(words, AnalysisSpec()) == expected


def on_disk(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.slow
def test_the_disk_that_a_run_takes(tmp_path):
    write_csv(probing(60), tmp_path / "words.csv")
    names = ("mini-bert", "mini-mamba")
    spec = AnalysisSpec(str(tmp_path / "words.csv"), models=names, layers=(0, 3, 6))
    shapes = {name: check_availability(name).shape for name in names}
    words = spec.load_stimuli()
    cost = estimate_cost(spec, words, lint(words, spec).n_columns, shapes)
    store = Store(tmp_path / "store", overlays=())
    analysis = run(spec, store, progress=False)
    assert cost.n_layers == len(analysis.layers) == 6
    # What is no statistics is exact but for a few kB of facts; statistics are kept twice.
    sizes = [len(spec.layers) * (4 * len(words) * s.width + 128) for s in shapes.values()]
    exact, statistics = sum(sizes), on_disk(store.root / "pair-statistics")
    assert 0 <= on_disk(store.root / "representations") - exact < 10_000
    assert 0.5 < (cost.n_bytes - exact) / (2 * statistics) < 2


@for_each(
    "n_features, interactions, facts",
    (45, True, ["45 features", "1,035 weights", "at most 1,000"]),
    (1_001, False, ["1001 features", "1,001 weights"]),
)
def test_too_many_features_are_refused_first(tmp_path, n_features, interactions, facts):
    values = np.random.default_rng(0).choice(["a", "b"], (66, n_features))
    table = pd.DataFrame(values).add_prefix("f")
    many = from_frame(table.assign(sentence=[f"sentence {i} here" for i in range(66)]), "m")
    spec = AnalysisSpec(models=("mini-bert",), interactions=interactions)
    store = Store(tmp_path / "store", overlays=())
    with refused(*facts):
        lint(many, spec)
    with refused(*facts):
        run(spec, store, progress=False, stimuli=many)
    assert not on_disk(store.root)


def test_a_hundred_features_are_analysed(tmp_path):
    """Ten of them are in the layer; a feature that follows from two others is not looked for."""
    values, rng = np.random.default_rng(0).integers(0, 2, (200, 100)), np.random.default_rng(1)
    table = pd.DataFrame(np.array(["no", "yes"])[values]).add_prefix("f")
    table["sentence"] = [f"sentence {i} here" for i in range(200)]
    layer = values[:, :10] + 0.1 * rng.standard_normal((200, 10))
    spec = in_files(tmp_path, table, {"m": {0: layer}}, folds=3)
    results = finished(tmp_path, spec, {}).analysis.results()
    assert results.scores["rho"].min() > 0.7
    means = results.importance.groupby("feature", sort=False)["importance"].mean().to_numpy()
    assert means[:10].min() > 0.02 > np.abs(means[10:]).max()
