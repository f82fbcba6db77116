"""Tidy table → Plotly figure.

Pure functions. Backgrounds are transparent and text has no colour of its own, so that a figure
sits on a light page as on a dark one. What a user wrote (names of features, cells) goes through
`plain`, because Plotly reads its texts as a small HTML.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.errors import InputError, unknown
from mlem_core.figure_style import (
    BARS,
    DASHES,
    GREY,
    LEVELS,
    LINE,
    MODEL_COLORS,
    PALETTE,
    SEQUENTIAL,
    SIZE,
    SYMBOLS,
    as_number,
    as_text,
    as_value,
    bare_axes,
    color_bar,
    common_levels,
    faded,
    label_places,
    model_blocks,
    panel_title,
    panels,
    parted,
    plain,
    quiet,
    say,
    short,
    sparse_ticks,
    whole_layers,
)


def feature_colors(features: Sequence[str]) -> dict[str, str]:
    """Colour of each feature of an analysis, by its place among *all* of them.

    Beyond eight features colours come again; line dashes then tell them apart.
    """
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(features)}


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


def profiles(importance: pd.DataFrame, scores: pd.DataFrame, features: Sequence[str]) -> go.Figure:
    """Feature importance over the layers, a panel a model (figure 3 of Salle et al. 2024).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance; the features in it are drawn
    scores : model, layer, fold, rho, ceiling, ...
    features : all features of the analysis, which decide the colours

    Lines are means over folds and bands ± 1 standard deviation; the held-out ρ (dashed) and the
    ceiling (dotted) are in grey.
    """
    models = list(dict.fromkeys(importance["model"]))
    figure, places = panels([plain(model) for model in models], height=360)
    colors = feature_colors(features)
    drawn = set(importance["feature"])
    for number, (model, (row, column)) in enumerate(zip(models, places, strict=True)):
        own = importance[importance["model"] == model]
        at = {"row": row, "col": column}
        for i, name in enumerate(features):
            if name not in drawn:
                continue
            stats = _over_folds(own[own["feature"] == name], "importance")
            for trace in _line_with_band(stats, name, i, colors[name], plain(model), number == 0):
                figure.add_trace(trace, **at)
        fits = scores[scores["model"] == model]
        for label, key, dash in (("held-out ρ", "rho", "dash"), ("ceiling", "ceiling", "dot")):
            stats = _over_folds(fits, key)
            figure.add_trace(
                go.Scatter(
                    x=stats.index,
                    y=stats["mean"],
                    name=label,
                    legendgroup=label,
                    showlegend=number == 0,
                    mode="lines" if len(stats) > 1 else "lines+markers",
                    line={"color": GREY, "width": 1.5, "dash": dash},
                    marker={"symbol": "line-ew-open", "size": 14},
                    hovertext=[
                        f"{plain(model)}, layer {layer}<br>{label}: Spearman ρ = {mean:.3f}"
                        for layer, mean in zip(stats.index, stats["mean"], strict=True)
                    ],
                    hoverinfo="text",
                ),
                **at,
            )
        whole_layers(figure, own["layer"], row, column)
        figure.update_xaxes(title_text="layer", **at)
        if column == 1:
            figure.update_yaxes(title_text="feature importance (FI)", **at)
    figure.update_yaxes(matches="y", rangemode="tozero", zeroline=True)
    # Inner panels share the scale; their numbers would only repeat it.
    for row, column in places:
        figure.update_yaxes(showticklabels=column == 1, row=row, col=column)
    return figure


def _over_folds(table: pd.DataFrame, key: str) -> pd.DataFrame:
    stats = table.groupby("layer")[key].agg(["mean", "std"]).sort_index()
    return stats.fillna({"std": 0.0})


def _line_with_band(
    stats: pd.DataFrame, name: str, place: int, color: str, model: str, legend: bool
) -> list[go.Scatter]:
    dash = DASHES[place // len(PALETTE) % len(DASHES)]
    x, mean, sd = stats.index.to_numpy(), stats["mean"].to_numpy(), stats["std"].to_numpy()
    traces = []
    if len(x) > 1:
        traces.append(
            go.Scatter(
                x=np.concatenate([x, x[::-1]]),
                y=np.concatenate([mean + sd, (mean - sd)[::-1]]),
                fill="toself",
                fillcolor=faded(color, 0.18),
                line={"width": 0},
                mode="lines",
                legendgroup=name,
                showlegend=False,
                hoverinfo="skip",
                name="band",
            )
        )
    traces.append(
        go.Scatter(
            x=x,
            y=mean,
            error_y={"array": sd, "thickness": 1, "width": 3} if len(x) == 1 else None,
            name=plain(name),
            legendgroup=name,
            showlegend=legend,
            mode="lines+markers",
            line={"color": color, "width": 2, "dash": dash},
            marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 6 if len(x) > 1 else 10},
            hovertext=[
                f"<b>{plain(name)}</b><br>{model}, layer {layer}<br>FI = {m:.3f} ± {s:.3f} (sd)"
                for layer, m, s in zip(x, mean, sd, strict=True)
            ],
            hoverinfo="text",
        )
    )
    return traces


def similarity_matrices(profiles: pd.DataFrame, rsa: pd.DataFrame) -> go.Figure:
    """How alike all layers are, by their profiles and by RSA (figure 2 of Salle et al. 2024).

    Parameters
    ----------
    profiles, rsa : (n_layers, n_layers) weighted Kendall τ and Spearman ρ, named "model:layer"
    """
    layers = [parted(name) for name in profiles.index]
    figure = make_subplots(1, 2, horizontal_spacing=0.08)
    titles = (
        ("by feature importance", "weighted Kendall τ"),
        ("by neural distances (RSA)", "Spearman ρ"),
    )
    blocks = model_blocks(layers)
    ticks = sparse_ticks(layers, blocks)
    for column, (square, (title, unit)) in enumerate(
        zip((profiles, rsa), titles, strict=True), start=1
    ):
        values = square.to_numpy(dtype=np.float64)
        hover = [
            [
                f"{plain(a[0])} {a[1]} and {plain(b[0])} {b[1]}<br>{unit} = {as_number(value)}"
                for b, value in zip(layers, row, strict=True)
            ]
            for a, row in zip(layers, values, strict=True)
        ]
        axis = "coloraxis" if column == 1 else "coloraxis2"
        figure.add_trace(
            go.Heatmap(
                z=values,
                x=np.arange(len(layers)),
                y=np.arange(len(layers)),
                coloraxis=axis,
                hovertext=hover,
                hoverinfo="text",
                name=title,
                hoverongaps=True,
            ),
            row=1,
            col=column,
        )
        known = values[np.isfinite(values)]
        low = min(0.9, math.floor(known.min() * 10) / 10) if known.size else 0.0
        figure.update_layout({axis: color_bar(low, 0.23 if column == 1 else 0.77)})
        ref = "" if column == 1 else "2"
        for start, _, _ in blocks[1:]:
            span = {"line": {"color": "rgba(255,255,255,0.9)", "width": 1.2}}
            figure.add_vline(x=start - 0.5, row=1, col=column, **span)
            figure.add_hline(y=start - 0.5, row=1, col=column, **span)
        for start, stop, model in blocks:
            figure.add_annotation(
                x=(start + stop - 1) / 2,
                xref=f"x{ref}",
                y=0,
                yref=f"y{ref} domain",
                yshift=-44,
                text=plain(model, 16),
                showarrow=False,
            )
            if column == 1:
                figure.add_annotation(
                    y=(start + stop - 1) / 2,
                    yref="y",
                    x=0,
                    xref="x domain",
                    xshift=-48,
                    text=plain(model, 16),
                    textangle=-90,
                    showarrow=False,
                )
        panel_title(figure, f"{title}: {unit}", ref)
    quiet(figure, height=500)
    ends = [-0.5, len(layers) - 0.5]
    shared = {**ticks, "showgrid": False, "zeroline": False, "constrain": "domain", "ticks": ""}
    figure.update_xaxes(range=ends, **shared)
    figure.update_yaxes(range=ends[::-1], **shared)
    figure.update_yaxes(scaleanchor="x", row=1, col=1)
    figure.update_yaxes(scaleanchor="x2", showticklabels=False, row=1, col=2)
    figure.update_layout(margin={"l": 76, "r": 16, "t": 40, "b": 116})
    return figure


def layer_maps(layer_map: pd.DataFrame) -> go.Figure:
    """Layers as points, near where alike (MDS), a line a model, one panel a measure.

    Parameters
    ----------
    layer_map : measure ("profiles" or "rsa"), model, layer, x, y
    """
    figure = make_subplots(1, 2, horizontal_spacing=0.06)
    models = list(dict.fromkeys(layer_map["model"]))
    measures = (("profiles", "by feature importance"), ("rsa", "by neural distances (RSA)"))
    for column, (measure, title) in enumerate(measures, start=1):
        for i, model in enumerate(models):
            own = layer_map[(layer_map["measure"] == measure) & (layer_map["model"] == model)]
            own = own.sort_values("layer")
            color = MODEL_COLORS[i % len(MODEL_COLORS)]
            ends = {0, len(own) - 1}
            figure.add_trace(
                go.Scatter(
                    x=own["x"],
                    y=own["y"],
                    name=plain(model),
                    legendgroup=model,
                    showlegend=column == 1,
                    mode="lines+markers+text",
                    line={"color": faded(color, 0.45), "width": 1.5},
                    marker={
                        "color": color,
                        "symbol": SYMBOLS[i % len(SYMBOLS)],
                        # Depth can be seen without counting: points grow with the layer.
                        "size": np.linspace(6, 12, len(own)) if len(own) > 1 else 10,
                        "opacity": 0.9,
                    },
                    text=[f"{n}" if k in ends else "" for k, n in enumerate(own["layer"])],
                    textposition="top center",
                    cliponaxis=False,
                    customdata=own[["model", "layer"]].to_numpy(dtype=object),
                    hovertext=[f"<b>{plain(model)}</b><br>layer {n}" for n in own["layer"]],
                    hoverinfo="text",
                ),
                row=1,
                col=column,
            )
        panel_title(figure, title, "" if column == 1 else "2")
    quiet(figure, height=460)
    for column, (measure, _) in enumerate(measures, start=1):
        bare_axes(figure, layer_map[layer_map["measure"] == measure], 1, column)
    return figure


def importance_scatter(
    importance: pd.DataFrame,
    a: tuple[str, int],
    b: tuple[str, int],
    features: Sequence[str],
    tau: float,
    rsa: float,
) -> go.Figure:
    """Importances of two layers against each other (figure 4 of Salle et al. 2024).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance; the features in it are drawn
    a, b : (model, layer) on the x and on the y axis
    features : all features of the analysis, which decide the colours
    tau, rsa : similarity of the two layers, weighted Kendall τ and RSA's Spearman ρ
    """
    colors = feature_colors(features)
    sides = []
    for model, layer in (a, b):
        own = importance[(importance["model"] == model) & (importance["layer"] == layer)]
        sides.append(own.groupby("feature")["importance"].agg(["mean", "std"]).fillna(0.0))
    drawn = [name for name in features if name in sides[0].index and name in sides[1].index]
    x, y = (side.loc[drawn] for side in sides)
    label_a, label_b = (f"{plain(model)} layer {layer}" for model, layer in (a, b))
    both = np.concatenate([x["mean"], y["mean"], x["mean"] + x["std"], y["mean"] + y["std"], [0]])
    low, high = float(both.min()), max(float(both.max()), 1e-3)
    room = 0.08 * (high - low)
    span = [low - room, high + room]
    points = np.column_stack([x["mean"], y["mean"]]).astype(np.float64)
    # The many near 0 would cover each other's names; the legend has them all.
    far = points.max(axis=1, initial=0.0) > 0.08 * high
    labels = [plain(name) if named else "" for name, named in zip(drawn, far, strict=True)]
    places = label_places((points - span[0]) / (span[1] - span[0]), labels)
    figure = go.Figure(
        go.Scatter(
            x=span,
            y=span,
            mode="lines",
            line={"color": LINE, "width": 1, "dash": "dash"},
            hoverinfo="skip",
            showlegend=False,
            name="equal importance",
        )
    )
    for i, name in enumerate(drawn):
        place = features.index(name)
        sd_x, sd_y = float(x["std"].iloc[i]), float(y["std"].iloc[i])
        bar = {"thickness": 1, "width": 0, "color": faded(colors[name], 0.6)}
        figure.add_trace(
            go.Scatter(
                x=[points[i, 0]],
                y=[points[i, 1]],
                error_x={"array": [sd_x], **bar},
                error_y={"array": [sd_y], **bar},
                mode="markers+text",
                marker={
                    "color": colors[name],
                    "size": 11,
                    "symbol": SYMBOLS[place % len(SYMBOLS)]
                    + ("-open" if place // len(PALETTE) % 2 else ""),
                },
                text=[labels[i]],
                textposition=places[i],
                cliponaxis=False,
                name=plain(name),
                hovertext=[
                    f"<b>{plain(name)}</b><br>{label_a}: FI = {points[i, 0]:.3f} ± {sd_x:.3f} (sd)"
                    f"<br>{label_b}: FI = {points[i, 1]:.3f} ± {sd_y:.3f} (sd)"
                ],
                hoverinfo="text",
            )
        )
    quiet(figure, height=480)
    axis = {"range": span, "zeroline": True, "constrain": "domain"}
    figure.update_xaxes(title_text=f"FI in {label_a}", **axis)
    figure.update_yaxes(title_text=f"FI in {label_b}", scaleanchor="x", **axis)
    figure.update_layout(
        title={
            "text": f"weighted Kendall τ = {as_number(tau, 2)}   ·   RSA Spearman ρ = "
            f"{as_number(rsa, 2)}",
            "font": {"size": SIZE + 1},
            "x": 0.5,
            "xref": "paper",
        },
        margin={"t": 48},
    )
    return figure


def stimulus_map(points: pd.DataFrame, color: str, kind: str, title: str) -> go.Figure:
    """Stimuli of one layer as points (MDS of their distances), coloured by a feature.

    Parameters
    ----------
    points : stimulus, x, y, label (for hovering) and the column `color`
    kind : "nominal" or "ordered"; missing values are grey
    """
    figure = make_subplots(1, 1)
    values = points[color]
    if kind == "ordered":
        values = pd.to_numeric(values, errors="coerce")
        there = values.notna()
        numbers = {"color": values[there], "colorscale": SEQUENTIAL, "size": 7, "opacity": 0.85}
        numbers["colorbar"] = {
            "title": {"text": plain(color), "font": {"size": SIZE}},
            "thickness": 12,
            "outlinewidth": 0,
        }
        groups = [(plain(color), there, {**numbers, "showscale": bool(there.any())})]
    else:
        shown, other = common_levels(values, LEVELS)
        groups = [
            (
                plain(level),
                values.map(as_text) == level,
                {
                    "color": PALETTE[i % len(PALETTE)],
                    # The second eight have the same colours and open marks.
                    "symbol": SYMBOLS[i % len(SYMBOLS)] + ("-open" if i >= len(PALETTE) else ""),
                    "size": 7,
                    "opacity": 0.85,
                },
            )
            for i, level in enumerate(shown)
        ]
        if other:
            rest = values.map(as_text).isin(other)
            name = f"{len(other)} other values"
            groups.append((name, rest, {"color": GREY, "size": 6, "symbol": "hexagon-open"}))
    missing = values.isna()
    if missing.any():
        faint = {"color": GREY, "size": 5, "opacity": 0.5, "symbol": "circle-open"}
        groups.insert(0, ("missing", missing, faint))
    for name, chosen, marker in groups:
        own = points[chosen]
        figure.add_trace(
            go.Scatter(
                x=own["x"],
                y=own["y"],
                mode="markers",
                name=name,
                marker=marker,
                customdata=own[["stimulus"]].to_numpy(),
                hovertext=[
                    f"{plain(label, 80)}<br>{plain(color)}: {plain(as_value(value))}"
                    for label, value in zip(own["label"], points.loc[chosen, color], strict=True)
                ],
                hoverinfo="text",
                showlegend=kind == "nominal" or name == "missing",
            )
        )
    quiet(figure, height=460)
    bare_axes(figure, points, 1, 1)
    figure.update_layout(
        title={"text": plain(title, 60), "font": {"size": SIZE + 1}, "x": 0.5, "xref": "paper"},
        legend_title_text=plain(color) if kind == "nominal" else None,
        margin={"t": 44},
    )
    if kind == "ordered":
        figure.update_layout(legend={"x": 0, "y": 0, "yanchor": "bottom"})
    return figure


def feature_correlations(square: pd.DataFrame) -> go.Figure:
    """Pearson correlations of the feature distances (figure S5 of Salle et al. 2024).

    Parameters
    ----------
    square : (n_features, n_features); the lower triangle is drawn
    """
    names = [plain(name, 20) for name in square.index]
    values = square.to_numpy(dtype=np.float64)
    low = np.tril(np.ones(values.shape, dtype=bool), -1)
    z = np.where(low, values, np.nan)[1:, :-1]
    text = [
        [as_number(v, 2) if low[i + 1, j] else "" for j, v in enumerate(row)]
        for i, row in enumerate(z)
    ]
    hover = [
        [f"{names[i + 1]} and {names[j]}<br>Pearson r = {cell}" if cell else "" for j, cell in
         enumerate(row)]
        for i, row in enumerate(text)
    ]  # fmt: skip
    figure = go.Figure()
    if len(names) > 1:
        figure.add_trace(
            go.Heatmap(
                z=z,
                x=np.arange(len(names) - 1),
                y=np.arange(len(names) - 1),
                zmin=-1,
                zmax=1,
                colorscale="RdBu",
                reversescale=True,
                text=text,
                texttemplate="%{text}" if len(names) <= 16 else None,
                hovertext=hover,
                hoverinfo="text",
                hoverongaps=False,
                xgap=2,
                ygap=2,
                colorbar={
                    "title": {"text": "Pearson r", "font": {"size": SIZE}},
                    "thickness": 12,
                    "outlinewidth": 0,
                    "tickvals": [-1, -0.5, 0, 0.5, 1],
                    "ticktext": ["−1", "−0.5", "0", "0.5", "1"],
                },
            )
        )
    else:
        say(figure, "one feature: nothing to correlate")
    quiet(figure, height=max(360, 120 + 36 * len(names)))
    places = {"tickvals": list(range(len(names) - 1)), "showgrid": False, "zeroline": False}
    figure.update_xaxes(ticktext=names[:-1], tickangle=-35, **places)
    figure.update_yaxes(ticktext=names[1:], autorange="reversed", **places)
    return figure


def feature_counts(
    table: pd.DataFrame,
    features: Sequence[tuple[str, str]],
    all_features: Sequence[str] | None = None,
) -> go.Figure:
    """How many stimuli have each value of each feature, missing ones too.

    Parameters
    ----------
    table : a column a feature
    features : (name, kind), kind "ordered" or "nominal"
    all_features : all features of the analysis, which decide the colours; by default those drawn
    """
    own = feature_colors(all_features or [name for name, _ in features])
    figure, places = panels([plain(name) for name, _ in features], height=210, across=4)
    for (name, kind), (row, column) in zip(features, places, strict=True):
        labels, counts, hover = _counted(table[name], kind)
        colors = [GREY if label in ("missing", "other") else own[name] for label in labels]
        figure.add_trace(
            go.Bar(
                x=list(range(len(labels))),
                y=counts,
                marker={"color": colors, "line": {"width": 0}},
                hovertext=[f"<b>{plain(name)}</b><br>{text}" for text in hover],
                hoverinfo="text",
                showlegend=False,
                name=plain(name),
            ),
            row=row,
            col=column,
        )
        figure.update_xaxes(
            tickvals=list(range(len(labels))),
            ticktext=[plain(label, 11) for label in labels],
            tickangle=0 if sum(min(len(label), 11) for label in labels) <= 24 else -50,
            showgrid=False,
            row=row,
            col=column,
        )
        if column == 1:
            figure.update_yaxes(title_text="stimuli", row=row, col=column)
    figure.update_layout(bargap=0.25)
    figure.update_yaxes(rangemode="tozero", nticks=4)
    return figure


def _counted(values: pd.Series, kind: str) -> tuple[list[str], list[int], list[str]]:
    """Labels, counts and hover texts of the bars of one feature."""
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
        shown, other = common_levels(values, BARS)
        tally = values.dropna().map(as_text).value_counts()
        pairs = [(level, int(tally[level])) for level in shown]
        if other:
            pairs.append(("other", int(tally[other].sum())))
    if missing:
        pairs.append(("missing", missing))
    hover = [f"{plain(label)}: {count} stimuli" for label, count in pairs]
    return [label for label, _ in pairs], [count for _, count in pairs], hover


def can_write_images() -> bool:
    """Whether there is a Chrome or Chromium for `image`; only looks, starts nothing."""
    named = os.environ.get("BROWSER_PATH")
    if named:
        return shutil.which(named) is not None
    from choreographer.browsers.chromium import Chromium

    return Chromium.find_browser(skip_local=False) is not None


def image(
    figure: go.Figure, format: str, *, width: int = 900, height: int = 600, scale: float = 2
) -> bytes:
    """A figure as a file's content, on white.

    Parameters
    ----------
    format : "svg", "png" or "pdf"
    width, height : in CSS pixels (96 an inch)
    scale : pixels of a PNG for each of them

    Raises
    ------
    InputError
        An unknown format; no Chrome or Chromium, or it could not draw.
    """
    if format not in ("svg", "png", "pdf"):
        raise unknown("image format", format, ("svg", "png", "pdf"))
    if not can_write_images():
        raise InputError(
            f"no Chrome or Chromium was found to write the {format.upper()}: install one, or name "
            "its path in BROWSER_PATH."
        )
    on_white = go.Figure(figure)
    on_white.update_layout(paper_bgcolor="white", plot_bgcolor="white")
    try:
        written: bytes = on_white.to_image(format=format, width=width, height=height, scale=scale)
    except (RuntimeError, OSError, TimeoutError) as error:
        raise InputError(
            f"the browser could not write the {format.upper()}: {' '.join(str(error).split())}"
        ) from error
    return written
