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
    layer_title,
    model_colors,
    model_labels,
    model_name,
    named_layers,
)
from mlem_core.figures.style import (
    AUDIT,
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
FI = "feature importance (drop in ρ)"
_SCORES = {
    "rho": ("prediction accuracy (held-out ρ)", "dash"),
    "ceiling": ("best possible (ceiling)", "dot"),
}


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
    unit = _unit(value)
    traces: list[Trace] = []
    for number, (model, (_, column)) in enumerate(zip(models, places, strict=True)):
        numbers = importance.loc[importance["model"] == model, "layer"]
        called = {n: f"{model_name(model)}, {layer_in_model((model, n))}" for n in set(numbers)}
        panel = _Panel(called, number == 0, panel_ref(number))
        for place, name in enumerate(features):
            line = lines.get((model, "importance", name))
            if line is not None:
                color = PALETTE[place % len(PALETTE)]
                of = _Drawn(feature_name(name), labels[place], name, color, place)
                traces += in_panel(panel.ref, _line_traces(line, of, panel, unit))
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


def feature_panels(
    importance: pd.DataFrame,
    scores: pd.DataFrame,
    features: Sequence[str],
    last: Mapping[str, int],
    across: int = 3,
    value: str = FI,
    annotations: Annotations = NO_ANNOTATIONS,
) -> go.Figure:
    """The lines of `profiles` over relative depth, a panel a feature and a line a model.

    Where `scores` have it, the held-out ρ has a panel of its own, with the ceilings (dotted) and a
    triangle at each flagged layer.

    Parameters
    ----------
    last : the number of each model's last layer, which is relative depth 1
    """

    def by_depth(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(layer=table["layer"] / table["model"].map(last).clip(lower=1))

    lines: dict[_Key, _Line] = {}
    bounds = {} if annotations.intervals is None else _bounds(by_depth(annotations.intervals))
    for key, table in (("importance", importance), ("rho", scores), ("ceiling", scores)):
        if key in table:
            own = table if key == "importance" else table.assign(feature="")
            lines |= _lines(by_depth(own), key, bounds)
    names = [name for name in features if name in set(importance["feature"])]
    rows, titles = names, feature_labels(names, TITLE)
    if "rho" in scores:
        rows, titles = [*names, ""], [*titles, "held-out ρ"]
    layout, places = panel_layout(titles, height=200, across=across)
    models = list(dict.fromkeys(importance["model"]))
    looks = list(zip(models, model_labels(models, LEGEND), model_colors(models), strict=True))
    traces: list[Trace] = []
    for number, (name, (_, column)) in enumerate(zip(rows, places, strict=True)):
        panel = _Panel({}, number == 0, panel_ref(number))
        if annotations.chance is not None and name:
            most = annotations.chance.set_index("feature")["chance"].get(name)
            ends = pd.DataFrame({"layer": [0.0, 1.0], "chance": np.max(most)})
            traces += in_panel(panel.ref, _chance_band(ends, panel))
        for place, (model, label, color) in enumerate(looks):
            of = _Drawn(titles[number], label, model, color, place, faint=True)
            for key in ("importance",) if name else ("ceiling", "rho"):
                if (line := lines.get((model, key, name))) is None:
                    continue
                at = [(model, round(depth * max(last[model], 1))) for depth in line.layers]
                called = dict(zip(line.layers, map(layer_title, at), strict=True))
                unit = _unit(value) if name else "ρ"
                drawn = _line_traces(line, of, panel._replace(called=called), unit)
                if key == "ceiling":
                    look = {"color": color, "width": 1, "dash": "dot"}
                    drawn = [drawn[-1] | {"mode": "lines", "line": look}]
                flagged = [
                    i for i, one in enumerate(at) if key == "rho" and one in annotations.flags
                ]
                if flagged:
                    why = [f"audit: {wrapped(annotations.flags[at[i]])}" for i in flagged]
                    xy = line.layers[flagged].tolist(), line.mean[flagged].tolist()
                    begins = not any(trace.get("name") == AUDIT for trace in traces)
                    drawn.append(flag_trace(*xy, why, begins))
                traces += in_panel(panel.ref, drawn)
        across_depth = {"range": [-0.04, 1.04], "tickvals": [0, 0.5, 1], "showgrid": False}
        layout[f"xaxis{panel.ref}"] |= across_depth
        layout[f"xaxis{panel.ref}"]["title"]["text"] = "relative depth"
        layout[f"yaxis{panel.ref}"] |= {"matches": "y", "showticklabels": column == 1}
        layout[f"yaxis{panel.ref}"]["title"]["text"] = value if column == 1 else None
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


def _unit(value: str) -> str:
    """The unit in parentheses behind what a value is."""
    return value.rpartition("(")[2].rstrip(")")


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
        """What hovering over each point says of its interval and test."""
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
    """What lies between two lines over x: layers, depths or steps."""
    around, ends = np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])
    look = {"fill": "toself", "fillcolor": faded(color, opacity), "line": {"width": 0}}
    named = {"legendgroup": group, "showlegend": False, "name": "band"}
    return scatter(around, ends, mode="lines", **look, **named)


def _chance_band(table: pd.DataFrame, panel: _Panel) -> list[Trace]:
    """What the labels of any feature have by chance at most, in grey from 0 on."""
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


class _Drawn(NamedTuple):
    """What a line is of on hovering and in the legend, its group there, and its look: its place
    among all of them decides mark and dash, and "faint" bands are many in a panel."""

    name: str
    label: str
    group: str
    color: str
    place: int
    faint: bool = False


def _line_traces(line: _Line, of: _Drawn, panel: _Panel, unit: str) -> list[Trace]:
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
    # In a long line some marks tell it apart; where they say something, all are drawn.
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


def by_feature(context: FigureContext) -> bool:
    """Whether panels are of features: not on a screen, of one model or of named layers."""
    several = len({model for model, _ in context.selection.layers}) > 1
    return several and not (context.drawing.screen or context.names.layers)


def drawn_profiles(
    context: FigureContext,
    importance: pd.DataFrame,
    scores: pd.DataFrame,
    features: Sequence[str],
    **more: Any,
) -> go.Figure:
    """`feature_panels` or `profiles`, see `by_feature`."""
    last: dict[str, int] = {}
    for model, number in context.analysis.layers:
        last[model] = max(number, last.get(model, 0))
    if not by_feature(context):
        return profiles(importance, scores, features, across=context.across, **more)
    return feature_panels(importance, scores, features, last, **more)


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
    results, tested, terms = context.results, context.score_tests, context.terms
    reasons = {measure: context.reasons(measure) for measure in ("profiles", "scores")}
    flags = of_layers(reasons, context.selection.layers)
    table = profile_table(results)
    if context.intervals is not None:
        table = profile_intervals(context.intervals, results)
    data = None if tested is None else tested.table
    marks = Annotations(data, flags, context.marked_pair or (), context.importance_chance)
    return RenderedFigure(
        drawn_profiles(context, results.importance, results.scores, terms, annotations=marks),
        "Importance of each feature over the layers",
        profiles_caption(context, flagged=bool(flags)),
        results.importance if data is None else data,
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
        "Dashed: held-out ρ." * (not by_feature(context)),
        "Dotted: feature ceiling.",
        "Triangles: a conclusion changes in the audit." if flagged else "",
        "Grey: largest with permuted labels." if context.importance_chance is not None else "",
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
