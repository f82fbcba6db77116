"""Entries of the estimators that search for the highest rank correlation."""

from __future__ import annotations

from functools import partial

from mlem_core.estimators.registry import EstimatorSpec, register, unfitted

_ESTIMATORS = "mlem_core.extensions.rank_estimators.estimators"

for _spec in (
    EstimatorSpec(
        name="spearman",
        model=partial(unfitted, f"{_ESTIMATORS}:SpearmanMLEM"),
        label="spearman: the highest rank correlation, the aim stated in the second paper",
        caption="estimator spearman",
        sentence="maximising the rank correlation ρ_a with the neural distances over the training "
        "pairs",
        constrained=True,
        reference="jalouzot2024",
        slow=True,
        of_pairs=True,
    ),
    EstimatorSpec(
        name="frrsa",
        model=partial(unfitted, f"{_ESTIMATORS}:FRRSA"),
        label="FR-RSA: the same without constraints",
        caption="estimator frrsa",
        sentence="maximising the rank correlation ρ_a with the neural distances over the training "
        "pairs, the weights free (feature-reweighted RSA)",
        slow=True,
        of_pairs=True,
    ),
    EstimatorSpec(
        name="soft-rank",
        model=partial(unfitted, f"{_ESTIMATORS}:SoftRankMLEM"),
        label="soft-rank: the recipe of the second paper, which takes minutes a model",
        caption="estimator soft-rank",
        sentence="gradient ascent on the correlation of soft ranks of the predictions with the "
        "ranks of the neural distances, over batches of training pairs",
        constrained=True,
        reference="jalouzot2024",
        slow=True,
        of_pairs=True,
        needs="torchsort",
    ),
):
    register(_spec)
