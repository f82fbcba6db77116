"""Workbooks whose cells, sheets and XML are of all kinds, with what they mean."""

import io
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED

import openpyxl

from helpers.damaging import contents, packed
from helpers.feeding import Hostile

_NS = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPES = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def _typed(cell):
    number = cell.replace(".", "", 1).lstrip("-")
    plain = number.isascii() and number.isdecimal() and len(cell) < 15 and cell[0] != "0"
    return float(cell) if plain else cell or None


def by_openpyxl(grid, typed=True):
    book, file = openpyxl.Workbook(), io.BytesIO()
    for row in grid:
        book.active.append([_typed(cell) if typed else cell or None for cell in row])
        for cell in book.active[book.active.max_row]:
            cell.data_type = "s" if isinstance(cell.value, str) else cell.data_type
    book.save(file)
    return file.getvalue()


def inline(cell):
    return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(cell)}</t></is></c>'


def cell_of(text):
    """A cell of a number, or of text: what a workbook has as text is no number."""
    return number(text) if isinstance(_typed(text), float | int) else inline(text)


def by_hand(cells, *, book="", strings="", styles="", rows=""):
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
        "xl/worksheets/sheet1.xml": f"<worksheet {_NS}><sheetData>{data}</sheetData></worksheet>",
        "xl/sharedStrings.xml": f"<sst {_NS}>{strings}</sst>",
    }  # fmt: skip
    if styles:
        parts["xl/styles.xml"] = f"<styleSheet {_NS}>{styles}</styleSheet>"
    return packed(parts, ZIP_DEFLATED)


FORMATS = (
    '<numFmts count="1"><numFmt numFmtId="164" formatCode="[h]:mm"/></numFmts><cellXfs '
    'count="5"><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="10"/><xf numFmtId="164"/>'
    '<xf numFmtId="20"/></cellXfs>'
)


def number(x, style=0, formula=""):
    of = f"<f>{formula}</f>" if formula else ""
    return f"<c{f' s={chr(34)}{style}{chr(34)}' if style else ''}>{of}<v>{x}</v></c>"


def workbooks(grid, truth):
    """Workbooks whose cells and rows are of all kinds, made by hand."""
    xml, freq, n = [[cell_of(c) for c in row] for row in grid], truth["freq"], len(grid) - 1
    last_column = len(grid[0]) - 1

    def file(name, cells, meant=truth, fate="or said", says=(), **how):
        data = by_hand(cells, styles=FORMATS, **how)
        return Hostile(f"workbook {name}", ".xlsx", data, meant, fate, says)

    def with_column(at, cells):
        rows = zip(xml[1:], cells, strict=True)
        return [xml[0], *([*row[:at], cell, *row[at + 1 :]] for row, cell in rows)]

    for name, of in {
        "plain": number, "computed": lambda x: number(x, 0, "A1+1"),
        "scientific": lambda x: number(f"{x:.9E}"), "long": lambda x: number(f"{x:.17f}"),
        "percent": lambda x: number(x, 2),
        "some texts": lambda x: inline(f"{x:g}") if x > 3 else number(x),
    }.items():  # fmt: skip
        yield file(name, with_column(last_column, map(of, freq)), fate="read")
    yield file("apostrophes", with_column(last_column, (inline(f"'{x:g}") for x in freq)))
    lacks_last = {**truth, "freq": [*freq[:-1], None]}
    for name, cell, fate, says in (
        ("computed empty", '<c t="str"><f>A1</f><v></v></c>', "or said", ()),
        ("error", '<c t="e"><v>#DIV/0!</v></c>', "or said", ()),
        ("not computed", "<c><f>A1</f></c>", "refused", ()),
    ):
        last = with_column(last_column, [*map(number, freq[:-1]), cell])
        yield file(name, last, lacks_last, fate, says)
    last = [*xml[:-1], ['<c t="e"><v>#N/A</v></c>', *xml[-1][1:]]]
    yield file("error as a sentence", last, fate="refused")

    phonetic = "<si><t>noun</t><rPh sb='0' eb='1'><t>PHON</t></rPh></si><si><t>verb</t></si>"
    for name, kind, means, how in (
        ("booleans", lambda i: f'<c t="b"><v>{i % 2}</v></c>', lambda i: str(bool(i % 2)), {}),
        ("phonetic", lambda i: f'<c t="s"><v>{i % 2}</v></c>', lambda i: ("noun", "verb")[i % 2],
         {"strings": phonetic}),
        ("times", lambda i: number((1 + i % 3) / 24, 4), lambda i: f"0{1 + i % 3}:00:00", {}),
        ("days", lambda i: number(40_000 + i % 3, 1), lambda i: f"2009-07-{6 + i % 3:02d}", {}),
        ("days of 1904", lambda i: number(40_000 + i % 3, 1), lambda i: f"2013-07-{7 + i % 3:02d}",
         {"book": '<workbookPr date1904="true"/>'}),
    ):  # fmt: skip
        meant = {**truth, "pos": [means(i) for i in range(n)]}
        yield file(name, with_column(1, map(kind, range(n))), meant, "read", **how)
    meant = {("2009-07-06" if k == "freq" else k): v for k, v in truth.items()}
    yield file("a day as header", [[*xml[0][:-1], number(40_000, 1)], *xml[1:]], meant, "read")
    yield file("text behind", [*xml, *[[]] * 3, [inline("note: made in May")]], fate="read")

    def placed(columns, first):
        """Rows whose cells say where they are."""
        for i, row in enumerate(xml, first):
            own = [c.replace("<c", f'<c r="{columns[j]}{i}"', 1) for j, c in enumerate(row)]
            yield f'<row r="{i}">{"".join(own)}</row>'

    rows = [*placed("ABCD", 1)]
    yield file("at C5", [], fate="read", rows="".join(placed("CDEF", 5)))
    far = '<row r="40"><c r="Z40" s="1"/></row>'
    yield file("formats below", [], fate="read", rows="".join([*rows, far]))
    yield file("a cell twice", [], rows="".join(rows).replace('<c r="B4"', '<c r="A4"', 1))
    yield file("rows swapped", [], rows="".join([*rows[:3], rows[4], rows[3], *rows[5:]]))


def swelling(grid):
    """Workbooks that unpack to far more, or whose members lead elsewhere."""
    laughs = '<!DOCTYPE x [<!ENTITY a "ha">' + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    far = '<sheetData><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    parts = {
        "laughs": f"{laughs}]><worksheet><sheetData>&i;</sheetData></worksheet>",
        "outside": '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><sst>&a;</sst>',
        "blanks": " " * 20_000_000 + "<worksheet/>",
        "deep": "<a>" * 200_000,
        "far cell": f"<worksheet {_NS}>{far}</worksheet>",
        "empty": "",
    }
    good = contents(io.BytesIO(by_openpyxl(grid)))
    cases = [("xl/worksheets/sheet1.xml", parts[name].encode(), "any") for name in parts]
    cases += [("xl/sharedStrings.xml", parts["outside"].encode(), "any")]
    cases += [(name, b"x", "any") for name in ("../../../tmp/x", "/tmp/x", "xl/../../x")]
    cases += [("xl/media/a.bin", bytes(520_000_000), "refused")]
    for number, (name, data, fate) in enumerate(cases):
        book = packed({**good, name: data}, ZIP_DEFLATED)
        yield Hostile(f"swelling {number}", ".xlsx", book, fate=fate)
