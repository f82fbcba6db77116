"""Figures of groups of models and of trajectories over training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlem_core import figures
from mlem_core.base.errors import InputError
from mlem_core.base.text import listed, many
from mlem_core.inference import layer_intervals
from mlem_core.inference.recipes import Recipes, recipes
from mlem_core.inference.trajectories import Trained, trajectories
from mlem_core.measures.trajectories import nearest_depth
from mlem_core.report import group_captions as captions
from mlem_core.report.shown import Drawn, Shown, figure

# The option that says at which relative depth trajectories are drawn; "mean": over all layers.
DEPTH, MEAN = "depth", "mean"


def of_models(shown: Shown) -> Recipes | None:
    """What is known of groups of models; None where nothing is said of models."""
    of, store = (shown.analysis, shown.selection), shown.drawing.store
    if not shown.analysis.spec.of_population or not shown.several:
        return None
    left = None if store is None else layer_intervals.find_left(of[0], store, of[1])
    more: dict[str, Any] = {"bounds": shown.intervals, "left": left}
    key = "recipes", *(one is None for one in more.values())
    return shown.once(key, lambda: recipes(of[0], shown.results, of[1], **more))


def varies(found: Recipes) -> str:
    """What groups are of, for a caption: how many members each has."""
    population = found.population
    sizes = [
        f"{name} ({many(int(n), 'model')})"
        for name, n in zip(population.groups, population.sizes, strict=True)
    ]
    return f"Groups: {listed(sizes)}."


@figure(
    "group_profiles",
    "Mean profiles of the groups",
    "The mean importance profile of each group, and the spread over its members.",
)
def profiles(shown: Shown) -> Drawn | None:
    """The mean importance profile of each group."""
    found = of_models(shown)
    if found is None:
        return None
    return Drawn(
        figures.group_profiles(found.profiles, shown.terms, across=shown.across),
        "Mean profiles of the groups",
        captions.group_profiles(found.over, f"{varies(found)} {shown.basis}"),
        found.profiles,
    )


@figure(
    "group_similarity",
    "Similarity within and between groups",
    "How alike members of one group are (on the diagonal), and models of two groups.",
)
def similarity(shown: Shown) -> Drawn | None:
    """The mean RSA within and between groups, as a matrix."""
    found = of_models(shown)
    if found is None or len(found.population.members) < 2:
        return None
    return Drawn(
        figures.group_similarity(found.similarity, narrow=shown.drawing.narrow),
        "Similarity within and between groups",
        captions.group_similarity(found.over, f"{varies(found)} {shown.computed_on}"),
        found.similarity,
    )


@figure(
    "universality",
    "Universality of the terms",
    "How much of what members of a group share groups share too: 1 is as much.",
    takes_long=True,  # there with some intervals, and not with others
)
def universality(shown: Shown) -> Drawn | None:
    """How universal the terms are; None where members of no group surely share any."""
    found = of_models(shown)
    if found is None or found.universality["universality"].isna().all():
        return None
    return Drawn(
        figures.universality(found.universality),
        "Universality of the terms",
        captions.universality(found.over, f"{varies(found)} {shown.computed_on}"),
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


def trained(shown: Shown) -> Trained | None:
    """What is known of trajectories over training; None where there are none."""
    if not shown.analysis.spec.trajectories:
        return None
    bounds = shown.intervals
    found = shown.once(
        ("trained", bounds is None),
        lambda: trajectories(shown.analysis, shown.results, shown.selection, bounds=bounds),
    )
    return found if found.members else None


def depths(shown: Shown) -> list[str]:
    """The relative depths to choose from: those of the trajectory with the fewest layers."""
    found = trained(shown)
    if found is None:
        return []
    known = found.table.dropna(subset=["depth"]).groupby("trajectory", sort=False)["depth"]
    fewest = min((own.unique() for _, own in known), key=len)
    return [f"{depth:.2g}" for depth in fewest]


@figure(
    "trajectories",
    "Importance over training",
    "Importance of each feature, and the score, as training goes on.",
)
def over_training(shown: Shown) -> Drawn | None:
    """Importances over the steps of training.

    Raises
    ------
    InputError
        As `depth_of`.
    """
    found = trained(shown)
    if found is None:
        return None
    depth = depth_of(shown.drawing.options)
    table = nearest_depth(found.table, depth)
    where = f"the layer nearest to relative depth {0 if depth is None else depth:g}"
    where = "mean over layers" if depth is None else where
    return Drawn(
        figures.trajectories(table, shown.terms, across=shown.across),
        "Importance of each feature over training",
        captions.trajectories(found.over, f"{' '.join(found.lines())} {shown.basis}", where),
        table,
    )
