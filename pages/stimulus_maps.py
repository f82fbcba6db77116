"""Maps of the stimuli in the layers of one model, on the page of all layers."""

from __future__ import annotations

import streamlit as st

from mlem_core.extensions.stimulus_maps.figures import MOST, color_feature, layer_points
from mlem_core.figures.context import some_layers
from pages.parts import choices, exporting, stored
from pages.parts.choices import plain
from pages.parts.view import View


def show_model_maps(view: View) -> None:
    """The maps of the layers of the model that is chosen (paper 1, figure 3)."""
    models = list(dict.fromkeys(model for model, _ in view.layers))
    shown = view.shown()
    features = shown.all_features
    first, second = st.columns(2)
    with first:
        model = choices.choose_one(
            "Model", stored.model_titles(models), "mapped", models[0],
            help="The model whose layers are drawn.",
        )  # fmt: skip
    with second:
        color = choices.choose_one(
            "Colour of the stimuli",
            stored.feature_titles(features),
            "colour",
            color_feature(shown),
            help="The feature that colours the maps.",
        )
    with st.spinner(f"Laying out the stimuli of {plain(stored.names().model(model))} …"):
        # Where one cannot be had, this says why.
        for layer in some_layers([layer for layer in view.layers if layer[0] == model], MOST):
            layer_points(shown, layer)
    exporting.show_figure(view, "map_panels", mapped=model, color=color)
