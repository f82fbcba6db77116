"""Figure 2 of paper 1, and beside it what is seen of two layers that are chosen there."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from pages.explore import notable, two, why
from pages.parts import alike, audited, choices, exporting, frame, navigation, uncertainty
from pages.parts.exporting import Panel
from pages.parts.view import View, two_layers

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results

ORDERS = {"model": "by model", "clustering": "alike ones together (RSA)"}
PANELS = {"why": why.show_why, "features": two.show_features, "maps": two.show_maps}


def show_pairs(view: View) -> None:
    """The matrices of how alike all layers are, and the two layers that are chosen there."""
    results = view.results() if view.has_pairs() else None
    if results is not None:
        frame.alone(partial(_linked, view, results))


def _linked(view: View, results: Results) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        place = st.container()
    with right:
        a, b = two_layers(view)
        with place:
            frame.attempt(partial(_matrices, view, results))
        if a == b:
            st.info("Choose two different layers.", icon=":material/info:")
            return
        look = navigation.choose_tab("look", "What is shown of these two layers.")
        frame.attempt(partial(PANELS[look], view, a, b))
    if look == "why":
        frame.attempt(partial(why.show_more, view, a, b))


def _matrices(view: View, results: Results) -> None:
    from mlem_core.measures.similarity import agreement

    _order(view)
    other = alike.choose_similarity(view)
    chosen: dict[str, Any] = {} if other is None else {"similarity": other.similarity.name}
    panel = Panel.of(view, "similarity", **chosen)
    if panel is None:
        return
    panel.on_click(partial(navigation.look_at_cell, view))
    if other is not None:
        values = other.of(view.analysis, view.selection).values
        _agreement(agreement(results.similarity_profiles.to_numpy(), values), {})
        return
    _agreement(results.agreement, uncertainty.around(uncertainty.agreement_interval(view)))
    _published(view)
    frame.folded(
        "Alike in what? In the features, in the rest, by transfer",
        ":material/call_split:",
        "similar in",
        partial(_similar_in, view),
    )
    notable.show_surprises(view)


def _order(view: View) -> None:
    """The title of the matrices, and the choice of how they are drawn."""
    row = st.container(horizontal=True, vertical_alignment="center")
    row.markdown("**How alike any two layers are.** Click a cell to look at its two layers.")
    with row.popover(
        "Order, marks", icon=":material/sort:", key="order and marks", help="How they are drawn."
    ):
        choices.choose_one(
            "Order of the layers",
            list(ORDERS),
            "order",
            "model",
            format_func=lambda one: ORDERS[one],
            help="Alike layers beside each other, with the tree that says how alike, or each "
            "model's layers in their order.",
        )
        if audited.flag_reasons(view):
            audited.choose_marks()


def _agreement(value: float, around: dict[str, Any]) -> None:
    st.metric(
        "Agreement of the two (Spearman ρ)",
        "–" if math.isnan(value) else f"{value:.2f}",
        **around,
        help="Spearman ρ of the upper triangles of the two matrices: 1 where the features order "
        "the pairs of layers as their distances do. It needs three layers.",
    )


def _similar_in(view: View) -> None:
    """A matrix of what RSA and τ mix."""
    from mlem_core.report import similar_in

    name = choices.choose_one(
        "Similarity",
        list(similar_in.choices(view.selection.estimator)),
        "partial",
        "features",
        format_func=lambda one: similar_in.NAMES[one],
        help="What the features explain in both layers, what is left, or what the metric of one "
        "predicts in the other.",
    )
    panel = Panel.of(view, "similar_in", partial=name)
    if panel is not None:
        panel.on_click(partial(navigation.look_at_cell, view))


def _published(view: View) -> None:
    """The numbers of the first paper beside these, where its models are analysed."""
    panel = Panel.of(view, "published")
    if panel is None or panel.table is None:
        return
    st.markdown("**Beside the first paper**")
    panel.show()
    exporting.show_table(
        panel.table(),
        "published",
        "The same in numbers",
        "An empty cell: a layer that is not shown.",
    )
