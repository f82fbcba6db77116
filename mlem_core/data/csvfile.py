"""The CSV format: bytes to cells, and cells that no spreadsheet runs as a formula.

In messages, row 1 is the first one below the header.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, BinaryIO

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.storage.files import replacing

MAX_BYTES = 50_000_000
MAX_ROWS = 20_000

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# What a spreadsheet may take for a formula, after the apostrophes that we put in front ourselves.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")

Rows = list[list[str | None]]


def read_rows(
    source: str | Path | bytes | BinaryIO, name: str | None = None
) -> tuple[str, list[str], Rows]:
    """Name, header and rows of a CSV file (UTF-8, commas); empty cells are None.

    Blank lines do not count as rows. `name` is what messages call it, by default the file's name.

    Raises
    ------
    InputError
        The file is missing, over `MAX_BYTES` or `MAX_ROWS`, no UTF-8, no CSV or ragged.
    """
    data, file_name = _content(source)
    name = name or file_name
    return (name, *_parse(_decode(data, name), name))


def write_table(frame: pd.DataFrame, target: str | Path | IO[Any]) -> None:
    """Write any table as CSV; cells (and column names) that a spreadsheet runs get an apostrophe.

    An index other than 0, 1, 2, ... is written as the first column, under the index's name.

    Parameters
    ----------
    frame : the table
    target : path (written under another name, then renamed), or an open text or binary file
    """
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.rename_axis(index=frame.index.name or "").reset_index()
    lines: list[str] = []
    # The writer quotes a lone \r only where it ends lines itself; our lines end with \n.
    ends = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    writer = csv.writer(ends, lineterminator="\r\n")
    writer.writerow([_cell(str(column)) for column in frame.columns])
    for row in frame.itertuples(index=False, name=None):
        writer.writerow([_cell(value) for value in row])
    text = "".join(lines)
    if isinstance(target, (str, Path)):
        with replacing(target) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="")
        return
    file: Any = target
    file.write(text if isinstance(file, io.TextIOBase) else text.encode())


def _cell(value: Any) -> Any:
    """A cell as it is written."""
    if isinstance(value, str):
        risky = _FORMULA.match(value) and not NUMBER.fullmatch(value)
        return f"'{value}" if risky else value
    if isinstance(value, (float, np.floating)):
        return "" if math.isnan(value) else repr(float(value))
    return "" if value is None or value is pd.NA else value


def _unescape(cell: str) -> str:
    return cell[1:] if _ESCAPED.match(cell) else cell


def _content(source: str | Path | bytes | BinaryIO) -> tuple[bytes, str]:
    """The bytes of a source, refused before they are read when there are too many, and its name."""
    if isinstance(source, bytes):
        data, size, name = source, len(source), "the CSV"
    elif isinstance(source, (str, Path)):
        path = Path(source)
        name = path.name
        try:
            size = path.stat().st_size
            data = b"" if size > MAX_BYTES else path.read_bytes()
        except OSError as error:
            raise InputError(
                f"the stimulus file {str(path)!r} cannot be read ({error.strerror}); "
                "expected a CSV file."
            ) from error
    else:
        name = Path(str(getattr(source, "name", "the CSV"))).name
        data = source.read(MAX_BYTES + 1)
        size = len(data)
    if size > MAX_BYTES:
        raise InputError(
            f"{name} is larger than the limit of {MAX_BYTES // 1_000_000} MB for a stimulus CSV "
            f"of at most {MAX_ROWS:,} rows."
        )
    return data, name


def _decode(data: bytes, name: str) -> str:
    if not data.strip():
        raise InputError(f"{name} is empty; expected a CSV with a header and at least two rows.")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{name} is UTF-16 text; save it as CSV in UTF-8.")
    if data[:4] == b"PK\x03\x04":
        raise InputError(
            f"{name} is a spreadsheet or zip file and not a CSV; save it as CSV in UTF-8."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = _row_after(data[: error.start].count(b"\n"))
        raise InputError(
            f"{name} is not UTF-8: byte {error.start + 1:,} ({where}) is "
            f"0x{data[error.start]:02x}; save it as CSV in UTF-8."
        ) from error
    if "\0" in text:
        where = _row_after(text[: text.index("\0")].count("\n"))
        raise InputError(f"{name} is not a CSV: {where} is a null character; expected plain text.")
    return text


def _row_after(n_lines: int) -> str:
    return f"in row {n_lines}" if n_lines else "in the header"


def _parse(text: str, name: str) -> tuple[list[str], Rows]:
    """Header and rows; rows are counted without blank lines."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    rows: Rows = []
    try:
        for cells in reader:
            if not cells:
                continue
            if not header:
                header = [_unescape(cell).strip() for cell in cells]
                check_separator(header, f"the header of {name}")
                continue
            if len(rows) == MAX_ROWS:
                raise InputError(
                    f"{name} has more than {MAX_ROWS:,} rows, the limit: every pair of stimuli "
                    "is compared, and pairs grow with the square of the rows."
                )
            if len(cells) != len(header):
                raise InputError(
                    f"row {len(rows) + 1} of {name} has {len(cells)} cells; the header has "
                    f"{len(header)} (a cell with a comma in it needs quotation marks)."
                )
            rows.append([_unescape(cell) or None for cell in cells])
    except csv.Error as error:
        where = f"row {len(rows) + 1}" if header else "the header"
        raise InputError(
            f"{where} of {name} cannot be read as CSV ({error}); expected cells separated by "
            "commas, and a closing quotation mark for each opening one."
        ) from error
    return header, rows


def check_separator(cells: Sequence[str], what: str) -> None:
    """Raise `InputError` where the only cell of the first line has another separator in it."""
    for separator, kind in ((";", "semicolons"), ("\t", "tabs")):
        if len(cells) == 1 and separator in cells[0]:
            raise InputError(
                f"{what} seems to be separated by {kind}; the cells must be separated by commas."
            )


def short(text: str, length: int = 60) -> str:
    """Text quoted for a message, cut where it is long."""
    return repr(text if len(text) <= length else text[: length - 1] + "…")


def some(names: Sequence[str], most: int = 20) -> str:
    """Names for a message, cut where there are many."""
    shown = ", ".join(short(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
