"""The stimuli in all layers of a model, as small maps (paper 1, figure 3; paper 2, figure 5)."""

from __future__ import annotations

from functools import partial

import streamlit as st

from mlem_core.analysis.maps import easiest_to_read, some_layers
from mlem_core.report.two_layers import MOST, points_of
from pages.parts import choices, exporting, frame, naming
from pages.parts.view import View
from pages.parts.wording import plain


def show(view: View) -> None:
    """How the layers of one model lay out the stimuli; folded away."""
    frame.folded(
        "The stimuli in all layers of a model",
        ":material/grid_view:",
        "model maps",
        partial(_show, view),
    )


def _show(view: View) -> None:
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
    shown = view.shown()
    if shown is None:
        return
    with st.spinner(f"Laying out the stimuli of {plain(naming.now().model(model))} …"):
        # Where one cannot be had, this says why.
        for layer in some_layers([one for one in view.layers if one[0] == model], MOST):
            points_of(shown, layer)
    exporting.show_figure(view, "map_panels", mapped=model, color=color)
