"""Importance of each feature over the layers of each model (figure 3 of Salle et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis.in_words import FOLDS
from mlem_core.analysis.results import Results
from mlem_core.base.text import minus
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.figures.captions import joined
from mlem_core.figures.context import FigureContext, RenderedFigure, figure, held_out
from mlem_core.figures.naming import (
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
from mlem_core.inference.intervals import LayerIntervals
from mlem_core.inference.tables import score_table
from mlem_core.robustness.flags import of_layers

MARKS = 10
_SCORES = {
    "rho": ("prediction accuracy (held-out ρ)", "dash"),
    "ceiling": ("best possible (ceiling)", "dot"),
}


def profiles(
    importance: pd.DataFrame,
    scores: pd.DataFrame,
    features: Sequence[str],
    across: int = 3,
    value: str = "feature importance (FI)",
    annotations: Annotations = NO_ANNOTATIONS,
) -> go.Figure:
    """Feature importance over the layers, a panel a model (figure 3 of Salle et al. 2024).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance; the features in it are drawn
    scores : model, layer, fold and, where they are to be drawn, rho and ceiling
    features : all features of the analysis, which decide the colours
    across : panels beside each other
    value : what `importance` is, in words with its short name in parentheses
    annotations : intervals are a table of model, layer, quantity ("rho", "ceiling", "importance"),
        feature, value, lower, upper, p_corrected, see `mlem_core.inference.tables.score_table`;
        flags are of layers (model, layer), drawn as triangles above them; each marked layer has a
        thin line with its letter, A, B ...; chance is model, layer, feature, chance, drawn as a
        grey band up to the largest

    Lines are means over folds; bands are the intervals, or ± 1 standard deviation where there are
    none. A mark is open where the corrected p of its importance is above 0.05. The held-out ρ
    (dashed) and the ceiling (dotted) are in grey.
    """
    models = list(dict.fromkeys(importance["model"]))
    layout, places = panel_layout(model_labels(models, TITLE), height=360, across=across)
    labels = feature_labels(features, LEGEND)
    bounds = {} if annotations.intervals is None else _bounds(annotations.intervals)
    lines = _lines(importance, "importance", bounds)
    for key in ("rho", "ceiling"):
        if key in scores:
            lines |= _lines(scores.assign(feature=""), key, bounds)
    highest = 1.05 * float(np.nanmax([line.mean.max() for line in lines.values()], initial=0.0))
    unit = value.rpartition("(")[2].rstrip(")")
    traces: list[Trace] = []
    for number, (model, (_, column)) in enumerate(zip(models, places, strict=True)):
        numbers = importance.loc[importance["model"] == model, "layer"]
        called = {n: f"{model_name(model)}, {layer_in_model((model, n))}" for n in set(numbers)}
        panel = _Panel(called, number == 0, panel_ref(number))
        for place, name in enumerate(features):
            line = lines.get((model, "importance", name))
            if line is not None:
                named = _Feature(name, labels[place], place)
                traces += in_panel(panel.ref, _feature_traces(line, named, panel, unit))
        if annotations.chance is not None:
            of_model = annotations.chance[annotations.chance["model"] == model]
            traces += in_panel(panel.ref, _chance_band(of_model, panel))
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
        layer_axes(layout, panel.ref, (model, numbers), value if column == 1 else None)
        marked = [
            (at, number) for at, (one, number) in enumerate(annotations.marked) if one == model
        ]
        _mark_layers(layout, marked, panel.ref)
    # Checking each property would take half of the time; the tests check them.
    return go.Figure(traces, layout, _validate=False)


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
    layout[f"xaxis{ref}"]["title"]["text"] = "layer"
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


class _Panel(NamedTuple):
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


def _chance_band(table: pd.DataFrame, panel: _Panel) -> list[Trace]:
    """Grey band from 0 to the largest importance of any feature by chance."""
    largest = table.groupby("layer")["chance"].max().clip(lower=0.0).dropna()
    if not len(largest):
        return []
    x, high = largest.index.to_numpy(), largest.to_numpy(np.float64)
    grey = band(x, np.zeros(len(x)), high, GREY, "chance", 0.25)
    label = "chance (largest of the features)"
    return [grey | {"name": label, "showlegend": panel.first}]


def _score_traces(line: _Line, key: str, panel: _Panel) -> list[Trace]:
    """The held-out ρ with its interval, or the ceiling, in grey."""
    label, dash = _SCORES[key]
    x, mean, _, bounds = line
    traces = []
    if bounds is not None and key == "rho" and len(x) > 1:
        traces.append(band(x, bounds.lower, bounds.upper, GREY, label, 0.12))
    hover = [
        f"{panel.called[layer]}<br>{label}: Spearman ρ = {value}{more}"
        for layer, value, more in zip(x, as_numbers(mean), line.hover, strict=True)
    ]
    look = {
        "line": {"color": GREY, "width": 1.5, "dash": dash},
        "marker": {"symbol": "line-ew-open", "size": 14},
        # In two lines, or the legend would take the panels' place.
        "name": label.replace(" (", "<br>("),
        "legendgroup": label,
        "showlegend": panel.first,
    }
    return [*traces, scatter(x, mean, hover, "lines" if len(x) > 1 else "lines+markers", **look)]


class _Feature(NamedTuple):
    """A feature, its name in the legend, and its place among all features, which decides the
    colour."""

    name: str
    label: str
    place: int


def _feature_traces(line: _Line, feature: _Feature, panel: _Panel, unit: str) -> list[Trace]:
    """The importance of a feature with its band."""
    name, label, place = feature
    x, mean, sd, bounds = line
    low, high = (mean - sd, mean + sd) if bounds is None else (bounds.lower, bounds.upper)
    spread = [f" ± {s} (sd)" for s in as_numbers(sd)] if bounds is None else line.hover
    color = PALETTE[place % len(PALETTE)]
    symbol: Any = SYMBOLS[place % len(SYMBOLS)]
    if bounds is not None:
        symbol = [f"{symbol}-open" if p > SIGNIFICANT else symbol for p in bounds.p]
    error = {"array": high - mean, "arrayminus": mean - low, "symmetric": False}
    hover = [
        f"<b>{feature_name(name)}</b><br>{panel.called[layer]}<br>{unit} = {m}{more}"
        for layer, m, more in zip(x, as_numbers(mean), spread, strict=True)
    ]
    marker = {"symbol": symbol, "size": 6 if len(x) > 1 else 10}
    # In a long line some marks distinguish it; where they say something, all are drawn.
    marker["maxdisplayed"] = MARKS if bounds is None else 0
    named = {"name": label, "legendgroup": name, "showlegend": panel.first, "marker": marker}
    trace = curve(x, mean, hover, color, dash_of(place), **named)
    trace["error_y"] = error | {"thickness": 1, "width": 3} if len(x) == 1 else None
    traces = [band(x, low, high, color, name)] if len(x) > 1 else []
    if not panel.first or isinstance(symbol, str) or not symbol[0].endswith("-open"):
        return [*traces, trace]
    # The legend shows the first mark; it is the feature's, not that of one layer.
    closed = trace["marker"] | {"symbol": SYMBOLS[place % len(SYMBOLS)]}
    nowhere = {"x": [None], "y": [None], "error_y": None, "hovertext": None, "hoverinfo": "skip"}
    entry = trace | nowhere | {"marker": closed}
    return [*traces, trace | {"showlegend": False}, entry]


@figure(
    "profiles",
    "Importance over the layers",
    lambda context: (
        f"What is lost of the prediction accuracy (ρ on {held_out(context.analysis)}) when a "
        "feature is permuted, layer by layer."
    ),
    offered=True,
)
def draw_profiles(context: FigureContext) -> RenderedFigure:
    """Figure 3 of Salle et al. (2024)."""
    results, tested = context.results, context.score_tests
    reasons = {measure: context.reasons(measure) for measure in ("profiles", "scores")}
    flags = of_layers(reasons, context.selection.layers)
    table = profile_table(results)
    if context.intervals is not None:
        table = profile_intervals(context.intervals, results)
    return RenderedFigure(
        profiles(
            results.importance,
            results.scores,
            context.terms,
            across=context.across,
            annotations=Annotations(
                None if tested is None else tested.table,
                flags,
                context.marked_pair or (),
                context.importance_chance,
            ),
        ),
        "Importance of each feature over the layers",
        profiles_caption(context, flagged=bool(flags)),
        results.importance if tested is None else tested.table,
        table,
    )


def profiles_caption(context: FigureContext, *, flagged: bool) -> str:
    """Caption of the importances over the layers; an audit may have flagged some."""
    spread = f"Bands: {FOLDS}."
    if context.score_tests is not None:
        spread = (
            f"Bands: 95 % CI over {context.over}. Open markers: p > .05, corrected over "
            f"{context.score_tests.family}."
        )
    return joined(
        "Drop in held-out ρ when a feature is permuted (mean over folds).",
        spread,
        "Dashed: held-out ρ. Dotted: feature ceiling.",
        "Triangles: a conclusion changes in the audit." if flagged else "",
        "Grey: largest importance with permuted labels."
        if context.importance_chance is not None
        else "",
        context.basis,
    )


def profile_table(results: Results) -> pd.DataFrame:
    """A row a layer: held-out ρ and the importance of each feature, as "mean (sd)" over folds."""

    def mean_sd(values: pd.Series[float]) -> str:
        return minus(f"{values.mean():.3f} ({values.std():.3f})")

    by = ["model", "layer"]
    scores = results.scores.groupby(by, sort=False)["rho"].agg(mean_sd).rename("ρ")
    features = list(dict.fromkeys(results.importance["feature"]))
    cells = results.importance.groupby([*by, "feature"], sort=False)["importance"].agg(mean_sd)
    table = pd.concat([scores, cells.unstack()[features]], axis=1)
    return table.reset_index()


def profile_intervals(intervals: LayerIntervals, results: Results) -> pd.DataFrame:
    """A row a layer: held-out ρ and importances with their 95 % intervals, as text."""
    table = score_table(intervals, results.layers).table
    table = table[table["quantity"] != "ceiling"]
    cells = [
        minus(f"{value:.3f} [{low:.3f}, {high:.3f}]")
        for value, low, high in zip(table["value"], table["lower"], table["upper"], strict=True)
    ]
    table = table.assign(cell=cells, feature=table["feature"].replace("", "ρ"))
    names = ["ρ", *dict.fromkeys(results.importance["feature"])]
    wide = table.pivot(index=["model", "layer"], columns="feature", values="cell")[names]
    return wide.loc[list(results.layers)].reset_index().rename_axis(columns=None)
