"""What stands below a view of all layers, folded away: its numbers, and further figures."""

from __future__ import annotations

import math
from functools import partial

import streamlit as st

from mlem_core.base.text import fraction, percent
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures import captions
from mlem_core.figures.captions import chance_sentence
from mlem_core.figures.compare import mean_importance
from mlem_core.figures.layer_views import surprising_pairs
from mlem_core.figures.terms import models_alike
from mlem_core.inference.intervals import agreement_interval
from mlem_core.inference.resample import ceiling_caveats
from mlem_core.measures import decomposition, importance
from mlem_core.measures.similarity import agreement
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from pages.parts import canvas, choices, exporting, frame, stored, uncertainty
from pages.parts.choices import drop_minus_zero, inform, plain
from pages.parts.exporting import Panel
from pages.parts.view import View, choose_similarity, compared_layers


def show_view_details(view: View) -> None:
    """The folded parts of the view that is chosen."""
    name = canvas.chosen_view()
    details = {
        "heatmap": (
            ("Similarities, their agreement and order", "compare", _similarities),
            ("Contributions to the similarity of every two models", "stacked_bar_chart", _terms),
            ("All surprising pairs of layers", "table", _surprises),
        ),
        "profiles": (
            ("Scores and chance", "table", _scores),
            ("Where features correlate: left out and fitted again", "link", _correlated),
        ),
        "scatter": (("Importances in A and B", "table", _importances),),
    }
    for title, icon, body in details.get(name, ()):
        frame.folded_part(title, icon, title, partial(body, view))
    exporting.show_panels(view, name)


def _similarities(view: View) -> None:
    choose_similarity(view)
    choices.choose_one(
        "Order of the layers in the exported figure",
        {"model": "by model", "clustering": "similar ones together (RSA)"},
        "order",
        "model",
        help="Similar layers beside each other, with their tree, or each model's layers in their "
        "order.",
    )
    of_layers, context, interval = compared_layers(view), view.shown(), None
    name = of_layers.similarity.name
    if (bounds := context.find_intervals(name)) is not None:
        key = "agreement", name
        interval = context.once(key, lambda: agreement_interval(bounds, view.layers)[1:])
    values = of_layers.values_among(view.layers)
    agree = agreement(view.results.similarity_profiles.to_numpy(), values)
    st.metric(
        f"Agreement of {of_layers.similarity.short} and τ (Spearman ρ)",
        "–" if math.isnan(agree) else fraction(agree),
        **uncertainty.around(interval),
        help="Spearman ρ of the upper triangles of the two matrices: 1 where the features order "
        "the pairs of layers as their distances do. It needs three layers.",
    )


def _terms(view: View) -> None:
    """Contributions to the similarity of every two models."""
    similarity = compared_layers(view).similarity
    if similarity.no_terms:
        inform(f"{similarity.no_terms} What follows is RSA.")
        similarity = SIMILARITIES[RSA]
    shown = view.shown(similarity=similarity.name)
    panel = Panel.from_view(view, "why_layers", similarity=similarity.name)
    if panel is None:
        return
    means = models_alike(shown)
    terms = stored.feature_titles(list(means["term"]))
    uncertainty.offer_intervals(view, similarity.name)
    st.dataframe(
        drop_minus_zero(means.assign(term=means["term"].map(terms))),
        hide_index=True,
        key="models alike",
        column_config={
            pair: st.column_config.NumberColumn(format="%+.3f") for pair in means.columns[1:]
        },
    )
    st.caption(
        "Mean of each contribution over the pairs of layers of every two models (and within each). "
        f"A column adds up to the mean {similarity.called}. "
        f"{chance_sentence(shown.chance)} {shown.basis_sentence}"
    )
    panel.show()


def _surprises(view: View) -> None:
    """Pairs on which both similarities disagree, or that nothing explains."""
    table = surprising_pairs(view.shown())
    if table.empty:
        st.caption(f"None of the pairs stands out, or there are fewer than {decomposition.FEWEST}.")
        return
    exporting.draw_table(
        table,
        "surprises",
        "Layers of different models (of one model: layers that are not neighbours), without pairs "
        "that the audit changes; a layer comes once a kind. Both similarities disagree where their "
        f"ranks differ by {percent(decomposition.APART)} of the pairs, and both layers have a "
        f"held-out ρ of {decomposition.PREDICTED} or more. Profiles in random order give the limit "
        f"for τ. Hardly explained: {percent(decomposition.NOT_EXPLAINED)} or more of an RSA above "
        "the median. These limits are conventions, no tests. above: share of pairs that are below. "
        "Intervals of RSA hold for all pairs of layers at once.",
    )


def _scores(view: View) -> None:
    """Held-out scores of each layer and fold, and what is added to the profiles."""
    if sentence := ceiling_caveats(view.results, view.selection.estimator):
        st.caption(plain(sentence))
    uncertainty.offer_intervals(view)
    uncertainty.offer_chance(view)
    exporting.draw_table(view.results.scores, "scores", captions.scores(view.shown().coding))


def _correlated(view: View) -> None:
    """Importance where features correlate: what permuting one feature alone does not tell."""
    selection = view.selection
    if estimator_named(selection.estimator).slow:
        st.caption("They are computed with ridge: run the analysis with it.")
        return
    pairs = view.analysis.compute_pairs(selection)
    weights = importance.fitted(pairs, selection.estimator)[0].weights
    warning = importance.correlation_warning(pairs, weights, stored.names())
    st.caption(plain(warning or "What these features predict correlates by less than .3."))
    with st.spinner("Computing the importances …"):
        panel = Panel.from_view(view, "importance_left_out")
    if panel is not None:
        panel.show()


def _importances(view: View) -> None:
    """Mean importance of each feature in both layers, and how similar their profiles are."""
    a, b = view.pair
    results = view.results
    st.metric(
        "By features (weighted τ)",
        fraction(results.similarity_profiles.loc[a, b]),
        help="Weighted Kendall τ of the two importance profiles; 1 is the same order. "
        + captions.tau_by_chance(results.n_profile_features),
    )
    st.dataframe(
        stored.names().table(drop_minus_zero(mean_importance(results, a, b))),
        hide_index=True,
        key="importances",
        column_config={
            layer: st.column_config.NumberColumn(
                f"{letter}: {stored.layer_title(layer)}", format="%.3f"
            )
            for letter, layer in zip("AB", (a, b), strict=True)
        },
    )
