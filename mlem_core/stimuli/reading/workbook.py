"""Excel workbooks (.xlsx): the values of one sheet as cells."""

from __future__ import annotations

import io
import warnings
import zipfile
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from typing import IO, Any, cast
from xml.etree.ElementTree import iterparse

from mlem_core.base.errors import InputError, readable, unknown
from mlem_core.base.text import listed, many, short
from mlem_core.stimuli.columns import kind_of_types, text_of_value
from mlem_core.stimuli.reading.content import MAX_BYTES, MAX_COLUMNS, Columns, ReadAs, Reading
from mlem_core.stimuli.reading.header import MOST_ROWS, PREVIEW, split_header

# A zip may unpack to anything, and a cell name any row.
MAX_UNPACKED = 500_000_000
MAX_PART = 100_000_000
MAX_ROWS = 1_048_576  # of a sheet of Excel
_BEFORE_2007 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_END_OF_ZIP = b"PK\x05\x06"  # in the last 65,557 bytes
_TRUE = ("1", "true")
_NAMESPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_NO_VALUE = "#N/A"  # an error that says that a value is missing
_FEWEST_ROWS = 3  # with two cells or more; another sheet is a page of notes
_STYLES, _MOST_TAGS = "xl/styles.xml", 300_000  # Excel has 65,490 formats of cells at most

_Range = tuple[int, int, int, int]  # first column and row, last column and row


def is_workbook(data: bytes) -> bool:
    """Whether a file is a zip, as workbooks are, or an Excel file of before 2007."""
    return data.startswith((b"PK\x03\x04", _BEFORE_2007)) or _END_OF_ZIP in data[-65_557:]


def read_sheet(data: bytes, name: str, read_as: ReadAs) -> Reading:
    """Header, columns and their kinds, how it was read, and notes of one sheet of a workbook.

    Values, never formulas: a formula counts as what the spreadsheet program last computed. Rows
    without a value do not count. Hidden rows do, and a note says so.

    Parameters
    ----------
    name : how messages call the file
    read_as : its sheet by name, or number from 1 (None is the first one that is shown and has a
        table, else the first with a cell), and the row of its header

    Raises InputError: no workbook, damaged, too large, no such sheet, rows or cells out of order,
    an error value, a formula that was never computed.
    """
    if data.startswith(_BEFORE_2007):
        raise InputError(f"{name} is an Excel file of before 2007; save it as .xlsx or as CSV.")
    # Whatever XML, zip and openpyxl itself say of a broken file.
    with readable(name, "Excel workbook", Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and extensions, which have no part in it
        _check_zip(data, name)
        return _read_sheet(data, name, read_as)


def _read_sheet(data: bytes, name: str, read_as: ReadAs) -> Reading:
    from openpyxl.reader.excel import ExcelReader
    from openpyxl.utils import get_column_letter

    reader = ExcelReader(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    reader.read()
    book = reader.wb
    parts = {entry.name: relation.target for entry, relation in reader.parser.find_sheets()}
    names, sheet = tuple(book.sheetnames), read_as.sheet
    if sheet is None:
        # Of those that are hidden only where no other has a cell.
        titles = sorted(names, key=lambda title: book[title].sheet_state != "visible")
    elif sheet in names:
        titles = [sheet]
    elif sheet.isdecimal() and 1 <= int(sheet) <= len(names):
        titles = [names[int(sheet) - 1]]
    else:
        raise unknown(f"sheet of {name}", sheet, names)
    best: tuple[Any, ...] = ()
    for title in titles:
        if not hasattr(book[title], "reset_dimensions"):
            continue  # a sheet that is a chart
        of = f"the sheet {short(title)} of {name}"
        with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open(parts[title]) as part:
            appearance = _read_appearance(part, of)
        rows = _read_values(book[title], of)
        best = best or (title, of, rows, *appearance) if rows else best
        if sum(len(values) > 1 for values in rows.values()) >= _FEWEST_ROWS:
            best = title, of, rows, *appearance
            break
    if not best:
        what = f"its sheet {short(titles[0])}" if sheet else "every sheet"
        raise InputError(f"{name} is empty: {what} has no cell; expected a header and two rows.")
    title, of, rows, hidden_rows, ranges, merged = best
    width = max(map(max, rows.values()))
    if width > MAX_COLUMNS:
        raise InputError(f"{name} has {width:,} columns; expected at most {MAX_COLUMNS:,}.")
    _fill_merged(rows, merged.values())

    def row(number: int) -> list[str]:
        values = rows.get(number)
        return [text_of_value(values.get(k)) or "" for k in range(1, width + 1)] if values else []

    numbers = range(1, max(rows) + 1)
    head = list(map(row, numbers[:MOST_ROWS]))
    grouped = {top for left, top, right, _ in merged.values() if right > left}
    table = split_header(map(row, numbers), head, of, read_as.header_row, grouped)
    columns: Columns = [[] for _ in table.names]
    for cells in table.rows:
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell or None)
    below = [values for number, values in rows.items() if number > table.above]
    kinds = [
        kind_of_types({type(values[place]) for values in below if place in values})
        for place, _ in enumerate(table.names, 1)
    ]
    hidden = [
        get_column_letter(column)
        for column in range(1, width + 1)
        if any(first <= column <= last for first, last in ranges)
    ]
    in_table = [ref for ref, cells in merged.items() if cells[3] > table.above]
    notes = _notes(of, len(hidden_rows & rows.keys()), hidden, in_table)
    read_as = replace(
        read_as,
        separator=None,
        encoding=None,
        sheet=title,
        sheets=names,
        header_row=table.header,
        first_rows=tuple(map(tuple, head[: table.above + PREVIEW])),
        above=table.above,
    )
    return table.names, columns, kinds, read_as, (*notes, *table.notes)


def _fill_merged(rows: dict[int, dict[int, Any]], merged: Iterable[_Range]) -> None:
    """Give each row of a merged cell its value."""
    numbers, ends = sorted(rows), dict[int, int]()
    for column, top, _, bottom in sorted(merged):
        value = rows.get(top, {}).get(column)
        # A file may name ranges that overlap.
        if value is not None and top > ends.get(column, 0):
            ends[column] = bottom
            for number in numbers[bisect_right(numbers, top) : bisect_right(numbers, bottom)]:
                rows[number].setdefault(column, value)


def _notes(of: str, n_hidden: int, columns: list[str], merged: list[str]) -> tuple[str, ...]:
    """Sentences about what the spreadsheet program of a user does not show of a sheet."""
    notes = list[str]()
    if n_hidden:
        notes.append(
            f"{many(n_hidden, 'row')} of {of} that the spreadsheet program hides, by a filter "
            "or by hand, count like the others; delete them from the file if they are not meant."
        )
    if columns:
        notes.append(
            f"{many(len(columns), 'column')} of {of} that the spreadsheet program hides "
            f"({listed(columns, most=5)}) count like the others; leave them out in the choice of "
            "features if they are not meant."
        )
    if merged:
        notes.append(
            f"Of merged cells ({listed(merged, most=5)} of {of}) each row has the value, in the "
            "first column alone."
        )
    return tuple(notes)


def _check_zip(data: bytes, name: str) -> None:
    """Raise where the parts are not those of a workbook, or unpack to too much.

    None is written anywhere, whatever its name.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile as error:
        raise InputError(f"{name} is a damaged workbook or zip file ({error}).") from error
    if "xl/workbook.xml" not in archive.namelist():
        raise InputError(
            f"{name} is a zip file and no Excel workbook; expected a table (CSV, .xlsx, .parquet, "
            ".jsonl) or a .conllu treebank."
        )
    parts = archive.infolist()
    # No more of a part is unpacked than the size that stands in the zip.
    largest = max(parts, key=lambda part: part.file_size)
    unpacked = sum(part.file_size for part in parts)
    if largest.file_size > MAX_PART or unpacked > MAX_UNPACKED:
        raise InputError(
            f"{name} unpacks to more than {MAX_UNPACKED // 1_000_000} MB, or its part "
            f"{short(largest.filename)} to more than {MAX_PART // 1_000_000} MB, the limits for a "
            "workbook; save the sheet as CSV."
        )
    if _STYLES in archive.namelist() and archive.read(_STYLES).count(b"<") > _MOST_TAGS:
        raise InputError(
            f"{name} has more formats of cells than a spreadsheet program saves; copy the "
            "values into a new workbook, or save the sheet as CSV."
        )


def _read_appearance(
    part: IO[bytes], of: str
) -> tuple[set[int], list[tuple[int, int]], dict[str, _Range]]:
    """What openpyxl does not tell of a sheet that it reads row by row, from its XML.

    Returns the numbers of hidden rows, the first and the last of each range of hidden columns, and
    the ranges of merged cells by name, as A1:B2. Raises `InputError` for rows and cells that are
    not in order, and for a formula without the value that a spreadsheet program would have kept.
    """
    from openpyxl.utils import get_column_letter, range_boundaries

    hidden_rows, hidden_columns, merged = set[int](), list[tuple[int, int]](), dict[str, _Range]()
    before = 0
    for _, element in iterparse(part):
        tag = element.tag.removeprefix(_NAMESPACE)
        if tag == "row":
            number = int(float(element.get("r", before + 1)))
            letters = [cell.get("r", "").rstrip("0123456789") for cell in element]
            in_order = sorted(set(letters), key=lambda name: (len(name), name))
            if not before < number <= MAX_ROWS or (any(letters) and letters != in_order):
                raise InputError(
                    f"row {number:,} of {of}, after row {before:,}, or one of its cells is not in "
                    f"its place; expected at most {MAX_ROWS:,} rows, each row and cell once and in "
                    "order, as spreadsheet programs save them: open the file in one and save it."
                )
            before = number
            if element.get("hidden") in _TRUE:
                hidden_rows.add(number)
            for column, cell in enumerate(element, 1):
                # A text may be empty ("str"), a number is not.
                formula = cell.find(f"{_NAMESPACE}f") is not None
                if formula and cell.get("t", "n") == "n" and not cell.findtext(f"{_NAMESPACE}v"):
                    place = cell.get("r", f"{get_column_letter(column)}{number}")
                    raise InputError(
                        f"the cell {place} of {of} is a formula that was never computed; open the "
                        "file in a spreadsheet program and save it, or paste values."
                    )
        elif tag == "col" and element.get("hidden") in _TRUE:
            first, last = int(element.get("min", 1)), int(element.get("max", 0))
            hidden_columns.append((first, last))
        elif tag == "mergeCell":
            ref = element.get("ref", "")
            merged[ref] = cast("_Range", range_boundaries(ref))
        if tag in ("row", "sheetData"):
            element.clear()
    return hidden_rows, hidden_columns, merged


def _read_values(sheet: Any, of: str) -> dict[int, dict[int, Any]]:
    """The values of a sheet by row and column; raises `InputError` for a cell that is an error."""
    rows: dict[int, dict[int, Any]] = {}
    length = 0
    sheet.reset_dimensions()  # which a file may state as it likes
    for number, cells in enumerate(sheet.iter_rows(), 1):
        values = {}
        for column, cell in enumerate(cells, 1):
            value = cell.value
            if cell.data_type == "e":
                if value != _NO_VALUE:
                    raise InputError(
                        f"the cell {cell.coordinate} of {of} is the error {value}; correct its "
                        "formula."
                    )
            elif value not in (None, ""):
                values[column] = value
                length += len(value) if isinstance(value, str) else 1
        if length > MAX_BYTES:  # a text stands once in the file, however many cells have it
            raise InputError(f"{of} has more than {MAX_BYTES:,} characters, the limit for a table.")
        if values:
            rows[number] = values
    return rows
