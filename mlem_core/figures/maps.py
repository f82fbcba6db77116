"""Maps in which similar points lie close together, with frame, labels and stress; of the layers.

The maps of the layers are those of figure 2 of Salle et al. (2024).
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.labels import width
from mlem_core.base.text import stress_in_words
from mlem_core.figures.captions import STRESS, joined
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import (
    feature_name,
    layer_labels,
    layer_title,
    model_colors,
    model_labels,
)
from mlem_core.figures.style import (
    FAINT,
    GREY,
    LEGEND,
    SIZE,
    SYMBOLS,
    Trace,
    as_number,
    faded,
    note,
    once_in_legend,
    panel_layout,
    place_in_panel,
    scatter,
)

UNKNOWN = math.nan
NOT_KNOWN: Mapping[str, float] = MappingProxyType({})
_NAMED = 12  # layers of a model that all have their names


def frame_map(figure: go.Figure, points: pd.DataFrame, stress: float, ref: str = "") -> None:
    """A square frame with the same scale on both sides, as only distances mean something; below it,
    where it is known, how far they are off.

    Parameters
    ----------
    points : x, y of all that is in the panel
    stress : see `mlem_core.measures.similarity.map_stress`
    ref : what Plotly writes behind x and y for the panel
    """
    bare = {"showticklabels": False, "zeroline": False, "showgrid": False}
    frame = {"showline": True, "mirror": True, "linecolor": FAINT, "constrain": "domain"}
    centre = {key: (points[key].max() + points[key].min()) / 2 for key in ("x", "y")}
    half = max((float(np.ptp(points[key])) / 2 for key in centre if len(points)), default=0.0)
    half = 1.1 * half or 1.0
    axes: dict[str, dict[str, Any]] = {
        key: {"range": [middle - half, middle + half], **bare, **frame}
        for key, middle in centre.items()
    }
    axes["y"]["scaleanchor"] = f"x{ref}"
    figure.update_layout({f"{key}axis{ref}": axis for key, axis in axes.items()})
    text = stress_in_words(stress)
    if text:
        look = {"yanchor": "top", "yshift": -5, "font": {"size": SIZE - 1, "color": GREY}}
        figure.add_annotation(note(text, 0.5, 0, ref, "xy", **look))


def heading(text: str) -> dict[str, Any]:
    """The title of a figure of one panel."""
    return {
        "text": text,
        "font": {"size": SIZE + 1, "weight": 400},
        "x": 0.5,
        "xref": "paper",
        "xanchor": "center",
    }


_SIDES = {
    "top right": (1, 1),
    "top left": (-1, 1),
    "bottom right": (1, -1),
    "bottom left": (-1, -1),
    "top center": (0, 1),
    "bottom center": (0, -1),
}
# In parts of a panel: from a point to its label, and from its middle to the edge of its mark.
_GAP, _MARK = 0.02, 0.012


def _label_box(point: np.ndarray, label: str, place: str) -> tuple[float, float, float, float]:
    """The corners of a label beside its point, in parts of a panel of about 300 px."""
    (x, y), high, wide = point.tolist(), 0.06, 0.024 * width(html.unescape(label))
    a, b = _SIDES[place]
    left = x + (_GAP if a > 0 else -_GAP - wide if a < 0 else -wide / 2)
    low = y + (_GAP if b > 0 else -_GAP - high if b < 0 else -high / 2)
    return left, low, left + wide, low + high


def uncrowded(points: np.ndarray, labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Labels of points in [0, 1]² with their places; "" for those that would stand on others."""
    taken = [(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in points]
    texts, places = [""] * len(labels), ["top right"] * len(labels)
    # Those with most room around them first.
    near = np.linalg.norm(points[:, None] - points, axis=2)
    for i in np.argsort(-np.sort(near, axis=1)[:, 1:4].sum(axis=1)).tolist():
        others = taken[:i] + taken[i + 1 :]
        for place in _SIDES if labels[i] else ():
            x0, y0, x1, y1 = box = _label_box(points[i], labels[i], place)
            free = all(x1 <= a or c <= x0 or y1 <= b or d <= y0 for a, b, c, d in others)
            if free and x0 >= -0.1 and x1 <= 1.15:
                texts[i], places[i] = labels[i], place
                taken.append(box)
                break
    return texts, places


def layer_maps(
    layer_map: pd.DataFrame,
    importance: pd.DataFrame | None = None,
    across: int = 2,
    stress: Mapping[str, float] = NOT_KNOWN,
) -> go.Figure:
    """Map of layers (MDS), similar ones close together, a line a model, one panel a measure.

    Parameters
    ----------
    layer_map : measure ("profiles" or "rsa"), model, layer, x, y
    importance : model, layer, fold, feature, importance; what hovering over a layer tells of it
    across : 2 beside each other, 1 below each other
    stress : by measure, how far the map is off, see `mlem_core.measures.similarity.map_stress`
    """
    models = list(dict.fromkeys(layer_map["model"]))
    labels, colors = model_labels(models, LEGEND), model_colors(models)
    profiles = {} if importance is None else _profiles_in_words(importance)
    titles = {"profiles": "by feature importance", "rsa": "by neural distances (RSA)"}
    height = 400 if across == 2 else 340
    layout, places = panel_layout(
        list(titles.values()), height=height, across=across, apart=0.06, below=66
    )
    traces: list[Trace] = []
    for measure, (ref, _) in zip(titles, places, strict=True):
        numbered = _numbered(layer_map[layer_map["measure"] == measure])
        for i, (model, color) in enumerate(zip(models, colors, strict=True)):
            points = numbered[numbered["model"] == model]
            hover = [
                f"<b>{layer_title((model, n))}</b>{profiles.get((model, n), '')}"
                for n in points["layer"]
            ]
            trace = scatter(points["x"], points["y"], hover, "lines+markers+text") | {
                "name": labels[i],
                "legendgroup": model,
                "line": {"color": faded(color, 0.45), "width": 1.5},
                "marker": {
                    "color": color,
                    "symbol": SYMBOLS[i % len(SYMBOLS)],
                    # Depth can be seen without counting: points grow with the layer.
                    "size": np.linspace(6, 12, len(points)) if len(points) > 1 else 10,
                    "opacity": 0.9,
                },
                "selected": {"marker": {"opacity": 1, "size": 16}},
                "unselected": {"marker": {"opacity": 0.55}},
                "text": points["text"],
                "textposition": points["place"],
                "cliponaxis": False,
                "customdata": points[["model", "layer"]].to_numpy(dtype=object),
            }
            traces += place_in_panel(ref, [trace])
    figure = go.Figure(once_in_legend(traces), layout)
    figure.update_layout(legend_itemsizing="constant")
    for measure, (ref, _) in zip(titles, places, strict=True):
        of_measure = layer_map[layer_map["measure"] == measure]
        frame_map(figure, of_measure, stress.get(measure, UNKNOWN), ref)
    return figure


def _numbered(points: pd.DataFrame) -> pd.DataFrame:
    """Points of the layers in one map, in order, with the text at each and its place."""
    points = points.sort_values("layer").reset_index(drop=True)
    xy = points[["x", "y"]].to_numpy(dtype=np.float64)
    texts = pd.Series("", index=points.index)
    for model, rows in points.groupby("model", sort=False):
        # The numbers of the first and the last; names at all, while they are few.
        layers, last = [(str(model), int(number)) for number in rows["layer"]], len(rows) - 1
        texts[rows.index] = [
            label if at in (0, last) or (last < _NAMED and label != str(layer[1])) else ""
            for at, (label, layer) in enumerate(zip(layer_labels(layers), layers, strict=True))
        ]
    # Points and numbers are as large on the way across as on the way up.
    span = float(np.ptp(xy, axis=0).max()) or 1.0
    texts, places = uncrowded((xy - xy.min(axis=0)) / span, list(texts))
    return points.assign(text=texts, place=places)


def _profiles_in_words(importance: pd.DataFrame) -> dict[tuple[str, int], str]:
    """The four features that matter most in each layer, as lines of a hover text."""
    means = importance.groupby(["model", "layer", "feature"], sort=False)["importance"].mean()
    words = {}
    for (model, layer), profile in means.groupby(level=["model", "layer"], sort=False):
        top = profile.droplevel(["model", "layer"]).nlargest(4)
        lines = [
            f"<br>{feature_name(str(name))}: FI = {as_number(value)}" for name, value in top.items()
        ]
        words[(str(model), int(layer))] = "".join(lines)
    return words


@figure(
    "layer_maps",
    "Maps of the layers",
    "Similar layers lie close together. Click two of them to compare them.",
    offered=True,
)
def draw_layer_maps(context: FigureContext) -> RenderedFigure | None:
    """The layers as points."""
    results = context.results
    if not context.several:
        return None
    across = 1 if context.drawing.narrow else 2
    return RenderedFigure(
        layer_maps(results.layer_map, results.importance, across, results.map_stress),
        "Maps of the layers",
        joined(
            "Metric MDS of 1 − similarity: similar layers lie close together. A line joins the "
            "layers of a model in order.",
            STRESS,
            context.basis,
        ),
        results.layer_map,
    )
