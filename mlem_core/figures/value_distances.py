"""How far apart the values of a feature are: matrices, a map, lines over layers, two layers.

Each is drawn from the table of `mlem_core.measures.value_distances.value_distances`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.base.typing import FloatArray, Layer
from mlem_core.figures.maps import UNKNOWN, frame_map, uncrowded
from mlem_core.figures.naming import layer_in_model, layer_title, layer_titles, model_labels
from mlem_core.figures.profiles import layer_axes
from mlem_core.figures.style import (
    CLEAR,
    DASHES,
    GREY,
    LINE,
    PALETTE,
    SEQUENTIAL,
    SIZE,
    TITLE,
    as_number,
    bar_title,
    in_full,
    panel_layout,
    panel_ref,
    quiet,
    short,
    short_names,
    title_of,
)

MANY, LABELLED = 12, 24  # values from which on labels are small, and labels at most
NAMED = 5  # pairs of values that are named
_UNSEEN = "no pair of stimuli has it: what the penalty says"
_ROOM = 1.25  # of a map, for the labels at its sides
_CELL = 46  # px; of a large matrix


def value_matrices(
    table: pd.DataFrame,
    feature: str,
    layers: Sequence[Layer],
    across: int = 3,
) -> go.Figure:
    """The squared distance of every two values of a feature, a matrix a layer, on one colour scale.

    The diagonal, marked by rings, is the distance within a value; a cross is a number of no pair.

    Parameters
    ----------
    table : model, layer, feature, value_a, value_b, distance, sd, separation, n_pairs; its other
        layers decide the colour scale too
    layers : (model, layer) of the matrices
    across : matrices beside each other
    """
    own = table[table["feature"] == feature]
    names = _values(own)
    # Many values need room for their names.
    across = max(1, across - (len(names) > MANY))
    titles = layer_titles(layers, {1: TITLE + 8, 2: TITLE - 9}.get(across, TITLE - 6))
    one = len(layers) == 1
    side = max(300, min(520, 130 + _CELL * len(names))) if one else 300
    layout, _ = panel_layout(titles, height=side, across=across)
    highest = float(own["distance"].max()) or 1.0
    traces: list[dict[str, Any]] = []
    for place, layer in enumerate(layers):
        ref = panel_ref(place)
        at = {"xaxis": f"x{ref}", "yaxis": f"y{ref}"}
        rows = _of(own, layer)
        traces += [{**trace, **at} for trace in _matrix(rows, names, highest)]
        every = -(-len(names) // LABELLED)
        ticks: dict[str, Any] = {
            "tickvals": list(range(0, len(names), every)),
            "ticktext": short_names(names, 12)[::every],
            "tickfont": {"size": SIZE if len(names) <= MANY else SIZE - 3},
            "range": [-0.5, len(names) - 0.5],
            "showgrid": False,
            "zeroline": False,
            "constrain": "domain",
            **CLEAR,
        }
        layout[f"xaxis{ref}"] |= {**ticks, "tickangle": -50 if len(names) <= MANY else -90}
        first = place % across == 0
        layout[f"yaxis{ref}"] |= {
            **ticks,
            "range": ticks["range"][::-1],
            "scaleanchor": f"x{ref}",
            "showticklabels": first,
        }
    layout["coloraxis"] = _scale(highest)
    layout["margin"] = {"l": 56, "r": 90, "t": 36, "b": 70}
    return go.Figure({"data": traces, "layout": layout})


def _values(rows: pd.DataFrame) -> list[str]:
    return [str(name) for name in dict.fromkeys(rows["value_a"])]


def _of(rows: pd.DataFrame, layer: Layer) -> pd.DataFrame:
    return rows[(rows["model"] == layer[0]) & (rows["layer"] == layer[1])]


def _scale(highest: float) -> dict[str, Any]:
    return {
        "cmin": 0.0,
        "cmax": highest,
        "colorscale": SEQUENTIAL,
        "colorbar": {
            "thickness": 10,
            "len": 0.8,
            "outlinewidth": 0,
            "title": bar_title("squared distance"),
            "tickvals": [0.0, highest / 2, highest],
            "ticktext": ["0", short(highest / 2), short(highest)],
        },
    }


def _matrix(rows: pd.DataFrame, names: Sequence[str], highest: float) -> list[dict[str, Any]]:
    """The heatmap of a layer, and what marks its diagonal and its cells without pairs."""
    place = {name: at for at, name in enumerate(names)}
    n = len(names)
    values, texts = np.full((n, n), np.nan), np.full((n, n), "", dtype=object)
    unseen = np.zeros((n, n), dtype=bool)
    for row in rows.itertuples():
        a, b = place[str(row.value_a)], place[str(row.value_b)]
        for i, j in {(a, b), (b, a)}:
            values[i, j], texts[i, j] = row.distance, _told(row)
            unseen[i, j] = row.n_pairs == 0
    heatmap = {
        "type": "heatmap",
        "z": values,
        "x": np.arange(n),
        "y": np.arange(n),
        "coloraxis": "coloraxis",
        "hovertext": texts,
        "hoverinfo": "text",
        "xgap": 1,
        "ygap": 1,
        "name": "squared distance",
    }
    cells = np.argwhere(unseen)
    return [
        heatmap,
        _marks([(i, i) for i in range(n) if not unseen[i, i]], values, highest, "circle-open"),
        *([_marks(cells.tolist(), values, highest, "x-thin")] if len(cells) else []),
    ]


def _marks(
    cells: Sequence[Sequence[int]], values: FloatArray, highest: float, symbol: str
) -> dict[str, Any]:
    # Light on the dark half of the scale, dark on its light half.
    colors = [
        "rgba(0,0,0,0.75)" if values[i, j] > 0.55 * highest else "rgba(255,255,255,0.9)"
        for i, j in cells
    ]
    return {
        "type": "scatter",
        "x": [j for _, j in cells],
        "y": [i for i, _ in cells],
        "mode": "markers",
        "marker": {
            "symbol": symbol,
            "size": 8,
            "color": colors,
            "line": {"width": 1.3, "color": colors},
        },
        "hoverinfo": "skip",
        "showlegend": False,
        "name": "no pair of stimuli" if symbol == "x-thin" else "within a value",
    }


def _told(row: Any) -> str:
    """What the pointer over a pair of values says."""
    a, b = in_full(str(row.value_a)), in_full(str(row.value_b))
    if row.n_pairs == 0:
        return f"<b>{a} and {b}</b><br>{_UNSEEN} ({as_number(row.distance)})"
    number = f"{as_number(row.distance)} ± {as_number(row.sd)} (sd over folds)"
    what = f"<b>within {a}</b><br>" if a == b else f"<b>{a} and {b}</b><br>"
    more = "" if a == b else f"<br>between their means {as_number(row.separation)}"
    return f"{what}squared distance {number}{more}<br>{row.n_pairs:,} pairs of stimuli"


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
    figure = make_subplots(1, 1)
    figure.add_traces(
        [
            go.Scatter(
                x=points["x"],
                y=points["y"],
                mode="markers+text",
                text=texts,
                textposition=places,
                cliponaxis=False,
                marker={
                    "size": sizes,
                    "color": "rgba(0,114,178,0.10)",
                    "line": {"color": "rgba(0,114,178,0.5)", "width": 1},
                },
                hoverinfo="skip",
                showlegend=False,
                name="spread",
            ),
            go.Scatter(
                x=points["x"],
                y=points["y"],
                mode="markers",
                marker={"size": 7, "color": PALETTE[0]},
                hovertext=[
                    f"<b>{in_full(name)}</b><br>spread {as_number(one)}"
                    for name, one in zip(names, spread, strict=True)
                ],
                hoverinfo="text",
                cliponaxis=False,
                showlegend=False,
                name="values",
            ),
        ]
    )
    quiet(figure, height=400)
    figure.update_layout(annotations=[title_of(short_names([title], 46)[0], "")])
    padded = pd.DataFrame(middle + _ROOM * (xy - middle), columns=["x", "y"])
    frame_map(figure, padded, stress)
    return figure


def value_lines(table: pd.DataFrame, feature: str, across: int = 3) -> go.Figure:
    """The squared distance of every two values over the layers, a panel a model.

    The `NAMED` pairs that are furthest apart (mean over all layers) are named, others grey.

    Parameters
    ----------
    table : as for `value_matrices`
    """
    own = table[(table["feature"] == feature) & (table["value_a"] != table["value_b"])]
    own = own[own["n_pairs"] > 0].sort_values("layer", kind="stable")
    names = _values(table[table["feature"] == feature])
    labels = dict(zip(names, short_names(names), strict=True))
    means = own.groupby(["value_a", "value_b"], sort=False)["distance"].mean()
    furthest = [(str(a), str(b)) for a, b in means.nlargest(NAMED).index]
    models = [str(model) for model in dict.fromkeys(table["model"])]
    longest = TITLE - 7 if min(across, len(models)) > 2 else TITLE
    layout, places = panel_layout(model_labels(models, longest), height=340, across=across)
    traces: list[dict[str, Any]] = []
    for number, (model, (_, column)) in enumerate(zip(models, places, strict=True)):
        ref, rows = panel_ref(number), own[own["model"] == model]
        at = {"type": "scatter", "xaxis": f"x{ref}", "yaxis": f"y{ref}"}
        lines = {
            (str(a), str(b)): line
            for (a, b), line in rows.groupby(["value_a", "value_b"], sort=False)
        }
        grey = [line for pair, line in lines.items() if pair not in furthest]
        if grey:
            traces.append({**at, **_grey(grey, number == 0)})
        for place, pair in enumerate(furthest):
            if pair in lines:
                name = f"{labels[pair[0]]} / {labels[pair[1]]}"
                traces.append({**at, **_named(lines[pair], name, place, number == 0)})
        numbers = table.loc[table["model"] == model, "layer"]
        value = "squared distance" if column == 1 else None
        layer_axes(layout, ref, (model, numbers), value)
    return go.Figure({"data": traces, "layout": layout})


def _grey(lines: Sequence[pd.DataFrame], legend: bool) -> dict[str, Any]:
    """All other pairs as one trace, with gaps between their lines."""
    x: list[Any] = []
    y: list[Any] = []
    hover: list[str] = []
    for line in lines:
        x += [*line["layer"], None]
        y += [*line["distance"], None]
        hover += [*_of_layers(line), ""]
    return {
        "x": x,
        "y": y,
        "mode": "lines+markers",
        "line": {"color": "rgba(140,140,140,0.4)", "width": 1},
        "marker": {"size": 3, "color": LINE},
        "hovertext": hover,
        "hoverinfo": "text",
        "name": "other pairs",
        "legendgroup": "other pairs",
        "showlegend": legend,
    }


def _named(line: pd.DataFrame, name: str, place: int, legend: bool) -> dict[str, Any]:
    color = PALETTE[place % len(PALETTE)]
    return {
        "x": line["layer"],
        "y": line["distance"],
        "mode": "lines+markers",
        "line": {"color": color, "width": 2, "dash": DASHES[place // len(PALETTE) % len(DASHES)]},
        "marker": {"size": 6, "color": color},
        "hovertext": _of_layers(line),
        "hoverinfo": "text",
        "name": name,
        "legendgroup": name,
        "showlegend": legend,
    }


def _of_layers(line: pd.DataFrame) -> list[str]:
    return [
        f"{_told(row)}<br>{layer_in_model((row.model, row.layer))}" for row in line.itertuples()
    ]


def value_scatter(
    table: pd.DataFrame, pair: tuple[Layer, Layer], rho: float, named: int = NAMED
) -> go.Figure:
    """The distances of every two values in two layers against each other.

    Parameters
    ----------
    table : value_a, value_b, distance_a, distance_b, difference, n_pairs, see
        `mlem_core.measures.value_distances.compare_layers`
    pair : (model, layer) on the x and on the y axis
    rho : Spearman ρ of the two
    named : how many pairs, those whose ranks differ most and those furthest apart, are named
    """
    xy = table[["distance_a", "distance_b"]].to_numpy(dtype=np.float64)
    highest = np.maximum(xy.max(axis=0, initial=0.0), 1e-12)
    ranks = table[["distance_a", "distance_b"]].rank()
    moved = (ranks["distance_a"] - ranks["distance_b"]).abs()
    far = ranks.sum(axis=1)
    shown = {*moved.nlargest(named).index, *far.nlargest(named).index}
    names = [*dict.fromkeys([*table["value_a"], *table["value_b"]])]
    label = dict(zip(names, short_names(names), strict=True))
    texts = [
        f"{label[row.value_a]} / {label[row.value_b]}" if row.Index in shown else ""
        for row in table.itertuples()
    ]
    titles = [layer_title(layer) for layer in pair]
    axes = layer_titles(pair, TITLE)
    texts, places = uncrowded(xy / highest, texts)
    figure = go.Figure(
        go.Scatter(
            x=xy[:, 0],
            y=xy[:, 1],
            mode="markers+text",
            marker={"size": 8, "color": [PALETTE[0] if text else GREY for text in texts]},
            text=texts,
            textposition=places,
            textfont={"size": SIZE - 1},
            hovertext=[
                f"<b>{in_full(str(row.value_a))} and {in_full(str(row.value_b))}</b>"
                f"<br>{titles[0]}: {as_number(row.distance_a)}"
                f"<br>{titles[1]}: {as_number(row.distance_b)}"
                f"<br>{row.n_pairs:,} pairs of stimuli"
                for row in table.itertuples()
            ],
            hoverinfo="text",
            cliponaxis=False,
            showlegend=False,
            name="pairs of values",
        )
    )
    quiet(figure, height=460)
    for axis, side in ((figure.update_xaxes, 0), (figure.update_yaxes, 1)):
        axis(
            title_text=f"squared distance in {axes[side]}",
            range=[-0.05 * highest[side], 1.12 * highest[side]],
            zeroline=True,
        )
    figure.update_layout(annotations=[title_of(f"Spearman ρ = {as_number(rho, 2)}", "")])
    return figure
