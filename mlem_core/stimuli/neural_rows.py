"""Neural data as people have them: arrays of numbers, whose rows may have names.

Rows that have names are matched with the stimuli by these, never by their place alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.text import short, some
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.stimuli.columns import cell_text, texts
from mlem_core.stimuli.stimulus_set import StimulusSet

# By what share of the largest distance a matrix may be off from a symmetric one with a diagonal
# of 0 and nothing below 0, as one that was computed or written with fewer digits is.
TOLERANCE = 1e-6
_BLOCK = 4_000_000  # numbers that are looked at a time
# More labels than this share that a column has are names of its rows.
_MOST = 0.5


def neural_rows(y: Any, X: StimulusSet | pd.DataFrame, name: str = "y") -> NDArray[Any]:
    """Neural data as an array of real numbers, its rows in the order of the stimuli.

    The rows of a DataFrame are matched by its index, see `index_order`; a square one whose columns
    have the names of its rows, as distances have, has its columns in the same order.

    Parameters
    ----------
    y : (n_stimuli, ...) anything that NumPy makes an array of
    X : the stimuli
    name : how messages call the data

    Raises InputError: no real numbers (complex ones too), or masked values; names of rows that are
    not those of the stimuli.
    """
    type_name = type(y).__name__
    try:
        if isinstance(y, pd.DataFrame | pd.Series):
            order, frame = index_order(y.index, X, name), y
            y = np.asarray(frame, dtype=object) if frame.isna().to_numpy().any() else y
            y = np.asarray(y)[order]
            if isinstance(frame, pd.DataFrame) and set(frame.columns) == set(frame.index):
                y = y[:, frame.columns.get_indexer(frame.index[order])]
        masked = np.argwhere(np.ma.getmask(y))
        rows = np.asarray(y)
        if rows.dtype.kind == "O" and not any(isinstance(value, str) for value in rows.flat):
            rows = np.where(pd.isna(rows), np.nan, rows).astype(np.float64)
        if rows.dtype.kind not in "biuf" or rows.dtype.itemsize > 8:
            rows = rows.astype(np.float64, casting="same_kind")
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{name}, of the type {type_name}, is no array of real numbers; expected one of "
            f"the shape ({len(X)}, units), a row a stimulus."
        ) from None
    if len(masked):
        raise InputError(
            f"{name} has {len(masked):,} masked values, the first in row {masked[0][0] + 1}; "
            "expected a number there: fill them in, or leave these stimuli or units out."
        )
    return rows.astype(rows.dtype.newbyteorder("="), copy=False)


def index_order(index: pd.Index, X: StimulusSet | pd.DataFrame, name: str) -> IntArray:
    """The row of neural data for each stimulus (n_stimuli,), by the index that its rows have.

    It is matched with the index of X, or with a column of a `StimulusSet`. One that counts the rows
    from 0, as pandas makes it, names none.

    Raises InputError: names that are not those of X, or occur twice; an index in another order than
    one that counts the rows, so that nobody knows which of the two is meant.
    """
    places = np.arange(len(index))
    theirs = pd.RangeIndex(len(X)) if isinstance(X, StimulusSet) else X.index
    if len(index) != len(theirs) or index.equals(theirs):
        return places
    counts = [labels.equals(pd.RangeIndex(len(labels))) for labels in (index, theirs)]
    names, wanted = ([str(cell_text(labels)) for labels in each] for each in (index, theirs))
    if not any(counts):
        return rows_by_name(names, wanted, name, "index")
    if index.is_unique and index.isin(theirs).all():
        first = int(np.argmax(index.to_numpy() != theirs.to_numpy()))
        raise InputError(
            f"{name} and the stimuli have the same row numbers in another order (row {first + 1} "
            f"is {names[first]} in {name} and {wanted[first]} in the stimuli), and one of them "
            "counts its rows; expected the same index for both, or an array without one "
            "(to_numpy())."
        )
    if not isinstance(X, StimulusSet) or index.dtype.kind in "iu" or counts[0]:
        return places
    matched = order_by_name(names, X, name)
    if matched is None:
        raise InputError(
            f"the rows of {name} are called {some(names, 3)}, which are the values of no column of "
            "the stimuli; give such a column, or an array without names."
        )
    return matched[1]


def naming_column(
    stimuli: StimulusSet, names: Sequence[str], corner: str = ""
) -> tuple[str, list[str | None], int]:
    """The column of the stimuli whose values names are, as far as there is one.

    Parameters
    ----------
    names : of the rows of a file
    corner : what the file calls them; the column of that name, where there is one

    Returns its name and cells, and how many of the names it has.
    """
    known = set(names)
    columns = {str(column): texts(stimuli.table[column]) for column in stimuli.table}
    if stimuli.level == "word":
        columns.setdefault("word", list(map(cell_text, stimuli.words)))
    if corner in columns:
        columns = {corner: columns[corner]}
    n_known = {column: len(known & set(cells)) for column, cells in columns.items()}
    wrong = {column for column, cells in columns.items() if set(cells) - known - {None}}
    # All of its values are names, and most names are among them; else the nearest one.
    best = min(
        columns, key=lambda column: (column in wrong or not n_known[column], -n_known[column])
    )
    return best, columns[best], n_known[best]


def rows_by_name(
    names: Sequence[str | None], cells: Sequence[str | None], what: str, column: str
) -> IntArray:
    """The row of each stimulus (n_stimuli,), of rows with names.

    Parameters
    ----------
    names : of the rows of `what`
    cells : (n_stimuli,) the name of each stimulus, as this column has it

    Raises InputError: a name twice; a stimulus whose name no row has.
    """
    places = {name: row for row, name in enumerate(names)}
    if len(places) < len(names):
        twice = next(name for row, name in enumerate(names) if places[name] != row)
        raise InputError(
            f"{what} has two rows named {short(str(twice))}; expected one for each name."
        )
    for row, cell in enumerate(cells):
        if cell not in places:
            raise InputError(
                f"{what} has no row named {short(str(cell))}, the stimulus in row {row + 1} "
                f"(column {column!r}); it has {some([name for name in names if name], 5)}; "
                "expected a row for each stimulus."
            )
    return np.array([places[cell] for cell in cells], dtype=np.int64)


def order_by_name(
    names: Sequence[str], stimuli: StimulusSet, what: str
) -> tuple[str, IntArray] | None:
    """A column that names each stimulus, and the row of each (n_stimuli,), of rows with names.

    None where no column has these names.

    Raises InputError: a name twice; a column has most of the names, and others.
    """
    matched = repeated_rows(names, stimuli, what, unique=True)
    return None if matched is None else (matched[0], np.concatenate(matched[1]))


def repeated_rows(
    names: Sequence[str], stimuli: StimulusSet, what: str, *, unique: bool = False
) -> tuple[str, list[IntArray]] | None:
    """As `order_by_name`, with all rows of each stimulus; a name may have several, or not."""
    column, cells, n_known = naming_column(stimuli, names)
    different, wanted = set(names), set(cells)
    few = n_known < _MOST * len(different) and not wanted <= different
    if not n_known or len(wanted) < len(cells) or few:
        return None
    rows: dict[str | None, list[int]] = {name: [] for name in names}
    for row, name in enumerate(names):
        rows[name].append(row)
    rows_by_name(names if unique else list(rows), cells, what, column)
    return column, [np.array(rows[cell], dtype=np.int64) for cell in cells]


def not_finite(array: NDArray[Any]) -> tuple[int, int, int]:
    """Number of values of (n_rows, n_units) that are not finite; row and unit of the first."""
    n, first = 0, (0, 0)
    step = max(1, _BLOCK // array.shape[1])
    for start in range(0, len(array), step):
        finite = np.isfinite(array[start : start + step])
        if not finite.all():
            if not n:
                row, unit = divmod(int(finite.argmin()), array.shape[1])
                first = start + row, unit
            n += finite.size - int(np.count_nonzero(finite))
    return n, *first


def check_finite(array: NDArray[Any], what: str) -> None:
    """Raise `InputError` for values that are not finite, with the place of the first.

    Parameters
    ----------
    array : (n_rows, n_units) or (n_repetitions, n_rows, n_units)
    what : how the message calls it
    """
    flat = array.reshape(-1, array.shape[-1])
    n, row, unit = not_finite(flat)
    if n:
        repetition, of_repetition = divmod(row, array.shape[-2])
        where = f"repetition {repetition + 1}, " * (array.ndim > 2)
        everywhere = int((~np.isfinite(flat)).all(axis=0).sum())
        units = f" ({everywhere:,} of {len(flat.T):,} units in every row)" * bool(everywhere)
        raise InputError(
            f"{what} has {flat[row, unit]} in {where}row {of_repetition + 1}, unit {unit + 1}"
            f"{f' and in {n - 1:,} more places' * (n > 1)}{units}; expected finite numbers."
        )


def drop_rounding(square: NDArray[Any]) -> NDArray[Any]:
    """Distances (n, n) with a diagonal of 0, and 0 where rounding alone left less.

    Nobody compares a stimulus with itself: cosines of 32 bits leave ±1e-7 on the diagonal, MATLAB
    and rsatoolbox NaN, halves of the data their noise. A diagonal above the mean, which is that of
    similarities, stays.
    """
    if not (np.diag(square).any() or (square < 0).any()):
        return square
    square = np.array(square)
    diagonal = np.einsum("ii->i", square)  # a view
    diagonal[np.isnan(diagonal)] = 0
    if diagonal.mean() < np.nanmean(square):
        diagonal[:] = 0
    least = TOLERANCE * float(np.nanmax(np.abs(square), initial=0.0))
    square[(square < 0) & (square >= -least)] = 0
    return square


def checked_distances(
    square: NDArray[Any], what: str, names: Sequence[str] = (), *, complete: bool = True
) -> NDArray[Any]:
    """Distances (n, n) `drop_rounding`.

    Parameters
    ----------
    what : how messages call them
    names : (n,) of their rows, for messages; without them they are counted from 1
    complete : whether every pair needs one; else it may be NaN

    Raises InputError: not square, not finite, negative, not symmetric, or similarities.
    """
    square = np.asanyarray(square)
    if square.ndim != 2 or square.shape[0] != square.shape[1]:
        shape = " × ".join(map(str, square.shape))
        raise InputError(
            f"{what} is of shape {shape}; expected a square matrix of distances, as many rows as "
            "columns."
        )
    square = drop_rounding(square)
    half = ""
    if not (np.tril(square, -1).any() and np.triu(square, 1).any()):
        half = ": fill the triangle that is 0 from the other one"
    largest = float(np.nanmax(square, initial=0.0))
    atol = 2 * TOLERANCE * largest if np.isfinite(largest) else 0.0
    step = max(1, _BLOCK // max(1, len(square)))
    for start in range(0, len(square), step):
        block, mirrored = square[start : start + step], square[:, start : start + step].T
        known = (np.isfinite(block) & (block >= 0)) | (np.isnan(block) & (not complete))
        same = np.isclose(block, mirrored, rtol=0, atol=atol, equal_nan=True)
        for fine, says in (
            (known, "; expected a finite distance, none that is negative"),
            (same, f" and is not symmetric; expected one distance for every two stimuli{half}"),
        ):
            if not fine.all():
                row, column = map(int, np.argwhere(~fine)[0])
                called = [short(names[at]) if names else at + 1 for at in (start + row, column)]
                raise InputError(
                    f"{what} has {block[row, column]:g} in row {called[0]}, column "
                    f"{called[1]}{says}."
                )
    if np.diag(square).any():
        raise InputError(
            f"{what} is largest on its diagonal ({np.diag(square).max():g}), as similarities are; "
            "expected distances, such as 1 minus them."
        )
    return square


def are_distances(square: NDArray[Any]) -> bool:
    """Whether (n, n) are `checked_distances`, of every pair or of some."""
    with contextlib.suppress(InputError):
        return len(checked_distances(square, "", complete=False)) > 0
    return False


def symmetric_distances(distances: FloatArray, what: str, names: Sequence[str]) -> FloatArray:
    """Distances (n, n), symmetric to the last digit; parameters as of `checked_distances`.

    Raises InputError: as it does; 0 everywhere, or too large.
    """
    distances = checked_distances(distances, what, names)
    largest = float(distances.max(initial=0.0))
    if not 0 < largest <= 1e300:
        raise InputError(
            f"the largest distance of {what} is {largest:g}; expected one above 0 and up to 1e300."
        )
    # Halves first: the sum of two large numbers may be too large.
    return np.asarray(distances / 2 + distances.T / 2)
