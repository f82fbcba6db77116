from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from mlem_core.analysis import diagnostics
from mlem_core.analysis.diagnostics import feature_findings, lint
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.data import datasets
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.pairs.build import tables_without_layers
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex

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


def test_sound_stimuli_raise_no_finding():
    assert lint(stimuli()).findings == []


def test_correlations_are_those_of_the_distances_of_all_pairs():
    rng = np.random.default_rng(1)
    partly = np.where(rng.random(N) < 0.3, None, rng.choice(["a", "b"], N))
    found = lint(stimuli(partly=partly))
    table = stimuli(partly=partly).table
    size = table["size"].to_numpy() / 4
    distances = [
        (
            float(table["colour"][i] != table["colour"][j]),
            abs(size[i] - size[j]),
            float(partly[i] is not None and partly[j] is not None and partly[i] != partly[j]),
        )
        for i, j in itertools.combinations(range(N), 2)
    ]
    assert list(found.correlations) == ["colour", "size", "partly"] and found.n_stimuli == N
    np.testing.assert_allclose(found.correlations, np.corrcoef(np.array(distances).T), atol=1e-9)


def test_features_whose_distances_correlate_are_named_with_the_value():
    rng = np.random.default_rng(2)
    size = stimuli().table["size"].to_numpy()
    found = lint(stimuli(weight=size + rng.integers(0, 3, N)))
    finding = only(found, "correlated")
    assert finding.features == ("size", "weight") and finding.severity == "caution"
    assert f"{found.correlations.loc['size', 'weight']:.2f}" in finding.sentence


def test_copies_are_a_problem_and_not_called_correlated_too():
    size = stimuli().table["size"]
    found = lint(stimuli(again=-2 * size))
    assert only(found, "copies").features == ("size", "again")
    assert "correlated" not in kinds(found)
    assert found.findings[0].severity == "problem"


def test_a_feature_that_is_the_same_in_training_is_told():
    once = np.where(np.arange(N) == 7, "odd", "even")
    finding = only(lint(stimuli(once=once)), "constant")
    assert finding.features == ("once",) and "without fold" in finding.sentence


def test_rare_values_are_named_with_their_rows():
    colour = stimuli().table["colour"].to_numpy().astype(object)
    colour[[4, 9]] = "mauve"
    finding = only(lint(stimuli(colour=colour)), "rare")
    assert finding.rows == (5, 10) and "mauve (2)" in finding.sentence


def test_a_feature_that_names_the_stimuli_is_no_feature():
    finding = only(lint(stimuli(label=[f"item {i}" for i in range(N)])), "identifier")
    assert finding.severity == "problem" and "ignore" in finding.sentence


def test_a_range_that_few_values_stretch():
    rng = np.random.default_rng(3)
    frequency = rng.random(N)
    frequency[11] = 1000
    finding = only(lint(stimuli(frequency=frequency)), "range")
    assert 12 in finding.rows and "logarithm" in finding.sentence


def test_missing_values_are_counted_and_those_that_go_together_are_named():
    rng = np.random.default_rng(4)
    absent = np.arange(N) % 3 == 0
    tense = np.where(absent, None, rng.choice(["past", "present"], N))
    person = np.where(absent, None, rng.choice(["first", "third"], N))
    alone = np.where(np.arange(N) < 150, None, rng.choice(["x", "y"], N))
    found = lint(stimuli(tense=tense, person=person, alone=alone))
    by = {finding.features: finding for finding in found.findings if finding.kind == "missing"}
    together = by[("tense", "person")]
    assert "80 of 240" in together.sentence and together.rows[:2] == (1, 4)
    share = 1 - 160 * 159 / (240 * 239)
    assert f"{share:.0%} of the pairs" in together.sentence
    assert together.severity == "note" and by[("alone",)].severity == "caution"
    level = lint(stimuli(tense=tense, person=person), AnalysisSpec(missing="level"))
    assert "value of each" in only(level, "missing").sentence


def test_repeated_stimuli_are_named_with_their_rows():
    sentences = [f"the {i} th sentence" for i in range(N)]
    sentences[30] = sentences[3]
    finding = only(lint(stimuli(sentence=sentences)), "duplicates")
    assert finding.rows == (31,) and "row 31 is row 4 again" in finding.sentence
    # Another word of the same sentence is another stimulus.
    words = [i % 2 for i in range(N)]
    assert lint(stimuli(sentence=sentences, word_index=words)).findings == []


def test_few_stimuli_for_the_weights_say_the_rule():
    finding = only(lint(stimuli(30)), "few")
    assert "30 stimuli for 2 weights" in finding.sentence and "40" in finding.sentence
    assert "few" not in kinds(lint(stimuli(50)))
    assert "3 weights" in only(lint(stimuli(50), AnalysisSpec(interactions=True)), "few").sentence


def test_few_or_unequal_groups():
    groups = np.arange(N) % 12
    finding = only(lint(stimuli(sentence_id=groups)), "folds")
    assert "12 different values of 'sentence_id'" in finding.sentence
    groups = np.where(np.arange(N) < 150, 0, np.arange(N))
    assert "150 of the 240" in only(lint(stimuli(sentence_id=groups)), "folds").sentence
    finding = only(lint(stimuli(sentence_id=np.arange(N) % 3)), "folds")
    assert finding.severity == "problem" and "3 sentences" in finding.sentence
    # It says how many folds would do.
    for n_sentences, said in ((2, "add sentences"), (3, "choose 3 folds"), (4, "choose 3 to 4")):
        finding = only(lint(stimuli(sentence_id=np.arange(N) % n_sentences)), "folds")
        assert said in finding.sentence
    found = lint(stimuli(12, sentence_id=np.arange(12))).findings
    assert any("a fold with 2 of them" in f.sentence and "3 to 4" in f.sentence for f in found)


def test_many_stimuli_are_sampled_and_it_is_said(monkeypatch):
    size = stimuli().table["size"]
    whole = lint(stimuli(weight=size + np.arange(N) % 3))
    monkeypatch.setattr(diagnostics, "MOST_STIMULI", 100)
    found = lint(stimuli(weight=size + np.arange(N) % 3))
    assert found.n_stimuli == 100 and whole.n_stimuli == N
    assert "the pairs of 100 of the stimuli" in only(found, "correlated").sentence
    np.testing.assert_allclose(found.correlations, whole.correlations, atol=0.15)


def test_what_only_the_sample_shows_is_not_said_of_all(monkeypatch):
    once = np.where(np.arange(N) == 7, "odd", "even")
    sample = np.random.default_rng(0).permutation(N)[:100]
    assert 7 not in sample
    monkeypatch.setattr(diagnostics, "MOST_STIMULI", 100)
    finding = only(lint(stimuli(once=once)), "constant")
    assert finding.features == ("once",)
    assert finding.sentence.endswith(" (seen in a seeded sample of 100 stimuli).")


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


def test_the_built_in_words_are_sound_but_for_what_their_grammar_makes():
    found = lint(datasets.load("probing"))
    assert kinds(found) == {"missing", "correlated"}
    assert not [finding for finding in found.findings if finding.severity == "problem"]


def test_an_unknown_policy_is_an_error():
    with pytest.raises(InputError, match="the choices are ignore, level"):
        lint(stimuli(), AnalysisSpec(missing="drop"))


def test_pairs_that_differ_as_no_others_do_are_said_and_bins_are_offered():
    rng = np.random.default_rng(0)
    table = stimuli(120).table.assign(**{f"x{k}": rng.normal(size=120).round(3) for k in range(3)})
    finding = only(lint(from_frame(table, "fine")), "patterns")
    assert finding.severity == "caution" and "into bins" in finding.sentence
    assert int(finding.sentence.split("%")[0].split()[-1]) > 90
    assert "patterns" not in kinds(lint(stimuli(120)))
