"""Workbooks whose cells, sheets and XML are of all kinds, with what they mean."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
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


FORMATS = (
    '<numFmts count="1"><numFmt numFmtId="164" formatCode="[h]:mm"/></numFmts><cellXfs '
    'count="5"><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="10"/><xf numFmtId="164"/>'
    '<xf numFmtId="20"/></cellXfs>'
)
ERRORS = ("#N/A", "#DIV/0!", "#REF!", "#NAME?", "#VALUE!", "#NUM!", "#NULL!", "#SPILL!")


def number(x: Any, style: int = 0, formula: str = "") -> str:
    of = f"<f>{formula}</f>" if formula else ""
    return f"<c{f' s={chr(34)}{style}{chr(34)}' if style else ''}>{of}<v>{x}</v></c>"


def workbooks(grid: Grid, truth: Truth) -> Iterator[Hostile]:
    """Workbooks whose cells and rows are of all kinds, made by hand."""
    xml, freq, n = [[inline(c) for c in row] for row in grid], truth["freq"], len(grid) - 1

    def file(
        name: str,
        cells: list[list[str]],
        meant: Truth = truth,
        fate: Fate = "read",
        says: tuple[str, ...] = (),
        **how: str,
    ) -> Hostile:
        return Hostile(f"workbook {name}", ".xlsx", by_hand(cells, **how), meant, fate, says)

    def with_freq(cells: Iterable[str]) -> list[list[str]]:
        return [xml[0], *([*row[:-1], cell] for row, cell in zip(xml[1:], cells, strict=True))]

    def with_pos(cells: Iterable[str]) -> list[list[str]]:
        both = zip(xml[1:], cells, strict=True)
        return [xml[0], *([row[0], cell, *row[2:]] for row, cell in both)]

    for name, of in {
        "plain": number, "computed": lambda x: number(x, 0, "A1+1"),
        "scientific": lambda x: number(f"{x:.9E}"), "long": lambda x: number(f"{x:.17f}"),
        "texts": lambda x: inline(f"{x:g}"), "percent": lambda x: number(x, 2),
        "some texts": lambda x: inline(f"{x:g}") if x > 3 else number(x),
    }.items():  # fmt: skip
        yield file(name, with_freq(map(of, freq)), styles=FORMATS)
    percent = with_freq(number(x, 2) for x in freq)
    yield file("styles missing", percent, fate="or said")
    yield file("apostrophes", with_freq(inline(f"'{x:g}") for x in freq), fate="or said")

    lacks_last = {**truth, "freq": [*freq[:-1], None]}
    for name, cell, says in (
        ("computed empty", '<c t="str"><f>A1</f><v></v></c>', ()),
        ("one day among numbers", number(40_000, 1), ("freq",)),
        *((f"error {e}", f'<c t="e"><v>{e}</v></c>', ()) for e in ERRORS),
    ):
        last = with_freq([*map(number, freq[:-1]), cell])
        yield file(name, last, lacks_last, "or said", says, styles=FORMATS)
    not_computed = with_freq([*map(number, freq[:-1]), "<c><f>A1</f></c>"])
    yield file("not computed", not_computed, fate="refused")
    for e in ERRORS[:2]:
        last = [*xml[:-1], [f'<c t="e"><v>{e}</v></c>', *xml[-1][1:]]]
        yield file(f"error {e} as a sentence", last, fate="or said", says=("row 12",))

    phonetic = "".join(
        f"<si><t>{x}</t><rPh sb='0' eb='1'><t>PHON</t></rPh></si>" for x in ("noun", "verb")
    )
    kinds: tuple[tuple[str, Callable[[int], str], Callable[[int], str], dict[str, str]], ...] = (
        ("booleans", lambda i: f'<c t="b"><v>{i % 2}</v></c>', lambda i: str(bool(i % 2)), {}),
        ("phonetic", lambda i: f'<c t="s"><v>{i % 2}</v></c>', lambda i: ("noun", "verb")[i % 2],
         {"strings": phonetic}),
        ("times", lambda i: number((1 + i % 3) / 24, 4), lambda i: f"0{1 + i % 3}:00:00", {}),
        ("days", lambda i: number(40_000 + i % 3, 1), lambda i: f"2009-07-{6 + i % 3:02d}", {}),
        *((f"days of 1904 {true}", lambda i: number(40_000 + i % 3, 1),
           lambda i: f"2013-07-{7 + i % 3:02d}", {"book": f'<workbookPr date1904="{true}"/>'})
          for true in ("1", "true")),
    )  # fmt: skip
    for name, kind, means, how in kinds:
        meant = {**truth, "pos": [means(i) for i in range(n)]}
        yield file(name, with_pos(map(kind, range(n))), meant, styles=FORMATS, **how)
    for header, name in ((number(2019), "2019"), (number(40_000, 1), "2009-07-06")):
        meant = {(name if k == "freq" else k): v for k, v in truth.items()}
        yield file(f"header {name}", [[*xml[0][:-1], header], *xml[1:]], meant, styles=FORMATS)

    rich = (
        "<c t='inlineStr'><is><r><t xml:space='preserve'>the </t></r><r><rPr><b/></rPr><t>dog</t>"
        "</r></is></c>"
    )
    meant = {**truth, "sentence": ["the dog", *truth["sentence"][1:]]}
    yield file("rich", [xml[0], [rich, *xml[1][1:]], *xml[2:]], meant)
    meant = {**truth, "sentence": [*truth["sentence"][:-1], "a\r\nbé"]}
    escapes = [*xml[:-1], [inline("a_x000D_\nb_x00E9_"), *xml[-1][1:]]]
    yield file("escapes", escapes, meant, "or said")
    yield file("text behind", [*xml, *[[]] * 3, [inline("note: made in May")]], fate="refused")

    merged = with_pos(xml[1][1] if i % 3 == 0 else "<c/>" for i in range(n))
    areas = "".join(f'<mergeCell ref="B{i}:B{i + 2}"/>' for i in range(2, 14, 3))
    after = f'<mergeCells count="4">{areas}</mergeCells>'
    yield file("merged", merged, {**truth, "pos": [grid[1][1]] * n}, "or said", ("merge",),
               after=after)  # fmt: skip
    hidden = '<cols><col min="2" max="2" hidden="1"/></cols>'
    yield file("hidden column", xml, fate="or said", says=("hidden",), before=hidden)
    narrow = '<cols><col min="2" max="3" width="0" customWidth="1"/></cols>'
    yield file("grouped column", xml, fate="or said", before=narrow)

    def placed(columns: str, first: int) -> list[str]:
        """Rows whose cells say where they are."""
        rows = []
        for i, row in enumerate(xml, first):
            own = [c.replace("<c", f'<c r="{columns[j]}{i}"', 1) for j, c in enumerate(row)]
            rows.append(f'<row r="{i}">{"".join(own)}</row>')
        return rows

    rows = placed("ABCD", 1)
    begins, first, second, *more = rows[3].split("<c ")
    unseen, out_of_order, swapped = [*rows], [*rows], [*rows]
    unseen[4] = rows[4].replace("<row", '<row hidden="1"', 1)
    out_of_order[3] = "<c ".join([begins, second, first, *more])
    swapped[3:5] = rows[4], rows[3]
    far = '<row r="40"><c r="Z40" s="1"/></row>'
    yield file("hidden row", [], fate="or said", says=("hidden", "5"), rows="".join(unseen))
    yield file("at C5", [], rows="".join(placed("CDEF", 5)))
    yield file("formats below", [], rows="".join([*rows, far]), styles=FORMATS)
    yield file("cells out of order", [], fate="or said", rows="".join(out_of_order))
    twice = "".join(rows).replace('<c r="B4"', '<c r="A4"', 1)
    yield file("a cell twice", [], fate="or said", rows=twice)
    yield file("rows swapped", [], fate="or said", rows="".join(swapped))


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
