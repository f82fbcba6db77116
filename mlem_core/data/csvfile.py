"""Tables as CSV whose cells no spreadsheet runs as a formula."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import NoneType
from typing import IO, Any

import numpy as np
import pandas as pd

from mlem_core.base.files import replacing
from mlem_core.data.columns import NUMBER

# What a spreadsheet may take for a formula, after the apostrophes that we put in front ourselves.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_QUOTED = re.compile(r'[",\r\n]')
_BLOCK = 50_000  # rows that are written at a time


def write_table(frame: pd.DataFrame, target: str | Path | IO[Any], *, synced: bool = True) -> None:
    """Write any table as CSV; cells (and column names) that a spreadsheet runs get an apostrophe.

    An index other than 0, 1, 2, ... is written as the first column, under the index's name.

    Parameters
    ----------
    frame : the table
    target : path (written under another name, then renamed), or an open text or binary file
    synced : as of `mlem_core.base.files.replacing`
    """
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.rename_axis(index=frame.index.name or "").reset_index()
    if isinstance(target, (str, Path)):
        with replacing(target, synced=synced) as temporary, temporary.open("wb") as file:
            for text in _blocks(frame):
                file.write(text.encode())
        return
    open_file: Any = target
    for text in _blocks(frame):
        open_file.write(text if isinstance(open_file, io.TextIOBase) else text.encode())


def _blocks(frame: pd.DataFrame) -> Iterator[str]:
    """The lines of a table, some at a time."""
    yield _lines([[_written(str(name))] for name in frame.columns])
    for start in range(0, len(frame), _BLOCK):
        block = frame.iloc[start : start + _BLOCK]
        yield _lines([_cells(block.iloc[:, i]) for i in range(frame.shape[1])])


def _lines(columns: list[list[str]]) -> str:
    if len(columns) == 1:  # an empty line would be no row
        columns = [[cell or '""' for cell in columns[0]]]
    return "".join([f"{line}\n" for line in map(",".join, zip(*columns, strict=True))])


def _cells(column: pd.Series[Any]) -> list[str]:
    """The cells of a column as they are written."""
    values = column.tolist()
    # Of equal numbers one may be written in another way: 1, 1.0 and True, 0.0 and -0.0.
    if column.dtype == "str" or set(map(type, values)) <= {str, NoneType}:
        return list(map(cache(_written), values))
    return list(map(_written, values))


def _written(value: Any) -> str:
    """A cell with its quotation marks, if it needs any."""
    if isinstance(value, (float, np.floating)):
        return "" if math.isnan(value) else repr(float(value))
    if value is None or value is pd.NA:
        return ""
    text = str(value)
    if isinstance(value, str) and _FORMULA.match(text) and not NUMBER.fullmatch(text):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
