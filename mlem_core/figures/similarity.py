"""Similarity of the layers: the two matrices (figure 2 of Salle et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis.results import Results
from mlem_core.base.labels import with_layer
from mlem_core.base.text import fraction
from mlem_core.base.typing import FloatArray, Layer, layer_name, parse_layer
from mlem_core.figures.captions import joined, tau_by_chance
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.matrix import (
    MOST_CELLS,
    MOST_POINTS,
    SIDE,
    TICK,
    Grid,
    Labels,
    Order,
    dendrogram,
    grid,
    labels,
    model_key,
    model_strip,
    outline,
)
from mlem_core.figures.naming import layer_labels, model_name
from mlem_core.figures.style import (
    DIVERGING,
    NOT_ABOVE_CHANCE,
    SIGNIFICANT,
    SIZE,
    Trace,
    as_number,
    as_numbers,
    as_p,
    color_axis,
    note,
    panel_ref,
    panel_title,
    place_in_panel,
    quiet_layout,
    scatter,
    similarity_axis,
    square_axes,
)
from mlem_core.measures.similarity import agreement
from mlem_core.pairs.similarities import RSA, SIMILARITIES

Pair = tuple[Layer, Layer]
# px; of a matrix that has the figure for itself, and of one of two below each other
_ALONE, _COLUMN = 400, 340
UNSURE = "not above chance"
_IN_FULL = 60  # letters of a layer's name on hovering
_LONG = 52  # letters of a title that do not fit over a matrix
_SPACE = 0.06  # between two matrices, as a part of the whole width


def similarity_matrices(
    profiles: pd.DataFrame,
    rsa: pd.DataFrame,
    across: int = 2,
    intervals: pd.DataFrame | None = None,
    order: Order = "model",
) -> go.Figure:
    """Heatmaps of all layers' similarity, by profiles and by RSA (figure 2 of Salle et al. 2024).

    Both are on one scale from -1 to 1. Each cell is the point of a scatter too, as those can be
    selected; its `customdata` is (model, layer, model, layer). A layer's label is its number, or
    its own name; layers that do not follow each other stand a little apart.

    Parameters
    ----------
    profiles, rsa : (n_layers, n_layers) weighted Kendall τ and Spearman ρ, named "model:layer"; or,
        where the axis of its columns is called so, another similarity
        (`mlem_core.pairs.similarities`) in the place of RSA
    across : 2 beside each other, 1 below each other
    intervals : layer_a, layer_b, weighted_tau_lower, weighted_tau_upper, rsa_lower, rsa_upper,
        rsa_p_corrected (see `mlem_core.inference.intervals`), told on hovering; a cell is grey
        where its RSA, or its τ, is not above chance
    order : "model", or "clustering": by average linkage on 1 − RSA, with its dendrogram beside
        the matrix of RSA and the models' colours along both
    """
    layers = [parse_layer(name) for name in rsa.index]
    of = grid(layers, order, rsa.to_numpy(dtype=np.float64))
    other = SIMILARITIES[str(rsa.columns.name or RSA)]
    agnostic = Measure(other.name, other.title, other.unit, other.short)
    matrices = []
    for square, measure in ((profiles, TAU), (rsa, agnostic)):
        hover, unsure = interval_texts(intervals, profiles.index, measure.column)
        matrices.append(Matrix(measure, square.to_numpy(dtype=np.float64), hover, unsure))
    return matrix_figure(of, matrices, "row" if across == 2 else "column")


class Measure(NamedTuple):
    column: str  # begins its columns in the table of intervals
    title: str
    unit: str
    short: str


TAU = Measure("weighted_tau", "by feature importance", "weighted Kendall τ", "τ")


class Matrix(NamedTuple):
    """The values of a measure; of each cell what hovering adds and whether chance reaches it."""

    measure: Measure
    values: FloatArray
    hover: Any = None
    unsure: Any = None


Arrangement = Literal["alone", "row", "column"]


def matrix_figure(
    of: Grid, matrices: Sequence[Matrix], arranged: Arrangement, pair: Pair | None = None
) -> go.Figure:
    """The matrices beside or below each other; one alone has no title."""
    around, several = labels(of, _COLUMN if arranged == "column" else SIDE), arranged != "alone"
    refs = list(map(panel_ref, range(len(matrices))))
    layout = quiet_layout(_ALONE, refs) | {"annotations": []}
    traces: list[Trace] = []
    start, end = of.span
    tree: list[Trace] = []
    if of.tree is not None:
        line, end = dendrogram(of)
        tree, highest = [line], float(of.tree[-1, 2]) if len(of.tree) else 0.0
    # Below each other both leave room for the tree, so that they are of one size.
    ends = [
        (start, end if matrix.measure is not TAU or arranged == "column" else of.span[1])
        for matrix in matrices
    ]
    for place, (ref, matrix) in enumerate(zip(refs, matrices, strict=True)):
        drawn = _matrix_traces(of, matrix)
        if of.mixed:
            drawn.append(model_strip(of))
        if matrix.measure is not TAU and tree:
            drawn += tree
            # The scale below the dendrogram, with the values at its ends.
            scale = f"1 − {matrix.measure.short}<br>0 to {as_number(highest, 2)}"
            look = {"yanchor": "top", "font": {"size": SIZE - 2}}
            layout["annotations"].append(note(scale, (of.span[1] + end) / 2, 0, ref, "y", **look))
        traces += place_in_panel(ref, drawn)
        # Beside each other the first has the names at its side, below each other the last below it.
        left, last = place == 0 or arranged == "column", matrix is matrices[-1]
        below = last or arranged != "column"
        layout["annotations"] += around.annotations(ref, left=left, below=below)
        if several:
            title = ": ".join(filter(None, (matrix.measure.title, matrix.measure.unit)))
            middle = {"x": float(of.edges[[0, -1]].mean()), "xref": f"x{ref}"}
            text = title if len(title) < _LONG else matrix.measure.unit
            layout["annotations"].append(panel_title(text, ref) | middle)
        if pair is not None:
            i, j = (of.rows[of.layers.index(layer)] for layer in pair)
            shapes, texts = outline(of, pair, float(matrix.values[i, j]), ref)
            layout.setdefault("shapes", []).extend(shapes)
            layout["annotations"] += texts
        ticks = {**around.ticks, "tickfont": {"size": TICK}}
        up, angle = (of.span[1], float(of.edges[0])), -90 if around.upright else 0
        square_axes(layout, ref, ticks, ends[place], up, angle, beside=left, below=below)
    _arrange(layout, of, arranged, ends)
    units = "; ".join(matrix.measure.unit or matrix.measure.short for matrix in matrices)
    unsure = any(trace["name"] == UNSURE for trace in traces)
    lowest = min(float(np.nanmin(matrix.values, initial=0.0)) for matrix in matrices)
    _set_scale(layout, of, arranged, around, units, unsure=unsure, low=-(lowest < -0.05))
    # Checking each property would take half of the time; the tests check them.
    return go.Figure(traces, layout, _validate=False)


def _arrange(
    layout: dict[str, Any], of: Grid, arranged: Arrangement, ends: Sequence[tuple[float, float]]
) -> None:
    """Set the places of the matrices, all of one size, and the height of all."""
    if arranged == "alone":
        layout["height"] = _ALONE
        layout["yaxis"]["constraintoward"] = "top"
    elif arranged == "row":
        layout["height"] = SIDE
        first, second = (end - start for start, end in ends)
        wide = (1 - _SPACE) * first / (first + second)
        layout["xaxis"] |= {"domain": [0, wide], "constraintoward": "right"}
        layout["xaxis2"] |= {"domain": [wide + _SPACE, 1], "constraintoward": "left"}
    else:
        start, end = ends[0]
        side = round(_COLUMN * (of.edges[-1] - of.edges[0]) / (end - start))
        layout["height"] = 2 * side + 44
        part = side / layout["height"]
        layout["yaxis"]["domain"], layout["yaxis2"]["domain"] = [1 - part, 1], [0, part]
        layout["xaxis"]["domain"] = layout["xaxis2"]["domain"] = [0, 1]
        layout["yaxis"]["constraintoward"] = layout["yaxis2"]["constraintoward"] = "top"


def _set_scale(
    layout: dict[str, Any],
    of: Grid,
    arranged: Arrangement,
    around: Labels,
    units: str,
    *,
    unsure: bool,
    low: int,
) -> None:
    """The colour scale of all matrices from `low` to 1, the key of other colours, the margins."""
    below = around.below
    keys = [model_key(of, 100 if arranged == "row" else 48)] * of.mixed
    keys += [f'<span style="color:{NOT_ABOVE_CHANCE}">■</span> {UNSURE}'] * unsure
    if keys:
        text = "<br>".join(keys)
        lies: dict[str, Any] = {"yanchor": "top", "yshift": -below}
        layout["annotations"].append(note(text, 0.5, 0, xref="paper", yref="paper", **lies))
        below += 20 * (text.count("<br>") + 1)
    below += 60
    top = 8 if arranged == "alone" else 40
    layout["margin"] = {"l": around.left, "r": 16, "t": top, "b": below}
    layout["height"] += top + below
    length = 0.4 if arranged == "row" else 0.8
    layout["coloraxis"] = similarity_axis(layout["height"], 0.5, length, units, low)


def set_scale(figure: go.Figure, ticks: Mapping[float, str], colors: Any = DIVERGING) -> None:
    """Let the colours of matrices go from the first to the last of other ticks."""
    bar = figure.layout.coloraxis.colorbar.to_plotly_json() | {"len": 0.6}
    axis = color_axis(min(ticks), max(ticks), ticks, colors, **bar)
    figure.update_layout(coloraxis=axis)


def _matrix_traces(of: Grid, matrix: Matrix) -> list[Trace]:
    """The heatmap, grey where chance reaches as far, and points for hovering and selecting."""
    z, edges = of.drawn(matrix.values)
    drawn: Trace = {"type": "heatmap", "x": edges, "y": edges, "hoverinfo": "skip"}
    traces: list[Trace] = [drawn | {"z": z, "name": matrix.measure.title, "coloraxis": "coloraxis"}]
    if matrix.unsure is not None and len(of.layers) <= MOST_CELLS and np.any(matrix.unsure):
        grey, _ = of.drawn(np.where(matrix.unsure, 0.0, np.nan))
        colors = [[0, NOT_ABOVE_CHANCE], [1, NOT_ABOVE_CHANCE]]
        traces.append(drawn | {"z": grey, "name": UNSURE, "colorscale": colors, "showscale": False})
    few = len(of.layers) <= MOST_POINTS
    return [*traces, _points(of, matrix)] if few else traces


def _points(of: Grid, matrix: Matrix) -> Trace:
    """A point a cell, never seen, that answers for it on hovering and to a click."""
    labels, unit = layer_labels(of.layers, _IN_FULL), matrix.measure.unit
    names = [
        with_layer(model_name(layer[0]), label)
        for layer, label in zip(of.layers, labels, strict=True)
    ]
    values, layers = of.ordered(matrix.values), np.array(of.layers, dtype=object)
    more = np.full(values.shape, "") if matrix.hover is None else of.ordered(matrix.hover)
    rows, columns = (side.ravel() for side in np.indices(values.shape))
    hover = [
        f"{names[i]} and {names[j]}<br>{unit} = {text}{more[i, j]}"
        for i, j, text in zip(
            rows.tolist(), columns.tolist(), as_numbers(values.ravel()), strict=True
        )
    ]
    # Arrays: Plotly copies every item of a list, several times.
    middles = of.centres.astype(np.float32)
    return scatter(middles[columns], middles[rows], np.array(hover), showlegend=False) | {
        "marker": {"symbol": "square", "size": 9, "opacity": 0},
        "selected": {"marker": {"opacity": 0}},
        "unselected": {"marker": {"opacity": 0}},
        "customdata": np.hstack([layers[rows], layers[columns]]),
        "name": f"cells {matrix.measure.title}",
    }


def interval_texts(table: pd.DataFrame | None, names: pd.Index, measure: str) -> tuple[Any, Any]:
    """(n_layers, n_layers) what hovering over a cell says of its interval and test, and whether
    chance reaches as far."""
    texts = np.full((len(names), len(names)), "", dtype=object)
    unsure = np.zeros(texts.shape, dtype=bool)
    if table is None or f"{measure}_lower" not in table:
        return texts, unsure
    low, high = (as_numbers(table[f"{measure}_{end}"].to_numpy()) for end in ("lower", "upper"))
    pairs = zip(low, high, strict=True)
    told = np.array([f"<br>95 % CI {a} to {b}" for a, b in pairs], dtype=object)
    chance = table[f"{measure}_lower"].to_numpy() <= 0
    if f"{measure}_p_corrected" in table:
        tests = table[f"{measure}_p_corrected"].map(as_p)
        told += ("<br>other than 0: p " + tests + " (corrected)").to_numpy(dtype=object)
        chance = table[f"{measure}_p_corrected"].to_numpy() >= SIGNIFICANT
    if measure != TAU.column and "chosen_from" in table:
        told += [f"<br>the largest of {n:,} pairs" * (n > 0) for n in table["chosen_from"]]
    a, b = (names.get_indexer(table[side]) for side in ("layer_a", "layer_b"))
    texts[a, b] = texts[b, a] = told
    unsure[a, b] = unsure[b, a] = chance
    return texts, unsure


@figure(
    "similarity",
    "Similarity of every two layers",
    by_similarity="any",
    offered=True,
)
def draw_similarity(context: FigureContext) -> RenderedFigure | None:
    """Figure 2 of Salle et al. (2024), or with another similarity in the place of RSA."""
    if not context.several:
        return None
    results, other, tested = context.results, context.compared, context.similarity_tests
    square = results.similarity_rsa
    if other is not None:
        square, tested = other.square, None
    across = 1 if context.drawing.narrow else 2
    data = None if tested is None else tested.table
    drawn = similarity_matrices(
        results.similarity_profiles,
        square,
        across=across,
        order="clustering" if context.drawing.options.get("order") == "clustering" else "model",
        intervals=data,
    )
    return RenderedFigure(
        drawn,
        similarity_caption(context),
        pairs_of_layers(results, *([] if other is None else [square])) if data is None else data,
        None if data is None else tested_pairs(data),
        title="Similarity of every two layers" + (f" ({other.similarity.short})" if other else ""),
    )


def similarity_caption(context: FigureContext) -> str:
    """Caption of the two matrices of similarity."""
    results, other, intervals = context.results, context.compared, ""
    agnostic = "RSA"
    agrees, tested = results.agreement, context.similarity_tests
    if other is not None:
        agnostic = other.similarity.called
        agrees = agreement(results.similarity_profiles.to_numpy(), other.values)
    elif tested is not None:
        intervals = f"Table: 95 % CI over {context.over}; p corrected over {tested.family}."
    here = "" if math.isnan(agrees) else f" (agreement: Spearman's ρ = {fraction(agrees)})"
    return joined(
        f"Weighted Kendall τ of importance profiles and {agnostic}{here}.",
        "Cells: means over runs of layers." * (len(results.similarity_rsa) > MOST_CELLS),
        "" if other is None else other.similarity.no_terms,
        tau_by_chance(results.n_profile_features),
        "Grey: not above chance." if intervals else "",
        intervals,
        context.basis,
    )


def pairs_of_layers(results: Results, *others: pd.DataFrame) -> pd.DataFrame:
    """Both similarities of every two different layers: layer_a, layer_b, weighted_tau, rsa.

    Each pair once, as it stands above the diagonal. `others` are squares of further similarities,
    as `mlem_core.analysis.similarities.LayerSimilarity.square` has them, each a further column.
    """
    names = [layer_name(layer) for layer in results.layers]
    above = np.triu_indices(len(names), 1)
    squares = {"weighted_tau": results.similarity_profiles, "rsa": results.similarity_rsa}
    squares |= {str(square.columns.name): square for square in others}
    named = {"layer_a": above[0], "layer_b": above[1]}
    return pd.DataFrame(
        {name: [names[at] for at in places] for name, places in named.items()}
        | {name: square.loc[names, names].to_numpy()[above] for name, square in squares.items()}
    )


def tested_pairs(table: pd.DataFrame) -> pd.DataFrame:
    """Both similarities of every two layers with their intervals as text, and p of RSA.

    Parameters
    ----------
    table : of `mlem_core.inference.intervals.similarity_table`
    """
    cells = {
        heading: [
            f"{fraction(value)} [{fraction(low)}, {fraction(high)}]"
            for value, low, high in table[[name, f"{name}_lower", f"{name}_upper"]].to_numpy()
        ]
        for name, heading in (("weighted_tau", "τ [95 %]"), ("rsa", "RSA [95 %]"))
    }
    return table[["layer_a", "layer_b"]].assign(**cells, rsa_p_corrected=table["rsa_p_corrected"])
