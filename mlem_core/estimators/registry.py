"""The estimators by what a user calls them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mlem_core.estimators.base import FoldFits
from mlem_core.estimators.ridge import cross_validate_ridge
from mlem_core.estimators.spearman import cross_validate_spearman
from mlem_core.pairs.tables import PairTables

# Cross-validated fits by what a user calls them.
ESTIMATORS: dict[str, Callable[[PairTables], FoldFits]] = {
    "ridge": cross_validate_ridge,
    "ridge-rank": partial(cross_validate_ridge, target="rank"),
    "spearman": cross_validate_spearman,
    "frrsa": partial(cross_validate_spearman, constraint="none"),
}
