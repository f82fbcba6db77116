"""Words as they are counted, compared and looked up, in scripts with marks and with any case."""

import unicodedata

from helpers.inputs import for_each, refused

from mlem_core import read_csv
from mlem_core.stimuli.stimulus_set import bare, strip_punctuation


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
    assert strip_punctuation(text) == word and bare(text) == without_case
    assert len(bare(text)) == len(word)


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
