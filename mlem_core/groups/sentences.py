"""Sentences on the groups of models of an analysis, and on its trajectories over training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mlem_core.analysis.grouped import is_control, run_of, step_of
from mlem_core.base.text import listed, many, number
from mlem_core.groups.mrqap import sentence
from mlem_core.groups.summary import GroupSummary
from mlem_core.pairs.similarities import Similarity


def lines(summary: GroupSummary) -> list[str]:
    """Sentences on groups and on trajectories, where the analysis has them."""
    of_groups = group_lines(summary) if summary.analysis.spec.has_groups else []
    return of_groups + training_lines(summary)


def sizes(summary: GroupSummary) -> str:
    """How many models each group has, in a sentence."""
    each = zip(summary.members.groups, summary.members.sizes, strict=True)
    return f"Models per group: {listed([f'{name} {n}' for name, n in each])}."


def group_lines(summary: GroupSummary) -> list[str]:
    """Sentences on groups, on other models only as far as there are several of one."""
    tests, notes = summary.tests
    whole = summary.universality.set_index("term").loc[summary.by.name]
    shared = _shared(whole, summary.by, summary.over)
    aside = {model for model, _ in summary.chosen.layers} - {*summary.members.members}
    if aside:
        are = "checkpoints of trajectories are"
        are = are if len(aside) > 1 else "checkpoint of a trajectory is"
        notes = [f"{len(aside)} {are} in no group, and left aside here.", *notes]
    return [f"{sizes(summary)} {shared}", *map(sentence, tests), *notes]


def _shared(row: pd.Series, by: Similarity, over: str) -> str:
    """What models of groups share, from the row of the similarity of the table of universality."""
    have = f"have {'an RSA' if by.of_ranks else f'a similarity ({by.short})'} of"
    between = f"models of different groups {have} {_with_interval(row, 'between')}"
    if np.isnan(row["between"]) and np.isnan(row["within"]):
        return "With one model there is nothing to compare."
    if np.isnan(row["within"]):
        return (
            f"One model of each group: {between}, which says nothing of other models of these "
            "groups."
        )
    within = f"Models of one group {have} {_with_interval(row, 'within')}"
    if np.isnan(row["within_lower"]):
        claim = "with so few models it says nothing of others"
    else:
        claim = f"95 % intervals are over {over}; they speak of others of these groups"
    return f"{within}, {between} ({claim})."


def _with_interval(row: pd.Series, name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_lower", "_upper"))
    if np.isnan(value):
        return "no pair"
    if np.isnan(low):
        return number(value)
    return f"{number(value)} ({number(low)} to {number(high)})"


def training_lines(summary: GroupSummary) -> list[str]:
    """What varies in each trajectory, in sentences."""
    found, over = summary.checkpoints, summary.over_seeds
    return [
        training_line(name, [found.members[at] for at in found.members_of(group)], over)
        for group, name in enumerate(found.groups)
    ]


def training_line(name: str, members: Sequence[str], over: str) -> str:
    """What varies in a trajectory of these members, and what its intervals are over."""
    steps = sorted({step_of(one) for one in members})
    trained = [one for one in members if not is_control(one)]
    runs = list(dict.fromkeys(map(run_of, trained)))
    at = {step: [one for one in trained if step_of(one) == step] for step in steps}
    of_runs = {frozenset(map(run_of, own)) for own in at.values() if own}
    sizes = [sum(step_of(one) == step for one in members) for step in steps]
    what = f"Trajectory {name}: {len(steps)} steps ({steps[0]:,} to {steps[-1]:,})"
    seeds = many(sizes[0], "seed") if len({*sizes}) == 1 else f"{min(sizes)} to {max(sizes)} seeds"
    where = "" if len({*sizes}) == 1 else ", where there are two"
    intervals = f"95 % CI over {over}{where}" if max(sizes) > 1 else "no intervals"
    if len(of_runs) > 1:
        said = f", {seeds} a step, which differ, so a change may be due to the seeds; {intervals}"
    elif max(sizes) == 1:
        said = f", one run ({', '.join(runs)}), so results do not extend to other runs"
    else:
        said = f", {seeds} a step ({listed(runs)}); {intervals}"
    said += "; step 0 has random weights" * any(map(is_control, members))
    return f"{what}{said}."
