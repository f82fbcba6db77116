"""Excel workbooks (.xlsx): the values of one sheet as cells."""

from __future__ import annotations

import io
import warnings
import zipfile
from typing import Any, NamedTuple

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.text import listed, many, short
from mlem_core.data.columns import text_of_value
from mlem_core.data.reading.content import MAX_BYTES, MAX_COLUMNS, Columns

# A zip may unpack to anything, and a cell name any row.
MAX_UNPACKED = 500_000_000
MAX_PART = 100_000_000
MAX_ROWS = 1_048_576  # of a sheet of Excel
_BLOCK = 2**20
_BEFORE_2007 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_END_OF_ZIP = b"PK\x05\x06"  # in the last 65,557 bytes
_HIDDEN = ("1", "true")
_NO_VALUE = "#N/A"  # an error that says that a value is missing
_STYLES, _MOST_TAGS = "xl/styles.xml", 300_000  # Excel has 65,490 formats of cells at most


# Names and cells of the columns, empty cells None; the sheet's name, and those of all sheets;
# sentences about what its spreadsheet program does not show.
_Sheet = tuple[list[str], Columns, str, tuple[str, ...], tuple[str, ...]]


class _Grid(NamedTuple):
    """A sheet's content: of rows with a value their numbers and values by column; how many of them
    are hidden; the ranges of merged cells; and where a formula gives no value, or a text without
    any character."""

    rows: dict[int, dict[int, Any]]
    n_hidden: int
    merged: list[str]
    empty: set[tuple[int, int]]


def is_workbook(data: bytes) -> bool:
    """Whether a file is a zip, as workbooks are, or an Excel file of before 2007."""
    return data.startswith((b"PK\x03\x04", _BEFORE_2007)) or _END_OF_ZIP in data[-65_557:]


def read_sheet(data: bytes, name: str, sheet: str | None = None) -> _Sheet:
    """Header, columns, name, names of all sheets, and notes of one sheet of a workbook.

    Values, never formulas: a formula counts as what the spreadsheet program last computed. The
    first row with a value is the header; rows without any do not count. Hidden rows
    do, and a note says so.

    Parameters
    ----------
    name : how messages call the file
    sheet : name, or number from 1; None is the first one that is shown and has a cell

    Raises
    ------
    InputError
        No workbook, damaged, too large, no such sheet, rows or cells out of order, an error value,
        a formula that was never computed.
    """
    if data.startswith(_BEFORE_2007):
        raise InputError(f"{name} is an Excel file of before 2007; save it as .xlsx or as CSV.")
    try:
        _check_zip(data, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and extensions, which have no part in it
            return _read_sheet(data, name, sheet)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # whatever XML, zip and openpyxl itself say of a broken file
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{name} cannot be read as an Excel workbook: {short(why)}.") from error


def _read_sheet(data: bytes, name: str, sheet: str | None) -> _Sheet:
    book = _load(data, values=True)
    names = tuple(book.sheetnames)
    if sheet is None:
        # Of those that are hidden only where no other has a cell.
        titles = sorted(names, key=lambda title: book[title].sheet_state != "visible")
    elif sheet in names:
        titles = [sheet]
    elif sheet.isdecimal() and 1 <= int(sheet) <= len(names):
        titles = [names[int(sheet) - 1]]
    else:
        raise unknown(f"sheet of {name}", sheet, names)
    for title in titles:
        of = f"the sheet {short(title)} of {name}"
        grid = _grid(book[title], of)
        if grid.rows:
            break
    else:
        what = f"its sheet {short(titles[0])}" if sheet else "every sheet"
        raise InputError(f"{name} is empty: {what} has no cell; expected a header and two rows.")
    rows, notes = grid.rows, list[str]()
    width = max(map(max, rows.values()))
    if width > MAX_COLUMNS:
        raise InputError(f"{name} has {width:,} columns; expected at most {MAX_COLUMNS:,}.")
    if any(len(cells) < width for cells in rows.values()):
        _check_formulas(_load(data, values=False)[title], of, grid)
    columns: Columns = [[None] * len(rows) for _ in range(width)]
    for number, cells in enumerate(rows.values()):
        for column, value in cells.items():
            columns[column - 1][number] = text_of_value(value)
    if grid.n_hidden:
        notes.append(
            f"{many(grid.n_hidden, 'row')} of {of} that the spreadsheet program hides, by a filter "
            "or by hand, count like the others; delete them from the file if they are not meant."
        )
    if grid.merged:
        notes.append(
            f"Of merged cells ({listed(grid.merged, most=5)} of {of}) the first one alone has the "
            "value: repeat it in the others if it is meant for them."
        )
    header = [cells_of[0] or "" for cells_of in columns]
    return header, [cells_of[1:] for cells_of in columns], title, names, tuple(notes)


def _check_zip(data: bytes, name: str) -> None:
    """Raise where the parts are not those of a workbook, or unpack to too much.

    None is written anywhere, whatever its name.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile as error:
        raise InputError(f"{name} is a damaged workbook or zip file ({error}).") from error
    names = archive.namelist()
    if "xl/workbook.xml" not in names:
        raise InputError(
            f"{name} is a zip file and no Excel workbook; expected a table (CSV, .xlsx, .parquet, "
            ".jsonl) or a .conllu treebank."
        )
    unpacked = 0
    for part in names:
        # Bytes and tags that a part really has; of one that is too large, up to the limit.
        size = tags = 0
        with archive.open(part) as file:
            while size <= MAX_PART and (block := file.read(_BLOCK)):
                size += len(block)
                tags += block.count(b"<")
        unpacked += size
        if part == _STYLES and tags > _MOST_TAGS:
            raise InputError(
                f"{name} has more formats of cells than a spreadsheet program saves; copy the "
                "values into a new workbook, or save the sheet as CSV."
            )
        if size > MAX_PART or unpacked > MAX_UNPACKED:
            raise InputError(
                f"{name} unpacks to more than {MAX_UNPACKED // 1_000_000} MB, or its part "
                f"{short(part)} to more than {MAX_PART // 1_000_000} MB, the limits for a "
                "workbook; save the sheet as CSV."
            )


def _load(data: bytes, *, values: bool) -> Any:
    from openpyxl import load_workbook

    return load_workbook(io.BytesIO(data), read_only=True, data_only=values)


def _parsed(sheet: Any) -> tuple[Any, Any]:
    """A parser of a sheet, and its rows as they stand in the file: number and cells.

    openpyxl's own `iter_rows` fills gaps of any size and drops rows that are out of order.
    """
    from openpyxl.worksheet._reader import WorkSheetParser

    book = sheet.parent
    parser = WorkSheetParser(
        sheet._get_source(), sheet._shared_strings, data_only=book.data_only, epoch=book.epoch,
        date_formats=book._date_formats, timedelta_formats=book._timedelta_formats,
    )  # fmt: skip
    return parser, parser.parse()


def _grid(sheet: Any, of: str) -> _Grid:
    """The values of a sheet; raises `InputError` for rows and cells that are not in order."""
    rows: dict[int, dict[int, Any]] = {}
    empty: set[tuple[int, int]] = set()
    if not hasattr(sheet, "reset_dimensions"):
        return _Grid(rows, 0, [], empty)  # a sheet that is a chart
    parser, parsed = _parsed(sheet)
    before, length, n_hidden = 0, 0, 0
    for number, cells in parsed:
        about = parser.row_dimensions.pop(str(number), {})
        places = [(cell["row"], cell["column"]) for cell in cells]
        in_order = places == sorted({(number, column) for _, column in places})
        if not before < number <= MAX_ROWS or not in_order:
            raise InputError(
                f"row {number:,} of {of}, after row {before:,}, or one of its cells is not in its "
                f"place; expected at most {MAX_ROWS:,} rows, each row and cell once and in order, "
                "as spreadsheet programs save them: open the file in one and save it."
            )
        before, values = number, {}
        for cell in cells:
            column, value = cell["column"], cell["value"]
            if cell["data_type"] == "e" and value != _NO_VALUE:
                raise InputError(
                    f"{_called(cell)} of {of} is the error {value}; correct its formula."
                )
            if cell["data_type"] in ("str", "e"):  # a text without any character, or no value
                empty.add((number, column))
                value = None if cell["data_type"] == "e" else value
            if value not in (None, ""):
                values[column] = value
                length += len(value) if isinstance(value, str) else 1
        if length > MAX_BYTES:  # a text stands once in the file, however many cells have it
            raise InputError(f"{of} has more than {MAX_BYTES:,} characters, the limit for a table.")
        if values:
            rows[number] = values
            n_hidden += about.get("hidden") in _HIDDEN
    return _Grid(
        rows, n_hidden, [m.ref for m in getattr(parser.merged_cells, "mergeCell", ())], empty
    )


def _called(cell: dict[str, Any]) -> str:
    from openpyxl.utils import get_column_letter

    return f"the cell {get_column_letter(cell['column'])}{cell['row']}"


def _check_formulas(sheet: Any, of: str, computed: _Grid) -> None:
    """Raise for a formula without the value that a spreadsheet program would have kept."""
    for number, cells in _parsed(sheet)[1]:
        for cell in cells:
            known = cell["column"] in computed.rows.get(number, {})
            if (
                cell["data_type"] == "f"
                and not known
                and (number, cell["column"]) not in computed.empty
            ):
                raise InputError(
                    f"{_called(cell)} of {of} is a formula that was never computed; open the file "
                    "in a spreadsheet program and save it, or paste values."
                )
