"""Words as they are counted, compared and looked up, in scripts with marks and with any case."""

import unicodedata

import numpy as np
import pytest
from helpers.inputs import for_each, refused

from mlem_core import read_csv
from mlem_core.stimuli.added import add_feature, frequency, punctuation
from mlem_core.stimuli.stimulus_set import bare, without_punctuation


@for_each(
    "text, word, without_case",
    ("है,", "है", "है"),  # a vowel sign is a combining mark
    ("«ที่»", "ที่", "ที่"),
    ("e\u0301te\u0301.", "été", "été"),
    ("Groß!", "Groß", "groß"),
    ("Maße", "Maße", "maße"),
    ("(İlk)", "İlk", "ilk"),
    ("ΛΌΓΟΣ", "ΛΌΓΟΣ", "λόγος"),
    ("❤\ufe0f", "❤\ufe0f", "❤\ufe0f"),  # a mark of a sign is no letter
    (" ... ", "...", "..."),
)
def test_a_word_keeps_its_marks_and_its_number_of_letters(text, word, without_case):
    assert without_punctuation(text) == word and bare(text) == without_case
    assert len(bare(text)) == len(word)


HINDI = """sentence,word_index,f
लड़की घर में है,0,a
लड़का घर में था,1,b
यह किताब की दुकान है,3,a
यह पानी का गिलास है,2,b
बच्ची खुशी से हँसती है,1,a
यह किताब की दुकान है।,4,b
"""


def test_features_of_words_in_a_script_with_marks():
    pytest.importorskip("wordfreq")
    stimuli = read_csv(HINDI.encode(), name="hindi.csv")
    for name in ("word_length", "last_two_letters", "frequency"):
        stimuli = add_feature(stimuli, name, "hi")
    assert stimuli.values("word_length").tolist() == [5, 2, 5, 2, 4, 2]
    assert stimuli.values("last_two_letters").tolist() == ["की", "घर", "ान", "का", "शी", "है"]
    np.testing.assert_allclose(stimuli.values("frequency")[[0, 3]], [5.46, 7.25], atol=0.005)
    assert punctuation(stimuli) == [" "] * 5 + [" ।"]


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


def test_items_do_not_depend_on_how_letters_are_coded():
    table = "sentence,word_index,f\nun été,1,1\nÉté là,0,2\nla là,0,1\nune la,1,2\n"
    composed = read_csv(table.encode())
    decomposed = read_csv(unicodedata.normalize("NFD", table).encode())
    assert composed.items.tolist() == decomposed.items.tolist() == [0, 0, 1, 1]
    assert not composed.notes and "(NFC) in row 1" in decomposed.notes[0]


@for_each("number, word", (2, "का"), (2, "कि"), (4, "हँसता"))
def test_a_word_that_differs_in_a_mark_is_another_word(number, word):
    rows = f"sentence,word_index,word,f\nयह किताब की दुकान है,{number},{word},a\na b,0,a,b\n"
    with refused("row 1", repr(word)):
        read_csv(rows.encode())
    other = "sentence,target,f\nराम की किताब का रंग लाल है,की,a\nराम का घर की दीवार,का,b\n"
    assert read_csv(other.encode()).word_index.tolist() == [1, 1]
