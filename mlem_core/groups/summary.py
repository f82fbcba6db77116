"""Summary of an analysis for its models as members of groups and of trajectories over training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from mlem_core.analysis.grouped import Member, is_control, run_of, step_of
from mlem_core.base.text import listed, many, with_ends
from mlem_core.base.typing import FloatArray
from mlem_core.groups.members import (
    Members,
    group_means,
    model_similarity,
    table_of_distances,
    within_and_between,
)
from mlem_core.groups.profiles import (
    IMPORTANCE,
    estimate,
    mean_profiles,
)
from mlem_core.groups.systems import SystemsSummary, by_model
from mlem_core.inference.intervals import Left
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import Similarity


@dataclass(frozen=True)
class GroupSummary(SystemsSummary):
    """Summary of the groups of models of an analysis; each part is computed at its first use."""

    @cached_property
    def models_table(self) -> list[Member]:
        """The rows of the models table that have layers in the selection."""
        models = dict.fromkeys(model for model, _ in self.chosen.layers)
        return self.analysis.spec.models_table(list(models))

    @cached_property
    def members(self) -> Members:
        """The models in their groups."""
        rows = [row for row in self.models_table if row.step is None]
        return Members.of(rows, self.chosen.layers)

    @cached_property
    def checkpoints(self) -> Members:
        """The checkpoints of the trajectories that have two steps in the selection."""
        rows = [row for row in self.models_table if row.step is not None]
        return Members.of(rows, self.chosen.layers)

    @property
    def over(self) -> str:
        """Resampling units of the intervals of groups, such as "models, and sentences"."""
        more = self._similarities[2] is not None
        return "models" + f", and {Units.of(self.analysis.stimuli).over}" * more

    @property
    def over_seeds(self) -> str:
        """Resampling units of the intervals of trajectories, such as "seeds, and sentences"."""
        more = self.scores[2] is not None
        return "seeds" + f", and {Units.of(self.analysis.stimuli).over}" * more

    @cached_property
    def profiles(self) -> pd.DataFrame:
        """Mean profiles of groups: group, members, layer, depth, feature, importance, lower, upper.

        As of `mean_profiles`, the layers of the shallowest member.
        """
        table = mean_profiles(self.members, self.chosen.layers, *self.scores)
        table = table[(table["quantity"] == IMPORTANCE) & table["layer"].notna()]
        table = table.drop(columns=["step", "quantity", "sd"]).reset_index(drop=True)
        return table.rename(columns={"value": "importance"}).astype({"layer": np.int64})

    @cached_property
    def trajectories(self) -> pd.DataFrame:
        """`mean_profiles` of each trajectory; group is trajectory there, and members are seeds."""
        table = mean_profiles(self.checkpoints, self.chosen.layers, *self.scores)
        return table.rename(columns={"group": "trajectory", "members": "seeds"})

    @cached_property
    def _similarities(self) -> tuple[tuple[str, ...], FloatArray, Left | None]:
        """Terms of the similarity of models and it itself, also without each block of stimuli."""
        of_layers, left, chance = self.of_layers, self.left, self.chance
        names: tuple[str, ...] = (of_layers.similarity.name,)
        squares, without = of_layers.values[None], None
        if of_layers.similarity.divides:
            divided, without = decompose(of_layers.pairs.moments), self.terms_left
            if chance is not None:
                divided = chance.of_all(divided)
            if chance is not None and without is not None:
                beyond = chance.apart(without[:, :-1])
                without = np.concatenate((beyond, without[:, -1:]), axis=1)
            names, squares = (*divided.names, *names), np.concatenate((divided.values, squares))
        elif left is not None and left.without.shape[1] == 1:
            without = left.without
        left = None if left is None or without is None else Left(without, left.sizes)
        return names, model_similarity(squares, self.members), by_model(left, self.members)

    @cached_property
    def similarity(self) -> pd.DataFrame:
        """Similarity of every two groups: group_a, group_b, pairs (of models), rsa, lower, upper.

        A group beside itself is the similarity of its members. Another similarity has its name in
        the place of rsa.
        """
        _, matrix, left = self._similarities
        last = None if left is None else Left(left.without[:, -1:], left.sizes)
        means = estimate(group_means, matrix[-1:], self.members.group_of, last)
        sizes, names = self.members.sizes, np.array(self.members.groups, dtype=object)
        first, second = np.triu_indices(len(names))
        same = sizes[first] * (sizes[first] - 1) // 2
        pairs = np.where(first == second, same, sizes[first] * sizes[second])
        columns = {"group_a": names[first], "group_b": names[second], "pairs": pairs}
        ends = zip((self.by.name, "lower", "upper"), means[:3], strict=True)
        return pd.DataFrame(columns | {name: values[0, first, second] for name, values in ends})

    @cached_property
    def universality(self) -> pd.DataFrame:
        """Universality of terms: within, between, universality, each with its _lower and _upper.

        Terms are the features, "unexplained" and the similarity. Universality is there only where
        within is surely above 0: the ratio to what may be 0 has no bounds.
        """
        terms, matrix, stimuli = self._similarities
        found = estimate(within_and_between, matrix, self.members.group_of, stimuli)
        table = pd.DataFrame({"term": list(terms)})
        for at, name in enumerate(("within", "between", "universality")):
            for end, values in zip(("", "_lower", "_upper"), found[:3], strict=True):
                table[name + end] = values[:, at]
        table.loc[~(table["within_lower"] > 0), [*table.columns[-3:]]] = np.nan
        return table


def group_tables(summary: GroupSummary) -> dict[str, pd.DataFrame]:
    """The tables of groups, trajectories and systems, by their file names."""
    found: dict[str, pd.DataFrame] = {}
    if summary.analysis.spec.has_groups:
        found = {
            "groups.csv": summary.profiles,
            "group_similarity.csv": summary.similarity,
            "universality.csv": summary.universality,
        }
    if summary.system_distances[0]:
        found["system_distances.csv"] = table_of_distances(*summary.system_distances)
    second = summary.second_level
    if second is not None and len(second.scores):
        found["system_scores.csv"] = second.scores
        found["system_importance.csv"] = second.importances
    if summary.analysis.spec.trajectories:
        found["trajectories.csv"] = summary.trajectories
    return found


def lines(summary: GroupSummary) -> list[str]:
    """Sentences on groups, trajectories and systems, where the analysis has them."""
    of_groups = group_lines(summary) if summary.analysis.spec.has_groups else []
    second = summary.second_level
    return of_groups + training_lines(summary) + (second.lines() if second is not None else [])


def sizes(summary: GroupSummary) -> str:
    """Number of models of each group, in a sentence."""
    each = zip(summary.members.groups, summary.members.sizes, strict=True)
    return f"Models per group: {listed([f'{name} {n}' for name, n in each])}."


def group_lines(summary: GroupSummary) -> list[str]:
    """Sentences on groups, on other models only as far as there are several of one."""
    whole = summary.universality.set_index("term").loc[summary.by.name]
    shared = _shared(whole, summary.by, summary.over)
    aside = {model for model, _ in summary.chosen.layers} - {*summary.members.members}
    notes = []
    if aside:
        are = "checkpoints of trajectories are"
        are = are if len(aside) > 1 else "checkpoint of a trajectory is"
        notes = [f"{len(aside)} {are} in no group, and left aside here."]
    return [f"{sizes(summary)} {shared}", *notes]


def _shared(row: pd.Series, by: Similarity, over: str) -> str:
    """Similarity within and between groups in a sentence, from a row of the universality table."""
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
        claim = f"95 % CI over {over}"
    return f"{within}, {between} ({claim})."


def _with_interval(row: pd.Series, name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_lower", "_upper"))
    return "no pair" if np.isnan(value) else with_ends(value, low, high)


def training_lines(summary: GroupSummary) -> list[str]:
    """Steps and seeds of each trajectory, in sentences."""
    found, over = summary.checkpoints, summary.over_seeds
    return [
        training_line(name, [found.members[at] for at in found.members_of(group)], over)
        for group, name in enumerate(found.groups)
    ]


def training_line(name: str, members: Sequence[str], over: str) -> str:
    """Steps and seeds of a trajectory of these members, and the units of its intervals."""
    steps = Counter(step_of(one) for one in members)
    trained = [one for one in members if not is_control(one)]
    runs = list(dict.fromkeys(map(run_of, trained)))
    what = f"Trajectory {name}: {len(steps)} steps ({min(steps):,} to {max(steps):,})"
    fewest, most = min(steps.values()), max(steps.values())
    seeds = many(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
    if most == 1 and len(runs) == 1:
        said = f"one run ({runs[0]}), so results do not extend to other runs"
    else:
        said = f"{seeds} a step ({listed(runs)}); 95 % CI over {over}, where there are two"
    if len(trained) < len(runs) * len({*map(step_of, trained)}):
        said += "; seeds differ between steps, so a change may be due to these"
    return f"{what}, {said}{'; step 0 has random weights' * any(map(is_control, members))}."
