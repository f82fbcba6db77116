"""Figure 2 of paper 1, and beside it the importances in the two layers that are chosen there."""

from __future__ import annotations

import math
from functools import partial

import streamlit as st

from mlem_core.base.text import fraction
from mlem_core.figures import captions
from mlem_core.figures.compare import mean_importance
from mlem_core.inference.intervals import agreement_interval
from mlem_core.measures.similarity import agreement
from pages.parts import choices, exporting, frame, stored, uncertainty
from pages.parts.choices import drop_minus_zero
from pages.parts.exporting import Panel
from pages.parts.opening import view_page
from pages.parts.view import (
    View,
    choose_similarity,
    chosen_similarity,
    compared_layers,
    has_pairs,
    look_at_cell,
    pair_of_layers,
)

ORDERS = {"model": "by model", "clustering": "similar ones together (RSA)"}


def _show_heatmaps(view: View) -> None:
    """The matrices of how similar all layers are, and the importances in two of them."""
    if has_pairs(view):
        frame.alone(partial(_linked, view))
        exporting.show_tab(view, "pairs")


def _linked(view: View) -> None:
    left, right = st.container(key="matrices").columns(2, gap="large")
    with right:
        a, b = pair_of_layers(view)
    with left:
        frame.attempt(partial(_matrices, view))
    with right:
        frame.attempt(partial(_features, view, a, b))


def _matrices(view: View) -> None:
    choices.choose_one(
        "Order of the layers",
        ORDERS,
        "order",
        "model",
        help="Similar layers beside each other, with their tree, or each model's layers in their "
        "order.",
    )
    of_layers = choose_similarity(view)
    panel = Panel.from_view(view, "similarity", similarity=chosen_similarity())
    if panel is None:
        return
    panel.on_click(partial(look_at_cell, view))
    name, context, interval = of_layers.similarity.name, view.shown(), None
    if (bounds := context.find_intervals(name)) is not None:
        key = "agreement", name
        interval = context.once(key, lambda: agreement_interval(bounds, view.layers)[1:])
    values = of_layers.values_among(view.layers)
    agree = agreement(view.results.similarity_profiles.to_numpy(), values)
    st.metric(
        "Agreement of the two (Spearman ρ)",
        "–" if math.isnan(agree) else fraction(agree),
        **uncertainty.around(interval),
        help="Spearman ρ of the upper triangles of the two matrices: 1 where the features order "
        "the pairs of layers as their distances do. It needs three layers.",
    )


def _features(view: View, a: str, b: str) -> None:
    """Importances and similarities of two layers."""
    exporting.show_figure(view, "compare")
    _similarities(view, a, b)
    uncertainty.offer_intervals(view)
    uncertainty.say_of_pair(view, a, b)


def _similarities(view: View, a: str, b: str) -> None:
    results = view.results
    bounds: dict[str, tuple[float, float]] = {}
    among = ""
    if (tests := view.shown().similarity_tests) is not None and a != b:
        both = tests.table["layer_a"].isin((a, b)) & tests.table["layer_b"].isin((a, b))
        row = tests.table[both].iloc[0]
        names = "weighted_tau", "rsa"
        bounds = {name: (row[f"{name}_lower"], row[f"{name}_upper"]) for name in names}
        if row["chosen_from"]:
            among = f", largest of {row['chosen_from']:,} pairs"
    left, right = st.columns(2)
    left.metric(
        "By features (weighted τ)",
        fraction(results.similarity_profiles.loc[a, b]),
        **uncertainty.around(bounds.get("weighted_tau")),
        help="Weighted Kendall τ of the two importance profiles; 1 is the same order. "
        + captions.tau_by_chance(results.n_profile_features),
    )
    right.metric(
        "By distances (RSA)",
        fraction(results.similarity_rsa.loc[a, b]),
        **uncertainty.around(bounds.get("rsa"), among),
        help="Spearman ρ of the neural distances of the two layers over all pairs.",
    )
    of_layers = compared_layers(view)
    by = of_layers.similarity
    if not by.of_ranks:
        st.metric(
            f"{by.title.capitalize()} ({by.short})",
            fraction(of_layers.square.loc[a, b]),
            help=f"{by.called.capitalize()}: {by.meaning}.",
        )
    st.dataframe(
        stored.names().table(drop_minus_zero(mean_importance(results, a, b))),
        hide_index=True,
        key="importances",
        column_config={
            name: st.column_config.NumberColumn(stored.layer_title(name), format="%.3f")
            for name in dict.fromkeys((a, b))
        },
    )


view_page("heatmaps", _show_heatmaps)
