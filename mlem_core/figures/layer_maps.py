"""Maps of the layers: near each other where alike (figure 2 of Salle et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.figures.naming import feature_name, layer_labels, layer_title, model_labels
from mlem_core.figures.stress import UNKNOWN, say_stress
from mlem_core.figures.style import (
    LEGEND,
    MODEL_COLORS,
    SYMBOLS,
    as_number,
    bare_axes,
    faded,
    label_places,
    panel_ref,
    panel_title,
    quiet,
)

NOT_KNOWN: Mapping[str, float] = MappingProxyType({})
_NAMED = 12  # layers of a model that all have their names


def layer_maps(
    layer_map: pd.DataFrame,
    importance: pd.DataFrame | None = None,
    across: int = 2,
    stress: Mapping[str, float] = NOT_KNOWN,
) -> go.Figure:
    """Layers as points, near where alike (MDS), a line a model, one panel a measure.

    Parameters
    ----------
    layer_map : measure ("profiles" or "rsa"), model, layer, x, y
    importance : model, layer, fold, feature, importance; what hovering over a layer tells of it
    across : 2 beside each other, 1 below each other
    stress : by measure, how far the map is off, see `mlem_core.measures.similarity.map_stress`
    """
    figure = make_subplots(3 - across, across, horizontal_spacing=0.06, vertical_spacing=0.1)
    models = list(dict.fromkeys(layer_map["model"]))
    labels = model_labels(models, LEGEND)
    profiles = {} if importance is None else _profiles_in_words(importance)
    measures = (("profiles", "by feature importance"), ("rsa", "by neural distances (RSA)"))
    sides = _sides_of_numbers(layer_map)
    for place, (measure, title) in enumerate(measures):
        at = {"row": 1 + place * (across == 1), "col": 1 + place * (across == 2)}
        for i, model in enumerate(models):
            points = layer_map[(layer_map["measure"] == measure) & (layer_map["model"] == model)]
            points = points.sort_values("layer")
            color = MODEL_COLORS[i % len(MODEL_COLORS)]
            texts = _texts(model, points["layer"].tolist())
            figure.add_trace(
                go.Scatter(
                    x=points["x"],
                    y=points["y"],
                    name=labels[i],
                    legendgroup=model,
                    showlegend=place == 0,
                    mode="lines+markers+text",
                    line={"color": faded(color, 0.45), "width": 1.5},
                    marker={
                        "color": color,
                        "symbol": SYMBOLS[i % len(SYMBOLS)],
                        # Depth can be seen without counting: points grow with the layer.
                        "size": np.linspace(6, 12, len(points)) if len(points) > 1 else 10,
                        "opacity": 0.9,
                    },
                    selected={"marker": {"opacity": 1, "size": 16}},
                    unselected={"marker": {"opacity": 0.55}},
                    text=texts,
                    textposition=sides[(model, measure)],
                    cliponaxis=False,
                    customdata=points[["model", "layer"]].to_numpy(dtype=object),
                    hovertext=[
                        f"<b>{layer_title((model, n))}</b>{profiles.get((model, n), '')}"
                        for n in points["layer"]
                    ],
                    hoverinfo="text",
                ),
                **at,
            )
        panel_title(figure, title, panel_ref(place))
        say_stress(figure, stress.get(measure, UNKNOWN), panel_ref(place))
    quiet(figure, height=460 if across == 2 else 860)
    for place, (measure, _) in enumerate(measures):
        bare_axes(
            figure,
            layer_map[layer_map["measure"] == measure],
            1 + place * (across == 1),
            1 + place * (across == 2),
        )
    return figure


def _texts(model: str, layers: Sequence[int]) -> list[str]:
    """What stands at the layers of a model: the numbers of the first and the last, names at all,
    while they are few."""
    labels, last = layer_labels([(model, int(n)) for n in layers]), len(layers) - 1
    return [
        label if at in (0, last) or (last < _NAMED and label != str(n)) else ""
        for at, (label, n) in enumerate(zip(labels, layers, strict=True))
    ]


def _sides_of_numbers(layer_map: pd.DataFrame) -> dict[tuple[str, str], list[str]]:
    """On which side of each point its number stands, by model and measure; few meet."""
    sides: dict[tuple[str, str], list[str]] = {}
    for measure, points in layer_map.sort_values("layer").groupby("measure", sort=False):
        xy = points[["x", "y"]].to_numpy(dtype=np.float64)
        span = float(np.ptp(xy, axis=0).max()) or 1.0
        texts = [""] * len(points)
        for model, rows in points.reset_index().groupby("model", sort=False):
            for place, text in zip(rows.index, _texts(str(model), rows["layer"]), strict=True):
                texts[place] = text
        # Points and numbers are as large on the way across as on the way up.
        placed = label_places((xy - xy.min(axis=0)) / span, texts)
        for model in points["model"].unique():
            own = np.flatnonzero((points["model"] == model).to_numpy())
            sides[(str(model), str(measure))] = [placed[i] for i in own]
    return sides


def _profiles_in_words(importance: pd.DataFrame, most: int = 4) -> dict[tuple[str, int], str]:
    """The features that matter most in each layer, as lines of a hover text."""
    means = importance.groupby(["model", "layer", "feature"], sort=False)["importance"].mean()
    words = {}
    for (model, layer), profile in means.groupby(level=["model", "layer"], sort=False):
        top = profile.droplevel(["model", "layer"]).nlargest(most)
        lines = [
            f"<br>{feature_name(str(name))}: FI = {as_number(value)}" for name, value in top.items()
        ]
        words[(str(model), int(layer))] = "".join(lines)
    return words
