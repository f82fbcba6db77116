"""The metric as non-negative ridge regression of neural distances on feature distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlem_core.base.typing import IntArray
from mlem_core.data.folds import group_folds
from mlem_core.estimators.base import TableModel
from mlem_core.estimators.ridge_solver import ALPHAS as ALPHAS
from mlem_core.estimators.ridge_solver import BETAS as BETAS
from mlem_core.estimators.ridge_solver import RidgeSolver
from mlem_core.pairs.columns import FeatureColumn


class RidgeMLEM(RidgeSolver, TableModel):
    """Metric-learning encoding model fitted by non-negative ridge regression.

    Predicts the squared neural distance of two stimuli, min-max scaled over the fitted pairs, as
    Σ_f w_f Δ_f² + b, where Δ_f is their distance on feature f and w_f >= 0; with interactions also
    2 w_fg Δ_f Δ_g of every two features, with w_fg >= 0. A feature that is resolved by value has
    the terms of `mlem_core.pairs.terms` in the place of Δ_f², shrunk towards its Δ_f² by a penalty
    of strength β (`mlem_core.estimators.normal_equations.penalty_matrices`).

    Parameters
    ----------
    alphas : ridge strengths of at least 0 to choose from by cross-validation over the groups (mean
        ρ); a single one is used as it is
    betas : the same where features are resolved by value: chosen by the mean correlation of the
        predictions with the ranks of the distances, which needs no sorting. Beside several of them
        features may be coded as same or different, with one of the `alphas`, which mean ρ decides
    target : "distance", or "rank": the rank of the distance among the fitted pairs, scaled to
        [0, 1]
    interactions, distance, missing, values : as in `mlem_core.estimators.base.MetricModel`
    cv : how `fit` chooses α: a number of folds, or a scikit-learn splitter whose test sets have
        each stimulus once. `cross_validate` uses the folds of the tables instead
    random_state : of the folds where `cv` is a number

    Attributes are those of `mlem_core.estimators.base.MetricModel` and alpha_ (where values are
    resolved the β, `NOT_APART` if coded as same or different); coef_ >= 0.

    Source: Salle et al. 2024, appendix B; a metric on one-hot codes: Jalouzot et al. 2024.

    Examples
    --------
    >>> X = pd.DataFrame({"noun": [0, 0, 1, 1], "long": [0, 1, 0, 1]})
    >>> RidgeMLEM(alphas=[0.01]).fit(X, X.to_numpy() * [1.0, 2.0]).coef_.round(1)
    array([0.2, 1. ])
    """

    def __init__(
        self,
        alphas: Sequence[float] = ALPHAS,
        *,
        target: str = "distance",
        interactions: bool = False,
        values: Sequence[str] = (),
        betas: Sequence[float] = BETAS,
        distance: str = "euclidean",
        missing: str = "ignore",
        cv: Any = 5,
        random_state: Any = 0,
    ) -> None:
        self.alphas = alphas
        self.target = target
        self.interactions = interactions
        self.values = values
        self.betas = betas
        self.distance = distance
        self.missing = missing
        self.cv = cv
        self.random_state = random_state

    def inner_folds(self, columns: Sequence[FeatureColumn], groups: IntArray) -> IntArray | None:
        resolved = any(column.names for column in columns)
        if len(self.betas if resolved else self.alphas) == 1:
            return None
        return group_folds(groups, self.cv, self.random_state)
