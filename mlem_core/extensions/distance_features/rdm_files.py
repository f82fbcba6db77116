"""Files of distances (RDMs): an .npy, or numbers as text, with or without names of rows."""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from tokenize import TokenError
from typing import NamedTuple

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.text import many, short
from mlem_core.base.typing import FloatArray
from mlem_core.stimuli.columns import NUMBER, rows_of_numbers
from mlem_core.stimuli.neural_rows import symmetric_distances
from mlem_core.stimuli.reading.content import content, decode

SUFFIXES = (".npy", ".csv", ".tsv", ".txt")
# Of 800 MB, where all are read.
MOST_ROWS = 10_000
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


def read_rdm(path: Path | str) -> RdmFile:
    """The distances that a file holds.

    In text the first row and the first column are names where the first cell is no number.

    Raises InputError: the file cannot be read, is too large, or of another form; and as
    `checked_distances`.
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
        rdm = _parse_text(decode(data, file.name)[0], what)
    square = _square(rdm.distances, what)
    return rdm._replace(distances=symmetric_distances(square, what, rdm.names))


def _array(data: bytes, what: str) -> FloatArray:
    file = io.BytesIO(data)
    array = None
    with contextlib.suppress(
        ValueError, EOFError, OSError, SyntaxError, TokenError, MemoryError, OverflowError
    ):
        array = np.load(file, allow_pickle=False)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or file.read(1):
        raise InputError(
            f"{what} is no .npy file of one array of numbers (damaged, with pickled objects, or "
            f"with something behind the array); expected {_FORM}."
        )
    if array.size > MOST_ROWS**2:
        raise InputError(
            f"{what} holds {array.size:,} numbers; expected at most {MOST_ROWS:,} rows and columns."
        )
    return np.asarray(array, dtype=np.float64)


def _parse_text(text: str, what: str) -> RdmFile:
    line = text.lstrip().partition("\n")[0].strip()
    separator = next((sign for sign in "\t;, " if sign in line), ",")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    cells = ([cell.strip() for cell in line] for line in lines if any(line))
    marks: set[str] = set()
    try:
        first = next(cells, [""])
        named = not NUMBER.fullmatch(first[0].replace(",", "."))

        def rows() -> Iterator[list[str]]:
            """The rows with decimal points: commas are decimal where something else separates."""
            for row in cells if named else chain([first], cells):
                marks.update(mark for mark in ".," if any(mark in cell for cell in row[named:]))
                yield [*row[:named], *(cell.replace(",", ".") for cell in row[named:])]

        numbers = rows_of_numbers(rows(), len(first), what, _FORM, 1 + named, int(named))
    except csv.Error as error:
        raise InputError(f"{what} cannot be read as CSV ({error}); expected {_FORM}.") from error
    if len(marks) > 1:
        raise InputError(
            f"{what} has decimal points and decimal commas; one of them may part thousands; "
            "expected numbers with one of them."
        )
    distances, of_rows = numbers
    if not distances.size:
        raise InputError(f"{what} is empty, without numbers; expected {_FORM}.")
    if not named:
        return RdmFile(distances)
    corner, *names = first
    counts = Counter(of_rows), Counter(names)
    for name in counts[0] | counts[1]:
        n_rows, n_columns = (count[name] for count in counts)
        if n_rows != 1 or n_columns != 1:
            raise InputError(
                f"{what} has {many(n_rows, 'row')} and {many(n_columns, 'column')} named "
                f"{short(name)}; expected one of each."
            )
    places = {name: row for row, name in enumerate(of_rows)}
    return RdmFile(distances[[places[name] for name in names]], tuple(names), corner)


def _square(distances: FloatArray, what: str) -> FloatArray:
    """The square matrix, of condensed distances too."""
    from scipy.spatial.distance import squareform

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
    return np.asarray(squareform(distances.ravel(), checks=False))
