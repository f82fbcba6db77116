"""Groups and systems as the rest of the program reads them: kept beforehand, tables, sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.context import FITS, SelectionContext
from mlem_core.base.labels import Names
from mlem_core.base.text import listed
from mlem_core.base.typing import Layer, Report
from mlem_core.estimators.registry import estimator_named
from mlem_core.extensions.systems.group_spec import complete_trajectories, group_options
from mlem_core.extensions.systems.halves import FEWEST, HALVES, draw_all_halves
from mlem_core.extensions.systems.model_groups import BEST, PROFILES, Measured, Members
from mlem_core.extensions.systems.summary import (
    TERMS_WITHOUT,
    GroupSummary,
    group_lines,
    group_tables,
    lines,
    training_lines,
)
from mlem_core.figures.context import FigureContext
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.pairs.similarities import RSA
from mlem_core.report.analysis_tables import ComputedTables, TableInput
from mlem_core.storage.store import Store


def tables(inputs: TableInput, name: str) -> ComputedTables:
    """Tables of groups, trajectories and systems, and sentences on them.

    Without a store there are no halves of the stimuli.
    """
    analysis = inputs.analysis
    context = SelectionContext(analysis, inputs.selection, inputs.store, inputs.progress)
    context.remember("results", inputs.results)
    left = None
    if inputs.store is not None:
        if inputs.intervals is not None and group_options(analysis.spec).has_groups:
            left = TERMS_WITHOUT.get(context.reselect(similarity=inputs.similarity.similarity.name))
        _keep_halves(context)
    summary = GroupSummary.from_context(
        context,
        bounds=inputs.intervals,
        left=left,
        compared=inputs.similarity,
        chance=inputs.chance,
    )
    return ComputedTables(group_tables(summary), findings=lines(summary))


def _keep_halves(context: SelectionContext) -> None:
    """Computes `HALVES` where there are enough systems and stimuli."""
    if draw_all_halves(context.analysis):
        HALVES.get(context)


def has_intervals(analysis: Analysis, store: Store) -> bool:
    """Whether the store has all that intervals of groups need."""
    has_groups = group_options(analysis.spec).has_groups
    return (
        not has_groups
        or TERMS_WITHOUT.find(SelectionContext.from_analysis(analysis, store)) is not None
    )


def prepare(analysis: Analysis, store: Store, selection: Selection) -> None:
    """Keep what figures of systems read: halves, distances, second level.

    Raises as `compute_halves`.
    """
    context = SelectionContext(analysis, selection, store)
    _keep_halves(context)
    n_models = len({model for model, _ in analysis.layers})
    if n_models < FEWEST or estimator_named(selection.estimator).slow:
        return
    FITS.get(context)
    bounds, left = LAYER_INTERVALS.find(context), TERMS_WITHOUT.find(context)
    _ = GroupSummary.from_context(context, bounds=bounds, left=left).second_level


def example_entries(
    analysis: Analysis, pair: tuple[Layer, Layer], store: Store, report: Report
) -> list[Path | None]:
    """Entries of the store with the halves of the example."""
    context = SelectionContext.from_analysis(analysis, store)
    HALVES.get(context)
    return [HALVES.folder(context)]


def methods(analysis: Analysis, names: Names) -> list[str]:
    """Sentences on models that are more than one each: those of groups, and of trainings."""
    spec, models = analysis.spec, [model for model, _ in analysis.layers]

    def members(groups: Sequence[tuple[str, Sequence[str]]]) -> str:
        return listed([f"{name} ({names.models_title(models)})" for name, models in groups])

    sentences = []
    groups = [
        (name, [member for member in members if member in models]) for name, members in spec.groups
    ]
    groups = [(name, members) for name, members in groups if members]
    if of_subjects := [group for group in groups if {*group[1]} <= spec.subject_names]:
        sentences.append(
            "Mean importances and similarities of a group are over its subjects (95 % CI by t): "
            f"{members(of_subjects)}."
        )
    if groups := [group for group in groups if group not in of_subjects]:
        sentences.append(
            f"Models were the units of comparisons between groups: {members(groups)}. Layers of "
            "two models were matched by relative depth. The spread of a group's mean profile is "
            "over its models (95 % CI by t). The universality of a contribution is its mean over "
            "pairs of models of different groups divided by its mean over pairs of different "
            "models of one group. Its intervals come from models drawn with replacement within "
            "groups, at the scale of the jackknife over models."
        )
    if trajectories := complete_trajectories(group_options(spec).trajectories, models):
        sentences.append(
            f"Checkpoints of training were compared by step: {members(trajectories)}. Layers were "
            "matched by relative depth. At each step the mean is over the members of that step, "
            "with 95 % CI by t where there are two or more."
        )
    return sentences


def group_summary(context: FigureContext) -> GroupSummary:
    """Summary of the models of a context."""
    intervals: dict[str, Any] = {
        "bounds": context.intervals,
        "left": TERMS_WITHOUT.find(context),
        "chance": context.find_contribution_null(RSA),
    }
    known = tuple(name for name, value in intervals.items() if value is not None)
    return context.once(("groups", *known), lambda: GroupSummary.from_context(context, **intervals))


def grouped_models(context: FigureContext) -> GroupSummary | None:
    """Summary of the groups of models; None where there are no groups."""
    has_groups = group_options(context.analysis.spec).has_groups and context.several
    return group_summary(context) if has_groups else None


def trainings(context: FigureContext) -> GroupSummary | None:
    """Summary of trajectories over training; None where there are none."""
    summary = group_summary(context) if group_options(context.analysis.spec).trajectories else None
    return summary if summary is not None and summary.checkpoints.groups else None


def sentences(context: FigureContext) -> list[str]:
    """Sentences on groups and trajectories."""
    summary, training = grouped_models(context), trainings(context)
    if summary is None and training is None:
        return ["No group of this analysis has two models, and none is of one training."]
    of_groups = [] if summary is None else group_lines(summary)
    return of_groups + ([] if training is None else training_lines(training))


class Systems(NamedTuple):
    """Systems of an analysis, and their distances by the chosen measure.

    Attributes
    ----------
    groups : (n_systems,) the group of each
    measure : name of the measure of `distances`
    pair : the two systems that are looked at: by default the most similar ones of different groups
    """

    summary: GroupSummary
    members: Members
    groups: tuple[str, ...]
    measure: str
    distances: Measured
    pair: tuple[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return self.members.members


def compared_systems(context: FigureContext) -> Systems | None:
    """Systems of a context and the chosen distances; None with fewer than three of them."""
    summary = group_summary(context)
    measured, members = summary.distances, summary.systems
    if not measured:
        return None
    options, groups, names = context.drawing.options, summary.system_groups, members.members
    measure = options.get("measure", PROFILES)
    measure = measure if measure in measured else PROFILES
    pair = options.get("system_a", ""), options.get("system_b", "")
    if pair[0] == pair[1] or not {*pair} <= {*names}:
        apart = np.array(groups)[:, None] != np.array(groups)
        first, second = np.triu_indices(len(names), 1)
        at = np.where(apart, measured[measure].values, np.inf)[first, second].argmin()
        pair = names[first[at]], names[second[at]]
    return Systems(summary, members, groups, measure, measured[measure], pair)


def measures(summary: GroupSummary) -> dict[str, str]:
    """Label of each measure of distance that there is, by its name."""
    labels = {
        PROFILES: "importance profiles",
        summary.by.name: summary.by.short,
        BEST: "best-matching layers",
    }
    return {name: labels[name] for name in summary.distances}
