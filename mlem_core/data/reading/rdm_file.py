"""A file with a dissimilarity matrix (RDM): .npy, or numbers as text, with or without names."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.text import short
from mlem_core.base.typing import FloatArray
from mlem_core.data.columns import NUMBER, counted_from, row_of_numbers
from mlem_core.data.reading.content import content, decode

SUFFIXES = (".npy", ".csv", ".tsv", ".txt")
# Of 800 MB, where all are read.
MOST_ROWS = 10_000
# By what share of the largest distance a matrix may be off from a symmetric one with a diagonal
# of 0, as one that was written with fewer digits is.
TOLERANCE = 1e-6
_FORM = "a square matrix, or the distances of every two stimuli once (condensed)"


class RdmFile(NamedTuple):
    """The content of such a file.

    distances : (n, n), checked
    names : (n,) of its rows and columns, or () where it has none: the order of the stimuli
    corner : the cell above the names of the rows, which may name a column of the stimuli
    """

    distances: FloatArray
    names: tuple[str, ...] = ()
    corner: str = ""


def checked_distances(distances: FloatArray, what: str, names: Sequence[str]) -> FloatArray:
    """The distances (n, n), symmetric to the last digit and with a diagonal of 0.

    Parameters
    ----------
    what : how messages call them
    names : (n,) how messages call each row

    Raises
    ------
    InputError
        Not square, not finite, negative, not symmetric, not 0 on the diagonal, or 0 everywhere.
    """
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        shape = " × ".join(map(str, distances.shape))
        raise InputError(
            f"{what} is of shape {shape}; expected a square matrix of distances, as many rows as "
            "columns, or the distances of every two stimuli once (condensed)."
        )

    def where(wrong: np.ndarray) -> tuple[str, float]:
        row, column = map(int, np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        return f"row {names[row]}, column {names[column]}", float(distances[row, column])

    if not np.isfinite(distances).all():
        place, value = where(~np.isfinite(distances))
        raise InputError(f"{what} has {value} in {place}; expected a distance there.")
    if (distances < 0).any():
        place, value = where(distances < 0)
        raise InputError(f"{what} has {value:g} in {place}; a distance is at least 0.")
    largest = float(distances.max(initial=0.0))
    if not 0 < largest <= 1e300:
        raise InputError(
            f"the largest distance of {what} is {largest:g}; expected one above 0 and up to 1e300."
        )
    diagonal = np.diag(np.diag(distances))
    if (diagonal > TOLERANCE * largest).any():
        place, value = where(diagonal > TOLERANCE * largest)
        raise InputError(
            f"{what} has {value:g} in {place}, on its diagonal; a distance of a stimulus from "
            "itself is 0 (of similarities, give 1 minus them)."
        )
    # Halves first: the sum of two large numbers may be too large.
    both = distances / 2 + distances.T / 2
    apart = np.abs(distances - both)
    if (apart > TOLERANCE * largest).any():
        place, value = where(apart > TOLERANCE * largest)
        row, column = np.unravel_index(int(np.argmax(apart > TOLERANCE * largest)), apart.shape)
        raise InputError(
            f"{what} is not symmetric: {value:g} in {place}, {float(distances[column, row]):g} the "
            "other way round; expected one distance for every two stimuli."
        )
    np.fill_diagonal(both, 0.0)
    return both


def read_rdm(path: Path | str) -> RdmFile:
    """The distances that a file holds.

    In text the first row and the first column are names where the first cell is no number.

    Raises
    ------
    InputError
        The file cannot be read, is too large, or of another form; and as `checked_distances`.
    """
    file = Path(path)
    what = f"the RDM {file.name}"
    if file.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{what} ends in {file.suffix or 'nothing'!r}; expected one of {', '.join(SUFFIXES)}."
        )
    data, _ = content(file, _FORM, "the RDM")
    if file.suffix.lower() == ".npy":
        rdm = RdmFile(_array(data, what))
    else:
        rdm = _of_text(decode(data, file.name)[0], what)
    _check_counted(rdm.distances, what)
    square = _square(rdm.distances, what)
    names = rdm.names or [str(row + 1) for row in range(len(square))]
    called = [short(name) if rdm.names else name for name in names]
    return rdm._replace(distances=checked_distances(square, what, called))


def _array(data: bytes, what: str) -> FloatArray:
    file = io.BytesIO(data)
    try:
        array = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError, SyntaxError, MemoryError, OverflowError) as error:
        raise InputError(
            f"{what} is no .npy file of numbers (damaged, or with pickled objects); expected "
            f"{_FORM}."
        ) from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        kind = array.dtype if isinstance(array, np.ndarray) else "an archive"
        raise InputError(f"{what} holds {kind}; expected numbers: {_FORM}.")
    if n_left := len(file.read()):
        raise InputError(
            f"{what} has {n_left:,} bytes behind its array; expected one array: {_FORM}."
        )
    if array.size > MOST_ROWS**2:
        raise InputError(
            f"{what} holds {array.size:,} numbers; expected at most {MOST_ROWS:,} rows and columns."
        )
    return array.astype(np.float64)


def _of_text(text: str, what: str) -> RdmFile:
    line = text.lstrip().partition("\n")[0].strip()
    # Commas may be decimal ones where something else separates the cells.
    separator = next((sign for sign in "\t;, " if sign in line), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    first: list[str] = []
    of_rows: list[str] = []
    numbers: list[FloatArray] = []  # a row at a time: as texts they take ten times the memory
    named = False
    marks: set[str] = set()
    try:
        for at, cells in enumerate(filter(any, reader), 1):
            row = [cell.strip() for cell in cells]
            if not first:
                first = row
                named = not NUMBER.fullmatch(_point(row[0], separator))
                if named:
                    continue
            if len(row) != len(first):
                raise InputError(
                    f"row {at} of {what} has {len(row)} cells, the first has {len(first)}; "
                    f"expected {_FORM}."
                )
            if separator != ",":
                marks |= {mark for mark in ".," if any(mark in cell for cell in row[named:])}
            of_rows += row[:named]
            numbers.append(_numbers(row[named:], what, separator, (at, int(named))))
    except csv.Error as error:
        raise InputError(f"{what} cannot be read as CSV ({error}); expected {_FORM}.") from error
    if len(marks) > 1:
        raise InputError(
            f"{what} has decimal points and decimal commas; one of them may part thousands; "
            "expected numbers with one of them."
        )
    if not numbers:
        raise InputError(f"{what} is empty, without numbers; expected {_FORM}.")
    distances = np.array(numbers)
    if not named:
        return RdmFile(distances)
    corner, *names = first
    return RdmFile(distances[_order(of_rows, names, what)], tuple(names), corner)


def _order(of_rows: list[str], names: list[str], what: str) -> list[int]:
    """The row of each column's name; raise where rows and columns have other names."""
    for which, names_here, others in (("row", of_rows, names), ("column", names, of_rows)):
        name, times = Counter(names_here).most_common(1)[0] if names_here else ("", 0)
        if times > 1:
            raise InputError(f"{what} has {times} {which}s named {short(name)}; expected one.")
        there = set(others)
        missing = next((name for name in names_here if name not in there), None)
        if missing is not None:
            other = "column" if which == "row" else "row"
            raise InputError(
                f"{what} has the {which} {short(missing)} and no {other} of that name; expected "
                "the same names in its rows and columns."
            )
    places = {name: row for row, name in enumerate(of_rows)}
    return [places[name] for name in names]


def _point(cell: str, separator: str) -> str:
    """A number with a decimal point, where commas do not separate the cells."""
    return cell.replace(",", ".") if separator != "," else cell


def _numbers(row: list[str], what: str, separator: str, place: tuple[int, int]) -> FloatArray:
    """The cells of a row as numbers; `place` is its number, and how many cells stand before."""

    def wrong(column: int) -> InputError:
        text = short(row[column]) if row[column] else "an empty cell"
        where = f"row {place[0]}, column {column + 1 + place[1]}"
        return InputError(f"{what} has {text} in {where}; expected a distance there.")

    return row_of_numbers([_point(cell, separator) for cell in row], wrong)


def _check_counted(distances: FloatArray, what: str) -> None:
    """Raise where a first column or row counts the others, as those that pandas writes."""
    if distances.ndim != 2 or distances.shape[0] == distances.shape[1]:
        return
    for side, numbers in (("column", distances[:, 0]), ("row", distances[0])):
        if min(distances.shape) > 1 and counted_from(numbers) is not None:
            raise InputError(
                f"the first {side} of {what} counts, from {numbers[0]:g}, as pandas "
                "writes them; save it without (to_csv(..., header=False, index=False))."
            )


def _square(distances: FloatArray, what: str) -> FloatArray:
    """The square matrix, of condensed distances too."""
    shape, n = distances.shape, max(distances.shape[:1], default=1)
    condensed = len(shape) == 1 or (len(shape) == 2 and 1 in shape and distances.size > 1)
    if condensed:
        size = distances.size
        n = (1 + math.isqrt(1 + 8 * size)) // 2
        if n * (n - 1) // 2 != size or n < 2:
            raise InputError(
                f"{what} has {size:,} numbers in one row, which are not the distances of every "
                f"two of so many stimuli: {n:,} have {n * (n - 1) // 2:,}, {n + 1:,} have "
                f"{n * (n + 1) // 2:,}."
            )
    if n > MOST_ROWS:
        raise InputError(f"{what} has {n:,} rows; expected at most {MOST_ROWS:,}.")
    if not condensed:
        return distances
    square = np.zeros((n, n))
    square[np.triu_indices(n, 1)] = distances.ravel()
    return square + square.T
