"""Figures of the stimuli (table S1 and figure S5 of Salle et al. 2024)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.figures.captions import basis_sentence
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.naming import feature_labels, feature_name
from mlem_core.figures.style import (
    BARS,
    CLEAR,
    GREY,
    SIZE,
    Trace,
    as_number,
    bar_title,
    color_axis,
    escape_text,
    feature_colors,
    heatmap,
    names_along,
    panel_layout,
    place_in_panel,
    quiet,
    short,
    short_names,
)

_NUMBERED = 16  # features of a matrix whose cells have room for a number


def feature_correlations(square: pd.DataFrame) -> go.Figure:
    """Pearson correlations of the feature distances (figure S5 of Salle et al. 2024).

    Parameters
    ----------
    square : (n_features, n_features); the lower triangle is drawn
    """
    names = feature_labels([str(name) for name in square.index], 20)
    full = [feature_name(str(name)) for name in square.index]
    values = square.to_numpy(dtype=np.float64)
    low = np.tril(np.ones(values.shape, dtype=bool), -1)
    z = np.where(low, values, np.nan)[1:, :-1]
    text = [
        [as_number(v, 2) if low[i + 1, j] else "" for j, v in enumerate(row)]
        for i, row in enumerate(z)
    ]
    hover = [
        [f"{full[i + 1]} and {full[j]}<br>Pearson r = {cell}" if cell else "" for j, cell in
         enumerate(row)]
        for i, row in enumerate(text)
    ]  # fmt: skip
    n = len(names)
    at = {"x": np.arange(n - 1), "y": np.arange(n - 1), "xgap": 2, "ygap": 2}
    template = "%{text}" if n <= _NUMBERED else None
    cells = heatmap(z, hover, **at, text=text, texttemplate=template, coloraxis="coloraxis")
    ticks = {value: short(value) for value in (-1.0, -0.5, 0.0, 0.5, 1.0)}
    axis = color_axis(-1, 1, ticks, title=bar_title("Pearson r"), thickness=12)
    figure = go.Figure([cells], {"coloraxis": axis})
    quiet(figure, height=max(360, 130 + round(n * min(36.0, max(13.0, 560 / n)))))
    many = n > _NUMBERED
    small = {"tickfont": {"size": SIZE - 3 if many else SIZE}, **CLEAR}
    # Every second name, or fewer, where all would stand on each other in one column of a journal.
    along = names_along(names[:-1], tickangle=-90 if many else -35, **small)
    for key in ("tickvals", "ticktext"):
        along[key] = along[key][:: -(-n // 24)]
    figure.update_xaxes(along)
    figure.update_yaxes(names_along(names[1:], autorange="reversed", **small))
    return figure


@figure(
    "feature_correlations",
    "Correlations of the features",
    "Where two features vary together, their importances are hard to separate.",
    offered=True,
    tab="stimuli",
    place=1,
)
def draw_feature_correlations(context: FigureContext) -> RenderedFigure | None:
    """Figure S5 of Salle et al. (2024); None of one feature."""
    results = context.results
    if len(results.feature_correlations) < 2:
        return None
    return RenderedFigure(
        feature_correlations(results.feature_correlations),
        "Pearson correlation of the distances of two features over pairs of stimuli. "
        f"{basis_sentence(results.n_stimuli, results.n_pairs)}",
        results.feature_correlations.rename_axis("feature").reset_index(),
        title="Correlations of the feature distances",
    )


def feature_counts(
    table: pd.DataFrame,
    features: Sequence[tuple[str, str]],
    all_features: Sequence[str] | None = None,
    across: int = 4,
) -> go.Figure:
    """Bar charts of the number of stimuli with each value of each feature, missing ones too.

    Parameters
    ----------
    table : a column a feature
    features : (name, kind); those that are neither "ordered" nor "nominal" are left out where
        there are others
    all_features : all features of the analysis, which decide the colours; by default those drawn
    across : panels beside each other
    """
    palette = feature_colors(all_features or [name for name, _ in features])
    # Those given by their distances have nearly as many values as there are stimuli.
    features = [feature for feature in features if feature[1] in ("ordered", "nominal")] or features
    titles = feature_labels([name for name, _ in features], 24)
    apart = 0.05 if across > 2 else 0.14
    layout, places = panel_layout(titles, height=210, across=across, apart=apart)
    layout |= {"bargap": 0.25, "showlegend": False}
    traces: list[Trace] = []
    for (name, kind), (ref, first) in zip(features, places, strict=True):
        labels, counts = map(list, zip(*_counted(table[name], kind), strict=True))
        colors = [GREY if label in ("missing", "other") else palette[name] for label in labels]
        called, texts = feature_name(name), zip(map(escape_text, labels), counts, strict=True)
        hover = [f"<b>{called}</b><br>{text}: {count:,} stimuli" for text, count in texts]
        bars = {"type": "bar", "x": list(range(len(labels))), "y": counts, "hovertext": hover}
        look = {"hoverinfo": "text", "marker": {"color": colors}, "name": called}
        traces += place_in_panel(ref, [bars | look])
        ticks = short_names(labels, 11)
        if len(ticks) > 9 and all(len(tick) <= 3 for tick in ticks):
            # Many short ones, which are numbers: every other one.
            ticks = [tick if at % 2 == 0 else "" for at, tick in enumerate(ticks)]
        turned = sum(min(len(label), 11) for label in labels) > 24
        names = names_along(ticks, tickangle=-50 if turned else 0)
        layout[f"xaxis{ref}"] |= names
        layout[f"yaxis{ref}"] |= {"rangemode": "tozero", "nticks": 4}
        layout[f"yaxis{ref}"]["title"]["text"] = "stimuli" if first else None
    return go.Figure(traces, layout)


def _counted(values: pd.Series, kind: str) -> list[tuple[str, int]]:
    """Labels and counts of the bars of one feature."""
    missing = int(values.isna().sum())
    if kind == "ordered":
        numbers = pd.to_numeric(values, errors="coerce").dropna()
        tally = numbers.value_counts().sort_index()
        if len(tally) > BARS:
            counts, edges = np.histogram(numbers, bins=BARS)
            spans = [f"{short(a)}–{short(b)}" for a, b in itertools.pairwise(edges)]
            pairs = list(zip(spans, counts.tolist(), strict=True))
        else:
            pairs = [(short(value), int(count)) for value, count in tally.items()]
    else:
        levels, other = common_levels(values, BARS)
        tally = text_counts(values)
        pairs = [(level, int(tally[level])) for level in levels]
        if other:
            pairs.append(("other", int(tally[other].sum())))
    if missing:
        pairs.append(("missing", missing))
    return pairs


@figure(
    "feature_counts",
    "Values of the features",
    "How many stimuli have each value.",
    offered=True,
    tab="stimuli",
)
def draw_feature_counts(context: FigureContext) -> RenderedFigure:
    """The values of the features."""
    stimuli, names = context.analysis.stimuli, list(context.selection.features)
    kinds = [(f.name, f.kind) for f in stimuli.features if f.name in names]
    across = {"across": 2} if context.drawing.narrow else {}
    return RenderedFigure(
        feature_counts(stimuli.table, kinds, context.all_features, **across),
        f"How many of the {context.results.n_stimuli:,} stimuli have each value.",
        value_counts(stimuli.table, names),
    )


def value_counts(table: pd.DataFrame, features: list[str]) -> pd.DataFrame:
    """feature, value, count of some columns of the stimuli; missing (an empty value) last."""
    rows: list[tuple[str, object, int]] = []
    for name in features:
        for value, count in table[name].value_counts(dropna=False).sort_index().items():
            text = f"{value:g}" if isinstance(value, float) else value
            rows.append((name, None if pd.isna(value) else text, int(count)))
    return pd.DataFrame(rows, columns=["feature", "value", "count"])


def common_levels(values: pd.Series, most: int) -> tuple[list[str], list[str]]:
    """Levels to show, in their own order, and those left over, the rarest."""
    tally = text_counts(values)
    if len(tally) <= most:
        return sorted(tally.index), []
    common = list(tally.index[: most - 1])
    return sorted(common), list(tally.index[most - 1 :])


def text_counts(values: pd.Series) -> pd.Series:
    """Number of stimuli with each value, as text; most frequent first, missing ones left out."""
    tally = values.dropna().value_counts()
    return tally.set_axis([str(value) for value in tally.index])
