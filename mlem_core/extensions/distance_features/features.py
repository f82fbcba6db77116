"""Features by their distances: several columns that are one vector, and a matrix (RDM)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.parameters import split_names
from mlem_core.base.text import some
from mlem_core.base.typing import FloatArray
from mlem_core.extensions.distance_features.rdm_files import RdmFile, read_rdm
from mlem_core.stimuli.columns import Kind
from mlem_core.stimuli.formats import STEPS, StimulusStep
from mlem_core.stimuli.neural_rows import naming_column, rows_by_name, symmetric_distances
from mlem_core.stimuli.stimulus_set import Rdm, StimulusSet

# The table of every two values is 200 MB, and what is computed of it a few times that.
MOST_VALUES = 5_000


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
    chosen = _matching(ordered, split_names(columns), name)
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
    return _with_rdm(without, name, values, "vector", Rdm(tuple(names), euclidean(distinct)))


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
        file = RdmFile(symmetric_distances(rows, what, names), tuple(map(str, names)))
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
    return _with_rdm(stimuli, name, np.array(cells, dtype=object), "rdm", rdm)


def euclidean(vectors: FloatArray) -> FloatArray:
    """(n, n) Euclidean distances of vectors (n, n_columns), of any size."""
    from scipy.spatial.distance import cdist

    # Squares of large numbers are too large, those of small ones 0; a power of 2 loses no digit.
    power = int(np.frexp(np.abs(vectors).max(initial=0.0))[1])
    scaled = np.ldexp(vectors, -power)
    apart: FloatArray = np.ldexp(cdist(scaled, scaled), power)
    return np.maximum(apart, apart.T)


def _with_rdm(
    stimuli: StimulusSet, name: str, values: np.ndarray, kind: Kind, rdm: Rdm
) -> StimulusSet:
    if not name or name.startswith("_"):
        raise InputError(
            f"{name!r} cannot be the name of a feature, which begins with no underscore."
        )
    return replace(stimuli.with_feature(name, values, kind), rdms={**stimuli.rdms, name: rdm})


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


def _make_vectors(stimuli: StimulusSet, source: Any) -> StimulusSet:
    for name, columns in source.vectors:
        stimuli = with_vector(stimuli, name, columns)
    return stimuli


def _add_rdms(stimuli: StimulusSet, source: Any) -> StimulusSet:
    for name, path in source.rdms:
        stimuli = with_rdm(stimuli, name, path)
    return stimuli


STEPS.register(StimulusStep("vectors", 40, _make_vectors, fits_csv=False))
STEPS.register(StimulusStep("rdms", 50, _add_rdms, names_files=True, fits_csv=False))
