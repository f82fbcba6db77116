"""Summary of the models of an analysis as systems, in groups, and as checkpoints of trainings.

Distances of systems and their second level are kept in the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.context import SelectionContext, Stage, selection_key
from mlem_core.analysis.similarities import LayerSimilarity, compute_rsa
from mlem_core.base.text import listed, many, with_ends
from mlem_core.base.typing import FloatArray
from mlem_core.extensions.systems.group_spec import (
    GroupOptions,
    Member,
    group_options,
    is_control,
    labels_by_factor,
    run_name,
    training_step,
)
from mlem_core.extensions.systems.halves import (
    FEWEST,
    HALVES,
    Halves,
    cross_validated,
    profile_squares,
    relation_squares,
)
from mlem_core.extensions.systems.mean_profiles import (
    IMPORTANCE,
    estimate,
    layer_scores,
    mean_profiles,
)
from mlem_core.extensions.systems.model_groups import (
    BEST,
    PROFILES,
    Measured,
    Members,
    Squares,
    best_match_distances,
    distance_table,
    group_means,
    group_similarities,
    model_similarity,
    profile_distances,
    similarity_distances,
)
from mlem_core.extensions.systems.properties import Properties
from mlem_core.extensions.systems.second_level import SecondLevel, second_level
from mlem_core.inference.block_influence import jackknife_similarity
from mlem_core.inference.intervals import LayerIntervals, Left
from mlem_core.inference.permutation_null import ContributionNull
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import RSA, SIMILARITIES, Similarity


def jackknife_terms(context: SelectionContext) -> Left:
    """The similarity of a selection and its terms without each block.

    Raises as `mlem_core.inference.layer_intervals.compute_layer_intervals`.

    Returns
    -------
    of (n_blocks, n_features + 2, n_layers, n_layers): the features, "unexplained" and the
    similarity; that alone where it has no terms
    """
    compared = jackknife_similarity(context.reselect(interactions=False))
    left = (compared.terms_without, compared.values_without[:, None])
    return Left(np.concatenate(left, axis=1), compared.sizes)


TERMS_WITHOUT = Stage[Left]("terms-without", 6, Left, jackknife_terms)


@dataclass(frozen=True)
class GroupSummary(SelectionContext):
    """Summary of the models of a selection: groups, systems; each part is made at its first use.

    Without a store there are no halves of the stimuli, and with these no best match and no second
    level.

    Attributes
    ----------
    bounds : of the same layers and features, for the spread of profiles over stimuli; None:
        their intervals are over models alone
    left : of `TERMS_WITHOUT`, for that of similarities
    compared : all layers by the similarity that models are compared by, as is `left`; None is RSA
    chance : of contributions to that similarity, which they are beyond then
    """

    bounds: LayerIntervals | None = None
    left: Left | None = None
    compared: LayerSimilarity | None = None
    chance: ContributionNull | None = None

    @classmethod
    def from_context(cls, context: SelectionContext, **more: Any) -> GroupSummary:
        """Summary of the selection of a context; `more` are the attributes above."""
        return cls(
            context.analysis, context.selection, context.store, memory=context.memory, **more
        )

    @property
    def options(self) -> GroupOptions:
        """Options of the analysis, with those of groups."""
        return group_options(self.analysis.spec)

    @property
    def by(self) -> Similarity:
        """The similarity that models are compared by."""
        return SIMILARITIES[RSA] if self.compared is None else self.compared.similarity

    @cached_property
    def scores(self) -> tuple[FloatArray, list[str], Left | None]:
        """ρ and importances of the layers, their columns, and without blocks of stimuli."""
        values, columns = layer_scores(self.results, self.selection)
        bounds = self.bounds
        if bounds is None or list(bounds.columns) != columns:
            return values, columns, None
        left = bounds.scores_without[:, bounds.places(self.selection.layers)]
        return values, columns, Left(left, bounds.sizes)

    @cached_property
    def layer_similarity(self) -> LayerSimilarity:
        """The layers of the selection by the similarity, with tables of its features."""
        compared = self.compared or compute_rsa(self.analysis)
        similarity = compared.select(self.analysis, self.selection)
        return replace(similarity, pairs=similarity.pairs.select_features(self.selection.features))

    @cached_property
    def systems(self) -> Members:
        """Every model as a system of its own."""
        models = dict.fromkeys(model for model, _ in self.selection.layers)
        return Members.from_table([Member(model, model) for model in models], self.selection.layers)

    @cached_property
    def distances(self) -> dict[str, Measured]:
        """Distances of every two systems by each measure; none with fewer than three systems."""
        if len(self.systems.members) < FEWEST:
            return {}
        measures = [PROFILES, self.by.name]
        if self.halves is not None and self.by.of_ranks:
            measures.append(BEST)
        return {measure: DISTANCES.get(self, measure=measure) for measure in measures}

    @property
    def distance_table(self) -> pd.DataFrame:
        """The distances as `mlem_core.extensions.systems.model_groups.distance_table` has them."""
        return distance_table(self.distances, self.systems)

    @cached_property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Labels of the systems, by factor; empty where unknown."""
        models = self.options.names
        at = [models.index(name) for name in self.systems.members]
        factors = labels_by_factor(self.options.groups, self.options.labels, models)
        return {factor: tuple(values[i] for i in at) for factor, values in factors.items()}

    @property
    def system_groups(self) -> tuple[str, ...]:
        """(n_systems,) the group of each system, or its family.

        Families are the values of the property whose models are left out together; a model without
        one is a group of its own.
        """
        names, groups = self.systems.members, self.options.group_of
        families = self.labels.get(self.options.resampled_whole) or ("",) * len(names)
        both = zip(names, families, strict=True)
        return tuple(family or groups.get(name, name) for name, family in both)

    @cached_property
    def halves(self) -> Halves | None:
        """Profiles and RSA in halves of the stimuli, where the store has them."""
        return HALVES.find(self)

    @property
    def layers_left(self) -> Left | None:
        """The similarity of layers without each block of stimuli."""
        if self.left is not None:
            return Left(self.left.without[:, -1], self.left.sizes)
        bounds = self.bounds
        if bounds is None or bounds.similarity != self.by.name:
            return None
        at = bounds.places(self.selection.layers)
        return Left(bounds.values_without[:, at][:, :, at], bounds.sizes)

    @cached_property
    def properties(self) -> Properties | None:
        """Properties of the systems; None where there are none."""
        if not self.labels:
            return None
        parts, kinds = self.options.property_groups, self.options.property_kinds
        return Properties.from_cells(self.labels, parts, kinds)

    @cached_property
    def second_level(self) -> SecondLevel | None:
        """What of the properties of models explains their distances; None without properties."""
        if not self.distances or self.properties is None:
            return None
        return SECOND_LEVEL.get(self)

    @property
    def squares(self) -> dict[str, Squares]:
        """Squared distances of the systems by each measure that has some."""
        return {
            name: measured.squares
            for name, measured in self.distances.items()
            if measured.squares is not None
        }

    @property
    def system_units(self) -> dict[str, Any]:
        """Groups, families and seed of `second_level`."""
        groups = self.options.group_of
        return {
            "groups": [groups.get(name, name) for name in self.systems.members],
            "families": self.system_groups if self.options.resampled_whole else (),
            "seed": self.analysis.spec.seed,
        }

    @cached_property
    def models_table(self) -> list[Member]:
        """The rows of the models table that have layers in the selection."""
        models = dict.fromkeys(model for model, _ in self.selection.layers)
        return self.options.models_table(list(models))

    @property
    def members_table(self) -> list[Member]:
        """The rows of the models table that are in groups."""
        return [row for row in self.models_table if row.step is None]

    @property
    def called(self) -> str:
        """What all members of groups are, such as "subjects"."""
        if self.member == "model":
            return "models"
        return "subjects" + " and models" * (not {*self.members.members} <= self.subjects)

    @property
    def only_subjects(self) -> bool:
        """Whether every system is a subject of a file."""
        return {*self.systems.members} <= self.subjects

    @cached_property
    def members(self) -> Members:
        """The models in their groups."""
        rows = self.members_table
        return Members.from_table(rows, self.selection.layers)

    @cached_property
    def checkpoints(self) -> Members:
        """The checkpoints of the trajectories that have two steps in the selection."""
        rows = [row for row in self.models_table if row.step is not None]
        return Members.from_table(rows, self.selection.layers)

    @cached_property
    def subjects(self) -> frozenset[str]:
        """Systems that are subjects of a file."""
        return self.analysis.spec.subject_names & {*self.systems.members}

    @property
    def member(self) -> str:
        """What members of groups of two or more are, "subject" or "model"."""
        sizes = Counter(row.group for row in self.members_table)
        several = {row.member for row in self.members_table if sizes[row.group] > 1}
        return "subject" if several and several <= self.subjects else "model"

    @property
    def over(self) -> str:
        """Resampling units of the intervals of groups, such as "models, and sentences"."""
        more = self._similarities[2] is not None
        return f"{self.member}s" + f", and {Units.from_stimuli(self.analysis.stimuli).over}" * more

    @property
    def seed_units(self) -> str:
        """Resampling units of the intervals of trajectories, such as "seeds, and sentences"."""
        more = self.scores[2] is not None
        return "seeds" + f", and {Units.from_stimuli(self.analysis.stimuli).over}" * more

    @cached_property
    def profiles(self) -> pd.DataFrame:
        """Mean profiles of groups: group, members, layer, depth, feature, importance, lower, upper.

        As of `mean_profiles`, the layers of the shallowest member.
        """
        table = mean_profiles(self.members, self.selection.layers, *self.scores)
        table = table[(table["quantity"] == IMPORTANCE) & table["layer"].notna()]
        table = table.drop(columns=["step", "quantity", "sd"]).reset_index(drop=True)
        return table.rename(columns={"value": "importance"}).astype({"layer": np.int64})

    @cached_property
    def trajectories(self) -> pd.DataFrame:
        """`mean_profiles` of each trajectory; group is trajectory there, and members are seeds."""
        table = mean_profiles(self.checkpoints, self.selection.layers, *self.scores)
        return table.rename(columns={"group": "trajectory", "members": "seeds"})

    @cached_property
    def _similarities(self) -> tuple[tuple[str, ...], FloatArray, Left | None]:
        """Terms of the similarity of models and it itself, also without each block of stimuli."""
        layers, left, chance = self.layer_similarity, self.left, self.chance
        names: tuple[str, ...] = (layers.similarity.name,)
        squares, divides = layers.values[None], layers.similarity.divides
        n_terms = len(layers.pairs.features) + 2 if divides else 1
        if left is not None and left.without.shape[1] != n_terms:
            left = None  # of other features
        if divides:
            divided = decompose(layers.pairs.moments)
            if chance is not None:
                divided = chance.subtract_from_all(divided)
            if chance is not None and left is not None:
                beyond = chance.apart(left.without[:, :-1])
                left = Left(np.concatenate((beyond, left.without[:, -1:]), axis=1), left.sizes)
            names, squares = (*divided.names, *names), np.concatenate((divided.values, squares))
        return names, model_similarity(squares, self.members), _similarity_left(left, self.members)

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
        estimates = estimate(group_similarities, matrix, self.members.group_of, stimuli)
        table = pd.DataFrame({"term": list(terms)})
        for at, name in enumerate(("within", "between", "universality")):
            for end, values in zip(("", "_lower", "_upper"), estimates[:3], strict=True):
                table[name + end] = values[:, at]
        table.loc[~(table["within_lower"] > 0), [*table.columns[-3:]]] = np.nan
        return table


def _systems_key(summary: GroupSummary, **more: Any) -> dict[str, Any]:
    """Key of a result of all systems."""
    inputs = {name: getattr(summary, name) is not None for name in ("bounds", "left", "halves")}
    return selection_key(summary, by=summary.by.name, **inputs, **more)


def compute_distances(summary: GroupSummary, measure: str) -> Measured:
    """Distances of systems by a measure: `PROFILES`, `BEST` or the name of the similarity."""
    systems, halves = summary.systems, summary.halves
    if measure == PROFILES:
        scores, _, left = summary.scores
        parts = None if left is None else Left(left.without[..., 1:], left.sizes)
        measured = profile_distances(summary.results, summary.selection.layers, systems, left)
        if halves is None:
            return measured
        square = partial(profile_squares, members=systems)
        squares = cross_validated(square, halves.profiles, scores[:, 1:], parts)
        return measured._replace(squares=squares)
    values, left = summary.layer_similarity.values, summary.layers_left
    if measure == BEST and halves is not None:
        return best_match_distances(halves.rsa, systems, values, left)
    measured = similarity_distances(
        model_similarity(values, systems), _similarity_left(left, systems)
    )
    if halves is None or measure != RSA:
        return measured
    square = partial(relation_squares, members=systems)
    return measured._replace(squares=cross_validated(square, halves.rsa, values, left))


def compute_second_level(summary: GroupSummary) -> SecondLevel:
    """What of the properties of the systems explains their distances."""
    properties = summary.properties or Properties({})
    return second_level(summary.squares, properties, **summary.system_units)


def _second_level_key(summary: GroupSummary) -> dict[str, Any]:
    options = summary.options
    return _systems_key(
        summary,
        labels=summary.labels,
        parts=options.property_groups,
        kinds=options.property_kinds,
        measures=list(summary.squares),
        **summary.system_units,
    )


DISTANCES = Stage[Measured]("system-distances", 2, Measured, compute_distances, key=_systems_key)
SECOND_LEVEL = Stage[SecondLevel](
    "second-level", 3, SecondLevel, compute_second_level, key=_second_level_key
)


def _similarity_left(left: Left | None, members: Members) -> Left | None:
    """Similarities of models without each block of stimuli, from those of layers."""
    return None if left is None else Left(model_similarity(left.without, members), left.sizes)


def group_tables(summary: GroupSummary) -> dict[str, pd.DataFrame]:
    """The tables of groups, trajectories and systems, by their file names."""
    files: dict[str, pd.DataFrame] = {}
    if summary.options.has_groups:
        files["groups.csv"] = summary.profiles
        files["group_similarity.csv"] = summary.similarity
        files["universality.csv"] = summary.universality
    if summary.distances:
        files["system_distances.csv"] = summary.distance_table
    second = summary.second_level
    if second is not None and len(second.scores):
        files["system_scores.csv"] = second.scores
        files["system_importance.csv"] = second.importances
    if summary.options.trajectories:
        files["trajectories.csv"] = summary.trajectories
    return files


def lines(summary: GroupSummary) -> list[str]:
    """Sentences on groups, trajectories and systems, where the analysis has them."""
    of_groups = group_lines(summary) if summary.options.has_groups else []
    second = summary.second_level
    return of_groups + training_lines(summary) + (second.lines() if second is not None else [])


def sizes(summary: GroupSummary) -> str:
    """Number of models, or subjects, of each group, in a sentence."""
    each = zip(summary.members.groups, summary.members.sizes, strict=True)
    counts = listed([f"{name} {n}" for name, n in each])
    return f"{summary.called.capitalize()} per group: {counts}."


def group_lines(summary: GroupSummary) -> list[str]:
    """Sentences on groups, on other models only as far as there are several of one."""
    row = summary.universality.set_index("term").loc[summary.by.name]
    shared = _shared(row, summary)
    aside = {model for model, _ in summary.selection.layers} - {*summary.members.members}
    notes = []
    if aside:
        are = "checkpoints of trajectories are"
        are = are if len(aside) > 1 else "checkpoint of a trajectory is"
        notes = [f"{len(aside)} {are} in no group, and left aside here."]
    return [f"{sizes(summary)} {shared}", *notes]


def _shared(row: pd.Series, summary: GroupSummary) -> str:
    """Similarity within and between groups in a sentence, from a row of the universality table."""
    by = summary.by
    have = f"have {'an RSA' if by.of_ranks else f'a similarity ({by.short})'} of"
    between = f"{summary.called} of different groups {have} {_with_interval(row, 'between')}"
    if np.isnan(row["between"]) and np.isnan(row["within"]):
        return "With one model there is nothing to compare."
    if np.isnan(row["within"]):
        return (
            f"One model of each group: {between}, which says nothing of other models of these "
            "groups."
        )
    within = f"{summary.member.capitalize()}s of one group {have} {_with_interval(row, 'within')}"
    if np.isnan(row["within_lower"]):
        claim = f"with so few {summary.member}s it says nothing of others"
    else:
        claim = f"95 % CI over {summary.over}"
    return f"{within}{f', {between}' * pd.notna(row['between'])} ({claim})."


def _with_interval(row: pd.Series, name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_lower", "_upper"))
    return "no pair" if np.isnan(value) else with_ends(value, low, high)


def training_lines(summary: GroupSummary) -> list[str]:
    """Steps and seeds of each trajectory, in sentences."""
    runs, over = summary.checkpoints, summary.seed_units
    return [
        training_line(name, [runs.members[at] for at in runs.group_members(group)], over)
        for group, name in enumerate(runs.groups)
    ]


def training_line(name: str, members: Sequence[str], over: str) -> str:
    """Steps and seeds of a trajectory of these members, and the units of its intervals."""
    steps = Counter(training_step(member) for member in members)
    trained = [member for member in members if not is_control(member)]
    runs = list(dict.fromkeys(map(run_name, trained)))
    what = f"Trajectory {name}: {len(steps)} steps ({min(steps):,} to {max(steps):,})"
    fewest, most = min(steps.values()), max(steps.values())
    seeds = many(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
    if most == 1 and len(runs) == 1:
        clause = f"one run ({runs[0]}), so results do not extend to other runs"
    else:
        clause = f"{seeds} a step ({listed(runs)}); 95 % CI over {over}, where there are two"
    if len(trained) < len(runs) * len({*map(training_step, trained)}):
        clause += "; seeds differ between steps, so a change may be due to these"
    return f"{what}, {clause}{'; step 0 has random weights' * any(map(is_control, members))}."
