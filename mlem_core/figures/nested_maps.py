"""Maps of the stimuli of two layers, with groups inside groups where two features divide them.

Source: figure 6 of Jalouzot et al. (2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.analysis import maps
from mlem_core.base.text import listed, percent
from mlem_core.base.typing import FloatArray
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.maps import UNKNOWN
from mlem_core.figures.naming import feature_labels
from mlem_core.figures.stimulus_maps import (
    color_of,
    finish,
    map_caption,
    map_of_side,
    points_of,
    selectable,
    standing_out,
)
from mlem_core.figures.style import (
    GREY,
    LEGEND,
    PALETTE,
    SIZE,
    SYMBOLS,
    Trace,
    faded,
    plain,
    scatter,
)

OPEN = "circle-open"  # what has no level of the second feature, or a rare one
_DEEPEST = 3


def nested_map(
    points: pd.DataFrame,
    groups: pd.DataFrame,
    features: Sequence[str],
    outlines: Mapping[tuple[str, ...], FloatArray],
    title: str,
    stress: float = UNKNOWN,
) -> go.Figure:
    """Stimuli of one layer as points, and the centres of their groups, joined to those inside them.

    Parameters
    ----------
    points : stimulus, x, y, label (for hovering) and a column of levels, as text, for each feature;
        where there is a column marked, those that are stand out
    groups : of `mlem_core.analysis.maps.nested_groups`
    features : two or three in the order in which they divide; the first one's levels are the
        colours, those of the second the marks
    outlines : by the levels of a group, its outline (n_corners, 2)
    title : of the layer
    stress : how far the map is off, see `mlem_core.measures.similarity.map_stress`
    """
    first, second = features[:2]
    colors, marks = (
        dict(zip(_frequent(groups, one), cycle, strict=False))
        for one, cycle in ((first, PALETTE), (second, SYMBOLS))
    )
    figure = make_subplots(1, 1)
    traces = [
        _outline(corners, colors[at[0]]) for at, corners in outlines.items() if at[0] in colors
    ]
    color, mark = points[first].map(colors).fillna(GREY), points[second].map(marks).fillna(OPEN)
    for (hue, symbol), own in points.groupby([color, mark], sort=False):
        # Faint: their centres are what is looked at.
        look: dict[str, Any] = {"size": 5, "opacity": 0.45}
        if "marked" in own:
            look = standing_out(own["marked"].to_numpy(), 5, 9)
        marker = {"color": hue, "symbol": symbol, **look}
        drawn = {"marker": marker, "showlegend": False, "name": "stimuli"}
        traces.append(selectable(own, features) | drawn)
    traces += _branches(groups, features, colors)
    traces.append(_centres(groups, features, colors, marks))
    traces += _legend(features, colors, marks, bool((mark == OPEN).any()))
    figure.add_traces([trace for trace in traces if len(trace["x"])])
    between = groups.groupby("depth")["between"].first()
    shares = [percent(share) for share in between if np.isfinite(share)]
    said = f"between groups: {', then '.join(shares)}" if shares else ""
    finish(figure, 500, title, points, stress, said)
    return figure


def _frequent(groups: pd.DataFrame, feature: str) -> list[str]:
    """Most frequent levels of a feature, as many as there are colours, in their own order."""
    tally = groups[groups[feature] != ""].groupby(feature)["n"].sum()
    return sorted(tally.nlargest(len(PALETTE)).index)


def _outline(corners: FloatArray, color: str) -> Trace:
    x, y = (np.append(side, side[0]) for side in corners.T)
    line = {"color": faded(color, 0.5), "width": 1, "shape": "spline", "smoothing": 0.6}
    look = {"fill": "toself", "fillcolor": faded(color, 0.1), "line": line}
    return scatter(x, y, mode="lines", **look, showlegend=False, name="outline")


def _branches(
    groups: pd.DataFrame, features: Sequence[str], colors: Mapping[str, str]
) -> list[Trace]:
    """Lines from the centre of each group to those of the groups inside it."""
    by_level: dict[str, tuple[list[Any], list[Any]]] = {level: ([], []) for level in colors}
    place = {_key(row, features): (row["x"], row["y"]) for row in groups.to_dict("records")}
    for key, (x, y) in place.items():
        depth = sum(level != "" for level in key)
        if depth > 1 and key[0] in by_level:
            parent = place[tuple(key[: depth - 1]) + ("",) * (len(key) - depth + 1)]
            for axis, ends in zip(by_level[key[0]], ((parent[0], x), (parent[1], y)), strict=True):
                axis += [*ends, None]
    named = {"mode": "lines", "showlegend": False, "name": "branches"}
    return [
        scatter(x, y, line={"color": colors[level], "width": 1.5}, **named)
        for level, (x, y) in by_level.items()
    ]


def _key(row: Mapping[Any, Any], features: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(row[one]) for one in features)


def _centres(
    groups: pd.DataFrame,
    features: Sequence[str],
    colors: Mapping[str, str],
    marks: Mapping[str, str],
) -> Trace:
    """The centre of each group, the deeper the smaller."""
    own = groups[groups[features[0]].isin(list(colors))]
    keys = [_key(row, features) for row in own.to_dict("records")]
    marker = {
        "color": [colors[key[0]] for key in keys],
        "symbol": [marks.get(key[1], "circle") for key in keys],
        "size": [(18, 12, 7)[min(depth, _DEEPEST) - 1] for depth in own["depth"]],
        "line": {"color": "white", "width": 1.5},
    }
    hover = [
        "<b>" + ", ".join(plain(level) for level in key if level) + f"</b><br>{n:,} stimuli"
        for key, n in zip(keys, own["n"], strict=True)
    ]
    named = {"showlegend": False, "name": "centres"}
    return scatter(own["x"].tolist(), own["y"].tolist(), hover, marker=marker, **named)


def _legend(
    features: Sequence[str], colors: Mapping[str, str], marks: Mapping[str, str], others: bool
) -> list[Trace]:
    """An entry a level, under the name of its feature."""
    titles = [
        {"text": f"{'and ' if place else ''}{name}", "font": {"size": SIZE}}
        for place, name in enumerate(feature_labels(list(features), LEGEND))
    ]
    entries: list[tuple[int, str, dict[str, Any]]] = [
        (0, level, {"color": color, "size": 9}) for level, color in colors.items()
    ]
    entries += [
        (1, level, {"color": GREY, "symbol": mark, "size": 8}) for level, mark in marks.items()
    ]
    if others:
        entries.append((1, "other or missing", {"color": GREY, "symbol": OPEN, "size": 7}))
    for place in range(2, len(features)):
        entries.append((place, "smallest centres", {"color": GREY, "size": 6}))
    return [
        scatter([None], [None], marker=marker, name=plain(level))
        | {"legendgroup": str(place), "legendgrouptitle": titles[place]}
        for place, level, marker in entries
    ]


def draw_stimulus_map(context: FigureContext, side: int) -> RenderedFigure | None:
    """The stimuli in one of the two layers; None where they cannot be had.

    With a feature within that of the colour chosen, as groups inside groups.
    """
    drawn, within = map_of_side(context, side), context.drawing.options.get("within", "")
    color = color_of(context)
    if drawn is None or within not in context.all_features or within == color:
        return drawn
    by, (_, stress) = [color, within], points_of(context, context.pair[side])
    points = maps.with_levels(drawn.data, context.analysis.stimuli, by)
    if context.drawing.marked:
        points = points.assign(marked=points["stimulus"].isin(context.drawing.marked))
    groups, title = maps.nested_groups(points, by), context.names.layer_title(context.pair[side])
    return RenderedFigure(
        nested_map(points, groups, by, maps.outlines(points, by), title, stress),
        f"Stimuli in {title}, groups inside groups",
        f"The stimuli divided by {listed(list(map(context.names.feature, by)))}, in this order. "
        "Colours and outlines (the half of a group nearest to its middle) are the first "
        "feature, marks the second. Lines join the centre of a group to those inside it. "
        "Between groups: the share of the squared distances in the map that lies between the "
        "groups by the features so far, less what random groups have (ε²). "
        f"{map_caption(len(points), len(context.analysis.stimuli))}",
        points,
        groups,
    )


for _side, _place in enumerate("ab"):
    figure(
        f"stimulus_map_{_place}",
        "Map of the stimuli",
        "Stimuli that lie close together are represented similarly. Where stress is poor, read "
        "groups of them, not single ones.",
    )(partial(draw_stimulus_map, side=_side))
