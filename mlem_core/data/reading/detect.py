"""What separates the cells of a text, and whether its numbers have decimal commas."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from itertools import islice

from mlem_core.data.columns import Cells, with_points
from mlem_core.data.reading.read_as import SEPARATORS

LOOKED_AT = 200_000  # characters
_RECORDS = 300
# Excel's own way to say it, in the first line.
_SAID = re.compile(r'"?sep=([,;|\t])"?\r?\n', re.IGNORECASE)


def separator_of(text: str) -> tuple[str, str]:
    """The separator of a text, and the text without the line that says it (`sep=;`).

    It is the one by which the header has at least two cells and most rows have as many; commas
    where there is none.
    """
    said = _SAID.match(text)
    if said:
        return said[1], text[said.end() :]
    scores = {separator: _score(text, separator) for separator in SEPARATORS}
    best = max(scores, key=lambda separator: scores[separator])
    return (best if scores[best][1] > 1 else ","), text


def _score(text: str, separator: str) -> tuple[float, int]:
    """The share of rows with as many cells as the header, and the cells of the header."""
    rows: list[list[str]] = []
    reader = csv.reader(io.StringIO(text[:LOOKED_AT], newline=""), delimiter=separator)
    try:
        rows += (cells for cells in islice(reader, _RECORDS) if any(cells))
    except csv.Error:
        pass
    if len(text) > LOOKED_AT and len(rows) > 2 and len(rows) < _RECORDS:
        rows.pop()  # cut short
    width = len(rows[0]) if rows else 0
    if width < 2:
        return 0.0, width
    same = [len(cells) == width for cells in rows[1:]]
    return (sum(same) / len(same) if same else 1.0), width


def decimal_of(columns: Iterable[Cells], marks: Sequence[str] | None) -> str:
    """ "," where a column is of numbers with decimal commas, else "."."""
    return "," if any(with_points(cells, marks) is not None for cells in columns) else "."
