"""Content of uploaded files, as the form for a new analysis needs it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mlem_core.analysis.model_source import EVERY, NO_SUBJECTS
from mlem_core.analysis.serial_dependence import serial_dependence
from mlem_core.analysis.source import StimulusSource
from mlem_core.base.errors import InputError
from mlem_core.representations.array_files import CountsRows, HoldsDistances
from mlem_core.representations.arrays import from_file, n_subjects
from mlem_core.stimuli.columns import missing_marks
from mlem_core.stimuli.formats import source_table
from mlem_core.stimuli.neural_rows import are_distances
from mlem_core.stimuli.reading.content import content, declared_separator, decode, first_rows
from mlem_core.stimuli.reading.table import Table
from mlem_core.stimuli.roles import guess_roles
from mlem_core.stimuli.stimulus_set import StimulusSet

FIRST_ROWS = 12  # of a file that cannot be read


class FoundTable(NamedTuple):
    """A table, the roles that are guessed, and what in each column is taken for missing."""

    table: Table
    roles: dict[str, str]
    marks: dict[str, list[str]]


class FoundArrays(NamedTuple):
    """The names of a file's layers, what is to be known, and whether they seem to be distances.

    `problem` says why there are none; where it `asks`, it has to be said what a first column is.
    `dependence` says that neighbours are alike, and `blocks` how many stimuli make a block then.
    """

    names: dict[int, str]
    notes: tuple[str, ...]
    seem_distances: bool
    problem: str = ""
    asks: bool = False
    dependence: str = ""
    blocks: int = 0


def read_whole_table(source: StimulusSource) -> FoundTable:
    """The table of a source that is a table, before its roles; raises as `read_table`."""
    table = source_table(Path(source.stimuli), source)
    missing = table.read_as.missing
    marks = {
        name: sorted(missing_marks(table.frame[name].tolist(), missing)) for name in table.frame
    }
    return FoundTable(table, guess_roles(table), marks)


def read_first_rows(source: StimulusSource) -> tuple[tuple[str, ...], ...]:
    """The first rows of a text that cannot be read as a table; none where they cannot be told."""
    with contextlib.suppress(InputError):
        data, name = content(source.stimuli)
        separator, text = declared_separator(decode(data, name, source.encoding)[0])
        return tuple(map(tuple, first_rows(text, source.sep or separator)[:FIRST_ROWS]))
    return ()


def read_checked_arrays(
    path: str,
    stimuli: StimulusSet,
    options: Mapping[str, Any],
    of_distances: bool = False,
    repeated: bool = False,
    subject: str = "",
) -> FoundArrays:
    """The content of a file of representations, checked; raises as `from_file`.

    Parameters
    ----------
    options : as of `from_file`
    of_distances : its arrays are distances between the stimuli
    repeated : the distance is one over repetitions, which the arrays must have
    subject : the one that is read; "all": the first of them is checked
    """
    try:
        if subject == EVERY or (of_distances and not subject):
            n = n_subjects(Path(path), distances=of_distances, needed=subject == EVERY, **options)
            subject = str(min(n, 1))
        source = from_file(
            path,
            stimuli,
            distances=of_distances,
            subject=0 if subject == NO_SUBJECTS else int(subject or 0),
            split=subject == NO_SUBJECTS,
            repetitions=repeated and not of_distances,
            **options,
        )
    except HoldsDistances as error:
        return FoundArrays({}, (), True, str(error))
    except CountsRows as error:
        return FoundArrays({}, (), False, str(error), asks=True)
    names = source.facts.get("layer_names", {})
    names = {layer: names.get(str(layer), str(layer)) for layer in source.layers}
    left_out = (f"A layer is left out: {why}" for why in source.left_out)
    distances = of_distances or (
        "repetitions" not in source.facts and all(are_distances(source[k]) for k in source.layers)
    )
    dependence = serial_dependence(replace(source, distances=distances), stimuli)
    return FoundArrays(
        names,
        (*left_out, *source.notes),
        distances,
        dependence=dependence.sentence,
        blocks=dependence.block_length,
    )
