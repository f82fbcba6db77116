"""What is said of stimuli before a run: planted findings, values to resolve, and what it takes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from inputs import probing, refused

from mlem_core.analysis import diagnostics, values
from mlem_core.analysis.cost import cost_of
from mlem_core.analysis.diagnostics import feature_findings, lint
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.analysis.values import recommended_values, resolvable
from mlem_core.data import datasets
from mlem_core.data.stimulus_csv import from_frame, write_csv
from mlem_core.models.offer import Shape, look_up
from mlem_core.pairs.build import tables_without_layers
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex
from mlem_core.storage.store import Store

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
UNEQUAL = np.where(AT < 150, 0, AT)


def test_sound_stimuli_raise_no_finding():
    assert lint(stimuli()).findings == []
    # Another word of the same sentence is another stimulus.
    assert lint(stimuli(sentence=REPEATED, word_index=[i % 2 for i in range(N)])).findings == []
    found = lint(datasets.load("probing"))
    assert kinds(found) == {"missing", "correlated"}
    assert not [finding for finding in found.findings if finding.severity == "problem"]


@pytest.mark.parametrize(
    ("columns", "kind", "features", "severity", "facts"),
    [
        ({"again": -2 * SIZE}, "copies", ("size", "again"), "problem", []),
        ({"once": ONCE}, "constant", ("once",), "", ["without fold"]),
        ({"colour": RARE}, "rare", ("colour",), "", ["mauve (2)"]),
        ({"label": [f"item {i}" for i in AT]}, "identifier", ("label",), "problem", ["ignore"]),
        ({"frequency": STRETCHED}, "range", ("frequency",), "", ["logarithm"]),
        ({"sentence": REPEATED}, "duplicates", (), "", ["row 31", "row 4"]),
        ({"sentence_id": AT % 12}, "folds", (), "", ["12 different values of 'sentence_id'"]),
        ({"sentence_id": UNEQUAL}, "folds", (), "", ["150 of the 240"]),
        ({"sentence_id": AT % 2}, "folds", (), "problem", ["2 sentences", "add sentences"]),
        ({"sentence_id": AT % 3}, "folds", (), "problem", ["3 sentences", "choose 3 folds"]),
        ({"sentence_id": AT % 4}, "folds", (), "problem", ["4 sentences", "choose 3 to 4"]),
    ],
)
def test_what_is_planted_is_found(columns, kind, features, severity, facts):
    found = lint(stimuli(**columns))
    finding = only(found, kind)
    assert finding.features == features or not features
    assert not severity or finding.severity == severity == found.findings[0].severity
    assert not [fact for fact in facts if fact not in finding.sentence], finding.sentence
    rows = {"rare": (5, 10), "duplicates": (31,), "range": (12,)}
    assert set(rows.get(kind, ())) <= set(finding.rows)
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


def test_features_whose_distances_correlate_are_named_with_the_value():
    found = lint(stimuli(weight=SIZE + np.random.default_rng(2).integers(0, 3, N)))
    finding = only(found, "correlated")
    assert finding.features == ("size", "weight") and finding.severity == "caution"
    assert f"{found.correlations.loc['size', 'weight']:.2f}" in finding.sentence


def test_missing_values_are_counted_and_those_that_go_together_are_named():
    rng = np.random.default_rng(4)
    tense = np.where(AT % 3 == 0, None, rng.choice(["past", "present"], N))
    person = np.where(AT % 3 == 0, None, rng.choice(["first", "third"], N))
    alone = np.where(AT < 150, None, rng.choice(["x", "y"], N))
    found = lint(stimuli(tense=tense, person=person, alone=alone))
    by = {finding.features: finding for finding in found.findings if finding.kind == "missing"}
    both = by[("tense", "person")]
    assert "80 of 240" in both.sentence and both.rows[:2] == (1, 4)
    assert f"{1 - 160 * 159 / (240 * 239):.0%} of the pairs" in both.sentence
    assert both.severity == "note" and by[("alone",)].severity == "caution"
    level = lint(stimuli(tense=tense, person=person), AnalysisSpec(missing="level"))
    assert "value of each" in only(level, "missing").sentence
    with refused("ignore, level"):
        lint(stimuli(), AnalysisSpec(missing="drop"))


def test_few_stimuli_for_the_weights_or_the_folds():
    finding = only(lint(stimuli(30)), "few")
    assert "30 stimuli for 2 weights" in finding.sentence and "40" in finding.sentence
    assert "few" not in kinds(lint(stimuli(50)))
    assert "3 weights" in only(lint(stimuli(50), AnalysisSpec(interactions=True)), "few").sentence
    found = lint(stimuli(12, sentence_id=np.arange(12))).findings
    assert any("a fold with 2 of them" in f.sentence and "3 to 4" in f.sentence for f in found)


def test_many_stimuli_are_sampled_and_it_is_said(monkeypatch):
    weight = SIZE + AT % 3
    whole = lint(stimuli(weight=weight))
    assert 7 not in np.random.default_rng(0).permutation(N)[:100]
    monkeypatch.setattr(diagnostics, "MOST_STIMULI", 100)
    found = lint(stimuli(weight=weight))
    assert found.n_stimuli == 100 and whole.n_stimuli == N
    assert "100 of the stimuli" in only(found, "correlated").sentence
    np.testing.assert_allclose(found.correlations, whole.correlations, atol=0.15)
    # What only the sample shows is not said of all.
    finding = only(lint(stimuli(once=ONCE)), "constant")
    assert finding.features == ("once",) and "sample of 100 stimuli" in finding.sentence


def test_checks_count_patterns_as_sorting_them_would():
    rng = np.random.default_rng(0)
    frame = {f"f{k}": rng.integers(0, 2 + k, N) for k in range(3)}
    table = stimuli(**frame, copy=1 - frame["f0"])
    index = PairIndex.build(feature_columns(table), table.groups % 5, "ignore")
    tables = tables_without_layers(index)
    found = [finding.features for finding in feature_findings(tables) if finding.kind == "copies"]
    expected = []
    for f, g in itertools.combinations(range(len(tables.features)), 2):
        both = np.unique(tables.codes[:, [f, g]], axis=0)
        sizes = {len(np.unique(tables.codes[:, c])) for c in (f, g)}
        if sizes == {len(both)} and len(both) > 1:
            expected.append((tables.features[f], tables.features[g]))
    assert found == expected and ("f0", "copy") in found


def test_pairs_that_differ_as_no_others_do_are_said_and_bins_are_offered():
    rng = np.random.default_rng(0)
    table = stimuli(120).table.assign(**{f"x{k}": rng.normal(size=120).round(3) for k in range(3)})
    finding = only(lint(from_frame(table, "fine")), "patterns")
    assert finding.severity == "caution" and "into bins" in finding.sentence
    assert int(finding.sentence.split("%")[0].split()[-1]) > 90
    assert "patterns" not in kinds(lint(stimuli(120)))


# --- values that a run can tell apart -------------------------------------------------------


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
    assert recommended_values(words, AnalysisSpec(folds=700)) == ()


def test_ordered_features_and_those_of_two_values_are_not_recommended():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sentence": [f"number {i}" for i in range(300)]})
    table["two"], table["size"] = rng.choice(list("ab"), 300), rng.integers(0, 5, 300)
    assert recommended_values(from_frame(table, "mine"), AnalysisSpec()) == ()
    table["many"], table["three"] = [str(i) for i in range(300)], rng.choice(list("abc"), 300)
    mine = from_frame(table, "mine")
    assert resolvable(mine) == ["two", "size", "three"]
    some = mine.select(["two", "size", "three"])
    assert recommended_values(some, AnalysisSpec()) == ("three",)


def test_it_counts_the_weights_of_values_and_says_that_a_missing_one_is_a_value():
    columns = ["sentence", "word_index", "word", "part_of_speech", "tense"]
    few = from_frame(probing(40)[columns], "few")
    plain, told = (lint(few, AnalysisSpec(values=own)) for own in ((), ("part_of_speech", "tense")))
    n = len(set(few.values("part_of_speech")))
    assert f"for {n * (n + 1) // 2 + 6} weights" in only(told, "few").sentence
    assert "tell fewer values apart" in only(told, "few").sentence
    assert not [f for f in plain.findings if "tell fewer values" in f.sentence]
    assert "distance is 0" in only(plain, "missing").sentence
    assert "a value of its own" in only(told, "missing").sentence


# --- what a run takes -----------------------------------------------------------------------


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.slow
def test_the_disk_that_a_run_takes(tmp_path):
    write_csv(probing(60), tmp_path / "words.csv")
    names = ("mini-bert", "mini-mamba")
    spec = AnalysisSpec(str(tmp_path / "words.csv"), models=names, layers=(0, 3, 6))
    shapes = {name: look_up(name).shape for name in names}
    assert shapes == {"mini-bert": Shape(6, 128), "mini-mamba": Shape(11, 128, recurrent=True)}
    words = spec.load_stimuli()
    cost = cost_of(spec, words, lint(words, spec).n_cells, shapes)
    store = Store(tmp_path / "store", overlays=())
    analysis = run(spec, store, progress=False)
    assert cost.n_layers == len(analysis.layers) == 6
    assert len(analysis.tables.counts) == lint(words, spec).n_cells
    # What is not tables is exact but for a few kB of facts; tables are kept twice.
    sizes = [(s.blocks + 1) * (4 * len(words) * s.width + 128) for s in shapes.values()]
    exact, tables = sum(sizes), on_disk(store.root / "pair-tables")
    assert 0 <= on_disk(store.root / "representations") - exact < 10_000
    assert 0.5 < (cost.n_bytes - exact) / (2 * tables) < 2
    assert cost.seconds > 0


def test_more_takes_more():
    spec = AnalysisSpec(models=("a",))
    words = spec.load_stimuli()
    small = cost_of(spec, words, 1000, {"a": Shape(6, 128)})
    slow = cost_of(spec, words, 1000, {"a": Shape(6, 128, recurrent=True)})
    wide = cost_of(spec, words, 1000, {"a": Shape(6, 768)}, n_fetched=7)
    unknown = cost_of(spec, words, 1000, {"a": None})
    files = cost_of(spec, words, 1000, {}, files=[2, 3])
    products = cost_of(replace(spec, interactions=True), words, 10**6, {}, files=[2, 3])
    assert products.seconds > 10 * cost_of(spec, words, 10**6, {}, files=[2, 3]).seconds
    assert small.seconds < slow.seconds and small.n_bytes == slow.n_bytes
    assert small.seconds < wide.seconds < unknown.seconds
    assert wide.n_fetched == 7 and small.n_layers == 7
    assert files.n_layers == 5 and files.seconds < small.seconds
    assert pytest.approx(small.n_bytes, rel=0.2) == 7 * 4 * 2040 * 128


def many_columns(n_stimuli: int, n_features: int):
    rng = np.random.default_rng(0)
    columns = {f"f{f}": rng.choice(["a", "b"], n_stimuli) for f in range(n_features)}
    sentences = [f"sentence {i} here" for i in range(n_stimuli)]
    return from_frame(pd.DataFrame({"sentence": sentences, **columns}), "many")


@pytest.mark.parametrize(
    ("n_stimuli", "n_features", "interactions", "facts"),
    [
        (66, 35, True, ["35 features", "630 weights", "at most 600"]),
        (66, 601, False, ["601 features", "601 weights"]),
        (500, 200, False, ["200 features", "more than 83,886 ways"]),
    ],
)
def test_more_features_than_can_be_fitted_are_refused_before_anything_runs(
    tmp_path, n_stimuli, n_features, interactions, facts
):
    many = many_columns(n_stimuli, n_features)
    spec = AnalysisSpec(models=("mini-bert",), interactions=interactions)
    store = Store(tmp_path / "store", overlays=())
    with refused(*facts):
        lint(many, spec)
    with refused(*facts):
        run(spec, store, progress=False, stimuli=many)
    assert not on_disk(store.root)
    # As many as can be fitted are looked at.
    found = lint(many_columns(66, 34), AnalysisSpec(interactions=True))
    assert found.n_cells == 66 * 65 // 2
