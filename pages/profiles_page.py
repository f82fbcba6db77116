"""Figure 3 of paper 1: the importance of each feature over the layers of each model.

Where features correlate, permuting one alone does not tell all: other importances are below. So are
other methods: how well each predicts, and what it says of the features.
"""

from __future__ import annotations

from functools import partial

import streamlit as st

from mlem_core.analysis import methods
from mlem_core.base.typing import layer_name
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures import captions
from mlem_core.inference.resample import below_ceiling
from mlem_core.measures import importance
from pages.parts import background, choices, exporting, frame, method, stored, uncertainty
from pages.parts.choices import inform, plain
from pages.parts.exporting import Panel
from pages.parts.opening import view_page
from pages.parts.view import View

WAYS = {
    "conditional": "permuted among pairs that agree on all other features",
    "left_out": "left out, and the model fitted without it",
    "group": "permuted together with others",
}
BASELINES = {
    "decoding": "Decoding: can the feature be read out?",
    "random-forest": "Random forest: the features predict the units",
    "univariate": "Univariate: one metric model a unit",
}


def _show_profiles(view: View) -> None:
    """The profiles of all layers, and what else there is to say of them."""
    exporting.show_figure(view, "profiles")
    if said := below_ceiling(view.results, view.selection.estimator):
        st.caption(plain(said))
    uncertainty.offer_intervals(view)
    uncertainty.offer_chance(view)
    exporting.show_table(
        view.results.scores,
        "scores",
        "Held-out scores of each layer and fold",
        captions.scores(view.shown().coding),
    )
    for title, icon, name, body in (
        (method.VALUED, "call_split", "values", method.values_in_layers),
        ("Where features correlate: other importances", "link", "correlated", _correlated),
        (
            "How well each method predicts, and MLEM against FR-RSA",
            "leaderboard",
            "methods",
            _method_scores,
        ),
        ("The same layers by other methods", "balance", "baselines", _baseline),
    ):
        frame.folded_part(title, icon, name, partial(body, view))
    exporting.show_tab(view, "profiles")


def _correlated(view: View) -> None:
    """Importance where features correlate: what permuting one feature alone does not tell."""
    found = importance.correlated_features(view.analysis.tables.of_features(view.features))
    said = importance.warning(found, stored.names())
    st.caption(plain(said or "No two of these features correlate by 0.3 or more."))
    if estimator_named(view.selection.estimator).slow:
        st.caption("They are computed with ridge; choose it in the sidebar.")
        return
    way = choices.choose_one(
        "The feature is",
        WAYS,
        "way",
        "conditional",
        help="Another question than what permuting it alone answers.",
    )
    group: list[str] = []
    if way == "group":
        group = choices.choose_many(
            "Features", stored.feature_titles(view.features), "group", view.features[:2],
            help="They are permuted together.",
        )  # fmt: skip
        if not group:
            inform("Choose at least one feature.")
            return
    with st.spinner("Computing the importances …"):
        panel = Panel.of(view, f"importance_{way}", f"importance-{way}", group="\n".join(group))
    if panel is not None:
        panel.show()


def _method_scores(view: View) -> None:
    panel = Panel.of(view, "methods")
    if panel is None:
        return
    panel.show()
    found = set(panel.drawn.data["method"])
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
    layers = [one for one in view.layers if methods.can_be_made(view.analysis, view.selection, one)]
    if not layers:
        return
    names = {layer_name(one): one for one in layers}
    name = choices.choose_one(
        "Layer with noise",
        stored.layer_titles(list(names)),
        "noisy",
        list(names)[len(names) // 2],
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


def _baseline(view: View) -> None:
    name = choices.choose_one(
        "Method",
        BASELINES,
        "baseline",
        "decoding",
        help="A method to put beside the metric model, on the same stimuli and folds.",
    )
    task = view.work("baseline", {"name": name, "layers": view.layers})
    figure = "unit_scores" if name == "univariate" else f"baseline_{name.replace('-', '_')}"
    done = task.status().state == "done"
    made = view.shown().once(("tables", task.id), task.tables) if done else None
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
    if name == "univariate":
        exporting.show_table(
            methods.units(panel.drawn.data, view.results),
            "units",
            "Single units in numbers",
            "median, best: of the held-out ρ of the units of a layer; whole: of the metric model "
            "of all of them together; above_whole: the share of units above it.",
        )
    for notice in made["notices"]["notice"]:
        st.caption(plain(notice))


view_page(__file__, _show_profiles)
