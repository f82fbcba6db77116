"""How alike the layers are: the two matrices and their maps (figure 2 of Salle et al. 2024)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.base.typing import FloatArray, Layer, parse_layer
from mlem_core.figures.style import (
    INK,
    MODEL_COLORS,
    NO_ANNOTATIONS,
    SIZE,
    SYMBOLS,
    Annotations,
    as_number,
    as_numbers,
    as_p,
    bare_axes,
    color_bar,
    faded,
    model_blocks,
    panel_ref,
    panel_title,
    plain,
    quiet,
    sparse_ticks,
    wrapped,
)

Pair = tuple[Layer, Layer]

_SIDE = 300  # px; of a matrix in a window of usual width
_LETTER = 7  # px; of a letter
_ROOMY = 8  # layers of a matrix whose cells have room for a number
_NAME = 16  # letters of a model's name that are shown


def similarity_matrices(
    profiles: pd.DataFrame,
    rsa: pd.DataFrame,
    across: int = 2,
    annotations: Annotations = NO_ANNOTATIONS,
    pair: Pair | None = None,
) -> go.Figure:
    """How alike all layers are, by their profiles and by RSA (figure 2 of Salle et al. 2024).

    Each cell is the point of a scatter too, as those can be selected; its `customdata` is
    (model, layer, model, layer).

    Parameters
    ----------
    profiles, rsa : (n_layers, n_layers) weighted Kendall τ and Spearman ρ, named "model:layer"
    across : 2 beside each other, 1 below each other
    annotations : intervals (layer_a, layer_b, weighted_tau_lower, weighted_tau_upper, rsa_lower,
        rsa_upper, rsa_p_corrected, see `mlem_core.inference.tables`) are told on hovering;
        flags are two mappings, "tau" and "rsa", of pairs of layers (in both orders), each drawn as
        a dot in its cell
    pair : the two layers whose cell is outlined in both matrices, with its value
    """
    figure = make_subplots(3 - across, across, horizontal_spacing=0.08, vertical_spacing=0.14)
    layers = [parse_layer(name) for name in profiles.index]
    blocks = model_blocks(layers)
    for place, (square, measure) in enumerate(zip((profiles, rsa), _MEASURES, strict=True)):
        at = {"row": 1 + place * (across == 1), "col": 1 + place * (across == 2)}
        values = square.to_numpy(dtype=np.float64)
        hover = _interval_texts(annotations.intervals, profiles.index, measure.column)
        flags = annotations.flags.get(measure.key, {})
        for trace in _matrix_traces(values, layers, measure, hover, flags):
            figure.add_trace(trace, **at)
        for start, _, _ in blocks[1:]:
            span = {"line": {"color": "rgba(255,255,255,0.9)", "width": 1.2}}
            figure.add_vline(x=start - 0.5, **at, **span)
            figure.add_hline(y=start - 0.5, **at, **span)
        figure.update_layout({measure.scale: _scale(values, place, across)})
        ref = panel_ref(place)
        _name_models(figure, blocks, ref, left=place == 0 or across == 1)
        panel_title(figure, f"{measure.title}: {measure.unit}", ref)
        if pair is not None:
            _outline(figure, values, [layers.index(layer) for layer in pair], ref)
    quiet(figure, height=500 if across == 2 else 820)
    ends, shared = [-0.5, len(layers) - 0.5], _cell_axes(layers, blocks)
    figure.update_xaxes(range=ends, **shared)
    figure.update_yaxes(range=ends[::-1], **shared)
    figure.update_layout(yaxis_scaleanchor="x", yaxis2_scaleanchor="x2")
    right, below = (16, 116) if across == 2 else (112, 64)
    if across == 2:
        figure.update_layout(yaxis2_showticklabels=False)
    left = _left_margin(blocks)
    figure.update_layout(margin={"l": left, "r": right, "t": 40, "b": below})
    return figure


def rsa_matrix(
    rsa: pd.DataFrame,
    chosen: Pair | None = None,
    flags: Mapping[Pair, str] = NO_ANNOTATIONS.flags,
) -> go.Figure:
    """How alike all layers are by RSA alone, as wide as high, to choose two layers from.

    Its cells can be selected as those of `similarity_matrices`.

    Parameters
    ----------
    rsa : (n_layers, n_layers) Spearman ρ, named "model:layer"
    chosen : the two layers whose cells are outlined, with their value
    flags : why pairs of layers (in both orders) are flagged; told on hovering, not drawn
    """
    layers, measure = [parse_layer(name) for name in rsa.index], _MEASURES[1]
    blocks, n, values = model_blocks(layers), len(layers), rsa.to_numpy(dtype=np.float64)
    hover = np.full((n, n), "", dtype=object)
    heatmap, points, *_ = _matrix_traces(values, layers, measure, hover, flags)
    figure = go.Figure([heatmap, points])
    for start, _, _ in blocks[1:]:
        span = {"line": {"color": "rgba(255,255,255,0.9)", "width": 1.2}}
        figure.add_vline(x=start - 0.5, **span)
        figure.add_hline(y=start - 0.5, **span)
    if chosen is not None:
        _outline(figure, values, [layers.index(layer) for layer in chosen], "")
    _name_models(figure, blocks, "", left=True)
    quiet(figure, height=520)
    scale = _scale(values, 0, 2)
    scale["colorbar"] |= {"x": 0.5, "len": 0.6}
    figure.update_layout({measure.scale: scale})
    ends = [-0.5, n - 0.5]
    shared = _cell_axes(layers, blocks)
    figure.update_xaxes(range=ends, **shared)
    figure.update_yaxes(range=ends[::-1], scaleanchor="x", constraintoward="top", **shared)
    figure.update_layout(margin={"l": _left_margin(blocks), "r": 8, "t": 8, "b": 116})
    return figure


def _outline(figure: go.Figure, values: FloatArray, chosen: Sequence[int], ref: str) -> None:
    """Outline the cells of two layers, and write their value in the cell, or beside a small one."""
    n, (i, j) = len(values), sorted(chosen)
    for x, y in {(i, j), (j, i)}:
        for color, width in (("white", 5), (INK, 2)):
            figure.add_shape(
                type="rect", x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5,
                xref=f"x{ref}", yref=f"y{ref}", line={"color": color, "width": width},
            )  # fmt: skip
    # The cell of the upper right half; a label beside it goes towards the middle of the matrix.
    right, low = j < (n - 1) / 2, i >= (n - 1) / 2
    place: dict[str, Any] = {"x": j, "y": i}
    if n > _ROOMY:
        place = {
            "x": j + (0.5 if right else -0.5),
            "y": i + (-0.5 if low else 0.5),
            "xanchor": "left" if right else "right",
            "yanchor": "bottom" if low else "top",
            "xshift": 3 if right else -3,
            "yshift": 3 if low else -3,
        }
    figure.add_annotation(
        **place,
        xref=f"x{ref}",
        yref=f"y{ref}",
        text=as_number(values[i, j], 2),
        showarrow=False,
        font={"color": INK, "size": SIZE},
        bgcolor="rgba(255,255,255,0.88)",
        borderpad=2,
    )


class _Measure(NamedTuple):
    key: str  # in the flags
    column: str  # begins its columns in the table of intervals
    title: str
    unit: str
    scale: str


_MEASURES = (
    _Measure("tau", "weighted_tau", "by feature importance", "weighted Kendall τ", "coloraxis"),
    _Measure("rsa", "rsa", "by neural distances (RSA)", "Spearman ρ", "coloraxis2"),
)


def _matrix_traces(
    values: FloatArray,
    layers: Sequence[Layer],
    measure: _Measure,
    hover: np.ndarray,
    flags: Mapping[Pair, str],
) -> list[go.Heatmap | go.Scatter]:
    """The heatmap, a point a cell (for hovering and selecting), and a dot in each flagged cell."""
    n = len(layers)
    names = [f"{plain(model)} {layer}" for model, layer in layers]
    columns, rows = (part.ravel() for part in np.meshgrid(np.arange(n), np.arange(n)))
    cells = list(itertools.product(range(n), repeat=2))  # row by row
    reasons = [flags.get((layers[row], layers[column]), "") for row, column in cells]
    heatmap = go.Heatmap(
        z=values,
        x=np.arange(n),
        y=np.arange(n),
        coloraxis=measure.scale,
        hoverinfo="skip",
        name=measure.title,
    )
    points = go.Scatter(
        x=columns,
        y=rows,
        mode="markers",
        # Never seen; the nearest one answers for its cell.
        marker={"symbol": "square", "size": 9, "opacity": 0},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        customdata=[(*layers[row], *layers[column]) for row, column in cells],
        hovertext=[
            f"{names[row]} and {names[column]}<br>{measure.unit} = {text}{hover[row, column]}"
            + (f"<br>audit: {wrapped(why)}" if why else "")
            for (row, column), text, why in zip(
                cells, as_numbers(values.ravel()), reasons, strict=True
            )
        ],
        hoverinfo="text",
        showlegend=False,
        name=f"cells {measure.title}",
    )
    dots = np.flatnonzero([bool(why) for why in reasons])
    if not len(dots):
        return [heatmap, points]
    flagged = go.Scatter(
        x=columns[dots],
        y=rows[dots],
        mode="markers",
        marker={"size": 3, "color": "white", "opacity": 0.75},
        hoverinfo="skip",
        showlegend=False,
        name=f"audit {measure.title}",
    )
    return [heatmap, points, flagged]


def _cell_axes(layers: Sequence[Layer], blocks: list[tuple[int, int, str]]) -> dict[str, Any]:
    """What both axes of a matrix share."""
    return {
        **sparse_ticks(layers, blocks),
        "showgrid": False,
        "zeroline": False,
        "constrain": "domain",
        "ticks": "",
        "tickangle": 0,
    }


def _left_margin(blocks: list[tuple[int, int, str]]) -> int:
    """px for the names of the models to the left of a matrix."""
    if _have_room(blocks):
        return 76
    return 34 + _LETTER * max(len(plain(model, _NAME)) for *_, model in blocks)


def _scale(values: FloatArray, place: int, across: int) -> dict[str, Any]:
    """The colour scale of a matrix: below it, or beside it where one is below the other."""
    known = values[np.isfinite(values)]
    low = min(0.9, math.floor(known.min() * 10) / 10) if known.size else 0.0
    scale = color_bar(low, 0.23 if place == 0 else 0.77)
    if across == 1:
        scale["colorbar"] |= {
            "orientation": "v",
            "len": 0.36,
            "x": 1.01,
            "xanchor": "left",
            "y": 0.785 if place == 0 else 0.215,
            "yref": "paper",
            "yanchor": "middle",
        }
    return scale


def _name_models(
    figure: go.Figure, blocks: list[tuple[int, int, str]], ref: str, *, left: bool
) -> None:
    """The name of each model beside its layers, below a matrix and (`left`) to its left.

    Along the sides where all have room, else at an angle.
    """
    along = _have_room(blocks)
    below: dict[str, Any] = {"yshift": -44}
    beside: dict[str, Any] = {"xshift": -48, "textangle": -90}
    if not along:
        slanted = {"textangle": -30, "xanchor": "right", "yanchor": "top"}
        below = {"yshift": -24, "xshift": 8, **slanted}
        beside = {"xshift": -24, "xanchor": "right"}
    for start, stop, model in blocks:
        middle = (start + stop - 1) / 2
        shared = {"text": plain(model, _NAME), "showarrow": False}
        figure.add_annotation(
            x=middle, xref=f"x{ref}", y=0, yref=f"y{ref} domain", **shared, **below
        )
        if left:
            figure.add_annotation(
                y=middle, yref=f"y{ref}", x=0, xref=f"x{ref} domain", **shared, **beside
            )


def _have_room(blocks: list[tuple[int, int, str]]) -> bool:
    """Whether each model's name is shorter than its part of a side."""
    n = blocks[-1][1]
    return all(
        (stop - start) / n * _SIDE > _LETTER * len(plain(model, _NAME))
        for start, stop, model in blocks
    )


def _interval_texts(table: pd.DataFrame | None, names: pd.Index, measure: str) -> np.ndarray:
    """(n_layers, n_layers) what hovering over a cell says of its interval and test."""
    texts = np.full((len(names), len(names)), "", dtype=object)
    if table is None:
        return texts
    place = {name: at for at, name in enumerate(names)}
    for _, row in table.iterrows():
        low, high = (as_number(row[f"{measure}_{end}"]) for end in ("lower", "upper"))
        text = f"<br>95 % interval {low} to {high}"
        if f"{measure}_p_corrected" in row.index:
            text += f"<br>other than 0: p {as_p(row[f'{measure}_p_corrected'])} (corrected)"
        a, b = place[row["layer_a"]], place[row["layer_b"]]
        texts[a, b] = texts[b, a] = text
    return texts


def layer_maps(
    layer_map: pd.DataFrame, importance: pd.DataFrame | None = None, across: int = 2
) -> go.Figure:
    """Layers as points, near where alike (MDS), a line a model, one panel a measure.

    Parameters
    ----------
    layer_map : measure ("profiles" or "rsa"), model, layer, x, y
    importance : model, layer, fold, feature, importance; what hovering over a layer tells of it
    across : 2 beside each other, 1 below each other
    """
    figure = make_subplots(3 - across, across, horizontal_spacing=0.06, vertical_spacing=0.1)
    models = list(dict.fromkeys(layer_map["model"]))
    profiles = {} if importance is None else _profiles_in_words(importance)
    measures = (("profiles", "by feature importance"), ("rsa", "by neural distances (RSA)"))
    for place, (measure, title) in enumerate(measures):
        at = {"row": 1 + place * (across == 1), "col": 1 + place * (across == 2)}
        for i, model in enumerate(models):
            points = layer_map[(layer_map["measure"] == measure) & (layer_map["model"] == model)]
            points = points.sort_values("layer")
            color = MODEL_COLORS[i % len(MODEL_COLORS)]
            ends = {0, len(points) - 1}
            figure.add_trace(
                go.Scatter(
                    x=points["x"],
                    y=points["y"],
                    name=plain(model),
                    legendgroup=model,
                    showlegend=place == 0,
                    mode="lines+markers+text",
                    line={"color": faded(color, 0.45), "width": 1.5},
                    marker={
                        "color": color,
                        "symbol": SYMBOLS[i % len(SYMBOLS)],
                        # Depth can be seen without counting: points grow with the layer.
                        "size": np.linspace(6, 12, len(points)) if len(points) > 1 else 10,
                        "opacity": 0.9,
                    },
                    selected={"marker": {"opacity": 1, "size": 16}},
                    unselected={"marker": {"opacity": 0.55}},
                    text=[f"{n}" if k in ends else "" for k, n in enumerate(points["layer"])],
                    textposition="top center",
                    cliponaxis=False,
                    customdata=points[["model", "layer"]].to_numpy(dtype=object),
                    hovertext=[
                        f"<b>{plain(model)}</b><br>layer {n}{profiles.get((model, n), '')}"
                        for n in points["layer"]
                    ],
                    hoverinfo="text",
                ),
                **at,
            )
        panel_title(figure, title, "" if place == 0 else "2")
    quiet(figure, height=460 if across == 2 else 860)
    for place, (measure, _) in enumerate(measures):
        bare_axes(
            figure,
            layer_map[layer_map["measure"] == measure],
            1 + place * (across == 1),
            1 + place * (across == 2),
        )
    return figure


def _profiles_in_words(importance: pd.DataFrame, most: int = 4) -> dict[tuple[str, int], str]:
    """The features that matter most in each layer, as lines of a hover text."""
    means = importance.groupby(["model", "layer", "feature"], sort=False)["importance"].mean()
    words = {}
    for (model, layer), profile in means.groupby(level=["model", "layer"], sort=False):
        top = profile.droplevel(["model", "layer"]).nlargest(most)
        lines = [f"<br>{plain(name)}: FI = {value:.3f}" for name, value in top.items()]
        words[(str(model), int(layer))] = "".join(lines)
    return words
