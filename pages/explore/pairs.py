"""Figure 2 of paper 1, and beside it what is seen of two layers that are chosen there."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from mlem_core.base.typing import parse_layer
from mlem_core.report import captions, captions_of_methods, tables
from pages.explore import surprising, two, why
from pages.explore.terms import partial_of
from pages.parts import alike, audited, choices, exporting, frame, linked, tabs, uncertainty
from pages.parts.exporting import Panel
from pages.parts.view import View, two_layers

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results
    from mlem_core.figures.matrix import Order

ORDERS = {"model": "by model", "clustering": "alike ones together (RSA)"}
PANELS = {"why": why.show, "features": two.features, "maps": two.maps}


def show(view: View) -> None:
    if len(view.layers) < 2:
        st.info("There is one layer: no two to compare.", icon=":material/info:")
        return
    results = view.results()
    if results is not None:
        _linked(view, results)


# A fragment, so that choosing a cell draws nothing but this.
@st.fragment
def _linked(view: View, results: Results) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        place = st.container()
    with right:
        a, b = two_layers(view)
        with place:
            frame.attempt(partial(_matrices, view, results, a, b))
        if a == b:
            st.info("Choose two different layers.", icon=":material/info:")
            return
        look = tabs.choose("look", "What is shown of these two layers.")
        frame.attempt(partial(PANELS[look], view, a, b))
    if look == "why":
        frame.attempt(partial(why.more, view, a, b))


def _matrices(view: View, results: Results, a: str, b: str) -> None:
    from mlem_core import figures
    from mlem_core.inference.tables import similarity_table
    from mlem_core.measures.similarity import agreement

    flags, order = audited.marks(view), _order(view)
    intervals = uncertainty.of(view)
    correction = uncertainty.chosen_correction()
    tested = None if intervals is None else similarity_table(intervals, view.layers, correction)
    alike.choose()
    alike.offer(view)
    other = alike.of(view)
    other = None if other is None else other.of(view.analysis, view.selection)
    draw = partial(
        figures.similarity_matrices,
        results.similarity_profiles,
        results.similarity_rsa if other is None else other.square,
        annotations=figures.Annotations(None if tested is None else tested.table, flags),
        pair=None if a == b else (parse_layer(a), parse_layer(b)),
        order=order,
    )
    if other is not None:
        basis, n_features = view.caption(results), results.n_profile_features
        Panel(
            draw(across=1),
            tables.pairs_of_layers(results, other.square),
            "similarity",
            captions.other_similarity(other.similarity, basis, n_features=n_features),
            narrow=partial(draw, across=1),
            options={"order": order, "similarity": other.similarity.name},
        ).on_click(partial(_choose, view))
        _agreement(agreement(results.similarity_profiles.to_numpy(), other.values), {})
        return
    caption = captions.similarity(
        view.caption(results),
        "" if tested is None else tested.family,
        "" if intervals is None else intervals.units.over,
        flagged=bool(flags),
        n_features=results.n_profile_features,
    )
    Panel(
        draw(across=1),
        tables.pairs_of_layers(results) if tested is None else tested.table,
        "similarity",
        caption,
        narrow=partial(draw, across=1),
        options={"order": order},
    ).on_click(partial(_choose, view))
    _agreement(results.agreement, uncertainty.around(uncertainty.agreement(view)))
    _published(view, results)
    frame.folded(
        "Alike in what? In the features, in the rest, by transfer",
        ":material/call_split:",
        "similar in",
        partial(_similar_in, view, results, a, b),
    )
    surprising.show(view, results)


def _order(view: View) -> Order:
    """The title of the matrices, and how they are drawn."""
    row = st.container(horizontal=True, vertical_alignment="center")
    row.markdown("**How alike any two layers are.** Click a cell to look at its two layers.")
    with row.popover(
        "Order, marks", icon=":material/sort:", key="order and marks", help="How they are drawn."
    ):
        chosen = choices.choose_one(
            "Order of the layers",
            list(ORDERS),
            "order",
            "model",
            format_func=lambda one: ORDERS[one],
            help="Alike layers beside each other, with the tree that says how alike, or each "
            "model's layers in their order.",
        )
        if audited.reasons(view):
            audited.choose_marks()
    return "clustering" if chosen == "clustering" else "model"


def _agreement(value: float, around: dict[str, Any]) -> None:
    st.metric(
        "Agreement of the two (Spearman ρ)",
        "–" if math.isnan(value) else f"{value:.2f}",
        **around,
        help="Spearman ρ of the upper triangles of the two matrices: 1 where the features order "
        "the pairs of layers as their distances do. It needs three layers.",
    )


def _similar_in(view: View, results: Results, a: str, b: str) -> None:
    """A matrix of what RSA and τ mix."""
    from mlem_core import figures
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
    found = partial_of(view)
    Panel(
        figures.partial_matrix(
            found.square(name, view.layers),
            similar_in.UNITS[name],
            None if a == b else (parse_layer(a), parse_layer(b)),
            small=True,
        ),
        found.table(view.layers),
        "similar-in",
        similar_in.caption(name, view.caption(results)),
        options={"partial": name},
    ).on_click(partial(_choose, view))


def _published(view: View, results: Results) -> None:
    """The numbers of the first paper beside these, where its models are analysed."""
    from mlem_core import figures
    from mlem_core.analysis.published import beside_published

    table = beside_published(results)
    if table is None:
        return
    st.markdown("**Beside the first paper**")
    called = {"agreement": "agreement (Spearman ρ)", "weighted_tau": "weighted τ"}
    named = table.assign(quantity=table["quantity"].map(called))
    Panel(
        figures.published_values(table),
        table,
        "published",
        captions_of_methods.published(view.caption(results)),
        table=lambda: named,
    ).show()
    exporting.show_table(
        named,
        "published",
        "The same in numbers",
        "An empty cell: a layer that is not shown.",
    )


def _choose(view: View, points: list[dict[str, Any]]) -> None:
    """Look at the two layers of the cell that was clicked."""
    layers = linked.cell(view, points)
    if layers:
        linked.look_at(view, *layers)
