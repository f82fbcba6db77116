"""Figures of groups of models and of trajectories over training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mlem_core import figures
from mlem_core.base.errors import InputError
from mlem_core.groups.profiles import nearest_depth
from mlem_core.groups.sentences import sizes, training_lines
from mlem_core.groups.summary import GroupSummary
from mlem_core.inference import layer_intervals
from mlem_core.report.shown import FigureContext, RenderedFigure, figure

# The option that says at which relative depth trajectories are drawn; "mean": over all layers.
DEPTH, MEAN = "depth", "mean"


def of_groups(shown: FigureContext) -> GroupSummary | None:
    """What is known of groups of models; None where nothing is said of models."""
    if not shown.analysis.spec.has_groups or not shown.several:
        return None
    return _summary(shown)


def of_training(shown: FigureContext) -> GroupSummary | None:
    """What is known of trajectories over training; None where there are none."""
    found = _summary(shown) if shown.analysis.spec.trajectories else None
    return found if found is not None and found.checkpoints.groups else None


def _summary(shown: FigureContext) -> GroupSummary:
    analysis, chosen, store = shown.analysis, shown.selection, shown.drawing.store
    bounds = shown.intervals
    left = analysis.kept(layer_intervals.LEFT, store, chosen)
    return shown.once(
        ("groups", bounds is None, left is None),
        lambda: GroupSummary(analysis, shown.results, chosen, bounds, left),
    )


@figure(
    "group_profiles",
    "Mean profiles of the groups",
    "The mean importance profile of each group, and the spread over its models.",
)
def profiles(shown: FigureContext) -> RenderedFigure | None:
    """The mean importance profile of each group."""
    found = of_groups(shown)
    if found is None:
        return None
    return RenderedFigure(
        figures.group_profiles(found.profiles, shown.terms, across=shown.across),
        "Mean profiles of the groups",
        "Mean importance of each feature over relative depth, for each group of models; bands are "
        f"95 % intervals over {found.over}, where a group has n of two or more. Groups of one "
        f"speak of no other model. {sizes(found)} {shown.basis}",
        found.profiles,
    )


@figure(
    "group_similarity",
    "Similarity within and between groups",
    "How alike models of one group are (on the diagonal), and models of two groups.",
)
def similarity(shown: FigureContext) -> RenderedFigure | None:
    """The mean RSA within and between groups, as a matrix."""
    found = of_groups(shown)
    if found is None or len(found.members.members) < 2:
        return None
    return RenderedFigure(
        figures.group_similarity(found.similarity, narrow=shown.drawing.narrow),
        "Similarity within and between groups",
        "Mean RSA correlation of pairs of different models, of layers of the same relative depth: "
        "on the diagonal of models of one group, else of two groups. 95 % intervals over "
        f"{found.over}; they need three models of a group. {sizes(found)} {shown.computed_on}",
        found.similarity,
    )


@figure(
    "universality",
    "Universality of the terms",
    "How much of what models of one group share, models of two groups share: 1 is as much.",
)
def universality(shown: FigureContext) -> RenderedFigure | None:
    """How universal the terms are; None where members of no group surely share any."""
    found = of_groups(shown)
    if found is None or found.universality["universality"].isna().all():
        return None
    return RenderedFigure(
        figures.universality(found.universality),
        "Universality of the terms",
        "Universality: the mean of a term of the RSA correlation over pairs of models of different "
        "groups, divided by that over pairs of different models of one group (layers of the same "
        f"relative depth). 95 % intervals over {found.over}; terms that models of a group do not "
        f"share for sure are left out. {sizes(found)} {shown.computed_on}",
        found.universality,
    )


def depth_of(options: Mapping[str, str]) -> float | None:
    """The relative depth that is chosen; None: the mean over layers.

    Raises
    ------
    InputError
        Neither "mean" nor a number from 0 to 1.
    """
    text = options.get(DEPTH, MEAN)
    try:
        depth = None if text == MEAN else float(text)
    except ValueError:
        depth = np.nan
    if depth is not None and not 0 <= depth <= 1:
        raise InputError(
            f"the depth {text!r} is none; expected a number from 0 (the first layer) to 1 (the "
            f"last), or {MEAN}."
        )
    return depth


def depths(shown: FigureContext) -> list[str]:
    """The relative depths to choose from: those of the trajectory with the fewest layers."""
    found = of_training(shown)
    if found is None:
        return []
    known = found.trajectories.dropna(subset=["depth"]).groupby("trajectory", sort=False)["depth"]
    fewest = min((own.unique() for _, own in known), key=len)
    return [f"{depth:.2g}" for depth in fewest]


@figure(
    "trajectories",
    "Importance over training",
    "Importance of each feature, and the score, as training goes on.",
)
def over_training(shown: FigureContext) -> RenderedFigure | None:
    """Importances over the steps of training.

    Raises
    ------
    InputError
        As `depth_of`.
    """
    found = of_training(shown)
    if found is None:
        return None
    depth = depth_of(shown.drawing.options)
    table = nearest_depth(found.trajectories, depth)
    where = f"the layer nearest to relative depth {0 if depth is None else depth:g}"
    where = "mean over layers" if depth is None else where
    return RenderedFigure(
        figures.trajectories(table, shown.terms, across=shown.across),
        "Importance of each feature over training",
        "Importance of each feature, and held-out ρ (dashed), over the steps of training, for each "
        f"trajectory; {where}. The axis is logarithmic; step 0, left of the dotted line, is off "
        "its scale. Means over the seeds of a step; bands, where there are two or more: 95 % "
        f"intervals over {found.over_seeds}, step by step. {' '.join(training_lines(found))} "
        f"{shown.basis}",
        table,
    )
