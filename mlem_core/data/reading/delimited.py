"""Text whose cells are separated by a sign: which sign, and the cells.

In messages, row 1 is the first one below the header.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice

from mlem_core.base.errors import InputError
from mlem_core.data.columns import Cells, with_points
from mlem_core.data.reading.content import MAX_COLUMNS, Columns
from mlem_core.data.reading.read_as import SEPARATORS

# An apostrophe that `csvfile.write_table` put before what a spreadsheet may take for a formula.
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")
LOOKED_AT = 200_000  # characters
_RECORDS = 300
_BLOCK = 50_000  # rows, so that what is read and not yet looked at stays small
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


def decimal_of(columns: Iterable[Cells], marks: Sequence[str] | None) -> str:
    """ "," where a column is of numbers with decimal commas, else "."."""
    return "," if any(with_points(cells, marks) is not None for cells in columns) else "."


def parse(
    text: str, name: str, separator: str = ",", *, literal: bool = False
) -> tuple[list[str], Columns]:
    """Header and columns of a CSV file; empty cells are None.

    Rows without any cell that is not empty do not count.

    Parameters
    ----------
    name : how messages call the file
    literal : quotation marks are characters like any other

    Raises
    ------
    InputError
        No CSV, or ragged.
    """
    # Its bytes take less memory than the text in a StringIO.
    lines = io.TextIOWrapper(
        io.BytesIO(text.encode("utf-8", "surrogatepass")), "utf-8", "surrogatepass", newline=""
    )
    reader = csv.reader(
        lines,
        strict=True,
        delimiter=separator,
        quoting=csv.QUOTE_NONE if literal else csv.QUOTE_MINIMAL,
    )
    kind = SEPARATORS.get(separator, repr(separator))
    filled = filter(any, reader)
    header: list[str] = []
    columns: Columns = []
    cell_of = cache(lambda cell: _unescape(cell) or None)
    n_rows, failed = 0, None
    while failed is None:
        rows: list[list[str]] = []
        try:
            rows.extend(islice(filled, _BLOCK))  # what came before an error is kept
        except csv.Error as error:
            failed = error
        if rows and not header:
            header = [_unescape(cell).strip() for cell in rows.pop(0)]
            if len(header) > MAX_COLUMNS:
                raise InputError(
                    f"{name} has {len(header):,} columns separated by {kind}; expected at most "
                    f"{MAX_COLUMNS:,}."
                )
            columns = [[] for _ in header]
        elif not rows and failed is None:
            break
        if set(map(len, rows)) - {len(header)}:
            ragged = next(i for i, cells in enumerate(rows) if len(cells) != len(header))
            hint = "" if literal else f" (a cell with {kind} in it needs quotation marks)"
            raise InputError(
                f"row {n_rows + ragged + 1} of {name} has {len(rows[ragged])} cells; the header "
                f"has {len(header)}{hint}."
            )
        for column, cells in zip(columns, zip(*rows, strict=True), strict=False):
            column += map(cell_of, cells)
        n_rows += len(rows)
    if failed is not None:
        where = f"row {n_rows + 1}" if header else "the header"
        raise InputError(
            f"{where} of {name} cannot be read as CSV ({failed}); expected cells separated by "
            f"{kind}, and a closing quotation mark for each opening one."
        ) from failed
    return header, columns


def _score(text: str, separator: str) -> tuple[float, int]:
    """The share of rows with as many cells as the header, and the cells of the header."""
    rows: list[list[str]] = []
    reader = csv.reader(io.StringIO(text[:LOOKED_AT], newline=""), delimiter=separator)
    with contextlib.suppress(csv.Error):
        rows += (cells for cells in islice(reader, _RECORDS) if any(cells))
    if len(text) > LOOKED_AT and len(rows) > 2 and len(rows) < _RECORDS:
        rows.pop()  # cut short
    width = len(rows[0]) if rows else 0
    if width < 2:
        return 0.0, width
    same = [len(cells) == width for cells in rows[1:]]
    return (sum(same) / len(same) if same else 1.0), width


def _unescape(cell: str) -> str:
    return cell[1:] if _ESCAPED.match(cell) else cell
