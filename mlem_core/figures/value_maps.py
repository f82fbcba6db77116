"""The values of a feature as points, and their distances in two layers against each other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import Layer
from mlem_core.figures.captions import STRESS
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.maps import UNKNOWN, frame_map, uncrowded
from mlem_core.figures.naming import layer_title, layer_titles
from mlem_core.figures.style import (
    GREY,
    PALETTE,
    SIZE,
    TITLE,
    as_number,
    faded,
    in_full,
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


@figure("values_map", "Map of the values", "Values that lie close together are represented alike.")
def draw_value_map(context: FigureContext) -> RenderedFigure | None:
    """The values in the chosen layer as points."""
    values = values_of(context)
    if values is None:
        return None
    names, layer = context.names, chosen_layer(context)
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


def value_scatter(table: pd.DataFrame, pair: tuple[Layer, Layer], rho: float) -> go.Figure:
    """The distances of every two values in two layers against each other.

    Parameters
    ----------
    table : value_a, value_b, distance_a, distance_b, difference, n_pairs, see
        `mlem_core.measures.value_distances.compare_layers`
    pair : (model, layer) on the x and on the y axis
    rho : Spearman ρ of the two
    """
    xy = table[["distance_a", "distance_b"]].to_numpy(dtype=np.float64)
    highest = np.maximum(xy.max(axis=0, initial=0.0), 1e-12)
    ranks = table[["distance_a", "distance_b"]].rank()
    moved = (ranks["distance_a"] - ranks["distance_b"]).abs()
    far = ranks.sum(axis=1)
    shown = {*moved.nlargest(NAMED).index, *far.nlargest(NAMED).index}
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
