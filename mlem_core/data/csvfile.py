"""The CSV format: text to cells, and cells that no spreadsheet runs as a formula.

In messages, row 1 is the first one below the header.
"""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.data.columns import NUMBER
from mlem_core.data.reading.content import MAX_ROWS, Rows, too_many_rows
from mlem_core.data.reading.read_as import SEPARATORS
from mlem_core.storage.files import replacing

# What a spreadsheet may take for a formula, after the apostrophes that we put in front ourselves.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")


def parse(
    text: str, name: str, separator: str = ",", *, literal: bool = False
) -> tuple[list[str], Rows]:
    """Header and rows of a CSV file; empty cells are None.

    Rows without any cell that is not empty do not count.

    Parameters
    ----------
    name : how messages call the file
    literal : quotation marks are characters like any other

    Raises
    ------
    InputError
        No CSV, ragged, or more than `MAX_ROWS` rows.
    """
    quoting = csv.QUOTE_NONE if literal else csv.QUOTE_MINIMAL
    reader = csv.reader(
        io.StringIO(text, newline=""), strict=True, delimiter=separator, quoting=quoting
    )
    header: list[str] = []
    rows: Rows = []
    kind = SEPARATORS.get(separator, repr(separator))
    try:
        for cells in reader:
            if not any(cells):
                continue
            if not header:
                header = [_unescape(cell).strip() for cell in cells]
                continue
            if len(rows) == MAX_ROWS:
                raise too_many_rows(name)
            if len(cells) != len(header):
                hint = "" if literal else f" (a cell with {kind} in it needs quotation marks)"
                raise InputError(
                    f"row {len(rows) + 1} of {name} has {len(cells)} cells; the header has "
                    f"{len(header)}{hint}."
                )
            rows.append([_unescape(cell) or None for cell in cells])
    except csv.Error as error:
        where = f"row {len(rows) + 1}" if header else "the header"
        raise InputError(
            f"{where} of {name} cannot be read as CSV ({error}); expected cells separated by "
            f"{kind}, and a closing quotation mark for each opening one."
        ) from error
    return header, rows


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
