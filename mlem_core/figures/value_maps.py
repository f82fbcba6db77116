"""The values of a feature as points, and their distances in two layers against each other.

Stimuli of two layers as maps, with groups inside groups where two features divide them.

Source: figure 6 of Jalouzot et al. (2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis import maps
from mlem_core.base.text import listed, percent
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.figures.captions import STRESS
from mlem_core.figures.context import Draw, FigureContext, RenderedFigure, figure
from mlem_core.figures.maps import UNKNOWN, frame_map, uncrowded
from mlem_core.figures.naming import feature_labels, layer_title, layer_titles
from mlem_core.figures.stimulus_maps import (
    color_of,
    finish,
    map_caption,
    map_of_side,
    points_of,
    stimuli_trace,
)
from mlem_core.figures.style import (
    GREY,
    LEGEND,
    PALETTE,
    SIZE,
    SYMBOLS,
    TITLE,
    Trace,
    as_number,
    faded,
    in_full,
    plain,
    quiet,
    scatter,
    short_names,
    title_of,
)
from mlem_core.figures.value_distances import NAMED, TARGET_UNITS, chosen_layer, values_of
from mlem_core.measures import value_distances

_ROOM = 1.25  # of a map, for the labels at its sides


def value_map(points: pd.DataFrame, title: str, stress: float = UNKNOWN) -> go.Figure:
    """The values of a feature in a layer as points: near where their means are near.

    Parameters
    ----------
    points : value, x, y, spread, see `mlem_core.measures.value_distances.value_map`; the more a
        value's stimuli differ among themselves, the wider its ring
    title : of the layer
    stress : how far the map is off, see `mlem_core.measures.similarity.map_stress`
    """
    names = [str(name) for name in points["value"]]
    xy = points[["x", "y"]].to_numpy(dtype=np.float64)
    span = max(float(np.ptp(xy, axis=0).max()) * _ROOM * 1.1, 1e-12)
    middle = (xy.max(axis=0) + xy.min(axis=0)) / 2
    unit = (xy - middle) / span + 0.5
    spread = points["spread"].to_numpy(dtype=np.float64)
    widest = float(spread.max()) or 1.0
    # Areas as the variance within the value; a label stands clear of its ring, at its side.
    sizes = 10 + 34 * np.sqrt(spread / widest)
    texts, places = uncrowded(unit, short_names(names, 16), sizes / 2 / 300 + 0.01)
    hover = [
        f"<b>{in_full(name)}</b><br>spread {as_number(one)}"
        for name, one in zip(names, spread, strict=True)
    ]
    x, y, shared = points["x"], points["y"], {"cliponaxis": False, "showlegend": False}
    line = {"color": faded(PALETTE[0], 0.5), "width": 1}
    ring = {"size": sizes, "color": faded(PALETTE[0], 0.1), "line": line}
    written = {"mode": "markers+text", "text": texts, "textposition": places}
    dot = {"size": 7, "color": PALETTE[0]}
    figure = go.Figure()
    figure.add_trace(scatter(x, y, marker=ring, name="spread", **written, **shared))
    figure.add_trace(scatter(x, y, hover, marker=dot, name="values", **shared))
    quiet(figure, height=400)
    figure.update_layout(annotations=[title_of(short_names([title], 46)[0], "")])
    padded = pd.DataFrame(middle + _ROOM * (xy - middle), columns=["x", "y"])
    frame_map(figure, padded, stress)
    return figure


def draw_value_map(context: FigureContext, layer: Layer) -> RenderedFigure | None:
    """The values in one layer as points."""
    values = values_of(context)
    if values is None:
        return None
    names = context.names
    title, name = names.layer_title(layer), names.feature(values[1])
    points = value_distances.value_map(*values, layer)
    stress = value_distances.value_map_stress(*values, layer)
    return RenderedFigure(
        value_map(points, title, stress),
        f"Values of {name} in {title}",
        f"Metric MDS of the values of {name}, by the square root of their separation w_ab. Rings: "
        f"spread of the stimuli of a value. {STRESS} {context.basis}",
        points,
    )


def _of_side(side: int) -> Draw:
    """The map of the values in one of the two layers."""
    return lambda context: draw_value_map(context, context.pair[side]) if context.several else None


for _name, _draw in (
    ("values_map", lambda context: draw_value_map(context, chosen_layer(context))),
    ("values_map_a", _of_side(0)),
    ("values_map_b", _of_side(1)),
):
    figure(_name, "Map of the values", "Values that lie close together are represented alike.")(
        _draw
    )


def value_scatter(
    table: pd.DataFrame, pair: tuple[Layer, Layer], rho: float, named: int = NAMED
) -> go.Figure:
    """The distances of every two values in two layers against each other.

    Parameters
    ----------
    table : value_a, value_b, distance_a, distance_b, difference, n_pairs, see
        `mlem_core.measures.value_distances.compare_layers`
    pair : (model, layer) on the x and on the y axis
    rho : Spearman ρ of the two
    named : how many pairs, those whose ranks differ most and those furthest apart, are named
    """
    xy = table[["distance_a", "distance_b"]].to_numpy(dtype=np.float64)
    highest = np.maximum(xy.max(axis=0, initial=0.0), 1e-12)
    ranks = table[["distance_a", "distance_b"]].rank()
    moved = (ranks["distance_a"] - ranks["distance_b"]).abs()
    far = ranks.sum(axis=1)
    shown = {*moved.nlargest(named).index, *far.nlargest(named).index}
    names = [*dict.fromkeys([*table["value_a"], *table["value_b"]])]
    label = dict(zip(names, short_names(names), strict=True))
    texts = [
        f"{label[row.value_a]} / {label[row.value_b]}" if row.Index in shown else ""
        for row in table.itertuples()
    ]
    titles = [layer_title(layer) for layer in pair]
    axes = layer_titles(pair, TITLE)
    texts, places = uncrowded(xy / highest, texts)
    hover = [
        f"<b>{in_full(str(row.value_a))} and {in_full(str(row.value_b))}</b>"
        f"<br>{titles[0]}: {as_number(row.distance_a)}"
        f"<br>{titles[1]}: {as_number(row.distance_b)}"
        f"<br>{row.n_pairs:,} pairs of stimuli"
        for row in table.itertuples()
    ]
    look = {"size": 8, "color": [PALETTE[0] if text else GREY for text in texts]}
    written = {"text": texts, "textposition": places, "textfont": {"size": SIZE - 1}}
    shared = {"cliponaxis": False, "showlegend": False, "name": "pairs of values"}
    points = scatter(xy[:, 0], xy[:, 1], hover, "markers+text", marker=look, **written, **shared)
    figure = go.Figure([points])
    quiet(figure, height=460)
    for axis, side in ((figure.update_xaxes, 0), (figure.update_yaxes, 1)):
        axis(
            title_text=f"squared distance in {axes[side]}",
            range=[-0.05 * highest[side], 1.12 * highest[side]],
            zeroline=True,
        )
    figure.update_layout(annotations=[title_of(f"Spearman ρ = {as_number(rho, 2)}", "")])
    return figure


@figure(
    "values_compared",
    "Distances of the values",
    "How far apart every two values are in the two layers.",
)
def draw_values_compared(context: FigureContext) -> RenderedFigure | None:
    """The distances of the values in two layers against each other."""
    values = values_of(context)
    if values is None or not context.several:
        return None
    rho, table = value_distances.compare_layers(*values, *context.pair)
    (a, b), name = context.called, context.names.feature(values[1])
    return RenderedFigure(
        value_scatter(table, context.pair, rho),
        f"Distances of the values of {name} in {a} and {b}",
        f"Squared distance of every two values of {name} in the two layers (mean over folds), "
        f"{TARGET_UNITS}. Named: furthest pairs, and most different ranks. "
        f"{context.basis}",
        table,
    )


OPEN = "circle-open"  # what has no level of the second feature, or a rare one


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
    points : stimulus, x, y, label (for hovering) and a column of levels, as text, for each feature
    groups : of `mlem_core.analysis.maps.nested_groups`
    features : two: the first one's levels are the colours, those of the second the marks
    outlines : by the levels of a group, its outline (n_corners, 2)
    title : of the layer
    stress : how far the map is off, see `mlem_core.measures.similarity.map_stress`
    """
    first, second = features
    colors, marks = (
        dict(zip(_frequent(groups, one), cycle, strict=False))
        for one, cycle in ((first, PALETTE), (second, SYMBOLS))
    )
    figure = go.Figure()
    traces = [
        _outline(corners, colors[at[0]]) for at, corners in outlines.items() if at[0] in colors
    ]
    color, mark = points[first].map(colors).fillna(GREY), points[second].map(marks).fillna(OPEN)
    for (hue, symbol), own in points.groupby([color, mark], sort=False):
        # Faint: their centres are what is looked at.
        marker = {"color": hue, "symbol": symbol, "size": 5, "opacity": 0.45}
        drawn = {"marker": marker, "showlegend": False, "name": "stimuli"}
        traces.append(stimuli_trace(own, features) | drawn)
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
    inside = groups[groups["depth"] == 2].merge(
        groups[groups["depth"] == 1], on=features[0], suffixes=("", "_around")
    )
    traces = []
    for level, own in inside[inside[features[0]].isin(list(colors))].groupby(features[0]):
        x, y = (
            np.column_stack([own[f"{axis}_around"], own[axis], np.full(len(own), np.nan)]).ravel()
            for axis in "xy"
        )
        look = {"line": {"color": colors[level], "width": 1.5}, "mode": "lines"}
        traces.append(scatter(x, y, **look, showlegend=False, name="branches"))
    return traces


def _centres(
    groups: pd.DataFrame,
    features: Sequence[str],
    colors: Mapping[str, str],
    marks: Mapping[str, str],
) -> Trace:
    """The centre of each group, the deeper the smaller."""
    own = groups[groups[features[0]].isin(list(colors))]
    keys = list(zip(*(own[one] for one in features), strict=True))
    marker = {
        "color": [colors[key[0]] for key in keys],
        "symbol": [marks.get(key[1], "circle") for key in keys],
        "size": np.where(own["depth"] == 1, 18, 12),
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
