"""How alike the members of each group are, and those of every two groups: a matrix of groups."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import FloatArray
from mlem_core.figures.style import (
    DIVERGING,
    GREY,
    INK,
    SIZE,
    as_number,
    in_full,
    quiet,
    short_names,
)

# Groups up to which a cell has room for its interval, and for its value.
_INTERVALS, _VALUES = 6, 12
_CELL = 58  # px; how high a cell is
_WIDE = 0.18  # how wide, as a part of the figure
_DARK = 0.78  # from here on ink is lost on a cell


def group_similarity(table: pd.DataFrame, *, narrow: bool = False) -> go.Figure:
    """The mean RSA within each group (on the diagonal) and between every two, with intervals.

    Parameters
    ----------
    table : group_a, group_b, pairs (of different models), rsa, lower, upper; each pair of groups
        once. A group of one has no pair of its own: its cell is empty
    narrow : for one column of a journal: intervals stand on two lines
    """
    groups = list(dict.fromkeys((*table["group_a"], *table["group_b"])))
    place = {name: at for at, name in enumerate(groups)}
    n = len(groups)
    values = np.full((n, n), np.nan)
    hover = np.full((n, n), "", dtype=object)
    texts: list[dict] = []
    for row in table.itertuples(index=False):
        # The later group up the side: the matrix is its lower left half.
        i, j = sorted((place[row.group_a], place[row.group_b]), reverse=True)
        values[i, j] = row.rsa
        hover[i, j] = _hover(row)
        text = _text(row, n, narrow)
        color = GREY if np.isnan(row.rsa) else "white" if abs(row.rsa) > _DARK else INK
        font = {"color": color, "size": SIZE - 2 if narrow else SIZE}
        texts += [{"x": j, "y": i, "text": text, "showarrow": False, "font": font}] * bool(text)
    figure = go.Figure(
        go.Heatmap(
            z=values,
            coloraxis="coloraxis",
            hovertext=hover,
            hoverinfo="text",
            hoverongaps=False,
            xgap=2,
            ygap=2,
        )
    )
    _lay_out(figure, groups, values, texts, narrow=narrow)
    return figure


def _lay_out(
    figure: go.Figure, groups: list[str], values: FloatArray, texts: list[dict], *, narrow: bool
) -> None:
    n, cell = len(groups), _CELL if len(groups) <= _INTERVALS else 34
    height = cell * n
    # Names that lie flat take less.
    flat = n < 3 or (not narrow and n <= _INTERVALS)
    below = 74 if flat else 134
    quiet(figure, height=height + 16 + below)
    wide = 1.0 if narrow else min(1.0, _WIDE * n)
    bar = {
        "orientation": "h",
        "thickness": 10,
        "outlinewidth": 0,
        "tickvals": [-1, 0, 1],
        "ticktext": ["−1 (opposite)", "0", "1 (alike)"],
        "tickfont": {"size": SIZE - 1},
        "len": 0.8 * wide,
        "x": wide / 2,
        "xanchor": "center",
        "yref": "container",
        "yanchor": "bottom",
        "y": 22 / (height + 16 + below),
        "ypad": 0,
    }
    figure.update_layout(
        annotations=texts,
        margin={"t": 16, "b": below},
        coloraxis={"cmin": -1, "cmax": 1, "colorscale": DIVERGING, "colorbar": bar},
    )
    shared = {
        "tickvals": list(range(n)),
        "ticktext": short_names(groups, 17),
        "showgrid": False,
        "zeroline": False,
    }
    angle = 0 if flat else -35
    figure.update_xaxes(range=[-0.5, n - 0.5], tickangle=angle, domain=[0, wide], **shared)
    figure.update_yaxes(range=[n - 0.5, -0.5], **shared)


def _text(row: object, n: int, narrow: bool) -> str:
    """What stands in a cell: its value, and its interval where there are few."""
    rsa, low, high = (getattr(row, name) for name in ("rsa", "lower", "upper"))
    if n > _VALUES:
        return ""
    if np.isnan(rsa):
        return "one model" if not narrow or n < 4 else "–"
    value = as_number(rsa, 2)
    if np.isnan(low) or n > _INTERVALS:
        return value
    low, high = as_number(low, 2), as_number(high, 2)
    between = f"{low} to<br>{high}" if narrow else f"{low} to {high}"
    return f"<b>{value}</b><br><span style='font-size:{SIZE - 3}px'>{between}</span>"


def _hover(row: object) -> str:
    a, b, n, rsa, low, high = (
        getattr(row, name) for name in ("group_a", "group_b", "pairs", "rsa", "lower", "upper")
    )
    which = f"within {in_full(a)}" if a == b else f"{in_full(a)} and {in_full(b)}"
    pairs = f"{n} pairs of models" if n != 1 else "1 pair of models"
    if np.isnan(rsa):
        return ""
    interval = "no interval" if np.isnan(low) else f"95 % {as_number(low)} to {as_number(high)}"
    return f"{which}<br>RSA {as_number(rsa)}, {interval}<br>{pairs}"
