"""Features that follow from the stimuli: their values, what is refused, and rare values as one."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import wordfreq
from helpers.inputs import for_each, refused

from mlem_core import from_frame, read_csv
from mlem_core.extensions.text_features.features import frequency
from mlem_core.extensions.text_features.steps import add_feature, merge_rare
from mlem_core.stimuli.candidates import CANDIDATES

SENTENCES = ["The dog, he runs.", "The dog, he runs.", "a zxqvk sleeps"]
WORDS = from_frame(
    pd.DataFrame({"sentence": SENTENCES, "word_index": [1, 3, 1], "f": [1, 2, 3]}), "words"
)


@for_each(
    "name, expected",
    ("word_length", [3, 4, 5]),
    ("word_position", [1, 3, 1]),
    ("position_from_end", [2, 0, 1]),
    ("sentence_length", [4, 4, 3]),
    ("frequency", [*(wordfreq.zipf_frequency(w, "en") for w in ("dog", "runs")), np.nan]),
)
def test_a_feature_has_the_values_that_are_known(name, expected):
    np.testing.assert_array_equal(add_feature(WORDS, name).values(name), expected)
    assert name not in WORDS.table  # the stimuli that were given stay as they were
    german = add_feature(WORDS, "frequency", "de").values("frequency")
    assert german[1] == wordfreq.zipf_frequency("runs", "de")


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


@for_each(
    "word, language, length, zipf",
    ("Straße", "de", 6, 5.27),
    ("groß", "de", 4, 5.21),
    ("Irak", "tr", 4, 4.79),
    ("Işık", "tr", 4, 5.15),
    ("İstanbul", "tr", 8, 5.89),
    ("e\u0301te\u0301", "fr", 3, 6.22),
    ("été", "fr", 3, 6.22),
)
def test_length_and_frequency_of_words_with_case(word, language, length, zipf):
    pytest.importorskip("wordfreq")
    stimuli = read_csv(f"sentence,word_index,f\nx ({word}),1,1\nthe unhelpful,1,2\n".encode())
    assert add_feature(stimuli, "word_length").values("word_length")[0] == length
    assert abs(frequency(stimuli, language)[0] - zipf) < 0.005


def test_a_word_without_a_frequency_is_noted_and_no_text_has_no_length():
    assert add_feature(WORDS, "frequency").notes == ("frequency is missing for 1 of 3 stimuli.",)
    images = from_frame(pd.DataFrame({"stimulus": [*"abc"], "f": [1, 2, 3]}), "mine")
    with refused("word_length", "mine"):
        add_feature(images, "word_length")


def test_candidates_follow_from_words_and_sentences():
    sentence = "Dogs (the old) ran, है।"
    stimuli = from_frame(
        pd.DataFrame({"sentence": sentence, "word_index": range(5), "x": list("ababa")}), "made"
    )
    found = {
        name: list(entry.values(stimuli))
        for name, entry in CANDIDATES.items()
        if entry.languages is None and not entry.needs_model
    }
    assert found["next_word"] == ["the", "old", "ran", "है", "(none)"]
    assert found["previous_word"] == ["(none)", "dogs", "the", "old", "ran"]
    assert found["last_two_letters"] == ["gs", "he", "ld", "an", "है"]
    assert found["punctuation"] == [" ", "( ", " )", " ,", " ।"]
    assert found["word_form"][-1] == "है"
