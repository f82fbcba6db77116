"""Features that follow from the stimuli, against NumPy, pandas and wordfreq."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
import wordfreq
from hypothesis import given
from hypothesis import strategies as st
from inputs import refused

from mlem_core.data import datasets
from mlem_core.data.added import ADDED, add_bins, add_feature, quantile_bins
from mlem_core.data.stimulus_csv import from_frame

WORDS = from_frame(
    pd.DataFrame(
        {
            "sentence": ["The dog, he runs.", "The dog, he runs.", "a zxqvk sleeps"],
            "word_index": [1, 3, 1],
            "f": [1, 2, 3],
        }
    ),
    "words",
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("word_length", [3, 4, 5]),
        ("word_position", [1, 3, 1]),
        ("position_from_end", [2, 0, 1]),
        ("sentence_length", [4, 4, 3]),
        (
            "frequency",
            [wordfreq.zipf_frequency("dog", "en"), wordfreq.zipf_frequency("runs", "en"), np.nan],
        ),
    ],
)
def test_a_feature_has_the_values_that_are_known(name, expected):
    stimuli = add_feature(WORDS, name)
    np.testing.assert_array_equal(stimuli.values(name), expected)
    assert [(f.name, f.kind) for f in stimuli.features] == [("f", "ordered"), (name, "ordered")]
    assert name not in WORDS.table  # the stimuli that were given stay as they were
    assert set(ADDED) >= {name}


def test_the_built_in_features_are_the_ones_of_the_grammar():
    stimuli = datasets.load("probing")
    without = stimuli.table.drop(columns=["word_length", "word_position"])
    again = from_frame(without, "probing", nominal=["person"])
    for name in ("word_length", "word_position"):
        again = add_feature(again, name)
        np.testing.assert_array_equal(again.values(name), stimuli.values(name))


def test_frequencies_are_of_a_language_and_words_without_one_are_counted():
    assert add_feature(WORDS, "frequency").notes == ("frequency is missing for 1 of 3 stimuli.",)
    german = from_frame(
        pd.DataFrame(
            {"sentence": ["der Hund bellt", "die Katze"], "word_index": [1, 1], "f": [1, 2]}
        ),
        "german",
    )
    expected = [wordfreq.zipf_frequency(word, "de") for word in ("hund", "katze")]
    np.testing.assert_array_equal(
        add_feature(german, "frequency", "de").values("frequency"), expected
    )


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


# --- bins ------------------------------------------------------------------------------------


@given(st.integers(2, 9), st.integers(0, 10_000))
def test_bins_of_different_values_are_those_of_pandas(n_bins, seed):
    values = np.random.default_rng(seed).permutation(np.linspace(-1, 1, n_bins * 5))
    expected = pd.qcut(values, n_bins, labels=False) + 1.0
    np.testing.assert_array_equal(quantile_bins(values, n_bins), expected)


@given(st.lists(st.integers(0, 6) | st.none(), min_size=2, max_size=40), st.integers(2, 6))
def test_bins_keep_the_order_and_equal_values_together(values, n_bins):
    array = np.array([np.nan if value is None else value for value in values], dtype=float)
    codes = quantile_bins(array, n_bins)
    np.testing.assert_array_equal(np.isnan(codes), np.isnan(array))
    there = np.isfinite(array)
    if there.any():
        found = np.unique(codes[there])
        np.testing.assert_array_equal(found, np.arange(1, len(found) + 1))
        assert len(found) <= n_bins
    for a, b in zip(array[there], codes[there], strict=True):
        assert (codes[there][array[there] == a] == b).all()
        assert (codes[there][array[there] > a] >= b).all()


def test_bins_replace_the_feature_that_is_carried_along():
    stimuli = add_bins(add_feature(datasets.load("probing"), "frequency"), "frequency", 4)
    names = [feature.name for feature in stimuli.features]
    assert "frequency" not in names and names[-1] == "frequency_bin"
    counts = stimuli.table["frequency_bin"].value_counts()
    assert set(counts.index) == {1, 2, 3, 4} and counts.max() < 1.5 * counts.min()
    zipf = stimuli.table["_frequency"].astype(float)
    highest = zipf.groupby(stimuli.table["frequency_bin"]).max().to_numpy()
    lowest = zipf.groupby(stimuli.table["frequency_bin"]).min().to_numpy()
    assert (highest[:-1] < lowest[1:]).all()


def test_bins_that_cannot_be_are_said():
    for stimuli, name, n, facts in (
        (datasets.load("probing"), "tense", 4, ("'tense'",)),
        (WORDS, "f", 1, ("1 bins",)),
    ):
        with refused(*facts):
            add_bins(stimuli, name, n)
    (note,) = add_bins(WORDS, "f", 9).notes
    assert "3 bins" in note and "9" in note
