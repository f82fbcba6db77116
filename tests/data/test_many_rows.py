"""What looks at each distinct cell once, against what looks at every row."""

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
from mlem_core.data.columns import coded, text_of, texts
from mlem_core.data.reading import content
from mlem_core.data.reading.content import parse
from mlem_core.data.stimulus_csv import _FORMULA, write_table
from mlem_core.models.representations import _digest

WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


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


def parse_by_row(text):
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
            patched.setattr(content, "_BLOCK", block)
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
    monkeypatch.setattr(content, "_BLOCK", block)
    with refused(*facts):
        parse(text, "t")


def write_by_row(frame):
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
