"""Maps in which similar points lie close together, with frame and labels; of the layers.

The maps of the layers are those of figure 2 of Salle et al. (2024).
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.labels import width
from mlem_core.base.text import fraction, listed
from mlem_core.base.typing import parse_layer
from mlem_core.figures.captions import joined, stress_sentence
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import (
    layer_labels,
    layer_title,
    model_colors,
    model_families,
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
    escape_text,
    faded,
    note,
    once_in_legend,
    panel_layout,
    place_in_panel,
    scatter,
)

# Above this stress a map of layers shows no distances; the most similar layers are listed instead.
READABLE = 0.2
_TITLES = {"profiles": "by feature importance", "rsa": "by neural distances (RSA)"}
_FEW, _LISTED = 3, 12  # models that share a map; models that are listed each
_NAMED = 12  # layers of a model that all have their names


def frame_map(figure: go.Figure, points: pd.DataFrame, ref: str = "") -> None:
    """A square frame with the same scale on both sides, as only distances mean something.

    Parameters
    ----------
    points : x, y of all that is in the panel
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
    across: int = 3,
    unreadable: Mapping[str, pd.DataFrame] = MappingProxyType({}),
) -> go.Figure:
    """Map of layers (MDS), similar ones close together, a line a model.

    Up to three models share a panel a measure. Of more each family has a small map, in which the
    layers of the others are grey.

    Parameters
    ----------
    layer_map : measure ("profiles" or "rsa"), model, layer, x, y
    across : panels beside each other
    unreadable : by measure the (n_layers, n_layers) similarities, named "model:layer", where a map
        is too far off: the most similar layers are listed in its place
    """
    models = list(dict.fromkeys(layer_map["model"]))
    families = {name: list(members) for name, members in model_families(models).items()}
    if len(models) <= _FEW:
        families = {"": models}
    panels: list[tuple[str, str]] = []
    rows = []
    for measure in _TITLES:
        names = [""] if measure in unreadable else list(families)
        panels += [(measure, name) for name in names]
        rows += [min(across, len(names) - at) for at in range(0, len(names), across)]
    if len(families) == 1:
        rows = [1, 1] if across == 1 else [2]
    titles = [
        escape_text(name) or "most similar layers " * (measure in unreadable) + _TITLES[measure]
        for measure, name in panels
    ]
    height = {1: 340, 2: 400}.get(max(rows), 250)
    layout, places = panel_layout(titles, height=height, apart=0.06, below=40, rows=rows)
    traces: list[Trace] = []
    for (measure, name), (ref, first) in zip(panels, places, strict=True):
        points = layer_map[layer_map["measure"] == measure]
        if measure in unreadable:
            traces += place_in_panel(ref, [scatter([None], [None], showlegend=False)])
            text = "<br>".join(map(escape_text, nearest_layers(unreadable[measure])))
            at = {"xanchor": "left", "yanchor": "top", "align": "left"}
            layout["annotations"].append(note(text, 0, 0.98, ref, "xy", **at))
            bare = {"visible": False}
            layout[f"xaxis{ref}"] |= bare | ({} if len(families) == 1 else {"domain": [0, 1]})
            layout[f"yaxis{ref}"] |= bare
            continue
        members = families[name]
        others = points[~points["model"].isin(members)]
        if len(others):
            grey = {"color": faded(GREY, 0.4), "size": 4}
            grey_points = scatter(others["x"], others["y"], marker=grey, showlegend=False)
            traces += place_in_panel(ref, [grey_points | {"name": "other models"}])
        shown = points[points["model"].isin(members)]
        lines = _model_lines(shown, members, models)
        alone = len(members) == 1
        traces += place_in_panel(ref, lines, **({"showlegend": False} if alone else {}))
        if name and first:
            layout[f"yaxis{ref}"]["title"]["text"] = _TITLES[measure]
    figure = go.Figure(once_in_legend(traces), layout)
    figure.update_layout(legend_itemsizing="constant")
    for (measure, _), (ref, _) in zip(panels, places, strict=True):
        if measure not in unreadable:
            frame_map(figure, layer_map[layer_map["measure"] == measure], ref)
    return figure


def _model_lines(
    points: pd.DataFrame, members: Sequence[str], models: Sequence[str]
) -> list[Trace]:
    """The line of each member through its layers, in the colour that it has among all models."""
    colors = dict(zip(models, model_colors(models), strict=True))
    names = dict(zip(models, model_labels(models, LEGEND), strict=True))
    numbered, traces = _numbered(points), []
    for i, model in enumerate(members):
        own = numbered[numbered["model"] == model]
        hover = [layer_title((model, int(n))) for n in own["layer"]]
        trace = scatter(own["x"], own["y"], hover, "lines+markers+text") | {
            "name": names[model],
            "legendgroup": model,
            "line": {"color": faded(colors[model], 0.45), "width": 1.5},
            "marker": {
                "color": colors[model],
                "symbol": SYMBOLS[i % len(SYMBOLS)],
                # Depth can be seen without counting: points grow with the layer.
                "size": np.linspace(5, 10, len(own)) if len(own) > 1 else 9,
                "opacity": 0.9,
            },
            "text": own["text"],
            "textposition": own["place"],
            "cliponaxis": False,
        }
        traces.append(trace)
    return traces


def nearest_layers(square: pd.DataFrame) -> list[str]:
    """The most similar layers of each model, or of each family of many, and of another one.

    Parameters
    ----------
    square : (n_layers, n_layers) similarities, named "model:layer"
    """
    layers = [parse_layer(name) for name in square.index]
    families = model_families(list(dict.fromkeys(model for model, _ in layers)))
    of_model = {model: name for name, models in families.items() for model in models}
    family = np.array([of_model[model] if len(families) > 1 else model for model, _ in layers])
    group = np.array([model for model, _ in layers]) if len(of_model) <= _LISTED else family
    values, lines = square.to_numpy(dtype=np.float64), dict[tuple[int, ...], str]()
    for name in dict.fromkeys(group):
        here = np.flatnonzero(group == name)
        others = np.flatnonzero(family != family[here[0]])
        if len(others) == 0:
            continue
        block = np.nan_to_num(values[np.ix_(here, others)], nan=-2.0)
        a, b = np.unravel_index(block.argmax(), block.shape)
        pair = sorted((int(here[a]), int(others[b])))
        first, second = (layer_title(layers[at]) for at in pair)
        lines[tuple(pair)] = f"{first} and {second}: {as_number(float(block.max()), 2)}"
    return list(lines.values())


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


@figure("layer_maps", "Maps of the layers", offered=True)
def draw_layer_maps(context: FigureContext) -> RenderedFigure | None:
    """The layers as points."""
    results = context.results
    if not context.several:
        return None
    squares = {"profiles": results.similarity_profiles, "rsa": results.similarity_rsa}
    stress = results.map_stress
    unreadable = {name: squares[name] for name, value in stress.items() if value > READABLE}
    models = {model for model, _ in context.selection.layers}
    across = 3 if len(models) > _FEW else 1 if context.drawing.narrow else 2
    measures = [_TITLES[name] for name in unreadable]
    return RenderedFigure(
        layer_maps(results.layer_map, across, unreadable),
        joined(
            "Metric MDS of 1 − similarity; a line joins the layers of a model in order."
            * (len(unreadable) < len(stress)),
            "Grey: other models." * (len(models) > _FEW),
            stress_sentence(*(value for value in stress.values() if value <= READABLE)),
            f"No map {listed(measures)} (stress above {fraction(READABLE)}): the most similar "
            "layers of every two models." * bool(measures),
            context.basis,
        ),
        results.layer_map,
    )
