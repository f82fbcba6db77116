"""Source of the stimuli of an analysis: a built-in set or a file, and how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mlem_core.base.errors import InputError
from mlem_core.base.parameters import frozen, option, parse_names, several
from mlem_core.extending import with_extension_options
from mlem_core.representations.registry import identity
from mlem_core.stimuli import datasets
from mlem_core.stimuli.formats import (
    FORMATS,
    find_files,
    find_format,
    folder_suffixes,
    ordered_steps,
    step_files,
)
from mlem_core.stimuli.presentation import BLOCKS, with_blocks
from mlem_core.stimuli.reading.content import parse_decimal, parse_marks, parse_separator
from mlem_core.stimuli.reading.header import MOST_ROWS
from mlem_core.stimuli.roles import ROLES, parse_role
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.stimuli.word_numbers import AUTO, COUNTS_FROM
from mlem_core.storage.digests import Stamp, changed, stamp


def _stimuli_help() -> str:
    others = [
        f", a {entry.name} ({', '.join(entry.suffixes)} file, folder, or pattern)"
        for entry in FORMATS.values()
        if entry.reads_folders
    ]
    return f"A built-in set, a table (CSV, .xlsx, .parquet, .jsonl){''.join(others)}."


@dataclass(frozen=True)
class StimulusChoices:
    """The stimuli of an analysis, all features; the fields are described in place.

    Extensions add fields, which their formats and steps read (`Extension.options`). What is None is
    detected or guessed, and `StimulusSet.notes` of what was read says how.
    """

    stimuli: str = option("probing", "Stimulus set", _stimuli_help, metavar="FILE|NAME")
    _: KW_ONLY
    sep: str | None = option(
        None,
        "Separator",
        "The sign between the cells of a row: comma, semicolon, tab, bar, or the sign itself; by "
        "default it is detected.",
        metavar="SIGN",
        parse=parse_separator,
    )
    encoding: str | None = option(
        None,
        "Encoding",
        "How the file writes letters: utf-8, utf-16, windows-1252 or any other of Python's; by "
        "default it is detected. Where words have odd letters, another one is right.",
        metavar="NAME",
    )
    decimal: str | None = option(
        None,
        "Decimal sign",
        "The sign in numbers, point or comma: 3.5 or 3,5; by default it is detected.",
        metavar="SIGN",
        parse=parse_decimal,
    )
    na: tuple[str, ...] | None = option(
        None,
        "Missing-value marks",
        "Cells of features that are no value, besides empty ones, with commas between them, such "
        "as NA,-99; an empty text stands for none. By default they are NA, NaN and the like, and "
        "- or . where they can be no value.",
        metavar="NA,-",
        parse=parse_marks,
    )
    sheet: str | None = option(
        None,
        "Sheet",
        "The sheet of a workbook, by its name or number; by default the first that is shown and "
        "has a cell. Values are read, never formulas.",
        metavar="NAME",
    )
    header_row: int | None = option(
        None,
        "Header row",
        "The row of the file with the names of the columns, from 1, empty rows counted; 0 where "
        "there is none. By default it is found below titles and lines of comments.",
        metavar="N",
        parse=int,
        range=(0, MOST_ROWS),
    )
    roles: tuple[tuple[str, str], ...] = option(
        (),
        "Roles of columns",
        f"What a column is: {', '.join(ROLES)}. By default it is guessed.",
        metavar="COLUMN=ROLE",
        parse=parse_role,
        option="role",
        repeated=True,
    )
    counts_from: str = option(
        AUTO,
        "Words count from",
        "The number of the first word, in a column of numbers that says which word is the "
        "stimulus. auto is 0, or 1 where a column with the words shows that.",
        choices=lambda: COUNTS_FROM,
    )
    ordered: tuple[str, ...] = option(
        (),
        "Ordered features",
        "Features that differ by how far apart their values are; by default the numeric ones.",
        metavar="a,b",
        parse=parse_names,
    )
    nominal: tuple[str, ...] = option(
        (),
        "Nominal features",
        "Features that are equal or not, though they are numbers.",
        metavar="a,b",
        parse=parse_names,
    )

    blocks: int = option(
        0,
        "Length of blocks",
        "So many neighbours in time, or rows where nothing says when they came, are a block that "
        "stays together in folds and is left out for intervals. By default the blocks of the "
        f"table; where it has runs or an order alone, about {BLOCKS} in all.",
        metavar="N",
        parse=int,
        range=(0, 10**9),
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            # What holds several may be given as a single text.
            object.__setattr__(self, each.name, several(each, getattr(self, each.name)))

    @property
    def stimulus_files(self) -> list[Path]:
        """The files that the stimuli are read from, sorted; none for a built-in set."""
        if self.stimuli in datasets.SETS:
            return []
        return find_files(self.stimuli)

    def load_stimuli(self) -> StimulusSet:
        """The stimuli with the kinds of their features, all features.

        Raises InputError: no such set or file; its content cannot be used; an option that does not
        go with it.
        """
        values = {each.name: frozen(getattr(self, each.name)) for each in _FIELDS}
        source = StimulusSource(**values)
        return _load(source, _state(source))

    @property
    def scoring_models(self) -> tuple[str, ...]:
        """Models that are run for the features, such as those that give surprisal."""
        return tuple(model for step in ordered_steps() for model in step.models(self))


if TYPE_CHECKING:

    class StimulusSource(StimulusChoices):
        def __init__(self, stimuli: str = ..., **choices: Any) -> None: ...

else:
    StimulusSource = with_extension_options("StimulusSource", StimulusChoices, "stimuli")


_FIELDS = fields(StimulusSource)
Source = TypeVar("Source", bound=StimulusChoices)
# What turns files into stimuli.
READING = tuple(each.name for each in _FIELDS if each.name not in ("stimuli", "ordered", "nominal"))


def as_written(source: Source, path: str) -> Source:
    """Source of the stimuli of `path`, which `write_csv` has written there."""
    defaults: dict[str, Any] = {each.name: each.default for each in _FIELDS if each.name in READING}
    return replace(source, **defaults | {"stimuli": path})


# Files of stimuli and of RDMs as they are, and the identities of models that stimuli are made by.
_State = tuple[tuple[tuple[Path, Stamp | None], ...], tuple[str, ...]]


def _state(source: StimulusChoices) -> _State:
    files = [*source.stimulus_files, *step_files(source)]
    return tuple((path, stamp(path)) for path in files), tuple(map(identity, source.scoring_models))


# Several commands look at the stimuli before and in a run, and a treebank takes seconds to read.
@lru_cache(maxsize=4)
def _load(source: StimulusChoices, state: _State) -> StimulusSet:
    stimuli = _read(source, source.stimulus_files)
    for step in ordered_steps():
        stimuli = step.change(stimuli, source)
    if source.blocks:
        stimuli = with_blocks(stimuli, source.blocks)
    now = _state(source)
    if now != state:
        names = [path.name for path, _ in {*now[0]} ^ {*state[0]}]
        raise changed(min(names, default="a model that gives surprisal"))
    return stimuli


def _read(source: StimulusChoices, paths: list[Path]) -> StimulusSet:
    if source.stimuli in datasets.SETS:
        _check_options(source, "a built-in set", ())
        return datasets.load(source.stimuli)
    if not paths:
        suffixes = ", ".join(folder_suffixes())
        raise InputError(
            f"there is no {suffixes} file in {source.stimuli!r}; expected a stimulus file, a "
            f"folder of {suffixes} files, or one of {', '.join(datasets.SETS)}."
        )
    form = find_format(paths)
    _check_options(source, f"a {form.name}", form.options)
    return form.read(paths, source)


def _check_options(source: StimulusChoices, what: str, meaningful: Sequence[str]) -> None:
    """Raise for an option that has no meaning for the kind of source."""
    of_formats = {name for entry in FORMATS.values() for name in entry.options}
    for each in _FIELDS:
        if each.name in of_formats.difference(meaningful):
            if getattr(source, each.name) != each.default:
                option = (each.metadata["parameter"].option or each.name).replace("_", "-")
                raise InputError(
                    f"--{option} has no meaning for {what}, which {source.stimuli!r} is."
                )
