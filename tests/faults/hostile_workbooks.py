"""Workbooks whose cells, sheets and XML are of all kinds, with what they mean."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

import openpyxl
from feeding import Fate, Hostile

Truth = dict[str, list[Any]]
Grid = list[list[str]]
_NS = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPES = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def _typed(cell: str) -> Any:
    number = cell.replace(".", "", 1).lstrip("-")
    plain = number.isascii() and number.isdecimal() and len(cell) < 15 and cell[0] != "0"
    return float(cell) if plain else cell or None


def by_openpyxl(grid: Grid, typed: bool = True) -> bytes:
    book, file = openpyxl.Workbook(), io.BytesIO()
    for row in grid:
        book.active.append([_typed(cell) if typed else cell or None for cell in row])
        for cell in book.active[book.active.max_row]:
            cell.data_type = "s" if isinstance(cell.value, str) else cell.data_type
    book.save(file)
    return file.getvalue()


def inline(cell: str) -> str:
    return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(cell)}</t></is></c>'


def by_hand(
    cells: list[list[str]], *, after: str = "", before: str = "", book: str = "", strings: str = "",
    styles: str = "", rows: str = "",
) -> bytes:  # fmt: skip
    """A workbook of the XML of its cells, as few parts as there may be."""
    data = rows or "".join(f"<row>{''.join(row)}</row>" for row in cells)
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/'
        'content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-'
        'package.relationships+xml"/><Override PartName="/xl/workbook.xml" ContentType="'
        f'{_TYPES}.sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" ContentType="'
        f'{_TYPES}.worksheet+xml"/><Override PartName="/xl/sharedStrings.xml" ContentType="'
        f'{_TYPES}.sharedStrings+xml"/><Override PartName="/xl/styles.xml" ContentType="'
        f'{_TYPES}.styles+xml"/></Types>',
        "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/'
        f'relationships"><Relationship Id="a" Type="{_REL}/officeDocument" Target="xl/workbook.xml"'
        "/></Relationships>",
        "xl/workbook.xml": f'<workbook {_NS} xmlns:r="{_REL}">{book}<sheets><sheet name="Ä &amp; '
        '&apos;b" sheetId="7" r:id="s"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/'
        f'package/2006/relationships"><Relationship Id="s" Type="{_REL}/worksheet" Target='
        f'"worksheets/sheet1.xml"/><Relationship Id="t" Type="{_REL}/sharedStrings" Target='
        '"sharedStrings.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f"<worksheet {_NS}>{before}<sheetData>{data}</sheetData>"
        f"{after}</worksheet>",
        "xl/sharedStrings.xml": f"<sst {_NS}>{strings}</sst>",
    }  # fmt: skip
    if styles:
        parts["xl/styles.xml"] = f"<styleSheet {_NS}>{styles}</styleSheet>"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text.encode())
    return file.getvalue()


def workbooks(grid: Grid, truth: Truth) -> Iterator[Hostile]:
    """Workbooks whose cells are of all kinds, made by hand."""
    xml = [[inline(c) for c in row] for row in grid]

    def number(x: Any, style: int = 0, formula: str = "") -> str:
        of = f"<f>{formula}</f>" if formula else ""
        return f"<c{f' s={chr(34)}{style}{chr(34)}' if style else ''}>{of}<v>{x}</v></c>"

    def with_freq(cells: list[str]) -> list[list[str]]:
        return [xml[0], *([*row[:-1], cell] for row, cell in zip(xml[1:], cells, strict=True))]

    def with_pos(cells: list[str]) -> list[list[str]]:
        return [
            xml[0],
            *([row[0], cell, *row[2:]] for row, cell in zip(xml[1:], cells, strict=True)),
        ]

    def means(column: str, values: list[Any]) -> Truth:
        return {**truth, column: values}

    freq, n = truth["freq"], len(grid) - 1
    formats = (
        '<numFmts count="1"><numFmt numFmtId="164" formatCode="[h]:mm"/></numFmts><cellXfs '
        'count="5"><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="10"/><xf numFmtId="164"/>'
        '<xf numFmtId="20"/></cellXfs>'
    )
    days = [40_000 + i % 3 for i in range(n)]
    errors = ["#N/A", "#DIV/0!", "#REF!", "#NAME?", "#VALUE!", "#NUM!", "#NULL!", "#SPILL!"]
    shared = "".join(
        f"<si><t>{x}</t><rPh sb='0' eb='1'><t>PHON</t></rPh></si>" for x in ("noun", "verb")
    )
    rich = (
        "<c t='inlineStr'><is><r><t xml:space='preserve'>the </t></r><r><rPr><b/></rPr><t>dog</t>"
        "</r></is></c>"
    )
    numbered = [
        f'<row r="{i}">' + "".join(c.replace("<c", f'<c r="{"ABCD"[j]}{i}"', 1) for j,
        c in enumerate(row))
        + "</row>" for i, row in enumerate(xml, 1)
    ]  # fmt: skip
    at_c5 = "".join(
        f'<row r="{i}">' + "".join(c.replace("<c", f'<c r="{"CDEF"[j]}{i}"', 1) for j,
        c in enumerate(row))
        + "</row>" for i, row in enumerate(xml, 5)
    )  # fmt: skip
    swapped = numbered[3].split("<c ")
    everywhere: list[tuple[str, Any, Any, Truth, tuple[str, ...], Fate]] = [
        ("plain", with_freq([number(x) for x in freq]), {}, truth, (), "read"),
        ("computed", with_freq([number(x, 0, "A1+1") for x in freq]), {}, truth, (), "read"),
        ("percent", with_freq([number(x, 2) for x in freq]), {"styles": formats}, truth, (),
        "read"),
        ("styles missing", with_freq([number(x, 2) for x in freq]), {}, truth, (), "or said"),
        ("not computed", with_freq([*map(number, freq[:-1]), "<c><f>A1</f></c>"]), {}, truth, (),
        "refused"),
        ("computed empty", with_freq([*map(number, freq[:-1]), '<c t="str"><f>A1</f><v></v></c>']),
        {},
         means("freq", [*freq[:-1], None]), (), "or said"),
        ("scientific", with_freq([number(f"{x:.9E}") for x in freq]), {}, truth, (), "read"),
        ("long", with_freq([number(f"{x:.17f}") for x in freq]), {}, truth, (), "read"),
        ("booleans", with_pos([f'<c t="b"><v>{i % 2}</v></c>' for i in range(n)]), {},
         means("pos", [str(bool(i % 2)) for i in range(n)]), (), "read"),
        ("days", with_pos([number(d, 1) for d in days]), {"styles": formats},
         means("pos", [f"2009-07-{6 + i % 3:02d}" for i in range(n)]), (), "read"),
        ("days of 1904", with_pos([number(d, 1) for d in days]), {"styles": formats, "book":
         '<workbookPr date1904="1"/>'}, means("pos",
         [f"2013-07-{7 + i % 3:02d}" for i in range(n)]), (), "read"),
        ("days of 1904 true", with_pos([number(d, 1) for d in days]), {"styles": formats, "book":
         '<workbookPr date1904="true"/>'}, means("pos",
         [f"2013-07-{7 + i % 3:02d}" for i in range(n)]), (), "read"),
        ("one day among numbers", with_freq([*map(number, freq[:-1]), number(40_000, 1)]),
         {"styles": formats}, means("freq", [*freq[:-1], None]), ("freq",), "or said"),
        ("times", with_pos([number((1 + i % 3) / 24, 4) for i in range(n)]), {"styles": formats},
         means("pos", [f"0{1 + i % 3}:00:00" for i in range(n)]), (), "read"),
        *((f"error {e}", with_freq([*map(number, freq[:-1]), f'<c t="e"><v>{e}</v></c>']), {},
           means("freq", [*freq[:-1], None]), (), "or said") for e in errors),
        *((f"error {e} as a sentence", [*xml[:-1], [f'<c t="e"><v>{e}</v></c>', *xml[-1][1:]]], {},
           truth, ("row 12",), "or said") for e in errors[:2]),
        ("phonetic", with_pos([f'<c t="s"><v>{i % 2}</v></c>' for i in range(n)]),
        {"strings": shared},
         means("pos", [("noun", "verb")[i % 2] for i in range(n)]), (), "read"),
        ("rich", [xml[0], [rich, *xml[1][1:]], *xml[2:]], {},
         means("sentence", ["the dog", *truth["sentence"][1:]]), (), "read"),
        ("escapes", [*xml[:-1], [inline("a_x000D_\nb_x00E9_"), *xml[-1][1:]]], {},
         means("sentence", [*truth["sentence"][:-1], "a\r\nbé"]), (), "or said"),
        ("merged", [xml[0], *([row[0], xml[1][1] if i % 3 == 0 else "<c/>", *row[2:]]
         for i, row in enumerate(xml[1:]))], {"after": '<mergeCells count="4">' + "".join(
         f'<mergeCell ref="B{i}:B{i + 2}"/>' for i in range(2, 14, 3)) + "</mergeCells>"},
         means("pos", [grid[1][1]] * n), ("merge",), "or said"),
        ("hidden column", xml, {"before": '<cols><col min="2" max="2" hidden="1"/></cols>'}, truth,
         ("hidden",), "or said"),
        ("grouped column", xml,
        {"before": '<cols><col min="2" max="3" width="0" customWidth="1"/></cols>'},
         truth, (), "or said"),
        ("hidden row", [], {"rows": "".join([*numbered[:4], numbered[4].replace("<row",
        '<row hidden="1"', 1),
         *numbered[5:]])}, truth, ("hidden", "5"), "or said"),
        ("at C5", [], {"rows": at_c5}, truth, (), "read"),
        ("formats below", [], {"rows": "".join(numbered) + '<row r="40"><c r="Z40" s="1"/></row>',
         "styles": formats}, truth, (), "read"),
        ("text behind", [*xml, *[[]] * 3, [inline("note: made in May")]], {}, truth, (), "refused"),
        ("cells out of order", [], {"rows": "".join([*numbered[:3], "<c ".join(
         [swapped[0], swapped[2], swapped[1], *swapped[3:]]), *numbered[4:]])},
         truth, (), "or said"),
        ("a cell twice", [], {"rows": "".join(numbered).replace('<c r="B4"', '<c r="A4"', 1)},
        truth, (), "or said"),
        ("rows swapped", [], {"rows": "".join([*numbered[:3], numbered[4], numbered[3],
        *numbered[5:]])},
         truth, (), "or said"),
        ("apostrophes", with_freq([inline(f"'{x:g}") for x in freq]), {}, truth, (), "or said"),
        ("texts", with_freq([inline(f"{x:g}") for x in freq]), {}, truth, (), "read"),
        ("some texts", with_freq([inline(f"{x:g}") if i % 3 else number(x) for i,
        x in enumerate(freq)]),
         {}, truth, (), "read"),
        ("header number", [[*xml[0][:-1], number(2019)], *xml[1:]], {},
         {("2019" if k == "freq" else k): v for k, v in truth.items()}, (), "read"),
        ("header day", [[*xml[0][:-1], number(40_000, 1)], *xml[1:]], {"styles": formats},
         {("2009-07-06" if k == "freq" else k): v for k, v in truth.items()}, (), "read"),
    ]  # fmt: skip
    for name, cells, how, meaning, says, fate in everywhere:
        yield Hostile(f"workbook {name}", ".xlsx", by_hand(cells, **how), meaning, fate, says)


def sheets(grid: Grid, truth: Truth) -> Iterator[Hostile]:
    """Workbooks of several sheets, of which some are empty or hidden."""
    for name, order in {
        "empty first": ("", "data"), "notes first": ("note", "data"), "hidden first": ("hidden",
        "data"),
        "two": ("data", "other"), "only hidden": ("data hidden",),
    }.items():  # fmt: skip
        book, file = openpyxl.Workbook(), io.BytesIO()
        book.remove(book.active)
        for i, what in enumerate(order):
            one = book.create_sheet(f"{what}{i} 'x")
            if what == "note":
                one.append(["see the other sheet"])
            elif what in ("data", "other", "hidden", "data hidden"):
                for row in grid[: None if "data" in what else 5]:
                    one.append([_typed(c) for c in row])
            one.sheet_state = "hidden" if "hidden" in what else "visible"
        if name == "only hidden":
            book.create_sheet("empty")
        book.save(file)
        says = ("sheet",) if name not in ("empty first",) else ()
        yield Hostile(f"sheets {name}", ".xlsx", file.getvalue(), truth, says=says)


def swelling(grid: Grid) -> Iterator[Hostile]:
    """Workbooks that unpack to far more, or whose members lead elsewhere."""
    good = by_openpyxl(grid)

    def with_member(name: str, data: bytes) -> bytes:
        file = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(good)) as old,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new,
        ):
            for item in old.namelist():
                if item != name:
                    new.writestr(item, old.read(item))
            new.writestr(name, data)
        return file.getvalue()

    laughs = '<!DOCTYPE x [<!ENTITY a "ha">' + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    head = '<?xml version="1.0"?>'
    for name, text in {
        "laughs": f"{head}{laughs}]><worksheet><sheetData>&i;</sheetData></worksheet>",
        "outside": f'{head}<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><sst>&a;</sst>',
        "blanks": head + " " * 20_000_000 + "<worksheet/>",
        "deep": head + "<a>" * 200_000,
        "far cell": f'{head}<worksheet {_NS}><sheetData><row r="1048576"><c r="XFD1048576"><v>1</v>'
        "</c></row></sheetData></worksheet>",
        "no xml": "sentence,x\n",
        "empty": "",
    }.items():
        for member in ("xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"):
            data = with_member(member, text.encode())
            yield Hostile(f"swelling {name} {member}", ".xlsx", data, fate="any")
    for name in ("../../../tmp/x", "/tmp/x", "xl/../../x"):
        yield Hostile(f"swelling {name}", ".xlsx", with_member(name, b"x"), fate="refused")
    big = with_member("xl/media/a.bin", bytes(520_000_000))
    yield Hostile("swelling 520 MB", ".xlsx", big, fate="refused")
