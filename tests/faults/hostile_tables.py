"""Tables, workbooks and treebanks that are damaged, odd, or good in disguise, by seed."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import openpyxl
from feeding import Hostile

HEADER = ["sentence", "word_index", "pos", "freq", "animate"]
SENTENCES = ["der Hund bellt laut", "eine Katze schläft", "„Nein“, sagt sie", "zwei, drei, vier"]
ROWS = [
    [text, str(i), ("Nomen", "Verb", "")[(i + n) % 3], f"{(7 * n + 3 * i) % 11 / 4:g}", "ja nein"[
        3 * (n % 2) : 2 + 5 * (n % 2)].strip()]
    for n, text in enumerate(SENTENCES)
    for i in range(len(text.split()))
]  # fmt: skip
KINDS = (".csv", ".tsv", ".xlsx", ".conllu")
HARD = ("=1+1", "+1", "@x", "-", "TRUE", "5%", "1,000", "NA", "null", "?", "1e400", "-inf", "nan",
        "0x1F", "１２", "\u202eabc", "\u200b", "\ufeff", "é" * 300, "<script>alert(1)</script>",
        "a\nb", 'a"b', "a;b", "a\tb", "'", "\x1b[31m", "\x00", "\ud7ff", "1" * 5_000, "9" * 400,
        " ", "\xa0", "#N/A", "#REF!", "2024-01-01", "1e-400", "-0", "..", "None")  # fmt: skip


def dialect(
    separator: str,
    *,
    quoting: int = csv.QUOTE_MINIMAL,
    end: str = "\n",
    decimal: str = ".",
    missing: str = "",
    order: list[int] | None = None,
) -> str:
    """The plain table as another program writes it."""
    file, order = io.StringIO(), order or list(range(len(HEADER)))
    writer = csv.writer(file, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerow([HEADER[i] for i in order])
    for row in ROWS:
        cells = [cell or missing for cell in row]
        cells[3] = cells[3].replace(".", decimal)
        writer.writerow([cells[i] for i in order])
    return file.getvalue()


PLAIN = dialect(",").encode()


def workbook(rows: list[list[object]], title: str = "Sheet") -> bytes:
    book, file = openpyxl.Workbook(), io.BytesIO()
    book.active.title = title
    for row in rows:
        book.active.append(row)
    book.save(file)
    return file.getvalue()


def typed(row: list[str]) -> list[object]:
    return [row[0], int(row[1]), row[2] or None, float(row[3]), row[4]]


def write(data: bytes, path: Path) -> None:
    path.write_bytes(data)


def _file(name: str, suffix: str, data: bytes, equals: str = "any", kind: str = "") -> Hostile:
    return Hostile(f"{name} {suffix}", suffix, partial(write, data), equals, kind)


def disguises() -> Iterator[Hostile]:
    """Files that hold the plain table."""
    for separator in ",;\t|":
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC):
            for end in ("\n", "\r\n", "\r"):
                for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"):
                    text = dialect(separator, quoting=quoting, end=end)
                    name = f"disguise {separator!r} {quoting} {end!r} {encoding}"
                    suffix = ".tsv" if separator == "\t" else ".csv"
                    yield _file(name, suffix, text.encode(encoding), "plain")
        if separator != ",":
            text = dialect(separator, decimal=",")
            yield _file(f"disguise {separator!r} comma", ".csv", text.encode(), "plain")
        for missing in ("NA", "NaN", "NULL", "-", "#N/A", "n/a"):
            text = dialect(separator, missing=missing)
            yield _file(f"disguise {separator!r} {missing}", ".csv", text.encode(), "plain")
    rng = np.random.default_rng(0)
    for number in range(10):
        order = rng.permutation(len(HEADER)).tolist()
        yield _file(f"disguise order {number}", ".csv", dialect(",", order=order).encode(), "plain")
        book = [[row[i] for i in order] for row in [list(HEADER), *map(typed, ROWS)]]
        yield _file(f"disguise order {number}", ".xlsx", workbook(book), "plain", "workbook")
    text = dialect(",")
    for name, other in {
        "empty lines": text + "\n\n\n",
        "no last line end": text.rstrip("\n"),
        "spaces": text.replace(",Nomen,", ", Nomen ,"),
        "whole numbers": text.replace(",2,ja", ",2.0,ja").replace(",1,ja", ",1e0,ja"),
        "empty column": "\n".join(f"{line}," for line in text.splitlines()),
    }.items():
        yield _file(f"disguise {name}", ".csv", other.encode(), "plain")
    for name, rows in {
        "typed": [list(HEADER), *map(typed, ROWS)],
        "texts": [list(HEADER), *ROWS],
        "empty rows": [[], list(HEADER), [], *map(typed, ROWS), [None, None]],
    }.items():
        yield _file(f"disguise {name}", ".xlsx", workbook(rows), "plain", "workbook")


def odd() -> Iterator[Hostile]:
    """Tables with odd cells, headers and shapes."""
    for cell in HARD:
        for column in range(len(HEADER)):
            rows = [list(HEADER), *(list(row) for row in ROWS)]
            for place in ((2, column), (0, column)):
                changed = [list(row) for row in rows]
                changed[place[0]][place[1]] = cell
                file = io.StringIO()
                csv.writer(file, lineterminator="\n").writerows(changed)
                data = file.getvalue().encode("utf-8", "surrogatepass")
                yield _file(f"odd {cell[:10]!r} at {place}", ".csv", data)
            if cell.isprintable() and len(cell) < 32_000:
                yield _file(f"odd {cell[:10]!r}", ".xlsx", workbook(changed), "any", "workbook")
    text, rows = dialect(","), ROWS
    for name, data in {
        "empty": b"", "nul": b"\0" * 900, "header": text.splitlines()[0].encode(), "brace": b"{}",
        "html": b"<html><table><tr><td>sentence</td></tr></table></html>",
        "one": b"sentence\na b\n",
        "ragged": (text + "a,b\n").encode(), "long line": b"a," * 3_000_000, "quote": b'"' * 99_999,
        "open quote": text.replace("Nomen", '"Nomen', 1).encode(), "pdf": b"%PDF-1.4\n\x00\xff",
        "cells": ("sentence,x\n" + "a b," * 100_000).encode(), "separators": b",;\t|" * 5_000,
        "long cell": f"sentence,x\n{'a ' * 2_000_000},1\nb c,2\n".encode(), "pickle": b"\x80\x04.",
        "utf-7": text.encode("utf-7"), "utf-32": text.encode("utf-32"),
        "cp037": text.encode("cp037", "replace"),
        "mixed": text.encode() + text.encode("cp1252"), "gzip": b"\x1f\x8b\x08\0\0\0\0\0",
        "twice": text.replace("freq", "pos").encode(), "many columns": (",".join(
            ["sentence", *(f"c{i}" for i in range(3_000))]) + "\n" + "\n".join(
            ",".join(["a b " + str(r), *(str((r * i) % 3) for i in range(3_000))])
            for r in range(20))).encode(),
        "many rows": (text + "".join(",".join(
            [f'"{row[0]} {i}"', *row[1:]]) + "\n" for i in range(4_000) for row in rows)).encode(),
    }.items():  # fmt: skip
        yield _file(f"odd {name}", ".csv", data)


def swelling() -> Iterator[Hostile]:
    """Workbooks that unpack to far more, or whose members lead elsewhere."""
    good = workbook([list(HEADER), *map(typed, ROWS)])

    def with_member(name: str, data: bytes, how: int = zipfile.ZIP_DEFLATED) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(file, "w", how) as new:
            for item in old.namelist():
                if item != name:
                    new.writestr(item, old.read(item))
            new.writestr(name, data)
        return file.getvalue()

    sheet, strings = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"
    laughs = '<!DOCTYPE x [<!ENTITY a "ha">' + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    head = '<?xml version="1.0"?>'
    sheets = {
        "laughs": f"{head}{laughs}]><worksheet><sheetData>&i;</sheetData></worksheet>",
        "outside": f'{head}<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><sst>&a;</sst>',
        "blanks": head + " " * 20_000_000 + "<worksheet/>",
        "deep": head + "<a>" * 200_000,
        "far cell": f'{head}<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/'
        'main"><sheetData><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
        "</worksheet>",
        "no xml": "sentence,x\n",
        "empty": "",
    }
    for name, text in sheets.items():
        for member in (sheet, strings):
            data = with_member(member, text.encode())
            yield _file(f"swelling {name} {member}", ".xlsx", data, "any", "workbook")
    for name in ("../../../tmp/x", "/tmp/x", "xl/../../x"):
        yield _file(f"swelling {name}", ".xlsx", with_member(name, b"x"), "refused", "workbook")
    big = with_member("xl/media/a.bin", bytes(520_000_000))
    yield _file("swelling 520 MB", ".xlsx", big, "refused", "workbook")


BANK = "\n\n".join(
    f"# sent_id = {n}\n"
    + "\n".join(
        f"{i + 1}\t{word}\t{word.lower()}\t{'NOUN' if i else 'DET'}\t_\tNumber={'SP'[n % 2]}ing\t"
        f"{0 if i == 0 else 1}\t{'root' if i == 0 else 'obj'}\t_\t_"
        for i, word in enumerate(f"Der Hund {n} bellt {'laut' if n % 3 else 'leise'}".split())
    )
    for n in range(8)
) + "\n\n"  # fmt: skip


def treebanks() -> Iterator[Hostile]:
    """Treebanks with odd lines, and good ones in disguise."""
    for name, data in {
        "windows": BANK.replace("\n", "\r\n").encode(),
        "mark": b"\xef\xbb\xbf" + BANK.encode(),
        "utf-16": BANK.encode("utf-16"),
        "more lines": BANK.replace("\n\n", "\n\n\n").encode(),
        "comments": BANK.replace("# sent_id", "# text = x\n# sent_id").encode(),
    }.items():
        yield _file(f"disguise {name}", ".conllu", data, "plain", "treebank")
    line = BANK.splitlines()[1].split("\t")
    values = (
        "",
        "_",
        "0",
        "-1",
        "99",
        "1",
        "2",
        "x",
        "1-2",
        "1.1",
        "2-1",
        "9" * 30,
        "9" * 5_000,
        "=|=",
        "A=B|A=C",
        "a b",
        "\x00",
        "1:x|2:y",
        "\u2028",
        "\u00a0",
        "\u200b\u3000",
        "\x1b",
        "é" * 999,
        "|",
        "=",
    )
    for column in range(10):
        for value in values:
            cells = [*line]
            cells[column] = value
            data = BANK.replace("\t".join(line), "\t".join(cells), 1).encode()
            yield _file(f"odd {value[:9]!r} in {column}", ".conllu", data, "any", "treebank")
    for name, text in {
        "empty": "", "csv": dialect(","), "nine": BANK.replace("\t_\t_", "\t_"), "spaces":
        BANK.replace("\t", "    "), "no lines": "\n" * 999, "no tree": BANK.replace("\troot", "\tx")
        .replace("\t0\t", "\t_\t"), "circle": BANK.replace("\t0\t", "\t2\t"), "one": BANK.split(
        "\n\n")[0], "comment": "# a\n" * 99, "eleven": BANK.replace("\t_\t_", "\t_\t_\t_"),
        "long": "\n".join(f"{i + 1}\tw{i}\tw\tX\t_\t_\t{i}\tdep\t_\t_" for i in range(5_000)),
        "longer": "\n".join(f"{i + 1}\tw\tw\tX\t_\t_\t{i}\tdep\t_\t_" for i in range(60_000)),
        "features": BANK.replace("Num", "|".join(f"F{i}=a" for i in range(99_999)) + "|Num", 1),
    }.items():  # fmt: skip
        yield _file(f"odd {name}", ".conllu", text.encode(), "any", "treebank")


def damages(seed: int, n: int, kinds: tuple[str, ...] = KINDS) -> Iterator[Hostile]:
    """Good files with bytes flipped, cut away, doubled, zeroed, put in or swapped."""
    rng = np.random.default_rng(seed)
    good = {
        ".csv": PLAIN, ".tsv": dialect("\t").encode(), ".conllu": BANK.encode(),
        ".xlsx": workbook([list(HEADER), *map(typed, ROWS)]),
    }  # fmt: skip
    for number in range(n):
        suffix = kinds[number % len(kinds)]
        data = bytearray(good[suffix])
        for _ in range(int(rng.integers(1, 4))):
            at, length = int(rng.integers(max(1, len(data)))), int(rng.integers(1, 40))
            how = int(rng.integers(6))
            if how == 0 and data:
                data[at] ^= 1 << int(rng.integers(8))
            elif how == 1:
                del data[at : at + (length if rng.integers(4) else len(data))]
            elif how == 2:
                data[at:at] = data[at : at + length] * int(rng.integers(1, 30))
            elif how == 3:
                data[at : at + length] = bytes(len(data[at : at + length]))
            elif how == 4:
                data[at:at] = HARD[int(rng.integers(len(HARD)))].encode()[:60]
            else:
                data[at : at + 2] = data[at : at + 2][::-1]
        kind = {".xlsx": "workbook", ".conllu": "treebank"}.get(suffix, "table")
        # A workbook has checksums of its members.
        equals = "or refused" if suffix == ".xlsx" else "any"
        yield _file(f"damage {number}", suffix, bytes(data), equals, kind)
