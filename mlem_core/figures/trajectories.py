"""What changes over training: importances and score over the steps, a panel a trajectory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.figures.groups import BELOW
from mlem_core.figures.naming import feature_name
from mlem_core.figures.profiles import band
from mlem_core.figures.style import FAINT, GREY, as_number, feature_colors, panels, plain

_ZERO = 0.16  # how far step 0 stands left of the first other step, in parts of the axis
_SCORE = "held-out ρ"


def step_places(steps: Sequence[int]) -> tuple[FloatArray, float | None]:
    """Where training steps stand on a logarithmic axis, and where it is broken.

    Parameters
    ----------
    steps : sorted; 0, which has no logarithm, stands left of the others

    Returns
    -------
    (n_steps,) log10 of each; and the middle between 0 and the next, None without a step 0
    """
    found = np.array([np.log10(step) if step > 0 else np.nan for step in steps])
    if not len(steps) or steps[0] > 0:
        return found, None
    if len(steps) == 1:
        return np.zeros(1), None
    width = found[-1] - found[1]
    apart = max(_ZERO * width / (1 - _ZERO), 0.3)
    found[0] = found[1] - apart
    return found, float(found[1] - apart / 2)


def _ticks(steps: Sequence[int], places: FloatArray) -> tuple[list[float], list[str]]:
    """Places and texts of the ticks: each step where there are few, else powers of ten, and 0."""
    kept = list(zip(places, steps, strict=True))
    if len(kept) > 5:
        powers = [10**k for k in range(16) if steps[0] <= 10**k <= steps[-1]]
        kept = [(float(np.log10(power)), power) for power in powers]
        if len(kept) < 2:
            kept = [(places[at], steps[at]) for at in (int(steps[0] == 0), len(steps) - 1)]
        kept = [(places[0], 0)] * (steps[0] == 0) + kept
    span = float(places[-1] - places[0]) or 1.0
    apart: list[tuple[float, int]] = []
    for place, step in kept:
        if not apart or (place - apart[-1][0]) / span > 0.11:
            apart.append((float(place), step))
    return [place for place, _ in apart], [_in_short(step) for _, step in apart]


def _in_short(step: int) -> str:
    """143k of 143,000; whole numbers only."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if step >= size and step * 10 % size == 0:
            return f"{step / size:g}{letter}"
    return f"{step:,}"


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
    figure, places = panels(
        [f"{plain(name, 18)} ({_seeds(*seeds.loc[name])})" for name in names],
        height=300,
        across=across,
        below=BELOW,
    )
    # Swatches as their lines are drawn: the score is dashed.
    figure.update_layout(legend={"itemsizing": "trace"})
    steps = sorted(map(int, table["step"].unique()))
    at, broken = step_places(steps)
    colors, place_of = feature_colors(features), dict(zip(steps, at, strict=True))
    shown: set[str] = set()
    for name, (row, column) in zip(names, places, strict=True):
        own = table[table["trajectory"] == name].sort_values("step", kind="stable")
        for (quantity, feature), line in own.groupby(["quantity", "feature"], sort=False):
            score = quantity == "rho"
            called = _SCORE if score else feature_name(str(feature))
            color = GREY if score else colors.get(str(feature), GREY)
            x = np.array([place_of[int(step)] for step in line["step"]])
            for trace in _traces(line, x, color, called, dashed=score):
                trace.legendgroup = f"{quantity} {feature}"
                trace.showlegend = trace.fill is None and trace.legendgroup not in shown
                figure.add_trace(trace, row=row, col=column)
            shown.add(f"{quantity} {feature}")
        if broken is not None:
            figure.add_vline(
                x=broken, line={"color": FAINT, "width": 1, "dash": "dot"}, row=row, col=column
            )
    values, texts = _ticks(steps, at)
    around = 0.04 * (float(at[-1] - at[0]) or 1.0)
    figure.update_xaxes(
        tickvals=values,
        ticktext=texts,
        range=[float(at[0]) - around, float(at[-1]) + around],
        title_text="training step",
    )
    figure.update_yaxes(matches="y")
    figure.update_yaxes(title_text="importance (FI), ρ", col=1)
    return figure


def _seeds(least: int, most: int) -> str:
    if least != most:
        return f"{least} to {most} seeds"
    return "one run" if most == 1 else f"{most} seeds"


def _traces(
    line: pd.DataFrame, x: FloatArray, color: str, called: str, *, dashed: bool
) -> list[go.Scatter]:
    """The band, where there is one, and the line of a feature."""
    low, high = (line[end].to_numpy() for end in ("lower", "upper"))
    traces = [
        go.Scatter(band(x[at], low[at], high[at], color, called)) for at in _runs(~np.isnan(low))
    ]
    hover = [
        f"{called}, step {step:,}: {as_number(value)}{_interval(low, high)}"
        for step, value, low, high in line[["step", "value", "lower", "upper"]].itertuples(
            index=False
        )
    ]
    points = go.Scatter(
        x=x,
        y=line["value"],
        mode="lines+markers",
        line={"color": color, "width": 2, "dash": "dash" if dashed else "solid"},
        name=called,
        hovertext=hover,
        hoverinfo="text",
    )
    return [*traces, points]


def _interval(low: float, high: float) -> str:
    return "" if np.isnan(low) else f" ({as_number(low)} to {as_number(high)})"


def _runs(known: np.ndarray) -> list[IntArray]:
    """The places of each stretch of two or more steps with an interval: a band crosses no gap."""
    places = np.flatnonzero(known)
    stretches = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    return [one for one in stretches if len(one) > 1]
