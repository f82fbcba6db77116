"""The stimuli in all layers of a model, as small maps (paper 1, figure 3; paper 2, figure 5)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from mlem_core.analysis.maps import easiest_to_read, some_layers
from mlem_core.base.typing import Layer
from mlem_core.report import captions, captions_of_maps
from mlem_core.report.two_layers import MOST
from pages.explore.two import map_of
from pages.parts import choices, frame, naming
from pages.parts.exporting import Panel
from pages.parts.view import View
from pages.parts.wording import plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def show(view: View) -> None:
    """How the layers of one model lay out the stimuli; folded away."""
    frame.folded(
        "The stimuli in all layers of a model",
        ":material/grid_view:",
        "model maps",
        partial(_show, view),
    )


def _show(view: View) -> None:
    from mlem_core import figures

    models = list(dict.fromkeys(model for model, _ in view.layers))
    first, second = st.columns(2)
    with first:
        model = choices.choose_one(
            "Model", models, "mapped", models[0], format_func=naming.of_models(models),
            help="The model whose layers are drawn.",
        )  # fmt: skip
    with second:
        color = choices.choose_one(
            "Colour of the stimuli",
            view.all_features,
            "colour",
            easiest_to_read(view.analysis.stimuli, view.features),
            format_func=naming.of_features(view.all_features),
            help="The feature that colours the maps.",
        )
    own = [layer for layer in view.layers if layer[0] == model]
    drawn = some_layers(own, MOST)
    with st.spinner(f"Laying out the stimuli of {plain(naming.now().model(model))} …"):
        maps = [_map(view, layer, color) for layer in drawn]
    tables = [table for table, _ in maps]
    draw = partial(figures.map_panels, [figure for _, figure in maps])
    n = len(tables[0])
    Panel(
        draw(),
        pd.concat(tables, ignore_index=True),
        "map-panels",
        captions_of_maps.map_panels(
            naming.now().feature(color),
            len(drawn),
            len(own),
            captions.stimulus_map(n, len(view.analysis.stimuli)),
        ),
        narrow=partial(draw, across=2),
        options={"mapped": model, "color": color},
    ).show()


def _map(view: View, layer: Layer, color: str) -> tuple[pd.DataFrame, Figure]:
    """The table of a layer's map, and the map."""
    from mlem_core import figures

    points, stress = map_of(view.job_id, *layer)
    stimuli = view.analysis.stimuli.take(points["stimulus"].to_numpy())
    kind = next(feature.kind for feature in stimuli.features if feature.name == color)
    table = points.assign(label=stimuli.sentences, **{color: stimuli.values(color)})
    title = naming.now().layer_title(layer)
    figure = figures.stimulus_map(table, color, kind, title, stress=stress)
    named = {"model": layer[0], "layer": layer[1]}
    return table.drop(columns="label").assign(**named), figure
