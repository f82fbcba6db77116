"""Feature-reweighted RSA."""

from __future__ import annotations

from mlem_core.estimators.spearman import SpearmanMLEM


class FRRSA(SpearmanMLEM):
    """Feature-reweighted RSA, the baseline: the same model and fit without constraint on W.

    Weights of any sign; with interactions (FR-RSA-I) W is symmetric but need not be positive
    definite, so that predictions may be no distance. Parameters and attributes are those of
    `mlem_core.estimators.spearman.SpearmanMLEM`.

    Source: Jalouzot et al. 2024, section 2.4.
    """

    _constraint = "none"
