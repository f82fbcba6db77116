"""Stimuli: what a table becomes, is refused and read again, each distinct cell looked at once."""

import csv
import hashlib
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each, refused
from hypothesis import given
from hypothesis import strategies as st

from mlem_core import Feature, InputError, ReadAs, from_frame, read_csv, write_csv
from mlem_core.representations.layers import _digest
from mlem_core.stimuli import datasets
from mlem_core.stimuli.columns import cell_text, coded, texts
from mlem_core.stimuli.reading.content import MAX_BYTES, parse
from mlem_core.stimuli.stimulus_csv import _FORMULA, read_written, write_table

GOOD = """sentence,word_index,word,length,gender,asked,_note
the woman plays,1,woman,5,female,False,a
the woman plays,2,plays,5,,False,b
"Look, Mary fell",1,Mary,4,female,False,
do men sing,1,men,3,male,True,d
"""


def good(old="", new=""):
    assert old in GOOD
    return GOOD.replace(old, new, 1).encode() if old else GOOD.encode()


def test_reads_the_columns_as_the_contract_says():
    stimuli = read_csv(good(), name="mine.csv")
    assert (stimuli.name, stimuli.level, len(stimuli)) == ("mine.csv", "word", 4)
    kinds = {"length": "ordered", "gender": "nominal", "asked": "nominal"}
    assert stimuli.features == tuple(Feature(*one) for one in kinds.items())
    assert list(stimuli.table.columns) == GOOD.splitlines()[0].split(",")
    assert stimuli.word_index.tolist() == [1, 2, 1, 1]
    assert stimuli.words == ["woman", "plays", "Mary", "men"]
    assert stimuli.sentences[2] == "Look, Mary fell"
    assert stimuli.groups.tolist() == [0, 0, 1, 2]
    assert stimuli.values("length").tolist() == [5.0, 5.0, 4.0, 3.0]
    assert stimuli.values("gender").tolist() == ["female", None, "female", "male"]
    assert stimuli.values("asked").tolist() == ["False", "False", "False", "True"]
    assert pd.isna(stimuli.table["_note"][2])


def test_sentence_id_makes_the_groups():
    stimuli = read_csv(b"sentence,sentence_id,f\na,x,1\nb,y,2\nc,x,3\na,z,4\n")
    assert stimuli.groups.tolist() == [0, 1, 0, 2]


def test_items_are_words_that_recur_or_what_a_column_says():
    stimuli = read_csv(
        b"sentence,word_index,f\nThe dog runs,0,1\nThe dog runs,1,2\na dog. sits,1,3\nthe end,0,4\n"
    )
    assert stimuli.item_name == "word"
    np.testing.assert_array_equal(stimuli.items, [0, 1, 1, 0])
    np.testing.assert_array_equal(stimuli.take(np.array([2, 1])).items, [0, 0])
    # No word of these is in two sentences: each sentence has words of its own.
    assert stimuli.take(np.array([0, 1])).items is None
    twice = read_csv(b"sentence,word_index,f\nthe or the,0,1\nthe or the,2,2\nan end,0,3\n")
    assert twice.items is None
    assert read_csv(b"sentence,f\nthe dog,1\nthe cat,2\n").items is None
    given = read_csv(b"sentence,item,f\na b,x,1\nb c,y,2\nc d,x,3\n")
    assert given.item_name == "item" and given.features == (Feature("f", "ordered"),)
    np.testing.assert_array_equal(given.items, [0, 1, 0])


def test_kinds_can_be_overridden():
    stimuli = read_csv(good(), nominal=["length"])
    assert stimuli.features[0] == Feature("length", "nominal")
    assert stimuli.values("length").tolist() == ["5", "5", "4", "3"]
    again = stimuli.with_kinds(ordered=["length"])
    assert again.digest == read_csv(good()).digest != stimuli.digest
    assert again.values("length").tolist() == [5.0, 5.0, 4.0, 3.0]
    assert read_csv(good()).with_kinds(nominal=["length"]).digest == stimuli.digest


def test_all_kinds_of_numbers_are_ordered_and_missing_stays_missing():
    stimuli = read_csv(b"sentence,f,g\na,-1.5,x\nb,+2,y\nc,1e3,\nd,.5,\ne,,x\nf,-0,\n")
    assert stimuli.features[0] == Feature("f", "ordered")
    np.testing.assert_array_equal(stimuli.values("f"), [-1.5, 2, 1000, 0.5, np.nan, 0])
    nominal = stimuli.with_kinds(nominal=["f"])
    assert nominal.values("f").tolist() == ["-1.5", "2", "1000", "0.5", None, "0"]


@pytest.mark.parametrize("text", ["NaN", "NA", "null", "None", ".", "-"])
def test_words_for_missing_among_numbers(text):
    data = good("Mary,4", f"Mary,{text}")
    stimuli = read_csv(data)
    assert stimuli.features[0] == Feature("length", "ordered")
    np.testing.assert_array_equal(stimuli.values("length"), [5, 5, np.nan, 3])
    with refused("'length'", "row 3", "empty cell"):
        read_written(data)


def test_select_keeps_the_stimuli_and_drops_features():
    stimuli = read_csv(good())
    one = stimuli.select(["asked", "length"])
    assert [f.name for f in one.features] == ["length", "asked"]
    assert one.table is stimuli.table and one.digest != stimuli.digest
    assert stimuli.select(None).digest == stimuli.digest
    for names, facts in ((["lenght"], ("'lenght'", "length")), ([], ("no feature",))):
        with refused(*facts):
            stimuli.select(names)


def test_word_index_and_word_may_be_written_otherwise():
    assert read_csv(good("plays,2", "plays,2.0")).word_index.tolist() == [1, 2, 1, 1]
    for word in ("mary", '"""Mary"""', "Mary.", ""):
        assert read_csv(good("1,Mary", f"1,{word}")).words[2] == "Mary"


def test_digest_does_not_depend_on_how_the_file_is_written():
    quoted = io.StringIO()
    csv.writer(quoted, quoting=csv.QUOTE_ALL).writerows(csv.reader(io.StringIO(GOOD)))
    same = [
        b"\xef\xbb\xbf" + good(),
        good().replace(b"\n", b"\r\n"),
        good().rstrip(b"\n") + b"\n\n\n",
        good(",5,female", ", 5.0 , female "),
        quoted.getvalue().encode(),
    ]
    assert {read_csv(data, name="other.csv").digest for data in same} == {read_csv(good()).digest}


REFUSED: list[tuple[bytes, tuple[str, ...]]] = [
    (b"PK\x03\x04" + bytes(100), ("zip",)),
    (b"sentence,f\na,1\x00\n", ("null character", "row 1")),
    (good('"Look, Mary fell"', '"Look, Mary fell'), ("row 3", "closing quotation mark")),
    (b'sentence,f\n"a"b,1\nc,2\n', ("row 1",)),
    (b"", ("mine.csv", "empty")),
    (b"sentence,f\n", ("header", "no rows")),
    (b"sentence,f\na,1\n", ("one row",)),
    (bytes(MAX_BYTES + 1), ("500 MB",)),
    (b"sentence,sentence_id,f\na,x,1\nb,,2\n", ("sentence_id", "row 2")),
    (b"sentence,item,f\na b,x,1\nb c,,2\nc d,x,3\n", ("item", "row 2")),
    (good("1,Mary", "1,fell"), ("row 3", "'fell'", "'Mary'")),
    (b"sentence,f,g,_n\na,1,x,\nb,,,z\nc,2,y,\n", ("row 2", "'f', 'g'")),
    (b"sentence,word_index,_a\na b,0,1\nb c,1,2\n", ("no feature", "'_a'")),
    (good(",male,True,d", ",male,True,d,e"), ("row 4", "8 cells", "7")),
    (good("do men sing", ""), ("sentence", "row 4")),
    *(
        (good("Mary,4", f"Mary,{text}"), ("'length'", "infinite", "row 3"))
        for text in ("inf", "-Infinity", "1e999", "-1e308")
    ),
]


@pytest.mark.parametrize(("data", "facts"), REFUSED)
def test_a_file_that_cannot_be_used_is_refused_with_its_place(data, facts):
    with refused(*facts):
        try:
            read_csv(data, name="mine.csv")
        except InputError as error:
            assert len(str(error)) < 500
            raise


@pytest.mark.parametrize("index", ["3", "-1", "1.5", "two", "", "1e400", "nan", "9" * 400])
def test_word_index_that_is_no_word_of_the_sentence(index):
    found = f"'{index}'" if 0 < len(index) < 9 else index[:9]
    with refused("word_index", "row 2", found, "0 to 2", "the woman plays"):
        read_csv(good("plays,2", f"plays,{index}"))


def test_not_utf8_names_byte_and_row():
    data = good("Mary", "Märy").decode().encode("latin-1")
    with refused(f"byte {data.index(0xE4) + 1}", "row 3", "0xe4", "utf-8"):
        read_csv(data, read_as=ReadAs(encoding="utf-8"))
    with refused("in the header", "0xfc"):
        read_csv(b"sentence,f\xfc\na,1\n", read_as=ReadAs(encoding="utf-8"))


def test_what_was_written_is_read_to_the_letter():
    data = good(",5,,", ",5,NA,")
    assert read_csv(data).values("gender")[1] is None
    assert read_written(data).values("gender")[1] == "NA"
    with refused("'gender'", "'NaN'", "row 4"):
        read_written(good(",male", ",NaN"))
    with refused("'sentence'", "'text'", "'word_index', 'word', 'length'"):
        read_written(good("sentence,", "text,"))


def test_a_large_file_is_refused_before_it_is_read_and_one_that_is_not_there(tmp_path):
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(600_000_000)
    with refused("large.csv", "500 MB"):
        read_csv(path)
    with refused("none.csv", "No such file"):
        read_csv(tmp_path / "none.csv")


NASTY = [
    "=1+1", "+a", "-a", "@SUM(A1)", "\tx", "\rx", "\nx", "'=1", "''+x", "'quoted'", "＝1",
    "<b>bold</b>", "<script>alert(1)</script>", 'say "hi", you', "two\r\nlines", "-5", "+1e3", "-",
    "' =", "é ☃", "'-5",
]  # fmt: skip
FRAME = pd.DataFrame(
    {
        "sentence": [text + " end" for text in NASTY],
        "=cmd": [f"{text}|" for text in NASTY],
        "_raw": NASTY,
        "number": np.linspace(-1, 1, len(NASTY)) / 3,
        "gaps": [None if i % 2 else -i for i in range(len(NASTY))],
    }
)


def test_round_trip_is_exact_and_a_spreadsheet_runs_no_cell():
    stimuli = from_frame(FRAME, "nasty")
    file = io.BytesIO()
    write_csv(stimuli, file)
    again = read_csv(file.getvalue())
    pd.testing.assert_frame_equal(again.table, stimuli.table, check_exact=True)
    assert again.digest == stimuli.digest and again.features == stimuli.features
    assert again.table["_raw"].tolist() == NASTY
    assert [f.name for f in again.features] == ["=cmd", "number", "gaps"]
    rows = list(csv.reader(io.StringIO(file.getvalue().decode(), newline="")))
    assert rows[0][1] == "'=cmd"
    cells = [cell for row in rows for cell in row]
    assert {"'=1+1", "'@SUM(A1)", "-5", "<script>alert(1)</script>"} <= set(cells)
    for cell in cells:
        if cell[:1] in tuple("=+-@\t\r\n＝＋－＠"):
            float(cell)  # only plain numbers may begin like that


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@for_each(
    "cells",
    [1, 1.0, True, "1", None, float("nan"), pd.NA, ""],
    ["a", "", None, float("nan"), "a", "NaN", "0"],
    [0.0, -0.0, 1e300, float("nan"), float("inf"), 2.0**60, 0.1],
    [3, -3, 0],
    [True, False, True],
    ["a", 1.0, 1, None],
    [np.float64(1.5), 1.5, "1.5", np.nan],
)
@pytest.mark.parametrize("dtype", [None, object, "str", "string", "category"])
def test_a_columns_texts_are_those_of_its_cells(cells, dtype):
    column = pd.Series(cells, dtype=dtype)
    expected = [cell_text(cell) for cell in column]
    assert texts(column) == expected
    codes, distinct = coded(column)
    assert distinct[codes].tolist() == expected and distinct[-1] is None
    assert texts(pd.Series([1.5, 2, None], dtype="Float64")) == ["1.5", "2", None]


@pytest.mark.parametrize("name", datasets.SETS)
def test_digests_are_those_of_the_whole_as_json(name):
    stimuli = datasets.load(name)
    content = {
        "columns": [[c, [cell_text(cell) for cell in stimuli.table[c]]] for c in stimuli.table],
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
def test_cells_are_read_as_row_by_row(rows):
    file = io.StringIO(newline="")
    csv.writer(file).writerows([("a", "b"), *rows])
    header, columns, _, _, remarks = parse(file.getvalue(), "t", ReadAs(header_row=1))
    assert not remarks and header == ["a", "b"]
    assert [list(row) for row in zip(*columns, strict=True)] == parse_by_row(file.getvalue())


def write_by_row(frame):
    lines: list[str] = []
    for row in [tuple(map(str, frame.columns)), *frame.itertuples(index=False, name=None)]:
        cells = []
        for value in row:
            text = cell_text(value) or ""
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
