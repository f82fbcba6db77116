"""Importance of each feature over the layers of each model (figure 3 of Salle et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.figures.naming import (
    axis_title,
    feature_labels,
    feature_name,
    layer_in_model,
    model_labels,
    model_name,
    named_layers,
)
from mlem_core.figures.style import (
    GREY,
    LEGEND,
    NO_ANNOTATIONS,
    PALETTE,
    SIGNIFICANT,
    SYMBOLS,
    TITLE,
    Annotations,
    Trace,
    as_number,
    as_numbers,
    as_p,
    curve,
    dash_of,
    faded,
    flag_trace,
    in_panel,
    note,
    panel_layout,
    panel_ref,
    scatter,
    shape,
    whole_layers,
    wrapped,
)

MARKS = 10
FI = "feature importance (drop in ρ)"
_SCORES = {"rho": ("held-out ρ", "dash"), "ceiling": ("feature ceiling", "dot")}


def profiles(
    importance: pd.DataFrame,
    scores: pd.DataFrame,
    features: Sequence[str],
    across: int = 3,
    value: str = FI,
    annotations: Annotations = NO_ANNOTATIONS,
) -> go.Figure:
    """Feature importance over the layers, a panel a model (figure 3 of Salle et al. 2024).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance; the features in it are drawn
    scores : model, layer, fold and, where they are to be drawn, rho and ceiling
    features : all features of the analysis, which decide the colours
    across : panels beside each other
    value : what `importance` is, in words with its unit in parentheses
    annotations : intervals are a table of model, layer, quantity ("rho", "ceiling", "importance"),
        feature, value, lower, upper, p_corrected, see `mlem_core.inference.intervals.score_table`;
        flags are of layers (model, layer), drawn as triangles above them; each marked layer has a
        thin line with its letter, A, B ...; chance is model, layer, feature, chance, drawn as a
        grey band up to the largest; noise is model, layer, lower, upper, drawn as a grey band

    Lines are means over folds; bands are the intervals, or ± 1 standard deviation where there are
    none. A mark is open where the corrected p of its importance is above 0.05. The held-out ρ
    (dashed) and the ceiling (dotted) are in grey.
    """
    models = list(dict.fromkeys(importance["model"]))
    layout, places = panel_layout(model_labels(models, TITLE), height=360, across=across)
    labels = feature_labels(features, LEGEND)
    lines = lines_of(importance, scores, annotations.intervals)
    highest = 1.05 * float(np.nanmax([line.mean.max() for line in lines.values()], initial=0.0))
    unit = unit_of(value)
    traces: list[Trace] = []
    for number, (model, (_, column)) in enumerate(zip(models, places, strict=True)):
        numbers = importance.loc[importance["model"] == model, "layer"]
        called = {n: f"{model_name(model)}, {layer_in_model((model, n))}" for n in set(numbers)}
        panel = Panel(called, number == 0, panel_ref(number))
        for place, name in enumerate(features):
            line = lines.get((model, "importance", name))
            if line is not None:
                color = PALETTE[place % len(PALETTE)]
                of = Drawn(feature_name(name), labels[place], name, color, place)
                traces += in_panel(panel.ref, line_traces(line, of, panel, unit))
        if annotations.chance is not None:
            of_model = annotations.chance[annotations.chance["model"] == model]
            traces += in_panel(panel.ref, chance_band(of_model, panel))
        if annotations.noise is not None:
            of_model = annotations.noise[annotations.noise["model"] == model]
            x = of_model["layer"].to_numpy()
            traces += in_panel(panel.ref, noise_band(x, of_model, panel.first))
        for key in ("rho", "ceiling"):
            if (model, key, "") in lines:
                traces += in_panel(panel.ref, _score_traces(lines[model, key, ""], key, panel))
        flags = {layer: why for (one, layer), why in annotations.flags.items() if one == model}
        if flags:
            hover = [
                f"<b>{panel.called[layer]}</b><br>audit: {wrapped(why)}"
                for layer, why in flags.items()
            ]
            begins = not any(trace.get("legendgroup") == "audit" for trace in traces)
            triangles = flag_trace(list(flags), [highest] * len(flags), hover, begins)
            traces += in_panel(panel.ref, [triangles])
        # Of many panels each is too low for the whole title.
        title = value if len(models) <= 4 * across else unit
        layer_axes(layout, panel.ref, (model, numbers), title if column == 1 else None)
        marked = [
            (at, number) for at, (one, number) in enumerate(annotations.marked) if one == model
        ]
        _mark_layers(layout, marked, panel.ref)
    _all_in_legend(traces)
    # Checking each property would take half of the time; the tests check them.
    return go.Figure(traces, layout, _validate=False)


def _all_in_legend(traces: list[Trace]) -> None:
    """Name in the legend too what the first panel does not have."""
    named = {trace["legendgroup"] for trace in traces if trace.get("showlegend")}
    for trace in traces:
        group = trace.get("legendgroup", "chance")
        if trace.get("name") != "band" and group not in named:
            trace["showlegend"] = True
            named.add(group)


def layer_axes(
    layout: dict[str, Any], ref: str, of: tuple[str, pd.Series], value: str | None
) -> None:
    """Set the axes of a panel of lines over the layers of a model; all panels share one scale.

    Parameters
    ----------
    ref : what Plotly writes behind x and y for the panel
    of : the model, and the layers that are in the panel
    value : what the lines are; None in an inner panel, whose numbers would only repeat the scale
    """
    model, layers = of
    layout[f"xaxis{ref}"] |= named_layers(whole_layers(layers), model, layers)
    layout[f"xaxis{ref}"]["title"]["text"] = axis_title(model)
    shown = {"rangemode": "tozero", "zeroline": True, "showticklabels": value is not None}
    layout[f"yaxis{ref}"] |= {"matches": "y", **shown}
    layout[f"yaxis{ref}"]["title"]["text"] = value


def _mark_layers(layout: dict[str, Any], marked: Sequence[tuple[int, int]], ref: str) -> None:
    """A thin line with its letter at each layer of a panel that is looked at."""
    letters: dict[int, list[str]] = {}
    for place, layer in marked:
        letters.setdefault(layer, []).append(chr(ord("A") + place))
    for layer, names in letters.items():
        line = shape("line", (layer, 0), (layer, 1), (GREY, 1), ref, "y")
        layout.setdefault("shapes", []).append(line | {"layer": "below"})
        look = {"xanchor": "left", "yanchor": "top", "xshift": 2, "font": {"color": GREY}}
        text = f"<b>{', '.join(names)}</b>"
        layout["annotations"].append(note(text, layer, 1, ref, "y", **look))


def unit_of(value: str) -> str:
    """The unit in parentheses behind what a value is."""
    return value.rpartition("(")[2].rstrip(")")


class Panel(NamedTuple):
    """The panel of a model: what its layers are called on hovering, whether its lines are in the
    legend, and what stands behind x and y in the names of its axes."""

    called: Mapping[int, str]
    first: bool
    ref: str


class _Bounds(NamedTuple):
    """Interval and corrected p (NaN where nothing is tested) of each layer of a line."""

    lower: FloatArray
    upper: FloatArray
    p: FloatArray


class _Line(NamedTuple):
    """The layers in order, the mean and standard deviation over folds, and the intervals."""

    layers: IntArray
    mean: FloatArray
    sd: FloatArray
    bounds: _Bounds | None

    @property
    def hover(self) -> list[str]:
        """Hover texts on the interval and test of each point."""
        if self.bounds is None:
            return [""] * len(self.layers)
        return [
            f"<br>95 % interval {as_number(low)} to {as_number(high)}"
            + ("" if np.isnan(p) else f"<br>above 0: p {as_p(p)} (corrected)")
            for low, high, p in zip(*self.bounds, strict=True)
        ]


# By model, quantity and feature ("" where the quantity is of no feature).
_Key = tuple[str, str, str]


def lines_of(
    importance: pd.DataFrame, scores: pd.DataFrame, intervals: pd.DataFrame | None
) -> dict[_Key, _Line]:
    """All lines of the tables of `profiles`, by model, quantity and feature ("" of a score)."""
    bounds = {} if intervals is None else _bounds(intervals)
    lines = _lines(importance, "importance", bounds)
    for key in {"rho", "ceiling"} & {*scores}:
        lines |= _lines(scores.assign(feature=""), key, bounds)
    return lines


def _lines(table: pd.DataFrame, key: str, bounds: Mapping[_Key, _Bounds]) -> dict[_Key, _Line]:
    stats = table.groupby(["model", "feature", "layer"])[key].agg(["mean", "std"])
    stats = stats.fillna({"std": 0.0}).reset_index("layer")
    return {
        (model, key, feature): _Line(
            line["layer"].to_numpy(),
            line["mean"].to_numpy(),
            line["std"].to_numpy(),
            bounds.get((model, key, feature)),
        )
        for (model, feature), line in stats.groupby(["model", "feature"])
    }


def _bounds(intervals: pd.DataFrame) -> dict[_Key, _Bounds]:
    table = intervals.sort_values("layer", kind="stable")
    return {
        key: _Bounds(
            *(rows[name].to_numpy(np.float64) for name in ("lower", "upper", "p_corrected"))
        )
        for key, rows in table.groupby(["model", "quantity", "feature"], sort=False)
    }


def band(
    x: IntArray | FloatArray,
    low: FloatArray,
    high: FloatArray,
    color: str,
    group: str,
    opacity: float = 0.18,
) -> Trace:
    """Band between two lines over x: layers, depths or steps."""
    around, ends = np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])
    look = {"fill": "toself", "fillcolor": faded(color, opacity), "line": {"width": 0}}
    named = {"legendgroup": group, "showlegend": False, "name": "band"}
    return scatter(around, ends, mode="lines", **look, **named)


def chance_band(table: pd.DataFrame, panel: Panel) -> list[Trace]:
    """Grey band from 0 to the largest importance of any feature by chance."""
    largest = table.groupby("layer")["chance"].max().clip(lower=0.0).dropna()
    if not len(largest):
        return []
    x, high = largest.index.to_numpy(), largest.to_numpy(np.float64)
    grey = band(x, np.zeros(len(x)), high, GREY, "chance", 0.25)
    label = "chance (largest of the features)"
    return [grey | {"name": label, "showlegend": panel.first}]


def noise_band(x: IntArray | FloatArray, table: pd.DataFrame, first: bool) -> list[Trace]:
    """Grey band between lower and upper noise ceiling over x; none of fewer than two layers."""
    if len(x) < 2:
        return []
    low, high = (table[end].to_numpy(np.float64) for end in ("lower", "upper"))
    grey = band(x, low, high, GREY, "noise ceiling", 0.12)
    return [grey | {"name": "noise ceiling", "showlegend": first, "legendrank": 1002}]


def _score_traces(line: _Line, key: str, panel: Panel) -> list[Trace]:
    """The held-out ρ with its interval, or the ceiling, in grey."""
    label, dash = _SCORES[key]
    x, mean, _, bounds = line
    traces = []
    if bounds is not None and key == "rho" and len(x) > 1:
        traces.append(band(x, bounds.lower, bounds.upper, GREY, label, 0.12))
    hover = [
        f"{panel.called[layer]}<br>{label} = {value}{more}"
        for layer, value, more in zip(x, as_numbers(mean), line.hover, strict=True)
    ]
    look = {
        "line": {"color": GREY, "width": 1.5, "dash": dash},
        "marker": {"symbol": "line-ew-open", "size": 14},
        "name": label,
        "legendrank": 1001,  # behind all features
        "legendgroup": label,
        "showlegend": panel.first,
    }
    return [*traces, scatter(x, mean, hover, "lines" if len(x) > 1 else "lines+markers", **look)]


class Drawn(NamedTuple):
    """What a line is of on hovering and in the legend, its group there, and its look: its place
    among all of them decides mark and dash, and "faint" bands are many in a panel."""

    name: str
    label: str
    group: str
    color: str
    place: int
    faint: bool = False


def line_traces(line: _Line, of: Drawn, panel: Panel, unit: str) -> list[Trace]:
    """The line of a feature, or of a model, with its band."""
    name, label, group, color, place, faint = of
    x, mean, sd, bounds = line
    low, high = (mean - sd, mean + sd) if bounds is None else (bounds.lower, bounds.upper)
    spread = [f" ± {s} (sd)" for s in as_numbers(sd)] if bounds is None else line.hover
    symbol: Any = SYMBOLS[place % len(SYMBOLS)]
    if bounds is not None:
        symbol = [f"{symbol}-open" if p > SIGNIFICANT else symbol for p in bounds.p]
    error = {"array": high - mean, "arrayminus": mean - low, "symmetric": False}
    hover = [
        f"<b>{name}</b><br>{panel.called[layer]}<br>{unit} = {m}{more}"
        for layer, m, more in zip(x, as_numbers(mean), spread, strict=True)
    ]
    marker = {"symbol": symbol, "size": (4 if faint else 6) if len(x) > 1 else 10}
    # In a long line some marks distinguish it; where they say something, all are drawn.
    marker["maxdisplayed"] = MARKS if bounds is None else 0
    named = {"name": label, "legendgroup": group, "showlegend": panel.first, "marker": marker}
    trace = curve(x, mean, hover, color, "" if faint else dash_of(place), **named)
    trace["error_y"] = error | {"thickness": 1, "width": 3} if len(x) == 1 else None
    opacity = 0.08 if faint else 0.18
    traces = [band(x, low, high, color, group, opacity)] if len(x) > 1 else []
    if not panel.first or isinstance(symbol, str) or not symbol[0].endswith("-open"):
        return [*traces, trace]
    # The legend shows the first mark; it is the feature's, not that of one layer.
    closed = trace["marker"] | {"symbol": SYMBOLS[place % len(SYMBOLS)]}
    nowhere = {"x": [None], "y": [None], "error_y": None, "hovertext": None, "hoverinfo": "skip"}
    entry = trace | nowhere | {"marker": closed}
    return [*traces, trace | {"showlegend": False}, entry]
