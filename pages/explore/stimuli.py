"""The stimuli: their features (table S1, figure S5 of paper 1), and maps of them in all layers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import streamlit as st

from mlem_core.analysis.maps import easiest_to_read, some_layers
from mlem_core.figures.stimulus_maps import MOST, points_of
from pages.parts import choices, exporting, frame, naming
from pages.parts.view import View
from pages.parts.wording import plain


def show_stimuli(view: View) -> None:
    """The stimuli with their features, and how these are spread and go together."""
    stimuli = view.analysis.stimuli
    exporting.show_table(
        stimuli.table,
        "stimuli",
        plain(stimuli.name),
        f"{len(stimuli):,} stimuli. An empty cell is a missing value.",
        first=True,
        features=[feature.name for feature in stimuli.features],
    )
    # How features vary together is the same whatever is fitted: with ridge there is no wait.
    quick = replace(view.selection, estimator="ridge", interactions=False)
    exporting.show_tab(replace(view, selection=quick), "stimuli")


def choose_colour(view: View, help: str) -> str:
    """Let the user choose the feature that colours maps of the stimuli."""
    return choices.choose_one(
        "Colour of the stimuli",
        view.all_features,
        "colour",
        easiest_to_read(view.analysis.stimuli, view.features),
        format_func=naming.of_features(view.all_features),
        help=help,
    )


def show_model_maps(view: View) -> None:
    """Maps of the stimuli in all layers of one model (paper 1, figure 3); folded away."""
    frame.folded_part(
        "The stimuli in all layers of a model",
        ":material/grid_view:",
        "model maps",
        partial(_model_maps, view),
    )


def _model_maps(view: View) -> None:
    models = list(dict.fromkeys(model for model, _ in view.layers))
    first, second = st.columns(2)
    with first:
        model = choices.choose_one(
            "Model", models, "mapped", models[0], format_func=naming.of_models(models),
            help="The model whose layers are drawn.",
        )  # fmt: skip
    with second:
        color = choose_colour(view, "The feature that colours the maps.")
    shown = view.shown()
    if shown is None:
        return
    with st.spinner(f"Laying out the stimuli of {plain(naming.now().model(model))} …"):
        # Where one cannot be had, this says why.
        for layer in some_layers([one for one in view.layers if one[0] == model], MOST):
            points_of(shown, layer)
    exporting.show_figure(view, "map_panels", mapped=model, color=color)
