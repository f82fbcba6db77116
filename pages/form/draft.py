"""The stimuli as the form has them now: table, roles and features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from mlem_core.analysis.source import StimulusSource
from mlem_core.base.errors import InputError
from mlem_core.stimuli.candidates import added_column
from mlem_core.stimuli.formats import FORMATS
from mlem_core.stimuli.reading.table import Table
from mlem_core.stimuli.roles import parse_role
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.tasks.reading import read_first_rows, read_whole_table
from pages.form import state
from pages.parts import choices, stored

FEATURES = ("ordered", "nominal")


@dataclass
class Draft:
    """State of the chosen stimuli.

    Attributes
    ----------
    name, kind : in the URL; "set", "treebank" or "table", "" where the upload is gone
    table : of a file that can be read as one
    base, stimuli : before features are added; without what only a run computes, None where `error`
    roles : column -> role, as guessed and changed; of `guessed` what was guessed
    marks : column of a table -> its cells that are taken for missing where it is a feature
    source : what gives `stimuli`
    later : columns of added features that are computed in the run
    features : the names of an analysis of some of them; None is all
    error, at : what is wrong, and at which step
    """

    name: str
    kind: str = ""
    table: Table | None = None
    base: StimulusSet | None = None
    stimuli: StimulusSet | None = None
    guessed: dict[str, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    marks: dict[str, list[str]] = field(default_factory=dict)
    source: StimulusSource | None = None
    later: list[str] = field(default_factory=list)
    features: tuple[str, ...] | None = None
    error: str = ""
    at: str = ""

    @property
    def label(self) -> str:
        """The name without the digest of an upload."""
        return self.name.rpartition("/")[2]

    @property
    def first_rows(self) -> tuple[tuple[str, ...], ...]:
        """First rows of the file of a table, for a choice of the header."""
        if self.table is not None:
            return self.table.read_as.first_rows
        return stored.read(read_first_rows, self.source) if self.kind == "table" else ()

    @property
    def cells(self) -> pd.DataFrame | None:
        """The table as the file has it, or of stimuli that are no table; None before it is read."""
        if self.table is not None:
            return self.table.frame
        return None if self.base is None else self.base.table

    @property
    def changed_roles(self) -> dict[str, str]:
        """The roles that are not those that were guessed."""
        return {name: role for name, role in self.roles.items() if role != self.guessed[name]}


def draft() -> Draft:
    """The stimuli that the state names."""
    draft = Draft(state.stimuli())
    try:
        draft.at = "read"
        draft.kind = state.kind(draft.name)
        _read(draft)
        draft.at = "roles"
        _with_roles(draft)
        draft.at = ""
    except InputError as error:
        draft.error, draft.stimuli = str(error), None
    return draft


def _read(draft: Draft) -> None:
    """Read the file; of a table the cells, of all else the stimuli."""
    if draft.kind == "set":
        draft.source = StimulusSource(draft.name)
    else:
        # The roles of columns are given in the next step.
        options = [option for option in FORMATS[draft.kind].options if option != "roles"]
        path = str(stored.upload_path(draft.name))
        values = {option: state.field_value(option) for option in options}
        draft.source = StimulusSource(path, **values)
    if draft.kind == "table":
        draft.table, draft.guessed, draft.marks = stored.read(read_whole_table, draft.source)
    else:
        draft.base = state.load_source_stimuli(draft.source)
        draft.guessed = {feature.name: feature.kind for feature in draft.base.features}
    draft.roles = draft.guessed | {
        name: role for name, role in state.pairs("roles").items() if name in draft.guessed
    }


def _with_roles(draft: Draft) -> None:
    """Give the columns their roles and add features."""
    assert draft.source is not None
    roles, changed = draft.roles, draft.changed_roles
    values: dict[str, Any]
    if draft.kind == "table":
        draft.source = replace(draft.source, roles=tuple(changed.items()))
        draft.base = state.load_source_stimuli(draft.source)
    else:
        values = {kind: tuple(k for k in changed if changed[k] == kind) for kind in FEATURES}
        draft.source = replace(draft.source, **values)
    for name in state.step_fields():
        values = {name: state.field_value(name)}
        if name == "merge_rare":  # only categorical values are merged
            values[name] = tuple(pair for pair in values[name] if roles.get(pair[0]) == "nominal")
        draft.source = replace(draft.source, **values)
    draft.source = replace(draft.source, blocks=state.field_value("blocks"))
    source, added = draft.source, getattr(draft.source, "add", ())
    # What models give is computed in the run.
    if by_models := [name for name in added if ":" in name]:
        values = {"add": tuple(name for name in added if name not in by_models)}
        source = replace(source, **values)
    draft.later = list(map(added_column, by_models))
    stimuli: StimulusSet = state.load_source_stimuli(source)
    ignored = {k for k, role in roles.items() if role == "ignore"}
    names = [f.name for f in stimuli.features if draft.kind == "table" or f.name not in ignored]
    if len(names) < len(stimuli.features):
        draft.features = (*names, *draft.later)
    if not names:
        raise InputError("no column is a feature; choose at least one.")
    draft.stimuli = state.load_source_stimuli(source, tuple(names))


def change_roles(draft: Draft, roles: dict[str, str]) -> None:
    """Give columns other roles."""
    changed = replace(draft, roles=draft.roles | roles).changed_roles
    choices.put("roles", state.option_texts(changed))


def settle(draft: Draft, option: str, values: tuple[str, ...]) -> None:
    """Make a choice that changes what was found, as on the command line; pairs replace others."""
    if option == "role":
        change_roles(draft, dict(map(parse_role, values)))
    else:
        choices.put(option, values)


def column_vectors(draft: Draft, column: str) -> list[str]:
    """The vectors that a column is a part of."""
    return [
        name
        for name, columns in getattr(draft.source, "vectors", ())
        for part in columns
        if column == part or (part.endswith("*") and column.startswith(part[:-1]))
    ]
