"""How stimuli come from a source: formats of their files, and steps that change what was read.

A source has the fields of `mlem_core.analysis.source.StimulusSource`, those of extensions too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.parameters import Registry
from mlem_core.base.text import some
from mlem_core.extending import entry_modules
from mlem_core.stimuli import datasets
from mlem_core.stimuli.reading.content import ReadAs
from mlem_core.stimuli.reading.table import Table, read_table
from mlem_core.stimuli.roles import apply_roles
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.digests import Stamp, stamp


@dataclass(frozen=True)
class StimulusFormat:
    """A kind of stimulus files.

    Attributes
    ----------
    suffixes : of its files, in lower case
    read : a function (paths, source) that gives the stimuli
    options : names of fields of a source that have a meaning for it, but not for every source
    reads_folders : whether several files, a folder of them or a pattern are one stimulus set
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Sequence[Path], Any], StimulusSet]
    options: tuple[str, ...]
    reads_folders: bool = False


# Other roles of the same columns are seconds where a file has many rows.
@lru_cache(maxsize=2)
def _table(path: Path, read_as: ReadAs, now: Stamp | None) -> Table:
    return read_table(path, read_as=read_as)


def source_table(path: Path, source: Any) -> Table:
    """Table of a file, read as a source says; the last files stay in memory, unless they change."""
    read_as = ReadAs(
        source.sep,
        source.encoding,
        source.decimal,
        source.na,
        source.sheet,
        header_row=source.header_row,
    )
    return _table(path, read_as, stamp(path))


def _read_table(paths: Sequence[Path], source: Any) -> StimulusSet:
    path = paths[0]
    if len(paths) > 1:
        names = some([path.name for path in paths], 3)
        raise InputError(
            f"found {len(paths)} tables, {names}; expected one: put them together, with a column "
            "such as run that says which one a row is of."
        )
    if not path.exists() and path.suffix.lower() not in TABLE.suffixes:
        raise unknown("stimulus set", source.stimuli, [*datasets.SETS, "the path of a file"])
    table, kinds = source_table(path, source), (source.ordered, source.nominal)
    return apply_roles(table, dict(source.roles), *kinds, source.counts_from)


TABLE = StimulusFormat(
    "table",
    (".csv", ".tsv", ".txt", ".tab", ".xlsx", ".xlsm", ".parquet", ".jsonl"),
    _read_table,
    ("sep", "encoding", "decimal", "na", "sheet", "header_row", "roles", "counts_from"),
)
FORMATS = Registry[StimulusFormat]("stimulus format", entry_modules)
FORMATS.register(TABLE)


def folder_suffixes() -> list[str]:
    """Suffixes of files that are one stimulus set where they are in one folder."""
    formats = [entry for entry in FORMATS.values() if entry.reads_folders]
    return [suffix for entry in formats for suffix in entry.suffixes]


def find_files(place: str) -> list[Path]:
    """Stimulus files that a path, a folder or a pattern (`ud/*-dev.conllu`) names, sorted."""
    path = Path(place)
    if path.is_dir():
        return sorted(file for suffix in folder_suffixes() for file in path.glob(f"*{suffix}"))
    if any(char in path.name for char in "*?[") and not path.exists():
        return sorted(path.parent.glob(path.name))
    return [path]


def find_format(paths: Sequence[Path]) -> StimulusFormat:
    """Format that all files have by their suffixes; a table where none fits."""
    suffixes = {path.suffix.lower() for path in paths}
    return next((entry for entry in FORMATS.values() if suffixes <= {*entry.suffixes}), TABLE)


@dataclass(frozen=True)
class StimulusStep:
    """A change of stimuli after they are read.

    Attributes
    ----------
    name : of the option that asks for it
    place : steps follow each other by it
    change : a function (stimuli, source) that gives the changed stimuli
    names_files : whether the option has pairs of a name and a file
    models : gives the models that are run for it, of a source
    fits_csv : whether a stimulus CSV can hold what it gives
    """

    name: str
    place: int
    change: Callable[[StimulusSet, Any], StimulusSet]
    names_files: bool = False
    models: Callable[[Any], tuple[str, ...]] = lambda source: ()
    fits_csv: bool = True


STEPS = Registry[StimulusStep]("stimulus step", entry_modules)
STEPS.register(
    StimulusStep(
        "kinds", 20, lambda stimuli, source: stimuli.with_kinds(source.ordered, source.nominal)
    )
)


def ordered_steps() -> list[StimulusStep]:
    """Steps in the order in which they change stimuli."""
    return sorted(STEPS.values(), key=lambda step: step.place)


def step_files(source: Any) -> list[Path]:
    """Files that the steps of a source read."""
    named = [getattr(source, step.name) for step in ordered_steps() if step.names_files]
    return [Path(path) for files in named for _, path in files]
