"""What a figure is called, and what a screen says below it; `captions` has what is printed."""

from __future__ import annotations

# By the figure's name in `mlem_core.report.figures`, as the two below.
TITLES = {
    "two_layers": "Figure 4: scatter and maps of two layers",
    "why": "Why two layers are alike",
    "compare": "Importances of two layers",
    "stimulus_map": "Map of the stimuli",
    "map_panels": "The stimuli in the layers of a model",
    "similarity": "Similarity of every two layers",
    "similar_in": "Alike in the features, in the rest, or by transfer",
    "profiles": "Importance over the layers",
    "layer_maps": "Maps of the layers",
    "published": "Beside the first paper",
    "why_layers": "What makes every two layers alike",
    "why_tau": "Why two profiles are alike",
    "why_score": "What a layer's score is made of",
    "importance": "Importance where features correlate",
    "methods": "Prediction accuracy by method",
    "method_agreement": "MLEM and FR-RSA, layer by layer",
    "noise_agreement": "MLEM and FR-RSA under noise",
    "unit_scores": "Single units and the whole layer",
    "baseline": "The layers by another method",
    "group_profiles": "Mean profiles of the groups",
    "group_similarity": "Similarity within and between groups",
    "universality": "Universality of the terms",
    "trajectories": "Importance over training",
    "audit": "Audit of every layer",
    "multiverse": "A claim in every analysis variant",
    "feature_correlations": "Correlations of the features",
    "feature_counts": "Values of the features",
    "values": "Distances of the values",
    "values_map": "Map of the values",
}
# What a screen says below a figure, by the figure's name in `mlem_core.report.figures`.
LINES = {
    "profiles": "What is lost of the prediction accuracy (held-out ρ) when a feature is permuted, "
    "layer by layer.",
    "similarity": "How alike every two layers are, by their features and by their distances alone. "
    "Click a cell to choose its two layers.",
    "similar_in": "What the two matrices above mix, apart. Click a cell to choose its two layers.",
    "layer_maps": "Layers that are alike lie close together. Click two of them to compare them.",
    "published": "What the first paper found in these models, and what is found here.",
    "two_layers": "Two layers: which features matter in each, and how each lays out the stimuli.",
    "compare": "Which features matter in the two layers; on the diagonal a feature matters as much "
    "in both.",
    "stimulus_map": "Stimuli that lie close together are represented alike; where stress is poor, "
    "read groups of them, not single ones.",
    "map_panels": "How the layers of a model lay out the stimuli, from the first to the last.",
    "why": "What each feature adds to the similarity of the two layers, and what no feature "
    "explains.",
    "why_tau": "What each feature adds to the agreement of the two profiles.",
    "why_score": "What each feature adds to the prediction accuracy in this layer.",
    "why_layers": "What each feature adds to the similarity of every two layers: orange makes them "
    "alike, blue sets them apart.",
    "importance_conditional": "The same question with the other features held fixed.",
    "importance_left_out": "What is lost when the model has to do without the feature.",
    "importance_group": "What is lost when these features are permuted together.",
    "methods": "How well each method predicts the distances of unseen stimuli; no function of "
    "these features gets above the ceiling.",
    "method_agreement": "Whether both fit the same weights, and whether they order the features "
    "alike.",
    "noise_agreement": "Whether both still fit the same weights, and order the features alike, "
    "when a layer is noisy.",
    "unit_scores": "How well single units are predicted, and how well the whole layer: the farther "
    "apart, the more the features are in patterns over units.",
    "baseline": "The same layers by another method.",
    "group_profiles": "The mean importance profile of each group, and the spread over its members.",
    "group_similarity": "How alike members of one group are (on the diagonal), and models of two "
    "groups.",
    "universality": "How much of what members of a group share groups share too: 1 is as much.",
    "trajectories": "Importance of each feature, and the score, as training goes on.",
    "audit": "What an artefact could have made of each layer, from 0 (nothing) to 1; a dot: a "
    "conclusion changes.",
    "multiverse": "Whether the claim holds in every analysis variant; it does above 0.",
    "feature_correlations": "Where two features vary together, their importances cannot be told "
    "apart well.",
    "feature_counts": "How many stimuli have each value.",
    "values": "How far apart every two values of the feature are.",
    "values_map": "Values that lie close together are represented alike.",
    "values_layers": "How far apart the values are, layer by layer.",
    "values_compared": "How far apart every two values are in the two layers.",
}


def line(figure: str) -> str:
    """What a screen says below a figure; empty where that is not known.

    Parameters
    ----------
    figure : its name, also with what follows it, "why_score_a" as "why_score"
    """
    return _of(figure, LINES)


def profiles(held_out: str) -> str:
    """What a screen says below the profiles of an analysis.

    Parameters
    ----------
    held_out : what it tests, see `mlem_core.pairs.units.Units.held_out`
    """
    return (
        f"What is lost of the prediction accuracy (ρ on {held_out}) when a feature is permuted, "
        "layer by layer."
    )


def title(figure: str) -> str:
    """What kind of figure it is, in a few words; empty where that is not known."""
    return _of(figure, TITLES)


def _of(figure: str, texts: dict[str, str]) -> str:
    name = figure.replace("-", "_")
    begin = (text for known, text in reversed(texts.items()) if name.startswith(known))
    return texts.get(name) or next(begin, "")
