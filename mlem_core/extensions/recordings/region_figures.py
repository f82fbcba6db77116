"""Importances over time with onsets, and the RSA of the best layer of each region."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.text import percent
from mlem_core.extensions.recordings.region_similarity import (
    DRAWS,
    REGION_SIMILARITY,
    Recording,
    compared_layers,
    find_recordings,
)
from mlem_core.extensions.recordings.time_course import TIME_COURSE
from mlem_core.figures.captions import joined
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import (
    axis_title,
    feature_labels,
    layer_in_model,
    model_colors,
    model_labels,
    named_layers,
)
from mlem_core.figures.profiles import line_with_band
from mlem_core.figures.style import (
    LEGEND,
    Trace,
    as_number,
    as_p,
    error_bar,
    feature_colors,
    interval,
    once_in_legend,
    panel_layout,
    place_in_panel,
    plain,
    scatter,
    whole_layers,
)
from mlem_core.inference.intervals import SIGNIFICANT

# Distance of the lines of significance from each other, as a part of the largest value.
_BELOW = 0.06


def courses(
    table: pd.DataFrame,
    recordings: Mapping[str, Recording],
    looks: Mapping[str, tuple[str, str]],
    title: str,
    *,
    onsets: pd.DataFrame | None = None,
    across: int = 3,
) -> go.Figure:
    """Values over the regions or time points, a panel a recording, with lines of significance.

    Parameters
    ----------
    table : recording, region, time, series, value, lower, upper, p, about (for hovering)
    recordings : by name
    looks : label and colour of each series
    title : of the values
    onsets : recording, feature (a series), onset, lower, upper: triangles at half of the maximum,
        with their intervals
    """
    names = list(dict.fromkeys(table["recording"]))
    layout, places = panel_layout([plain(name, 24) for name in names], height=360, across=across)
    step, traces = _BELOW * float(table["upper"].max()), list[Trace]()
    lowest = min(0.0, float(table["lower"].min()))
    for name, (ref, first) in zip(names, places, strict=True):
        rows, subject = table[table["recording"] == name], recordings[name].subjects[0]
        timed, drawn = bool(rows["time"].notna().all()), list[Trace]()
        for number, (series, (label, color)) in enumerate(looks.items()):
            line = rows[rows["series"] == series]
            drawn += _series(line, subject, number, (label, color), len(looks), timed)
            height = lowest - step * (number + 1)
            named = {"name": label, "legendgroup": series, "showlegend": False}
            if timed:
                at = np.where(line["p"] < SIGNIFICANT, height, np.nan)
                look = {"line": {"color": color, "width": 4}, "marker": {"color": color, "size": 4}}
                drawn.append(scatter(line["time"], at, mode="lines+markers", **look, **named))
            if onsets is None:
                continue
            marks = onsets[(onsets["recording"] == name) & (onsets["feature"] == series)].dropna()
            hover = [
                f"<b>{label}</b><br>onset {as_number(row.onset, 1)}<br>"
                f"{interval(row.lower, row.upper)}"
                for row in marks.itertuples()
            ]
            look = {"marker": {"symbol": "triangle-up", "size": 12, "color": color}}
            look["error_x"] = error_bar(
                marks["onset"], marks["lower"], marks["upper"], thickness=1.5
            )
            half = [line["value"].max() / 2] * len(marks)
            drawn.append(scatter(marks["onset"], half, hover, **look, **named))
        traces += place_in_panel(ref, drawn)
        if not timed:
            layout[f"xaxis{ref}"] |= named_layers(
                whole_layers(rows["region"]), subject, rows["region"]
            )
        layout[f"xaxis{ref}"]["title"]["text"] = axis_title(subject)
        layout[f"yaxis{ref}"] |= {"matches": "y", "showticklabels": first}
        layout[f"yaxis{ref}"]["title"]["text"] = title if first else None
    return go.Figure(once_in_legend(traces), layout)


def _series(
    line: pd.DataFrame, subject: str, number: int, look: tuple[str, str], n: int, timed: bool
) -> list[Trace]:
    """A line with its band over time, or points with their intervals beside each other."""
    label, color = look
    hover = [
        f"<b>{label}</b><br>{layer_in_model((subject, row.region))}{row.about}<br>"
        f"{as_number(row.value)}<br>{interval(row.lower, row.upper)}<br>"
        f"p {as_p(row.p)} (corrected)"
        for row in line.itertuples()
    ]
    named = {"name": label, "legendgroup": str(line["series"].iloc[0])}
    value, ends = line["value"], (line["lower"], line["upper"])
    if timed:
        marker = {"marker": {"size": 4, "color": color}}
        return line_with_band(line["time"], value, ends, hover, color, **named, **marker)
    symbols = np.where(line["p"] < SIGNIFICANT, "circle", "circle-open")
    place = line["region"] + 0.6 * ((number + 0.5) / n - 0.5)
    bars = {"error_y": error_bar(value, *ends, thickness=1.5, width=3)}
    marker = {"marker": {"symbol": symbols, "size": 9, "color": color}}
    return [scatter(place, value, hover, **bars, **named, **marker)]


def _selected(context: FigureContext) -> dict[str, Recording]:
    """Recordings with a selected layer, by name."""
    models = {model for model, _ in context.selection.layers}
    recordings = find_recordings(context.analysis)
    return {each.name: each for each in recordings if models & {*each.subjects}}


def has_recording(context: FigureContext) -> bool:
    """Whether a recording is selected."""
    return bool(_selected(context))


def has_model_and_recording(context: FigureContext) -> bool:
    """Whether a recording is selected, and the analysis has layers to compare with it."""
    return bool(_selected(context) and compared_layers(context.analysis))


def _over(context: FigureContext, recordings: Mapping[str, Recording]) -> str:
    """Units of the intervals, and what p is corrected over."""
    over = "; ".join(dict.fromkeys(each.over(context.analysis) for each in recordings.values()))
    return f"Bands or bars: 95 % CI over {over}."


@figure(
    "time_course",
    "Importance over regions and time, with onsets",
    "Lines at the bottom: p < .05 with permuted labels, corrected over all times and features.",
)
def draw_time_course(context: FigureContext) -> RenderedFigure | None:
    """Importances over time and onsets; None where they are not computed."""
    recordings, course = _selected(context), TIME_COURSE.find(context)
    if course is None or not recordings:
        return None
    table = course.importance[course.importance["recording"].isin([*recordings])]
    onsets = course.onsets[course.onsets["recording"].isin([*recordings])]
    features, colors = context.selection.features, feature_colors(context.all_features)
    labels = dict(zip(features, feature_labels(features, LEGEND), strict=True))
    marks = "Lines at the bottom" if table["time"].notna().any() else "Filled"
    return RenderedFigure(
        courses(
            table.rename(columns={"feature": "series", "importance": "value"}).assign(about=""),
            recordings,
            {name: (labels[name], colors[name]) for name in features},
            "importance (drop in ρ)",
            onsets=onsets,
            across=context.across,
        ),
        joined(
            "Drop in held-out ρ when a feature is permuted (mean over folds).",
            _over(context, recordings),
            f"{marks}: p < .05, corrected over a recording and its features.",
            "Triangles: onsets, at half of the maximum." if onsets["onset"].notna().any() else "",
            context.basis,
        ),
        table,
        onsets if len(onsets) else table,
    )


@figure(
    "best_layers",
    "RSA of the best layer with each region or time point",
    "The layer is chosen in one half of the stimuli, and its RSA is that of the other half.",
)
def draw_best_layers(context: FigureContext) -> RenderedFigure | None:
    """RSA of the best layer over regions or time; None where it is not computed."""
    recordings, similarity = _selected(context), REGION_SIMILARITY.find(context)
    if similarity is None or not recordings:
        return None
    table = similarity.best[similarity.best["recording"].isin([*recordings])]
    times = [
        (name, region, time)
        for name, each in recordings.items()
        for region, time in zip(each.layers, each.times(context.analysis), strict=True)
    ]
    timed = table.merge(pd.DataFrame(times, columns=["recording", "region", "time"]))
    about = [
        f"<br>{layer_in_model((row.model, row.layer))}, in {percent(row.share)} of halves"
        for row in timed.itertuples()
    ]
    models = list(dict.fromkeys(table["model"]))
    looks = zip(model_labels(models, LEGEND), model_colors(models), strict=True)
    marks = "Lines at the bottom" if timed["time"].notna().any() else "Filled"
    return RenderedFigure(
        courses(
            timed.rename(columns={"model": "series", "rsa": "value"}).assign(about=about),
            recordings,
            dict(zip(models, looks, strict=True)),
            "RSA of the best layer (ρ)",
            across=context.across,
        ),
        joined(
            "RSA of the most similar layer of a model, chosen in one half of the stimuli. "
            f"The RSA is of the other half (mean of {2 * DRAWS} choices).",
            _over(context, recordings),
            f"{marks}: p < .05, corrected over a recording and all layers.",
            context.basis_sentence,
        ),
        table,
        _regions_by_layers(context, similarity.layers, table),
    )


def _regions_by_layers(
    context: FigureContext, layers: pd.DataFrame, best: pd.DataFrame
) -> pd.DataFrame:
    """A row a region and model: RSA of each layer over all pairs, the best layer in bold."""
    layers = layers[layers["recording"].isin(best["recording"])]
    best_at = {tuple(row) for row in best[["recording", "region", "model", "layer"]].to_numpy()}
    by = ["recording", "region", "model", "layer"]
    cells = [
        f"**{as_number(rsa, 2)}**" if tuple(at) in best_at else as_number(rsa, 2)
        for at, rsa in zip(layers[by].to_numpy(), layers["rsa"], strict=True)
    ]
    wide = layers.assign(cell=cells).pivot(index=by[:3], columns="layer", values="cell").fillna("")
    return wide.reset_index().rename_axis(columns=None)
