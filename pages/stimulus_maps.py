"""Maps of the stimuli: how they are laid out, and those of all layers of one model."""

from __future__ import annotations

from importlib.util import find_spec

import streamlit as st

from mlem_core.analysis.layer_sources import missing_representations
from mlem_core.extensions.stimulus_maps.computation import LAYOUTS
from mlem_core.extensions.stimulus_maps.figures import MOST, color_feature, layer_points
from mlem_core.figures.context import some_layers
from pages.parts import choices, exporting, stored
from pages.parts.choices import plain
from pages.parts.view import View


def choose_layout(view: View) -> None:
    """A choice between metric MDS and UMAP for all maps, where UMAP can be had."""
    reason, models = "", [model for model, _ in view.chosen_pair or ()]
    if find_spec("umap") is None:
        reason = "UMAP is not installed on this server: it needs umap-learn."
    elif missing_representations(view.analysis, models, stored.store()):
        reason = "UMAP needs the representations of both models, and they are not in the store."
    if reason and choices.get_one("layout") != "umap":
        return
    with st.container(width=260):
        layout = choices.choose_one(
            "Maps of the stimuli by", LAYOUTS, "layout", "mds",
            help="Metric MDS keeps distances as well as a plane can. UMAP keeps neighbours "
            "together; its distances between groups mean little.",
        )  # fmt: skip
    if layout == "umap" and reason:
        choices.inform(reason)


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
