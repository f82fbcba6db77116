"""Importance of each feature over the layers of each model (figure 3 of Salle et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.figures.style import (
    DASHES,
    GREY,
    PALETTE,
    SIGNIFICANT,
    SYMBOLS,
    as_number,
    as_p,
    faded,
    feature_colors,
    panel_layout,
    panel_ref,
    plain,
    warning_marks,
    whole_layers,
    wrapped,
)

MARKS = 10


def with_interactions(
    importance: pd.DataFrame, features: Sequence[str], most: int = 4
) -> list[str]:
    """The features, then the interactions that matter most in any layer (`most` of them).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance
    features : all features of the analysis; what else is in the table is an interaction
    """
    others = importance[~importance["feature"].isin(list(features))]
    if others.empty:
        return list(features)
    means = others.groupby(["feature", "model", "layer"])["importance"].mean()
    strongest = means.groupby("feature").max().nlargest(most)
    return [*features, *strongest.index]


def profiles(
    importance: pd.DataFrame,
    scores: pd.DataFrame,
    features: Sequence[str],
    across: int = 3,
    marks: Mapping[tuple[str, int], str] | None = None,
    value: str = "feature importance (FI)",
    intervals: pd.DataFrame | None = None,
) -> go.Figure:
    """Feature importance over the layers, a panel a model (figure 3 of Salle et al. 2024).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance; the features in it are drawn
    scores : model, layer, fold and, where they are to be drawn, rho and ceiling
    features : all features of the analysis, which decide the colours
    across : panels beside each other
    marks : why a layer (model, layer) is to be read with care; a triangle above it says so
    value : what `importance` is, in words with its short name in parentheses
    intervals : model, layer, quantity ("rho", "ceiling", "importance"), feature, value, lower,
        upper, p_corrected, see `mlem_core.inference.jackknife.score_table`

    Lines are means over folds; bands are the intervals, or ± 1 standard deviation where there are
    none. A mark is open where the corrected p of its importance is above 0.05. The held-out ρ
    (dashed) and the ceiling (dotted) are in grey.
    """
    models = list(dict.fromkeys(importance["model"]))
    titles = [plain(model) for model in models]
    layout, places = panel_layout(titles, height=360, across=across)
    colors = feature_colors(features)
    means = _over_folds(importance, "importance", "feature")
    fits = {key: _over_folds(scores, key) for key in ("rho", "ceiling") if key in scores}
    unit = value.rpartition("(")[2].rstrip(")")
    bounds = {} if intervals is None else _bounds(intervals)
    tops = [mean.max() for lines in (means, *fits.values()) for _, mean, _ in lines.values()]
    highest = 1.05 * float(np.nanmax(tops, initial=0.0))
    traces = []
    for number, (model, (_, column)) in enumerate(zip(models, places, strict=True)):
        ref = panel_ref(number)
        at = {"type": "scatter", "xaxis": f"x{ref}", "yaxis": f"y{ref}"}
        for i, name in enumerate(features):
            if (model, name) not in means:
                continue
            for trace in _line_with_band(
                means[model, name],
                name,
                i,
                colors[name],
                plain(model),
                number == 0,
                unit,
                bounds.get((model, "importance", name)),
            ):
                traces.append(at | trace)
        for label, key, dash in (("held-out ρ", "rho", "dash"), ("ceiling", "ceiling", "dot")):
            if key not in fits:
                continue
            x, mean, _ = fits[key][(model,)]
            around = bounds.get((model, key, ""))
            if around is not None and key == "rho" and len(x) > 1:
                traces.append(at | _band(x, around.lower, around.upper, GREY, label, 0.12))
            traces.append(
                {
                    **at,
                    "x": x,
                    "y": mean,
                    "name": label,
                    "legendgroup": label,
                    "showlegend": number == 0,
                    "mode": "lines" if len(x) > 1 else "lines+markers",
                    "line": {"color": GREY, "width": 1.5, "dash": dash},
                    "marker": {"symbol": "line-ew-open", "size": 14},
                    "hovertext": [
                        f"{plain(model)}, layer {layer}<br>{label}: Spearman ρ = {value:.3f}{more}"
                        for layer, value, more in zip(x, mean, _told(around, len(x)), strict=True)
                    ],
                    "hoverinfo": "text",
                }
            )
        marked = {layer: why for (own, layer), why in (marks or {}).items() if own == model}
        if marked:
            told = [
                f"<b>{plain(model)}, layer {layer}</b><br>audit: {wrapped(why)}"
                for layer, why in marked.items()
            ]
            heights = [highest] * len(marked)
            traces.append(at | warning_marks(list(marked), heights, told, number == 0))
        layers = importance.loc[importance["model"] == model, "layer"]
        x_axis, y_axis = layout[f"xaxis{ref}"], layout[f"yaxis{ref}"]
        x_axis |= whole_layers(layers)
        x_axis["title"]["text"] = "layer"
        # Inner panels share the scale; their numbers would only repeat it.
        shown = {"rangemode": "tozero", "zeroline": True, "showticklabels": column == 1}
        y_axis |= {"matches": "y", **shown}
        y_axis["title"]["text"] = value if column == 1 else None
    # Checking each property would take half of the time; the tests check them.
    return go.Figure(traces, layout, _validate=False)


# x (layers), mean and standard deviation over folds
_Line = tuple[IntArray, FloatArray, FloatArray]


def _over_folds(table: pd.DataFrame, key: str, *by: str) -> dict[tuple[str, ...], _Line]:
    """By model (and more), the layers in order with the mean and spread over folds."""
    groups = ["model", *by]
    grouped = table.groupby([*groups, "layer"])[key]
    stats = grouped.agg(["mean", "std"]).fillna({"std": 0.0}).reset_index("layer")
    return {
        name: (own["layer"].to_numpy(), own["mean"].to_numpy(), own["std"].to_numpy())
        for name, own in stats.groupby(groups)
    }


class _Bounds(NamedTuple):
    """Interval and corrected p (NaN where nothing is tested) of each layer of a line."""

    lower: FloatArray
    upper: FloatArray
    p: FloatArray


def _bounds(intervals: pd.DataFrame) -> dict[tuple[str, str, str], _Bounds]:
    """By model, quantity and feature, the layers in order."""
    table = intervals.sort_values("layer", kind="stable")
    return {
        key: _Bounds(
            *(own[name].to_numpy(np.float64) for name in ("lower", "upper", "p_corrected"))
        )
        for key, own in table.groupby(["model", "quantity", "feature"], sort=False)
    }


def _told(bounds: _Bounds | None, n: int) -> list[str]:
    """What hovering over each point says of its interval and test."""
    if bounds is None:
        return [""] * n
    return [
        f"<br>95 % interval {as_number(low)} to {as_number(high)}"
        + ("" if np.isnan(p) else f"<br>above 0: p {as_p(p)} (corrected)")
        for low, high, p in zip(*bounds, strict=True)
    ]


def _band(
    x: IntArray, low: FloatArray, high: FloatArray, color: str, group: str, opacity: float = 0.18
) -> dict[str, Any]:
    return {
        "x": np.concatenate([x, x[::-1]]),
        "y": np.concatenate([high, low[::-1]]),
        "fill": "toself",
        "fillcolor": faded(color, opacity),
        "line": {"width": 0},
        "mode": "lines",
        "legendgroup": group,
        "showlegend": False,
        "hoverinfo": "skip",
        "name": "band",
    }


def _line_with_band(
    stats: _Line,
    name: str,
    place: int,
    color: str,
    model: str,
    legend: bool,
    unit: str,
    bounds: _Bounds | None = None,
) -> list[dict[str, Any]]:
    dash = DASHES[place // len(PALETTE) % len(DASHES)]
    x, mean, sd = stats
    low, high = (mean - sd, mean + sd) if bounds is None else bounds[:2]
    spread = [f" ± {s:.3f} (sd)" for s in sd] if bounds is None else _told(bounds, len(x))
    symbol: Any = SYMBOLS[place % len(SYMBOLS)]
    if bounds is not None:
        symbol = [f"{symbol}-open" if p > SIGNIFICANT else symbol for p in bounds.p]
    traces: list[dict[str, Any]] = []
    if len(x) > 1:
        traces.append(_band(x, low, high, color, name))
    traces.append(
        {
            "x": x,
            "y": mean,
            "error_y": {
                "array": high - mean,
                "arrayminus": mean - low,
                "symmetric": False,
                "thickness": 1,
                "width": 3,
            }
            if len(x) == 1
            else None,
            "name": plain(name),
            "legendgroup": name,
            "showlegend": legend,
            "mode": "lines+markers",
            "line": {"color": color, "width": 2, "dash": dash},
            "marker": {
                "symbol": symbol,
                "size": 6 if len(x) > 1 else 10,
                # In a long line some marks tell it apart; where they say something, all are drawn.
                "maxdisplayed": MARKS if bounds is None else 0,
            },
            "hovertext": [
                f"<b>{plain(name)}</b><br>{model}, layer {layer}<br>{unit} = {m:.3f}{more}"
                for layer, m, more in zip(x, mean, spread, strict=True)
            ],
            "hoverinfo": "text",
        }
    )
    if legend and not isinstance(symbol, str) and symbol[0].endswith("-open"):
        # The legend shows the first mark; it is the feature's, not that of one layer.
        closed = traces[-1]["marker"] | {"symbol": SYMBOLS[place % len(SYMBOLS)]}
        traces[-1]["showlegend"] = False
        traces.append(
            traces[-1]
            | {"x": [None], "y": [None], "error_y": None, "marker": closed}
            | {"showlegend": True, "hovertext": None, "hoverinfo": "skip"}
        )
    return traces
