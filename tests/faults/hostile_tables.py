"""Tables that are written oddly, mean something else than they seem to, or are damaged."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from damaging import damaged_bytes
from feeding import Fate, Hostile
from hostile_workbooks import Grid, Truth, by_hand, by_openpyxl, inline
from openpyxl.utils.exceptions import IllegalCharacterError

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

    grid: Grid
    truth: Truth
    says: tuple[str, ...] = ()
    fate: Fate = "or said"
    rng: Any = field(default_factory=lambda: np.random.default_rng(0))

    def put(self, column: str, cells: list[str], meant: list[Any] | None = None) -> None:
        at = self.grid[0].index(column)
        for row, cell in zip(self.grid[1:], cells, strict=True):
            row[at] = cell
        self.truth[column] = meant or list(cells)

    def cell(self, row: int, column: str, text: str) -> None:
        self.grid[row][self.grid[0].index(column)] = text

    def some(self) -> int:
        """A row, from 1, that is not the first or last."""
        return int(self.rng.integers(2, len(self.grid) - 2))


def plain(words: bool, seed: int) -> Sheet:
    rng = np.random.default_rng(seed)
    texts = [s for s in SENTENCES for _ in range(2)] if words else list(SENTENCES)
    index = [1 + i % 2 for i in range(len(texts))]
    large, small = (list(rng.permutation(c * (2 if words else 1)).tolist()) for c in (LARGE, SMALL))
    pos = [("noun", "verb", "café")[i % 3] for i in rng.permutation(len(texts)).tolist()]
    truth: Truth = {"sentence": texts, "pos": pos, "size": large, "freq": small}
    if words:
        truth["word"] = [s.split()[i] for s, i in zip(texts, index, strict=True)]
    columns = {"sentence": texts} | ({"word_index": [str(i) for i in index]} if words else {})
    columns |= {"pos": pos, "size": [str(n) for n in large], "freq": [f"{x:g}" for x in small]}
    rows = zip(*columns.values(), strict=True)
    return Sheet([list(columns), *map(list, rows)], truth, rng=rng)


def _written(column: str, how: Callable[[Any], str]) -> Callable[[Sheet], None]:
    """All numbers of a column in another notation."""
    return lambda sheet: sheet.put(
        column, [how(x) for x in sheet.truth[column]], sheet.truth[column]
    )


def _spelled(text: str) -> Callable[[Sheet], None]:
    """One name in one row in another spelling of the same."""

    def change(sheet: Sheet) -> None:
        row = next(i for i, x in enumerate(sheet.truth["pos"], 1) if x == "café")
        sheet.cell(row, "pos", text)

    return change


def _names(values: str, meant: dict[str, Any] | None = None) -> Callable[[Sheet], None]:
    """A column of other values, in turn."""
    own = values.split(" ")
    means = meant or {}

    def change(sheet: Sheet) -> None:
        cells = [own[i % len(own)] for i in range(len(sheet.grid) - 1)]
        sheet.put("pos", cells, [means.get(cell, cell) for cell in cells])

    return change


def _sentence(how: Callable[[str], str], says: str = "row {row}") -> Callable[[Sheet], None]:
    """One sentence with something that nobody sees, which a notice has to show."""

    def change(sheet: Sheet) -> None:
        row = sheet.some()
        text = how(sheet.truth["sentence"][row - 1])
        sheet.cell(row, "sentence", text)
        sheet.truth["sentence"] = [*sheet.truth["sentence"]]
        sheet.truth["sentence"][row - 1] = text
        sheet.says = (says.format(row=row),) if says else ()

    return change


def _insert(
    cells: Callable[[Sheet], list[str]], at: int | None, says: str = "row {row}"
) -> Callable[[Sheet], None]:
    """A row that is no stimulus; it is refused or said."""

    def change(sheet: Sheet) -> None:
        row = sheet.some() if at is None else at % (len(sheet.grid) + 1)
        sheet.grid.insert(row, cells(sheet))
        sheet.says = (says.format(row=row),)

    return change


def _column(name: str, cells: Callable[[int], str], says: str = "", at: int = 0, kind: str = ""):
    """A column more, which is no feature unless a notice names it (`kind`: it is one)."""

    def change(sheet: Sheet) -> None:
        own = [cells(i) for i in range(len(sheet.grid) - 1)]
        for row, cell in zip(sheet.grid, [name, *own], strict=True):
            row.insert(at, cell)
        if kind:
            sheet.truth[unicodedata.normalize("NFC", name)] = (
                [float(c) for c in own] if kind == "number" else own
            )
        sheet.says = (says,) if says else ()

    return change


def _no_header(sheet: Sheet) -> None:
    sheet.grid.pop(0)
    sheet.says = ("header",)


def _either(sign: str) -> Callable[[Sheet], None]:
    """Whole numbers below 100,000 with a sign that could be that of decimals."""

    def change(sheet: Sheet) -> None:
        if sign == ".":
            _written("freq", lambda x: f"{x:g}".replace(".", ","))(sheet)
        numbers = [x % 99_999 + 1000 for x in sheet.truth["size"]]
        sheet.put("size", [f"{x:,}".replace(",", sign) for x in numbers], numbers)

    return change


def _rename(old: str, new: str, name: str | None = None, says: str = "") -> Callable[[Sheet], None]:
    def change(sheet: Sheet) -> None:
        sheet.says = (says,) if says else ()
        sheet.grid[0][sheet.grid[0].index(old)] = new
        if name:
            sheet.truth[name] = sheet.truth.pop(old)

    return change


def _word_index(how: Callable[[int], str], with_word: str = "") -> Callable[[Sheet], None]:
    def change(sheet: Sheet) -> None:
        if "word" not in sheet.truth:
            return
        at = sheet.grid[0].index("word_index")
        for row in sheet.grid[1:]:
            row[at] = how(int(row[at]))
        if with_word:
            _column(with_word, lambda i: sheet.truth["word"][i], at=1)(sheet)

    return change


def _ids(how: Callable[[int], str], says: str = "") -> Callable[[Sheet], None]:
    """Names of sentences in a column, which keep them together or are named in a notice."""

    def change(sheet: Sheet) -> None:
        of = [SENTENCES.index(s) for s in sheet.truth["sentence"]]
        _column("sentence_id", lambda i: how(2 * of[i] + (i % 2)), says)(sheet)
        sheet.truth["sentence_id"] = of

    return change


_HARD_SPACE, _ZERO, _SOFT = "\u00a0", "\u200b", "\u00ad"


def _numbers() -> Iterator[tuple[str, Callable[[Sheet], None]]]:
    """Notations of whole numbers, and of those with decimals."""
    thousands = {"comma": ",", "point": ".", "space": " ", "hard space": _HARD_SPACE,
                 "apostrophe": "’"}  # fmt: skip
    for name, sign in thousands.items():
        yield f"thousands {name}", _written("size", lambda x, s=sign: f"{x:,}".replace(",", s))
    for how in ("{:_}", "€{}", "${:,}", "{}%", "{} ms", "+{}", "{:.7e}", "{:.7E}", "{}.0",
                "{:08d}", "({})", "~{}"):  # fmt: skip
        yield how, _written("size", how.format)
    yield "hex", _written("size", hex)
    arabic = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
    yield "digits", _written("size", lambda x: str(x).translate(arabic))
    for how in ("{:.3f}", " {:g} ", "{:.6e}"):
        yield how, _written("freq", how.format)
    for name, old, sign, how in (
        ("decimal comma", ".", ",", "{:g}"), ("all thousands comma", ".", ",", "{:.3f}"),
        ("unicode minus", "-", "−", "{:g}"),
    ):  # fmt: skip
        yield name, _written("freq", lambda x, o=old, s=sign, h=how: h.format(x).replace(o, s))
    yield "minus behind", _written("freq", lambda x: f"{-x:g}-" if x < 0 else f"{x:g}")


def _sentences() -> Iterator[tuple[str, Callable[[str], str]]]:
    """What nobody sees in a sentence."""
    for name, sign in {"double space": "  ", "hard space": _HARD_SPACE, "zero": _ZERO + " ",
                       "tab": "\t", "line": "\n"}.items():  # fmt: skip
        yield name, lambda text, s=sign: text.replace(" ", s, 1)
    for name, sign in {"soft": _SOFT, "joiner": "\u2060"}.items():
        yield name, lambda text, s=sign: text[0] + s + text[1:]
    for how in (" {}", "{} ", "\ufeff{}", "{}\r\n", "{}\x1b[0m", "{}\ufffd", "{}_x000D_",
                "{} &amp; co", "{}\u2028", "{} cafÃ©", "{}\ue000"):  # fmt: skip
        yield ascii(how), how.format


SPELLED = {
    "capital": "Café", "upper": "CAFÉ", "decomposed": "cafe\u0301", "zero": "café" + _ZERO,
    "soft": f"ca{_SOFT}fé", "mark": "\ufeffcafé", "space": " café ",
    "hard space": "café" + _HARD_SPACE, "wide": "ｃａｆé", "left to right": "\u200ecafé",
}  # fmt: skip
GOOD = ("{} 👩‍👩‍👧", "{} x\u0302y", '{} 5" nail', "{} , and; more\\", "{} 'tis", "{} مرحبا بكم",
        "#{} ok?", "{} = x", '{} "so" he said', "#{} N/A!")  # fmt: skip
VALUES = (
    "007 07 7", "01 02 10", "1e5 100000", "NA DE FR", "None One", "null full", "nan x", "+ - 0",
    "- x y", "9007199254740993 9007199254740992 5", "1e-400 0 1", "2024-01-02 2024-03-01",
    "0.12345678901234567891 0.12345678901234567892 1", "02.01.2024 01.03.2024", "TRUE FALSE",
    "1/2/2024 3/1/2024", "12:30 13:45:10", "1-2 3-4", "#1 #2", "inf 1 2", "1 0 true", "@x =1+1",
    "INF NF", "? !", ". ,", "_ x", "00 0", "ß ss", "I ı", "½ 1", "x ² 2", "Ⅳ IV", "n. n v", "'a a",
)  # fmt: skip
MEANING = {
    "True TRUE false": {"TRUE": "True"}, "yes Yes no": {"Yes": "yes"},
    "1.0 1 2": {"1.0": 1, "1": 1, "2": 2}, "1. 2.": {"1.": 1, "2.": 2},
    "1,2 3,4": {"1,2": 1.2, "3,4": 3.4},
}  # fmt: skip
CHANGES: dict[str, Callable[[Sheet], None]] = {
    "nothing": lambda sheet: setattr(sheet, "fate", "read"),
    **{f"number {name}": change for name, change in _numbers()},
    **{f"name {name}": _spelled(text) for name, text in SPELLED.items()},
    **{f"values {values}": _names(values, MEANING.get(values)) for values in (*VALUES, *MEANING)},
    **{f"sentence {name}": _sentence(how) for name, how in _sentences()},
    **{f"good {how}": _sentence(how.format, "") for how in GOOD},
    "total": _insert(lambda s: ["Total", *[""] * (len(s.grid[0]) - 3), "99", "1.5"], -1),
    "mean": _insert(lambda s: ["Mean", *[""] * (len(s.grid[0]) - 3), "99", "1.5"], -1),
    "summe": _insert(lambda s: ["Summe", *["noun"] * (len(s.grid[0]) - 3), "99", "1.5"], -1),
    "nan sentence": _insert(lambda s: ["nan", *s.grid[3][1:]], None),
    "NA sentence": _insert(lambda s: ["NA", *s.grid[3][1:]], None),
    "header again": _insert(lambda s: list(s.grid[0]), None),
    "header with a mark": _insert(lambda s: ["\ufeff" + s.grid[0][0], *s.grid[0][1:]], None),
    "header in capitals": _insert(lambda s: [c.upper() for c in s.grid[0]], None),
    "comment": _insert(lambda s: ["# a comment", *[""] * (len(s.grid[0]) - 1)], None),
    "title": _insert(lambda s: ["My stimuli", *[""] * (len(s.grid[0]) - 1)], 0, "row"),
    "units": _insert(lambda s: [*[""] * (len(s.grid[0]) - 1), "per million"], 1),
    "types": _insert(lambda s: ["text", *["str"] * (len(s.grid[0]) - 1)], 1),
    "repeated row": _insert(lambda s: list(s.grid[2]), None, "row 2"),
    "no header": _no_header,
    **{f"index {n!r}": _column(n, str, "without a name" if "named" in n or not n else n)
       for n in ("", "Unnamed: 0", "index", "id", "row")},
    "thousands or decimals": _either(","), "thousands points or decimals": _either("."),
    "index from 1": _column("nr", lambda i: str(i + 1), "nr"),
    "duplicate header": _column("freq", lambda i: str(i % 5), "freq_2", 9),
    "header of case": _column("Freq", lambda i: str(i * i % 7), "", 9, "number"),
    "header of form": _column("cafe\u0301", lambda i: "ab"[i % 2], "", 9, "name"),
    "header zero": _column("freq" + _ZERO, lambda i: str(i * i % 7), "freq_2", 9),
    "header numeric": _column("2019", lambda i: str(i * i % 7), "", 9, "number"),
    "constant": _column("c", lambda i: "x", "'c'", 9),
    "all missing": _column("c", lambda i: "", "'c'", 9),
    "all different": _column("c", lambda i: f"v{i}", "", 9, "name"),
    "mixed": _column("c", lambda i: "5" if i % 2 else f"v{i % 3}", "", 9, "name"),
    "spaces around headers": _rename("pos", " pos "),
    "hard space header": _rename("freq", "freq" + _HARD_SPACE),
    "capital headers": _rename("sentence", "Sentence "),
    "no name": _rename("freq", "", says="without a name"),
    "header mark": _rename("sentence", "\ufeffsentence"),
    "line in a header": _rename("freq", "freq\n(ppm)", "freq\n(ppm)"),
    **{f"word_index {how}": _word_index(how.format) for how in ("{}.0", "{},0", "+{}", "{:02d}")},
    "words": _word_index(str, "word"), "negative": _word_index(lambda i: str(i - 2)),
    "beyond": _word_index(lambda i: str(i + 9)),
    "word_index empty": _word_index(lambda i: "" if i == 2 else str(i)),
    **{f"index from 1, {name}": _word_index(lambda i: str(i + 1), name)
       for name in ("word", "target", "token", "Word ")},
    **{f"ids {name}": _ids(how) for name, how in {
        "that part a sentence": str, "with spaces": lambda i: f"s{i // 2}{' ' * (i % 2)}",
        "of case": lambda i: f"{'sS'[i % 2]}{i // 2}",
        "1 and 1.0": lambda i: f"{i // 2}{'.0' * (i % 2)}", "large": lambda i: str(2**60 + i // 2),
        "with zero": lambda i: f"s{i // 2}{_ZERO * (i % 2)}",
    }.items()},
    "ids alike": _ids(lambda i: "1", "fold"),
}  # fmt: skip


def text_of(grid: Grid, separator: str, quoting: int = csv.QUOTE_MINIMAL, end: str = "\n") -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=separator, quoting=quoting, lineterminator=end).writerows(grid)
    return file.getvalue()


WAYS: dict[str, tuple[str, Callable[[Grid], bytes]]] = {
    "commas": (".csv", lambda g: text_of(g, ",").encode()),
    "semicolons": (".csv", lambda g: text_of(g, ";", end="\r\n").encode("utf-8-sig")),
    "tabs, UTF-16": (".tsv", lambda g: text_of(g, "\t", csv.QUOTE_ALL).encode("utf-16")),
    "tabs, UTF-16 without a mark": (".tsv", lambda g: text_of(g, "\t").encode("utf-16-be")),
    "openpyxl": (".xlsx", by_openpyxl),
    "by hand": (".xlsx", lambda g: by_hand([[inline(cell) for cell in row] for row in g])),
}


def changed(seed: int, times: int = 2) -> Iterator[Hostile]:
    """Every change, of words or of sentences, written in so many ways."""
    rng = np.random.default_rng(seed)
    for n, (name, change) in enumerate(CHANGES.items()):
        # openpyxl would write 1.234 as a number.
        ways = [way for way in WAYS if "thousands point" not in name or way != "openpyxl"]
        for way in rng.permutation(ways)[:times]:
            only_words = name.startswith(("word", "index from 1,", "negative", "beyond", "ids"))
            sheet = plain(bool(only_words or rng.integers(2)), seed + n)
            change(sheet)
            suffix, write = WAYS[str(way)]
            try:
                data = write(sheet.grid)
            except IllegalCharacterError:  # openpyxl writes no control characters
                suffix, data = WAYS["commas"][0], WAYS["commas"][1](sheet.grid)
            yield Hostile(f"{name} ({way})", suffix, data, sheet.truth, sheet.fate, sheet.says)


def files(seed: int) -> Iterator[Hostile]:
    """Files that are written oddly as a whole."""
    sheet = plain(True, seed)
    text, truth = text_of(sheet.grid, ","), sheet.truth
    lines = text.splitlines()
    quoted = text_of(sheet.grid, ",", csv.QUOTE_ALL)
    cases: tuple[tuple[Fate, dict[str, str]], ...] = (
        ("read", {
            "mixed line ends": "".join(s + ("\n", "\r\n", "\r")[i % 3] for i, s in
                                       enumerate(lines)),
            "blank lines": text.replace("\n", "\n\n"), "commas line": text + ",,,,\n",
            "sep line": "sep=,\n" + text,
        }),
        ("refused", {"NUL in a cell": text.replace("noun", "no\0un", 1),
                     "a cell less in a row": text.replace(",1,", ",", 1)}),
        ("or said", {
            "two marks": "\ufeff\ufeff" + text,
            "mark amid": text.replace("\ntwo", "\n\ufefftwo", 1),
            "a cell more in each row": "\n".join([lines[0], *(s + "," for s in lines[1:])]),
            "doubled quotes": quoted.replace('"noun"', '"no""un"'),
            "lone quote": text.replace("noun", 'no"un'),
            "space before quotes": quoted.replace(',"', ', "'),
            "single quotes": quoted.replace('"', "'"), "two files": text + text,
            "an end cut": text[:-9], "a row cut": text[: text.rindex("\n", 0, -1) + 12],
            "spaces lines": text + "  \n", "comment above": "# made by\n" + text,
            "title above": "My stimuli,,,,\n" + text, "form feed": text + "\x0c",
            "control Z": text + "\x1a", "fixed width": text.replace(",", "    "),
            "colons": text.replace(",", ":"), "json lines": '{"sentence": "a b"}\n' * 9,
        }),
    )  # fmt: skip
    quotes = {**truth, "pos": [x.replace("noun", 'no"un') for x in truth["pos"]]}
    for fate, texts in cases:
        for name, own in texts.items():
            meant = quotes if name in ("doubled quotes", "lone quote") else truth
            yield Hostile(f"file {name}", ".csv", own.encode(), meant, fate)
    bare = {k: [x.replace("é", "e") if isinstance(x, str) else x for x in v]
            for k, v in truth.items()}  # fmt: skip
    for encoding in ("latin-1", "cp1252", "mac-roman", "cp850", "utf-16-le", "utf-32", "cp1250"):
        says = ("Windows-1252",) if encoding[:2] in ("la", "cp") else ()
        yield Hostile(f"file {encoding} True", ".csv", text.encode(encoding), truth, says=says)
        data = text.replace("é", "e").encode(encoding)
        yield Hostile(f"file {encoding} False", ".csv", data, bare)


def disguises() -> Iterator[Hostile]:
    """Files that hold the plain table, and are read as that."""
    sheet = plain(True, 0)
    grid, truth = sheet.grid, sheet.truth

    def file(name: str, data: bytes, meant: Truth = truth, suffix: str = ".csv") -> Hostile:
        return Hostile(f"disguise {name}", suffix, data, meant, "read")

    commas, gaps = ([list(row) for row in grid] for _ in range(2))
    for row in commas[1:]:
        row[-1] = row[-1].replace(".", ",")
    for separator in ",;\t|":
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC):
            for end in ("\n", "\r\n", "\r"):
                for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"):
                    data = text_of(grid, separator, quoting, end).encode(encoding)
                    name = f"{separator!r} {quoting} {end!r} {encoding}"
                    yield file(name, data, suffix=".tsv" if separator == "\t" else ".csv")
        if separator != ",":
            yield file(f"{separator!r} comma", text_of(commas, separator).encode())
        for missing in ("NA", "NaN", "NULL", "-", "#N/A", "n/a"):
            pos = [None if i % 5 == 1 else x for i, x in enumerate(truth["pos"])]
            for row, cell in zip(gaps[1:], pos, strict=True):
                row[2] = cell or missing
            data = text_of(gaps, separator).encode()
            yield file(f"{separator!r} {missing}", data, {**truth, "pos": pos})
    rng = np.random.default_rng(0)
    for number in range(10):
        order = rng.permutation(len(grid[0])).tolist()
        own = [[row[i] for i in order] for row in grid]
        yield file(f"order {number}", text_of(own, ",").encode())
        yield file(f"order {number}", by_openpyxl(own), suffix=".xlsx")
    text = text_of(grid, ",")
    for name, other in {
        "empty lines": text + "\n\n\n", "no last line end": text.rstrip("\n"),
        "spaces": text.replace(",noun,", ", noun ,"),
        "whole numbers": text.replace("4321,", "4321.0,").replace("1450,", "1.45e3,"),
        "empty column": "\n".join(f"{line}," for line in text.splitlines()),
    }.items():  # fmt: skip
        yield file(name, other.encode())
    yield file("typed", by_openpyxl(grid), suffix=".xlsx")
    yield file("texts", by_openpyxl(grid, typed=False), suffix=".xlsx")
    yield file("empty rows", by_openpyxl([[], grid[0], [], *grid[1:], [""] * 2]), suffix=".xlsx")


def odd() -> Iterator[Hostile]:
    """Tables with odd cells, headers and shapes, of which nobody knows what they mean."""
    grid = plain(True, 0).grid
    for cell in HARD:
        for column in range(len(grid[0])):
            for row in (3, 0):
                own = [list(cells) for cells in grid]
                own[row][column] = cell
                data = text_of(own, ",").encode("utf-8", "surrogatepass")
                yield Hostile(f"odd {cell[:10]!r} at {row, column}", ".csv", data, fate="any")
            if cell.isprintable() and len(cell) < 32_000:
                data = by_openpyxl(own, typed=False)
                yield Hostile(f"odd {cell[:10]!r}", ".xlsx", data, fate="any")
    text = text_of(grid, ",")
    many = range(3_000)
    wide = [["sentence", *(f"c{i}" for i in many)],
            *([f"a b {r}", *(str(r * i % 3) for i in many)] for r in range(20))]  # fmt: skip
    long = [[f"{row[0]} {i}", *row[1:]] for i in range(3_000) for row in grid[1:]]
    for name, data in {
        "empty": b"", "nul": b"\0" * 900, "header": text.splitlines()[0].encode(), "brace": b"{}",
        "html": b"<html><table><tr><td>sentence</td></tr></table></html>",
        "one": b"sentence\na b\n",
        "ragged": (text + "a,b\n").encode(), "long line": b"a," * 3_000_000, "quote": b'"' * 99_999,
        "open quote": text.replace("noun", '"noun', 1).encode(), "pdf": b"%PDF-1.4\n\x00\xff",
        "cells": ("sentence,x\n" + "a b," * 100_000).encode(), "separators": b",;\t|" * 5_000,
        "long cell": f"sentence,x\n{'a ' * 2_000_000},1\nb c,2\n".encode(), "pickle": b"\x80\x04.",
        "utf-7": text.encode("utf-7"), "utf-32": text.encode("utf-32"),
        "cp037": text.encode("cp037", "replace"),
        "mixed": text.encode() + text.encode("cp1252"), "gzip": b"\x1f\x8b\x08\0\0\0\0\0",
        "twice": text.replace("freq", "pos").encode(), "many columns": text_of(wide, ",").encode(),
        "many rows": text_of([*grid, *long], ",").encode(),
    }.items():  # fmt: skip
        yield Hostile(f"odd {name}", ".csv", data, fate="any")


def damages(seed: int, n: int) -> Iterator[Hostile]:
    """The plain table with bytes changed; a workbook has checksums of its members."""
    sheet = plain(True, 0)
    good = {
        ".csv": [text_of(sheet.grid, ",").encode()], ".tsv": [text_of(sheet.grid, "\t").encode()],
        ".xlsx": [by_openpyxl(sheet.grid)],
    }  # fmt: skip
    for name, suffix, data in damaged_bytes(good, seed, n, [cell.encode()[:60] for cell in HARD]):
        yield Hostile(name, suffix, data, sheet.truth, "or refused" if suffix == ".xlsx" else "any")
