"""The columns of a stimulus table: their kinds, and their cells as text and as numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, unknown
from mlem_core.data.csvfile import NUMBER, short

Kind = Literal["ordered", "nominal"]

LARGEST = 1e300  # so that the range of a feature is finite

_EDGES = re.compile(r"^\W+|\W+$")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_MISSING_WORDS = frozenset({"nan", "na", "n/a", "#n/a", "null", "none", "?", "-"})


def guess_kind(cells: list[str | None]) -> Kind:
    """Ordered if every value is a number; words for missing or infinite values do not hide that."""
    values = {cell for cell in cells if cell is not None}
    numbers = {cell for cell in values if NUMBER.fullmatch(cell)}
    odd = (
        cell.casefold() in _MISSING_WORDS or _INFINITE.fullmatch(cell) for cell in values - numbers
    )
    return "ordered" if numbers and all(odd) else "nominal"


def override_kinds(kinds: dict[str, Kind], ordered: Iterable[str], nominal: Iterable[str]) -> None:
    """Set the kinds that the user names."""
    ordered, nominal = list(ordered), list(nominal)
    for name in (*ordered, *nominal):
        if name not in kinds:
            raise unknown("feature", name, kinds)
        if name in ordered and name in nominal:
            raise InputError(
                f"the feature {name!r} is named both as ordered and as nominal; choose one."
            )
        kinds[name] = "ordered" if name in ordered else "nominal"


def typed_column(name: str, cells: list[str | None], kind: Kind | None) -> pd.Series[Any]:
    """A column of the table; `kind` is None for one that is carried along."""
    if kind == "ordered":
        return _numbers(name, cells)
    if kind == "nominal":
        for row, cell in enumerate(cells, start=1):
            if cell in ("NaN", "nan"):
                raise InputError(
                    f"column {name!r} has {cell!r} in row {row}; leave the cell empty if the value "
                    "is missing."
                )
    return pd.Series(cells, dtype="str")


def _numbers(name: str, cells: list[str | None]) -> pd.Series[Any]:
    numbers = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if cell is None:
            continue
        if not NUMBER.fullmatch(cell) and not _INFINITE.fullmatch(cell):
            hint = (
                " (a missing value is an empty cell)" if cell.casefold() in _MISSING_WORDS else ""
            )
            raise InputError(
                f"column {name!r} has {short(cell)} in row {row + 1}; an ordered feature needs a "
                f"number there{hint}."
            )
        number = float(cell)
        if abs(number) > LARGEST:
            raise InputError(
                f"column {name!r} has the infinite or huge value {short(cell)} in row {row + 1}; "
                f"expected a number up to {LARGEST:g} in size or an empty cell."
            )
        numbers[row] = number + 0.0  # -0.0 is 0
    whole = np.isfinite(numbers) & (numbers == np.rint(numbers)) & (np.abs(numbers) < 2**53)
    return pd.Series(numbers.astype(np.int64) if whole.all() else numbers)


def bare(word: str) -> str:
    """A word without case and surrounding punctuation (unless it is nothing else)."""
    return (_EDGES.sub("", word) or word.strip()).casefold()


def text_of(value: Any) -> str | None:
    """A cell as text; missing (None, NaN, empty) as None, whole numbers without a decimal point."""
    if value is None or value is pd.NA or value == "":
        return None
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return None
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
    return str(value)
