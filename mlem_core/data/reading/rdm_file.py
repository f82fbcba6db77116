"""A file with a dissimilarity matrix (RDM): .npy, or numbers as text, with or without names."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.text import short
from mlem_core.base.typing import FloatArray
from mlem_core.data.columns import NUMBER
from mlem_core.data.rdm import checked_distances
from mlem_core.data.reading.content import MAX_BYTES, decode

SUFFIXES = (".npy", ".csv", ".tsv", ".txt")
_FORM = "a square matrix, or the distances of every two stimuli once (condensed)"


class RdmFile(NamedTuple):
    """What is in such a file.

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
    try:
        size = file.stat().st_size
        data = file.read_bytes() if size <= MAX_BYTES else b""
    except OSError as error:
        raise InputError(
            f"the RDM {str(file)!r} cannot be read ({error.strerror}); expected {_FORM}."
        ) from error
    if size > MAX_BYTES:
        raise InputError(
            f"{what} is larger than the limit of {MAX_BYTES // 1_000_000} MB for an RDM."
        )
    if file.suffix.lower() == ".npy":
        found = RdmFile(_array(data, what))
    else:
        found = _of_text(decode(data, file.name)[0], what)
    square = _square(found.distances, what)
    names = found.names or [str(row + 1) for row in range(len(square))]
    called = [short(name) if found.names else name for name in names]
    return found._replace(distances=checked_distances(square, what, called))


def _array(data: bytes, what: str) -> FloatArray:
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError, SyntaxError, MemoryError, OverflowError) as error:
        raise InputError(
            f"{what} is no .npy file of numbers (damaged, or with pickled objects); expected "
            f"{_FORM}."
        ) from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        kind = array.dtype if isinstance(array, np.ndarray) else "an archive"
        raise InputError(f"{what} holds {kind}; expected numbers: {_FORM}.")
    return array.astype(np.float64)


def _of_text(text: str, what: str) -> RdmFile:
    separator = _separator(text.lstrip().partition("\n")[0].strip())
    try:
        rows = [
            [cell.strip() for cell in row]
            for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
            if any(row)
        ]
    except csv.Error as error:
        raise InputError(f"{what} cannot be read as CSV ({error}); expected {_FORM}.") from error
    named = not NUMBER.fullmatch(_point(rows[0][0], separator)) if rows else False
    ragged = next((at for at, row in enumerate(rows) if len(row) != len(rows[0])), None)
    if ragged is not None:
        raise InputError(
            f"row {ragged + 1} of {what} has {len(rows[ragged])} cells, the first has "
            f"{len(rows[0])}; expected {_FORM}."
        )
    if not named:
        return RdmFile(_numbers(rows, what, separator, 0))
    corner, *names = rows[0]
    distances = _numbers([row[1:] for row in rows[1:]], what, separator, 1)
    of_rows = [row[0] for row in rows[1:]]
    for which, found, others in (("row", of_rows, names), ("column", names, of_rows)):
        name, times = Counter(found).most_common(1)[0] if found else ("", 0)
        if times > 1:
            raise InputError(f"{what} has {times} {which}s named {short(name)}; expected one.")
        missing = [name for name in found if name not in set(others)]
        if missing or not found:
            other = "column" if which == "row" else "row"
            raise InputError(
                f"{what} has the {which} {short(missing[0]) if found else 'of no name'} and no "
                f"{other} of that name; expected the same names in its rows and columns."
            )
    order = [of_rows.index(name) for name in names] if of_rows != names else slice(None)
    return RdmFile(distances[order], tuple(names), corner)


def _separator(line: str) -> str:
    # Commas may be decimal ones where something else separates the cells.
    return next((sign for sign in "\t;, " if sign in line), ",")


def _point(cell: str, separator: str) -> str:
    """A number with a decimal point, where commas do not separate the cells."""
    return cell.replace(",", ".") if separator != "," else cell


def _numbers(rows: list[list[str]], what: str, separator: str, before: int) -> FloatArray:
    """The cells of rows as numbers; `before` rows and columns stand before them."""
    try:
        return np.array([[float(_point(cell, separator)) for cell in row] for row in rows])
    except ValueError:
        pass
    for at, row in enumerate(rows):
        for place, cell in enumerate(row):
            try:
                float(_point(cell, separator))
            except ValueError:
                raise InputError(
                    f"{what} has {short(cell) if cell else 'an empty cell'} in row "
                    f"{at + 1 + before}, column {place + 1 + before}; expected a distance there."
                ) from None
    raise InputError(f"{what} holds no numbers; expected {_FORM}.")


def _square(found: FloatArray, what: str) -> FloatArray:
    """The square matrix, of condensed distances too."""
    if found.ndim != 1 and not (found.ndim == 2 and 1 in found.shape and found.size > 1):
        return found
    flat = found.ravel()
    n = (1 + math.isqrt(1 + 8 * len(flat))) // 2
    if n * (n - 1) // 2 != len(flat) or n < 2:
        raise InputError(
            f"{what} has {len(flat):,} numbers in one row, which are not the distances of every "
            f"two of so many stimuli: {n:,} have {n * (n - 1) // 2:,}, {n + 1:,} have "
            f"{n * (n + 1) // 2:,}."
        )
    square = np.zeros((n, n))
    square[np.triu_indices(n, 1)] = flat
    return square + square.T
