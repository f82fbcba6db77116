"""Where a table begins in its file: title rows, comments, the header, second headers, the end.

Rows are those of the file, from 1, empty ones too. People's files begin with titles, lines of
comments or a row of merged cells, have no header at all, or end with a remark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from mlem_core.base.errors import InputError
from mlem_core.base.text import short
from mlem_core.data.columns import is_like_number

# Rows that are looked at, and that a user chooses from.
MOST_ROWS, OFFERED = 300, 10
_COMMENT = ("#", "%", "//")
# Qualtrics writes what it imported under its header.
_IMPORTED = '{"ImportId"'
_LONG = 3  # words of a text that is no name
# Share of the cells of a column that are alike.
_MOST = 0.9


class Layout(NamedTuple):
    """Where a table stands in its file.

    header : row of the names of the columns; 0: there is none
    first : row of the first stimulus
    row_names : whether the first column has no name because it has the names of the rows
    """

    header: int = 1
    first: int = 2
    row_names: bool = False

    @property
    def n_above(self) -> int:
        """Number of rows above the header, or the first stimulus."""
        return (self.header or self.first) - 1

    @property
    def n_under(self) -> int:
        """Number of rows between the header and the first stimulus."""
        return self.first - self.header - 1

    def names_in(self, row: Sequence[str]) -> list[str]:
        """The names of the columns, of the first row that is not above the table."""
        if not self.header:
            return [f"column_{place}" for place, _ in enumerate(row, 1)]
        return [""] * self.row_names + list(row)

    @property
    def note(self) -> str:
        """A sentence on second headers, which are left out; "" where there are none."""
        if not self.header or not self.n_under:
            return ""
        first, last = self.header + 1, self.first - 1
        rows = f"Row {first} of the file is" if first == last else f"Rows {first} to {last} are"
        return f"{rows} left out: they explain the columns, as Qualtrics writes them."


# The names stand in the first row, the stimuli below.
FIRST_ROW = Layout()


def find_layout(rows: Sequence[Sequence[str]], name: str, header: int | None = None) -> Layout:
    """Layout of a table whose first rows (at most `MOST_ROWS` are needed) are these.

    Parameters
    ----------
    rows : cells, "" where they are empty
    name : how messages call the file
    header : the row of the header, 0 for none; None is found

    Raises InputError: there is no such row.
    """
    if not any(map(any, rows)):
        return FIRST_ROW
    at = _above(rows)
    if header is None:
        below = [row for row in rows[at + 1 :] if any(row)]
        header = 0 if _is_data(rows[at], below) else at + 1
    if header == 0:
        return Layout(0, at + 1)
    if not 0 < header <= len(rows) or not any(rows[header - 1]):
        raise InputError(
            f"row {header} of {name} has no cell; expected the row of the header, or 0 where "
            "there is none."
        )
    first = header + 1
    for number, row in enumerate(rows[header:], header + 1):
        if any(cell.startswith(_IMPORTED) for cell in row):
            first = number + 1
    full = [row for row in rows[first - 1 :] if any(row)]
    return Layout(header, first, _have_row_names(rows[header - 1], full))


def in_short(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The first rows, each in a line, for a choice of the header."""
    return tuple(short(", ".join(filter(None, row)), 60) for row in rows[:OFFERED])


def _above(rows: Sequence[Sequence[str]]) -> int:
    """Place of the first row that is no title and no comment; of the first where every row is one.

    A title has at most half of the cells that most rows have, the first ones.
    """
    widths = Counter(sum(map(bool, row)) for row in rows if any(row))
    width = max(widths, key=lambda n: (widths[n], n), default=0)
    for at, row in enumerate(rows):
        filled = [bool(cell.strip()) for cell in row]
        is_title = width > 1 and 2 * sum(filled) <= width and any(filled[:1])
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


def _have_row_names(names: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether every row has one cell more than the header, first its number as R writes it."""
    if len(names) < 2 or len(below) < 2 or any(len(row) != len(names) + 1 for row in below):
        return False
    return len({row[0] for row in below}) == len(below) and all(row[0].isdecimal() for row in below)


def table_in(
    rows: Iterator[list[str]], layout: Layout
) -> tuple[list[str], Iterator[list[str]], list[list[str]]]:
    """Names of the columns, rows with a cell, and remarks, which are there after the last row.

    Parameters
    ----------
    rows : of the file, empty ones too
    """
    rows = islice(rows, layout.n_above, None)
    first = next(filter(any, rows), [])
    header = layout.names_in(first)
    body = islice(rows, layout.n_under, None) if layout.header else chain([first], rows)
    remarks: list[list[str]] = []
    return header, _without_remarks(body, len(header), remarks), remarks


def _without_remarks(
    rows: Iterable[list[str]], width: int, remarks: list[list[str]]
) -> Iterator[list[str]]:
    """Rows that have a cell, without those at the end that are remarks, which `remarks` takes.

    A remark is the first cell alone of a row that has fewer than the others, or stands apart.
    """
    apart = False
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


def remarks_note(remarks: Sequence[Sequence[str]]) -> str:
    """A sentence on rows at the end of a table that are left out; "" without any."""
    if not remarks:
        return ""
    first = short(remarks[0][0])
    if len(remarks) == 1:
        return f"The last row, {first}, stands apart from the table and is left out."
    return f"The last {len(remarks)} rows, from {first}, stand apart and are left out."
