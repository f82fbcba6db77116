from __future__ import annotations

import csv
import io
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from mlem_core.base.errors import InputError
from mlem_core.data.csvfile import write_table
from mlem_core.data.reading.content import MAX_BYTES, content
from mlem_core.data.reading.read_as import ReadAs
from mlem_core.data.roles import apply_roles
from mlem_core.data.stimuli import Feature
from mlem_core.data.stimulus_csv import from_frame, read_csv, write_csv
from mlem_core.data.stimulus_table import read_written

GOOD = """sentence,word_index,word,length,gender,asked,_note
the woman plays,1,woman,5,female,False,a
the woman plays,2,plays,5,,False,b
"Look, Mary fell",1,Mary,4,female,False,
do men sing,1,men,3,male,True,d
"""


def good(old: str = "", new: str = "") -> bytes:
    assert old in GOOD
    return GOOD.replace(old, new, 1).encode() if old else GOOD.encode()


def refusal(data: bytes, **options) -> str:
    with pytest.raises(InputError) as caught:
        read_csv(data, name="mine.csv", **options)
    message = str(caught.value)
    assert "\n" not in message and message.endswith((".", ")."))
    return message


def test_reads_the_columns_as_the_contract_says():
    stimuli = read_csv(good(), name="mine.csv")
    assert stimuli.name == "mine.csv"
    assert stimuli.level == "word" and len(stimuli) == 4
    assert stimuli.features == (
        Feature("length", "ordered"),
        Feature("gender", "nominal"),
        Feature("asked", "nominal"),
    )
    assert list(stimuli.table.columns) == GOOD.splitlines()[0].split(",")
    assert stimuli.word_index.dtype == np.int64
    assert stimuli.word_index.tolist() == [1, 2, 1, 1]
    assert stimuli.words == ["woman", "plays", "Mary", "men"]
    assert stimuli.sentences[2] == "Look, Mary fell"
    assert stimuli.groups.tolist() == [0, 0, 1, 2]
    assert stimuli.values("length").tolist() == [5.0, 5.0, 4.0, 3.0]
    assert stimuli.values("length").dtype == np.float64
    assert stimuli.values("gender").tolist() == ["female", None, "female", "male"]
    assert stimuli.values("asked").tolist() == ["False", "False", "False", "True"]
    assert pd.isna(stimuli.table["_note"][2])


def test_without_word_index_the_sentence_is_the_stimulus():
    stimuli = read_csv(b"sentence,word,f,g\na b,anything,1,x\nc d,,,y\ne f,x,2.5,\n")
    assert stimuli.level == "sentence" and stimuli.word_index is None
    assert stimuli.words == ["a b", "c d", "e f"]
    values = stimuli.values("f")
    assert np.isnan(values[1]) and values[[0, 2]].tolist() == [1.0, 2.5]


def test_sentence_id_makes_the_groups():
    stimuli = read_csv(b"sentence,sentence_id,f\na,x,1\nb,y,2\nc,x,3\na,z,4\n")
    assert stimuli.groups.tolist() == [0, 1, 0, 2]
    assert stimuli.groups.dtype == np.int64
    assert "row 2" in refusal(b"sentence,sentence_id,f\na,x,1\nb,,2\n")


def test_path_bytes_and_file_give_the_same(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(good())
    sets = [read_csv(path), read_csv(str(path)), read_csv(good()), read_csv(io.BytesIO(good()))]
    with path.open("rb") as file:
        sets.append(read_csv(file))
    assert len({s.digest for s in sets}) == 1
    assert sets[0].name == sets[-1].name == "mine.csv"


# --- kinds -----------------------------------------------------------------------------------


def test_kinds_can_be_overridden():
    stimuli = read_csv(good(), nominal=["length"])
    assert stimuli.features[0] == Feature("length", "nominal")
    assert stimuli.values("length").tolist() == ["5", "5", "4", "3"]
    assert stimuli.table["length"].tolist() == ["5", "5", "4", "3"]
    again = stimuli.with_kinds(ordered=["length"])
    assert again.digest == read_csv(good()).digest
    assert again.values("length").tolist() == [5.0, 5.0, 4.0, 3.0]
    assert read_csv(good()).with_kinds(nominal=["length"]).digest == stimuli.digest


def test_all_kinds_of_numbers_are_ordered_and_missing_stays_missing():
    data = b"sentence,f,g\na,-1.5,x\nb,+2,y\nc,1e3,\nd,.5,\ne,,x\nf,-0,\n"
    stimuli = read_csv(data)
    assert stimuli.features[0] == Feature("f", "ordered")
    np.testing.assert_array_equal(stimuli.values("f"), [-1.5, 2, 1000, 0.5, np.nan, 0])
    nominal = stimuli.with_kinds(nominal=["f"])
    assert nominal.values("f").tolist() == ["-1.5", "2", "1000", "0.5", None, "0"]


@pytest.mark.parametrize(("row", "missing"), [("c,3,x,", False), ("c,,x,", True), ("c,3,,", True)])
def test_whether_a_feature_has_a_missing_value(row, missing):
    stimuli = read_csv(f"sentence,f,g,_note\na,1,x,\nb,2,y,\n{row}\n".encode())
    assert stimuli.has_missing is missing


@pytest.mark.parametrize("text", ["1_000", "0x10", "١٢", "1,5", "one"])
def test_what_only_looks_like_a_number_is_nominal(text):
    data = f'sentence,f\na,"{text}"\nb,1\n'.encode()
    assert read_csv(data).features == (Feature("f", "nominal"),)


def test_override_of_an_unknown_feature_names_the_nearest():
    message = refusal(good(), nominal=["gendre"])
    assert "'gendre'" in message and "did you mean gender?" in message
    assert "length, gender, asked" in refusal(good(), ordered=["word_index"])
    with pytest.raises(InputError, match="did you mean gender"):
        read_csv(good()).with_kinds(nominal=["genderr"])


def test_ordered_on_words_names_the_first_row_and_value():
    assert "'gender' has 'female' in row 1" in refusal(good(), ordered=["gender"])
    with pytest.raises(InputError, match="'asked' has 'False' in row 1"):
        read_csv(good()).with_kinds(ordered=["asked"])


def test_one_feature_cannot_be_both():
    assert "'length'" in refusal(good(), ordered=["length"], nominal=["length"])


def test_select_keeps_the_stimuli_and_drops_features():
    stimuli = read_csv(good())
    one = stimuli.select(["asked", "length"])
    assert [f.name for f in one.features] == ["length", "asked"]
    assert one.table is stimuli.table and one.digest != stimuli.digest
    assert stimuli.select(None).digest == stimuli.digest
    with pytest.raises(InputError, match="did you mean length"):
        stimuli.select(["lenght"])
    with pytest.raises(InputError, match="no feature is chosen"):
        stimuli.select([])
    with pytest.raises(InputError, match="unknown feature 'word'"):
        stimuli.values("word")


# --- digest ----------------------------------------------------------------------------------


def test_digest_does_not_depend_on_how_the_file_is_written():
    plain = read_csv(good()).digest
    assert read_csv(good(), name="other.csv").digest == plain
    assert read_csv(b"\xef\xbb\xbf" + good()).digest == plain
    assert read_csv(good().replace(b"\n", b"\r\n")).digest == plain
    assert read_csv(good().rstrip(b"\n") + b"\n\n\n").digest == plain
    assert read_csv(good(",5,female", ", 5.0 , female ")).digest == plain
    quoted = io.StringIO()
    csv.writer(quoted, quoting=csv.QUOTE_ALL).writerows(csv.reader(io.StringIO(GOOD)))
    assert read_csv(quoted.getvalue().encode()).digest == plain


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("the woman", "The woman"),
        (",5,female", ",6,female"),
        ("5,,", "5,female,"),
        (",d", ",e"),
        ("gender", "sex"),
    ],
)
def test_digest_depends_on_the_content(old, new):
    assert read_csv(good(old, new)).digest != read_csv(good()).digest


def test_digest_depends_on_the_kinds():
    assert read_csv(good(), nominal=["length"]).digest != read_csv(good()).digest


# --- bad files -------------------------------------------------------------------------------


def test_not_utf8_names_byte_and_row():
    data = good("Mary", "Märy").decode().encode("latin-1")
    message = refusal(data, read_as=ReadAs(encoding="utf-8"))
    position = data.index(b"\xe4")
    assert f"byte {position + 1} (in row 3)" in message and "0xe4" in message
    assert "not utf-8" in message and "choose its encoding" in message
    header = refusal(b"sentence,f\xfc\na,1\n", read_as=ReadAs(encoding="utf-8"))
    assert "in the header" in header


def test_not_a_csv():
    assert "damaged workbook or zip" in refusal(b"PK\x03\x04" + bytes(100))
    assert "null character" in refusal(b"sentence,f\na,1\x00\n")
    assert "has the role of the sentence" in refusal(b'{"sentence": ["a", "b"]}\n')
    message = refusal(good('"Look, Mary fell"', '"Look, Mary fell'))
    assert "row 3" in message and "closing quotation mark" in message
    assert "row 1" in refusal(b'sentence,f\n"a"b,1\nc,2\n')


@pytest.mark.parametrize("data", [b"", b" \n\n", b"\xef\xbb\xbf"])
def test_empty_file(data):
    message = refusal(data)
    assert "mine.csv" in message and ("empty" in message or "sentence" in message)


def test_header_only_and_one_row():
    assert "a header and no rows" in refusal(b"sentence,f\n")
    assert "one row" in refusal(b"sentence,f\na,1\n")


def test_no_sentence_column():
    def refused(data: bytes) -> str:
        with pytest.raises(InputError) as caught:
            read_written(data, name="mine.csv")
        return str(caught.value)

    message = refused(good("sentence,", "text,"))
    assert "no column 'sentence'" in message and "did you mean 'text'" in message
    assert "'word_index', 'word', 'length'" in message
    assert "'Sentence'" in refused(good("sentence,", "Sentence,"))
    assert "has the role of the sentence" in refusal(b"a,b\nx,1\ny,2\n")


def test_many_columns_are_not_all_listed():
    message = refusal(",".join(f"c{i}" for i in range(2000)).encode() + b"\n")
    assert "1980 more" in message and len(message) < 500


@pytest.mark.parametrize(
    ("index", "found"),
    [("3", "'3', outside"), ("-1", "'-1', outside"), ("1.5", "'1.5'"), ("two", "'two'")]
    + [("", "empty"), ("1e400", "'1e400'"), ("nan", "'nan'"), ("9" * 400, "999")],
)
def test_word_index_that_is_no_word_of_the_sentence(index, found):
    message = refusal(good("plays,2", f"plays,{index}"))
    assert "word_index in row 2" in message and found in message
    assert "0 to 2" in message and "the woman plays" in message


def test_word_index_may_be_written_with_a_decimal_point():
    assert read_csv(good("plays,2", "plays,2.0")).word_index.tolist() == [1, 2, 1, 1]


def test_word_that_is_not_at_word_index():
    message = refusal(good("1,Mary", "1,fell"))
    assert "row 3" in message and "'fell'" in message and "'Mary'" in message


@pytest.mark.parametrize("word", ["mary", '"""Mary"""', "Mary.", ""])
def test_word_may_differ_in_case_and_surrounding_punctuation(word):
    assert read_csv(good("1,Mary", f"1,{word}")).words[2] == "Mary"


@pytest.mark.parametrize("value", ["3.0", "3", "3.00"])
def test_feature_with_one_value(value):
    rows = f"sentence,f,g\na,3,1\nb,{value},2\nc,,3\n".encode()
    message = refusal(rows, roles={"f": "ordered"})
    assert "'f'" in message and "'3'" in message and "underscore" in message
    stimuli = read_csv(rows, name="mine.csv")
    assert stimuli.features == (Feature("g", "ordered"),) and "_f" in stimuli.table
    assert stimuli.notes == ("In mine.csv 'f' has one value only and is no feature.",)


def test_feature_with_no_value():
    rows = b"sentence,f,g\na,,1\nb, ,2\n"
    assert "'f' has no value" in refusal(rows, roles={"f": "nominal"})
    assert "'f' has no value and is no feature" in read_csv(rows).notes[0]


def test_all_features_missing_in_a_row():
    message = refusal(b"sentence,f,g,_n\na,1,x,\nb,,,z\nc,2,y,\n")
    assert "row 2" in message and "'f', 'g'" in message


def test_no_feature_at_all():
    message = refusal(b"sentence,word_index,_a\na b,0,1\nb c,1,2\n")
    assert "no feature" in message and "'_a'" in message


def test_duplicate_and_nameless_columns_of_what_is_made_in_python():
    frame = pd.DataFrame([["a", 1, 2, 3]], columns=["sentence", "f", "g", "f"])
    with pytest.raises(InputError, match=r"two columns named 'f' \(columns 2 and 4\)"):
        from_frame(frame, "mine")
    with pytest.raises(InputError, match="column 4 of mine has no name"):
        from_frame(frame.set_axis(["sentence", "f", "g", ""], axis=1), "mine")


def test_ragged_rows():
    message = refusal(good(",male,True,d", ",male,True,d,e"))
    assert "row 4" in message and "8 cells" in message and "7" in message
    assert "row 1" in refusal(good(",False,a", ",False"))


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e999", "-1e308"])
def test_infinite_values(text):
    message = refusal(good("Mary,4", f"Mary,{text}"))
    assert "'length'" in message and "infinite" in message and "row 3" in message


@pytest.mark.parametrize("text", ["NaN", "NA", "null", "None", ".", "-"])
def test_words_for_missing_among_numbers(text):
    data = good("Mary,4", f"Mary,{text}")
    stimuli = read_csv(data)
    assert stimuli.features[0] == Feature("length", "ordered")
    np.testing.assert_array_equal(stimuli.values("length"), [5, 5, np.nan, 3])
    with pytest.raises(InputError, match=r"'length' has .* in row 3; .*empty cell"):
        read_written(data)


def test_what_write_csv_wrote_is_read_to_the_letter():
    data = good(",5,,", ",5,NA,")
    assert read_csv(data).values("gender")[1] is None
    assert read_written(data).values("gender")[1] == "NA"
    with pytest.raises(InputError, match="'gender' has 'NaN' in row 4"):
        read_written(good(",male", ",NaN"))


@pytest.mark.parametrize("sentence", ["", "   "])
def test_empty_sentence(sentence):
    assert "the sentence in row 4 is empty" in refusal(good("do men sing", sentence))


def test_a_file_of_600_mb_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(600_000_000)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"large\.csv is larger than the limit of 500 MB"):
        read_csv(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    with path.open("rb") as file, pytest.raises(InputError, match="the limit of 1 MB for a CSV"):
        content(file, most=1_000_000)
    assert "500 MB" in refusal(bytes(MAX_BYTES + 1))


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_csv(tmp_path / "none.csv")
    with pytest.raises(InputError, match="directory"):
        read_csv(tmp_path)


def test_one_very_long_cell():
    message = refusal(b'sentence,f\n"' + b"a" * 1_000_000 + b'",1\nb,2\n')
    assert "row 1" in message and len(message) < 400
    long = "x" * 10_000
    assert len(refusal(good("Mary,4", f"Mary,{long}"), ordered=["length"])) < 400


# --- writing ---------------------------------------------------------------------------------

NASTY = [
    "=1+1", "+a", "-a", "@SUM(A1)", "\tx", "\rx", "\nx", "'=1", "''+x", "'quoted'", "＝1",
    "<b>bold</b>", "<script>alert(1)</script>", 'say "hi", you', "two\r\nlines", "-5", "+1e3", "-",
    "' =", "é ☃", "'-5",
]  # fmt: skip


def nasty_frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "sentence": [text + " end" for text in NASTY],
            "=cmd": [f"{text}|" for text in NASTY],
            "_raw": NASTY,
            "number": np.linspace(-1, 1, len(NASTY)) / 3,
            "gaps": [None if i % 2 else -i for i in range(len(NASTY))],
        }
    )


def test_round_trip_is_exact():
    stimuli = from_frame(nasty_frame(), "nasty")
    file = io.BytesIO()
    write_csv(stimuli, file)
    again = read_csv(file.getvalue())
    pd.testing.assert_frame_equal(again.table, stimuli.table, check_exact=True)
    assert again.digest == stimuli.digest and again.features == stimuli.features
    assert again.table["_raw"].tolist() == NASTY
    assert [f.name for f in again.features] == ["=cmd", "number", "gaps"]


def test_a_spreadsheet_runs_no_cell():
    file = io.BytesIO()
    write_csv(nasty_frame(), file)
    rows = list(csv.reader(io.StringIO(file.getvalue().decode(), newline="")))
    assert rows[0][1] == "'=cmd"
    cells = [cell for row in rows for cell in row]
    assert "'=1+1" in cells and "'@SUM(A1)" in cells and "-5" in cells
    for cell in cells:
        if cell[:1] in tuple("=+-@\t\r\n＝＋－＠"):
            float(cell)  # only plain numbers may begin like that
    assert "<script>alert(1)</script>" in cells


def test_html_and_formulas_in_a_file_are_text():
    data = b"sentence,f,_n\n<b>a</b> =x,=1+1,+x\n=a,<i>,-y\n"
    stimuli = read_csv(data)
    assert stimuli.sentences == ["<b>a</b> =x", "=a"]
    assert stimuli.values("f").tolist() == ["=1+1", "<i>"]


def test_write_csv_to_a_path_replaces_it_whole(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("what was there")
    write_csv(read_csv(good()), path)
    assert read_csv(path).digest == read_csv(good()).digest
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    before = path.read_bytes()

    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_csv(pd.DataFrame({"a": [Broken()]}, dtype=object), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_write_table_writes_any_table(tmp_path):
    names = ["=a:0", "b:1"]
    square = pd.DataFrame([[1.0, 0.1 + 0.2], [np.nan, 1.0]], index=names, columns=names)
    square.index.name = "layer"
    write_table(square, tmp_path / "square.csv")
    assert (tmp_path / "square.csv").read_text() == (
        "layer,'=a:0,b:1\n'=a:0,1.0,0.30000000000000004\nb:1,,1.0\n"
    )
    text = io.StringIO()
    write_table(pd.DataFrame({"rho": [-0.5], "ok": [True], "model": ["m"], "n": [3]}), text)
    assert text.getvalue() == "rho,ok,model,n\n-0.5,True,m,3\n"


def test_items_are_words_that_recur():
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


def test_a_column_says_what_the_items_are():
    rows = b"sentence,item,f\na b,x,1\nb c,y,2\nc d,x,3\n"
    stimuli = read_csv(rows)
    assert stimuli.item_name == "item" and stimuli.features == (Feature("f", "ordered"),)
    np.testing.assert_array_equal(stimuli.items, [0, 1, 0])
    again = apply_roles(stimuli, {})
    np.testing.assert_array_equal(again.items, stimuli.items)
    assert "item in row 2 is empty" in refusal(rows.replace(b",y,", b",,"))
