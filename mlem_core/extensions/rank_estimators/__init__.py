"""Estimators that search for the highest rank correlation with the neural distances."""

from mlem_core.extending import Extension

_HERE = "mlem_core.extensions.rank_estimators"

EXTENSION = Extension(
    name="rank_estimators",
    title="Estimators of the highest rank correlation",
    sentence="Metrics of the highest rank correlation: spearman, FR-RSA without constraints, and "
    "soft-rank, the recipe of the second paper.",
    entries={"estimator": (f"{_HERE}.specs",)},
    exports={
        name: f"{_HERE}.estimators:{name}" for name in ("FRRSA", "SoftRankMLEM", "SpearmanMLEM")
    },
)
