"""The methods and numbers of both papers beside each other, and beside those found here.

Source: figures S7 to S9 and S12 of Jalouzot et al. (2024).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import FloatArray, IntArray, parse_layer
from mlem_core.figures.naming import layer_title, layer_titles, model_labels
from mlem_core.figures.profiles import band, layer_axes, profiles
from mlem_core.figures.style import (
    LEGEND,
    LINE,
    MODEL_COLORS,
    PALETTE,
    SYMBOLS,
    TITLE,
    as_number,
    faded,
    panel_layout,
    panel_ref,
    quiet,
    whole_layers,
)

RHO = "prediction accuracy (held-out ρ)"
_ROW = 64  # px; of a number that was published
_MARKS = (("published", "published", "circle-open", 0), ("here", "here", "circle", 1))
_MEASURES = (
    ("frobenius", "apart in their weights", "Frobenius distance"),
    ("tau", "alike in their profiles", "weighted Kendall τ"),
)


def method_scores(
    scores: pd.DataFrame,
    ceilings: pd.DataFrame,
    called: Mapping[str, str],
    across: int = 3,
) -> go.Figure:
    """The held-out ρ of each method over the layers, a panel a model (figure S9).

    Parameters
    ----------
    scores : method, model, layer, fold, rho
    ceilings : model, layer, fold, ceiling: what a function of the features could reach
    called : what each method is called; its order decides the colours, others follow
    across : panels beside each other
    """
    order = [*called, *(name for name in scores["method"].unique() if name not in called)]
    names = {name: called.get(name, name) for name in order}
    table = scores.assign(feature=scores["method"].map(names), importance=scores["rho"])
    return profiles(
        table.drop(columns=["rho", "method"]),
        ceilings[["model", "layer", "fold", "ceiling"]],
        [names[name] for name in order],
        across,
        RHO,
    )


def method_agreement(agreement: pd.DataFrame, across: int = 2) -> go.Figure:
    """How far two methods agree over the layers, a line a model (figure S7).

    Parameters
    ----------
    agreement : model, layer, fold, frobenius, tau, see `mlem_core.analysis.methods.agreement`
    across : 2 beside each other, 1 below each other
    """
    models = list(dict.fromkeys(agreement["model"]))
    layout = _panels("layer", across)
    traces: list[dict[str, Any]] = []
    for place, (measure, *_) in enumerate(_MEASURES):
        ref = panel_ref(place)
        axes = {"type": "scatter", "xaxis": f"x{ref}", "yaxis": f"y{ref}"}
        for at, model in enumerate(models):
            own = agreement[agreement["model"] == model]
            label = model_labels(models, LEGEND)[at]
            drawn = _line(own, measure, (model, label), at)
            traces += [axes | {"showlegend": False} | trace for trace in drawn]
            traces[-1]["showlegend"] = place == 0
        layout[f"xaxis{ref}"] |= whole_layers(agreement["layer"])
    # Checking each property would take half of the time; the tests check them.
    return go.Figure(traces, layout, _validate=False)


def noise_agreement(agreement: pd.DataFrame, across: int = 2) -> go.Figure:
    """How far two methods agree as noise is added to a layer (figure S8).

    Parameters
    ----------
    agreement : noise, fold, frobenius, tau, see `mlem_core.analysis.methods.agreement_by_noise`
    across : 2 beside each other, 1 below each other
    """
    layout = _panels("noise (sd of each unit)", across)
    traces: list[dict[str, Any]] = []
    for place, (measure, _, unit) in enumerate(_MEASURES):
        ref, color = panel_ref(place), PALETTE[place]
        axes = {"type": "scatter", "xaxis": f"x{ref}", "yaxis": f"y{ref}", "showlegend": False}
        x, mean, sd = _over_folds(agreement, measure, "noise")
        line = {
            "x": x,
            "y": mean,
            "mode": "lines+markers",
            "line": {"color": color, "width": 2},
            "marker": {"symbol": SYMBOLS[0], "size": 7},
            "hovertext": _said([f"noise {as_number(n)}" for n in x], mean, sd),
            "hoverinfo": "text",
        }
        traces += [axes | one for one in (band(x, mean - sd, mean + sd, color, unit), line)]
    return go.Figure(traces, layout, _validate=False)


def _panels(over: str, across: int) -> dict[str, Any]:
    """The layout of a panel for each of `_MEASURES`, each with numbers of its own."""
    layout, _ = panel_layout([title for _, title, _ in _MEASURES], height=320, across=across)
    for place, (_, _, unit) in enumerate(_MEASURES):
        ref = panel_ref(place)
        layout[f"xaxis{ref}"]["title"]["text"] = over
        layout[f"yaxis{ref}"]["title"]["text"] = unit
        layout[f"yaxis{ref}"]["rangemode"] = "tozero"
    if across > 1:
        layout["xaxis"]["domain"], layout["xaxis2"]["domain"] = [0, 0.45], [0.55, 1]
    return layout


def unit_scores(units: pd.DataFrame, scores: pd.DataFrame, across: int = 3) -> go.Figure:
    """The held-out ρ of every unit alone, layer by layer, and of the whole layer (figure S12).

    Parameters
    ----------
    units : model, layer, unit, fold, rho
    scores : model, layer, fold, rho of the metric model of the whole layer
    across : panels beside each other
    """
    models = list(dict.fromkeys(units["model"]))
    layout, places = panel_layout(model_labels(models, TITLE), height=320, across=across)
    means = units.groupby(["model", "layer", "unit"], sort=False)["rho"].mean().reset_index()
    traces: list[dict[str, Any]] = []
    for place, (model, (_, column)) in enumerate(zip(models, places, strict=True)):
        ref = panel_ref(place)
        axes = {"xaxis": f"x{ref}", "yaxis": f"y{ref}"}
        own = means[means["model"] == model]
        whole = scores[(scores["model"] == model) & scores["layer"].isin(own["layer"])]
        drawn = [*_shapes(model, own), _best(model, own), _whole(model, whole)]
        traces += [axes | trace | {"showlegend": False} for trace in drawn]
        if place == 0:
            # The first shape, the best unit and the whole layer stand for all.
            for at in (0, -2, -1):
                traces[at]["showlegend"] = True
        layer_axes(layout, ref, (model, own["layer"]), RHO if column == 1 else None)
    return go.Figure(traces, layout, _validate=False)


def _shapes(model: str, own: pd.DataFrame) -> list[dict[str, Any]]:
    """A violin a layer: how the scores of its units are spread."""
    layers = np.sort(own["layer"].unique())
    wide = 0.85 * float(np.diff(layers).min()) if len(layers) > 1 else 0.8
    shapes = []
    for n in layers:
        rho = own.loc[own["layer"] == n, "rho"].to_numpy(dtype=np.float64)
        said = f"median {as_number(np.median(rho))}, best {as_number(rho.max())}"
        shapes.append(
            {
                "type": "violin",
                "x0": n,
                "y": rho,
                "width": wide,
                # The shape ends where the units do.
                "spanmode": "hard",
                "points": False,
                "line": {"color": PALETTE[4], "width": 1},
                "fillcolor": faded(PALETTE[4], 0.35),
                "meanline": {"visible": False},
                "box": {"visible": True, "width": 0.12, "fillcolor": "rgba(0,0,0,0)"},
                "name": "single units",
                "legendgroup": "units",
                "hoveron": "violins",
                "text": f"<b>{layer_title((model, int(n)))}</b><br>{len(rho):,} units: {said}",
                "hoverinfo": "text",
            }
        )
    return shapes


def _best(model: str, own: pd.DataFrame) -> dict[str, Any]:
    """The unit with the highest score of each layer."""
    best = own.loc[own.groupby("layer")["rho"].idxmax()]
    texts = [
        f"<b>{layer_title((model, int(n)))}</b><br>unit {unit}: ρ = {as_number(rho)}"
        for n, unit, rho in best[["layer", "unit", "rho"]].itertuples(index=False)
    ]
    return {
        "type": "scatter",
        "x": best["layer"],
        "y": best["rho"],
        "mode": "markers",
        "marker": {"color": PALETTE[0], "size": 6},
        "name": "best unit",
        "hovertext": texts,
        "hoverinfo": "text",
    }


def _whole(model: str, scores: pd.DataFrame) -> dict[str, Any]:
    """The metric model of all units together."""
    x, mean, sd = _over_folds(scores, "rho")
    return {
        "type": "scatter",
        "x": x,
        "y": mean,
        "mode": "lines+markers",
        "line": {"color": PALETTE[1], "width": 2, "dash": "dash"},
        "marker": {"symbol": "diamond", "size": 7},
        "name": "whole layer",
        "hovertext": _said(_titles(model, x), mean, sd, "whole layer: ρ = "),
        "hoverinfo": "text",
    }


def _line(
    own: pd.DataFrame, measure: str, named: tuple[str, str], place: int
) -> list[dict[str, Any]]:
    """The mean over folds with its standard deviation, and what hovering says."""
    model, label = named
    x, mean, sd = _over_folds(own, measure)
    color = MODEL_COLORS[place % len(MODEL_COLORS)]
    line = {
        "x": x,
        "y": mean,
        "name": label,
        "legendgroup": model,
        "mode": "lines+markers",
        "line": {"color": color, "width": 2},
        "marker": {"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 7 if len(x) > 1 else 10},
        "hovertext": _said(_titles(model, x), mean, sd),
        "hoverinfo": "text",
    }
    return [*([band(x, mean - sd, mean + sd, color, model)] if len(x) > 1 else []), line]


def _titles(model: str, layers: IntArray) -> list[str]:
    return [layer_title((model, int(n))) for n in layers]


def _said(titles: Sequence[str], mean: FloatArray, sd: FloatArray, before: str = "") -> list[str]:
    """What hovering over the points of a line over folds says."""
    return [
        f"<b>{title}</b><br>{before}{as_number(m)} ± {as_number(s)} (sd)"
        for title, m, s in zip(titles, mean, sd, strict=True)
    ]


def _over_folds(table: pd.DataFrame, value: str, by: str = "layer") -> tuple[Any, Any, Any]:
    """The layers (or what else the lines go over) in order, mean and standard deviation."""
    stats = table.groupby(by)[value].agg(["mean", "std"]).fillna({"std": 0.0})
    mean, sd = (stats[name].to_numpy(np.float64) for name in ("mean", "std"))
    return stats.index.to_numpy(), mean, sd


def published_values(table: pd.DataFrame) -> go.Figure:
    """A row a number: the published one and the one found here.

    Parameters
    ----------
    table : quantity, layer_a, layer_b, published, here, see
        `mlem_core.analysis.methods.beside_published`; a number that is missing is not drawn
    """
    labels = [_label(*row) for row in table[["layer_a", "layer_b"]].itertuples(index=False)]
    figure = go.Figure()
    for at, (one, other) in enumerate(table[["published", "here"]].to_numpy().tolist()):
        if not math.isnan(other):
            figure.add_scatter(
                x=[one, other], y=[at, at], mode="lines", line={"color": LINE, "width": 2},
                showlegend=False, hoverinfo="skip",
            )  # fmt: skip
    for column, name, symbol, place in _MARKS:
        color = PALETTE[place]
        figure.add_scatter(
            x=table[column],
            y=list(range(len(table))),
            mode="markers",
            marker={
                "symbol": symbol,
                "size": 11,
                "color": color,
                "line": {"width": 2, "color": color},
            },
            name=name,
            hovertext=[
                f"{label.replace('<br>', ' ')}<br>{name}: {as_number(value)}"
                for label, value in zip(labels, table[column], strict=True)
            ],
            hoverinfo="text",
        )
    quiet(figure, height=_ROW * len(table) + 110)
    figure.update_xaxes(
        title_text="weighted Kendall τ, or ρ of the two similarities", zeroline=True, nticks=6
    )
    figure.update_yaxes(
        tickvals=list(range(len(table))),
        ticktext=labels,
        range=[len(table) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
        automargin=True,
    )
    return figure


def _label(a: str, b: str) -> str:
    """What a row is of: two layers, or all of them."""
    if not a:
        return "agreement<br>of τ and RSA"
    return "<br>".join(layer_titles([parse_layer(a), parse_layer(b)], TITLE))
