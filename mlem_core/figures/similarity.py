"""How alike the layers are: the two matrices and their maps (figure 2 of Salle et al. 2024)."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.figures.style import (
    MODEL_COLORS,
    SYMBOLS,
    as_number,
    bare_axes,
    color_bar,
    faded,
    model_blocks,
    panel_title,
    parted,
    plain,
    quiet,
    sparse_ticks,
)


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
