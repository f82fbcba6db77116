"""Figure 2 of paper 1: how alike the layers are, with the features and without them."""

from __future__ import annotations

import math

import streamlit as st

from pages import shared as screen


def body() -> None:
    view = screen.view(
        "Similarity",
        "How alike any two layers are: by the features that shape them (left) and by their "
        "distances alone (right).",
    )
    if view is None:
        return
    from mlem_core import figures

    results = view.results()
    on = screen.computed_on(results)
    st.metric(
        "Agreement of the two (Spearman ρ)",
        "–" if math.isnan(results.agreement) else f"{results.agreement:.2f}",
        help="Spearman ρ of the upper triangles of the two matrices: 1 where the features order "
        "the pairs of layers as their distances do. It needs three layers.",
    )
    screen.show_figure(
        figures.similarity_matrices(results.similarity_profiles, results.similarity_rsa),
        screen.pairs_of_layers(results),
        "similarity",
        "Feature-based: weighted Kendall τ of the importance profiles. Feature-agnostic: RSA, "
        "Spearman ρ of the neural distances over all pairs. Their agreement is the Spearman ρ of "
        f"the two upper triangles. Computed on {on}.",
    )
    st.subheader("Layer maps")
    screen.show_figure(
        figures.layer_maps(results.layer_map),
        results.layer_map,
        "layer-map",
        "Metric MDS of 1 − similarity: layers that are alike lie close together; a line joins the "
        f"layers of a model in order. The axes have no meaning of their own. Computed on {on}.",
    )


screen.page(body)
