"""Two systems: their importance profiles side by side, and which of their layers match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import FloatArray, IntArray, Layer, layer_name
from mlem_core.figures.captions import joined
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.groups import chosen_systems, systems_of
from mlem_core.figures.naming import layer_title, model_called, model_labels
from mlem_core.figures.profiles import profiles
from mlem_core.figures.style import (
    GREY,
    LEGEND,
    PALETTE,
    SIZE,
    Annotations,
    Trace,
    faded,
    note,
    quiet_layout,
    scatter,
)
from mlem_core.groups.members import warping_path
from mlem_core.groups.profiles import layer_scores


@figure(
    "system_profiles",
    "Profiles of two systems",
    lambda context: f"Importance of each feature over the layers of {_two(context)}.",
    offered=True,
)
def draw_system_profiles(context: FigureContext) -> RenderedFigure | None:
    """The importance profiles of two systems side by side."""
    pair = chosen_systems(context)
    if pair is None:
        return None
    own = [layer for layer in context.selection.layers if layer[0] in pair]
    tables = context.results.importance, context.results.scores[["model", "layer", "fold"]]
    importance, scores = (_of_two(table, pair) for table in tables)
    tested = context.score_tests
    data = None if tested is None else _of_two(tested.table, pair)
    spread = "± 1 sd over folds" if tested is None else f"95 % CI over {context.over}"
    return RenderedFigure(
        profiles(
            importance,
            scores,
            context.terms,
            across=1 if context.drawing.narrow else 2,
            annotations=Annotations(data),
        ),
        f"Importance profiles of {_two(context)}",
        joined(
            f"Drop in held-out ρ when a feature is permuted, in {len(own)} layers (mean over "
            f"folds). Bands: {spread}.",
            context.basis,
        ),
        importance if data is None else data,
    )


def _of_two(table: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    kept = [table[table["model"] == one] for one in pair]
    return pd.concat(kept, ignore_index=True)


def _two(context: FigureContext) -> str:
    pair = chosen_systems(context)
    return "two systems" if pair is None else " and ".join(map(model_called, pair))


@figure(
    "system_alignment",
    "Layers that match",
    "Layers that dynamic time warping puts together. Strong lines: similar profiles.",
    offered=True,
)
def draw_system_alignment(context: FigureContext) -> RenderedFigure | None:
    """The alignment of two systems' profiles by dynamic time warping."""
    of, pair = systems_of(context), chosen_systems(context)
    if of is None or pair is None:
        return None
    values, layers = layer_scores(context.results, context.selection)[0], context.selection.layers
    places = [of.members.places[of.names.index(one)] for one in pair]
    one, other = (values[at, 1:] for at in places)
    path = warping_path(one, other)
    cost = np.linalg.norm(one[path[:, 0]] - other[path[:, 1]], axis=1)
    ends = [[layers[at[k]] for k in path[:, side]] for side, at in enumerate(places)]
    table = pd.DataFrame({"first": map(layer_name, ends[0]), "second": map(layer_name, ends[1])})
    return RenderedFigure(
        _alignment(pair, [[layers[k] for k in at] for at in places], path, cost),
        f"Layers of {_two(context)} that match",
        joined(
            "Layers that dynamic time warping of the importance profiles (mean over folds) puts "
            "together. Darker lines: smaller distance of their profiles.",
            context.basis,
        ),
        table.assign(distance=cost),
    )


def _alignment(
    pair: tuple[str, str], layers: Sequence[Sequence[Layer]], path: IntArray, cost: FloatArray
) -> go.Figure:
    across = [np.linspace(0, 1, len(own)) if len(own) > 1 else np.array([0.5]) for own in layers]
    strength = 1 - 0.85 * cost / (float(cost.max()) or 1.0)
    traces: list[Trace] = [
        scatter(
            [across[0][i], across[1][j]],
            [1, 0],
            mode="lines",
            line={"color": faded(PALETTE[0], float(strong)), "width": 2},
            showlegend=False,
        )
        for (i, j), strong in zip(path, strength, strict=True)
    ]
    layout: dict[str, Any] = quiet_layout(190) | {"annotations": []}
    for name, own, x, y in zip(pair, layers, across, (1, 0), strict=True):
        hover = [f"<b>{layer_title(layer)}</b>" for layer in own]
        marks = {"marker": {"color": GREY, "size": 7}, "showlegend": False, "cliponaxis": False}
        traces.append(scatter(x, np.full(len(x), y), hover, **marks))
        side: dict[str, Any] = {"yanchor": "bottom", "yshift": 8} if y else {"yanchor": "top"}
        side |= {} if y else {"yshift": -8}
        called = model_labels([name], LEGEND)[0]
        shown = {*np.linspace(0, len(own) - 1, min(len(own), 7)).round().astype(int).tolist()}
        font = {"size": SIZE - 2, "color": GREY}
        layout["annotations"] += [
            note(str(layer[1]), float(x[at]), y, font=font, **side)
            for at, layer in enumerate(own)
            if at in shown
        ]
        layout["annotations"].append(note(called, 0, y, within="x", xanchor="right", xshift=-12))
    bare = {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": ""}
    layout["xaxis"] |= bare | {"range": [-0.02, 1.02], "showline": False}
    layout["yaxis"] |= bare | {"range": [-0.35, 1.35], "showline": False}
    layout["margin"] = {"l": 160, "r": 16, "t": 8, "b": 8}
    return go.Figure(traces, layout)
