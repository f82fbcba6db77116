"""Content of uploaded files, as the form for a new analysis needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mlem_core.analysis.model_source import EVERY
from mlem_core.analysis.source import StimulusSource
from mlem_core.representations.array_files import CountsRows
from mlem_core.representations.arrays import (
    HowRead,
    check_repeated,
    n_subjects,
    open_arrays,
    seem_distances,
)
from mlem_core.stimuli.columns import missing_marks
from mlem_core.stimuli.formats import cached_table
from mlem_core.stimuli.reading.content import ReadAs
from mlem_core.stimuli.reading.table import Table
from mlem_core.stimuli.roles import guess_roles
from mlem_core.stimuli.stimulus_set import StimulusSet


class FoundTable(NamedTuple):
    """A table, the roles that are guessed, and what in each column is taken for missing."""

    table: Table
    roles: dict[str, str]
    marks: dict[str, list[str]]


class FoundArrays(NamedTuple):
    """The names of a file's layers, what is to be known, and whether they seem to be distances.

    `problem` says why there are none; where it `asks`, it has to be said what a first column is.
    """

    names: dict[int, str]
    notes: tuple[str, ...]
    seem_distances: bool
    problem: str = ""
    asks: bool = False


def read_stimuli(**source: Any) -> StimulusSet:
    """The stimuli of the fields of a `StimulusSource`; raises as its `load_stimuli`."""
    return StimulusSource(**source).load_stimuli()


def read_whole_table(path: str, **read_as: Any) -> FoundTable:
    """The table of a file, read by the fields of `ReadAs`; raises as `read_table`."""
    table = cached_table(Path(path), ReadAs(**read_as))
    missing = table.read_as.missing
    marks = {
        name: sorted(missing_marks(table.frame[name].tolist(), missing)) for name in table.frame
    }
    return FoundTable(table, guess_roles(table), marks)


def read_checked_arrays(
    path: str,
    stimuli: StimulusSet,
    of_distances: bool = False,
    repeated: bool = False,
    first_column: str = "",
    subject: str = "",
) -> FoundArrays:
    """The content of a file of representations, checked; raises as `open_arrays`.

    Parameters
    ----------
    of_distances : its arrays are distances between the stimuli
    repeated : the distance is one over repetitions, which the arrays must have
    first_column : as of `open_arrays`
    subject : the one that is read; "all": the first of them is checked
    """
    file, how = Path(path), HowRead(distances=of_distances, first_column=first_column)
    try:
        if subject == EVERY or (of_distances and not subject):
            needed = subject == EVERY
            n = n_subjects(file, distances=of_distances, first_column=first_column, needed=needed)
            subject = str(min(n, 1))
        how["subject"] = int(subject or 0)
        arrays = open_arrays(file, stimuli, **how)
    except CountsRows as error:
        return FoundArrays({}, (), False, str(error), asks=True)
    if repeated and not of_distances:
        check_repeated(file, arrays, len(stimuli))
    names = arrays.names if arrays.named else {layer: str(layer) for layer in arrays.names}
    left_out = (f"A layer is left out: {why}" for why in arrays.left_out)
    distances = of_distances or seem_distances(arrays)
    return FoundArrays(names, (*left_out, *arrays.notes), distances)


READERS: Mapping[str, Callable[..., Any]] = {
    "table": read_whole_table,
    "stimuli": read_stimuli,
    "arrays": read_checked_arrays,
}
