"""Where a table begins in its file: title rows, comments, the header, second headers, the end.

Rows are those of the file, from 1, empty ones too. People's files begin with titles, lines of
comments or a row of merged cells, have no header at all, or end with a remark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from mlem_core.base.errors import InputError
from mlem_core.base.text import short
from mlem_core.stimuli.columns import is_like_number

# Rows that are looked at, and those below the header in a preview.
MOST_ROWS, PREVIEW = 300, 8
_COMMENT = ("#", "%", "//")
# Qualtrics writes what it imported under its header.
_IMPORTED = '{"ImportId"'
_LONG = 3  # words of a text that is no name
# Share of the cells of a column that are alike.
_MOST = 0.9


class TableRows(NamedTuple):
    """A table in its file.

    names : of the columns; column_1, column_2, ... where the file has none
    rows : those with a cell, below the names and what explains these, without remarks at the end
    header : row of the names; 0: there is none
    above : number of rows above the first stimulus
    notes : sentences on rows that are left out, all of them after the last row
    """

    names: list[str]
    rows: Iterator[list[str]]
    header: int
    above: int
    notes: list[str]


def split_header(
    rows: Iterator[list[str]],
    head: Sequence[list[str]],
    name: str,
    header: int | None = None,
    grouped: Collection[int] = (),
) -> TableRows:
    """The table in the rows of a file.

    Parameters
    ----------
    rows : cells of each, "" where they are empty
    head : the first of them, at most `MOST_ROWS` are needed
    name : how messages call the file
    header : the row of the header, 0 for none; None is found

    Raises InputError: there is no such row.
    """
    notes: list[str] = []
    if not any(map(any, head)):
        names = next(filter(any, rows), list[str]())
        return TableRows(names, _drop_remarks(rows, len(names), notes), 1, len(head), notes)
    at = _header_row(head)
    ungrouped = [row if place not in grouped else [] for place, row in enumerate(head, 1)]
    if any(map(any, ungrouped)):
        lower = _header_row(ungrouped)
        if not _is_data(head[lower], [row for row in head[lower + 1 :] if any(row)]):
            at = lower
    if header is None:
        header = 0 if _is_data(head[at], [row for row in head[at + 1 :] if any(row)]) else at + 1
    if header > len(head) or (header and not any(head[header - 1])):
        raise InputError(
            f"row {header} of {name} has no cell; expected the row of the header, or 0 where "
            "there is none."
        )
    first, names = at, [f"column_{place}" for place, _ in enumerate(head[at], 1)]
    if header:
        first, names = header, head[header - 1]
        for place, row in enumerate(head[header:], header):
            if any(cell.startswith(_IMPORTED) for cell in row):
                first = place + 1
        if first > header:
            several = f"Rows {header + 1} to {first} are"
            explain = f"Row {first} of the file is" if first == header + 1 else several
            notes.append(f"{explain} left out: they explain the columns, as Qualtrics writes them.")
        # Every row has one cell more than the header, first its number as R writes it.
        below = [row for row in head[first:] if any(row)]
        numbers = {row[0] for row in below if len(row) == len(names) + 1 and row[0].isdecimal()}
        if len(names) > 1 and 1 < len(below) == len(numbers):
            names = ["", *names]
    rows = _drop_remarks(islice(rows, first, None), len(names), notes)
    return TableRows(names, rows, header, first, notes)


def _header_row(rows: Sequence[Sequence[str]]) -> int:
    """Place of the first row that is no title and no comment; of the first where every row is one.

    A title has at most half of the cells that most rows have, one or two, the first ones: three
    beside each other are names, beside which a table goes on without any.
    """
    widths = Counter(sum(map(bool, row)) for row in rows if any(row))
    width = max(widths, key=lambda n: (widths[n], n), default=0)
    for at, row in enumerate(rows):
        filled = [bool(cell.strip()) for cell in row]
        # In a row of two columns the first one may have no name.
        is_title = width > 1 and 2 * sum(filled) <= width and (width > 2 or any(filled[:1]))
        is_title = is_title and filled[:3] != [True] * 3
        if any(filled) and not is_title and not row[0].lstrip().startswith(_COMMENT):
            return at
    return next(at for at, row in enumerate(rows) if any(row))


def _is_data(row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a row has values of its columns, as those below, and no names.

    A cell is a name where it is one word over sentences, or no number over numbers; it is a value
    where it stands below too, is a number over numbers, or a sentence over sentences.
    """
    if len(below) < 2 or any(not cell for cell in row):
        return False
    values, numbers = 0, list[str]()
    for place, cell in enumerate(row):
        column = [cells[place] for cells in below if place < len(cells) and cells[place]]
        if not column:
            continue
        of_numbers = _share(column, is_like_number) >= _MOST
        of_sentences = _share(column, lambda text: len(text.split()) >= _LONG) >= _MOST
        is_number, is_long = is_like_number(cell), len(cell.split()) >= _LONG
        if of_numbers != is_number or (of_sentences and len(cell.split()) == 1):
            return False
        if is_number:
            numbers.append(cell)
        values += is_number or (of_sentences and is_long) or cell in column
    # Columns may be called 1, 2, 3.
    counted = [int(cell) for cell in numbers if cell.strip().isdecimal()]
    if len(counted) > 1 and counted in ([*range(len(counted))], [*range(1, len(counted) + 1)]):
        return False
    return 2 * values > len(row)


def _share(cells: Sequence[str], holds: Callable[[str], bool]) -> float:
    return sum(map(holds, cells)) / len(cells)


def _drop_remarks(rows: Iterable[list[str]], width: int, notes: list[str]) -> Iterator[list[str]]:
    """Rows that have a cell, without those at the end that are remarks; a note says so.

    A remark is the first cell alone of a row that has fewer than the others, or stands apart.
    """
    apart, remarks = False, list[list[str]]()
    for cells in rows:
        if not any(cells):
            apart = apart or not cells
            continue
        if width > 1 and cells[0] and not any(cells[1:]) and (apart or len(cells) < width):
            remarks.append(cells)
            continue
        # What rows follow is no remark at the end.
        yield from remarks
        remarks.clear()
        apart = False
        yield cells
    if len(remarks) == 1:
        notes.append(
            f"The last row, {short(remarks[0][0])}, stands apart from the table and is left out."
        )
    elif remarks:
        first = short(remarks[0][0])
        notes.append(f"The last {len(remarks)} rows, from {first}, stand apart and are left out.")
