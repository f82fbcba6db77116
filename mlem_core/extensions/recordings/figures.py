"""Models beside a group of subjects: bars with the noise ceiling, and which of them differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.labels import Names
from mlem_core.base.text import many
from mlem_core.extensions.recordings.model_comparison import (
    FEATURES,
    ModelComparison,
    region_title,
)
from mlem_core.extensions.recordings.stage import find_comparison
from mlem_core.figures.captions import joined
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import model_colors
from mlem_core.figures.style import (
    GREY,
    SIGNIFICANT,
    WARNING,
    Trace,
    as_number,
    as_p,
    error_bar,
    escape_text,
    faded,
    interval,
    names_along,
    panel_layout,
    place_in_panel,
    plain,
    round_ticks,
    scatter,
    short_names,
)

# Regions and models up to which there is room for bars; more are a course over time, or a table.
MOST_PANELS, MOST_BARS = 9, 30
_STEP = 0.045  # between two lines of significance, as a part of the height of the bars


def model_bars(comparison: ModelComparison, names: Names, *, across: int = 2) -> go.Figure:
    """Bars of the models of each group and region, with the noise ceiling and what differs.

    `across` is the number of panels beside each other.
    """
    groups = comparison.models.groupby(["group", "group_layer"], sort=False)
    ceilings = comparison.ceilings.set_index(["group", "layer"])
    n_groups = comparison.models["group"].nunique()
    titles = []
    for (group, number), _ in groups:
        n_subjects = many(int(ceilings.loc[(group, number), "n"]), "subject")
        region = region_title(group, number, names, n_groups)
        titles.append(f"{plain(region, 24)} ({n_subjects})")
    layout, places = panel_layout(titles, height=380, across=across, below=150)
    values = comparison.models[["rsa", "rsa_lower", "rsa_upper"]]
    highest = max(values.max().max(), ceilings["upper"].max())
    ticks, traces = round_ticks(min(0.0, round(values.min().min(), 1)), 1.0), list[Trace]()
    pairs_of_place = dict(list(comparison.differences.groupby(["group", "group_layer"])))
    for (place, models), (ref, first) in zip(groups, places, strict=True):
        called = [_called(row, names) for row in models[["model", "layer"]].itertuples(index=False)]
        lower, upper = ceilings.loc[place, ["lower", "upper"]]
        drawn = [_ceiling_band(lower, upper, len(models)), *_bars(models, called)]
        is_below = (models["to_ceiling_p_corrected"] < SIGNIFICANT) & (models["to_ceiling"] > 0)
        if is_below.any():
            look = {"symbol": "triangle-down", "size": 8, "color": WARNING}
            at = np.flatnonzero(is_below)
            hover = ["below the lower ceiling"] * len(at)
            drawn.append(scatter(at, [lower] * len(at), hover, marker=look))
        if place in pairs_of_place:
            top = max(upper, models[["rsa", "rsa_upper"]].max().max())
            drawn += _differences(pairs_of_place[place], called, top, _STEP * highest)
        traces += place_in_panel(ref, drawn)
        labels = short_names(called, 18)
        angle = -40 if max(map(len, labels)) * len(labels) > 40 else 0
        along = {"range": [-0.6, len(models) - 0.4], "tickangle": angle}
        layout[f"xaxis{ref}"] |= names_along(labels, **along)
        layout[f"yaxis{ref}"] |= {"zeroline": True, "matches": "y", **ticks}
        layout[f"yaxis{ref}"]["title"]["text"] = "RSA (features: held-out ρ)" if first else None
    return go.Figure(traces, layout | {"showlegend": False})


def _ceiling_band(lower: float, upper: float, n_models: int) -> Trace:
    look = {"fill": "toself", "fillcolor": faded(GREY, 0.3), "line": {"width": 0}}
    look |= {"hoveron": "fills", "hoverinfo": "text"}
    look |= {"text": f"noise ceiling {as_number(lower)} to {as_number(upper)}"}
    ends = -0.5, n_models - 0.5
    return scatter([*ends, *ends[::-1]], [lower, lower, upper, upper], mode="lines", **look)


def _called(layer: tuple[str, Any], names: Names) -> str:
    """The name of a model below its bar: that of its layer alone where it has one of its own."""
    if pd.isna(layer[1]):
        return layer[0]
    at = layer[0], int(layer[1])
    return names.own(at) or names.layer_title(at)


def _bars(models: pd.DataFrame, called: Sequence[str]) -> list[Trace]:
    """Bars with their intervals: those of a file in one colour, that of the features hatched."""
    kinds = [kind for kind in dict.fromkeys(models["model"]) if kind != FEATURES]
    colors = {FEATURES: GREY, **dict(zip(kinds, model_colors(kinds), strict=True))}
    models, traces = models.reset_index(drop=True).assign(called=called), list[Trace]()
    for kind, rows in models.groupby("model", sort=False):
        hover, color = [], colors[str(kind)]
        for row in rows.to_dict("records"):
            lines = [f"<b>{escape_text(row['called'])}</b>", as_number(row["rsa"])]
            if pd.notna(row["rsa_lower"]):
                lines.append(interval(row["rsa_lower"], row["rsa_upper"]))
            if pd.notna(row["to_ceiling_p_corrected"]):
                distance, p = as_number(row["to_ceiling"]), as_p(row["to_ceiling_p_corrected"])
                lines.append(f"lower ceiling less this {distance}, corrected p {p}")
            hover.append("<br>".join(lines))
        # Pale within a line, so that intervals in that colour stand out on the bars too.
        look: Trace = {"color": faded(color, 0.35), "line": {"color": color, "width": 1}}
        if kind == FEATURES:
            look["pattern"] = {
                "shape": "/",
                "fgcolor": faded(color, 0.5),
                "size": 6,
                "solidity": 0.15,
            }
            look["color"] = "rgba(0,0,0,0)"
        ends = rows["rsa"], rows["rsa_lower"], rows["rsa_upper"]
        bars: Trace = {"type": "bar", "x": rows.index, "y": ends[0], "marker": look, "width": 0.7}
        bars |= {"hovertext": hover, "hoverinfo": "text"}
        if rows["rsa_lower"].notna().any():
            bars["error_y"] = error_bar(*ends, color=color, thickness=2, width=4)
        traces.append(bars)
    return traces


def _differences(
    pairs: pd.DataFrame, called: Sequence[str], top: float, step: float
) -> list[Trace]:
    """A line above `top` for each model that others are below: a point at it, ticks at these.

    `pairs` are every two of the models, in the order of their names; `step` is between two lines.
    """
    below: dict[int, list[int]] = {}
    tests = zip(pairs["difference"], pairs["p_corrected"], strict=True)
    for ends, (difference, p) in zip(combinations(range(len(called)), 2), tests, strict=True):
        if p < SIGNIFICANT:
            higher, lower = ends if difference > 0 else ends[::-1]
            below.setdefault(higher, []).append(lower)
    traces, look = list[Trace](), {"cliponaxis": False}
    for level, higher in enumerate(sorted(below), start=1):
        others, y = below[higher], top + step * (level + 0.5)
        hover = [f"{escape_text(called[higher])} above {escape_text(called[at])}" for at in others]
        span, line = [min(higher, *others), max(higher, *others)], {"color": GREY, "width": 1}
        ticks = {"symbol": "line-ns", "size": 5, "line": {"color": GREY, "width": 1.5}}
        traces += [
            scatter(span, [y, y], mode="lines", line=line, **look),
            scatter(others, [y] * len(others), hover, marker=ticks, **look),
            scatter([higher], [y], marker={"color": GREY, "size": 6}, **look),
        ]
    return traces


def has_bars(comparison: ModelComparison) -> bool:
    """Whether there are few enough regions and models for bars."""
    sizes = comparison.models.groupby(["group", "group_layer"]).size()
    return len(sizes) <= MOST_PANELS and bool(sizes.max() <= MOST_BARS)


@figure(
    "model_comparison",
    "Models beside the subjects",
    "Mean RSA with the subjects. Grey: noise ceiling; triangles: below it. Lines: the model at the "
    "point is above those at the ticks.",
    offered=True,
)
def draw_model_comparison(context: FigureContext) -> RenderedFigure | None:
    """Bars of the models beside each group of subjects; None without subjects, or with too many."""
    comparison = find_comparison(context)
    if comparison is None or not has_bars(comparison):
        return None
    intervals, pairs = context.find_intervals("rsa"), comparison.differences
    over = "" if intervals is None else intervals.units.over
    tested = len(pairs) > 0 and pairs["p_corrected"].notna().any()
    return RenderedFigure(
        model_bars(comparison, context.names, across=1 if context.drawing.narrow else 2),
        joined(
            "Mean RSA of each model with the subjects; of the features the mean held-out ρ. Grey "
            "band: noise ceiling.",
            f"Error bars: 95 % CI over subjects and {over}." if over else "",
            "Lines: the model at the point is above those at the ticks. Triangles: below the "
            "lower ceiling (both p < .05, Holm)."
            if tested
            else "",
            context.basis,
        ),
        comparison.models,
    )
