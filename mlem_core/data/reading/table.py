"""Any table, CSV in whatever dialect, workbook, Parquet or JSON Lines, as cells of text.

In messages about Parquet and JSON Lines, row 1 is the first one.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import unicodedata
from dataclasses import dataclass, replace
from itertools import chain, count
from operator import eq
from typing import Any

import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.base.room import check_memory
from mlem_core.base.text import short, some
from mlem_core.data.columns import text_of_value, with_points, without_marks
from mlem_core.data.doubts import of_thousands
from mlem_core.data.reading.content import (
    MAX_BYTES,
    MAX_COLUMNS,
    Columns,
    ReadAs,
    Source,
    content,
    decode,
    parse,
    separator_of,
)
from mlem_core.data.reading.workbook import is_workbook, read_sheet

_PARQUET = b"PAR1"  # how such a file begins
_BYTES = 100  # that a cell takes while it is read


def is_json_lines(text: str, name: str) -> bool:
    """Whether a text is JSON Lines, by the ending of its name or its first character."""
    return name.lower().endswith((".jsonl", ".ndjson")) or text.lstrip().startswith('{"')


def read_parquet(data: bytes, name: str) -> tuple[list[str], Columns]:
    """Header and columns of a Parquet file; missing values are None.

    Raises InputError: pyarrow is not installed; a damaged file, or one that unpacks to too much; a
    column of anything but text, numbers, booleans, dates and categories of these.
    """
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError(
            f"{name} is a Parquet file, which needs the package pyarrow: pip install pyarrow, or "
            "save the table as CSV."
        ) from error
    try:
        file = ParquetFile(io.BytesIO(data))
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
        _check_size(n_rows, len(schema), name)
        for field in schema:
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if pa.types.is_nested(kind) or "binary" in str(kind):
                raise _wrong(name, field.name, str(field.type))
        # A text that many rows share stays one text, however long it is.
        text = [field.name for field in schema if "string" in str(field.type)]
        file = ParquetFile(io.BytesIO(data), read_dictionary=text)
        columns = [[*chain(*map(_texts, column.chunks))] for column in file.read().columns]
        if sum(len(cell) for column in columns for cell in column if cell) > MAX_BYTES:
            raise InputError(
                f"{name} has more than {MAX_BYTES:,} characters, the limit for a table."
            )
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{name} cannot be read as a Parquet file: {short(why)}.") from error
    return schema.names, columns


def _texts(cells: Any) -> list[str | None]:
    """The cells of a column of Arrow."""
    if not hasattr(cells, "dictionary"):
        return list(map(text_of_value, cells.to_pylist()))
    texts = [*map(text_of_value, cells.dictionary.to_pylist()), None]
    return [texts[-1 if place is None else place] for place in cells.indices.to_pylist()]


def read_json_lines(text: str, name: str) -> tuple[list[str], Columns]:
    """Header and columns of a JSON Lines file, an object a line: text as it is, numbers as written.

    Raises InputError: a line that is no JSON object; a value that is a list or an object.
    """
    columns: dict[str, list[str | None]] = {}
    rows = [line for line in text.split("\n") if line.strip()]
    for row, line in enumerate(rows, start=1):
        cells = None
        with contextlib.suppress(ValueError, RecursionError):
            cells = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
        if not isinstance(cells, dict):
            raise InputError(
                f"row {row} of {name} is {short(line.strip())}; expected a JSON object such as "
                '{"sentence": "the cat sleeps", "word_index": 1} on each line.'
            )
        for key, value in cells.items():
            if isinstance(value, (list, dict)):
                raise _wrong(f"row {row} of {name}", key, type(value).__name__)
            if key not in columns:
                _check_size(len(rows), len(columns) + 1, name)
                columns[key] = [None] * len(rows)
            columns[key][row - 1] = text_of_value(value)
    return list(columns), list(columns.values())


def _wrong(where: str, column: str, what: str) -> InputError:
    return InputError(
        f"{where} has {short(what)} in the column {short(column)}; expected text, numbers, "
        "booleans or dates, one value a cell."
    )


def _check_size(n_rows: int, n_columns: int, name: str) -> None:
    if n_columns > MAX_COLUMNS:
        raise InputError(f"{name} has {n_columns:,} columns; expected at most {MAX_COLUMNS:,}.")
    check_memory(_BYTES * n_rows * n_columns, name, "choose fewer rows or columns")


DETECTED = ReadAs()
# What pandas calls a column without a name.
_OF_PANDAS = re.compile(r"Unnamed: \d+|__index_level_\d+__")
_QUOTED = re.compile(r"""(["'“”‘’]).*["'“”‘’]""", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Table:
    """The cells of a file, whatever its columns are called.

    Attributes
    ----------
    name : how messages call the file
    frame : a row a stimulus; cells are str, or None where they are empty; missing-value marks are
        still there, numbers have decimal points
    read_as : how it was read
    notes : sentences about what its program does not show: hidden rows and columns of a workbook
    """

    name: str
    frame: pd.DataFrame
    read_as: ReadAs
    notes: tuple[str, ...] = ()

    @property
    def nameless(self) -> list[str]:
        """The columns without a name in the file, by the names that they have here."""
        return [new for _, name, new in self.read_as.renamed if not name]

    def stripped(self, column: str) -> list[str | None]:
        """The cells of a column without space around them."""
        return [cell and cell.strip() for cell in self.frame[column].tolist()]

    def values(self, column: str) -> list[str | None]:
        """The cells of a column without space around them; empty ones and missing values None."""
        return without_marks(self.frame[column].tolist(), self.read_as.missing)


def read_table(
    source: Source,
    name: str | None = None,
    read_as: ReadAs = DETECTED,
    what: str = "stimulus table",
) -> Table:
    """The table that a CSV, an .xlsx workbook, a Parquet or a JSON Lines file holds.

    Parameters
    ----------
    source : path, content, or binary file
    name : how messages call it; by default the file's name
    read_as : how it is to be read; what is None there is detected
    what : what messages call a table of this kind

    Raises
    ------
    InputError
        The file is missing, over `MAX_BYTES`, in an encoding that cannot be told, no table, or
        ragged; a choice of `read_as` that does not go with it.
    """
    data, file_name = content(source, f"a {what}", "the file")
    name = name or file_name
    notes: tuple[str, ...] = ()
    if is_workbook(data):
        header, columns, sheet, sheets, notes = read_sheet(data, name, read_as.sheet)
        read_as = replace(read_as, separator=None, encoding=None, sheet=sheet, sheets=sheets)
    elif read_as.sheet is not None:
        raise InputError(f"{name} is no workbook and has no sheet {read_as.sheet!r}.")
    elif data.startswith(_PARQUET):
        header, columns = read_parquet(data, name)
        read_as = replace(read_as, separator=None, encoding=None)
    else:
        header, columns, read_as = _of_text(*decode(data, name, read_as.encoding), name, read_as)
    if not header:
        raise InputError(f"{name} is empty; expected a header and at least two rows.")
    header = [_plain(cell) for cell in header]
    _check_header(header, columns, name)
    header, columns, renamed = _own_names(header, columns)
    # Where commas separate cells, a comma in a number is more often one between thousands.
    decimal = read_as.decimal or "."
    if read_as.decimal is None and read_as.separator != ",":
        pointed = (with_points(cells, read_as.missing) for cells in columns)
        decimal = "," if any(cells is not None for cells in pointed) else "."
    if decimal == ",":
        notes = (*notes, *of_thousands(header, columns))
        columns = [with_points(cells, read_as.missing) or cells for cells in columns]
    frame = pd.DataFrame(dict(zip(header, columns, strict=True)), columns=header, dtype=object)
    read_as = replace(read_as, decimal=decimal, renamed=renamed, found=())
    return Table(name, frame, read_as, notes)


def _of_text(
    text: str, encoding: str, name: str, read_as: ReadAs
) -> tuple[list[str], Columns, ReadAs]:
    """Header and columns of a text, and how it was read."""
    if read_as.separator is None and is_json_lines(text, name):
        return *read_json_lines(text, name), replace(read_as, encoding=encoding)
    separator, rest = separator_of(text)
    if read_as.separator in (None, separator):
        text = rest
    separator = read_as.separator or separator
    read_as = replace(read_as, separator=separator, encoding=encoding, literal=False)
    try:
        return *parse(text, name, separator), read_as
    except InputError:
        if separator in "\t|":  # such tables often have quotation marks as they are
            with contextlib.suppress(InputError):
                return *parse(text, name, separator, literal=True), replace(read_as, literal=True)
        raise


def _plain(name: str) -> str:
    """The name of a column without signs that nobody sees, characters coded in the one way."""
    known = unicodedata.normalize("NFC", name)
    plain = "".join(char for char in known if unicodedata.category(char) != "Cf").strip()
    return "" if _OF_PANDAS.fullmatch(plain) else plain


def _check_header(header: list[str], columns: Columns, name: str) -> None:
    """Raise where a row repeats the header, or its names have quotation marks."""
    if len(header) < 2:
        return
    quoted = [name for name in header if _QUOTED.fullmatch(name)]
    if len(quoted) >= len(header) - 1:
        raise InputError(
            f"the header of {name} has quotation marks in {some(quoted, 3)}; expected names in "
            'marks such as "these", without a space before them, or without any.'
        )
    key = [cell.casefold() for cell in header]
    for first in {cell for cell in set(columns[0]) if _plain(cell or "").casefold() == key[0]}:
        for row, cell in enumerate(columns[0]):
            cells = (_plain(column[row] or "").casefold() for column in columns)
            if cell == first and all(map(eq, cells, key)):
                raise InputError(
                    f"row {row + 1} of {name} is the header again, as where files are put "
                    "together; expected it once: remove the row."
                )


def _own_names(
    header: list[str], columns: Columns
) -> tuple[list[str], Columns, tuple[tuple[int, str, str], ...]]:
    """Every column has a name of its own; those without a name and without a cell are left out."""
    kept = [i for i, name in enumerate(header) if name or any(columns[i])]
    names: dict[str, int] = {}
    theirs, renamed = set(header), []
    for i in kept:
        name = header[i] or f"column_{i + 1}"
        tried = chain([name], (f"{name}_{number}" for number in count(2)))
        new = next(n for n in tried if n not in names and (n == header[i] or n not in theirs))
        if new != header[i]:
            renamed.append((i + 1, header[i], new))
        names[new] = i
    return list(names), [columns[i] for i in kept], tuple(renamed)
