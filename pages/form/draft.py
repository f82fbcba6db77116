"""The stimuli as the form has them now: table, roles, features; or why they cannot be used."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mlem_core.base.errors import InputError
from pages.form import state
from pages.parts import choices, reading, stored

if TYPE_CHECKING:
    from mlem_core.analysis.source import StimulusSource
    from mlem_core.data.reading.table import Table
    from mlem_core.data.stimuli import StimulusSet

FEATURES = ("ordered", "nominal")


@dataclass
class Draft:
    """What is known of the chosen stimuli.

    Attributes
    ----------
    name : in the URL
    kind : "set", "treebank" or "table"; "" where the upload is gone
    table : of a table that can be read
    base : the stimuli before features are added, where they can be read
    stimuli : the stimuli of the analysis without what only a run computes; None where `error`
    roles : column -> role, as guessed and changed; of `guessed` what was guessed
    marks : column of a table -> its cells that are taken for missing where it is a feature
    bins : column -> number, of columns that are ordered features
    source : what gives `stimuli`
    later : added features that are computed in the run: what is added -> the column's name
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
    bins: dict[str, int] = field(default_factory=dict)
    source: StimulusSource | None = None
    later: dict[str, str] = field(default_factory=dict)
    features: tuple[str, ...] | None = None
    error: str = ""
    at: str = ""

    @property
    def label(self) -> str:
        """The name without the digest of an upload."""
        return self.name.rpartition("/")[2]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of `AnalysisSpec` that say of which stimuli it is, and of which features."""
        from dataclasses import asdict

        assert self.source is not None
        add = (*self.source.add, *self.later)
        return {**asdict(self.source), "add": add, "features": self.features}


def draft() -> Draft:
    """The stimuli that the state names."""
    found = Draft(state.stimuli())
    try:
        found.at = "read"
        found.kind = state.kind(found.name)
        _read(found)
        found.at = "roles"
        _with_roles(found)
        found.at = ""
    except InputError as error:
        found.error, found.stimuli = str(error), None
    return found


def _read(found: Draft) -> None:
    """Read the file; of a table the cells, of all else the stimuli."""
    from dataclasses import asdict

    from mlem_core.analysis.source import StimulusSource
    from mlem_core.data.reading.content import ReadAs

    fields = state.read_as()
    if found.kind == "table":
        names = {"sep": "separator", "na": "missing"}
        asked = {names.get(k, k): value for k, value in fields.items() if k != "stimuli"}
        path = str(stored.upload_path(found.name))
        read = reading.read("table", path=path, **asdict(ReadAs(**asked)))
        found.table, found.guessed, found.marks = read
    else:
        found.base = state.load(StimulusSource(**fields))
        found.guessed = {feature.name: feature.kind for feature in found.base.features}
    changed = state.pairs("roles")
    found.roles = {name: changed.get(name, role) for name, role in found.guessed.items()}
    found.source = StimulusSource(**fields)


def _with_roles(found: Draft) -> None:
    """Give the columns their roles and add features."""
    from mlem_core.analysis.source import SURPRISAL, added_column

    assert found.source is not None
    bins = {name: int(number) for name, number in state.pairs("bins").items() if number.isdecimal()}
    found.bins = {k: n for k, n in bins.items() if found.roles.get(k) == "ordered"}
    changed = {name: role for name, role in found.roles.items() if role != found.guessed[name]}
    add = choices.get("add") or []
    found.later = {one: added_column(one) for one in add if one.startswith(f"{SURPRISAL}:")}
    source = found.source
    if found.kind == "table":
        source = replace(source, roles=tuple(changed.items()))
        found.base = state.load(source)
    source = replace(
        source,
        add=tuple(one for one in add if one not in found.later),
        language=choices.get_one("language", source.language),
        bins=tuple(found.bins.items()),
    )
    found.source = source
    if found.kind != "table":
        kinds = {k: role for k, role in changed.items() if role in FEATURES}
        ordered, nominal = (tuple(k for k in kinds if kinds[k] == kind) for kind in FEATURES)
        source = found.source = replace(source, ordered=ordered, nominal=nominal)
    source = found.source = replace(source, vectors=state.vectors(), rdms=state.rdms())
    stimuli: StimulusSet = state.load(source)
    ignored = {feature_name(found, k) for k, role in found.roles.items() if role == "ignore"}
    names = [f.name for f in stimuli.features if found.kind == "table" or f.name not in ignored]
    if len(names) < len(stimuli.features):
        found.features = (*names, *found.later.values())
    if not names:
        raise InputError("no column is a feature; choose at least one.")
    found.stimuli = state.load(source, tuple(names))


def feature_name(found: Draft, column: str) -> str:
    """What the feature of a column is called: that of a binned one has another name."""
    return f"{column}_bin" if column in found.bins else column


def change_role(found: Draft, column: str, role: str) -> None:
    """Give a column a role."""
    roles = {**found.roles, column: role}
    changed = {name: its for name, its in roles.items() if its != found.guessed[name]}
    state.put_pairs("roles", changed)
