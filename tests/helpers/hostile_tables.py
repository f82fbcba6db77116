"""Tables that are written oddly, mean something else than they seem to, or are damaged."""

import csv
import io
import unicodedata
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from typing import Any

import numpy as np
from openpyxl.utils.exceptions import IllegalCharacterError

from helpers.damaging import damaged_bytes
from helpers.feeding import Fate, Hostile, later
from helpers.hostile_workbooks import by_hand, by_openpyxl, cell_of

SENTENCES = [
    f"{who} {what} {how}"
    for who, what in (("the dog", "sees"), ("two cats", "hear"), ("élan", "follows"), ("we", "met"))
    for how in ("them now", "nobody", "us twice")
]
LARGE = [1234, 25678, 1234567, 98765, 4321, 1450, 12500, 7654321, 2222, 34567, 8910, 65432]
SMALL = [0.5, 12.25, -3.125, 7.75, 0.25, -1.5, 2.25, 9.5, 4.75, -6.25, 3.5, 8.125]
HARD = ("=1+1", "+1", "@x", "-", "TRUE", "5%", "1,000", "NA", "null", "?", "1e400", "-inf", "nan",
        "0x1F", "１２", "\u202eabc", "\u200b", "\ufeff", "é" * 300, "<script>alert(1)</script>",
        "a\nb", 'a"b', "a;b", "a\tb", "'", "\x1b[31m", "\x00", "\ud7ff", "1" * 5_000, "9" * 400,
        " ", "\xa0", "#N/A", "#REF!", "2024-01-01", "1e-400", "-0", "..", "None")  # fmt: skip


@dataclass
class Sheet:
    """What a change works on: the cells as text, the header first, and their meaning by column.

    Every difference from that meaning must be named in a notice; `says` must be said at any rate.
    """

    grid: list[list[str]]
    truth: dict[str, list[Any]]
    says: tuple[str, ...] = ()
    fate: Fate = "or said"
    rng: Any = field(default_factory=lambda: np.random.default_rng(0))

    def put(self, column, cells, meant=None):
        at = self.grid[0].index(column)
        for row, cell in zip(self.grid[1:], cells, strict=True):
            row[at] = cell
        self.truth[column] = meant or list(cells)

    def some(self):
        """A row, from 1, that is not the first or last."""
        return int(self.rng.integers(2, len(self.grid) - 2))


def plain(words, seed):
    rng = np.random.default_rng(seed)
    texts = [s for s in SENTENCES for _ in range(2)] if words else list(SENTENCES)
    index = [1 + i % 2 for i in range(len(texts))]
    large, small = (list(rng.permutation(c * (2 if words else 1)).tolist()) for c in (LARGE, SMALL))
    pos = [("noun", "verb", "café")[i % 3] for i in rng.permutation(len(texts)).tolist()]
    truth = {"sentence": texts, "pos": pos, "size": large, "freq": small}
    if words:
        truth["word"] = [s.split()[i] for s, i in zip(texts, index, strict=True)]
    columns = {"sentence": texts} | ({"word_index": [str(i) for i in index]} if words else {})
    columns |= {"pos": pos, "size": [str(n) for n in large], "freq": [f"{x:g}" for x in small]}
    return Sheet([list(columns), *map(list, zip(*columns.values(), strict=True))], truth, rng=rng)


def _written(column, how):
    """All numbers of a column in another notation."""
    return lambda sheet: sheet.put(column, map(how, sheet.truth[column]), sheet.truth[column])


@later
def _spelled(sheet, text):
    """One name in one row in another spelling of the same."""
    pos = sheet.truth["pos"]
    at = pos.index("café")
    sheet.put("pos", [*pos[:at], text, *pos[at + 1 :]], pos)


@later
def _names(sheet, values, meant=None):
    """A column of other values, in turn."""
    cells = list(islice(cycle(values.split(" ")), len(sheet.grid) - 1))
    sheet.put("pos", cells, [(meant or {}).get(cell, cell) for cell in cells])


@later
def _sentence(sheet, how, says="row {row}"):
    """One sentence with something that nobody sees, which a notice has to show."""
    row, texts = sheet.some(), [*sheet.truth["sentence"]]
    texts[row - 1] = how(texts[row - 1])
    sheet.put("sentence", texts, texts)
    sheet.says = (says.format(row=row),) if says else ()


@later
def _insert(sheet, cells, at, says="row {row}"):
    """A row that is no stimulus; it is refused or said."""
    row = sheet.some() if at is None else at % (len(sheet.grid) + 1)
    sheet.grid.insert(row, cells(sheet))
    sheet.says = (says.format(row=row),)


@later
def _column(sheet, name, cells, says="", at=0, kind=""):
    """A column more, which is no feature unless a notice names it (`kind`: it is one)."""
    own = [cells(i) for i in range(len(sheet.grid) - 1)]
    for row, cell in zip(sheet.grid, [name, *own], strict=True):
        row.insert(at, cell)
    if kind:
        means = [float(cell) for cell in own] if kind == "number" else own
        sheet.truth[unicodedata.normalize("NFC", name)] = means
    sheet.says = (says,) if says else ()


def _no_header(sheet):
    sheet.grid.pop(0)
    sheet.says = ("no row has names",)


@later
def _rename(sheet, old, new, name=None, says=""):
    sheet.says = (says,) if says else ()
    sheet.grid[0][sheet.grid[0].index(old)] = new
    if name:
        sheet.truth[name] = sheet.truth.pop(old)


@later
def _word_index(sheet, how, with_word=""):
    if "word" not in sheet.truth:
        return
    at = sheet.grid[0].index("word_index")
    for row in sheet.grid[1:]:
        row[at] = how(int(row[at]))
    if with_word:
        _column(with_word, lambda i: sheet.truth["word"][i], at=1)(sheet)


@later
def _ids(sheet, how, says=""):
    """Names of sentences in a column, which keep them together or are named in a notice."""
    of = [SENTENCES.index(s) for s in sheet.truth["sentence"]]
    _column("sentence_id", lambda i: how(2 * of[i] + (i % 2)), says)(sheet)
    sheet.truth["sentence_id"] = of


_HARD_SPACE, _ZERO, _SOFT = "\u00a0", "\u200b", "\u00ad"
# Notations of whole numbers, and of those with decimals.
WHOLE = ("{:,}", "€{}", "{}%", "{} ms", "{:.7E}", "{:08d}", "({})", "0x{:x}")
NUMBERS = {
    **{f"thousands {sign}": ("size", lambda x, s=sign: f"{x:,}".replace(",", s))
       for sign in (".", " ", _HARD_SPACE, "’")},
    **{how: ("size", how.format) for how in WHOLE},
    "digits": ("size", lambda x: str(x).translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩"))),
    **{how: ("freq", how.format) for how in ("{:.3f}", " {:g} ", "{:.6e}")},
    "decimal comma": ("freq", lambda x: f"{x:g}".replace(".", ",")),
    "all thousands comma": ("freq", lambda x: f"{x:.3f}".replace(".", ",")),
    "unicode minus": ("freq", lambda x: f"{x:g}".replace("-", "−")),
    "minus behind": ("freq", lambda x: f"{-x:g}-" if x < 0 else f"{x:g}"),
}  # fmt: skip
# What nobody sees in a sentence.
UNSEEN = {
    "double space": lambda text: text.replace(" ", "  ", 1),
    "hard space": lambda text: text.replace(" ", _HARD_SPACE, 1),
    "line": lambda text: text.replace(" ", "\n", 1),
    "soft": lambda text: text[0] + _SOFT + text[1:],
    **{ascii(how): how.format for how in (
        " {}", "\ufeff{}", "{}\x1b[0m", "{}\ufffd", "{}_x000D_", "{} &amp; co", "{} cafÃ©")},
}  # fmt: skip
SPELLED = ("Café", "cafe\u0301", "café" + _ZERO, f"ca{_SOFT}fé", " café ", "ｃａｆé")
GOOD = ("{} 👩‍👩‍👧", "{} x\u0302y", '{} 5" nail', "{} , and; more\\", "{} مرحبا بكم", "#{} N/A!")
VALUES = (
    "007 07 7", "1e5 100000", "NA DE FR", "None One", "null full", "nan x", "- x y",
    "2024-01-02 2024-03-01", "TRUE FALSE", "1-2 3-4",
    "inf 1 2", "1 0 true", "? !", "ß ss",
    "x ² 2", "'a a",
)  # fmt: skip
MEANING = {
    "True TRUE false": {"TRUE": "True"}, "yes Yes no": {"Yes": "yes"},
    "1.0 1 2": {"1.0": 1, "1": 1, "2": 2}, "1,2 3,4": {"1,2": 1.2, "3,4": 3.4},
}  # fmt: skip
CHANGES = {
    "nothing": lambda sheet: setattr(sheet, "fate", "read"),
    **{f"number {name}": _written(*how) for name, how in NUMBERS.items()},
    **{f"name {text}": _spelled(text) for text in SPELLED},
    **{f"values {values}": _names(values, MEANING.get(values)) for values in (*VALUES, *MEANING)},
    **{f"sentence {name}": _sentence(how) for name, how in UNSEEN.items()},
    **{f"good {how}": _sentence(how.format, "") for how in GOOD},
    "header with a mark": _insert(lambda s: ["\ufeff" + s.grid[0][0], *s.grid[0][1:]], None),
    "header in capitals": _insert(lambda s: [c.upper() for c in s.grid[0]], None),
    "comment": _insert(lambda s: ["# a comment", *[""] * (len(s.grid[0]) - 1)], None),
    "title": _insert(lambda s: ["My stimuli", *[""] * (len(s.grid[0]) - 1)], 0, "row"),
    "units": _insert(lambda s: [*[""] * (len(s.grid[0]) - 1), "per million"], 1),
    "types": _insert(lambda s: ["text", *["str"] * (len(s.grid[0]) - 1)], 1),
    "repeated row": _insert(lambda s: list(s.grid[2]), None, "row 2"),
    "no header": _no_header,
    **{f"index {n!r}": _column(n, str, "without a name" if "named" in n or not n else n)
       for n in ("", "Unnamed: 0", "id")},
    "index from 1": _column("nr", lambda i: str(i + 1), "nr"),
    "duplicate header": _column("freq", lambda i: str(i % 5), "freq_2", 9),
    "header of case": _column("Freq", lambda i: str(i * i % 7), "", 9, "number"),
    "header of form": _column("cafe\u0301", lambda i: "ab"[i % 2], "", 9, "name"),
    "header zero": _column("freq" + _ZERO, lambda i: str(i * i % 7), "freq_2", 9),
    "constant": _column("c", lambda i: "x", "'c'", 9),
    "all missing": _column("c", lambda i: "", "'c'", 9),
    "mixed": _column("c", lambda i: "5" if i % 2 else f"v{i % 3}", "", 9, "name"),
    "hard space header": _rename("freq", "freq" + _HARD_SPACE),
    "capital headers": _rename("sentence", "Sentence "),
    "no name": _rename("freq", "", says="without a name"),
    "line in a header": _rename("freq", "freq\n(ppm)", "freq\n(ppm)"),
    **{f"word_index {how}": _word_index(how.format) for how in ("{}.0", "+{}", "{:02d}")},
    "words": _word_index(str, "word"), "negative": _word_index(lambda i: str(i - 2)),
    "beyond": _word_index(lambda i: str(i + 9)),
    "word_index empty": _word_index(lambda i: "" if i == 2 else str(i)),
    "index from 1, token": _word_index(lambda i: str(i + 1), "token"),
    **{f"ids {name}": _ids(how) for name, how in {
        "that part a sentence": str, "with spaces": lambda i: f"s{i // 2}{' ' * (i % 2)}",
        "1 and 1.0": lambda i: f"{i // 2}{'.0' * (i % 2)}", "large": lambda i: str(2**60 + i // 2),
        "with zero": lambda i: f"s{i // 2}{_ZERO * (i % 2)}",
    }.items()},
    "ids alike": _ids(lambda i: "1", "fold"),
}  # fmt: skip


def text_of(grid, separator, quoting=csv.QUOTE_MINIMAL, end="\n"):
    file = io.StringIO()
    csv.writer(file, delimiter=separator, quoting=quoting, lineterminator=end).writerows(grid)
    return file.getvalue()


WAYS = {
    "commas": (".csv", lambda g: text_of(g, ",").encode()),
    "semicolons": (".csv", lambda g: text_of(g, ";", end="\r\n").encode("utf-8-sig")),
    "tabs, UTF-16": (".tsv", lambda g: text_of(g, "\t", csv.QUOTE_ALL).encode("utf-16")),
    "tabs": (".tsv", lambda g: text_of(g, "\t").encode()),
    "openpyxl": (".xlsx", by_openpyxl),
    "by hand": (".xlsx", lambda g: by_hand([[cell_of(cell) for cell in row] for row in g])),
}


def changed(seed, times=2):
    """Every change, of words or of sentences, written in so many ways."""
    rng = np.random.default_rng(seed)
    for n, (name, change) in enumerate(CHANGES.items()):
        # openpyxl would write 1.234 as a number.
        ways = [way for way in WAYS if name != "number thousands ." or way != "openpyxl"]
        for way in rng.permutation(ways)[:times]:
            only_words = name.startswith(("word", "index from 1,", "negative", "beyond", "ids"))
            sheet = plain(bool(only_words or rng.integers(2)), seed + n)
            change(sheet)
            suffix, write = WAYS[str(way)]
            try:
                data = write(sheet.grid)
            except IllegalCharacterError:  # openpyxl writes no control characters
                suffix, data = ".csv", text_of(sheet.grid, ",").encode()
            yield Hostile(f"{name} ({way})", suffix, data, sheet.truth, sheet.fate, sheet.says)


def files(seed):
    """Files that are written oddly as a whole."""
    sheet = plain(True, seed)
    text, truth = text_of(sheet.grid, ","), sheet.truth
    lines = text.splitlines()
    quoted = text_of(sheet.grid, ",", csv.QUOTE_ALL)
    cases = (
        ("read", {
            "mixed line ends": "".join(s + ("\n", "\r\n", "\r")[i % 3] for i, s in
                                       enumerate(lines)),
            "blank lines": text.replace("\n", "\n\n"), "commas line": text + ",,,,\n",
            "sep line": "sep=,\n" + text, "spaces": text.replace(",noun,", ", noun ,"),
            "columns reversed": text_of([row[::-1] for row in sheet.grid], ","),
            "whole": text.replace("4321,", "4321.0,").replace("1450,", "1.45e3,"),
            "empty column": "\n".join(f"{line}," for line in lines),
        }),
        ("refused", {"NUL in a cell": text.replace("noun", "no\0un", 1),
                     "a cell less in a row": text.replace(",1,", ",", 1)}),
        ("or said", {
            "mark amid": text.replace("\ntwo", "\n\ufefftwo", 1),
            "a cell more in each row": "\n".join([lines[0], *(s + "," for s in lines[1:])]),
            "lone quote": text.replace("noun", 'no"un'), "two files": text + text,
            "space before quotes": quoted.replace(',"', ', "'), "an end cut": text[:-9],
            "comment above": "# made by\n" + text, "title above": "My stimuli,,,,\n" + text,
            "fixed width": text.replace(",", "    "),
        }),
    )  # fmt: skip
    quotes = {**truth, "pos": [x.replace("noun", 'no"un') for x in truth["pos"]]}
    for fate, texts in cases:
        for name, own in texts.items():
            meant = quotes if name == "lone quote" else truth
            yield Hostile(f"file {name}", ".csv", own.encode(), meant, fate)
    for encoding in ("latin-1", "mac-roman", "cp850", "utf-16-le", "utf-32"):
        says = ("Windows-1252",) if encoding[:2] in ("la", "cp") else ()
        yield Hostile(f"file {encoding} True", ".csv", text.encode(encoding), truth, says=says)


def odd():
    """Tables with odd cells, headers and shapes, of which nobody knows what they mean."""
    grid = plain(True, 0).grid
    for cell, column, row in product(HARD, range(len(grid[0])), (3, 0)):
        own = [list(cells) for cells in grid]
        own[row][column] = cell
        data = text_of(own, ",").encode("utf-8", "surrogatepass")
        yield Hostile(f"odd {cell[:10]!r} at {row, column}", ".csv", data, fate="any")
        if row and cell.isprintable():
            data = by_openpyxl(own, typed=False)
            yield Hostile(f"odd {cell[:10]!r}", ".xlsx", data, fate="any")
    for name, data in {
        "empty": b"", "nul": b"\0" * 900, "long line": b"a," * 3_000_000, "quote": b'"' * 99_999,
        "html": b"<html><table><tr><td>sentence</td></tr></table></html>",
        "long cell": f"sentence,x\n{'a ' * 2_000_000},1\nb c,2\n".encode(),
    }.items():  # fmt: skip
        yield Hostile(f"odd {name}", ".csv", data, fate="any")


def damages(seed, n):
    """The plain table with bytes changed; a workbook has checksums of its members."""
    sheet = plain(True, 0)
    good = {
        ".csv": [text_of(sheet.grid, ",").encode()], ".tsv": [text_of(sheet.grid, "\t").encode()],
        ".xlsx": [by_openpyxl(sheet.grid)],
    }  # fmt: skip
    for name, suffix, data in damaged_bytes(good, seed, n, [cell.encode()[:60] for cell in HARD]):
        yield Hostile(name, suffix, data, sheet.truth, "or refused" if suffix == ".xlsx" else "any")
