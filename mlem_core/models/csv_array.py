"""A CSV of numbers as an array: a row a stimulus, a column a unit."""

from __future__ import annotations

import csv
import functools
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.data.columns import NUMBER, counted_from
from mlem_core.models.files import damaged
from mlem_core.models.mapped import are_distances
from mlem_core.storage.watched import Stamp, stamp

# What a first column may be that counts the rows.
FIRST_COLUMN = {"skip": "row numbers, left out", "unit": "a unit, as the others"}


class CountsRows(InputError):
    """The first column of a CSV may be row numbers, and it was not said."""


class _Parsed(NamedTuple):
    """The numbers (n_rows, n_columns), and whether a header has no name for the first column."""

    numbers: NDArray[np.float64]
    unnamed: bool


def csv_array(path: Path, first_column: str = "") -> NDArray[Any]:
    """The numbers of a CSV (n_rows, n_units), with or without a header.

    Parameters
    ----------
    first_column : one of `FIRST_COLUMN`, or "" where it is not said

    Raises
    ------
    InputError
        It cannot be read; a cell is no number.
    CountsRows
        It is not said what the first column is, which counts 0 to n - 1 or 1 to n or has no name.
    """
    found = _parse_csv(path, stamp(path))
    if first_column == "skip":
        return found.numbers[:, 1:]
    how = "has no name" if found.unnamed else _counting(found.numbers)
    if how and not first_column:
        raise CountsRows(
            f"the first column of {path.name} {how}, as row numbers that pandas writes; save the "
            "file without them (to_csv(..., index=False)), or say of its first column whether to "
            "skip it or that it is a unit (--first-column NAME=skip or NAME=unit)."
        )
    return found.numbers


def _counting(numbers: NDArray[np.float64]) -> str:
    """How the first of several columns counts the rows; "" where it does not."""
    n, width = numbers.shape
    first = counted_from(numbers[:, 0])
    # Distances from the first of stimuli in a row count, too.
    if first is None or width < 2 or (n == width and are_distances(numbers)):
        return ""
    return f"counts its rows, {first} to {n - 1 + first}"


@functools.lru_cache(maxsize=1)  # it is looked at several times in a row
def _parse_csv(path: Path, now: Stamp | None) -> _Parsed:
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = filter(None, csv.reader(file, strict=True))
            first = next(lines, [])
            header = _has_header(path, first)
            n_units = len(first)
            rows = [
                _numbers(path, n_units, row, cells)
                for row, cells in enumerate(lines if header else chain([first], lines), start=1)
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise damaged(path, "CSV", error) from error
    numbers = np.stack(rows) if rows else np.empty((0, n_units))
    return _Parsed(numbers, header and not first[0].strip())


def _has_header(path: Path, first: list[str]) -> bool:
    """Whether a first line is one of names; raises where there is none or it is no CSV's."""
    if not first:
        raise InputError(f"{path.name} is empty; expected a row of numbers for each stimulus.")
    for separator, kind in ((";", "semicolons"), ("\t", "tabs")):
        if len(first) == 1 and separator in first[0]:
            raise InputError(
                f"{path.name} seems to be separated by {kind}; the cells must be separated by "
                "commas."
            )
    # A header is a first row with a name in it, or the numbers 0, 1, 2 ... of the columns.
    named = any(_number(cell) is None for cell in first)
    if named and (numbers := [c for c in first if NUMBER.fullmatch(c) and not c.isdigit()]):
        name = next(cell for cell in first if _number(cell) is None)
        raise InputError(
            f"the first row of {path.name} has {name[:40]!r} beside numbers such as {numbers[0]}; "
            "expected numbers only, or a header of names."
        )
    return named or (len(first) > 1 and first == [str(i) for i in range(len(first))])


def _numbers(path: Path, n_units: int, row: int, cells: list[str]) -> NDArray[np.float64]:
    """A line as numbers (n_units,)."""
    if len(cells) != n_units:
        raise InputError(
            f"row {row} of {path.name} has {len(cells)} cells; the first one has {n_units}."
        )
    try:
        if not all(map(_is_plain, cells)):
            raise ValueError
        return np.array(list(map(float, cells)))
    except ValueError:
        column = next(i for i, cell in enumerate(cells) if _number(cell) is None)
        raise InputError(
            f"{path.name} has {cells[column][:40]!r} in row {row}, column {column + 1}; expected a "
            "number."
        ) from None


def _number(cell: str) -> float | None:
    try:
        return float(cell) if _is_plain(cell) else None
    except ValueError:
        return None


def _is_plain(cell: str) -> bool:
    """Whether a cell has no signs that Python alone takes for parts of a number: 1_0, १२."""
    return "_" not in cell and cell.isascii()
