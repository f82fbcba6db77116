"""What all estimators share: scikit-learn's API, and the cross-validation of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.solver import FoldFits as FoldFits
from mlem_core.estimators.solver import Solution as Solution
from mlem_core.estimators.solver import Solver
from mlem_core.estimators.solver import held_out_scores as held_out_scores
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import chosen_to_resolve, feature_columns
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.tables import PairTables
from mlem_core.pairs.terms import Columns


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


class TableModel(Solver, MetricModel):
    """A metric model that is fitted on pair tables; a subclass says how in `solve`.

    `fit` is the same solver on all pairs of one layer as `cross_validate` for all layers at once.
    `mlem_core.estimators.registry` makes a model known by name.
    """

    def inner_folds(
        self, X: StimulusSet | pd.DataFrame, groups: IntArray | None
    ) -> IntArray | None:
        """(n_stimuli,) the folds with which `fit` chooses something; None where it does not."""
        return None

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
