"""Source of the representations of an analysis: its models and files, and how they are read."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from mlem_core.base.errors import InputError
from mlem_core.base.parameters import option, parse_names
from mlem_core.base.text import short
from mlem_core.representations.array_files import ARRAY_FORMATS, FIRST_COLUMN, formats_help
from mlem_core.representations.extraction import ExtractionOptions
from mlem_core.representations.loading import DEVICES, DTYPES
from mlem_core.representations.registry import packaged
from mlem_core.representations.tokens import POOLINGS, SPECIAL_TOKENS

# A name and its members: (group, models).
Groups = tuple[tuple[str, tuple[str, ...]], ...]
# What `subjects` says of a file: each is a system, or the first axis is over models.
EVERY, NO_SUBJECTS = "all", "none"
# Where names of models stand: what names them, the names, and those that there are.
NamesInChoices = Iterator[tuple[str, Iterable[str], Collection[str]]]


def _first_column(text: str) -> str | None:
    return text if text in FIRST_COLUMN else None


def _subject(text: str) -> str | None:
    is_number = text.isdecimal() and 0 < int(text) < 10**6
    return text if text in (EVERY, NO_SUBJECTS) or is_number else None


def _axis(text: str) -> str | None:
    word, colon, unit = text.partition(":")
    return text if word.strip() and bool(unit.strip()) == bool(colon) else None


def _parse_layers(text: str) -> tuple[int, ...] | None:
    names = parse_names(text)
    if names == ("all",):
        return None
    try:
        layers = tuple(sorted({int(name) for name in names}))
    except ValueError:
        layers = ()
    if not layers:
        raise InputError(f"{short(text)} is not a list of layer numbers such as 0,3,6, nor all.")
    return layers


def _models_help() -> str:
    return f"{', '.join(sorted(packaged()))}, a hub id or a local folder."


def reading_options() -> list[str]:
    """Names of the fields of an analysis that say how a representations file is read."""
    return sorted({"rows", *(entry.option for entry in ARRAY_FORMATS.values())} - {""})


@dataclass(frozen=True)
class ModelSource:
    """The models and representations files of an analysis; the fields are described in place."""

    models: tuple[str, ...] = option(
        (), "Models", _models_help, option="model", metavar="NAME", repeated=True, section="models"
    )
    representations: tuple[tuple[str, str], ...] = option(
        (),
        "Representations",
        formats_help,
        metavar="NAME=FILE",
        pair=os.path.expanduser,
        section="models",
    )
    _: KW_ONLY
    precomputed: tuple[str, ...] = option(
        (),
        "Precomputed distances",
        "Representations whose arrays are distances, by their name; beside them models can be.",
        metavar="a,b",
        parse=parse_names,
        section="files",
    )
    layers: tuple[int, ...] | None = option(
        None,
        "Layers",
        "Numbers with commas between them; all, the default, takes every layer. Layer 0 is the "
        "embeddings, layer k what leaves block k.",
        metavar="all|0,3,6",
        parse=_parse_layers,
        range=(0, 2**31 - 1),
        section="models",
    )
    first_column: tuple[tuple[str, str], ...] = option(
        (),
        "First column",
        "What the first column of a representations CSV is where it may be row numbers: skip (it "
        "is left out), unit, or names (of the stimuli, as a column of theirs has them).",
        metavar=f"NAME={'|'.join(FIRST_COLUMN)}",
        pair=_first_column,
        last=True,
        section="files",
    )
    rows: tuple[tuple[str, str], ...] = option(
        (),
        "Rows",
        "A table (CSV, TSV, ...) with a row for each row of the arrays of a file, one of whose "
        "columns has the values of a column of the stimuli. Rows of one stimulus are repetitions; "
        "a column subject says whose they are.",
        metavar="NAME=FILE",
        pair=os.path.expanduser,
        section="files",
    )
    subjects: tuple[tuple[str, str], ...] = option(
        (),
        "Subjects",
        "Which subject of a file is read whose arrays are (subjects, stimuli, units): all makes "
        "each a system, NAME@subject1 and so on, in the group NAME. Distances of several subjects "
        "are known as such; none says that they are of models, each a layer. Without it a first "
        "axis is over repetitions.",
        metavar=f"NAME={EVERY}|{NO_SUBJECTS}|NUMBER",
        pair=_subject,
        option="subject",
        last=True,
        section="files",
    )
    axes: tuple[tuple[str, str], ...] = option(
        (),
        "Axis",
        "What the layers of a file are, such as region, or time:ms. With a unit they are ordered "
        "by the numbers in their names, such as 120 ms.",
        metavar="NAME=WORD|WORD:UNIT",
        pair=_axis,
        option="axis",
        last=True,
        section="files",
    )
    groups: tuple[tuple[str, tuple[str, ...]], ...] = option(
        (),
        "Groups of models",
        "Seeds, checkpoints or sizes of one recipe, such as mini=mini-s0,mini-s1: their spread is "
        "shown, and how much of what models of a group share is shared between groups. Groups "
        "change nothing that is computed of a model.",
        metavar="GROUP=MODEL,MODEL",
        pair=parse_names,
        option="group",
        section="groups of models",
    )
    device: str = option(
        "auto",
        "Device",
        "Where models are run; auto takes a GPU if there is one.",
        choices=lambda: DEVICES,
        section="models",
    )
    dtype: str = option(
        "float32",
        "Numbers of the models",
        "What a model computes with. bfloat16 halves its memory and keeps 8 bits of each number.",
        choices=lambda: DTYPES,
        section="models",
    )
    special_tokens: str = option(
        "model",
        "Start and end tokens",
        "What stands before and after a sentence. The first position of many decoders is an "
        "outlier: with a start token no word is there.",
        noun="choice of special tokens",
        choices=lambda: SPECIAL_TOKENS,
        section="models",
    )
    pooling: str = option(
        "standard",
        "Pooling",
        "Which token, or mean over tokens, represents a word or a sentence.",
        choices=lambda: POOLINGS,
        section="models",
    )

    @property
    def subject_names(self) -> frozenset[str]:
        """Systems that are subjects of a file."""
        every = (EVERY, NO_SUBJECTS)
        return frozenset(name for name, subject in self.subjects if subject not in every)

    @property
    def extraction(self) -> ExtractionOptions:
        """Options for taking hidden states from the models."""
        return ExtractionOptions(
            self.special_tokens, self.pooling, self.dtype, self.device, self.layers
        )

    @property
    def axis_names(self) -> Mapping[str, str]:
        """Word for the layers of a file, by its name: "region", "time (ms)"."""
        parts = {name: said.partition(":") for name, said in self.axes}
        return {
            name: f"{word.strip()} ({unit.strip()})" if unit else word.strip()
            for name, (word, _, unit) in parts.items()
        }

    @property
    def has_seeds(self) -> bool:
        """Whether a group has two models, so that something can be said of others of it."""
        return any(len(members) > 1 for _, members in self.groups)

    @property
    def group_of(self) -> dict[str, str]:
        """The group of each model in one."""
        return {model: name for name, members in self.groups for model in members}

    @property
    def names(self) -> list[str]:
        """Names of all models and files."""
        return [*self.models, *(name for name, _ in self.representations)]

    def file_options(self, name: str) -> dict[str, Any]:
        """Options by which a representations file is read, those of its format among them."""
        return {option: dict(getattr(self, option)).get(name, "") for option in reading_options()}

    def names_in_choices(self) -> NamesInChoices:
        """Each place where models or files are named: what, the names, the choices."""
        files, first = dict(self.representations), dict(self.first_column)
        yield "representations file with precomputed distances", self.precomputed, files
        yield "representations file with a first column", first, files
        yield "representations file with a table of rows", dict(self.rows), files
        yield "representations file with subjects", dict(self.subjects), files
        yield "representations file with an axis", dict(self.axes), files
        yield "choice for a first column", first.values(), FIRST_COLUMN
        for name, members in self.groups:
            yield f"member of the group {short(name)}", members, self.names

    def check_models(self) -> None:
        """Raise InputError for names that cannot be distinguished, and groups that cannot be.

        These are a group without a member, or with a name that cannot be printed or is another's; a
        member that is there twice, or in two groups; a group with the name of a model outside it.
        """
        for name in self.names:
            if self.names.count(name) > 1:
                raise InputError(f"the model {name!r} is named twice; each name must be its own.")
            if not name.isprintable():
                raise InputError(
                    f"the name of a model {name!r} holds a character that cannot be printed; "
                    "choose another one."
                )
        check_members("group", self.groups)
        seen: dict[str, str] = {}
        for name, members in self.groups:
            if name in self.names and name not in members:
                raise InputError(
                    f"the group {short(name)} has the name of a model that is not in it; choose "
                    "another name, or make the model a member."
                )
            for member in members:
                if (other := seen.setdefault(member, name)) != name:
                    raise InputError(
                        f"the model {member!r} is in the groups {other!r} and {name!r}; a model is "
                        "in one group at most."
                    )

    def choices_among(self, names: Collection[str]) -> dict[str, Any]:
        """Values of the fields that name models, where these models and files alone are there."""
        groups = (
            (group, tuple(member for member in members if member in names))
            for group, members in self.groups
        )
        return {"groups": tuple((group, members) for group, members in groups if members)}


def check_members(kind: str, named: Groups) -> None:
    """Raise InputError for a "group" or "trajectory" of no models, or named twice."""
    names = [name for name, _ in named]
    for name, members in named:
        called = f"the {kind} {short(name)}"
        if not (name and members and name.isprintable()):
            raise InputError(
                f"{called} has {len(members)} members; expected a name that can be printed and at "
                "least one model."
            )
        twice = [member for member in members if members.count(member) > 1]
        if names.count(name) > 1 or twice:
            what = f"the model {twice[0]!r} of {called}" if twice else called
            raise InputError(f"{what} is named twice; name each once.")
