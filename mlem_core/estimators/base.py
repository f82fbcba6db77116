"""What all estimators share: fits of the folds, held-out scores, and the metric model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.stimuli import StimulusSet
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.patterns import PairIndex, feature_columns
from mlem_core.pairs.ranks import Score, score_patterns
from mlem_core.pairs.tables import PairTables
from mlem_core.pairs.terms import Columns


@dataclass(frozen=True)
class FoldFits:
    """Metric models of n_layers layers, one a fold, each tested on that fold's pairs.

    weights : (n_layers, n_folds, n_columns), see `mlem_core.pairs.terms.Columns`
    alpha, rho, rho_a, ceiling : (n_layers, n_folds); ρ, ρ_a and the ceiling are held-out; α is NaN
        where the estimator has none
    """

    weights: FloatArray
    alpha: FloatArray
    rho: FloatArray
    rho_a: FloatArray
    ceiling: FloatArray


def held_out_scores(tables: PairTables, weights: FloatArray, fold: int, series: int = 1) -> Score:
    """ρ and ρ_a of weights on the pairs inside a fold.

    Parameters
    ----------
    weights : (n_layers, n_predictions, n_features)
    series : see `mlem_core.pairs.ranks.score_patterns`

    Returns
    -------
    Score of arrays (n_layers, n_predictions)
    """
    inside = tables.inside(fold)
    rho, rho_a = np.empty(weights.shape[:2]), np.empty(weights.shape[:2])
    for layers, features in inside.by_support(weights):
        pairs, own = inside.only(layers, features), weights[layers][:, :, features]
        rho[layers], rho_a[layers] = score_patterns(
            own @ pairs.x.T, pairs.counts, pairs.rank_sums, pairs.rank_squares, series
        )
    return Score(rho, rho_a)


def ceiling(tables: PairTables, fold: int) -> FloatArray:
    """Highest ρ that any function of these features can have on the pairs inside a fold.

    The square root of the share of the ranks' variance that lies between patterns.

    Returns
    -------
    (n_layers,)
    """
    at = tables.held_out(fold)
    between = (tables.within_sums[:, at] ** 2 / tables.counts[at]).sum(axis=-1)
    total = tables.within_squares[:, fold]
    return np.sqrt(np.divide(between, total, out=np.zeros_like(between), where=total > 0))


def tested(tables: PairTables, weights: FloatArray, alpha: FloatArray | None = None) -> FoldFits:
    """Held-out scores of weights (n_layers, n_folds, n_columns), each fold's on its own pairs."""
    n_folds = tables.n_folds
    scores = [held_out_scores(tables, weights[:, k, None], k) for k in range(n_folds)]
    return FoldFits(
        weights=weights,
        alpha=np.full(weights.shape[:2], np.nan) if alpha is None else alpha,
        rho=np.concatenate([score.rho for score in scores], axis=1),
        rho_a=np.concatenate([score.rho_a for score in scores], axis=1),
        ceiling=np.stack([ceiling(tables, k) for k in range(n_folds)], axis=1),
    )


class MetricModel(BaseEstimator):
    """What the estimators share: D² of two stimuli is predicted as Δᵀ W Δ and a constant.

    A subclass has the parameters `distance`, `missing` and `interactions`, and `fit` sets
    `weights_` and `intercept_`.
    """

    distance: str
    missing: str
    interactions: bool
    weights_: FloatArray
    intercept_: float

    def _begin(self, X: StimulusSet | pd.DataFrame) -> None:
        columns = feature_columns(X)
        self.spans_ = {c.name: c.span for c in columns}
        self.feature_names_in_ = np.array([c.name for c in columns], dtype=object)
        self.n_features_in_ = len(columns)
        self.column_names_ = self._columns.names

    @property
    def _columns(self) -> Columns:
        return Columns(tuple(self.feature_names_in_), self.interactions)

    @property
    def W_(self) -> FloatArray:
        """(n_features, n_features) the metric, symmetric."""
        check_is_fitted(self, "weights_")
        return self._columns.matrix(self.weights_)

    def _tables(
        self,
        stimuli: StimulusSet | pd.DataFrame,
        representations: NDArray[np.floating],
        folds: IntArray | None = None,
        train_ranks: bool = False,
    ) -> PairTables:
        columns = feature_columns(stimuli, self.spans_)
        if folds is None:
            folds = np.zeros(len(stimuli), dtype=np.int64)
        index = PairIndex.build(columns, folds, self.missing)
        return pair_tables(
            index,
            [lambda: np.asarray(representations)],
            distance=self.distance,
            names=["y"],
            train_ranks=train_ranks,
        ).with_interactions(self.interactions)

    def predict(self, X: StimulusSet | pd.DataFrame) -> FloatArray:
        """Predicted squared distance of every pair, up to the scale of the fitted target.

        Returns
        -------
        (n_pairs,) in the order (0,1), (0,2), ..., (1,2), ...
        """
        check_is_fitted(self, "weights_")
        index = PairIndex.build(
            feature_columns(X, self.spans_), np.zeros(len(X), dtype=np.int64), self.missing
        )
        terms = self._columns.values(index.patterns)
        predicted: FloatArray = terms @ self.weights_ + self.intercept_
        return predicted[index.pattern_cell]

    def score(self, X: StimulusSet | pd.DataFrame, y: NDArray[np.floating]) -> float:
        """Spearman ρ between predicted and neural distances over all pairs of these stimuli."""
        check_is_fitted(self, "weights_")
        tables = self._tables(X, y)
        return float(held_out_scores(tables, self.weights_[None, None], 0).rho[0, 0])
