"""Features by their distances: several columns that are one vector, and a matrix (RDM) of a file.

An RDM is an .npy, or numbers as text, with or without names of its rows and columns.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from mlem_core.base.errors import InputError, readable, unknown
from mlem_core.base.parameters import names_in
from mlem_core.base.text import many, short, some
from mlem_core.base.typing import FloatArray
from mlem_core.stimuli.columns import GIVEN, NUMBER, Kind, rows_of_numbers, texts
from mlem_core.stimuli.neural_rows import checked_distances, naming_column, rows_by_name
from mlem_core.stimuli.reading.content import content, decode
from mlem_core.stimuli.stimulus_csv import read_written
from mlem_core.stimuli.stimulus_set import Rdm, StimulusSet

# The table of every two values is 200 MB, and what is computed of it a few times that.
MOST_VALUES = 5_000
SUFFIXES = (".npy", ".csv", ".tsv", ".txt")
# Of 800 MB, where all are read.
MOST_ROWS = 10_000
_FORM = "a square matrix, or the distances of every two stimuli once (condensed)"


def with_vector(stimuli: StimulusSet, name: str, columns: str | Sequence[str]) -> StimulusSet:
    """The stimuli with several ordered features as one, whose distance is Euclidean.

    The columns are carried along with an underscore in front. The vector of a stimulus is missing
    where one of its numbers is. Numbers are taken as they are: scale the columns before, where
    they are not in one unit.

    Parameters
    ----------
    name : of the feature
    columns : names of ordered features; one that ends in * is all that begin so

    Raises InputError: no such ordered feature; all vectors are equal, or of too many values
    (`MOST_VALUES`); another column has the name.

    Examples
    --------
    >>> stimuli = from_frame(analysis.stimuli.table.assign(weight=range(120)), "mine")
    >>> with_vector(stimuli, "body", ["size", "weight"]).features[-1]
    Feature(name='body', kind='vector')
    """
    ordered = [feature.name for feature in stimuli.features if feature.kind == "ordered"]
    chosen = _matching(ordered, names_in(columns), name)
    numbers = np.stack([stimuli.values(column) for column in chosen], axis=1)
    there = ~np.isnan(numbers).any(axis=1)
    distinct, row = np.unique(numbers[there], axis=0, return_inverse=True)
    _check_size(name, len(distinct))
    values = np.full(len(stimuli), None, dtype=object)
    names = [f"vector {number}" for number in range(1, len(distinct) + 1)]
    values[there] = np.array(names, dtype=object)[row.reshape(-1)]
    renamed = {column: f"_{column}" for column in chosen}
    taken = set(map(str, stimuli.table)) & set(renamed.values())
    if taken:
        raise InputError(
            f"{stimuli.name} has a column {min(taken)!r} already; rename it to make the vector "
            f"{name!r}."
        )
    others = tuple(feature for feature in stimuli.features if feature.name not in renamed)
    without = replace(stimuli, table=stimuli.table.rename(columns=renamed), features=others)
    return _added(without, name, values, "vector", Rdm(tuple(names), euclidean(distinct)))


def with_rdm(
    stimuli: StimulusSet, name: str, distances: FloatArray | str | Path, names: Sequence[str] = ()
) -> StimulusSet:
    """The stimuli with a feature that is given by its distances.

    Parameters
    ----------
    name : of the feature
    distances : (n, n), or a file of `read_rdm`
    names : (n,) of its rows, which are values of a column of the stimuli (a word, an item, an
        identifier; the first of those columns with most of the names); without them the rows
        are the stimuli, in their order. A stimulus whose cell is empty has no value

    Raises InputError: as `read_rdm`; no row for a stimulus; another number of rows than stimuli;
    too many values (`MOST_VALUES`); another column has the name.

    Examples
    --------
    >>> apart = np.abs(np.subtract.outer(range(120), range(120)))
    >>> with_rdm(analysis.stimuli, "order", apart).features[-1].kind
    'rdm'
    """
    if isinstance(distances, str | Path):
        what, file = f"the RDM {Path(distances).name}", read_rdm(distances)
    else:
        what, rows = f"the RDM of {name!r}", np.asarray(distances, dtype=np.float64)
        if names and len(names) != len(rows):
            raise InputError(f"{what} has {len(rows)} rows and {len(names)} names; expected one.")
        file = RdmFile(_symmetric(rows, what, names), tuple(map(str, names)))
    column = ""
    if file.names:
        column, cells, _ = naming_column(stimuli, file.names, file.corner)
        rows_by_name([*file.names, None], cells, what, column)
    elif len(file.distances) != len(stimuli):
        raise InputError(
            f"{what} has {len(file.distances):,} rows, but there are {len(stimuli):,} stimuli; "
            "expected a row for each of them, in their order, or names in the first row and column."
        )
    else:
        cells = [f"row {row + 1}" for row in range(len(stimuli))]
        file = file._replace(names=tuple(map(str, cells)))
    there = set(cells)
    kept = tuple(value for value in file.names if value in there)
    _check_size(name, len(kept))
    rdm = Rdm(kept, Rdm(file.names, file.distances).among(kept))
    if not rdm.distances.any():
        raise InputError(f"{what} has the distance 0 between all stimuli; no two differ in it.")
    if column:
        note = f"The rows of {what} are the values of the column {column!r}."
        stimuli = replace(stimuli, notes=(*stimuli.notes, note))
    return _added(stimuli, name, np.array(cells, dtype=object), "rdm", rdm)


def euclidean(vectors: FloatArray) -> FloatArray:
    """(n, n) Euclidean distances of vectors (n, n_columns), of any size."""
    from scipy.spatial.distance import cdist

    # Squares of large numbers are too large, those of small ones 0; a power of 2 loses no digit.
    power = int(np.frexp(np.abs(vectors).max(initial=0.0))[1])
    scaled = np.ldexp(vectors, -power)
    apart: FloatArray = np.ldexp(cdist(scaled, scaled), power)
    return np.maximum(apart, apart.T)


def save_rdms(stimuli: StimulusSet, target: str | Path | IO[bytes]) -> None:
    """Write the distances of all features that are given by them: .npz, no pickle."""
    from scipy.spatial.distance import squareform

    arrays = {}
    for number, (name, rdm) in enumerate(sorted(stimuli.rdms.items())):
        arrays[f"name_{number}"] = np.array(name)
        arrays[f"values_{number}"] = np.array(rdm.values)
        arrays[f"distances_{number}"] = squareform(rdm.distances, checks=False)
    np.savez_compressed(target, **arrays)  # type: ignore[arg-type, unused-ignore]


def read_kept(
    path: Path, kinds: Mapping[str, str], name: str, rdms: Path | None = None
) -> StimulusSet:
    """Stimuli that `write_csv` and `save_rdms` have written.

    Parameters
    ----------
    path, rdms : the two files; the second where there is one
    kinds : of the features; others are what their values suggest
    name : how the set is called

    Raises as `read_written`; a file of distances that is none, or not of these stimuli.
    """
    by_distances = {feature: kind for feature, kind in kinds.items() if kind in GIVEN}
    ordered = [feature for feature, kind in kinds.items() if kind == "ordered"]
    nominal = [feature for feature in kinds if feature not in ordered]
    stimuli = read_written(path, name=name, ordered=ordered, nominal=nominal)
    if not by_distances:
        return stimuli
    kept = _read_rdms(rdms)
    for feature in by_distances:
        cells = set(texts(stimuli.table[feature])) - {None}
        if feature not in kept or not cells <= set(kept[feature].values):
            raise InputError(
                f"there are no distances for the feature {feature!r}; expected them in "
                f"{rdms.name if rdms else 'rdms.npz'} beside {path.name}."
            )
    features = tuple(
        replace(feature, kind=by_distances.get(feature.name, feature.kind))
        for feature in stimuli.features
    )
    return replace(stimuli, features=features, rdms={name: kept[name] for name in by_distances})


def _read_rdms(path: Path | None) -> dict[str, Rdm]:
    from scipy.spatial.distance import squareform

    rdms: dict[str, Rdm] = {}
    if path is None or not path.exists():
        return rdms
    with (
        readable(path.name, "file of distances", Exception),
        np.load(path, allow_pickle=False) as arrays,
    ):
        for number in range(len(arrays.files) // 3):
            values = tuple(map(str, arrays[f"values_{number}"].tolist()))
            square = squareform(arrays[f"distances_{number}"])
            if len(square) != len(values):
                raise ValueError("distances of other values")
            square = _symmetric(square, path.name, values)
            rdms[str(arrays[f"name_{number}"])] = Rdm(values, square)
    return rdms


def _added(
    stimuli: StimulusSet, name: str, values: np.ndarray, kind: Kind, rdm: Rdm
) -> StimulusSet:
    if not name or name.startswith("_"):
        raise InputError(
            f"{name!r} cannot be the name of a feature, which begins with no underscore."
        )
    added = stimuli.with_feature(name, values, kind)
    return replace(added, rdms={**stimuli.rdms, name: rdm})


def _check_size(name: str, n_values: int) -> None:
    if n_values > MOST_VALUES:
        raise InputError(
            f"the feature {name!r} has {n_values:,} different values, whose distances are a table "
            f"of {n_values:,} rows; expected at most {MOST_VALUES:,}, so choose fewer stimuli."
        )


def _matching(ordered: Sequence[str], asked: Iterable[str], name: str) -> list[str]:
    """The features of these names, in their order; raise where one is none."""
    chosen: list[str] = []
    for text in asked:
        matches = [known for known in ordered if text.endswith("*") and known.startswith(text[:-1])]
        if text in ordered:
            matches = [text]
        if not matches:
            raise unknown(f"ordered feature of the vector {name!r}", text, ordered)
        chosen += [column for column in matches if column not in chosen]
    if not chosen:
        raise InputError(f"the vector {name!r} is of no column; choose of {some(list(ordered))}.")
    return chosen


class RdmFile(NamedTuple):
    """The content of such a file.

    distances : (n, n), checked
    names : (n,) of its rows and columns, or () where it has none: the order of the stimuli
    corner : the cell above the names of the rows, which may name a column of the stimuli
    """

    distances: FloatArray
    names: tuple[str, ...] = ()
    corner: str = ""


def _symmetric(distances: FloatArray, what: str, names: Sequence[str]) -> FloatArray:
    """The distances (n, n), symmetric to the last digit; parameters as of `checked_distances`.

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
        rdm = _of_text(decode(data, file.name)[0], what)
    square = _square(rdm.distances, what)
    return rdm._replace(distances=_symmetric(square, what, rdm.names))


def _array(data: bytes, what: str) -> FloatArray:
    file = io.BytesIO(data)
    array = None
    with contextlib.suppress(
        ValueError, EOFError, OSError, SyntaxError, MemoryError, OverflowError
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


def _of_text(text: str, what: str) -> RdmFile:
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
