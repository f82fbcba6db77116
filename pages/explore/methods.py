"""The same layers by other methods: how well each predicts, and what it says of the features."""

from __future__ import annotations

from functools import partial

import streamlit as st

from mlem_core.base.typing import layer_name
from pages.parts import background, choices, exporting, frame, naming
from pages.parts.exporting import Panel
from pages.parts.view import View
from pages.parts.wording import plain


def show_methods(view: View) -> None:
    """What other methods make of the layers that are shown; folded away."""
    frame.folded(
        "How well each method predicts, and MLEM against FR-RSA",
        ":material/leaderboard:",
        "methods",
        partial(_scores, view),
    )
    frame.folded(
        "The same layers by other methods",
        ":material/balance:",
        "baselines",
        partial(_baseline, view),
    )


def _scores(view: View) -> None:
    from mlem_core.analysis import methods

    panel = Panel.of(view, "methods")
    if panel is None:
        return
    panel.show()
    found = set(panel.data["method"])
    missing = [name for name in methods.slow(view.analysis, view.selection) if name not in found]
    if missing:
        background.offer(
            view.work("methods", view.selection.to_dict()),
            "Fit " + " and ".join(methods.NAMES.get(name, name) for name in missing),
            "Fits every layer that is shown, in the background: about a second a layer and method. "
            "It is computed once.",
        )
    agreement = Panel.of(view, "method_agreement")
    if agreement is not None:
        st.markdown("**MLEM against FR-RSA**")
        agreement.show()
        _noise(view)
    st.caption(
        "A random forest and the mean over single units join these lines once they have been "
        "computed below, with all features."
    )


def _noise(view: View) -> None:
    """Whether both methods still agree when a layer is noisy."""
    from mlem_core.robustness import noise

    layers = [one for one in view.layers if noise.can_be_made(view.analysis, view.selection, one)]
    if not layers:
        return
    names = {layer_name(one): one for one in layers}
    name = choices.choose_one(
        "Layer with noise",
        list(names),
        "noisy",
        list(names)[len(names) // 2],
        format_func=naming.layer,
        help="A layer to whose units noise is added, of 0 to 3 standard deviations of each.",
    )
    panel = Panel.of(view, "noise_agreement", noisy=name)
    if panel is None:
        background.offer(
            view.work("noise", {"selection": view.selection.to_dict(), "layer": list(names[name])}),
            "Add noise to this layer",
            "Fits the layer at seven levels of noise by both methods, in the background: about a "
            "second each. It is computed once.",
        )
        return
    panel.show()


BASELINES = {
    "decoding": "Decoding: can the feature be read out?",
    "random-forest": "Random forest: the features predict the units",
    "univariate": "Univariate: one metric model a unit",
}


def _baseline(view: View) -> None:
    from mlem_core.analysis import methods

    name = choices.choose_one(
        "Method",
        list(BASELINES),
        "baseline",
        "decoding",
        format_func=lambda one: BASELINES[one],
        help="A method to put beside the metric model, on the same stimuli and folds.",
    )
    task = view.work("baseline", {"name": name, "layers": view.layers})
    figure = "unit_scores" if name == "univariate" else f"baseline_{name.replace('-', '_')}"
    done = task.status().state == "done"
    made = view.once(("tables", task.id), task.tables) if done else None
    panel = Panel.of(view, figure)
    if made is None or panel is None:
        background.offer(
            task,
            "Compute it",
            "Computes this method for the layers that are shown, in the background; what is done "
            "is kept.",
        )
        return
    panel.show()
    results = view.results()
    if name == "univariate" and results is not None:
        exporting.show_table(
            methods.units(panel.data, results),
            "units",
            "Single units in numbers",
            "median, best: of the held-out ρ of the units of a layer; whole: of the metric model "
            "of all of them together; above_whole: the share of units above it.",
        )
    for notice in made["notices"]["notice"]:
        st.caption(plain(notice))
