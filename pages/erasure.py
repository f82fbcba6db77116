"""The drawer in which a feature is erased from a layer of a model, and what that changes."""

from __future__ import annotations

import streamlit as st

from mlem_core.base.typing import layer_name, parse_layer
from mlem_core.extensions.erasure.figures import selected_erasure
from pages.parts import background, choices, exporting, stored
from pages.parts.choices import inform, plain
from pages.parts.view import View


def show_erasure(view: View) -> None:
    """The choice of the feature and the layer, and the result or the button that computes it."""
    able = _layers(view)
    if not able:
        inform(
            "A feature can be erased from models that are run, below their last layer; this "
            "analysis has none."
        )
        return
    options = _ask(view, able)
    erasure = selected_erasure(view.shown(**options))
    if erasure is None:
        _offer(view, options)
        return
    with st.container(border=True):
        st.markdown(
            "\n".join(f"- {plain(sentence)}" for sentence in erasure.sentences(stored.names()))
        )
    exporting.show_figure(view, "erasure", **options)
    exporting.show_table(
        erasure.table,
        "erasure-measures",
        "All measures",
        "Before and after; lower and upper: 95 % CI of the change, added to before; interchanged: "
        "states get the mean of another stimulus's value instead; beyond: after and interchanged "
        "are outside the band of the controls. rest: RSA of a layer with itself, the feature "
        "erased from both.",
    )
    for note in erasure.notes:
        st.caption(plain(note))


def _layers(view: View) -> list[str]:
    """The layers of models that are run, without the last one of each."""
    files = dict(view.analysis.spec.representations)
    last = dict(view.layers)
    return [
        layer_name((model, layer))
        for model, layer in view.layers
        if model not in files and layer < last[model]
    ]


def _ask(view: View, able: list[str]) -> dict[str, str]:
    """The feature, the layer, the tokens, and the layer of another model."""
    first, second, third = st.columns(3)
    largest = view.results.most_important(view.features)
    with first:
        feature = choices.choose_one(
            "Feature", stored.feature_titles(view.features), "erased", largest,
            help="The feature that is erased.",
        )  # fmt: skip
    first_model = parse_layer(view.pair[0])[0]
    layers = [one for one in able if parse_layer(one)[0] == first_model] or able
    with second:
        layer = choices.choose_one(
            "Layer", stored.layer_titles(able), "erased_at", layers[len(layers) // 2],
            help="Its states no longer have the feature; later layers and predictions follow.",
        )  # fmt: skip
    with third:
        tokens = choices.choose_one(
            "Tokens", ["all", "stimuli"], "erased_tokens", "all",
            help="all: every token of a sentence is changed; stimuli: those of the stimuli only.",
        )  # fmt: skip
    model = parse_layer(layer)[0]
    other = next((one for one in view.pair if parse_layer(one)[0] != model), "")
    return {"erased": feature, "erased_at": layer, "erased_tokens": tokens, "other": other}


def _offer(view: View, options: dict[str, str]) -> None:
    st.markdown(
        "A linear map takes the feature out of the layer while the model reads held-out sentences. "
        "Importances, similarities and predictions are then compared with those of controls: "
        "permuted labels, and random subspaces of as much variance."
    )
    background.offer(
        view.work("erase", options),
        "Erase it",
        "Runs the model about 45 times, in the background; minutes for a small model.",
    )
