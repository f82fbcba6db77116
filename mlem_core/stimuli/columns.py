"""The columns of a stimulus table: their kinds, missing values, and cells as text and numbers."""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from functools import cache
from types import NoneType
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.parameters import split_names
from mlem_core.base.text import short

Kind = Literal["ordered", "nominal", "vector", "rdm"]
# The kinds of features that are given by their distances.
GIVEN: tuple[Kind, ...] = ("vector", "rdm")
Cells = Sequence[str | None]

# Types of cells that are numbers; bool is one of Python's whole numbers.
_NUMBERS = (int, float, Decimal, np.integer, np.floating)
LARGEST = 1e300  # so that the range of a feature is finite

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# With a decimal comma, and perhaps points between thousands.
_COMMA_NUMBER = re.compile(
    r"[+-]?(\d{1,3}(\.\d{3})+(,\d+)?|\d+,?\d*|,\d+)([eE][+-]?\d+)?", re.ASCII
)
_ANY_NUMBER = re.compile(f"{NUMBER.pattern}|{_COMMA_NUMBER.pattern}", re.ASCII)
# A minus sign that is no hyphen, as Numbers and word processors write it.
_MINUS = re.compile(r"\A\s*[\u2010-\u2013\u2212\ufe63\uff0d](?=[\d.,])")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
# No value in any column; "null", "none" and "na" may be one among names (a null subject, a
# na-adjective).
_NEVER = frozenset({"NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NULL"})
# No value where all others are words; one where others are signs (+ and -, punctuation).
_STROKES = frozenset({"-", "--", "–", "—", "_"})
# A number as other places or programs write it: 1,234 or 1 234, 5 %, €5, −5, 0x1F, (5), ~5, 5-.
_LIKE_NUMBER = re.compile(
    r"['(~≈<>]?[+-]?\s?[$€£¥]?\s?[+-]?\d[\d\s.,'’_٫٬]*([eE][+-]?\d+)?\)?"
    r"\s?([%‰°$€£¥-]|ms|sec|k?Hz|dB|px|cm|mm|kg)?|0[xX][0-9a-fA-F]+"
)
_DATE = re.compile(r"\d{1,2}\.\d{1,2}\.(\d\d){1,2}")
# No value among numbers, in any case.
MISSING_AMONG_NUMBERS = frozenset(
    {mark.casefold() for mark in _NEVER | _STROKES}
    | {f".{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"}  # of Stata
    | {"none", "null", "na", "n.a.", ".", "..", "?", "missing", "undefined"}
)


def missing_marks(cells: Cells, marks: Sequence[str] | None = None) -> set[str]:
    """The values of a feature column that say that there is none.

    By default `NA`, `N/A`, `n/a`, `#N/A`, `<NA>`, `NaN`, `nan` and `NULL` in any column; strokes
    and `_` also where every other value has a letter or digit; and where every other value is a
    number, `none`, `null`, `.`, `?` and the like too, in any case.

    Parameters
    ----------
    cells : of one column; None is an empty cell
    marks : these and no others, in any column
    """
    values = {cell.strip() for cell in set(cells) if cell is not None} - {""}
    if marks is not None:
        return values & set(marks)
    odd = {value for value in values if value.casefold() in MISSING_AMONG_NUMBERS}
    if values - odd and all(
        _ANY_NUMBER.fullmatch(value) or _INFINITE.fullmatch(value) for value in values - odd
    ):
        return odd
    never = values & _NEVER
    strokes = values & _STROKES
    names = values - never - strokes
    words = bool(names) and all(any(char.isalnum() for char in name) for name in names)
    return never | strokes if words else never


def strip_marks(cells: Cells, marks: Sequence[str] | None = None) -> list[str | None]:
    """The stripped cells of a feature column; empty ones and missing values are None."""
    missing = missing_marks(cells, marks) | {""}

    def stripped(cell: str | None) -> str | None:
        return None if cell is None or cell.strip() in missing else cell.strip()

    return list(map(cache(stripped), cells))


def with_hyphens(cells: Cells) -> Cells:
    """Cells with a hyphen for the minus sign where every value is a number then."""
    if not any(map(_MINUS.match, filter(None, {*cells}))):
        return cells
    plain = [cell and _MINUS.sub("-", cell, count=1) for cell in cells]
    numbers = {*map(str.strip, filter(None, plain))} - missing_marks(plain)
    return plain if all(map(_ANY_NUMBER.fullmatch, numbers)) else cells


def with_points(cells: Cells, marks: Sequence[str] | None = None) -> list[str | None] | None:
    """Cells with decimal points; None unless every value is a number and one has a comma."""
    missing = missing_marks(cells, marks) | {""}
    values = {cell.strip() for cell in set(cells) if cell is not None} - missing
    if not (all(map(_COMMA_NUMBER.fullmatch, values)) and any("," in value for value in values)):
        return None

    def with_point(cell: str | None) -> str | None:
        if cell is None or cell.strip() in missing:
            return cell
        return cell.strip().replace(".", "").replace(",", ".")

    return list(map(cache(with_point), cells))


def guess_kind(cells: Cells) -> Kind:
    """Ordered if every value is a number; words for missing or infinite values do not hide that."""
    values = {cell for cell in set(cells) if cell is not None}
    numbers = {cell for cell in values if NUMBER.fullmatch(cell)}
    odd = (
        cell.casefold() in MISSING_AMONG_NUMBERS or _INFINITE.fullmatch(cell)
        for cell in values - numbers
    )
    return "ordered" if numbers and all(odd) else "nominal"


def kind_of_types(types: Collection[type]) -> Kind | None:
    """The kind of a feature whose cells have these Python types; None where the cells have to say.

    Text stays text, whatever digits it has; numbers are ordered.
    """
    if types and all(issubclass(kind, _NUMBERS) and kind is not bool for kind in types):
        return "ordered"
    return "nominal" if types and set(types) <= {str, bool} else None


def feature_kind(column: pd.Series[Any]) -> Kind:
    """The kind of a feature: that of the type of its column, else of the types of its cells.

    Columns of numbers are ordered, also those of Python objects; text, booleans and categories are
    nominal. Where cells are of several types, those that are all written as numbers are ordered.

    Raises InputError: complex numbers.
    """
    types = pd.api.types
    if types.is_complex_dtype(column):
        raise InputError(
            f"column {str(column.name)!r} holds complex numbers; expected real ones, or text."
        )
    if isinstance(column.dtype, pd.CategoricalDtype) or types.is_bool_dtype(column):
        return "nominal"
    if types.is_numeric_dtype(column):
        return "ordered"
    cells = (cell for cell in column.dropna() if cell != "")
    return kind_of_types({*map(type, cells)}) or guess_kind(texts(column))


def is_like_number(cell: str) -> bool:
    """Whether a cell is a number as other places or programs write it."""
    text = unicodedata.normalize("NFKC", cell).replace("−", "-")
    return bool(_LIKE_NUMBER.fullmatch(text)) and not _DATE.fullmatch(text)


def override_kinds(kinds: dict[str, Kind], ordered: Iterable[str], nominal: Iterable[str]) -> None:
    """Set the kinds that the user names."""
    ordered, nominal = split_names(ordered), split_names(nominal)
    for name in (*ordered, *nominal):
        check_choice("feature", name, kinds)
        if name in ordered and name in nominal:
            raise InputError(
                f"the feature {name!r} is named both as ordered and as nominal; choose one."
            )
        kinds[name] = "ordered" if name in ordered else "nominal"


def parse_number(cell: str) -> float | None:
    """The number that a cell says, nan and inf too; None for signs that Python alone takes for
    parts of one: 1_0, १२."""
    try:
        return float(cell) if "_" not in cell and cell.isascii() else None
    except ValueError:
        return None


def rows_of_numbers(
    rows: Iterable[list[str]], n_cells: int, what: str, expected: str, row: int = 1, names: int = 0
) -> tuple[NDArray[np.float64], list[str]]:
    """The numbers that rows of cells say, (n_rows, n_cells - names), and the names before them.

    Parameters
    ----------
    n_cells : of each row
    what, expected : what messages call the file and what should be in it
    row : the number of the first row, for messages
    names : how many cells of a row stand before its numbers

    Raises InputError: a row has another number of cells, or one that says no number.
    """
    lines, before = [], list[str]()  # numbers as texts take ten times the memory
    for at, cells in enumerate(rows, start=row):
        if len(cells) != n_cells:
            raise InputError(
                f"row {at} of {what} has {len(cells)} cells, the first has {n_cells}; expected "
                f"{expected}."
            )
        numbers = list(map(parse_number, cells[names:]))
        if None in numbers:
            column = numbers.index(None) + names
            cell = short(cells[column]) if cells[column] else "an empty cell"
            raise InputError(
                f"{what} has {cell} in row {at}, column {column + 1}; expected {expected}."
            )
        lines.append(np.array(numbers, dtype=np.float64))
        before += cells[:names]
    return np.stack(lines) if lines else np.empty((0, n_cells - names)), before


def typed_column(name: str, cells: Cells, kind: Kind | None) -> pd.Series[Any]:
    """A column of the table; `kind` is None for one that is carried along."""
    if kind == "ordered":
        return _numbers(name, cells)
    if kind == "nominal":
        first = min((cells.index(cell) for cell in ("NaN", "nan") if cell in cells), default=None)
        if first is not None:
            raise InputError(
                f"column {name!r} has {cells[first]!r} in row {first + 1}; leave the cell empty if "
                "the value is missing."
            )
    return pd.Series(cells, dtype="str")


def _numbers(name: str, cells: Cells) -> pd.Series[Any]:
    def number(cell: str | None) -> float:
        """Number of a cell; it is looked up as they come, so that the first wrong one raises."""
        if cell is None:
            return math.nan
        value = float(cell) if NUMBER.fullmatch(cell) else math.inf
        if abs(value) > LARGEST:
            raise InputError(
                f"column {name!r} has {short(cell)} in row {cells.index(cell) + 1}; an ordered "
                f"feature needs a number there, not infinite or beyond {LARGEST:g} in size (a "
                "missing value is an empty cell)."
            )
        return value + 0.0  # -0.0 is 0

    numbers = np.array(list(map(cache(number), cells)), dtype=np.float64)
    is_whole = np.isfinite(numbers) & (numbers == np.rint(numbers)) & (np.abs(numbers) < 2**53)
    return pd.Series(numbers.astype(np.int64) if is_whole.all() else numbers)


def cell_text(value: Any) -> str | None:
    """A cell as text; missing (None, NaN, empty) as None, whole numbers without a decimal point."""
    if value is None or value is pd.NA or value == "":
        return None
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return None
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
    return str(value)


def text_of_value(value: Any) -> str | None:
    """A cell as text, see `cell_text`; dates as 2024-07-23."""
    if isinstance(value, datetime.datetime) and not any(value.timetuple()[3:6]):
        value = value.date()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return cell_text(value)


def coded(column: pd.Series[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """A column as codes (n_rows,) into its distinct texts, see `cell_text`.

    The last one of the distinct texts (n_distinct + 1,) is None, of code -1; the others are in the
    order in which they first occur.
    """
    # In a column of objects 1, 1.0 and True are one key and several texts.
    one_text = column.dtype != object or set(map(type, column)) <= {str, float, NoneType}
    one_text &= getattr(column.dtype, "isnative", True)  # pandas counts no others
    if not (one_text and (column.dtype.kind in "biuf" or column.dtype in ("str", object))):
        column = pd.Series([cell_text(cell) for cell in column], dtype=object)
    codes, distinct = pd.factorize(column)
    texts = np.array([*map(cell_text, distinct.tolist()), None], dtype=object)
    return np.asarray(codes, dtype=np.int64), texts


def texts(column: pd.Series[Any]) -> list[str | None]:
    """The cells of a column as `cell_text` has them: (n_rows,)."""
    codes, distinct = coded(column)
    return distinct[codes].tolist()
