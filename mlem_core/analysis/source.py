"""Which stimuli an analysis is of: a built-in set or a file, and how it becomes stimuli."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.parameters import asked, frozen, parse_names, several
from mlem_core.base.text import short
from mlem_core.data import datasets
from mlem_core.data.added import ADDED, LANGUAGE, add_bins, add_feature, with_values
from mlem_core.data.distance_features import with_rdm, with_vector
from mlem_core.data.reading.read_as import ReadAs, parse_decimal, parse_marks, parse_separator
from mlem_core.data.reading.table import DETECTED, Table, read_table
from mlem_core.data.roles import ROLES, apply_roles, parse_role
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.treebank import LEVELS, SUFFIX, Sampling, read_treebank, treebank_paths
from mlem_core.models.registry import identity
from mlem_core.storage.digests import Stamp, changed, stamp

# Of a word in a causal model, which `add` names behind a colon.
SURPRISAL = "surprisal"
_TABLES = (".csv", ".tsv", ".txt", ".tab", ".xlsx", ".xlsm")


def _parse_bins(text: str) -> tuple[str, int]:
    name, equals, number = text.rpartition("=")
    if not (equals and name and number.isdecimal()):
        raise InputError(f"found the bins {short(text)}; expected COLUMN=NUMBER, such as freq=4.")
    return name, int(number)


def _parse_vector(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, columns = text.partition("=")
    if not (equals and name and parse_names(columns)):
        raise InputError(
            f"found the vector {short(text)}; expected NAME=COLUMN,COLUMN, such as "
            "semantics=s1,s2,s3, or a * for all columns that begin so: semantics=s*."
        )
    return name, parse_names(columns)


def _parse_rdm(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (equals and name and path):
        raise InputError(
            f"found the RDM {short(text)}; expected NAME=FILE, such as semantics=semantics.npy."
        )
    return name, path


def _add_help() -> str:
    each = "; ".join(f"{name}: {added.help}" for name, added in ADDED.items())
    return f"features to add: {each}; surprisal:MODEL: of the word, in bits, in a causal model"


@dataclass(frozen=True)
class _Read:
    """Which stimuli, and how their file is read; the fields are described in place."""

    stimuli: str = asked(
        "probing",
        "Stimulus set",
        "a built-in set, a table (CSV, .xlsx), or a treebank (.conllu file, folder, or pattern)",
        metavar="FILE|NAME",
    )
    sep: str | None = asked(
        None,
        "Separator",
        "of the cells: comma, semicolon, tab, bar, or the sign itself; default: detected",
        metavar="SIGN",
        parse=parse_separator,
        kw_only=True,
    )
    encoding: str | None = asked(
        None,
        "Encoding",
        "of the file: utf-8, utf-16, windows-1252 or any other of Python's; default: detected",
        metavar="NAME",
        kw_only=True,
    )
    decimal: str | None = asked(
        None,
        "Decimal sign",
        "of numbers: point or comma; default: detected",
        metavar="SIGN",
        parse=parse_decimal,
        kw_only=True,
    )
    na: tuple[str, ...] | None = asked(
        None,
        "Missing-value marks",
        "cells of features that are no value, besides empty ones; '' for none; default: NA, NaN "
        "and the like, and - or . where they can be no value",
        metavar="NA,-",
        parse=parse_marks,
        kw_only=True,
    )
    sheet: str | None = asked(
        None,
        "Sheet",
        "of a workbook, by its name or number; default: the first that is shown and has a cell",
        metavar="NAME",
        kw_only=True,
    )
    roles: tuple[tuple[str, str], ...] = asked(
        (),
        "Roles of columns",
        f"what a column is: {', '.join(ROLES)}; may be given several times; default: guessed",
        metavar="COLUMN=ROLE",
        parse=parse_role,
        option="role",
        repeated=True,
        kw_only=True,
    )
    level: str = asked(
        "word",
        "Level",
        "whether the stimuli of a treebank are its words (default) or its sentences",
        noun="level of stimuli",
        choices=lambda: LEVELS,
        kw_only=True,
    )
    sample: int | None = asked(
        None,
        "Sample",
        "so many words (sentences) of a treebank, in whole sentences; default: 2,000 of more",
        metavar="N",
        parse=int,
        kw_only=True,
    )
    balance: tuple[str, ...] = asked(
        (),
        "Balance",
        "features whose values the sample has equally often, as far as whole sentences allow",
        metavar="a,b",
        parse=parse_names,
        kw_only=True,
    )
    sample_seed: int = asked(
        0, "Seed of the sample", "default: 0", metavar="N", parse=int, kw_only=True
    )


@dataclass(frozen=True)
class StimulusSource(_Read):
    """The stimuli of an analysis, all features; the fields are described in place.

    What is None is detected or guessed, and `StimulusSet.notes` of what was read says how.
    """

    add: tuple[str, ...] = asked(
        (), "Added features", _add_help, metavar="a,b", parse=parse_names, kw_only=True
    )
    language: str = asked(
        LANGUAGE,
        "Language",
        f"of frequencies, by its code; default: {LANGUAGE}",
        metavar="CODE",
        kw_only=True,
    )
    bins: tuple[tuple[str, int], ...] = asked(
        (),
        "Bins",
        "an ordered feature to be cut into so many bins of equal size; may be given several times",
        metavar="COLUMN=4",
        parse=_parse_bins,
        repeated=True,
        kw_only=True,
    )
    vectors: tuple[tuple[str, tuple[str, ...]], ...] = asked(
        (),
        "Vectors",
        "ordered features that are one vector, whose distance is Euclidean: their names, or a * "
        "for all that begin so (s*); may be given several times",
        metavar="NAME=a,b,c",
        parse=_parse_vector,
        option="vector",
        repeated=True,
        kw_only=True,
    )
    rdms: tuple[tuple[str, str], ...] = asked(
        (),
        "Features given as RDMs",
        "a feature of which a .npy or .csv file has the distances: a square matrix in the order of "
        "the stimuli, condensed, or with names in its first row and column; may be given several "
        "times",
        metavar="NAME=FILE",
        parse=_parse_rdm,
        option="rdm",
        repeated=True,
        kw_only=True,
    )
    ordered: tuple[str, ...] = asked(
        (),
        "Ordered features",
        "features that differ by how far apart their values are; default: the numeric ones",
        metavar="a,b",
        parse=parse_names,
        kw_only=True,
    )
    nominal: tuple[str, ...] = asked(
        (),
        "Nominal features",
        "features that are equal or not, though they are numbers",
        metavar="a,b",
        parse=parse_names,
        kw_only=True,
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
        return treebank_paths(self.stimuli)

    def load_stimuli(self) -> StimulusSet:
        """The stimuli with the kinds of their features, all features.

        Raises
        ------
        InputError
            No such set or file; its content cannot be used; an option that does not go with it.
        """
        values = {each.name: frozen(getattr(self, each.name)) for each in _FIELDS}
        source = StimulusSource(**values)
        return _load(source, _read_from(source))

    @property
    def scoring_models(self) -> tuple[str, ...]:
        """The models that give surprisal."""
        named = (name.partition(":") for name in self.add)
        return tuple(model for what, _, model in named if what == SURPRISAL and model)


_FIELDS = fields(StimulusSource)
Source = TypeVar("Source", bound=StimulusSource)
# What turns files into stimuli.
READING = tuple(each.name for each in _FIELDS if each.name not in ("stimuli", "ordered", "nominal"))


def as_written(source: Source, path: str) -> Source:
    """The same with the stimuli of `path`, which `write_csv` has written there."""
    defaults: dict[str, Any] = {each.name: each.default for each in _FIELDS if each.name in READING}
    return replace(source, **{**defaults, "stimuli": path})


class _ReadFrom(NamedTuple):
    """What stimuli are read from, as it is now: files of stimuli, of RDMs, models' identities."""

    files: tuple[tuple[Path, Stamp | None], ...]
    rdms: tuple[tuple[Path, Stamp | None], ...]
    models: tuple[str, ...]


def _read_from(source: StimulusSource) -> _ReadFrom:
    return _ReadFrom(
        tuple((path, stamp(path)) for path in source.stimulus_files),
        tuple((Path(path), stamp(Path(path))) for _, path in source.rdms),
        tuple(map(identity, source.scoring_models)),
    )


# Several commands look at the stimuli before and in a run, and a treebank takes seconds to read.
@lru_cache(maxsize=4)
def _load(source: StimulusSource, given: _ReadFrom) -> StimulusSet:
    stimuli = _loaded(source, [path for path, _ in given.files])
    now = _read_from(source)
    if now != given:
        files = {*now.files, *now.rdms} ^ {*given.files, *given.rdms}
        raise changed(min((path.name for path, _ in files), default="a model that gives surprisal"))
    return stimuli


def _loaded(source: StimulusSource, paths: list[Path]) -> StimulusSet:
    treebank = bool(paths) and all(path.suffix.lower() == SUFFIX for path in paths)
    _check_options(source, treebank, table=bool(paths) and not treebank)
    if not paths and source.stimuli not in datasets.SETS:
        raise InputError(
            f"there is no {SUFFIX} file in {source.stimuli!r}; expected a stimulus file, a folder "
            f"of {SUFFIX} files, or one of {', '.join(datasets.SETS)}."
        )
    if not paths:
        stimuli = datasets.load(source.stimuli)
    elif treebank:
        sampling = Sampling(source.sample, source.balance, source.sample_seed)
        stimuli = read_treebank(paths, source.level, sampling, source.encoding)
    else:
        stimuli = _read_table(source, paths[0])
    for name in source.add:
        stimuli = _added(stimuli, name, source.language)
    for name, number in source.bins:
        stimuli = add_bins(stimuli, name, number)
    stimuli = stimuli.with_kinds(source.ordered, source.nominal)
    for name, columns in source.vectors:
        stimuli = with_vector(stimuli, name, columns)
    for name, path in source.rdms:
        stimuli = with_rdm(stimuli, name, path)
    return stimuli


def table_of(path: Path, read_as: ReadAs = DETECTED) -> Table:
    """As `mlem_core.data.reading.table.read_table`; the last files stay in memory, unless they
    change."""
    return _table(path, read_as, stamp(path))


# Other roles of the same columns are seconds where a file has many rows.
@lru_cache(maxsize=2)
def _table(path: Path, read_as: ReadAs, now: Stamp | None) -> Table:
    return read_table(path, read_as=read_as)


def _read_table(source: StimulusSource, path: Path) -> StimulusSet:
    if not path.exists() and path.suffix.lower() not in _TABLES:
        raise unknown("stimulus set", source.stimuli, [*datasets.SETS, "the path of a file"])
    read_as = ReadAs(source.sep, source.encoding, source.decimal, source.na, source.sheet)
    table = table_of(path, read_as)
    # Their cells as the file has them: 01 and 1 are two names.
    kinds = {
        **dict.fromkeys(source.nominal, "nominal"),
        **dict.fromkeys(source.ordered, "ordered"),
    }
    stimuli = apply_roles(table, dict(source.roles))
    features = {feature.name for feature in stimuli.features}
    kinds = {name: kind for name, kind in kinds.items() if name in features}
    return apply_roles(table, {**dict(source.roles), **kinds}) if kinds else stimuli


def added_column(name: str) -> str:
    """What the column of an added feature is called: `surprisal_gpt2` of "surprisal:gpt2"."""
    what, colon, model = name.partition(":")
    if what != SURPRISAL or not colon:
        return name
    return f"{SURPRISAL}_{re.sub(r'[^0-9A-Za-z]+', '_', Path(model).name)}"


def _added(stimuli: StimulusSet, name: str, language: str) -> StimulusSet:
    what, colon, model = name.partition(":")
    if what != SURPRISAL or not colon:
        return add_feature(stimuli, name, language)
    from mlem_core.models.surprisal import surprisal

    return with_values(stimuli, added_column(name), surprisal(stimuli, model))


def _check_options(source: StimulusSource, treebank: bool, table: bool) -> None:
    """Raise for an option that has no meaning for the kind of source."""
    defaults = {each.name: each.default for each in _FIELDS}
    of_tables = ("sep", "decimal", "na", "sheet", "roles")
    of_treebanks = ("level", "sample", "balance", "sample_seed")
    wrong = (*(of_tables if not table else ()), *(of_treebanks if not treebank else ()))
    if not (table or treebank):
        wrong = (*wrong, "encoding")
    what = "a table" if table else "a treebank" if treebank else "a built-in set"
    for name in wrong:
        if getattr(source, name) != defaults[name]:
            option = "role" if name == "roles" else name.replace("_", "-")
            raise InputError(f"--{option} has no meaning for {what}, which {source.stimuli!r} is.")
