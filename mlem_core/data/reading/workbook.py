"""Excel workbooks (.xlsx): the values of one sheet as cells."""

from __future__ import annotations

import datetime
import io
import warnings
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.text import short
from mlem_core.data.columns import text_of
from mlem_core.data.reading.content import MAX_COLUMNS, Columns

if TYPE_CHECKING:
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

# A zip may unpack to anything.
MAX_UNPACKED = 500_000_000
_NO_VALUE = "#N/A"


def is_workbook(data: bytes) -> bool:
    """Whether a file is a zip, as workbooks are, or an Excel file of before 2007."""
    return data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"))


def read_sheet(
    data: bytes, name: str, sheet: str | None = None
) -> tuple[list[str], Columns, str, tuple[str, ...]]:
    """Header, columns, the sheet's name and those of all sheets; empty cells are None.

    Values, never formulas: a formula counts as what the spreadsheet program last computed. The
    first row with a value is the header; rows without any do not count.

    Parameters
    ----------
    name : how messages call the file
    sheet : name, or number from 1; None is the first one that has a cell

    Raises
    ------
    InputError
        No workbook, too large, no such sheet, an error value, a formula that was never computed.
    """
    _check_zip(data, name)
    try:
        return _read_sheet(data, name, sheet)
    except InputError:
        raise
    except Exception as error:  # whatever XML, zip and openpyxl itself say of a broken file
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{name} cannot be read as an Excel workbook: {short(why)}.") from error


def _read_sheet(
    data: bytes, name: str, sheet: str | None
) -> tuple[list[str], Columns, str, tuple[str, ...]]:
    book = _load(data, values=True)
    names = tuple(book.sheetnames)
    chosen = _sheet(names, sheet, name)
    grids = [chosen] if chosen else names
    grid: list[tuple[Any, ...]] = []
    for title in grids:
        grid = list(_filled(book[title]))
        if grid:
            break
    if not grid:
        what = f"its sheet {short(chosen)}" if chosen else "every sheet"
        raise InputError(f"{name} is empty: {what} has no cell; expected a header and two rows.")
    width = max(_width(row) for row in grid)
    if width > MAX_COLUMNS:
        raise InputError(f"{name} has {width:,} columns; expected at most {MAX_COLUMNS:,}.")
    if any(value is None for row in grid for value in row[:width]):
        _check_formulas(data, name, title)
    columns: Columns = [[None] * len(grid) for _ in range(width)]
    for number, row in enumerate(grid):
        for column, value in enumerate(row[:width]):
            columns[column][number] = _text(value, name, number, column)
    return [cells[0] or "" for cells in columns], [cells[1:] for cells in columns], title, names


def _check_zip(data: bytes, name: str) -> None:
    if not data.startswith(b"PK"):
        raise InputError(f"{name} is an Excel file of before 2007; save it as .xlsx or as CSV.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except zipfile.BadZipFile as error:
        raise InputError(f"{name} is a damaged workbook or zip file ({error}).") from error
    if "xl/workbook.xml" not in [entry.filename for entry in entries]:
        raise InputError(
            f"{name} is a zip file and no Excel workbook; expected a CSV, an .xlsx workbook or a "
            ".conllu treebank."
        )
    for entry in entries:
        if entry.filename.startswith("/") or ".." in entry.filename.split("/"):
            raise InputError(
                f"{name} has a part named {short(entry.filename)}, which leads out of it; expected "
                "a workbook as a spreadsheet program saves it."
            )
    if sum(entry.file_size for entry in entries) > MAX_UNPACKED:
        raise InputError(
            f"{name} unpacks to more than {MAX_UNPACKED // 1_000_000} MB, the limit for a workbook."
        )


def _load(data: bytes, *, values: bool) -> Any:
    from openpyxl import load_workbook

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and extensions, which have no part in it
        return load_workbook(io.BytesIO(data), read_only=True, data_only=values)


def _sheet(names: tuple[str, ...], asked: str | None, name: str) -> str | None:
    if asked is None or asked in names:
        return asked
    if asked.isdecimal() and 1 <= int(asked) <= len(names):
        return names[int(asked) - 1]
    raise unknown(f"sheet of {name}", asked, names)


def _width(row: tuple[Any, ...]) -> int:
    return max((i + 1 for i, value in enumerate(row) if value not in (None, "")), default=0)


def _filled(sheet: ReadOnlyWorksheet) -> Iterator[tuple[Any, ...]]:
    """Rows with a value; what the file says of the sheet's size may not be true."""
    if not hasattr(sheet, "reset_dimensions"):
        return  # a sheet that is a chart
    sheet.reset_dimensions()
    for row in sheet.iter_rows(values_only=True):
        if _width(row):
            yield row


def _check_formulas(data: bytes, name: str, title: str) -> None:
    """Raise for a formula without the value that a spreadsheet program would have kept."""
    formulas = _load(data, values=False)[title]
    computed = _load(data, values=True)[title]
    for sheet in (formulas, computed):
        sheet.reset_dimensions()
    both = zip(formulas.iter_rows(), computed.iter_rows(values_only=True), strict=False)
    for cells, values in both:
        for cell, value in zip(cells, values, strict=False):
            if value is None and getattr(cell, "data_type", None) == "f":
                raise InputError(
                    f"the cell {cell.coordinate} of the sheet {short(title)} of {name} is a "
                    "formula that was never computed; open the file in a spreadsheet program and "
                    "save it, or paste values."
                )


def _text(value: Any, name: str, row: int, column: int) -> str | None:
    if isinstance(value, str) and value.startswith("#") and value.endswith(("!", "?")):
        where = f"row {row}" if row else "the header"
        raise InputError(
            f"{where}, column {column + 1} of {name} is the error {value}; correct its formula."
        )
    if isinstance(value, datetime.datetime) and not any(value.timetuple()[3:6]):
        value = value.date()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return text_of(value)
