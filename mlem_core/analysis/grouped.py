"""Which models of an analysis are one recipe (seeds, checkpoints, sizes), and what is said of them.

Groups change nothing that is computed of a model; `mlem_core.groups.members` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.parameters import asked, parse_names
from mlem_core.base.text import short
from mlem_core.models.checkpoints import parse_trajectory, run_of

# (group, its members) and (model or group, "factor:value" of each of its labels).
Groups = tuple[tuple[str, tuple[str, ...]], ...]
Labels = tuple[tuple[str, tuple[str, ...]], ...]


def parse_group(text: str) -> tuple[str, tuple[str, ...]]:
    """("mini", ("mini-s0", "mini-s1")) of "mini=mini-s0,mini-s1"; InputError for another form."""
    name, _, members = (part.strip() for part in text.partition("="))
    if not (name and parse_names(members)):
        raise InputError(f"{short(text)} is not of the form GROUP=MODEL,MODEL")
    return name, parse_names(members)


def parse_labels(text: str) -> tuple[str, tuple[str, ...]]:
    """("mini", ("objective:mlm",)) of "mini=objective:mlm"; InputError for another form."""
    name, _, labels = (part.strip() for part in text.partition("="))
    found = parse_names(labels)
    if not (name and found and all(all(label.partition(":")) for label in found)):
        raise InputError(f"{short(text)} is not of the form MODEL=FACTOR:VALUE,FACTOR:VALUE")
    return name, found


@dataclass(frozen=True)
class Grouped:
    """What an analysis says of its models."""

    groups: tuple[tuple[str, tuple[str, ...]], ...] = asked(
        (),
        "Groups of models",
        "seeds, checkpoints or sizes of one recipe, whose spread is shown; may be given several "
        "times",
        metavar="GROUP=MODEL,MODEL",
        parse=parse_group,
        option="group",
        repeated=True,
        kw_only=True,
    )
    labels: tuple[tuple[str, tuple[str, ...]], ...] = asked(
        (),
        "Labels of models",
        "what a model or group is, for the test of which factor makes models alike, such as "
        "objective:causal; may be given several times",
        metavar="MODEL=FACTOR:VALUE",
        parse=parse_labels,
        option="label",
        repeated=True,
        kw_only=True,
    )
    trajectories: tuple[tuple[str, tuple[str, ...]], ...] = asked(
        (),
        "Trajectories over training",
        "checkpoints of one training, whose revisions end in its step, such as "
        "mini@step500,mini@step1000; members of one step are seeds of it; may be given several "
        "times",
        metavar="NAME=MODEL@STEP,MODEL@STEP",
        parse=parse_trajectory,
        option="trajectory",
        repeated=True,
        kw_only=True,
    )

    @property
    def has_seeds(self) -> bool:
        """Whether a group has two models, so that something can be said of its kind."""
        return any(len(members) > 1 for _, members in self.groups)

    @property
    def recipes(self) -> dict[str, str]:
        """The group of each model in one; of a checkpoint, that of its run, or its trajectory."""
        found = {model: name for name, members in self.groups for model in members}
        for name, members in self.trajectories:
            for model in members:
                found.setdefault(model, found.get(run_of(model), name))
        return found

    @property
    def of_population(self) -> bool:
        """Whether anything is said of models that makes them more than one each."""
        return bool(self.groups or self.labels)


def check_groups(groups: Groups, labels: Labels, models: Sequence[str]) -> None:
    """Check what was said of models.

    Raises
    ------
    InputError
        A member that is no model; a model in two groups; two groups of one name, or a group with
        the name of a model outside it; a label of what is neither model nor group, or a factor
        that is said twice of one model, or not of every model.
    """
    seen: dict[str, str] = {}
    for name, members in groups:
        if not (name and members and name.isprintable()):
            raise InputError(
                f"the group {short(name)} has {len(members)} members; expected a name that can be "
                "printed and at least one model."
            )
        if [other for other, _ in groups].count(name) > 1:
            raise InputError(f"the group {short(name)} is named twice; name each group once.")
        for member in members:
            if member not in models:
                raise unknown(f"member of the group {short(name)}", member, models)
            if member in seen:
                both = f"{seen[member]!r} and {name!r}" if seen[member] != name else f"{name!r}"
                raise InputError(
                    f"the model {member!r} is named twice, in the group {both}; a model is in one "
                    "group at most."
                )
            seen[member] = name
    for name, members in groups:
        if name in models and name not in members:
            raise InputError(
                f"the group {short(name)} has the name of a model that is not in it; choose "
                "another name, or make the model a member."
            )
    labels_of(groups, labels, models)


def labels_of(groups: Groups, labels: Labels, models: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The labels of each factor, a value a model in the order of `models`.

    Raises
    ------
    InputError
        As `check_groups`, of labels.
    """
    members = {name: (name,) for name in models} | dict(groups)
    found: dict[str, dict[str, str]] = {}
    for name, given in labels:
        if name not in members:
            raise unknown("model or group with a label", name, members)
        for label in given:
            factor, _, value = label.partition(":")
            if not (factor and value):
                raise InputError(
                    f"the label {short(label)} of {name!r} is not of the form FACTOR:VALUE."
                )
            for model in members[name]:
                if found.setdefault(factor, {}).setdefault(model, value) != value:
                    raise InputError(
                        f"the {short(factor)} of {model!r} is {found[factor][model]!r} and "
                        f"{value!r}; expected one of them."
                    )
    for factor, values in found.items():
        without = [model for model in models if model not in values]
        if without:
            raise InputError(
                f"the model {without[0]!r} has no {short(factor)}, which others have; expected "
                f"--label {without[0]}={factor}:VALUE, with a value such as "
                f"{', '.join(sorted({*values.values()}))}."
            )
    return {factor: tuple(values[model] for model in models) for factor, values in found.items()}


def of_these(
    groups: Groups, labels: Labels, models: Sequence[str], called: Mapping[str, str]
) -> tuple[Groups, Labels]:
    """Groups and labels of these models alone, each called as `called` says where it does."""
    kept: Groups = tuple(
        (name, tuple(called.get(one, one) for one in members if called.get(one, one) in models))
        for name, members in groups
    )
    kept = tuple((called.get(name, name), members) for name, members in kept if members)
    there = {*models, *dict(kept)}
    named = ((called.get(name, name), given) for name, given in labels)
    return kept, tuple((name, given) for name, given in named if name in there)
