"""Troubles with annotated texts that people report in public, rebuilt small: what is right, or how
it is refused. docs/reliability.md says where each was reported.
"""

import io

import numpy as np
import openpyxl
from helpers.inputs import for_each, refused

from mlem_core import read_csv
from mlem_core.extensions.treebank.stimuli import read_treebank

NOUNS = ["dog", "child", "nurse", "king", "bird", "farmer"]
TEXTS = [f"the {noun} sees it" for noun in NOUNS]
VALUES = [1.5, -0.25, 3.0, -2.0, 0.5, 2.25]
NAMES = ["a", "b"] * 3


def table(*columns, sep=",", header="sentence,x"):
    """A row for each of the six texts, or of the first column."""
    rows = zip(*columns, strict=True)
    lines = [header.replace(",", sep), *(sep.join(map(str, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def book(*rows):
    workbook = openpyxl.Workbook()
    for row in rows:
        workbook.active.append(row)
    workbook.save(file := io.BytesIO())
    return file.getvalue()


def values(content, **more):
    return read_csv(content, name="mine.csv", **more).values("x")


@for_each("minus", "-", "\u2212", "\u2013", "\u2010", "\uff0d")
@for_each("sep, point", (",", "."), (";", ","))
def test_a_minus_sign_is_read_however_it_is_written(minus, sep, point):
    cells = [str(value).replace("-", minus).replace(".", point) for value in VALUES]
    np.testing.assert_array_equal(values(table(TEXTS, cells, sep=sep)), VALUES)


def test_ranges_and_strokes_are_no_negative_numbers():
    cells = ["\u20133", "3\u20134", "\u2013", "a", "a", "b"]
    stimuli = read_csv(table(TEXTS, cells, NAMES, header="sentence,x,g"), name="mine.csv")
    assert list(stimuli.table["x"][:2]) == cells[:2]


@for_each("mark", ".", ".a", ".z", "#N/A", "NA")
def test_missing_values_of_programs(mark):
    cells = [mark, *VALUES[1:]]
    content = table(TEXTS, cells, NAMES, header="sentence,x,g")
    np.testing.assert_array_equal(values(content), [np.nan, *VALUES[1:]])


@for_each(
    "written, target",
    ("don\u2019t", "don't"),
    ("don't", "don\u2019t"),
    ("it\u200b", "it"),
    ("dort\u202f?", "dort"),
    ("e\u0301te\u0301", "\u00e9t\u00e9"),
    ("true", "TRUE"),
    ("null", "null"),
    ("nan", "nan"),
)
def test_a_word_is_found_as_its_column_names_it(written, target):
    texts = [f"{noun} {written}" for noun in NOUNS]
    content = table(texts, [target] * 6, VALUES, header="sentence,target,x")
    stimuli = read_csv(content, name="mine.csv")
    assert list(stimuli.table["word_index"]) == [1] * 6
    content = table(texts, [target] * 6, [1] * 6, VALUES, header="sentence,word,word_index,x")
    assert read_csv(content, name="mine.csv").level == "word"


def test_true_in_a_workbook_is_the_word_of_the_sentence():
    rows = [(f"it is true, {noun}", True, 2, x) for noun, x in zip(NOUNS, VALUES, strict=True)]
    stimuli = read_csv(book(("sentence", "word", "word_index", "x"), *rows), name="mine.xlsx")
    assert stimuli.words == ["true,"] * 6


@for_each(
    "content, facts",
    (b"-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\n", ("word a line", "sentence_id")),
    (b"EU\tB-ORG\nrejects\tO\n.\tO\n\nHe\tO\n", ("word a line", "sentence_id")),
    ('File type = "ooTextFile"\nObject class = "TextGrid"\n'.encode("utf-16"), ("Praat",)),
    (b"@UTF8\n@PID:\t1\n@Begin\n*CHI:\tmore cookie .\n@End\n", ("CHAT",)),
    (b'<?xml version="1.0"?>\n<ANNOTATION_DOCUMENT/>\n', ("ELAN",)),
    (b"$FL2@(#) SPSS DATA FILE\0\0\0\0", ("SPSS",)),
    (table(TEXTS, ["a", "#REF!", *NAMES[2:]]), ("row 2", "'x'", "#REF!")),
    (table(["#NAME?", *TEXTS[1:]], NAMES), ("row 1", "'sentence'", "#NAME?")),
    (table(["#N/A", *TEXTS[1:]], NAMES), ("sentence in row 1", "empty")),
    (table(TEXTS, NAMES) * 2, ("row 7", "header")),
    (table([*TEXTS[:3], "", *TEXTS[3:]], [*NAMES, ""]), ("row 4", "empty")),
    (
        table(NOUNS, range(6), VALUES, header="word,item,x"),
        ("sentence_id", "where a row is a word"),
    ),
    (table(["ch\u0142opiec \u015bpi"] * 6, NAMES).decode().encode("cp1250"), ("windows-1250",)),
    (table(["\u72d7\u5728\u95e8\u53e3"] * 6, NAMES).decode().encode("gbk"), ("gb18030",)),
    (table(TEXTS, NAMES).decode().encode("utf-16-le"), ("utf-16",)),
)
def test_what_is_no_table_of_stimuli_is_refused_with_the_way_on(content, facts):
    with refused(*facts):
        read_csv(content, name="mine.csv")


@for_each(
    "content, fact",
    (table(TEXTS, [850, "1.234", "12.500", 99, "4.321", 310]), "'1.234' (row 2) counts as 1.234"),
    (table(TEXTS, ["TRUE", "0", "T", "1", "no", "yes"]), "yes and no in several ways"),
    (table(TEXTS, ["a", "A", "b", "b\u200b", "a", "b"]), "'a' (row 1) and 'A' (row 2)"),
    (table(TEXTS, ["\u0664\u066b\u0665", *VALUES[1:]]), "'\u0664\u066b\u0665' in row 1"),
    (table(TEXTS, ["1'234", *VALUES[1:]]), '"1\'234" in row 1'),
    (table(["the <e1>dog</e1> runs", *TEXTS[1:]], NAMES), "tags or marks of words in row 1"),
    (table(["the *dog* runs", *TEXTS[1:]], NAMES), "tags or marks of words in row 1"),
    (table(["H\u1ecdc_sinh \u0111\u1ecdc", *TEXTS[1:]], NAMES), "words joined by _ in row 1"),
    (table(TEXTS * 2, [0, 1, 2, -1] * 3), "name -1 as a missing value"),
)
def test_what_may_be_meant_otherwise_is_said(content, fact):
    notes = read_csv(content, name="mine.csv").notes
    assert any(fact in note for note in notes), notes


def test_small_numbers_beside_decimals_are_no_thousands():
    assert not read_csv(table(TEXTS, [2, "1.234", "2.345", 1, "4.321", 3]), name="mine.csv").notes


def test_columns_of_characters_are_said_to_be_no_features():
    texts = ["\U0001f4a9 my dog runs", *TEXTS[1:]]
    starts = [texts[i].index(noun) for i, noun in enumerate(NOUNS)]
    ends = [start + len(noun) for start, noun in zip(starts, NOUNS, strict=True)]
    content = table(texts, starts, ends, VALUES, header="sentence,start,end_char,x")
    (doubt,) = read_csv(content, name="mine.csv").doubts
    assert doubt.values == ("start=start_idx", "end_char=end_idx")
    stimuli = read_csv(content, name="mine.csv", roles=dict(v.split("=") for v in doubt.values))
    assert stimuli.words == NOUNS and "emoji" in " ".join(stimuli.notes)


def test_empty_columns_and_rows_of_programs_are_no_stimuli():
    content = table(TEXTS, VALUES, [""] * 6, header="sentence,x,") + b",,\n,,\n"
    stimuli = read_csv(content, name="mine.csv")
    assert len(stimuli) == 6 and [feature.name for feature in stimuli.features] == ["x"]


TREES = """\
# text = Sekaan kermaa.
0.1\tLaitoin\tlaittaa\tVERB\t_\tNumber=Sing\t_\t_\t0:root\t_
1\tSekaan\tsekaan\tADV\t_\t_\t0\troot\t0.1:advmod\t_
2\tkermaa\tkerma\tNOUN\t_\tCase=Par\t1\tobj\t0.1:obj\tSpaceAfter=No
3\t.\t.\tPUNCT\t_\t_\t1\tpunct\t1:punct\t_

# text = Ele \u00e0 noite.
1\tEle\tele\tPRON\t_\t_\t0\troot\t_\t_
2-3\t\u00e0\t_\t_\t_\t_\t_\t_\t_\t_
2\ta\ta\tADP\t_\t_\t4\tcase\t_\t_
3\ta\to\tDET\t_\t_\t4\tdet\t_\t_
4\tnoite\tnoite\tNOUN\t_\t_\t1\tobl\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_

# text = H\u1ecdc sinh \u0111\u1ecdc v\u0103n b\u1ea3n.
1\tH\u1ecdc sinh\th\u1ecdc sinh\tNOUN\t_\t_\t2\tnsubj\t_\t_
2\t\u0111\u1ecdc\t\u0111\u1ecdc\tVERB\t_\t_\t0\troot\t_\t_
3\tv\u0103n b\u1ea3n\tv\u0103n b\u1ea3n\tNOUN\t_\t_\t2\tobj\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t_\t_\t2\tpunct\t_\t_

"""


def test_words_of_a_treebank_are_those_of_its_text(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(TREES * 6, encoding="utf-8")
    stimuli = read_treebank([path])
    words = ["Sekaan", "kermaa", "Ele", "noite", "sinh", "\u0111\u1ecdc", "b\u1ea3n"]
    assert stimuli.words[:7] == words
    assert list(stimuli.table["word_index"][:7]) == [0, 1, 0, 2, 1, 2, 4]
    assert any("last part is the stimulus" in note for note in stimuli.notes)
