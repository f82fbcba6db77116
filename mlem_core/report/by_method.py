"""Figures of other methods on the same layers, of baselines, and of published numbers."""

from __future__ import annotations

from functools import partial

import pandas as pd

from mlem_core import figures
from mlem_core.analysis import baselines, methods
from mlem_core.analysis.in_words import FOLDS, computed_on
from mlem_core.analysis.methods import beside_published
from mlem_core.base.typing import layer_name
from mlem_core.report.shown import FigureContext, RenderedFigure, figure, held_out
from mlem_core.robustness import noise

# What is seen where MLEM and FR-RSA are compared.
_AGREEMENT = (
    "Left: Frobenius distance of their matrices of weights, each of norm 1. Right: weighted "
    f"Kendall τ of their importance profiles. Mean over folds, bands are {FOLDS}."
)


@figure(
    "methods",
    "Prediction accuracy by method",
    "How well each method predicts the distances of unseen stimuli; no function of these features "
    "gets above the ceiling.",
)
def scores(shown: FigureContext) -> RenderedFigure | None:
    """Figure S9 of Jalouzot et al. (2024); None where none that takes long has been computed."""
    store = shown.drawing.store
    if store is None:
        return None
    of = shown.analysis, store, shown.selection
    found, others = methods.results_by_method(*of), baselines.with_rho(*of)
    # Like every figure of what takes long it is not in a capsule of which nothing was asked.
    asked = shown.drawing.screen or others
    if not asked and not set(found) & set(methods.slow(shown.analysis, shown.selection)):
        return None
    table = methods.scores(found, others)
    return RenderedFigure(
        figures.method_scores(table, shown.results.scores, methods.NAMES, shown.across),
        "Prediction accuracy by method",
        "Spearman ρ of predicted and neural distances on held-out stimuli by method: mean over "
        f"folds, bands are {FOLDS}. MLEM, Spearman maximises ρ_a with weights of at least 0 (with "
        "interactions: a positive definite matrix), FR-RSA with any; random forest: Spearman ρ of "
        "the distances of its predicted representations; single units: a metric model fitted to "
        "each unit alone, mean over them. Dotted: the ceiling. "
        f"{shown.computed_on}",
        table,
        table.groupby(["model", "layer", "method"], sort=False)["rho"]
        .mean()
        .unstack()
        .reset_index()
        .rename(columns=methods.NAMES),
    )


@figure(
    "method_agreement",
    "MLEM and FR-RSA, layer by layer",
    "Whether both fit the same weights, and whether they order the features alike.",
)
def agreement(shown: FigureContext) -> RenderedFigure | None:
    """Figure S7 of Jalouzot et al. (2024); None where one of the two has not been computed."""
    store = shown.drawing.store
    if store is None:
        return None
    found = methods.results_by_method(shown.analysis, store, shown.selection)
    if not set(methods.COMPARED) <= set(found):
        return None
    table = methods.agreement(*(found[name] for name in methods.COMPARED))
    means = table.groupby(["model", "layer"], sort=False)[["frobenius", "tau"]].mean()
    return RenderedFigure(
        figures.method_agreement(table, 1 if shown.drawing.narrow else 2),
        "MLEM and FR-RSA, layer by layer",
        f"MLEM (estimator spearman) and FR-RSA on each layer. {_AGREEMENT} {shown.computed_on}",
        table,
        means.reset_index(),
    )


@figure(
    "noise_agreement",
    "MLEM and FR-RSA under noise",
    "Whether both still fit the same weights, and order the features alike, when a layer is noisy.",
)
def noise_agreement(shown: FigureContext) -> RenderedFigure | None:
    """Figure S8 of Jalouzot et al. (2024); None where it has been computed for no layer.

    Of the layer that is chosen, else of the first that is shown of which it has been computed.
    """
    store, analysis = shown.drawing.store, shown.analysis
    chosen = shown.drawing.options.get("noisy", "")
    layers = [one for one in shown.selection.layers if layer_name(one) == chosen]
    if store is None:
        return None
    for layer in layers or shown.selection.layers:
        table = noise.find_noise(analysis, store, shown.selection, layer)
        if table is None:
            continue
        means = table.groupby("noise")[["frobenius", "tau"]].mean()
        title = shown.names.layer_title(layer)
        return RenderedFigure(
            figures.noise_agreement(table, 1 if shown.drawing.narrow else 2),
            f"MLEM and FR-RSA with noise in {title}",
            f"MLEM (estimator spearman) and FR-RSA on {title} with Gaussian noise added to each "
            f"unit, in standard deviations of the unit. {_AGREEMENT} {shown.computed_on}",
            table,
            means.reset_index(),
        )
    return None


@figure(
    "unit_scores",
    "Single units and the whole layer",
    "How well single units are predicted, and how well the whole layer: the farther apart, the "
    "more the features are in patterns over units.",
)
def units(shown: FigureContext) -> RenderedFigure | None:
    """Figure S12 of Jalouzot et al. (2024); None where the units have not been fitted."""
    table = _kept(shown, "univariate")
    if table is None:
        return None
    return RenderedFigure(
        figures.unit_scores(table, shown.results.scores, shown.across),
        "Metric models of single units, and of the whole layer",
        "Held-out ρ of a metric model fitted to each unit of a layer alone (mean over folds): the "
        "shape is the distribution over units, the line in it their median, the dot the best one. "
        "Dashed: the metric model of the whole layer. Where that is far above, the features are "
        f"in patterns over units, not in single ones. {shown.computed_on}",
        table,
        methods.units(table, shown.results),
    )


# Of each baseline: what its axis is called, its title, and what is seen.
_BASELINES = {
    "decoding": (
        "accuracy above chance (Δ)",
        "Decoding of each feature",
        "Accuracy of a linear classifier for each feature on held-out stimuli, less that of always "
        "saying the most frequent value. Unlike an importance it does not say how much of the "
        "distances a feature shapes.",
    ),
    "random-forest": (
        "permutation importance (PI)",
        "Random forests that predict the units",
        "Importance of each feature in a random forest that predicts the representations; dashed: "
        "its held-out score.",
    ),
    "univariate": (
        "prediction accuracy (held-out ρ)",
        "Metric models of single units",
        "Held-out ρ of a metric model fitted to each unit alone, the mean over the units.",
    ),
}


def _kept(shown: FigureContext, name: str) -> pd.DataFrame | None:
    """What a baseline found, where it has been computed."""
    if (store := shown.drawing.store) is None:
        return None
    return baselines.find(shown.analysis, name, store, shown.selection.layers)


def baseline(shown: FigureContext, name: str) -> RenderedFigure | None:
    """The same layers by another method; None where it has not been computed."""
    table, names = _kept(shown, name), shown.all_features
    if table is None:
        return None
    if name == "univariate":
        names = ["mean over units"]
        means = table.groupby(["model", "layer", "fold"], sort=False)["rho"].mean()
        drawn = means.rename("importance").reset_index().assign(feature=names[0])
        scores = drawn[["model", "layer", "fold"]]
    else:
        drawn = table[table["feature"].isin(shown.selection.features)]
        if name == "decoding":
            drawn = drawn.assign(importance=drawn["accuracy"] - drawn["majority"])
        scores = drawn.drop_duplicates(["model", "layer", "fold"])
    value, title, seen = _BASELINES[name]
    counts = shown.results.n_stimuli, 0, shown.results.n_folds
    on = computed_on(*counts, held_out(shown.analysis))
    return RenderedFigure(
        figures.profiles(drawn, scores, names, across=shown.across, value=value),
        title,
        f"{seen} Mean over folds, bands are one standard deviation. {on}",
        table,
    )


for _name in _BASELINES:
    figure(
        f"baseline_{_name.replace('-', '_')}",
        "The layers by another method",
        "The same layers by another method.",
    )(partial(baseline, name=_name))


@figure(
    "published",
    "Beside the first paper",
    "What the first paper found in these models, and what is found here.",
)
def published(shown: FigureContext) -> RenderedFigure | None:
    """What Salle et al. (2024) found, beside these numbers; None where the models are others."""
    table = beside_published(shown.results)
    if table is None:
        return None
    called = {"agreement": "agreement (Spearman ρ)", "weighted_tau": "weighted τ"}
    return RenderedFigure(
        figures.published_values(table),
        "Beside the first paper",
        "Open: figures 2 and 4 of Salle et al. (2024), which names no checkpoints and has "
        "sentences of its own: how far the two similarities of all layers agree (Spearman ρ of the "
        "upper triangles), and the weighted Kendall τ of the profiles of the two layers that it "
        "finds most and least alike. Filled: the same here; missing where a layer is not shown. "
        f"{shown.basis}",
        table,
        table.assign(quantity=table["quantity"].map(called)),
    )
