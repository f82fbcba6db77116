"""Options of an analysis with many models: labels, training trajectories, properties.

A row of the models table says to which group a model belongs, and at which step of its training it
stands where the group is a trajectory. A model in no group is a group of its own. A checkpoint is
called `model@revision`; the number that its revision ends in is the training step. Members of a
trajectory at one step are seeds of it.

Groups change nothing that is computed of a model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mlem_core.analysis.model_source import Groups, ModelSource, NamesInChoices, check_members
from mlem_core.base.errors import InputError
from mlem_core.base.parameters import option, parse_names
from mlem_core.base.text import listed, short
from mlem_core.stimuli.columns import guess_kind, parse_number, strip_marks

if TYPE_CHECKING:
    from mlem_core.analysis.spec import AnalysisSpec

# A number of more digits, or one behind a point, is no step; a commit's digest has none.
_STEP = re.compile(r"(?<![.\d])\d{1,15}$", re.ASCII)
_COMMIT = re.compile(r"(?=.*[a-f])[0-9a-f]{7,64}")
# "mini@seed1" is another run, and no step of one.
_SEED = re.compile(r"seed\d+", re.ASCII)
# Kinds that a property of models can have, beside a date.
PROPERTY_KINDS = {
    "number": "number",
    "log": "number, compared by its logarithm",
    "class": "class",
    "ignore": "left out",
}
_CONTROL = re.compile(r"random\d{0,9}", re.ASCII)


class Member(NamedTuple):
    """A row of the models table; `step` is None in a group, a training step in a trajectory."""

    group: str
    member: str
    step: int | None = None


def _labels(text: str) -> tuple[str, ...]:
    labels = parse_names(text)
    return labels if all(all(label.partition(":")) for label in labels) else ()


@dataclass(frozen=True, kw_only=True)
class GroupOptions(ModelSource):
    """Labels, trajectories and properties of models."""

    labels: tuple[tuple[str, tuple[str, ...]], ...] = option(
        (),
        "Labels of models",
        "Properties of a model or group, such as mini=objective:mlm or mini=parameters:4e6, "
        "which may make models alike. See also --systems.",
        metavar="MODEL=FACTOR:VALUE",
        pair=_labels,
        option="label",
        section="groups of models",
    )
    trajectories: tuple[tuple[str, tuple[str, ...]], ...] = option(
        (),
        "Trajectories over training",
        "Checkpoints of one training, whose revisions end in its step, such as "
        "mini=mini@step500,mini@step1000: importances are drawn over the steps. Members of one "
        "step are seeds of it, whose spread is shown.",
        metavar="NAME=MODEL@STEP,MODEL@STEP",
        pair=parse_names,
        option="trajectory",
        section="groups of models",
    )
    property_groups: tuple[tuple[str, tuple[str, ...]], ...] = option(
        (),
        "Groups of properties",
        "Properties of models that have one importance together, such as training=objective,data.",
        metavar="NAME=PROPERTY,PROPERTY",
        pair=parse_names,
        option="property-group",
        section="groups of models",
    )
    property_kinds: tuple[tuple[str, str], ...] = option(
        (),
        "Kinds of properties",
        "How a property of models is compared, where not as guessed, such as width=class: "
        f"{listed(list(PROPERTY_KINDS))}.",
        metavar="PROPERTY=KIND",
        pair=str,
        option="property-kind",
        section="groups of models",
    )
    resampled_whole: str = option(
        "",
        "Property whose models are left out together",
        "Models with the same value of it are in one fold and are drawn as a whole, as a family "
        "is: intervals of the importances of properties are over families then. Empty: each model "
        "for itself.",
        metavar="PROPERTY",
        option="families",
        section="groups of models",
    )

    @property
    def has_groups(self) -> bool:
        """Whether models stand in groups, or have labels."""
        return bool(self.groups or self.labels)

    @property
    def group_of(self) -> dict[str, str]:
        """The group of each model in one; of a checkpoint, that of its run, or its trajectory."""
        groups = super().group_of
        for name, members in self.trajectories:
            for model in members:
                groups.setdefault(model, groups.get(run_name(model), name))
        return groups

    def models_table(self, models: Sequence[str]) -> list[Member]:
        """A row for each of the models in its group, then one for each checkpoint of a trajectory.

        Where there are groups, checkpoints of trajectories that are in none are in no group: each
        would be one of its own.
        """
        grouped = {model for _, members in self.groups for model in members}
        trained = {model for _, members in self.trajectories for model in members}
        left_aside = trained if grouped & {*models} else set[str]()
        rows = list[Member]()
        for name, members in self.groups:
            rows += [Member(name, model) for model in members if model in models]
        rows += [Member(model, model) for model in models if model not in grouped | left_aside]
        for name, members in complete_trajectories(self.trajectories, models):
            rows += [Member(name, model, training_step(model)) for model in members]
        return rows

    def names_in_choices(self) -> NamesInChoices:
        """Each place where models or their properties are named: what, the names, the choices.

        Raises InputError as `labels_by_factor`, when all names of models before were choices.
        """
        yield from super().names_in_choices()
        for name, members in self.trajectories:
            yield f"member of the trajectory {short(name)}", members, self.names
        yield "model or group with a label", dict(self.labels), {*self.names, *dict(self.groups)}
        properties = labels_by_factor(self.groups, self.labels, self.names)
        for group, names in self.property_groups:
            yield f"property of the group {short(group)}", names, properties
        yield "property with a kind", dict(self.property_kinds), properties
        for name, kind in self.property_kinds:
            yield f"kind of the property {short(name)}", (kind,), possible_kinds(properties[name])
        yield "property", (self.resampled_whole,) if self.resampled_whole else (), properties

    def check_models(self) -> None:
        """Raise InputError as `ModelSource.check_models`, and for a trajectory that is none.

        That is one with a member without a step, two of one step of one run, or one step.
        """
        super().check_models()
        check_members("trajectory", self.trajectories)
        for name, members in self.trajectories:
            _check_steps(f"the trajectory {short(name)}", members)

    def choices_among(self, names: Collection[str]) -> dict[str, Any]:
        """As `ModelSource.choices_among`, with labels and trajectories."""
        changes = super().choices_among(names)
        there = {*names, *dict(changes["groups"])}
        labels = tuple((name, values) for name, values in self.labels if name in there)
        trajectories = complete_trajectories(self.trajectories, [*names])
        return changes | {"labels": labels, "trajectories": trajectories}


def group_options(spec: AnalysisSpec) -> GroupOptions:
    """Specification of an analysis, with the options of this extension."""
    return cast("GroupOptions", spec)


def labels_by_factor(
    groups: Groups, labels: Groups, models: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The labels of each factor, a value a model in the order of `models`; empty: unknown.

    Raises InputError: a label of another form; a factor with two values for one model.
    """
    members = {name: (name,) for name in models} | dict(groups)
    factors: dict[str, dict[str, str]] = {}
    for name, texts in labels:
        for label in texts:
            factor, _, value = label.partition(":")
            if not (factor and value):
                raise InputError(
                    f"the label {short(label)} of {name!r} is not of the form FACTOR:VALUE."
                )
            for model in members[name]:
                if factors.setdefault(factor, {}).setdefault(model, value) != value:
                    raise InputError(
                        f"the {short(factor)} of {model!r} is {factors[factor][model]!r} and "
                        f"{value!r}; expected one of them."
                    )
    return {
        factor: tuple(values.get(model, "") for model in models)
        for factor, values in factors.items()
    }


def possible_kinds(cells: Sequence[str | None]) -> list[str]:
    """Kinds of `PROPERTY_KINDS` that a property with these cells can have."""
    values = strip_marks([cell or None for cell in cells])
    ordered = guess_kind(values) == "ordered"
    numbers = [parse_number(cell) or 0.0 for cell in values if ordered and cell is not None]
    able = {"number": ordered, "log": ordered and min(numbers) > 0}
    return [kind for kind in PROPERTY_KINDS if able.get(kind, True)]


def run_name(member: str) -> str:
    """The run that a member is a checkpoint of: its name without the revision."""
    return member.rpartition("@")[0]


def is_control(member: str) -> bool:
    """Whether it has the random weights of `MODEL@random`."""
    return bool(_CONTROL.fullmatch(member.rpartition("@")[2]))


def training_step(member: str) -> int:
    """The training step of a member: 1000 of "mini@step1000".

    Random weights ("mini@random", "mini@random2"), as training would start from, are step 0.

    Raises InputError: its revision does not end in a number.
    """
    run, _, revision = member.rpartition("@")
    number = _STEP.search(revision)
    if run and is_control(member):
        return 0
    no_step = _COMMIT.fullmatch(revision) or _SEED.fullmatch(revision)
    if not run or number is None or no_step:
        raise InputError(
            f"the member {short(member)} of a trajectory has no training step; expected a "
            "revision that ends in the training step, such as "
            f"{short(run or member).strip(chr(39))}@step1000."
        )
    return int(number[0])


def _check_steps(called: str, members: Sequence[str]) -> None:
    seen: dict[tuple[str, int], str] = {}
    for member in members:
        step = training_step(member)
        other = seen.setdefault((member if is_control(member) else run_name(member), step), member)
        if other != member:
            raise InputError(
                f"the models {other!r} and {member!r} of {called} are both step {step:,} of "
                f"{run_name(member)!r}; expected one member a step of each run."
            )
    steps = {step for _, step in seen}
    if len(steps) < 2:
        raise InputError(
            f"{called} has the step {min(steps):,} alone; expected members of two steps or more."
        )


def complete_trajectories(trajectories: Groups, models: Sequence[str]) -> Groups:
    """Trajectories that still have two steps of these models, each with its members among them."""
    remaining = []
    for name, members in trajectories:
        there = tuple(member for member in members if member in models)
        if len(set(map(training_step, there))) > 1:
            remaining.append((name, there))
    return tuple(remaining)
