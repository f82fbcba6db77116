"""Tables as CSV whose cells no spreadsheet runs as a formula."""

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

from mlem_core.data.columns import NUMBER
from mlem_core.storage.files import replacing

# What a spreadsheet may take for a formula, after the apostrophes that we put in front ourselves.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")


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
