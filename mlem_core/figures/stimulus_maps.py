"""Maps of the stimuli of a layer: as points, as groups inside groups, and of many layers.

Source: figures 3 and 4 of Salle et al. (2024), figure 6 of Jalouzot et al. (2024).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.base.text import minus
from mlem_core.base.typing import FloatArray
from mlem_core.figures.maps import UNKNOWN, frame_map, heading
from mlem_core.figures.naming import feature_labels, feature_name
from mlem_core.figures.style import (
    GREY,
    LEGEND,
    LEVELS,
    PALETTE,
    SEQUENTIAL,
    SIZE,
    SYMBOLS,
    as_text,
    as_value,
    bar_title,
    common_levels,
    faded,
    mark_of,
    panel_ref,
    panels,
    plain,
    quiet,
)

OPEN = "circle-open"  # what has no level of the second feature, or a rare one
_DEEPEST = 3
_HEIGHT = 200  # px of a panel of several, which is a square


def stimulus_map(
    points: pd.DataFrame,
    color: str,
    kind: str,
    title: str,
    marked: Sequence[int] = (),
    stress: float = UNKNOWN,
) -> go.Figure:
    """Stimuli of one layer as points (MDS of their distances), coloured by a feature.

    Parameters
    ----------
    points : stimulus, x, y, label (for hovering) and the column `color`
    kind : "ordered", or another one, of which each value has a colour; missing values are grey
    marked : stimuli to stand out; the others are then faint
    stress : how far the map is off, see `mlem_core.measures.similarity.map_stress`
    """
    figure = make_subplots(1, 1)
    values = points[color]
    if kind == "ordered":
        values = pd.to_numeric(values, errors="coerce")
    groups = _scale(values, color) if kind == "ordered" else _levels(values)
    if values.isna().any():
        faint = {"color": GREY, "size": 5, "opacity": 0.5, "symbol": "circle-open"}
        groups.insert(0, ("missing", values.isna(), faint))
    for name, chosen, marker in groups:
        shown = points[chosen]
        if len(marked):
            out = shown["stimulus"].isin(marked).to_numpy()
            marker |= _standing_out(out, marker["size"], marker["size"] + 3)
        own: dict[str, Any] = {"name": name, "marker": marker}
        own["showlegend"] = kind != "ordered" or name == "missing"
        figure.add_trace(go.Scatter(_selectable(shown, [color]) | own))
    _finish(figure, 460, title, points, stress)
    if kind != "ordered":
        figure.update_layout(legend_title_text=feature_labels([color], LEGEND)[0])
    else:
        figure.update_layout(legend={"x": 0, "y": 0, "yanchor": "bottom"})
    return figure


def _selectable(points: pd.DataFrame, features: Sequence[str]) -> dict[str, Any]:
    """The trace of stimuli that can be selected; hovering says their features."""
    said = zip(points["label"], *(points[one] for one in features), strict=True)
    names = [feature_name(one) for one in features]
    return {
        "x": points["x"],
        "y": points["y"],
        "mode": "markers",
        # A list: the browser would report numbers of a packed array by another name.
        "customdata": [[int(stimulus)] for stimulus in points["stimulus"]],
        "hovertext": [
            "<br>".join((plain(label, 80), *map(_named, names, values))) for label, *values in said
        ],
        "hoverinfo": "text",
        # What stands out says `marked`, in both maps of two layers alike.
        "unselected": {"marker": {"opacity": None}},
    }


def _named(feature: str, value: Any) -> str:
    return f"{feature}: {plain(as_value(value))}"


def _standing_out(out: np.ndarray, small: int, large: int) -> dict[str, Any]:
    """How stimuli look of which some are marked: (n_stimuli,) `out`."""
    return {"size": np.where(out, large, small), "opacity": np.where(out, 1.0, 0.12)}


def _finish(
    figure: go.Figure, height: int, title: str, points: pd.DataFrame, stress: float, more: str = ""
) -> None:
    """What a map of stimuli has beside them."""
    quiet(figure, height=height)
    frame_map(figure, points, stress, more=more)
    # Dragging selects; the tool bar can still zoom.
    figure.update_layout(title=heading(plain(title, 60)), margin={"t": 44}, dragmode="lasso")


# Name, which stimuli, and how their points look.
_Group = tuple[str, pd.Series, dict[str, Any]]


def _scale(values: pd.Series, color: str) -> list[_Group]:
    """The stimuli with a value of an ordered feature, along a colour scale."""
    there = values.notna()
    marker = {
        "color": values[there],
        "colorscale": SEQUENTIAL,
        "size": 7,
        "opacity": 0.85,
        "colorbar": {
            "title": bar_title(feature_labels([color], LEGEND)[0]),
            "thickness": 12,
            "outlinewidth": 0,
        },
        "showscale": bool(there.any()),
    }
    return [(feature_name(color), there, marker)]


def _levels(values: pd.Series) -> list[_Group]:
    """The stimuli of each common level of a nominal feature, and the others together."""
    texts = values.map(as_text)
    shown, other = common_levels(values, LEVELS)
    groups = []
    for i, level in enumerate(shown):
        # The second eight have the same colours and open marks.
        marker = {
            "color": PALETTE[i % len(PALETTE)],
            "symbol": mark_of(i, i // len(PALETTE)),
            "size": 7,
            "opacity": 0.85,
        }
        groups.append((plain(level), texts == level, marker))
    if other:
        marker = {"color": GREY, "size": 6, "symbol": "hexagon-open"}
        groups.append((f"{len(other)} other values", texts.isin(other), marker))
    return groups


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
    groups : of `mlem_core.measures.nested.nested_groups`
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
            look = _standing_out(own["marked"].to_numpy(), 5, 9)
        marker = {"color": hue, "symbol": symbol, **look}
        drawn = {"marker": marker, "showlegend": False, "name": "stimuli"}
        traces.append(_selectable(own, features) | drawn)
    traces += _branches(groups, features, colors)
    traces.append(_centres(groups, features, colors, marks))
    traces += _legend(features, colors, marks, bool((mark == OPEN).any()))
    figure.add_traces([trace for trace in traces if len(trace["x"])])
    between = groups.groupby("depth")["between"].first()
    shares = [minus(f"{share:.0%}").replace("%", " %") for share in between if np.isfinite(share)]
    said = f"between groups: {', then '.join(shares)}" if shares else ""
    _finish(figure, 500, title, points, stress, said)
    return figure


def _frequent(groups: pd.DataFrame, feature: str) -> list[str]:
    """Its most frequent levels, as many as there are colours, in their own order."""
    tally = groups[groups[feature] != ""].groupby(feature)["n"].sum()
    return sorted(tally.nlargest(len(PALETTE)).index)


def _outline(corners: FloatArray, color: str) -> dict[str, Any]:
    return {
        "x": [*corners[:, 0], corners[0, 0]],
        "y": [*corners[:, 1], corners[0, 1]],
        "mode": "lines",
        "fill": "toself",
        "fillcolor": faded(color, 0.1),
        "line": {"color": faded(color, 0.5), "width": 1, "shape": "spline", "smoothing": 0.6},
        "hoverinfo": "skip",
        "showlegend": False,
        "name": "outline",
    }


def _branches(
    groups: pd.DataFrame, features: Sequence[str], colors: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Lines from the centre of each group to those of the groups inside it."""
    by_level: dict[str, tuple[list[Any], list[Any]]] = {level: ([], []) for level in colors}
    place = {_key(row, features): (row["x"], row["y"]) for row in groups.to_dict("records")}
    for key, (x, y) in place.items():
        depth = sum(level != "" for level in key)
        if depth > 1 and key[0] in by_level:
            parent = place[tuple(key[: depth - 1]) + ("",) * (len(key) - depth + 1)]
            for axis, ends in zip(by_level[key[0]], ((parent[0], x), (parent[1], y)), strict=True):
                axis += [*ends, None]
    return [
        {
            "x": x,
            "y": y,
            "mode": "lines",
            "line": {"color": colors[level], "width": 1.5},
            "hoverinfo": "skip",
            "showlegend": False,
            "name": "branches",
        }
        for level, (x, y) in by_level.items()
    ]


def _key(row: Mapping[Any, Any], features: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(row[one]) for one in features)


def _centres(
    groups: pd.DataFrame,
    features: Sequence[str],
    colors: Mapping[str, str],
    marks: Mapping[str, str],
) -> dict[str, Any]:
    """The centre of each group, the deeper the smaller."""
    own = groups[groups[features[0]].isin(list(colors))]
    keys = [_key(row, features) for row in own.to_dict("records")]
    return {
        "x": own["x"].tolist(),
        "y": own["y"].tolist(),
        "mode": "markers",
        "marker": {
            "color": [colors[key[0]] for key in keys],
            "symbol": [marks.get(key[1], "circle") for key in keys],
            "size": [(18, 12, 7)[min(depth, _DEEPEST) - 1] for depth in own["depth"]],
            "line": {"color": "white", "width": 1.5},
        },
        "hovertext": [
            "<b>" + ", ".join(plain(level) for level in key if level) + f"</b><br>{n:,} stimuli"
            for key, n in zip(keys, own["n"], strict=True)
        ],
        "hoverinfo": "text",
        "showlegend": False,
        "name": "centres",
    }


def _legend(
    features: Sequence[str],
    colors: Mapping[str, str],
    marks: Mapping[str, str],
    others: bool,
) -> list[dict[str, Any]]:
    """An entry a level, under the name of its feature."""
    names = feature_labels(list(features), LEGEND)
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
        {
            "x": [None],
            "y": [None],
            "mode": "markers",
            "marker": marker,
            "name": plain(level),
            "legendgroup": str(place),
            "legendgrouptitle": {
                "text": f"{'and ' if place else ''}{names[place]}",
                "font": {"size": SIZE},
            },
            "hoverinfo": "skip",
        }
        for place, level, marker in entries
    ]


def map_panels(maps: Sequence[go.Figure], across: int = 4) -> go.Figure:
    """One panel a map, with one legend for all.

    Parameters
    ----------
    maps : of `stimulus_map`, coloured by one feature
    across : panels beside each other
    """
    titles = [one.layout.title.text for one in maps]
    figure, _ = panels(titles, height=_HEIGHT, across=across, apart=0.03, below=56)
    annotations = [title.to_plotly_json() for title in figure.layout.annotations]
    traces: list[dict[str, Any]] = []
    seen: set[str] = set()
    for place, one in enumerate(maps):
        ref = panel_ref(place)
        for trace in one.data:
            small = as_small(trace.to_plotly_json(), first=place == 0)
            # A level may be in no stimulus of the first layer's sample.
            new = trace.name not in seen and trace.showlegend is not False
            seen.add(trace.name)
            axes = {"xaxis": f"x{ref}", "yaxis": f"y{ref}", "legend": "legend"}
            traces.append(small | axes | {"showlegend": new})
        for name, other in (("x", "y"), ("y", "x")):
            axis = one.layout[f"{name}axis"].to_plotly_json()
            kept = {key: value for key, value in axis.items() if key not in ("domain", "anchor")}
            kept |= {"anchor": other + ref}
            if name == "y":
                kept |= {"scaleanchor": f"x{ref}"}
            figure.update_layout({f"{name}axis{ref}": kept})
        refs = {"xref": f"x{ref} domain", "yref": f"y{ref} domain"}
        annotations += [below.to_plotly_json() | refs for below in one.layout.annotations]
    figure.layout.annotations = annotations
    figure.add_traces(traces)
    rows = math.ceil(len(maps) / across)
    figure.update_layout(
        legend_title_text=maps[0].layout.legend.title.text,
        height=(_HEIGHT + 56) * rows + 60,
        margin={"t": 36, "b": 32},
    )
    return figure


def as_small(trace: dict[str, Any], first: bool, narrow: bool = False) -> dict[str, Any]:
    """A trace of a map that stands beside others: smaller points, one legend for all maps.

    Parameters
    ----------
    first : whether it is of the first of them, which has the legend and the scale
    narrow : the scale below the maps
    """
    marker = {**trace["marker"], "size": 4}
    if "colorbar" in marker:
        bar = {"lenmode": "pixels", "len": 150, "x": 1.02, "xanchor": "left"}
        bar |= {"y": 0, "yanchor": "bottom"}
        if narrow:
            bar |= {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.02, "yanchor": "top"}
        marker |= {"colorbar": {**marker["colorbar"], **bar}}
        marker["showscale"] = first and marker["showscale"]
    shown = first and trace.get("showlegend") is not False
    return trace | {
        "marker": marker,
        "legendgroup": f"stimuli {trace['name']}",
        "showlegend": shown,
    }
