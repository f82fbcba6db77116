"""Roles of columns, and what is said of a table, which would mislead if it were wrong."""

import io
import re
from functools import partial

import numpy as np
import pandas as pd
from helpers.inputs import as_csv, for_each, refused

from mlem_core import from_frame, read_csv
from mlem_core.pairs.resampling_units import Units
from mlem_core.representations.tokens import pooled
from mlem_core.stimuli.levels import constant_unit
from mlem_core.stimuli.reading.table import read_table
from mlem_core.stimuli.roles import ROLES, TEMPLATE, apply_roles, guess_roles

OTHER = """\
Text,target,Case,freq,note,constant,item
The dog sees a cat.,dog,subject,3.5,x,1,a
The dog sees a cat.,cat,object,2.1,y,1.0,a
Did she run?,she,subject,4.0,,1,b
"""


def test_a_table_of_other_names_is_recognised():
    table = read_table(OTHER.encode(), "other.csv")
    roles = ["sentence", "word_index", "nominal", "ordered", "nominal", "ignore", "item"]
    assert list(guess_roles(table).values()) == roles
    stimuli = apply_roles(table, {"note": "ignore"})
    assert stimuli.words == ["dog", "cat.", "she"] and stimuli.name == "other.csv"
    assert [(f.name, f.kind) for f in stimuli.features] == [
        ("Case", "nominal"),
        ("freq", "ordered"),
    ]
    np.testing.assert_array_equal(stimuli.groups, [0, 0, 1])
    assert list(stimuli.table["_note"].fillna("")) == ["x", "y", ""]
    assert "_constant" in stimuli.table
    assert read_csv(as_csv(stimuli), name="other.csv").digest == stimuli.digest


@for_each(
    "roles, facts, table",
    ({"Text": "nominal"}, ("other.csv", "sentence"), OTHER),
    ({"note": "sentence"}, ("'Text', 'note'", "sentence"), OTHER),
    ({"colour": "nominal"}, ("'colour'",), OTHER),
    ({"note": "feature"}, ("'feature'",), OTHER),
    ({"Case": "ordered"}, ("'subject' in row 1", "number"), OTHER),
    ({"target": "ignore", "Case": "word_index"}, ("'subject' in row 1", "'Case'"), OTHER),
    ({"constant": "ordered"}, ("'1'", "underscore"), OTHER),
    ({"constant": "nominal"}, ("'1'",), OTHER.replace("1.0", "1")),
    ({"f": "ordered"}, ("'f'", "no value"), "sentence,f,g\na,,1\nb,,2\n"),
    ({}, ("'the' in row 1", "2 times"), "text,word,f\nthe dog the cat,the,a\na cat,cat,b\n"),
    ({}, ("word in row 1",), "sentence,target,word_index,f\nthe dog,the,1,1\na cat,cat,1,2\n"),
)
def test_roles_that_cannot_be_are_refused(roles, facts, table):
    with refused(*facts):
        apply_roles(read_table(table.encode(), "other.csv"), roles)


def test_the_template_is_read_and_every_role_is_explained():
    stimuli = read_csv(TEMPLATE, name="template.csv")
    assert stimuli.level == "word" and {f.kind for f in stimuli.features} == {"ordered", "nominal"}
    table = read_table(io.BytesIO(TEMPLATE))
    assert apply_roles(table, guess_roles(table)).features == stimuli.features
    assert set(guess_roles(table).values()) <= set(ROLES)


def test_words_with_the_numbers_of_their_sentences_and_spans_of_characters():
    """A word a row, with and without the sentence, as the sentences and indices given."""
    rows = [
        (f"{at:02}", match[0], sentence, place, *match.span(), len(match[0]))
        for at, sentence in enumerate(("the  dog runs", "a cat, old", "the dog runs"))
        for place, match in enumerate(re.finditer(r"\S+", sentence))
    ]
    names = ["sentence_id", "word", "sentence", "word_index", "start_idx", "end_idx", "length"]
    frame = pd.DataFrame(rows, columns=names)

    def read(*columns):
        return read_csv(frame[[*columns]].to_csv(index=False).encode(), name="mine")

    rest = ["word", "sentence_id", "length"]
    whole = read("sentence", "word_index", *rest)
    spans = read("sentence", *names[4:], *rest[:2])
    assert spans.words == whole.words == frame["word"].tolist()
    assert list(spans.table)[:4] == ["sentence", "word_index", "_start_idx", "_end_idx"]
    words = read(*rest)
    assert words.words == whole.words and (words.groups == whole.groups).all()
    assert words.sentences[0] == "the dog runs" and words.notes[0].startswith("The sentences of")
    frame["end_idx"] += 1  # ends with a space
    with refused("row 1", "'0' to '4'", "'the  dog runs'"):
        read("sentence", *names[4:])
    frame.loc[4, "word"] = ""
    with refused("row 5", "'word'"):
        read(*rest)


IMAGES = pd.DataFrame({"stimulus": [f"a b/{n}.png" for n in range(9)], "f": [*"xyz"] * 3})


def test_stimuli_may_be_no_text():
    read = partial(read_csv, name="mine")
    stimuli = read(IMAGES.to_csv(index=False).encode())
    assert stimuli.level == "stimulus" and stimuli.sentences == [*IMAGES["stimulus"]]
    assert stimuli.notes == () and stimuli.words == stimuli.sentences
    assert from_frame(IMAGES, "mine").digest == stimuli.digest == read(as_csv(stimuli)).digest
    units = Units.from_stimuli(stimuli)
    assert (units.over, units.held_out("sentences")) == ("stimuli", "unseen stimuli")
    # Several of one kind stay together; items are named, as words are not.
    several = read(
        IMAGES.assign(sentence_id=[0, 1, 2] * 3, item=[*range(8), 0]).to_csv(index=False).encode()
    )
    assert Units.from_stimuli(several).held_out("both") == "unseen groups with unseen items"
    assert constant_unit(several, "f") == "group"
    # Sentences under that name are sentences, unless they are said to be none.
    text = b"stimulus,f\nthe dog runs,1\na cat sleeps,2\n"
    assert read(text).level == "sentence"
    assert read(text, roles={"stimulus": "stimulus"}).level == "stimulus"
    with refused("'stimulus'", "'f'"):
        read(text, roles={"stimulus": "stimulus", "f": "word_index"})
    with refused("stimulus in row 2"):
        from_frame(IMAGES.assign(stimulus=["a", ""] + [*"bcdefgh"]), "mine")
    with refused("no text", "files of representations"):
        pooled(stimuli.level, "standard")


def test_what_names_kinds_is_not_guessed_to_be_the_sentence():
    """A row a word, as published with numbers of sentences alone: no column has a sentence."""
    rows = [f"{word},{at // 6},noun phrase,agent of a verb\n" for at, word in enumerate("abcd" * 6)]
    table = read_table(("form,number,_category,role\n" + "".join(rows)).encode(), "words.csv")
    assert guess_roles(table) == {
        "form": "nominal", "number": "ordered", "_category": "ignore", "role": "ignore"
    }  # fmt: skip
    with refused("no column of words.csv", "sentence", "'role'"):
        apply_roles(table)
    # Beside sentences under another name it is carried along, though it has more words.
    rows = [f"the {n} sings,what _ is about the {n} th one,{n % 2}\n" for n in range(9)]
    table = read_table(("Satz,_category,f\n" + "".join(rows)).encode())
    assert guess_roles(table) == {"Satz": "sentence", "_category": "ignore", "f": "ordered"}


def test_texts_that_seldom_recur_are_no_features():
    """Nor are numbers that a file declares to be text, where each is there once: they are names."""
    rows = pd.DataFrame({"sentence": [f"the dog {n} runs" for n in range(44)]})
    rows["often"], rows["seldom"] = ([f"in {n // k}" for n in range(44)] for k in (2, 1.5))
    rows["few"], rows["id"] = [f"in {n % 20}" for n in range(44)], [str(n) for n in range(44)]
    table = read_table(rows.to_json(orient="records", lines=True).encode(), "a.jsonl")
    expected = ["sentence", "nominal", "ignore", "nominal", "ignore"]
    assert [*guess_roles(table).values()] == expected
    (note,) = apply_roles(table).notes
    assert "'seldom' has texts that seldom recur" in note
    assert "'id' has numbers that the file declares as text" in note
    assert apply_roles(table, {"seldom": "nominal"}).features[1].name == "seldom"
    assert guess_roles(read_table(rows.to_csv(index=False).encode()))["id"] == "ordered"


def test_a_column_of_words_says_which_is_the_stimulus_if_it_holds_words_of_the_sentence():
    inside = read_table(b"sentence,word,f\nthe dog runs,Dog,1\na cat sits,cat,2\n")
    assert guess_roles(inside)["word"] == "word_index"
    assert apply_roles(inside).word_index.tolist() == [1, 1]
    # Without words, a column does that numbers different words of sentences that recur.
    places = b"sentence,Position,f\nthe dog runs,0,1\nthe dog runs,2,2\na cat sits,1,3\n"
    assert guess_roles(read_table(places))["Position"] == "word_index"
    assert apply_roles(read_table(places)).words == ["the", "runs", "cat"]
    for other in (places.replace(b"runs,2", b"runs,3"), places.replace(b"runs,2", b"runs,0")):
        assert guess_roles(read_table(other))["Position"] == "ordered"
    other = read_table(b"sentence,word,f\nthe dog runs,x1,1\na cat sits,x2,2\n")
    assert guess_roles(other)["word"] == "word"
    read = apply_roles(other)
    assert read.level == "sentence" and read.words == read.sentences and read.word_index is None
    both = read_table(b"sentence,word_index,word,f\nthe dog,1,dog,1\na cat,1,dog,2\n")
    with refused("row 2", "'dog'", "word_index 1"):
        apply_roles(both)
    assert apply_roles(both, {"word": "ignore"}).words == ["dog", "cat"]


def test_one_word_over_sentences_is_a_name_so_that_a_number_beside_it_is_one_too():
    rows = "the dog runs,5,noun\na cat sits,6,verb\nmy bird is,9,noun\n"
    notes = read_csv(f"a,1,b\n{rows}".encode()).notes
    assert any("header" in note and "'1'" in note for note in notes)


def test_thousands_among_decimal_commas_are_said():
    rows = "".join(f"a {i};{i},5;{i}.234;{i},250\n" for i in range(1, 9))
    stimuli = read_csv(f"sentence;f;n;m\n{rows}".encode())
    assert stimuli.values("n")[0] == 1.234 and stimuli.values("m")[0] == 1.25
    said = [note for note in stimuli.notes if "thousands" in note]
    assert [("'n'" in note, "'m'" in note) for note in said] == [(True, False), (False, True)]


MARKED = "sentence;f;g\nl'été;1,5;-\nun œuf;2;x\nla mère;-;y\n".encode("cp1252")


@for_each(
    "notes, sentence",
    (
        lambda: read_csv(OTHER.encode(), name="other.csv").notes,
        "In other.csv 'Text' is the sentence, 'target' says which word is the stimulus and "
        "'constant' has one value only and is no feature.",
    ),
    (
        lambda: read_csv(MARKED, name="mine.csv").notes,
        "mine.csv was read as Windows-1252 text separated by semicolons; numbers have a "
        "decimal comma; '-' is a missing value.",
    ),
)
def test_what_is_said_of_a_table(notes, sentence):
    assert notes() == (sentence,)
