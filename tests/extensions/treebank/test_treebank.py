"""Treebanks against a second parse of our own and against trees whose numbers are known."""

import re

import numpy as np
import pandas as pd
from helpers.inputs import for_each, refused

from mlem_core.extensions.treebank.stimuli import read_treebank, sample_rows
from mlem_core.stimuli import datasets
from mlem_core.stimuli.formats import find_files

FILE = datasets.SETS["treebank"].file
TEXT = FILE.read_text("utf-8")


def lines(*rows):
    """CoNLL-U of `id form lemma upos feats head relation misc`, separated by spaces."""
    full = []
    for row in rows:
        id, form, lemma, upos, feats, head, relation, misc = row.split()
        columns = (id, form, lemma, upos, "_", feats, head, relation, "_", misc)
        full.append("\t".join(columns).replace("~", " "))
    return "\n".join(full) + "\n\n"


# The head of each word, its distance and depth are written out beside it.
TREE = lines(
    "1 Mary Mary PROPN Number=Sing 2 nsubj _",  # 1 away, after; depth 1
    "2-3 doesn't _ _ _ _ _ _",
    "2 does do AUX Tense=Pres|VerbForm=Fin 4 aux _",
    "3 n't not PART _ 4 advmod _",
    "4 see see VERB VerbForm=Inf 0 root _",  # depth 0
    "5 the the DET _ 7 det _",  # 2 away, after; depth 2
    "5.1 big big ADJ _ _ _ _",
    "6 1~000 1000 NUM _ 7 nummod _",  # 1 away, after; depth 2
    "7 dogs dog NOUN Number=Plur 4 obj SpaceAfter=No",  # 3 away, before; depth 1
    "8 . . PUNCT _ 4 punct _",
).replace("2\tnsubj", "4\tnsubj")
OTHER = lines(
    "1 Dogs dog NOUN Number=Plur 2 nsubj _",
    "2 sleep sleep VERB Tense=Pres|VerbForm=Fin 0 root _",
    "3 and and CCONJ _ 5 cc _",
    "4 Tom Tom PROPN Number=Sing 5 nsubj _",
    "5 sings sing VERB Tense=Pres|VerbForm=Fin 2 conj _",
)


def test_words_have_the_places_heads_and_depths_of_a_tree_that_is_known():
    stimuli = read_treebank([(TREE + OTHER + TREE).encode()])
    table = stimuli.table.iloc[:5]
    assert set(table["sentence"]) == {"Mary doesn't see the 1 000 dogs ."}
    assert stimuli.words[:5] == ["Mary", "see", "the", "000", "dogs"]
    assert table["item"].tolist() == ["mary", "see", "the", "1000", "dog"]
    np.testing.assert_array_equal(table["head_distance"], [3, np.nan, 2, 1, 3])
    assert table["head_direction"].fillna("").tolist() == ["after", "", "after", "after", "before"]
    assert table["depth"].tolist() == [1, 0, 2, 2, 1]
    assert set(table["sentence_length"]) == {7}  # 1 and 000 are two written words
    said = " ".join(stimuli.notes)
    assert "No stimuli: the 2 parts of multiword tokens" in said
    assert "Left out: empty nodes (1)" in said


def test_sentences_have_the_clauses_and_tense_of_a_tree_that_is_known():
    clauses = lines(
        "1 he he PRON _ 2 nsubj _",
        "2 said say VERB Tense=Past|VerbForm=Fin 0 root _",
        "3 she she PRON _ 4 nsubj _",
        "4 sings sing VERB Tense=Pres|VerbForm=Fin 2 ccomp _",
        "5 and and CCONJ _ 6 cc _",
        "6 dances dance VERB Tense=Pres|VerbForm=Fin 4 conj _",  # without a subject: no clause
    )
    stimuli = read_treebank([(TREE + OTHER + clauses).encode()], "sentence")
    table = stimuli.table
    assert stimuli.level == "sentence"
    assert table["n_clauses"].tolist() == [1, 2, 2]
    assert table["root_tense"].tolist() == ["Pres", "Pres", "Past"]
    assert table["depth"].tolist() == [2, 2, 3]
    assert table["sentence_length"].tolist() == [7, 5, 6]


def second_parse():
    """The words of the shipped treebank by splitting lines, walking up to the root each time."""
    rows = []
    for block in TEXT.strip().split("\n\n"):
        cells = [line.split("\t") for line in block.splitlines() if not line.startswith("#")]
        joined = {
            n
            for c in cells
            if "-" in c[0]
            for n in range(int(c[0].split("-")[0]), int(c[0].split("-")[1]) + 1)
        }
        words = {int(c[0]): c for c in cells if c[0].isdecimal()}
        inside = {str(number) for number in joined}
        surface = [c for c in cells if "." not in c[0] and c[0] not in inside]
        place = {c[0]: i for i, c in enumerate(surface)}
        for number, c in words.items():
            if number in joined or c[3] == "PUNCT":
                continue
            depth, at = 0, number
            while words[at][6] != "0":
                at = int(words[at][6])
                depth += 1
            head = int(c[6])
            feats = dict(pair.split("=") for pair in c[5].split("|") if pair != "_")
            rows.append(
                {
                    "sentence": " ".join(c[1] for c in surface),
                    "word_index": place[c[0]],
                    "upos": c[3],
                    "tense": feats.get("Tense"),
                    "number": feats.get("Number"),
                    "relation": c[7].split(":")[0],
                    "head_distance": abs(head - number) if head else None,
                    "depth": depth,
                }
            )
    return rows


def test_the_shipped_treebank_is_what_a_second_parse_gives():
    expected = pd.DataFrame(second_parse())
    stimuli = datasets.load("treebank")
    assert len(stimuli) == len(expected) == 1651
    for name in expected:
        ours = stimuli.table[name]
        if name in ("word_index", "head_distance", "depth"):
            np.testing.assert_array_equal(ours, expected[name].astype(float))
        else:
            assert ours.fillna("").tolist() == expected[name].fillna("").tolist()


@for_each(
    "change",
    lambda text: text.replace("\n", "\r"),
    lambda text: text.replace("\n", "\r\n", 40),
    "\ufeff{}".format,
    str.rstrip,
    lambda text: text.replace("\t_\n", "\t_ \n"),
    lambda text: text.replace("\n2\t", "\n# note\n2\t"),
    lambda text: re.sub(r"(\w+=\w+)\|(\w+=\w+)", r"\2|\1", text),
    lambda text: re.sub(r"(?m)^((?:[^\t\n]*\t){7}[^\t_]+)\t", r"\1:sub\t", text),
)
def test_a_treebank_that_is_written_otherwise_is_the_same(change):
    assert change(TEXT) != TEXT
    found = read_treebank([change(TEXT).encode()])
    pd.testing.assert_frame_equal(found.table, datasets.load("treebank").table)


def test_one_path_content_or_file_needs_no_list(tmp_path):
    row = "{}\t{}\t_\t{}\t_\t_\t{}\tdep\t_\t_\n"
    text = row.format(1, "birds", "NOUN", 2) + row.format(2, "sing", "VERB", 0) + "\n"
    path = tmp_path / "two.conllu"
    path.write_text(text)
    expected = read_treebank([text.encode()]).table
    for source in (path, str(path), text.encode(), [path]):
        pd.testing.assert_frame_equal(read_treebank(source).table, expected)
    with path.open("rb") as file:
        pd.testing.assert_frame_equal(read_treebank(file).table, expected)


@for_each(
    "old, new, why",
    ("\t0\troot", "\t7\troot", "has 0 roots"),
    ("\t7\tdet", "\t99\tdet", "whose head is no word"),
    ("\t7\tdet", "\t0\tdet", "has 2 roots"),
    ("\t4\tobj", "\t5\tobj", "a circle of heads"),
)
def test_a_sentence_without_a_tree_is_left_out_and_said(old, new, why):
    assert old in TREE
    bad = "# sent_id = bad-1\n" + TREE.replace(old, new)
    stimuli = read_treebank([(bad + OTHER).encode()])
    assert set(stimuli.sentences) == {"Dogs sleep and Tom sings"}
    assert any("'bad-1'" in note and why in note for note in stimuli.notes)
    with refused("no sentence", why):
        read_treebank([bad.encode()])
    with refused("has no forms"):
        read_treebank([re.sub(r"(?m)^(\d+)\t\S+", r"\1\t_", OTHER).encode()])


def test_files_folders_and_patterns(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.conllu").write_text(TREE if name == "a" else OTHER)
    (tmp_path / "readme.txt").write_text("x")
    both = [tmp_path / "a.conllu", tmp_path / "b.conllu"]
    assert find_files(str(tmp_path)) == find_files(str(tmp_path / "*.conllu")) == both
    assert find_files(str(both[0])) == both[:1]
    with refused("cannot be read"):
        read_treebank([tmp_path / "none.conllu"])
    stimuli = read_treebank(both)
    assert stimuli.name == "a.conllu and 1 more"
    assert set(stimuli.table["_sent_id"]) == {"a:1", "b:1"}
    one = read_treebank([(TREE + OTHER).encode()])
    pd.testing.assert_frame_equal(
        one.table.drop(columns="_sent_id"), stimuli.table.drop(columns="_sent_id")
    )


def test_a_sample_has_whole_sentences_and_is_the_same_for_a_seed():
    whole = read_treebank([FILE])
    one, same, other = (read_treebank([FILE], "word", 200, seed=s) for s in (1, 1, 2))
    assert one.digest == same.digest != other.digest
    assert 200 <= len(one) < 215
    for sentence, rows in one.table.groupby("sentence"):
        assert len(rows) == (whole.table["sentence"] == sentence).sum()
    assert any("A sample of" in note and "seed 1" in note for note in one.notes)
    assert len(read_treebank([FILE], "sentence", 50)) == 50


def test_a_balanced_sample_recovers_a_planted_rare_value():
    """One in ten groups has the rare value; a balanced sample takes about as many of both."""
    rng = np.random.default_rng(0)
    n = 2000
    frame = pd.DataFrame({"f": np.where(np.repeat(rng.random(n) < 0.1, 3), "rare", "common")})
    groups = np.repeat(np.arange(n), 3)
    at_random = frame["f"][sample_rows(frame, groups, 300, seed=1)]
    balanced = frame["f"][sample_rows(frame, groups, 300, ["f"], seed=1)]
    assert (at_random == "rare").mean() < 0.2
    assert abs((balanced == "rare").mean() - 0.5) < 0.02
    kept = sample_rows(frame, groups, 300, ["f"], seed=1)
    assert set(np.bincount(groups[kept])) == {0, 3}
    with refused("'tens'", "tense"):
        read_treebank([FILE], "word", 100, ("tens",))
    with refused("1 stimuli"):
        read_treebank([FILE], "word", 1)


FIRST = OTHER.splitlines()[0]


def edited(column, value, row=0):
    """The known sentence with another value in a column (from 0) of a row, then a good one."""
    rows = [line.split("\t") for line in OTHER.strip().splitlines()]
    rows[row][column] = value
    return "\n".join(map("\t".join, rows)) + "\n\n" + TREE


@for_each(
    "data, line, fact",
    (OTHER.replace("\t_\t_\n", "\t_\n", 1), 1, "9 columns"),
    (OTHER.replace(FIRST, f"{FIRST}\t_"), 1, "11 columns"),
    (OTHER.replace("\t", "  "), 1, "1 column"),
    (edited(0, "0"), 1, "'0', not 1"),
    (edited(0, "1", row=1), 2, "'1', not 2"),
    (edited(0, "٢", row=1), 2, "not 2"),
    (edited(0, "3-4", row=1), 2, "'3-4', not 2"),
    (edited(0, "3.1", row=1), 2, "'3.1', not 2"),
    (OTHER.replace(FIRST, lines("2-1 Dogs _ _ _ _ _ _").strip()), 1, "'2-1'"),
    (lines("1-9 Dogs _ _ _ _ _ _").strip() + "\n" + OTHER, 6, "ends at 9"),
    (TREE.replace("3\tn't", "3-4\tn't" + "\t_" * 8 + "\n3\tn't"), 4, "'3-4'"),
    (edited(6, "1.0"), 1, "HEAD '1.0'"),
    (edited(6, "02"), 1, "HEAD '02'"),
    (edited(6, "9" * 5_000), 1, "HEAD '999"),
    (edited(5, "Plur"), 1, "'Plur' in FEATS"),
    (edited(5, "Number=Plur|Number=Sing"), 1, "'Number=Sing' in FEATS"),
    ("# global.columns = ID FORM UPOS\n" + OTHER, 1, "columns"),
)
def test_a_line_that_breaks_the_format_is_named(data, line, fact):
    with refused("sentence 1 of", f"line {line} ", fact):
        read_treebank([data.encode()])


@for_each(
    "column, value, fact",
    (1, "New York", "written with a space (2)"),
    (1, "a\u200bb", "zero width space (U+200B) in row 1"),
    (1, "&amp;", "a character of HTML"),
    (1, "cafÃ©", "read in another encoding in row 1"),
    (1, "e\u0301lan", "(NFC) in row 1"),
    (1, "\u3000", "'1' has a word without a form (line 1)"),
    (1, "", "'1' has a word without a form (line 1)"),
    (3, "noun", "'noun' (row 1) and 'NOUN' (row 10)"),
    (7, "NSUBJ", "'NSUBJ' (row 1) and 'nsubj' (row 4)"),
    (8, "1:x|2:y", "the enhanced dependencies of 1 words"),
)
def test_a_cell_that_is_hardly_meant_is_said(column, value, fact):
    notes = read_treebank([edited(column, value).encode()]).notes
    assert any(fact in note for note in notes), notes


def test_values_in_another_order_are_one_and_another_encoding_is_said():
    both = [edited(5, f"Number={cell}").encode() for cell in ("Plur,Sing", "Sing,Plur")]
    one, other = (read_treebank([data]).table for data in both)
    pd.testing.assert_frame_equal(one, other)
    latin = read_treebank([TEXT.replace("Sue", "Zoë").encode("cp1252")])
    assert any("was read as Windows-1252" in note for note in latin.notes)
