"""Features that follow from the stimuli, against NumPy, pandas and wordfreq."""

import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import wordfreq
from hypothesis import given
from hypothesis import strategies as st
from inputs import refused

from mlem_core.data import datasets
from mlem_core.data.added import add_bins, add_feature, merge_rare, quantile_bins
from mlem_core.data.stimulus_csv import from_frame

SENTENCES = ["The dog, he runs.", "The dog, he runs.", "a zxqvk sleeps"]
WORDS = from_frame(
    pd.DataFrame({"sentence": SENTENCES, "word_index": [1, 3, 1], "f": [1, 2, 3]}), "words"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("word_length", [3, 4, 5]),
        ("word_position", [1, 3, 1]),
        ("position_from_end", [2, 0, 1]),
        ("sentence_length", [4, 4, 3]),
        ("frequency", [*(wordfreq.zipf_frequency(w, "en") for w in ("dog", "runs")), np.nan]),
    ],
)
def test_a_feature_has_the_values_that_are_known(name, expected):
    stimuli = add_feature(WORDS, name)
    np.testing.assert_array_equal(stimuli.values(name), expected)
    assert name not in WORDS.table  # the stimuli that were given stay as they were
    german = add_feature(WORDS, "frequency", "de").values("frequency")
    assert german[1] == wordfreq.zipf_frequency("runs", "de")


def test_what_cannot_be_added_is_refused(monkeypatch):
    probing, sentences = datasets.load("probing"), datasets.load("relative-clauses")
    cases = [
        (WORDS, "frequancy", "en", ("'frequancy'", "frequency")),
        (probing, "word_length", "en", ("'word_length' already",)),
        (sentences, "word_length", "en", ("word_length", "sentence_length")),
        (WORDS, "frequency", "klingon", ("'klingon'",)),
        (WORDS.take(np.array([0, 1])), "sentence_length", "en", ("same value",)),
    ]
    for stimuli, name, language, facts in cases:
        with refused(*facts):
            add_feature(stimuli, name, language)
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    with refused("pip install wordfreq"):
        add_feature(WORDS, "frequency")


@given(st.integers(2, 9), st.integers(0, 10_000))
def test_bins_of_different_values_are_those_of_pandas(n_bins, seed):
    values = np.random.default_rng(seed).permutation(np.linspace(-1, 1, n_bins * 5))
    expected = pd.qcut(values, n_bins, labels=False) + 1.0
    np.testing.assert_array_equal(quantile_bins(values, n_bins), expected)


def test_bins_replace_the_feature_that_is_carried_along():
    stimuli = add_bins(add_feature(datasets.load("probing"), "frequency"), "frequency", 4)
    names = [feature.name for feature in stimuli.features]
    assert "frequency" not in names and names[-1] == "frequency_bin"
    zipf = stimuli.table["_frequency"].astype(float)
    highest = zipf.groupby(stimuli.table["frequency_bin"]).max().to_numpy()
    lowest = zipf.groupby(stimuli.table["frequency_bin"]).min().to_numpy()
    assert (highest[:-1] < lowest[1:]).all()


def test_rare_values_become_one():
    values = [*"aaaaaabbbbbccdd", None, "e"]
    frame = pd.DataFrame({"sentence": [f"s {k}" for k in range(17)], "kind": values})
    stimuli = from_frame(frame.assign(other=["x", "other", *"y" * 15]), "made up")
    for least in (2, 3, 6):
        counts = Counter(values)
        expected = [v if v is None or counts[v] >= least else "other" for v in values]
        found = merge_rare(stimuli, "kind", least)
        assert list(found.values("kind")) == expected
    assert "4 values of kind with fewer than 6 stimuli (10 stimuli in all)" in found.notes[-1]
    assert list(stimuli.values("kind")) == values
    assert set(merge_rare(stimuli, "other", 3).values("other")) == {"y", "other (rare)"}
    assert "none was merged" in merge_rare(found, "kind", 2).notes[-1]
    for name, least, facts in (
        ("kind", 7, "'a', has 6"),
        ("kind", 1, "at least 2"),
        ("x", 2, "'x'"),
    ):
        with refused(facts):
            merge_rare(stimuli, name, least)
