"""Which word of a sentence is the stimulus, where numbers count from 0, from 1 or from nothing."""

import pandas as pd
from helpers.inputs import as_csv, for_each, refused

from mlem_core import AnalysisSpec, read_csv
from mlem_core.stimuli.reading.table import read_table
from mlem_core.stimuli.roles import guess_roles

FROM_1 = """sentence,word_index,kind
the old boy sleeps,1,det
the old boy sleeps,3,noun
the girls jump again,2,noun
the girls jump again,3,verb
"""
WORDS = ["the", "boy", "girls", "jump"]
AFTER = ["old", "sleeps", "jump", "again"]


def with_words(words):
    """The table with a column of words."""
    head, *rows = FROM_1.splitlines()
    cells = zip(rows, words, strict=True)
    return "\n".join([f"{head},word", *(f"{row},{word}" for row, word in cells)])


@for_each(
    "table, counts_from, words, doubted",
    (FROM_1, "auto", AFTER, True),
    (FROM_1, "0", AFTER, False),
    (FROM_1, "1", WORDS, False),
    (FROM_1.replace("sleeps,1", "sleeps,0"), "auto", ["the", *AFTER[1:]], False),
    (with_words(WORDS), "auto", WORDS, False),
    (with_words(AFTER), "auto", AFTER, False),
)
def test_numbers_from_1_are_a_doubt_unless_words_settle_it(table, counts_from, words, doubted):
    stimuli = read_csv(table.encode(), name="mine.csv", counts_from=counts_from)
    assert stimuli.words == words
    assert [(doubt.option, *doubt.values) for doubt in stimuli.doubts] == (
        [("counts_from", "1")] if doubted else []
    )
    if doubted:
        text = stimuli.doubts[0].sentence
        assert text in stimuli.notes and "'old'" in text and "'the'" in text
    elif counts_from == "auto" and words == WORDS:
        assert any("counts words from 1" in note for note in stimuli.notes)


def test_what_only_fits_from_1_is_refused_with_the_choice_and_read_with_it(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(FROM_1.replace("again,3", "again,4"))
    with refused("row 4", "'4'", "--counts-from 1"):
        AnalysisSpec(str(path)).load_stimuli()
    read = AnalysisSpec(str(path), counts_from="1").load_stimuli()
    assert read.words == ["the", "boy", "girls", "again"]
    for number in (0, 5):
        with refused("'word_index'", f"'{number}' in row 4", "from 1 to 4"):
            table = FROM_1.replace("again,3", f"again,{number}").encode()
            read_csv(table, counts_from="1")
    with refused("no rows"):
        read_csv(b"sentence,word_index,f\n")
    with refused("counts-from", "probing"):
        AnalysisSpec("probing", counts_from="1").load_stimuli()
    with refused("'2'", "auto"):
        read_csv(FROM_1.encode(), counts_from="2")


TWICE = (
    "sentence,word,pos,f\nthe dog sees the cat,the,{}\nthe dog sees the cat,cat,{}\na dog,dog,{}\n"
)


@for_each("numbers", ("3,a", "4,b", "1,a"), ("4,a", "5,b", "2,a"))
def test_a_column_of_numbers_says_which_of_two_equal_words_it_is(numbers):
    table = TWICE.format(*numbers).encode()
    assert guess_roles(read_table(table))["pos"] == "word_index"
    assert read_csv(table).word_index.tolist() == [3, 4, 1]
    # Where each word is there once, numbers beside it may be a feature.
    once = table.replace(b"the dog sees", b"our dog sees")
    assert guess_roles(read_table(once))["pos"] == "ordered"


@for_each("rows, offered", ("021", True), ("132", True), ("032", False), ("011", False))
def test_numbers_in_sentences_that_recur_are_offered(rows, offered):
    sentences = "the dog runs", "the dog runs", "a cat sits"
    if rows == "011":
        sentences = "a b c", "the dog runs", "the dog runs"
    cells = "".join(
        f"{text},{at},{f}\n" for text, at, f in zip(sentences, rows, "uvw", strict=True)
    )
    stimuli = read_csv(f"sentence,where,f\n{cells}".encode(), name="mine.csv")
    values = [value for doubt in stimuli.doubts for value in doubt.values]
    assert stimuli.level == "sentence" and values == ["where=word_index"] * offered
    if offered:
        assert "3 of 3 rows" in stimuli.doubts[0].sentence


TABLE = pd.DataFrame(
    [("our dog sees the cat", "cat", 4), ("our dog sees the cat", "dog", 1)]
    + [(f"the {animal}", animal, 1) for animal in ("cow", "hen", "fox", "owl")],
    columns=["sentence", "target", "pos"],
).assign(f=[*"ababab"])


@for_each(
    "words, places, offered",
    ("target", TABLE["pos"], ["pos=word_index", "target=word"]),
    ("critical", TABLE["pos"], ["pos=word_index", "critical=word"]),
    ("critical", TABLE["pos"] + 1, ["pos=word_index", "critical=word"]),
    ("target", [4, 1, 1, 1, 1, 0], []),  # another word in one row
)
def test_numbers_that_lead_to_the_words_of_a_column_are_offered(words, places, offered):
    table = as_csv(TABLE.rename(columns={"target": words}).assign(pos=places))
    doubts = read_csv(table, name="mine.csv").doubts
    assert [value for doubt in doubts for value in doubt.values] == offered
    if offered:
        assert "6 of 6 rows" in doubts[0].sentence
        read = read_csv(table, roles=dict(value.split("=") for value in offered))
        assert read.words == [*TABLE["target"]] and len(read.features) == 1


@for_each(
    "numbers, offered",
    ([1, 1, 2, 3, 4, 5], True),
    ([*"xxyzuv"], True),
    ([5, 5, 2, 3, 4, 6], False),  # may be a length
    ([1, 1, 2, 3, 4, 4], False),
    ([1, 2, 3, 4, 5, 6], False),
)
def test_what_numbers_or_names_the_sentences_is_offered_to_keep_rows_together(numbers, offered):
    table = as_csv(TABLE.rename(columns={"pos": "word_index"}).assign(part=numbers))
    values = [doubt.values for doubt in read_csv(table).doubts]
    assert values == [("part=sentence_id",)] * offered
    if offered:
        read = read_csv(table, roles={"part": "sentence_id"})
        assert read.groups.tolist() == [0, 0, 1, 2, 3, 4]
