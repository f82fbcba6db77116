"""Files as other programs write them, in the encodings that they write, against the values."""

import csv
import io
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pytest
from helpers.damaging import contents, packed
from helpers.inputs import as_csv, for_each, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.comments import Comment

from mlem_core import InputError, ReadAs, read_csv
from mlem_core.stimuli.columns import missing_marks
from mlem_core.stimuli.reading import table as records
from mlem_core.stimuli.reading import workbook as workbooks
from mlem_core.stimuli.reading.table import read_table
from mlem_core.stimuli.roles import apply_roles, guess_roles

FRENCH = pd.DataFrame(
    {
        "sentence": ["l'été, où est-il ?", "la mère préfère l'œuf", "le garçon a mangé"],
        "word_index": [0, 1, 1],
        "fréquence": [1.5, np.nan, -0.25],
        "genre": ["masc", "fém", None],
    }
)


@for_each("encoding", "utf-8", "utf-8-sig", "utf-16", "cp1252")
@pytest.mark.parametrize("signs", [",.", ";,", "\t,", "|."])
@pytest.mark.parametrize("missing", ["", "NA"])
def test_encodings_separators_decimals_and_marks_are_detected(encoding, signs, missing):
    separator, decimal = signs
    text = FRENCH.to_csv(index=False, sep=separator, decimal=decimal, na_rep=missing)
    data = text.encode(encoding)
    table = read_table(data, "mine.csv")
    found = table.read_as
    codec = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le"}.get(encoding, encoding)
    assert (found.separator, found.encoding, found.decimal) == (separator, codec, decimal)
    stimuli = apply_roles(table)
    assert stimuli.sentences == FRENCH["sentence"].tolist()
    assert stimuli.words == ["l'été,", "mère", "garçon"]
    np.testing.assert_array_equal(stimuli.values("fréquence"), FRENCH["fréquence"])
    assert stimuli.values("genre").tolist() == ["masc", "fém", None]
    plain = (separator, decimal, missing) == (",", ".", "") and codec == "utf-8"
    assert bool(stimuli.notes) == (not plain)
    # What was found can be given back, and reads the same.
    again = read_csv(data, read_as=found)
    assert again.digest == stimuli.digest == read_csv(as_csv(stimuli)).digest


@for_each(
    "text, encoding",
    ("Mężczyzna widzi żółtą łódź", "cp1250"),
    ("La mère préfère le garçon aimé", "mac_roman"),
    ("犬が猫を見る", "shift_jis"),
    ("狗看见了猫", "gb18030"),
)
def test_other_encodings_are_not_guessed_but_can_be_chosen(text, encoding):
    data = f"sentence;f\n{text};1\n{text} x;2\n".encode(encoding)
    with refused("UTF-8", "choose its encoding"):
        read_csv(data)
    assert read_csv(data, read_as=ReadAs(encoding=encoding)).sentences == [text, f"{text} x"]


def test_the_header_and_most_rows_decide_the_separator():
    commas = "sentence;f\n" + "a, b, c and d;1\n" * 2 + "e, f;2\n"
    assert read_table(commas.encode()).read_as.separator == ";"
    assert read_table(b'sentence,f\n"a; b",1\n"c; d; e",2\n').read_as.separator == ","
    assert read_table(b"sep=;\r\nsentence;f\r\na b;1\r\nc;2\r\n").frame.shape == (2, 2)
    assert read_table(b"sentence\na b\n").read_as.separator == ","


def test_tables_with_tabs_may_have_quotation_marks_as_they_are():
    table = read_table(b'sentence\tword\tf\n" said he\t"\t1\nno "x" here\tno\t2\n')
    assert table.frame["sentence"].tolist() == ['" said he', 'no "x" here']
    assert table.read_as.literal and "quotation marks" in table.read_as.sentence
    quoted = read_table(b'sentence\tf\n"a\tb"\t1\nc\t2\n')
    assert quoted.frame["sentence"].tolist() == ["a\tb", "c"] and not quoted.read_as.literal


@for_each(
    "values, expected",
    (["1", "2.5", "NA", "none", ".", "-", "?"], {"NA", "none", ".", "-", "?"}),
    (["1,5", "2", "NULL"], {"NULL"}),
    (["past", "present", "NA", "n/a", "-"], {"NA", "n/a", "-"}),
    (["null", "overt", "none"], set()),  # a null subject
    (["i", "na"], set()),  # kinds of Japanese adjectives
    (["+", "-"], set()),
    (["NN", ".", ",", "-"], set()),  # tags of punctuation
    (["NA", "NaN"], {"NA", "NaN"}),
    (["yes", None, "", " NA "], {"NA"}),
)
def test_a_mark_is_missing_only_where_it_can_be_no_value(values, expected):
    assert missing_marks(values) == expected
    assert missing_marks(values, ("-",)) == {value for value in values if value == "-"}
    assert missing_marks(values, ()) == set()


def test_marks_can_be_chosen_and_do_not_touch_sentences_and_items():
    stimuli = read_csv(b"sentence,item,word,f,g\nNA,NA,x,1,u\n- b,b,y,2,v\nc d,c,z,NA,w\n")
    assert stimuli.sentences[:2] == ["NA", "- b"] and stimuli.table["item"][0] == "NA"
    assert np.isnan(stimuli.values("f")[2])
    chosen = read_csv(b"sentence,f,g\na,1,x\nb,-99,NA\nc,3,y\n", read_as=ReadAs(missing=("-99",)))
    np.testing.assert_array_equal(chosen.values("f"), [1, np.nan, 3])
    assert chosen.values("g")[1] == "NA" and "'-99'" in chosen.notes[0]


def workbook(*sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


ROWS = [
    ["sentence", "word_index", "freq", "asked", "tense", None],
    ["the woman plays", 1, 1.5, False, "past"],
    ["the woman plays", 2, None, False, "NA"],
    [None] * 5,
    ["do men sing", 1.0, "#N/A", True, "present"],
    ["do men sing", 2, 2, True, "present"],
]
SMALL = workbook(("D", [["sentence", "f"], ["a b", 1]]))
SHEET = "xl/worksheets/sheet1.xml"
NAMESPACE = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def with_part(part, data=None):
    """A workbook with one part replaced; without `data` the second half of the part is gone."""
    parts = contents(io.BytesIO(SMALL))
    half = parts[part][: len(parts[part]) // 2]
    return packed({**parts, part: half if data is None else data}, zipfile.ZIP_DEFLATED)


def test_a_workbook_is_read_by_its_values_as_pandas_reads_them(tmp_path):
    path = tmp_path / "mine.xlsx"
    path.write_bytes(workbook(("Notes", []), ("Data", ROWS), ("More", [["a"], ["b"]])))
    stimuli = read_csv(path)
    assert stimuli.words == ["woman", "plays", "men", "sing"]
    assert stimuli.values("asked").tolist() == ["False", "False", "True", "True"]
    assert stimuli.values("tense").tolist() == ["past", None, "present", "present"]
    expected = pd.read_excel(path, sheet_name="Data").dropna(how="all")
    np.testing.assert_array_equal(stimuli.values("freq"), expected["freq"].astype(float))
    assert stimuli.sentences == expected["sentence"].tolist()
    said = ("mine.xlsx", "'Data'", "'Notes'", "'More'", "'NA'")
    assert all(fact in stimuli.notes[0] for fact in said)
    for sheet in ("Data", "2"):
        assert read_csv(path, read_as=ReadAs(sheet=sheet)).digest == stimuli.digest
    for asked, facts in (("data", ("'data'", "Data")), ("4", ("'4'",)), ("Notes", ("'Notes'",))):
        with refused("mine.xlsx", *facts):
            read_csv(path, read_as=ReadAs(sheet=asked))
    with refused("no workbook"):
        read_csv(b"sentence,f\na,1\n", read_as=ReadAs(sheet="Data"))


def test_parquet_and_json_lines_are_read_to_the_same_stimuli(tmp_path):
    frame = FRENCH.assign(id=["007", "a", "7"], asked=[True, False, True], day="2024-07-23")
    frame["kind"] = frame["genre"].astype("category")
    paths = [tmp_path / f"mine{suffix}" for suffix in (".csv", ".parquet", ".jsonl")]
    frame.to_csv(paths[0], index=False)
    frame.assign(day=pd.to_datetime(frame["day"])).to_parquet(paths[1])
    frame.to_json(paths[2], orient="records", lines=True, force_ascii=False)
    stimuli, *others = (read_csv(path, name="mine") for path in paths)
    assert stimuli.values("asked").tolist() == ["True", "False", "True"]
    for other in others:
        assert other.digest == stimuli.digest and other.notes == stimuli.notes
    # Row numbers of pandas are a column without a name.
    frame.iloc[[2, 0, 1]].to_parquet(paths[1])
    assert "was read as Parquet" in read_csv(paths[1]).notes[0]


def test_cells_of_a_workbook_that_are_no_plain_values():
    texts = ["a", "", "#great!", "x"]
    cells = "".join(
        f'<row><c t="str"><v>{n} s</v></c><c t="str"><f>A1</f><v>{text}</v></c></row>'
        for n, text in enumerate(["f", *texts])
    )
    merged = '<mergeCells count="1"><mergeCell ref="B3:B5"/></mergeCells>'
    sheet = f"<worksheet {NAMESPACE}><sheetData>{cells}</sheetData>{merged}</worksheet>"
    table = read_table(with_part(SHEET, sheet.encode()), "mine.xlsx")
    assert table.frame["f"].tolist() == ["a", None, "#great!", "x"]
    assert not table.read_as.literal
    (note,) = table.notes
    assert "merged" in note and "B3:B5" in note


def test_hidden_rows_and_columns_count_and_are_said():
    book = openpyxl.Workbook()
    for row in [["sentence", "f"], *([f"a {n}", n] for n in range(1, 9))]:
        book.active.append(row)
    hidden = book.create_sheet("Other", 0)
    hidden.append(["sentence"])
    hidden.sheet_state = "hidden"
    for row in (3, 4, 8, 40):  # the last one without a value
        book["Sheet"].row_dimensions[row].hidden = True
    for column in "BE":  # the last one without a value
        book["Sheet"].column_dimensions[column].hidden = True
    file = io.BytesIO()
    book.save(file)
    stimuli = read_csv(file.getvalue(), name="mine.xlsx")
    assert len(stimuli) == 8
    assert "3 rows of the sheet 'Sheet' of mine.xlsx" in stimuli.notes[1]
    assert "1 column of the sheet 'Sheet' of mine.xlsx" in stimuli.notes[2]
    assert "(B)" in stimuli.notes[2]


PLAIN = "sentence,plural,adverb\n"
BODY = "the boy sleeps loudly,0,loudly\nthe girls jump again,1,again\nthe dog runs again,0,again\n"
SPOKEN = 'plural\tsentence\n0\t"the boy sleeps\n1\tthe girls jump"\n0\tit is\n'
WHERE_THE_TABLE_IS = {  # more are in tests/cases
    # the file, the row of its header, what is said
    "plain": (PLAIN + BODY, 1, ()),
    "a title and an empty row": (f"Stimuli of 2026\n\n{PLAIN}{BODY}", 3, ("row 3",)),
    "a title in empty cells": (f"Stimuli,,\n,,\n{PLAIN}{BODY}", 3, ("row 3",)),
    "two rows of names": (f"Text,,\n{PLAIN}{BODY}", 2, ("row 2",)),
    "a remark": (f"{PLAIN}{BODY}\nSource: the lab\n", 1, ("'Source: the lab'",)),
    "remarks": (f"{PLAIN}{BODY}\nn = 3\nof 2026\n", 1, ("last 2 rows", "'n = 3'")),
    "comments and no header": (f"# Results on Tuesday\n{BODY}", 0, ("no row has",)),
}


@pytest.mark.parametrize("case", WHERE_THE_TABLE_IS)
def test_the_table_is_found_in_its_file(case):
    text, header_row, facts = WHERE_THE_TABLE_IS[case]
    data = text.encode()
    table = read_table(data, "mine.csv")
    assert table.read_as.header_row == header_row
    assert read_table(data, "mine.csv", table.read_as).frame.equals(table.frame)
    stimuli = apply_roles(table)
    assert stimuli.sentences == [line.split(",")[0] for line in BODY.splitlines()]
    assert sorted(feature.kind for feature in stimuli.features) == ["nominal", "ordered"]
    said = " ".join(stimuli.notes)
    assert all(fact in said for fact in facts), said


def test_a_messy_workbook_needs_no_spreadsheet_program(tmp_path):
    """Notes on a first sheet; on the second a title, a date, groups of columns, merged cells."""
    book, path = openpyxl.Workbook(), tmp_path / "messy.xlsx"
    for text in ("Stimuli of experiment 2", "Please do not sort", "The second sheet has the items"):
        book.active.append([text])
    sheet = book.create_sheet("Items")
    for row in (["Items"], ["March 2026"], [], ["sentence", "coding"]):
        sheet.append(row)
    sheet.append(["", "word_index", "noun", "length"])
    for row in range(12):
        sheet.append([None if row % 2 else f"the item{row}", row % 2, "ny"[row % 2], 3 + row % 3])
    for ref in ("A1:D1", "B4:D4", "A4:A5", *(f"A{row}:A{row + 1}" for row in range(6, 18, 2))):
        sheet.merge_cells(ref)
    sheet["A20"], sheet["A1"].comment = "Source: the lab", Comment("final?", "KL")
    book.save(path)
    table = read_table(path)
    assert table.read_as.sheet == "Items" and table.read_as.header_row == 5
    assert table.read_as.first_rows[2] == () and table.read_as.above == 5
    assert list(table.frame) == ["sentence", "word_index", "noun", "length"]
    stimuli = apply_roles(table)
    assert stimuli.sentences[:3] == ["the item0", "the item0", "the item2"]
    assert stimuli.words[:2] == ["the", "item0"] and len(stimuli) == 12
    said = " ".join(stimuli.notes)
    assert (
        "'Sheet'" in said
        and "A6:A7" in said
        and "B4:D4" not in said
        and "'Source: the lab'" in said
    )
    assert len(read_table(path, read_as=ReadAs(sheet="Sheet")).frame) == 3


def test_the_row_of_the_header_can_be_chosen():
    table = read_table(f"{PLAIN}{BODY}".encode(), read_as=ReadAs(header_row=2))
    assert list(table.frame) == BODY.splitlines()[0].split(",") and len(table.frame) == 2
    table = read_table(f"{PLAIN}{BODY}".encode(), read_as=ReadAs(header_row=0))
    assert list(table.frame) == ["column_1", "column_2", "column_3"] and len(table.frame) == 4
    with refused("row 9 of mine.csv", "0 where"):
        read_table(f"{PLAIN}{BODY}".encode(), "mine.csv", ReadAs(header_row=9))


def test_names_that_are_numbers_or_values_stay_names():
    for names, rows in (
        ("word,1,2\n", "a,3,4\nb,5,6\nc,1,2\n"),
        ("word,noun,verb\n", "dog,noun,1\ncat,noun,2\nsee,verb,3\n"),
    ):
        assert list(read_table((names + rows).encode()).frame) == names.strip().split(",")


def test_quotation_marks_that_swallow_rows_belong_to_the_text():
    table = read_table(SPOKEN.encode())
    assert table.read_as.literal
    assert table.frame["sentence"].tolist() == ['"the boy sleeps', 'the girls jump"', "it is"]
    # Rows in a cell of which each line has no cells of its own stay in it.
    table = read_table(b'sentence\tf\n"two\nlines"\t1\n"b"\t2\n')
    assert table.frame["sentence"].tolist() == ["two\nlines", "b"]


def test_formulas_are_no_sentences_and_minimal_pairs_are_said():
    formula = "dog ( x _ 1 ) AND run . agent ( x _ 2 , x _ 1 )"
    rows = "".join(f"the dog {n} runs\t{formula} {n}\t{n % 2}\n" for n in range(6))
    assert guess_roles(read_table(f"a\tb\tc\n{rows}".encode()))["a"] == "sentence"
    rows = "".join(f"the dog {n} runs,the dog {n} run,{n % 2}\n" for n in range(6))
    notes = read_csv(f"good,bad,f\n{rows}".encode(), name="mine.csv").notes
    assert any("other texts too, in 'bad'" in note for note in notes)


def parquet(**columns):
    return pd.DataFrame(columns).to_parquet()


SHARED = workbook(("D", [["sentence", "f"], *([["a b" * 100, n] for n in range(5)])]))
WIDE = ",".join(["sentence", *(f"c{i}" for i in range(2_000))])
REFUSED: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "formula never computed": (
        workbook(("D", [["sentence", "f"], ["a", 1], ["b", "=1+1"]])),
        ("B3", "'D' of mine.xlsx", "never computed"),
    ),
    "error": (
        workbook(("D", [["sentence", "f"], ["a", 1], ["b", "#DIV/0!"]])),
        ("B3", "'D' of mine.xlsx", "#DIV/0!"),
    ),
    "large part": (with_part("xl/theme/theme1.xml", bytes(2_000_001)), ("theme1.xml'", "2 MB")),
    "formats": (with_part("xl/styles.xml", b"<xf/>" * 300_001), ("formats",)),
    "shared text": (SHARED, ("1,000 characters",)),
    "half a sheet": (with_part(SHEET), ("mine.xlsx is damaged or no",)),
    "of before 2007": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), ("2007", ".xlsx")),
    "2,001 columns": (f"{WIDE}\n{WIDE}\n{WIDE}\n".encode(), ("2,001 columns", "commas", "2,000")),
    "Russian": ("a\nПривет мир\n".encode("cp1251"), ("in row 1", "choose its encoding")),
    "a header again": (
        b"sentence,pos\na b,n\nSentence,POS\nc d,v\n",
        ("row 2 of mine.xlsx", "header again"),
    ),
    "half a Parquet": (parquet(sentence=["a", "b"])[:200], ("mine.xlsx is damaged or no Parq",)),
    "lists": (parquet(sentence=["a", "b"], f=[[1], [2]]), ("'f'", "list<")),
    "bytes": (parquet(sentence=["a", "b"], f=[b"1", b"2"]), ("'f'", "binary")),
    "shared text in Parquet": (parquet(sentence=["a b" * 100] * 9), ("1,000 characters",)),
    "no object": (b'{"sentence": "a"}\n[1]\n', ("row 2 of mine.xlsx", "'[1]'")),
    "half an object": (b'{"sentence": "a"}\n{"sente', ("row 2 of mine.xlsx", "JSON")),
    "an object in one": (b'{"sentence": {"a": 1}}', ("row 1 of mine.xlsx", "'sentence'", "'dict'")),
    "treebank": (
        "".join("\t".join([n, *"aaD__2d__", "\n"][:10]) + "\n" for n in "12").encode(),
        ("CoNLL-U", ".conllu"),
    ),
    "half a gzip": (b"\x1f\x8b" + bytes(30), ("damaged or no gzip",)),
    "half an array": (b'[{"sentence": "a"}, {"sent', ("damaged or no JSON array",)),
    "quoted names": (
        b'sentence, "pos", "f"\na b, "n", "1"\nc d, "v", "2"\n',
        ("quotation marks", "'\"pos\"'"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_with_its_place(case, monkeypatch):
    data, facts = REFUSED[case]
    if case == "large part":
        monkeypatch.setattr(workbooks, "MAX_PART", 2_000_000)
    if "shared text" in case:
        for module in (workbooks, records):
            monkeypatch.setattr(module, "MAX_BYTES", 1_000)
    with refused(*facts):
        read_table(data, "mine.xlsx")


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=8)
ROW = st.tuples(CELL, CELL, st.floats(-1e6, 1e6, width=32))


@settings(max_examples=100)
@given(
    rows=st.lists(ROW, min_size=2, max_size=6),
    separator=st.sampled_from(",;\t|"),
    comma=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_whatever_is_in_the_cells_is_read_back(rows, separator, comma, encoding, end):
    """Python's own writer; the cells of every dialect come back, numbers with points."""
    comma = comma and separator != ","
    file = io.StringIO()
    writer = csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator=end)
    writer.writerow(["sentence", "name", "number"])
    numbers = [repr(float(number)) for *_, number in rows]
    for (first, name, _), number in zip(rows, numbers, strict=True):
        shown = number.replace(".", ",") if comma else number
        writer.writerow([f"s {first}", f"n{name}", shown])
    table = read_table(file.getvalue().encode(encoding))
    assert table.read_as.separator == separator
    assert table.frame["sentence"].tolist() == [f"s {first}" for first, *_ in rows]
    assert table.frame["name"].tolist() == [f"n{name}" for _, name, _ in rows]
    assert [float(cell) for cell in table.frame["number"]] == [float(n) for n in numbers]


MARK = st.sampled_from(["NA", "-", ".", "null", "None", "1", "2,5", "2.5", "past", "+", "", "?"])


@settings(max_examples=150)
@given(cells=st.lists(st.tuples(MARK, MARK), min_size=2, max_size=6), comma=st.booleans())
def test_stimuli_that_were_written_are_read_to_the_same(cells, comma):
    """What one reading takes for missing, or for a number, the next one does too."""
    separator = ";" if comma else ","
    quoted = [[f"s {i} x", *(f'"{cell}"' for cell in pair)] for i, pair in enumerate(cells)]
    text = "\n".join(separator.join(row) for row in [["sentence", "f", "g"], *quoted])
    try:
        stimuli = read_csv(text.encode())
    except InputError as error:
        assert "\n" not in str(error)
        return
    nominal = [f.name for f in stimuli.features if f.kind == "nominal"]
    ordered = [f.name for f in stimuli.features if f.kind == "ordered"]
    assert read_csv(as_csv(stimuli), nominal=nominal, ordered=ordered).digest == stimuli.digest


@settings(max_examples=200)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_in_one_sentence(data):
    for begin in (b"", b"PK\x03\x04", b"sentence,f\n", b"\xff\xfe", b'{"', b"PAR1"):
        try:
            read_csv(begin + data + b"PAR1" * (begin == b"PAR1"))
        except InputError as error:
            assert "\n" not in str(error)


@for_each(
    "line, column",
    (r'{"sentence": "a \ud83d dog", "f": 1}', "'sentence'"),
    (r'{"sentence": "a dog", "f\ude00": 1}', "'f"),
)
def test_half_of_a_character_is_named_in_a_sentence(line, column):
    whole = r'{"sentence": "a \ud83d\ude00 dog", "f": 1}'
    with refused("row 2", "half of a character", column):
        read_csv(f"{whole}\n{line}\n".encode(), name="mine.jsonl")
