"""Captions of the figures that put other methods beside the metric model."""

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


def unit_scores(basis: str) -> str:
    """Single units beside the whole layer."""
    return (
        "Held-out ρ of a metric model fitted to each unit of a layer alone (mean over folds): the "
        "shape is the distribution over units, the line in it their median, the dot the best one. "
        "Dashed: the metric model of the whole layer. Where that is far above, the features are "
        "in patterns over units, not in single ones. "
        f"{basis}"
    )
