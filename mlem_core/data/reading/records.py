"""Parquet and JSON Lines: tables whose cells have types, as cells of text.

In messages, row 1 is the first one.
"""

from __future__ import annotations

import io
import json
from typing import Any

from mlem_core.base.errors import InputError
from mlem_core.base.room import check_memory
from mlem_core.base.text import short
from mlem_core.data.columns import text_of_value
from mlem_core.data.reading.content import MAX_BYTES, MAX_COLUMNS, Columns

_PARQUET = b"PAR1"
_BLOCK = 50_000  # rows that are read at a time
_BYTES = 100  # that a cell takes while it is read


def is_parquet(data: bytes) -> bool:
    """Whether a file begins as Parquet does."""
    return data.startswith(_PARQUET)


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
        columns: Columns = [[] for _ in schema]
        length = 0
        for batch in file.iter_batches(_BLOCK):
            for column, cells in zip(columns, batch.columns, strict=True):
                column += _texts(cells)
                length += sum(len(cell) for cell in column[-len(cells) :] if cell)
            if length > MAX_BYTES:
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
        try:
            cells = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"row {row} of {name} is no JSON ({short(str(error))}); expected an object such as "
                '{"sentence": "the cat sleeps", "word_index": 1} on each line.'
            ) from error
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
