"""What else divides over the features: τ of two layers, and the score of each layer alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import frame
from pages.parts.exporting import Drawing
from pages.parts.wording import as_layer, layer_label, plain

if TYPE_CHECKING:
    import pandas as pd

    from pages.parts.view import View


def tau(view: View, a: str, b: str) -> None:
    """The feature-based similarity as a sum over the features."""
    frame.folded(
        "The same for τ, the feature-based similarity",
        ":material/swap_vert:",
        "tau terms",
        lambda: _tau(view, a, b),
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
    two = profiles.loc[[as_layer(a), as_layer(b)]]
    terms = tau_terms(two.to_numpy())[:, 0, 1]
    table = pd.DataFrame({"term": list(two.columns), "value": terms})
    Drawing(
        figures.waterfall(table, view.all_features, "weighted Kendall τ"),
        table,
        "why-tau",
        "Weighted Kendall τ of the two importance profiles as a sum: each feature has half of "
        "every pair of features that it is in, + where both layers put the two in the same order, "
        "− where not. A negative bar is a feature that the two layers rank differently. Features "
        f"of hardly any importance change order by chance. {view.caption(results)}",
    ).show()


def alone(view: View, a: str, b: str) -> None:
    """The held-out ρ of each of the two layers as a sum over the features."""

    def both() -> None:
        sides = st.columns(2, gap="large")
        for side, name, place in zip(sides, (a, b), "ab", strict=True):
            with side:
                frame.attempt(partial(_alone, view, name, place))

    frame.folded("What each layer alone is made of", ":material/bar_chart:", "alone", both)


def _alone(view: View, name: str, place: str) -> None:
    from mlem_core import figures

    results = view.results()
    if results is None:
        return
    table = score_table(view, name)
    st.markdown(f"**{plain(layer_label(name))}**")
    ceiling = results.scores.groupby(["model", "layer"])["ceiling"].mean()[as_layer(name)]
    Drawing(
        figures.waterfall(table, view.all_features, "held-out ρ"),
        table,
        f"why-score-{place}",
        "The held-out ρ of the metric model as a sum of Shapley values, mean over folds; its "
        f"ceiling is {ceiling:.2f}. Unlike permutation importances these add up; a "
        "feature without weight has a bar where it correlates with one that has. "
        f"{view.caption(results)}",
    ).show()


def score_table(view: View, name: str) -> pd.DataFrame:
    """What each feature contributes to the held-out ρ of a layer: term, value (mean over folds)."""
    import pandas as pd

    from mlem_core.measures.decomposition import score_terms

    results = view.results()
    assert results is not None
    model, layer = as_layer(name)
    tables, _ = view.analysis.subset(replace(view.selection, layers=((model, layer),)))
    weights = results.weights
    of_layer = weights[(weights["model"] == model) & (weights["layer"] == layer)]
    wide = of_layer.pivot(index="fold", columns="feature", values="weight").sort_index()
    terms = score_terms(tables, wide[list(tables.columns.names)].to_numpy()[None])
    return pd.DataFrame({"term": list(tables.features), "value": terms[0].mean(axis=0)})
