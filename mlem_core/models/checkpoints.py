"""Which models of an analysis are checkpoints of one training, and at which step each stands.

A member is `model@revision`; the number that its revision ends in is the training step. Members of
one step are seeds of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.parameters import parse_names
from mlem_core.base.text import short

# (trajectory, its members).
Trajectories = tuple[tuple[str, tuple[str, ...]], ...]
# A number of more digits, or one behind a point, is no step; a commit's digest has none.
_STEP = re.compile(r"(?<![.\d])\d{1,15}$", re.ASCII)
_COMMIT = re.compile(r"(?=.*[a-f])[0-9a-f]{7,64}")
# "mini@seed1" is another run, and no step of one.
_SEED = re.compile(r"seed\d+", re.ASCII)
_CONTROL = re.compile(r"random\d{0,9}", re.ASCII)
_EXPECTED = "a revision that ends in the training step, such as"


def parse_trajectory(text: str) -> tuple[str, tuple[str, ...]]:
    """("mini", ("mini@step1", "mini@step2")) of "mini=mini@step1,mini@step2".

    Raises
    ------
    InputError
        Another form.
    """
    name, _, members = (part.strip() for part in text.partition("="))
    if not (name and parse_names(members)):
        raise InputError(f"{short(text)} is not of the form NAME=MODEL@STEP,MODEL@STEP")
    return name, parse_names(members)


def run_of(member: str) -> str:
    """The run that a member is a checkpoint of: its name without the revision."""
    return member.rpartition("@")[0]


def is_control(member: str) -> bool:
    """Whether it has the random weights of `MODEL@random`."""
    return bool(_CONTROL.fullmatch(member.rpartition("@")[2]))


def step_of(member: str) -> int:
    """The training step of a member: 1000 of "mini@step1000".

    Random weights ("mini@random", "mini@random2"), as training would start from, are step 0.

    Raises
    ------
    InputError
        Its revision does not end in a number.
    """
    run, _, revision = member.rpartition("@")
    found = _STEP.search(revision)
    if run and is_control(member):
        return 0
    no_step = _COMMIT.fullmatch(revision) or _SEED.fullmatch(revision)
    if not run or found is None or no_step:
        raise InputError(
            f"the member {short(member)} of a trajectory has no training step; expected "
            f"{_EXPECTED} {short(run or member).strip(chr(39))}@step1000."
        )
    return int(found[0])


def check_trajectories(trajectories: Trajectories, models: Sequence[str]) -> None:
    """Check what was said of trajectories.

    Raises
    ------
    InputError
        A member that is no model, that is there twice, or that has no step; two members of one
        step of one run; a trajectory of one step; two of one name, or one that cannot be printed.
    """
    for name, members in trajectories:
        if not (name and name.isprintable()):
            raise InputError(
                f"the trajectory {short(name)} needs a name that can be printed; choose another."
            )
        if [other for other, _ in trajectories].count(name) > 1:
            raise InputError(f"the trajectory {short(name)} is named twice; name each one once.")
        _check_members(name, members, models)


def _check_members(name: str, members: Sequence[str], models: Sequence[str]) -> None:
    seen: dict[tuple[str, int], str] = {}
    for member in members:
        if member not in models:
            raise unknown(f"member of the trajectory {short(name)}", member, models)
        if members.count(member) > 1:
            raise InputError(
                f"the model {member!r} is named twice in the trajectory {short(name)}; name each "
                "member once."
            )
        step = step_of(member)
        other = seen.setdefault((member if is_control(member) else run_of(member), step), member)
        if other != member:
            raise InputError(
                f"the models {other!r} and {member!r} of the trajectory {short(name)} are both "
                f"step {step:,} of {run_of(member)!r}; expected one member a step of each run."
            )
    steps = {step_of(member) for member in members}
    if len(steps) < 2:
        found = f"the step {min(steps):,} alone" if steps else "no member"
        raise InputError(
            f"the trajectory {short(name)} has {found}; expected members of two steps or more."
        )


def trajectories_of(
    trajectories: Trajectories, models: Sequence[str], called: Mapping[str, str] | None = None
) -> Trajectories:
    """Those that still have two steps of these models, each with its members among them.

    Parameters
    ----------
    called : which members are called otherwise now; without those whose step that hides
    """
    named = called or {}
    kept = []
    for name, own in trajectories:
        there = [(one, named.get(one, one)) for one in own if named.get(one, one) in models]
        steps = {step_of(one) for one, _ in there}
        if len(steps) > 1 and all(_same_step(*both) for both in there):
            kept.append((name, tuple(one for _, one in there)))
    return tuple(kept)


def _same_step(member: str, called: str) -> bool:
    try:
        return step_of(called) == step_of(member)
    except InputError:
        return False
