"""Importance of each feature over the layers of each model (figure 3 of Salle et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.analysis.results import Results
from mlem_core.base.text import fraction
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.extending import Band
from mlem_core.figures.captions import FLAGGED, FOLDS, basis_sentence, joined
from mlem_core.figures.context import FigureContext, RenderedFigure, figure, held_out
from mlem_core.figures.naming import (
    axis_title,
    family_rows,
    feature_labels,
    feature_name,
    layer_in_model,
    model_name,
    named_layers,
)
from mlem_core.figures.style import (
    DASHES,
    GREY,
    LEGEND,
    PALETTE,
    SIGNIFICANT,
    SYMBOLS,
    WARNING,
    Trace,
    as_numbers,
    as_p,
    curve,
    error_bar,
    faded,
    interval,
    once_in_legend,
    panel_layout,
    place_in_panel,
    scatter,
    whole_layers,
    wrapped,
)
from mlem_core.inference.intervals import LayerIntervals, score_table
from mlem_core.measures import importance
from mlem_core.measures.importance import fitted

MARKS = 10
FI = "feature importance (drop in ρ)"
_SCORES = {"rho": ("held-out ρ", "dash"), "ceiling": ("feature ceiling", "dot")}


def profiles(
    importance: pd.DataFrame,
    scores: pd.DataFrame,
    features: Sequence[str],
    across: int = 3,
    value: str = FI,
    *,
    intervals: pd.DataFrame | None = None,
    flags: Mapping[Layer, str] = MappingProxyType({}),
    bands: Sequence[Band] = (),
) -> go.Figure:
    """Feature importance over the layers, a panel a model (figure 3 of Salle et al. 2024).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance; the features in it are drawn
    scores : model, layer, fold and, where they are to be drawn, rho and ceiling
    features : all features of the analysis, which decide the colours
    across : panels beside each other
    value : what `importance` is, in words with its unit in parentheses
    intervals : model, layer, quantity ("rho", "ceiling", "importance"), feature, value, lower,
        upper, p_corrected, see `mlem_core.inference.intervals.score_table`
    flags : why layers are to be read with care, drawn as triangles above them
    bands : grey ones behind the lines

    Lines are means over folds; bands are the intervals, or ± 1 standard deviation where there are
    none. A model with one layer has bars instead, a feature each. A mark is open where the
    corrected p of its importance is above 0.05. The held-out ρ (dashed) and the ceiling (dotted)
    are in grey.
    """
    models, titles, rows = family_rows(list(dict.fromkeys(importance["model"])), across)
    layout, places = panel_layout(titles, height=360, rows=rows)
    labels = feature_labels(features, LEGEND)
    lines = profile_lines(importance, scores, intervals)
    highest = 1.05 * float(np.nanmax([line.mean.max() for line in lines.values()], initial=0.0))
    unit = value.rpartition("(")[2].rstrip(")")
    traces: list[Trace] = []
    for model, (ref, first) in zip(models, places, strict=True):
        numbers = importance.loc[importance["model"] == model, "layer"]
        called = {n: f"{model_name(model)}, {layer_in_model((model, n))}" for n in set(numbers)}
        drawn: list[Trace] = []
        is_single = len(called) == 1
        for place, name in enumerate(features):
            if (line := lines.get((model, "importance", name))) is not None:
                feature_traces = _feature_bar if is_single else _feature_traces
                drawn += feature_traces(line, name, labels[place], called, unit, place)
        sides = np.array([-0.5, len(features) - 0.5])
        for ends in bands:
            table = ends.table[ends.table["model"] == model]
            if is_single:
                table = pd.concat([table.assign(layer=side) for side in sides])
            drawn += grey_band(table, ends.name)
        for key in ("rho", "ceiling"):
            if (line := lines.get((model, key, ""))) is not None:
                if is_single:
                    called |= dict.fromkeys(sides.tolist(), next(iter(called.values())))
                    line = line.along(sides)
                drawn += _score_traces(line, key, called)
        flagged = {layer: why for (name, layer), why in flags.items() if name == model}
        if flagged:
            at = [sides.mean()] if is_single else list(flagged)
            drawn.append(_flag_marks(at, highest, flagged, called))
        traces += place_in_panel(ref, drawn)
        axis = named_layers(whole_layers(numbers), model, numbers)
        title = axis_title(model)
        if is_single:
            axis = {"tickvals": list(range(len(labels))), "ticktext": labels, "range": [*sides]}
            axis["showgrid"] = False
            title = layer_in_model((model, numbers.iloc[0]))
        layout[f"xaxis{ref}"] |= axis
        layout[f"xaxis{ref}"]["title"]["text"] = title
        # All panels share one scale, whose numbers stand at the first of a row.
        axis = {"rangemode": "tozero", "zeroline": True, "showticklabels": first}
        layout[f"yaxis{ref}"] |= {"matches": "y", **axis}
        # Of many panels each is too low for the whole title.
        title = value if len(models) <= 4 * across else unit
        layout[f"yaxis{ref}"]["title"]["text"] = title if first else None
    # Checking each property would take half of the time; the tests check them.
    return go.Figure(once_in_legend(traces), layout, _validate=False)


def _flag_marks(
    x: Sequence[float], height: float, flagged: Mapping[int, str], called: Mapping[int, str]
) -> Trace:
    """Triangles above the layers that are to be read with care."""
    hover = [f"<b>{called[n]}</b><br>flagged: {wrapped(why)}" for n, why in flagged.items()]
    look = {"symbol": "triangle-up-open", "size": 8, "color": WARNING}
    named = {"name": "flagged", "legendgroup": "flagged", "cliponaxis": False}
    return scatter(x, [height] * len(flagged), hover, marker=look, **named)


class Line(NamedTuple):
    """Mean of each layer in order, with its interval or standard deviation, the corrected p (None
    where nothing is tested), and what hovering says of these."""

    x: IntArray | FloatArray
    mean: FloatArray
    lower: FloatArray
    upper: FloatArray
    p: FloatArray | None
    more: list[str]

    def at(self, layer: int) -> tuple[float, float, float, str] | None:
        """Mean, ends of the interval and hover text at a layer; None where the line has none."""
        places = np.flatnonzero(self.x == layer)
        if not len(places):
            return None
        at = int(places[0])
        return self.mean[at], self.lower[at], self.upper[at], self.more[at]

    def along(self, x: FloatArray) -> Line:
        """A line of one layer as a level line over x."""
        mean, lower, upper = (
            np.repeat(ends, len(x)) for ends in (self.mean, self.lower, self.upper)
        )
        p = None if self.p is None else np.repeat(self.p, len(x))
        return Line(x, mean, lower, upper, p, self.more * len(x))

    def hover(self, title: str, called: Mapping[Any, str], unit: str) -> list[str]:
        """Texts of hovering over its layers, which are `called` so."""
        return [
            f"{title}{called[layer]}<br>{unit} = {mean}{more}"
            for layer, mean, more in zip(self.x, as_numbers(self.mean), self.more, strict=True)
        ]


# By model, quantity and feature ("" where the quantity is of no feature).
_Key = tuple[str, str, str]


def profile_lines(
    importance: pd.DataFrame, scores: pd.DataFrame, intervals: pd.DataFrame | None
) -> dict[_Key, Line]:
    """All lines of the tables of `profiles`, by model, quantity and feature ("" of a score)."""
    by = ["model", "quantity", "feature"]
    bounds: dict[Any, pd.DataFrame] = {}
    if intervals is not None:
        bounds = dict(iter(intervals.sort_values("layer", kind="stable").groupby(by, sort=False)))
    tables = {"importance": importance}
    tables |= {key: scores.assign(feature="") for key in ("rho", "ceiling") if key in scores}
    lines = {}
    for key, table in tables.items():
        stats = table.groupby(["model", "feature", "layer"])[key].agg(["mean", "std"])
        stats = stats.fillna({"std": 0.0}).reset_index("layer")
        for (model, feature), rows in stats.groupby(["model", "feature"]):
            lines[model, key, feature] = _line(rows, bounds.get((model, key, feature)))
    return lines


def _line(stats: pd.DataFrame, bounds: pd.DataFrame | None) -> Line:
    x, mean, sd = (stats[name].to_numpy() for name in ("layer", "mean", "std"))
    if bounds is None:
        more = [f" ± {one} (sd)" for one in as_numbers(sd)]
        return Line(x, mean, mean - sd, mean + sd, None, more)
    low, high, p = (bounds[name].to_numpy(np.float64) for name in ("lower", "upper", "p_corrected"))
    tested = ["" if np.isnan(one) else f"<br>above 0: p {as_p(one)} (corrected)" for one in p]
    more = [f"<br>{interval(*one)}{test}" for *one, test in zip(low, high, tested, strict=True)]
    return Line(x, mean, low, high, p, more)


def band(
    x: IntArray | FloatArray,
    ends: tuple[Any, Any],
    color: str,
    group: str,
    opacity: float = 0.18,
    name: str = "",
) -> Trace:
    """Band between two ends over x: layers, depths or steps; with a name it is in the legend."""
    low, high = ends
    around, sides = np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])
    look = {"fill": "toself", "fillcolor": faded(color, opacity), "line": {"width": 0}}
    named = {"legendgroup": group, "name": name or "band"} | ({} if name else {"showlegend": False})
    return scatter(around, sides, mode="lines", **look, **named)


def line_with_band(
    x: Any, y: Any, ends: tuple[Any, Any], hover: Sequence[str], color: str, **more: Any
) -> list[Trace]:
    """A line with the band between its ends, which crosses no gap; a lone point has a bar.

    Parameters
    ----------
    ends : lower and upper end of each point, NaN where there is none
    more : of `curve`
    """
    x, y, low, high = (np.asarray(one) for one in (x, y, *ends))
    line = curve(x, y, hover, color, **more)
    group = str(line.setdefault("legendgroup", line.get("name", "")))
    known = np.flatnonzero(~np.isnan(low))
    runs = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
    if len(x) == 1:
        line["error_y"] = error_bar(y, low, high, thickness=1, width=3)
    bands = [band(x[i], (low[i], high[i]), color, group) for i in runs if len(i) > 1]
    return [*bands, line]


def grey_band(table: pd.DataFrame, name: str, x: str = "layer") -> list[Trace]:
    """Grey band between "lower" and "upper" over x; none of fewer than two layers."""
    if len(table) < 2:
        return []
    places, low, high = (table[column].to_numpy(np.float64) for column in (x, "lower", "upper"))
    return [band(places, (low, high), GREY, name, 0.12, name) | {"legendrank": 1002}]


def _score_traces(line: Line, key: str, called: Mapping[int, str]) -> list[Trace]:
    """The held-out ρ with its interval, or the ceiling, in grey."""
    label, dash = _SCORES[key]
    look = {
        "line": {"color": GREY, "width": 1.5, "dash": dash},
        "marker": {"symbol": "line-ew-open", "size": 14},
        "name": label,
        "legendrank": 1001,  # behind all features
        "legendgroup": label,
    }
    mode = "lines" if len(line.x) > 1 else "lines+markers"
    traces = [scatter(line.x, line.mean, line.hover("", called, label), mode, **look)]
    if key == "rho" and line.p is not None and len(line.x) > 1:
        traces.insert(0, band(line.x, (line.lower, line.upper), GREY, label, 0.12))
    return traces


def _feature_bar(
    line: Line, feature: str, label: str, called: Mapping[int, str], unit: str, place: int
) -> list[Trace]:
    """The bar of a feature in the one layer of a model, with its interval."""
    color = PALETTE[place % len(PALETTE)]
    look: dict[str, Any] = {"color": color}
    if line.p is not None and line.p[0] > SIGNIFICANT:
        look = {"color": faded(color, 0.1), "line": {"color": color, "width": 1.5}}
    ends = error_bar(line.mean, line.lower, line.upper, thickness=1, width=3, color=GREY)
    hover = line.hover(f"<b>{feature_name(feature)}</b><br>", called, unit)
    bar = {"type": "bar", "x": [place], "y": line.mean, "width": 0.7, "marker": look}
    named = {"name": label, "legendgroup": feature}
    return [bar | named | {"error_y": ends, "hovertext": hover, "hoverinfo": "text"}]


def _feature_traces(
    line: Line, feature: str, label: str, called: Mapping[int, str], unit: str, place: int
) -> list[Trace]:
    """The line of a feature with its band; its place among all decides colour, mark and dash."""
    symbol: Any = SYMBOLS[place % len(SYMBOLS)]
    marker: dict[str, Any] = {"symbol": symbol, "size": 6, "maxdisplayed": MARKS}
    if line.p is not None:
        # In a long line some marks distinguish it; where they say something, all are drawn.
        open_or_not = [f"{symbol}-open" if p > SIGNIFICANT else symbol for p in line.p]
        marker |= {"symbol": open_or_not, "maxdisplayed": 0}
    # Where colours come again, dashes are others.
    again, color = divmod(place, len(PALETTE))
    dash = DASHES[again % len(DASHES)]
    hover = line.hover(f"<b>{feature_name(feature)}</b><br>", called, unit)
    look = {"name": label, "legendgroup": feature, "marker": marker, "dash": dash}
    ends = line.lower, line.upper
    return line_with_band(line.x, line.mean, ends, hover, PALETTE[color], **look)


@figure(
    "profiles",
    "Importance over the layers",
    lambda context: (
        f"Drop in ρ on {held_out(context.analysis)} when a feature is permuted, layer by layer."
    ),
    offered=True,
)
def draw_profiles(context: FigureContext) -> RenderedFigure:
    """Figure 3 of Salle et al. (2024)."""
    results, tested, terms = context.results, context.score_tests, context.terms
    data = None if tested is None else tested.table
    return RenderedFigure(
        profiles(
            results.importance,
            results.scores,
            terms,
            context.across,
            intervals=data,
            flags=context.layer_flags,
            bands=context.bands,
        ),
        profiles_caption(context, flagged=bool(context.layer_flags)),
        results.importance if data is None else data,
        profile_table(results, context.intervals),
        title=f"Importance of each feature over {context.along}",
    )


def profiles_caption(context: FigureContext, *, flagged: bool) -> str:
    """Caption of the importances over the layers; an audit may have flagged some."""
    is_single = context.results.importance.groupby("model")["layer"].nunique() == 1
    several, one = not is_single.all(), bool(is_single.any())
    spread = " and error bars" * one if several else "Error bars"
    spread = f"{'Bands' * several}{spread}: "
    if context.score_tests is None:
        spread += f"{FOLDS}."
    else:
        spread += (
            f"95 % CI over {context.over}. Open {'markers' * several}{' and ' * (several and one)}"
            f"{'bars' * one}: p > .05, corrected over {context.score_tests.family}."
        )
    return joined(
        "Drop in held-out ρ when a feature is permuted (mean over folds).",
        spread,
        "Dashed: held-out ρ.",
        "Dotted: feature ceiling." if context.results.scores["ceiling"].notna().any() else "",
        f"Triangles: {FLAGGED}." if flagged else "",
        *(band.caption for band in context.bands),
        context.basis,
    )


def profile_table(results: Results, intervals: LayerIntervals | None) -> pd.DataFrame:
    """A row a layer: held-out ρ and the importance of each feature, as text.

    Each with its 95 % interval, or where there is none with its standard deviation over folds.
    """
    if intervals is None:
        scores = results.scores.assign(feature="ρ", importance=results.scores["rho"])
        values = pd.concat((scores, results.importance))
        by_layer = values.groupby(["model", "layer", "feature"])["importance"]
        table = by_layer.agg(["mean", "std"]).reset_index()
        pairs = zip(table["mean"], table["std"], strict=True)
        cells = [f"{fraction(mean, 3)} ({fraction(sd, 3)})" for mean, sd in pairs]
    else:
        table = score_table(intervals, results.layers).table
        table = table[table["quantity"] != "ceiling"].replace({"feature": {"": "ρ"}})
        cells = [
            f"{fraction(value, 3)} [{fraction(low, 3)}, {fraction(high, 3)}]"
            for value, low, high in table[["value", "lower", "upper"]].to_numpy()
        ]
    names = ["ρ", *dict.fromkeys(results.importance["feature"])]
    table = table.assign(cell=cells)
    wide = table.pivot(index=["model", "layer"], columns="feature", values="cell")[names]
    return wide.loc[list(results.layers)].reset_index().rename_axis(columns=None)


@figure(
    "importance_left_out",
    "Importance where features correlate",
    "What is lost when the model has to do without the feature.",
)
def draw_importance_in_both_ways(context: FigureContext) -> RenderedFigure | None:
    """Importance where features correlate; None with an estimator that is slow to fit again."""
    results, selection = context.results, context.selection
    if estimator_named(selection.estimator).slow or len(selection.features) < 2:
        return None

    def importances() -> pd.DataFrame:
        pairs = context.analysis.compute_pairs(selection)
        fits, _ = fitted(pairs, selection.estimator)
        return importance.importances(pairs, list(selection.layers), fits, selection.estimator)

    table = context.once("importances", importances)
    drawn = table.rename(columns={"left_out": "importance"}).assign(fold=0)
    folds = drawn[["model", "layer", "fold"]].drop_duplicates()
    value = "importance when left out (drop in ρ)"
    return RenderedFigure(
        profiles(drawn, folds, context.all_features, context.across, value),
        "Drop in held-out ρ when the model is refitted without the feature; it can be negative. "
        f"Mean over folds. {basis_sentence(results.n_stimuli, 0, results.n_folds)}",
        table,
        title="Importance when left out of each feature",
    )
