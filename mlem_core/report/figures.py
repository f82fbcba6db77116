"""Every figure of an analysis, as its capsule holds them."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from mlem_core import figures
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import stimulus_map
from mlem_core.analysis.results import Results
from mlem_core.base.errors import InputError
from mlem_core.base.typing import Layer, layer_name
from mlem_core.storage.store import Store

# A figure, its title, and how it was computed.
Drawn = tuple[go.Figure, str, str]


def all_figures(
    analysis: Analysis,
    results: Results,
    pair: tuple[Layer, Layer] | None = None,
    store: Store | None = None,
) -> dict[str, Drawn]:
    """Figures by name: profiles, similarity, maps, two layers compared, the stimuli's features.

    Parameters
    ----------
    pair : the two layers that are compared; by default the most alike (RSA) of two models, or of
        one where there is no other
    store : where representations may be; without them there are no maps of the stimuli
    """
    everything = [feature.name for feature in analysis.stimuli.features]
    shown = [name for name in everything if name in results.feature_correlations]
    on = f"{results.n_stimuli:,} stimuli, {results.n_pairs:,} pairs, {results.n_folds} folds"
    terms = figures.with_interactions(results.importance, everything)
    importance = results.importance[results.importance["feature"].isin(terms)]
    drawn: dict[str, Drawn] = {
        "profiles": (
            figures.profiles(importance, results.scores, everything),
            "Importance of each feature over the layers",
            "Importance: drop of the held-out ρ when a feature is permuted; means over folds, "
            f"bands ± 1 standard deviation. Dashed: held-out ρ; dotted: its ceiling. {on}.",
        ),
        "feature_correlations": (
            figures.feature_correlations(results.feature_correlations),
            "Correlations of the feature distances",
            f"Pearson correlations over all pairs of stimuli. {on}.",
        ),
        "feature_counts": (
            figures.feature_counts(
                analysis.stimuli.table,
                [(f.name, f.kind) for f in analysis.stimuli.features if f.name in shown],
                everything,
            ),
            "Values of the features",
            f"How many of {results.n_stimuli:,} stimuli have each value.",
        ),
    }
    if len(results.similarity_rsa) < 2:
        return drawn
    drawn["similarity"] = (
        figures.similarity_matrices(results.similarity_profiles, results.similarity_rsa),
        "Similarity of every two layers",
        "Weighted Kendall τ of the importance profiles beside Spearman's ρ of the neural distances "
        f"(RSA); the two agree with ρ = {results.agreement:.2f}. {on}.",
    )
    drawn["layer_maps"] = (
        figures.layer_maps(results.layer_map, results.importance),
        "Maps of the layers",
        f"Metric multidimensional scaling of 1 − similarity. {on}.",
    )
    a, b = pair or _most_alike(results)
    names = [layer_name(layer) for layer in (a, b)]
    drawn["compare"] = (
        figures.importance_scatter(
            importance,
            a,
            b,
            everything,
            float(results.similarity_profiles.loc[names[0], names[1]]),
            float(results.similarity_rsa.loc[names[0], names[1]]),
        ),
        f"{names[0]} and {names[1]}",
        f"Importance of each feature in the two layers, means over folds. {on}.",
    )
    return {**drawn, **_stimulus_maps(analysis, results, (a, b), shown, store)}


def _most_alike(results: Results) -> tuple[Layer, Layer]:
    rsa = results.similarity_rsa.to_numpy(dtype=np.float64).copy()
    models = np.array([model for model, _ in results.layers], dtype=object)
    rsa[np.tril_indices(len(rsa))] = -np.inf
    if len(set(models)) > 1:
        rsa[models[:, None] == models[None, :]] = -np.inf
    a, b = np.unravel_index(int(rsa.argmax()), rsa.shape)
    return results.layers[int(a)], results.layers[int(b)]


def _stimulus_maps(
    analysis: Analysis,
    results: Results,
    pair: tuple[Layer, Layer],
    shown: list[str],
    store: Store | None,
) -> dict[str, Drawn]:
    """The stimuli of each of the two layers, coloured by the feature that matters most there."""
    if store is None:
        return {}
    kinds = {feature.name: feature.kind for feature in analysis.stimuli.features}
    drawn = {}
    for place, (model, layer) in zip("ab", pair, strict=True):
        try:
            points = stimulus_map(analysis, model, layer, store)
        except InputError:
            continue  # the representations are no longer there
        own = results.importance[
            (results.importance["model"] == model) & (results.importance["layer"] == layer)
        ]
        own = own[own["feature"].isin(shown)]
        color = str(own.groupby("feature")["importance"].mean().idxmax())
        table = analysis.stimuli.table.iloc[points["stimulus"]].reset_index(drop=True)
        points = points.assign(**{"label": table["sentence"], color: table[color]})
        title = f"{model} layer {layer}"
        drawn[f"stimulus_map_{place}"] = (
            figures.stimulus_map(points, color, kinds[color], title),
            title,
            f"Metric multidimensional scaling of the neural distances of {len(points):,} stimuli, "
            f"coloured by {color}.",
        )
    return drawn
