"""Distances between the values of a feature, a matrix a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import Layer
from mlem_core.extensions.value_coding.computation import FILE
from mlem_core.figures.context import FigureContext, RenderedFigure, figure, some_layers
from mlem_core.figures.naming import layer_titles
from mlem_core.figures.style import (
    CLEAR,
    SEQUENTIAL,
    SIZE,
    TITLE,
    Trace,
    as_number,
    bar_title,
    color_axis,
    escape_text,
    heatmap,
    panel_layout,
    place_in_panel,
    short,
    short_names,
    square_axes,
)

MANY, LABELLED = 12, 24  # values from which on labels are small, and labels at most
_CELL = 46  # px; of a large matrix


def value_matrices(
    table: pd.DataFrame, feature: str, layers: Sequence[Layer], across: int = 3
) -> go.Figure:
    """The squared distance of every two values of a feature, a matrix a layer, on one colour scale.

    The diagonal is the distance within a value; a cell is empty where no pair of stimuli has both.

    Parameters
    ----------
    table : of `value_distances`; its other layers decide the colour scale too
    layers : (model, layer) of the matrices
    across : matrices beside each other
    """
    rows = table[table["feature"] == feature]
    names = [str(name) for name in dict.fromkeys(rows["value_a"])]
    # Many values need room for their names.
    across = max(1, across - (len(names) > MANY))
    titles = layer_titles(layers, {1: TITLE + 8, 2: TITLE - 12}.get(across, TITLE - 6))
    side = max(300, min(520, 130 + _CELL * len(names))) if len(layers) == 1 else 300
    layout, places = panel_layout(titles, height=side, across=across)
    highest = float(rows["distance"].max()) or 1.0
    traces: list[Trace] = []
    for layer, (ref, first) in zip(layers, places, strict=True):
        traces += place_in_panel(ref, [_matrix(_rows_of_layer(rows, layer), names)])
        every = -(-len(names) // LABELLED)
        names_along: dict[str, Any] = {
            "tickvals": list(range(0, len(names), every)),
            "ticktext": short_names(names, 12)[::every],
            "tickfont": {"size": SIZE if len(names) <= MANY else SIZE - 3},
            **CLEAR,
        }
        ends, angle = [-0.5, len(names) - 0.5], -50 if len(names) <= MANY else -90
        square_axes(layout, ref, names_along, ends, ends[::-1], angle, beside=first)
    ticks = {0.0: "0", highest: short(highest)}
    title = bar_title("squared distance")
    layout["coloraxis"] = color_axis(0.0, highest, ticks, SEQUENTIAL, len=0.8, title=title)
    layout["margin"] = {"l": 56, "r": 90, "t": 36, "b": 70}
    return go.Figure({"data": traces, "layout": layout})


def _rows_of_layer(rows: pd.DataFrame, layer: Layer) -> pd.DataFrame:
    return rows[(rows["model"] == layer[0]) & (rows["layer"] == layer[1])]


def _matrix(rows: pd.DataFrame, names: Sequence[str]) -> Trace:
    """The heatmap of a layer."""
    place = {name: at for at, name in enumerate(names)}
    n = len(names)
    values, texts = np.full((n, n), np.nan), np.full((n, n), "", dtype=object)
    for row in rows[rows["n_pairs"] > 0].itertuples():
        a, b = place[str(row.value_a)], place[str(row.value_b)]
        values[a, b] = values[b, a] = row.distance
        texts[a, b] = texts[b, a] = _hover_text(row)
    at = {"x": np.arange(n), "y": np.arange(n), "xgap": 1, "ygap": 1}
    return heatmap(values, texts, **at, coloraxis="coloraxis", name="squared distance")


def _hover_text(row: Any) -> str:
    """Hover text of a pair of values."""
    a, b = escape_text(str(row.value_a)), escape_text(str(row.value_b))
    number = f"{as_number(row.distance)} ± {as_number(row.sd)} (sd over folds)"
    values = f"<b>within {a}</b><br>" if a == b else f"<b>{a} and {b}</b><br>"
    means = "" if a == b else f"<br>between their means {as_number(row.separation)}"
    return f"{values}squared distance {number}{means}<br>{row.n_pairs:,} pairs of stimuli"


MOST_MATRICES = 6
FEW_VALUES = 8  # of two matrices beside each other in one column of a journal
TARGET_UNITS = "in units of the fitted target ([0, 1] in each layer)"


def selected_feature(context: FigureContext) -> str:
    """The feature that is selected of those coded by value, else the one that matters most."""
    results, feature = context.results, context.drawing.options.get("feature", "")
    if feature in results.resolved:
        return str(feature)
    return results.most_important(results.resolved)


def table_caption(feature: str) -> str:
    """Caption of the table behind these figures."""
    return (
        f"The values of {feature}. Distance: squared, {TARGET_UNITS}, with its standard deviation "
        "over folds. Separation: its part between the means of the two values. The "
        "pairs are those of stimuli with these values."
    )


@figure(
    "values_matrices",
    "Distances of the values",
    "How far apart every two values of the feature are.",
)
def draw_values_matrices(context: FigureContext) -> RenderedFigure | None:
    """The distance of every two values, a matrix a layer, of some layers."""
    table = context.results.added_tables.get(FILE)
    if table is None:
        return None
    feature = selected_feature(context)
    rows = table[table["feature"] == feature]
    across = 2 if context.drawing.screen else 3
    if context.drawing.narrow:
        across = 1 if rows["value_a"].nunique() > FEW_VALUES else 2
    layers = some_layers(context.selection.layers, MOST_MATRICES)
    some = ""
    if len(layers) < len(context.selection.layers):
        some = f"{len(layers)} of the {len(context.selection.layers)} layers are drawn. "
    name = context.names.feature(feature)
    return RenderedFigure(
        value_matrices(table, feature, layers, across),
        f"Squared distance of every two values of {name} (mean over folds), {TARGET_UNITS}. "
        f"Diagonal: two stimuli of one value. Empty: values of no pair. {some}{context.basis}",
        rows,
        title=f"Distances of the values of {name}",
    )
