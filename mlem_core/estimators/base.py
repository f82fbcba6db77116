"""What all estimators share: scikit-learn's API, and the cross-validation of the pipeline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.stimuli import StimulusSet
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import chosen_to_resolve, feature_columns
from mlem_core.pairs.crossfit import fold_ceilings
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import Score, score_patterns
from mlem_core.pairs.tables import PairTables
from mlem_core.pairs.terms import Columns


@dataclass(frozen=True)
class FoldFits:
    """Metric models of n_layers layers, one a fold, each tested on that fold's pairs.

    weights : (n_layers, n_folds, n_columns), see `mlem_core.pairs.terms.Columns`
    alpha, rho, rho_a, ceiling : (n_layers, n_folds); ρ, ρ_a and the cross-fitted feature ceiling
        (see `mlem_core.pairs.crossfit.fold_ceilings`) are held-out; α is NaN where the estimator
        has none
    """

    weights: FloatArray
    alpha: FloatArray
    rho: FloatArray
    rho_a: FloatArray
    ceiling: FloatArray


def held_out_scores(tables: PairTables, weights: FloatArray, fold: int, series: int = 1) -> Score:
    """ρ and ρ_a (n_layers, n_predictions) of weights on the pairs inside a fold.

    Weights are (n_layers, n_predictions, n_columns); `series` as in
    `mlem_core.pairs.ranks.score_patterns`.
    """
    inside = tables.inside(fold)
    rho, rho_a = np.empty(weights.shape[:2]), np.empty(weights.shape[:2])
    for layers, parts in inside.by_support(weights):
        pairs, used = inside.only(layers, parts), weights[layers][:, :, inside.columns_of(parts)]
        rho[layers], rho_a[layers] = score_patterns(
            used @ pairs.x.T, pairs.counts, pairs.rank_sums, pairs.rank_squares, series
        )
    return Score(rho, rho_a)


def tested(tables: PairTables, weights: FloatArray, alpha: FloatArray | None = None) -> FoldFits:
    """Held-out scores of weights (n_layers, n_folds, n_columns), each fold's on its own pairs."""
    n_folds = tables.n_folds
    scores = [held_out_scores(tables, weights[:, k, None], k) for k in range(n_folds)]
    return FoldFits(
        weights=weights,
        alpha=np.full(weights.shape[:2], np.nan) if alpha is None else alpha,
        rho=np.concatenate([score.rho for score in scores], axis=1),
        rho_a=np.concatenate([score.rho_a for score in scores], axis=1),
        ceiling=fold_ceilings(tables),
    )


class MetricModel(BaseEstimator):
    """Predicts the squared distance of two stimuli as Δᵀ W Δ + b, Δ their feature distances.

    A subclass's `fit` calls `_begin` and sets `coef_` and `intercept_`; its `__init__` stores at
    least these parameters.

    Parameters
    ----------
    interactions : whether products of two feature distances are weighed too
    distance : neural distance, a name in `mlem_core.pairs.distances.DISTANCES`
    missing : "ignore" or "level", see `mlem_core.pairs.patterns.PairIndex`
    values : features that are resolved by value, see `mlem_core.pairs.terms`; only where a subclass
        takes it

    Attributes
    ----------
    coef_ : (n_columns,) weights of the terms that `get_feature_names_out` names: W_ff of Δ_f² and,
        with interactions, W_fg of 2 Δ_f Δ_g; for a resolved feature those of its values
    W_ : (n_features, n_features) the same as a symmetric matrix
    intercept_ : float
    feature_names_in_ : (n_features,)
    value_names_ : names of the values of the features that are resolved
    spans_ : lowest and highest value of each feature, which scale ordered features
    """

    coef_: FloatArray
    intercept_: float
    values: Sequence[str] = ()

    def __init__(
        self,
        *,
        interactions: bool = False,
        distance: str = "euclidean",
        missing: str = "ignore",
    ) -> None:
        self.interactions = interactions
        self.distance = distance
        self.missing = missing

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """(n_columns,) names of the terms; `input_features` is there for scikit-learn only."""
        check_is_fitted(self)
        return np.array(self._columns.names, dtype=object)

    @property
    def W_(self) -> FloatArray:
        """(n_features, n_features) the metric, symmetric; InputError where values are resolved."""
        check_is_fitted(self)
        return self._columns.matrix(self.coef_)

    def predict(self, X: StimulusSet | pd.DataFrame) -> FloatArray:
        """Predicted squared distance of every pair, up to the scale of the fitted target.

        Returns (n_pairs,) in the order (0,1), (0,2), ..., (1,2), ...
        """
        check_is_fitted(self)
        columns = feature_columns(X, self.spans_, self.value_names_)
        index = PairIndex.build(columns, np.zeros(len(X), dtype=np.int64), self.missing)
        terms = self._columns.values(index.patterns, index.codes)
        predicted: FloatArray = terms @ self.coef_ + self.intercept_
        return predicted[index.pair_pattern]

    def score(self, X: StimulusSet | pd.DataFrame, y: NDArray[np.floating]) -> float:
        """Spearman ρ between predicted and neural distances over all pairs of these stimuli."""
        check_is_fitted(self)
        tables = self._tables(X, y)
        return float(held_out_scores(tables, self.coef_[None, None], 0).rho[0, 0])

    def _begin(self, X: StimulusSet | pd.DataFrame) -> None:
        columns = feature_columns(X)
        columns = feature_columns(X, resolved=chosen_to_resolve(columns, self.values))
        self.spans_ = {c.name: c.span for c in columns}
        self.value_names_ = {c.name: c.names for c in columns if c.names}
        self.feature_names_in_ = np.array([c.name for c in columns], dtype=object)
        self.n_features_in_ = len(columns)

    @property
    def _columns(self) -> Columns:
        names = tuple(str(name) for name in self.feature_names_in_)
        resolved = tuple(self.value_names_.get(name, ()) for name in names)
        return Columns(names, self.interactions, resolved)

    def _tables(
        self,
        X: StimulusSet | pd.DataFrame,
        y: NDArray[np.floating],
        folds: IntArray | None = None,
        train_ranks: bool = False,
    ) -> PairTables:
        if folds is None:
            folds = np.zeros(len(X), dtype=np.int64)
        columns = feature_columns(X, self.spans_, self.value_names_)
        index = PairIndex.build(columns, folds, self.missing)
        return pair_tables(
            index,
            [lambda: np.asarray(y)],
            distance=self.distance,
            names=["y"],
            train_ranks=train_ranks,
        ).with_interactions(self.interactions)


@dataclass(frozen=True)
class Solution:
    """Metrics of n_layers layers, one for each of n_sets training sets.

    coef : (n_layers, n_sets, n_columns)
    intercept : (n_layers, n_sets), or None where the model has none
    alpha : (n_layers, n_sets) the penalty that was chosen, or None where there is none
    """

    coef: FloatArray
    intercept: FloatArray | None = None
    alpha: FloatArray | None = None


class TableModel(MetricModel, ABC):
    """A metric model that is fitted on pair tables; a subclass says how in `solve`.

    `cross_validate` is what an analysis calls, for all of its layers at once; `fit` is the same
    solver on all pairs of one layer. `mlem_core.estimators.registry` makes a model known by name.
    """

    @property
    def needs_training_ranks(self) -> bool:
        """Whether `solve` uses the ranks among the training pairs of each fold."""
        return False

    def check(self) -> None:
        """Raise InputError for a parameter that cannot be used, before anything is computed."""

    @abstractmethod
    def solve(self, tables: PairTables, left_out: Sequence[int | None]) -> Solution:
        """Fit every layer on several training sets.

        Parameters
        ----------
        tables : they decide which terms are weighed; the parameters `interactions`, `distance` and
            `missing` have had their effect
        left_out : for each training set the fold whose stimuli are in none of its pairs; None for
            all pairs
        """

    def inner_folds(
        self, X: StimulusSet | pd.DataFrame, groups: IntArray | None
    ) -> IntArray | None:
        """(n_stimuli,) the folds with which `fit` chooses something; None where it does not."""
        return None

    def cross_validate(self, tables: PairTables) -> FoldFits:
        """Fit every layer once a fold, on the pairs that leave out the fold, and test it there.

        Raises InputError: a parameter that cannot be used; ranks among training pairs that the
        tables lack.
        """
        self.check()
        solution = self.solve(tables, range(tables.n_folds))
        return tested(tables, solution.coef, solution.alpha)

    def fit(
        self,
        X: StimulusSet | pd.DataFrame,
        y: NDArray[np.floating],
        groups: IntArray | None = None,
    ) -> Self:
        """Fit the metric on all pairs of the stimuli.

        Parameters
        ----------
        X : a StimulusSet, or a DataFrame (n_stimuli, n_features) whose numeric columns are ordered
        y : (n_stimuli, n_units) representations, or (n_stimuli, n_stimuli) precomputed distances
        groups : (n_stimuli,) groups that folds keep together; by default those of the StimulusSet,
            else every stimulus is its own. Of no effect where nothing is cross-validated

        Raises InputError: a parameter that cannot be used; a column `sentence` in a DataFrame.
        """
        self.check()
        self._begin(X)
        folds = self.inner_folds(X, groups)
        ranks = self.needs_training_ranks and folds is not None
        solution = self.solve(self._tables(X, y, folds, ranks), [None])
        self.coef_ = solution.coef[0, 0]
        self.intercept_ = 0.0 if solution.intercept is None else float(solution.intercept[0, 0])
        if solution.alpha is not None:
            self.alpha_ = float(solution.alpha[0, 0])
        return self
