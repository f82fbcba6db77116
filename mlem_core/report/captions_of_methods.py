"""Captions of the figures that put other methods, and published numbers, beside the results."""

from __future__ import annotations

from mlem_core.analysis.in_words import FOLDS


def method_scores(basis: str) -> str:
    """Every method on the same layers and folds."""
    return (
        "Spearman ρ of predicted and neural distances on held-out stimuli by method: mean over "
        f"folds, bands are {FOLDS}. MLEM, Spearman maximises ρ_a with weights of at least 0 (with "
        "interactions: a positive definite matrix), FR-RSA with any; random forest: Spearman ρ of "
        "the distances of its predicted representations; single units: a metric model fitted to "
        "each unit alone, mean over them. Dotted: the ceiling. "
        f"{basis}"
    )


def method_agreement(basis: str) -> str:
    """MLEM and FR-RSA."""
    return (
        "MLEM (estimator spearman) and FR-RSA on each layer. Left: Frobenius distance of their "
        "matrices of weights, each of norm 1. Right: weighted Kendall τ of their importance "
        f"profiles. Mean over folds, bands are {FOLDS}. "
        f"{basis}"
    )


def noise_agreement(layer: str, basis: str) -> str:
    """MLEM and FR-RSA on a layer with noise."""
    return (
        f"MLEM (estimator spearman) and FR-RSA on {layer} with Gaussian noise added to each unit, "
        "in standard deviations of the unit. Left: Frobenius distance of their matrices of "
        "weights, each of norm 1. Right: weighted Kendall τ of their importance profiles. Mean "
        f"over folds, bands are {FOLDS}. "
        f"{basis}"
    )


def unit_scores(basis: str) -> str:
    """Single units beside the whole layer."""
    return (
        "Held-out ρ of a metric model fitted to each unit of a layer alone (mean over folds): the "
        "shape is the distribution over units, the line in it their median, the dot the best one. "
        "Dashed: the metric model of the whole layer. Where that is far above, the features are "
        "in patterns over units, not in single ones. "
        f"{basis}"
    )


def published(basis: str) -> str:
    """The numbers of the first paper beside ours."""
    return (
        "Open: figures 2 and 4 of Salle et al. (2024), which names no checkpoints and has "
        "sentences of its own: how far the two similarities of all layers agree (Spearman ρ of the "
        "upper triangles), and the weighted Kendall τ of the profiles of the two layers that it "
        "finds most and least alike. Filled: the same here; missing where a layer is not shown. "
        f"{basis}"
    )
