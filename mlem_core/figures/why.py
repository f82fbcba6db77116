"""Why layers are alike: their similarity as a sum of what each feature contributes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import parse_layer
from mlem_core.figures.naming import (
    feature_labels,
    feature_name,
    layer_title,
    model_initials,
    model_labels,
)
from mlem_core.figures.style import (
    CLEAR,
    DIVERGING,
    GREY,
    LEGEND,
    LINE,
    SIZE,
    TITLE,
    as_number,
    bar_title,
    block_edges,
    faded,
    feature_colors,
    model_blocks,
    panel_ref,
    panels,
    quiet_layout,
    short,
)
from mlem_core.measures.decomposition import UNEXPLAINED

# A contribution this small is next to nothing; a scale goes at least so far.
LEAST_SPAN = 0.05


def waterfall(
    terms: pd.DataFrame, features: Sequence[str], total: str = "RSA (Spearman ρ)"
) -> go.Figure:
    """A similarity as a running sum of its terms, the largest first, what is unexplained last.

    Parameters
    ----------
    terms : term, value, and lower, upper where there are confidence intervals
    features : all features of the analysis, which decide the colours
    total : what the sum is
    """
    order = terms["value"].abs().sort_values(ascending=False).index
    terms = terms.loc[order].sort_values(
        "term", key=lambda names: names == UNEXPLAINED, kind="stable"
    )
    values = terms["value"].to_numpy(dtype=np.float64)
    ends = np.cumsum(values)
    whole = float(ends[-1]) if len(ends) else 0.0
    bars = _term_bars(terms, ends, features)
    reach = np.concatenate([[0.0], ends])
    error = bars["error_x"]
    if error is not None:
        reach = np.concatenate([reach, ends + error["array"], ends - error["arrayminus"]])
    low, high = float(reach.min()), float(reach.max())
    span = float(np.ptp(reach)) or 1.0
    edge = high + 0.03 * span
    layout = quiet_layout(100 + 34 * (len(terms) + 1))
    layout |= {
        "barmode": "overlay",
        "bargap": 0.2,
        "shapes": [_goes_on(row, end) for row, end in enumerate(ends.tolist())],
        "annotations": [
            _number_beside(row, edge, value, signed=row < len(terms))
            for row, value in enumerate([*values, whole])
        ],
    }
    layout["margin"]["t"] = 16
    layout["yaxis"] |= {
        "tickvals": list(range(len(terms) + 1)),
        "ticktext": [
            *feature_labels([str(term) for term in terms["term"]], LEGEND),
            f"<b>{total}</b>",
        ],
        "range": [len(terms) + 0.6, -0.6],
        "showgrid": False,
        "zeroline": False,
    }
    layout["xaxis"] |= {
        # No line of the grid goes through the numbers on the right.
        "tickvals": _ticks(low, high),
        "zeroline": True,
        "showgrid": True,
        "range": [low - 0.04 * span, edge + 0.14 * span],
    }
    layout["xaxis"]["title"]["text"] = "contribution"
    # Checking each property would take most of the time; the tests check them.
    return go.Figure([bars, _total_bar(len(terms), whole, total)], layout, _validate=False)


def _goes_on(row: int, end: float) -> dict[str, Any]:
    """The thin line along which the sum goes on into the next row."""
    at = {"x0": end, "x1": end, "y0": row - 0.36, "y1": row + 1.36}
    return {"type": "line", **at, "line": {"color": LINE, "width": 1}, "layer": "below"}


def _number_beside(row: int, x: float, value: float, *, signed: bool) -> dict[str, Any]:
    """The number of a row, to the right of all bars."""
    return {
        "x": x,
        "y": row,
        "text": ("+" if signed and round(value, 3) > 0 else "") + as_number(value),
        "showarrow": False,
        "xanchor": "left",
        "font": {"size": SIZE},
    }


def _total_bar(row: int, whole: float, total: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "y": [row],
        "x": [whole],
        "width": 0.72,
        "marker": {"color": "rgba(0,0,0,0)", "line": {"width": 2, "color": GREY}},
        "hovertext": [f"<b>{total}</b><br>{as_number(whole)}"],
        "hoverinfo": "text",
        "name": "total",
        "showlegend": False,
    }


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, about five of them."""
    if not math.isfinite(high - low):
        return []
    least = (high - low) / 5 or 1.0
    size = 10.0 ** math.floor(math.log10(least))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= least)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(step * k, 12) for k in range(first, last + 1)]


def _term_bars(terms: pd.DataFrame, ends: np.ndarray, features: Sequence[str]) -> dict[str, Any]:
    """A bar a term, each from where the one before it ended, with its interval where known."""
    values = terms["value"].to_numpy(dtype=np.float64)
    colors = feature_colors(features)
    hover = [
        f"<b>{feature_name(term)}</b><br>{as_number(value)} of {as_number(float(ends[-1]))}"
        for term, value in zip(terms["term"], values, strict=True)
    ]
    error = None
    if {"lower", "upper"} <= set(terms.columns):
        low, high = (terms[key].to_numpy(dtype=np.float64) for key in ("lower", "upper"))
        hover = [
            f"{text}<br>95 % interval {as_number(a)} to {as_number(b)}"
            for text, a, b in zip(hover, low, high, strict=True)
        ]
        error = {
            "type": "data",
            "symmetric": False,
            "array": np.nan_to_num(high - values),
            "arrayminus": np.nan_to_num(values - low),
            "thickness": 1.2,
            "width": 4,
            "color": LINE,
        }
    return {
        "type": "bar",
        "orientation": "h",
        "y": np.arange(len(terms)),
        "x": values,
        "base": [0.0, *ends[:-1].tolist()],
        "width": 0.72,
        "marker": {
            "color": [faded(colors.get(term, GREY), 0.85) for term in terms["term"]],
            "line": {"width": 0},
            "pattern": {"shape": ["/" if t == UNEXPLAINED else "" for t in terms["term"]]},
        },
        "error_x": error,
        "customdata": terms["term"].to_numpy(dtype=object),
        "hovertext": hover,
        "hoverinfo": "text",
        "name": "terms",
        "showlegend": False,
    }


def term_matrices(terms: dict[str, pd.DataFrame], across: int = 3) -> go.Figure:
    """What each feature contributes to the similarity of every two layers, a panel a term.

    Parameters
    ----------
    across : panels beside each other; with fewer than 3 the colour bars are below them
    terms : for each term the (n_layers, n_layers) contributions, named "model:layer". The features
        share one colour scale, what is unexplained has its own, both symmetric about 0 and at least
        to ± `LEAST_SPAN`, so that nothing is painted strong where all is next to 0; the diagonal (a
        layer with itself) is left blank
    """
    titles = feature_labels(list(terms), TITLE)
    figure, places = panels(titles, height=250 if across > 2 else 210, across=across, below=40)
    layers = [parse_layer(name) for name in next(iter(terms.values())).index]
    blocks = model_blocks(layers)
    off = ~np.eye(len(layers), dtype=bool)
    names = {layer: layer_title(layer) for layer in layers}
    # Many names do not fit a narrow panel.
    crowded = across < 3 and len(blocks) > _CROWDED
    shared = _along(blocks, crowded)
    scales = {"coloraxis": 0.0, "coloraxis2": 0.0}
    edges: list[dict[str, Any]] = []
    for number, (term, square) in enumerate(terms.items()):
        (row, column), ref = places[number], panel_ref(number)
        scale = "coloraxis2" if term == UNEXPLAINED else "coloraxis"
        values = np.where(off, square.to_numpy(dtype=np.float64), np.nan)
        scales[scale] = max(scales[scale], float(np.abs(values[off]).max(initial=0.0)))
        hover = [
            [
                f"<b>{feature_name(term)}</b><br>{names[a]} and {names[b]}<br>{as_number(value)}"
                for b, value in zip(layers, line, strict=True)
            ]
            for a, line in zip(layers, values, strict=True)
        ]
        at = {"row": row, "col": column}
        figure.add_trace(
            go.Heatmap(
                z=values,
                x=np.arange(len(layers)),
                y=np.arange(len(layers)),
                coloraxis=scale,
                hovertext=hover,
                hoverinfo="text",
                hoverongaps=False,
                name=feature_name(term),
            ),
            **at,
        )
        edges += block_edges(blocks, ref)
        ends = [-0.5, len(layers) - 0.5]
        # Names stand below the last row; between the others they would lie on titles.
        lowest = row == places[-1][0]
        angle = 0 if len(blocks) < 3 else -90 if crowded else -40
        figure.update_xaxes(range=ends, tickangle=angle, showticklabels=lowest, **shared, **at)
        figure.update_yaxes(
            range=ends[::-1], showticklabels=column == 1, scaleanchor=f"x{ref}", **shared, **at
        )
    figure.update_layout(shapes=edges)
    for place, (scale, most) in enumerate(scales.items()):
        most = max(most, LEAST_SPAN)
        bar = {
            "title": bar_title(_SCALES[scale]) | ({"side": "top"} if across < 3 else {}),
            "thickness": 12,
            "outlinewidth": 0,
            "tickvals": [-most, 0, most],
            **_bar_place(place, most, figure.layout.height, below=across < 3),
        }
        axis = {"cmin": -most, "cmax": most, "colorscale": DIVERGING, "colorbar": bar}
        figure.update_layout({scale: axis})
    if across < 3:
        figure.update_layout(margin_b=146, height=figure.layout.height + 98)
    return figure


def _along(blocks: Sequence[tuple[int, int, str]], crowded: bool) -> dict[str, Any]:
    """What both axes of a matrix of layers share: each model by name, or by its initials."""
    models = [model for *_, model in blocks]
    return {
        "tickvals": [(start + stop - 1) / 2 for start, stop, _ in blocks],
        "ticktext": list(model_initials(models).values()) if crowded else model_labels(models, 14),
        "showgrid": False,
        "zeroline": False,
        "constrain": "domain",
        **CLEAR,
        **({"tickfont": {"size": _SMALL}} if crowded else {}),
    }


_CROWDED, _SMALL = 8, 8  # models, and px of their initials
_SCALES = {"coloraxis": "features", "coloraxis2": UNEXPLAINED}


def _bar_place(place: int, most: float, height: float, *, below: bool) -> dict[str, Any]:
    """Where the first or second colour bar stands, below the panels or to their right; its ends."""
    low, high = short(-most), f"+{short(most)}"
    if below:
        return {
            "ticktext": [f"{low}<br>apart", "0", f"{high}<br>alike"],
            "orientation": "h",
            "x": 0.2 + 0.6 * place,
            "xanchor": "center",
            "len": 0.34,
            "yref": "container",
            "y": 8 / height,
            "ypad": 0,
            "yanchor": "bottom",
        }
    # Both have to fit beside a single row of panels, one above the other.
    room, gap = max(height - 84, 100), 30
    length = min(170, (room - gap) / 2)
    y = 1 - place * (length + gap) / room
    ends = [f"apart ({low})", "0", f"alike ({high})"]
    return {"ticktext": ends, "lenmode": "pixels", "len": length, "y": y, "yanchor": "top"}
