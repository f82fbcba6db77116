"""Importance and score over the steps of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.groups import group_summary, line_of
from mlem_core.figures.style import (
    Trace,
    feature_colors,
    in_panel,
    once_in_legend,
    panel_layout,
    plain,
)
from mlem_core.groups.summary import GroupSummary


def _place(step: Any, first: int) -> Any:
    """Place of a training step: logarithmic, and linear before the first step after 0."""
    return np.log10(1 + step / first)


def _ticks(steps: Sequence[int], first: int) -> dict[str, list[Any]]:
    """Places and texts of the ticks: each step where there are few, else powers of ten, and 0."""
    kept = list(steps)
    if len(kept) > 5:
        powers = [10**k for k in range(16) if first <= 10**k < steps[-1]]
        kept = sorted({steps[0], *powers, steps[-1]})
    places = _place(np.array(kept), first).tolist()
    span, apart = places[-1] - places[0] or 1.0, list[int]()
    for at, place in enumerate(places):
        if not apart or (place - places[apart[-1]]) / span > 0.11:
            apart.append(at)
    return {"tickvals": [places[k] for k in apart], "ticktext": [f"{kept[k]:,}" for k in apart]}


def trajectories(table: pd.DataFrame, features: Sequence[str], *, across: int = 3) -> go.Figure:
    """The importance of each feature and the held-out ρ over the steps of training.

    A band is the interval over seeds; it is drawn where there is one at two steps at least.

    Parameters
    ----------
    table : trajectory, step, seeds, quantity, feature, value, lower, upper; a row a trajectory,
        step, quantity and feature
    features : of all analyses that are to have the same colours
    """
    names = list(dict.fromkeys(table["trajectory"]))
    seeds = table.groupby("trajectory", sort=False)["seeds"].agg(["min", "max"])
    titles = [f"{plain(name, 18)} ({_seeds(*seeds.loc[name])})" for name in names]
    layout, places = panel_layout(titles, height=300, across=across)
    steps = sorted(map(int, table["step"].unique()))
    start = next((step for step in steps if step), 1)
    colors, ticks, traces = feature_colors(features), _ticks(steps, start), list[Trace]()
    low, high = (float(_place(step, start)) for step in (steps[0], steps[-1]))
    around = 0.04 * (high - low or 1.0)
    for name, (ref, first) in zip(names, places, strict=True):
        own = table[table["trajectory"] == name].sort_values("step", kind="stable")
        for (_, feature), line in own.groupby(["quantity", "feature"], sort=False):
            called = [f"step {step:,}" for step in line["step"]]
            drawn = line_of(line, called, _place(line["step"], start), str(feature), colors)
            traces += in_panel(ref, drawn)
        layout[f"xaxis{ref}"] |= {**ticks, "range": [low - around, high + around]}
        layout[f"xaxis{ref}"]["title"]["text"] = "training step"
        layout[f"yaxis{ref}"] |= {"matches": "y", "showticklabels": first}
        layout[f"yaxis{ref}"]["title"]["text"] = "importance (drop in ρ), ρ" if first else None
    return go.Figure(once_in_legend(traces), layout)


def _seeds(least: int, most: int) -> str:
    if least != most:
        return f"{least} to {most} seeds"
    return "one run" if most == 1 else f"{most} seeds"


def of_training(context: FigureContext) -> GroupSummary | None:
    """Summary of trajectories over training; None where there are none."""
    found = group_summary(context) if context.analysis.spec.trajectories else None
    return found if found is not None and found.checkpoints.groups else None


@figure(
    "trajectories",
    "Importance over training",
    "Importance of each feature, and held-out ρ, over training.",
)
def draw_trajectories(context: FigureContext) -> RenderedFigure | None:
    """Importances over the steps of training."""
    found = of_training(context)
    if found is None:
        return None
    table = found.trajectories[found.trajectories["layer"].isna()]
    return RenderedFigure(
        trajectories(table, context.terms, across=context.across),
        "Importance of each feature over training",
        "Importance of each feature, and held-out ρ (dashed), over training steps; mean over "
        "layers and seeds. Bands: 95 % CI over seeds; a single run has none and does not "
        f"generalise to other runs. {context.basis}",
        table,
    )
