"""Importance of each feature over the layers of each model (figure 3 of Salle et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.figures.style import (
    DASHES,
    GREY,
    PALETTE,
    SYMBOLS,
    faded,
    feature_colors,
    panels,
    plain,
    whole_layers,
)


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
    importance: pd.DataFrame, scores: pd.DataFrame, features: Sequence[str], across: int = 3
) -> go.Figure:
    """Feature importance over the layers, a panel a model (figure 3 of Salle et al. 2024).

    Parameters
    ----------
    importance : model, layer, fold, feature, importance; the features in it are drawn
    scores : model, layer, fold, rho, ceiling, ...
    features : all features of the analysis, which decide the colours
    across : panels beside each other

    Lines are means over folds and bands ± 1 standard deviation; the held-out ρ (dashed) and the
    ceiling (dotted) are in grey.
    """
    models = list(dict.fromkeys(importance["model"]))
    figure, places = panels([plain(model) for model in models], height=360, across=across)
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
