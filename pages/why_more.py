"""What else divides over the features: τ of two layers, and the score of each layer alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from mlem_core.base.typing import parse_layer
from mlem_core.report import captions
from pages import choices
from pages import shared as screen

if TYPE_CHECKING:
    import pandas as pd

    from pages.view import View


def tau(view: View, a: str, b: str) -> None:
    """The feature-based similarity as a sum over the features."""
    screen.folded(
        "The same for τ, the feature-based similarity",
        ":material/swap_vert:",
        "tau terms",
        lambda: screen.attempt(lambda: _tau(view, a, b)),
    )


def _tau(view: View, a: str, b: str) -> None:
    import pandas as pd

    from mlem_core import figures
    from mlem_core.measures.decomposition import tau_terms

    results = view.results()
    if results is None:
        return
    means = results.importance.groupby(["model", "layer", "feature"], sort=False)["importance"]
    profiles = means.mean().unstack("feature")[list(dict.fromkeys(results.importance["feature"]))]
    two = profiles.loc[[parse_layer(a), parse_layer(b)]]
    terms = tau_terms(two.to_numpy())[:, 0, 1]
    table = pd.DataFrame({"term": list(two.columns), "value": terms})
    screen.show_figure(
        figures.waterfall(table, view.all_features, "weighted Kendall τ"),
        table,
        "why-tau",
        captions.why_tau(view.caption(results)),
    )


def alone(view: View, a: str, b: str) -> None:
    """The held-out ρ of each of the two layers as a sum over the features."""

    def both() -> None:
        sides = st.columns(2, gap="large")
        for side, name, place in zip(sides, (a, b), "ab", strict=True):
            with side:
                screen.attempt(lambda name=name, place=place: _alone(view, name, place))

    screen.folded("What each layer alone is made of", ":material/bar_chart:", "alone", both)


def _alone(view: View, name: str, place: str) -> None:
    from mlem_core import figures

    results = view.results()
    if results is None:
        return
    table = score_table(view, name)
    st.markdown(f"**{choices.plain(screen.layer_label(name))}**")
    own = results.scores[results.scores["model"] == parse_layer(name)[0]]
    own = own[own["layer"] == parse_layer(name)[1]]
    screen.show_figure(
        figures.waterfall(table, view.all_features, "held-out ρ"),
        table,
        f"why-score-{place}",
        captions.why_score(own["ceiling"].mean(), view.caption(results)),
    )


def score_table(view: View, name: str) -> pd.DataFrame:
    """What each feature contributes to the held-out ρ of a layer: term, value (mean over folds)."""
    import pandas as pd

    from mlem_core.measures.decomposition import score_terms

    results = view.results()
    assert results is not None
    model, layer = parse_layer(name)
    tables, _ = view.analysis.subset(replace(view.selection, layers=((model, layer),)))
    weights = results.weights
    own = weights[(weights["model"] == model) & (weights["layer"] == layer)]
    wide = own.pivot(index="fold", columns="feature", values="weight").sort_index()
    found = score_terms(tables, wide[list(tables.columns.names)].to_numpy()[None])
    return pd.DataFrame({"term": list(tables.features), "value": found[0].mean(axis=0)})
