"""What is said of stimuli before a run: planted findings, values to resolve, and what it takes."""

import itertools

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, for_each, in_files, noise, probing, refused

from mlem_core import AnalysisSpec, Store, from_frame, run, write_csv
from mlem_core.analysis import diagnostics, values
from mlem_core.analysis.cost import cost_of
from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.values import recommended_values
from mlem_core.cli.commands import main
from mlem_core.data import datasets
from mlem_core.models.availability import look_up

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
    assert not text[0].islower() and text.endswith(".") and "\n" not in text and ". " not in text
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
    ({"sentence_id": AT % 3}, "folds", (), "problem", ["3 sentences", "choose 3 folds"]),
)
def test_what_is_planted_is_found(columns, kind, features, severity, facts):
    found = lint(stimuli(**columns))
    finding = only(found, kind)
    assert finding.features == features or not features
    assert not severity or finding.severity == severity == found.findings[0].severity
    assert not [fact for fact in facts if fact not in finding.sentence], finding.sentence
    if kind == "correlated":
        assert f"{found.correlations.loc[*features]:.2f}" in finding.sentence
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
    np.testing.assert_allclose(found.correlations, np.corrcoef(np.array(distances).T), atol=1e-9)


def test_missing_values_are_counted_and_those_that_go_together_are_named():
    rng = np.random.default_rng(4)
    tense = np.where(AT % 3 == 0, None, rng.choice(["past", "present"], N))
    person = np.where(AT % 3 == 0, None, rng.choice(["first", "third"], N))
    found = lint(stimuli(tense=tense, person=person))
    by = {finding.features: finding for finding in found.findings if finding.kind == "missing"}
    both = by[("tense", "person")]
    assert "80 of 240" in both.sentence and both.rows[:2] == (1, 4)
    assert f"{1 - 160 * 159 / (240 * 239):.0%} of the pairs" in both.sentence
    level = lint(stimuli(tense=tense, person=person), AnalysisSpec(missing="level"))
    assert "value of each" in only(level, "missing").sentence
    with refused("ignore, level"):
        lint(stimuli(), AnalysisSpec(missing="drop"))


def test_many_stimuli_are_sampled_and_it_is_said(monkeypatch):
    weight = SIZE + AT % 3
    whole = lint(stimuli(weight=weight))
    assert 7 not in np.random.default_rng(0).permutation(N)[:100]
    monkeypatch.setattr(diagnostics, "MOST_STIMULI", 100)
    found = lint(stimuli(weight=weight))
    assert found.n_stimuli == 100 and whole.n_stimuli == N
    assert "100 of the stimuli" in only(found, "correlated").sentence
    np.testing.assert_allclose(found.correlations, whole.correlations, atol=0.15)


def test_every_run_says_problems_cautions_and_identical_layers(tmp_path, monkeypatch, capsys):
    """Of a file of 12 sentences: too few for 4 folds, and one feature is another's copy."""
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    table = pd.DataFrame({"sentence": [f"the {i} th sentence" for i in range(12)]})
    table = table.assign(kind=["a", "b", "c"] * 4, copy=["x", "y", "z"] * 4)
    layers = noise(12)
    same = {"one": layers, "two": {**layers, 1: layers[1] + 1e-3 * layers[0]}}
    spec = in_files(tmp_path, table, same, folds=4)
    found = lint(spec.load_stimuli(), spec)
    assert found.counts == "2 problems and 2 cautions"
    asked = [*arguments_of(spec), "--folds=4"]
    for command in (["analyze", "--out", str(tmp_path / "out")], ["why", "one:0", "two:0"]):
        assert main([command[0], *command[1:], *asked]) == 0
        said = capsys.readouterr().err
        assert "'kind' and 'copy' tell apart the same stimuli" in said
        assert "2 cautions (few and folds)" in said
        assert "same distances: one:0 and two:0." in said


def test_of_the_built_in_words_parts_of_speech_are_told_apart(monkeypatch):
    words = datasets.load("probing")
    assert recommended_values(words, AnalysisSpec()) == ("part_of_speech",)
    for other in (AnalysisSpec(estimator="spearman"), AnalysisSpec(interactions=True)):
        assert recommended_values(words, other) == ()
    # Both limits hold a feature back.
    monkeypatch.setattr(values, "MOST_PATTERNS", 10_000)
    assert recommended_values(words, AnalysisSpec()) == ("part_of_speech", "person")
    monkeypatch.setattr(values, "ALONE", 0.004)
    assert recommended_values(words, AnalysisSpec()) == ("part_of_speech",)
    # One with fewer values is taken where one with more would make too many patterns.
    monkeypatch.setattr(values, "MOST_PATTERNS", 3_000)
    assert recommended_values(words, AnalysisSpec()) == ("person",)


def on_disk(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.slow
def test_the_disk_that_a_run_takes(tmp_path):
    write_csv(probing(60), tmp_path / "words.csv")
    names = ("mini-bert", "mini-mamba")
    spec = AnalysisSpec(str(tmp_path / "words.csv"), models=names, layers=(0, 3, 6))
    shapes = {name: look_up(name).shape for name in names}
    words = spec.load_stimuli()
    cost = cost_of(spec, words, lint(words, spec).n_cells, shapes)
    store = Store(tmp_path / "store", overlays=())
    analysis = run(spec, store, progress=False)
    assert cost.n_layers == len(analysis.layers) == 6
    assert len(analysis.tables.counts) == lint(words, spec).n_cells
    # What is not tables is exact but for a few kB of facts; tables are kept twice.
    sizes = [len(spec.layers) * (4 * len(words) * s.width + 128) for s in shapes.values()]
    exact, tables = sum(sizes), on_disk(store.root / "pair-tables")
    assert 0 <= on_disk(store.root / "representations") - exact < 10_000
    assert 0.5 < (cost.n_bytes - exact) / (2 * tables) < 2


@for_each(
    "n_stimuli, n_features, interactions, facts",
    (66, 35, True, ["35 features", "630 weights", "at most 600"]),
    (66, 601, False, ["601 features", "601 weights"]),
    (500, 200, False, ["200 features", "more than 83,886 ways"]),
)
def test_too_many_features_are_refused_first(tmp_path, n_stimuli, n_features, interactions, facts):
    values = np.random.default_rng(0).choice(["a", "b"], (n_stimuli, n_features))
    table = pd.DataFrame(values).add_prefix("f")
    many = from_frame(table.assign(sentence=[f"sentence {i} here" for i in range(n_stimuli)]), "m")
    spec = AnalysisSpec(models=("mini-bert",), interactions=interactions)
    store = Store(tmp_path / "store", overlays=())
    with refused(*facts):
        lint(many, spec)
    with refused(*facts):
        run(spec, store, progress=False, stimuli=many)
    assert not on_disk(store.root)
