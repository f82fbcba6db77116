"""Treebanks against a second parse of our own and against trees whose numbers are known."""

from __future__ import annotations

import io
import re
import time
from collections import Counter

import conllu
import numpy as np
import pandas as pd
import pytest
from inputs import refused

from grammars import treebank as grammar
from mlem_core.data import datasets
from mlem_core.data.reading.conllu import MOST_FEATURES, MOST_WORDS, Token, _problem
from mlem_core.data.sampling import sample_rows
from mlem_core.data.treebank import Sampling, read_treebank, treebank_paths
from mlem_core.data.words import bare

FILE = datasets.SETS["treebank"].file


def lines(*rows: str) -> str:
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
    assert "No stimuli: 2 syntactic words in 1 multiword token" in said
    assert "No space follows 1 of its 13 words" in said
    assert "Of 1 word written with a space the last part" in said
    assert "1 empty node" in said and "1 sentence with a text that had occurred" in said


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


def second_parse() -> list[dict[str, object]]:
    """The words of the shipped treebank by splitting lines, walking up to the root each time."""
    rows = []
    for block in FILE.read_text("utf-8").strip().split("\n\n"):
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
    assert {"gender", "person", "verb_form"} <= {feature.name for feature in stimuli.features}


def test_the_shipped_treebank_is_the_one_that_its_rules_write():
    text = FILE.read_text("utf-8")
    assert text == grammar.text()
    sentences = conllu.parse(text)
    frames = Counter(s.metadata["sent_id"].split("-")[0] for s in sentences)
    assert frames == dict.fromkeys(grammar.FRAMES, grammar.EACH)
    # `# text` is the tokens once the spaces that SpaceAfter=No takes away are gone.
    written = read_treebank([FILE], "sentence").sentences
    said = [s.metadata["text"] for s in sentences]
    assert [s.replace(" .", ".").replace(" ?", "?") for s in written] == said


def test_frames_have_the_clauses_that_their_rules_make():
    table = read_treebank([FILE], "sentence").table
    frame = table["_sent_id"].str.rpartition("-")[0]
    clauses = dict.fromkeys(grammar.FRAMES, 1)
    clauses |= dict.fromkeys(("clausal", "relative", "coordinated", "adverbial", "controlled"), 2)
    assert table["n_clauses"].tolist() == [clauses[name] for name in frame]


# --- what is no treebank ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("\t0\troot", "\t7\troot", "has 0 roots"),
        ("\t7\tdet", "\t99\tdet", "whose head is no word"),
        ("\t7\tdet", "\t0\tdet", "has 2 roots"),
        ("\t4\tobj", "\t5\tobj", "a circle of heads through word 5"),
        ("\t7\tdet", "\t5\tdet", "a circle of heads through word 5"),
        ("\t7\tdet", "\t_\tdet", "whose head is no word"),
    ],
)
def test_a_sentence_without_a_tree_is_left_out_and_said(old, new, why):
    assert old in TREE
    bad = "# sent_id = bad-1\n" + TREE.replace(old, new)
    stimuli = read_treebank([(bad + OTHER).encode()])
    assert set(stimuli.sentences) == {"Dogs sleep and Tom sings"}
    assert any("'bad-1'" in note and why in note for note in stimuli.notes)
    with refused("no sentence", why):
        read_treebank([bad.encode()])


@pytest.mark.parametrize(
    ("data", "level", "facts"),
    [
        (TREE + "just text\n", "word", ("sentence 2", "CoNLL-U")),
        (lines("1 _ _ NOUN _ 0 root _"), "word", ("no forms",)),
        (TREE, "words", ("'words'", "word")),
    ],
)
def test_what_is_no_conllu_is_refused(data, level, facts):
    with refused(*facts):
        read_treebank([data.encode()], level)


def test_no_file_and_one_that_is_not_there(tmp_path):
    with refused("cannot be read"):
        read_treebank([tmp_path / "none.conllu"])
    with refused("at least one"):
        read_treebank([])


def test_without_trees_and_lemmas_the_rest_is_there():
    rows = [
        "1 Dogs _ NOUN Number=Plur _ _ _",
        "2 sleep _ VERB Tense=Pres _ _ _",
        "3 never _ ADV _ _ _ _",
    ]
    other = [row.replace("Dogs", "Cat").replace("Plur", "Sing") for row in rows]
    other[1] = other[1].replace("Pres", "Past")
    stimuli = read_treebank([(lines(*rows) + lines(*other) + lines(*rows[:2])).encode()])
    names = [feature.name for feature in stimuli.features]
    assert "relation" not in names and "depth" not in names and "upos" in names
    assert stimuli.table["item"].tolist()[:3] == ["dogs", "sleep", "never"]


def test_values_that_are_numbers_are_names():
    rows = ["1 I I PRON Person=1 2 nsubj _", "2 go go VERB Person=1 0 root _"]
    other = [row.replace("Person=1", "Person=2").replace("I", "you") for row in rows]
    stimuli = read_treebank([(lines(*rows) + lines(*other)).encode()])
    assert set(stimuli.values("person")) == {"person 1", "person 2"}


def test_features_without_two_frequent_values_are_left_out_and_said():
    odd = OTHER.replace("Tense=Pres|VerbForm=Fin\t0", "Tense=Pres|Mood=Imp|VerbForm=Fin\t0")
    stimuli = read_treebank([(TREE + odd).encode()])
    assert "mood" not in stimuli.table and "verb_form" not in stimuli.table
    assert any("mood" in note and "frequent enough" in note for note in stimuli.notes)


def test_files_folders_and_patterns(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.conllu").write_text(TREE if name == "a" else OTHER)
    (tmp_path / "readme.txt").write_text("x")
    both = [tmp_path / "a.conllu", tmp_path / "b.conllu"]
    assert treebank_paths(str(tmp_path)) == treebank_paths(str(tmp_path / "*.conllu")) == both
    assert treebank_paths(str(both[0])) == both[:1]
    stimuli = read_treebank(both)
    assert stimuli.name == "a.conllu and 1 more"
    assert set(stimuli.table["_sent_id"]) == {"a:1", "b:1"}
    one = read_treebank([(TREE + OTHER).encode()])
    pd.testing.assert_frame_equal(
        one.table.drop(columns="_sent_id"), stimuli.table.drop(columns="_sent_id")
    )
    utf16 = io.BytesIO((TREE + OTHER).encode("utf-16"))
    assert read_treebank([utf16]).digest == one.digest


# --- samples ---------------------------------------------------------------------------------


def test_a_sample_has_whole_sentences_and_is_the_same_for_a_seed():
    whole = read_treebank([FILE])
    one, same, other = (read_treebank([FILE], "word", Sampling(200, seed=s)) for s in (1, 1, 2))
    assert one.digest == same.digest != other.digest
    assert 200 <= len(one) < 215
    for sentence, rows in one.table.groupby("sentence"):
        assert len(rows) == (whole.table["sentence"] == sentence).sum()
    assert any("A sample of" in note and "seed 1" in note for note in one.notes)
    assert len(read_treebank([FILE], "word", Sampling(10**6))) == len(whole)
    assert len(read_treebank([FILE], "sentence", Sampling(50))) == 50


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


def test_two_features_are_balanced_better_than_at_random():
    def unevenness(stimuli) -> float:
        return sum(
            float(((stimuli.table[name].value_counts(normalize=True) - 0.5) ** 2).sum())
            for name in ("tense", "number")
        )

    cost = {
        balance: np.mean(
            [unevenness(read_treebank([FILE], "word", Sampling(250, balance, s))) for s in range(5)]
        )
        for balance in ((), ("tense", "number"))
    }
    assert cost["tense", "number"] < 0.2 * cost[()]


def test_a_sample_that_cannot_be():
    with refused("'tens'", "tense"):
        read_treebank([FILE], "word", Sampling(100, ("tens",)))
    with refused("1 stimuli"):
        read_treebank([FILE], "word", Sampling(1))


# --- what breaks the format, or is too large -------------------------------------------------

FIRST = OTHER.splitlines()[0]


def edited(column: int, value: str, row: int = 0) -> str:
    """The known sentence with another value in a column (from 0) of a row, then a good one."""
    rows = [line.split("\t") for line in OTHER.strip().splitlines()]
    rows[row][column] = value
    return "\n".join(map("\t".join, rows)) + "\n\n" + TREE


@pytest.mark.parametrize(
    ("data", "line", "fact"),
    [
        (OTHER.replace("\t_\t_\n", "\t_\n", 1), 1, "9 columns"),
        (OTHER.replace(FIRST, f"{FIRST}\t_"), 1, "11 columns"),
        (OTHER.replace("\t", "  "), 1, "1 column"),
        (edited(0, "_"), 1, "'_', not 1"),
        (edited(0, "0"), 1, "'0', not 1"),
        (edited(0, "1", row=1), 2, "'1', not 2"),
        (edited(0, "4", row=1), 2, "'4', not 2"),
        (edited(0, "٢", row=1), 2, "not 2"),
        (edited(0, "3.1", row=1), 2, "'3.1', not 2"),
        (edited(0, "3-4", row=1), 2, "'3-4', not 2"),
        (OTHER.replace(FIRST, lines("2-1 Dogs _ _ _ _ _ _").strip()), 1, "'2-1'"),
        (lines("1-9 Dogs _ _ _ _ _ _").strip() + "\n" + OTHER, 6, "ends at 9"),
        (TREE.replace("3\tn't", "3-4\tn't" + "\t_" * 8 + "\n3\tn't"), 4, "'3-4'"),
        (edited(6, "1.0"), 1, "HEAD '1.0'"),
        (edited(6, "-1"), 1, "HEAD '-1'"),
        (edited(6, "9" * 5_000), 1, "HEAD '999"),
        (edited(5, "Plur"), 1, "'Plur' in FEATS"),
        (edited(5, "Number=Plur|Number=Sing"), 1, "'Number=Sing' in FEATS"),
        (edited(5, "Number="), 1, "'Number=' in FEATS"),
        ("# global.columns = ID FORM UPOS\n" + OTHER, 1, "columns"),
    ],
)
def test_a_line_that_breaks_the_format_is_named(data, line, fact):
    with refused("sentence 1 of", f"line {line} ", fact):
        read_treebank([data.encode()])


@pytest.mark.parametrize("form", ["", "\u00a0", "\u3000", "\u200b", "\ufeff", "\u00ad\u2060 "])
def test_a_word_that_nobody_sees_takes_no_other_s_place(form):
    stimuli = read_treebank([edited(1, form, row=3).encode()])
    assert set(stimuli.sentences) == {"Mary doesn't see the 1 000 dogs ."}
    assert any("without a form (line 4)" in note for note in stimuli.notes)
    with refused("form", "(line 1)"):
        read_treebank([lines("1 form _ NOUN _ 0 root _").replace("form", form).encode()])
    # The part of a multiword token is not written.
    part = TREE.replace("3\tn't", f"3\t{form}").encode()
    assert read_treebank([part]).words == ["Mary", "see", "the", "000", "dogs"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: "\n \n" + text + "\n\n",
        lambda text: f"# a\tb = c\n# newpar\n\n#\n{text}".replace("\n5\t", "\n# late\n5\t"),
        lambda text: text.replace("\tDogs\t", "\t Dogs \t"),
        lambda text: text.replace("\t_", "\t"),
        lambda text: text.rstrip(),
    ],
)
def test_what_does_not_change_a_treebank(change):
    assert read_treebank([change(OTHER).encode()]).digest == read_treebank([OTHER.encode()]).digest


def test_a_circle_is_found_where_it_is():
    """Not the word that hangs on it, which comes first."""
    rows = [f"{i} w{i} _ X _ {head} x _" for i, head in enumerate([3, 0, 5, 3, 4, 1], 1)]
    with refused("circle", "word 3"):
        read_treebank([lines(*rows).encode()])


@pytest.mark.parametrize("heads", ["chain", "chain back", "star"])
def test_what_a_long_sentence_takes_grows_with_its_words(heads):
    """Ten times the words take about ten times as long; a search for each takes a hundred times."""

    def seconds(n: int) -> float:
        numbers = {
            "chain": range(n),
            "chain back": [*range(2, n + 1), 0],
            "star": [0, *[1] * (n - 1)],
        }[heads]
        tokens = [Token("w", None, "X", {}, "x", head, None) for head in numbers]
        times = []
        for _ in range(3):
            begin = time.process_time()
            assert _problem(tokens) == ""
            times.append(time.process_time() - begin)
        return min(times)

    assert seconds(20_000) < 40 * max(seconds(2_000), 5e-4)


def test_sentences_words_and_features_are_bounded(monkeypatch):
    long = lines(*(f"{i} w{i} _ X _ {i - 1} x _" for i in range(1, MOST_WORDS + 2)))
    names = "|".join(f"F{i}=a" for i in range(MOST_FEATURES + 1))
    for data, facts in (
        (long, ("line 5,001", "word 5,001", "5,000")),
        (edited(5, names), ("204 features", "200")),
        (edited(5, "Number[psor]=Sing|NumberPsor=Plur"), ("'Number[psor]'", "'number_psor'")),
    ):
        with refused(*facts):
            read_treebank([data.encode()])
    monkeypatch.setattr("mlem_core.storage.room.free_memory", lambda: 10_000)
    with refused("fewer files"):
        read_treebank([TREE.encode()])
    monkeypatch.setattr("mlem_core.storage.room.free_memory", lambda: 100_000)
    monkeypatch.setattr("mlem_core.data.treebank._COPIES", 1_000)
    with refused("10 words", "smaller sample"):
        read_treebank([(TREE + OTHER).encode()])


@pytest.mark.parametrize(
    ("word", "inside"),
    [("«Él!»", "él"), ("?!", "?!"), ("a.", "a"), ("don't,\n", "don't"), ("", "")],
)
def test_a_bare_word_is_found_in_one_look_from_each_edge(word, inside):
    assert bare(word) == inside
    begin = time.process_time()
    assert bare(f"a{'!' * 200_000}b.") == f"a{'!' * 200_000}b"
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("1\tDogs", "# text = Dogs sleep and Tom\n1\tDogs", "text of 1 sentence .*'mine-1'"),
        ("1\tDogs", "# text = Dogs sleepand  Tom sings\n1\tDogs", ""),
        ("\tCCONJ\t", "\tcconj\t", "'cconj' in 'mine-1'"),
        ("\tPROPN\t", "\tPropn\t", "'Propn' in '1'"),
        ("5\tsings", "5\ts\u00adings", r"soft hyphen \(U\+00AD\)"),
        ("\tcc\t", "\tCONJ\t", "'relation' 'CONJ' .* 'conj' .* differ only in case"),
        ("5\tsings", "5\tsäings", "was read as Windows-1252"),
    ],
)
def test_what_a_treebank_may_mean_otherwise_is_said(old, new, says):
    text = TREE + "# sent_id = mine-1\n" + OTHER
    data = text.replace(old, new, 1).encode("cp1252" if "Windows" in says else "utf-8")
    notes = " ".join(read_treebank([data]).notes)
    if says:
        assert re.search(says, notes), notes
    else:
        assert notes == " ".join(read_treebank([text.encode()]).notes)


def test_values_of_a_feature_in_another_order_are_one():
    words = [
        lines(f"1 a a DET Gender={value}|Number=Sing 2 det _", f"2 w{n} w NOUN _ 0 root _")
        for n, value in enumerate(["Fem,Masc", "Masc,Fem", "Neut", "Neut"])
    ]
    stimuli = read_treebank(["".join(words).encode()])
    assert [g for g in stimuli.values("gender") if g] == ["Fem,Masc", "Fem,Masc", "Neut", "Neut"]
