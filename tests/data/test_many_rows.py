"""What looks at each distinct cell once, against what looks at every row; and 60,000 rows."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import refused

from mlem_core.data import datasets
from mlem_core.data.added import ADDED, count_words
from mlem_core.data.columns import coded, text_of, texts
from mlem_core.data.csvfile import _BLOCK, _FORMULA, write_table
from mlem_core.data.folds import stimulus_folds
from mlem_core.data.reading import delimited
from mlem_core.data.reading.delimited import parse
from mlem_core.data.reading.table import read_table
from mlem_core.data.roles import apply_roles
from mlem_core.data.stimulus_table import from_frame, read_written, write_csv
from mlem_core.data.words import bare, places, words_at, words_in
from mlem_core.models.representations import _digest

MANY = 60_000
WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
SENTENCE = st.lists(st.sampled_from(["The", "the", "cat,", "cat", "–", "'s", "dog"])).map(" ".join)


def by_row(frame: pd.DataFrame) -> list[list[str | None]]:
    return [[text_of(cell) for cell in frame.iloc[:, i]] for i in range(frame.shape[1])]


@pytest.mark.parametrize(
    "cells",
    [
        [1, 1.0, True, "1", None, float("nan"), pd.NA, ""],
        ["a", "", None, float("nan"), "a", "NaN", "0"],
        [0.0, -0.0, 1e300, float("nan"), float("inf"), 2.0**60, 0.1],
        [3, -3, 0],
        [True, False, True],
        ["a", 1.0, 1, None],
        [np.float64(1.5), 1.5, "1.5", np.nan],
    ],
)
@pytest.mark.parametrize("dtype", [None, object, "str", "string", "category"])
def test_a_columns_texts_are_those_of_its_cells(cells, dtype):
    column = pd.Series(cells, dtype=dtype)
    expected = [text_of(cell) for cell in column]
    assert texts(column) == expected
    codes, distinct = coded(column)
    assert distinct[codes].tolist() == expected and distinct[-1] is None
    nullable = pd.Series([1.5, 2, None], dtype="Float64")
    assert texts(nullable) == ["1.5", "2", None]


@pytest.mark.parametrize("name", datasets.SETS)
def test_digests_are_those_of_the_whole_as_json(name):
    stimuli = datasets.load(name)
    content = {
        "columns": [[c, [text_of(cell) for cell in stimuli.table[c]]] for c in stimuli.table],
        "features": [[feature.name, feature.kind] for feature in stimuli.features],
    }
    canonical = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    assert stimuli.digest == hashlib.sha256(canonical.encode()).hexdigest()
    words = None if stimuli.word_index is None else stimuli.word_index.tolist()
    hidden = json.dumps([stimuli.sentences, words])
    assert _digest(stimuli) == hashlib.sha256(hidden.encode()).hexdigest()


@given(st.lists(st.tuples(WORD, SENTENCE), min_size=1))
def test_words_are_found_as_row_by_row(rows):
    words, sentences = zip(*rows, strict=True)
    assert words_in(sentences).tolist() == [len(sentence.split()) for sentence in sentences]
    times, place = places(words, sentences)
    for row, (word, sentence) in enumerate(rows):
        same = [i for i, other in enumerate(sentence.split()) if bare(other) == bare(word)]
        assert times[row] == len(same)
        assert not same or place[row] == same[0]
    filled = [sentence for sentence in sentences if sentence]
    index = np.array([len(sentence.split()) // 2 for sentence in filled], dtype=np.int64)
    expected = [s.split()[i] for s, i in zip(filled, index, strict=True)]
    assert words_at(filled, index) == expected


def test_sentences_are_split_some_at_a_time(monkeypatch):
    monkeypatch.setattr("mlem_core.data.words._BLOCK", 2)
    sentences = ["a b", "", "c", "a b", "d e f", None, "c", "g"]
    assert words_in(sentences).tolist() == [2, 0, 1, 2, 3, 0, 1, 1]
    times, place = places(["B", "x", "c", "a", "f!", "f", None, "g"], sentences)
    assert times.tolist() == [1, 0, 1, 1, 1, 0, 0, 1]
    assert place[times > 0].tolist() == [1, 0, 0, 2, 0]


def parse_by_row(text: str) -> list[list[str | None]]:
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if any(row)]
    plain = [[re.sub(r"^'(?='*[=+\-@\t\r\n＝＋－＠])", "", cell) for cell in row] for row in rows]
    return [[cell or None for cell in row] for row in plain[1:]]


@given(st.lists(st.tuples(WORD, WORD), max_size=9))
def test_cells_are_read_as_row_by_row_whatever_the_block(rows):
    file = io.StringIO(newline="")
    csv.writer(file).writerows([("a", "b"), *rows])
    text = file.getvalue()
    for block in (1, 2, 50_000):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(delimited, "_BLOCK", block)
            header, columns = parse(text, "t")
        assert header == ["a", "b"]
        assert [list(row) for row in zip(*columns, strict=True)] == parse_by_row(text)


@pytest.mark.parametrize("block", [1, 3, 50_000])
@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ('a,b\n1,2\n\n3\n4,"5', ("row 2 of t", "1 cells", "2")),
        ('a,b\n1,2\n\n3,3\n4,"5', ("row 3 of t",)),
        ('a,"b', ("header of t",)),
    ],
)
def test_the_first_wrong_row_is_named_whatever_the_block(monkeypatch, block, text, facts):
    monkeypatch.setattr(delimited, "_BLOCK", block)
    with refused(*facts):
        parse(text, "t")


def write_by_row(frame: pd.DataFrame) -> str:
    lines: list[str] = []
    for row in [tuple(map(str, frame.columns)), *frame.itertuples(index=False, name=None)]:
        cells = []
        for value in row:
            text = text_of(value) or ""
            if isinstance(value, float) and value == value:
                text = repr(value)
            risky = isinstance(value, str) and _FORMULA.match(text)
            if risky and not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII):
                text = f"'{text}"
            cells.append(text)
        file = io.StringIO(newline="")
        csv.writer(file, lineterminator="\r\n").writerow(cells)
        lines.append(file.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


@given(
    st.lists(st.tuples(WORD, st.floats(allow_nan=False), st.none() | WORD), max_size=8),
    st.sampled_from([object, "str"]),
)
def test_tables_are_written_as_row_by_row(rows, dtype):
    frame = pd.DataFrame(rows, columns=["=a", "number", 'b"'])
    frame = frame.astype({"=a": dtype, 'b"': dtype})
    for table in (frame, frame[['b"']]):
        file = io.StringIO(newline="")
        write_table(table, file)
        assert file.getvalue() == write_by_row(table)


def test_equal_cells_of_several_kinds_are_written_each_in_its_way():
    frame = pd.DataFrame({"f": pd.Series([1, True, 1.0, 0.0, -0.0, None, "=1"], dtype=object)})
    file = io.StringIO(newline="")
    write_table(frame, file)
    assert file.getvalue() == 'f\n1\nTrue\n1.0\n0.0\n-0.0\n""\n\'=1\n'


def many_words() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    vocabulary = np.array([f"w{number}" for number in range(3_000)])
    drawn = vocabulary[rng.integers(len(vocabulary), size=(MANY // 10, 10))]
    sentences = [" ".join(words) for words in drawn]
    frame = pd.DataFrame(
        {
            "sentence": np.repeat(sentences, 10),
            "word_index": np.tile(np.arange(10), len(sentences)),
            "word": drawn.ravel(),
            "kind": rng.choice(["noun", "verb", ""], MANY),
            "length": rng.integers(1, 9, MANY),
            "frequency": np.round(rng.normal(size=MANY), 3),
        }
    )
    return frame.astype({"kind": object})


def test_many_rows_go_from_the_file_to_folds_and_back(tmp_path):
    frame = many_words()
    write_table(frame, tmp_path / "many.csv")
    assert len(frame) > _BLOCK
    stimuli = apply_roles(read_table(tmp_path / "many.csv"))
    assert len(stimuli) == MANY and stimuli.level == "word"
    assert stimuli.words == frame["word"].tolist()
    assert stimuli.values("kind").tolist() == [kind or None for kind in frame["kind"]]
    np.testing.assert_array_equal(stimuli.values("frequency"), frame["frequency"])
    for over in ("sentences", "items", "both"):
        folds = stimulus_folds(stimuli, over, 5, 0)
        together = stimuli.groups if over == "sentences" else stimuli.items
        if over != "both":
            pairs = pd.DataFrame({"fold": folds, "group": together}).drop_duplicates()
            assert not pairs["group"].duplicated().any()
        sizes = np.bincount(folds[folds >= 0])
        assert len(sizes) == 5 and sizes.max() < 1.2 * sizes.min()
    write_csv(stimuli, tmp_path / "again.csv")
    again = read_written(tmp_path / "again.csv", name=stimuli.name)
    assert again.digest == stimuli.digest
    lengths = ADDED["sentence_length"].values(stimuli, "en")
    assert set(lengths) == {10.0} and count_words(stimuli.sentences[0]) == 10


def test_the_first_wrong_of_many_rows_is_named():
    frame = many_words()
    wrong = {"word_index": (40_000, 10), "word": (40_000, "w"), "length": (40_001, "x")}
    facts = {
        "word_index": ("word_index", "row 40001", "'10'", "0 to 9"),
        "word": ("row 40001", "'w'", "word_index 0"),
        "length": ("'length'", "'x'", "row 40002"),
    }
    for column, (row, value) in wrong.items():
        cells = frame[column].astype(object)
        cells[[row, row + 5]] = value
        with refused(*facts[column]):
            from_frame(frame.assign(**{column: cells}), "many", ordered=["length"])
