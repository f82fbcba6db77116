"""Metric models with scikit-learn's API: what all of them share, and ridge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.text import some
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.registry import Solver
from mlem_core.estimators.ridge_solver import ALPHAS, BETAS, RidgeSolver
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.pairs.column_builder import metric_matrix
from mlem_core.pairs.columns import MISSING, FeatureColumn, feature_columns, resolved_columns
from mlem_core.pairs.distances import (
    PRECOMPUTED,
    SQUARED,
    distance_named,
    metrics,
    squared_distances,
)
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.statistics import ComparedPairs, PairStatistics, check_rows, pair_statistics
from mlem_core.stimuli.folds import FEWEST_TESTED, group_folds
from mlem_core.stimuli.neural_rows import index_order, neural_rows
from mlem_core.stimuli.stimulus_set import StimulusSet

_KINDS = {
    "ordered": "numeric",
    "nominal": "categorical",
    "vector": "given by vectors",
    "rdm": "given by its distances",
}


class _Coding(NamedTuple):
    """The parameters of a fit by which pairs become numbers; those set later change nothing."""

    distance: str
    missing: str
    interactions: bool

    def statistics(
        self, columns: Sequence[FeatureColumn], y: NDArray[Any], folds: IntArray | None = None
    ) -> PairStatistics:
        """Statistics of the pairs of one layer y, (n_stimuli, n_units) or distances."""
        if folds is None:
            folds = np.zeros(len(y), dtype=np.int64)
        pairs = ComparedPairs.from_features(
            columns, folds, self.missing, interactions=self.interactions
        )
        return pair_statistics(pairs, [lambda: y], distance=self.distance, names=["y"])


class TableModel(Solver, BaseEstimator):
    """Predicts the squared distance of two stimuli as Δᵀ W Δ + b, Δ their feature distances.

    A subclass says in `solve` how it is fitted on the statistics of pairs: `fit` does so on all
    pairs of one layer, `cross_validate` for all layers at once. Its `__init__` stores at least
    these parameters; `mlem_core.estimators.registry` makes it known by name. Stimuli to predict or
    score need the features of the fit, found by name, each of the same kind; other columns are
    refused, as scikit-learn does.

    Parameters
    ----------
    interactions : whether products of two feature distances are weighed too
    distance : neural distance, a name in `mlem_core.pairs.distances.DISTANCES`, without those over
        repetitions
    missing : "ignore" or "level", see `mlem_core.pairs.pair_columns.PairColumns.from_features`
    values : features that are resolved by value, see `mlem_core.pairs.column_builder`; only where a
        subclass takes it

    Attributes
    ----------
    coef_ : (n_columns,) weights of the terms that `get_feature_names_out` names: W_ff of Δ_f² and,
        with interactions, W_fg of 2 Δ_f Δ_g; for a resolved feature those of its values
    W_ : (n_features, n_features) the same as a symmetric matrix
    intercept_ : float
    feature_names_in_ : (n_features,)
    value_names_ : names of the values of the features that are resolved
    kinds_ : kind of each feature
    spans_ : lowest and highest value of each feature, which scale ordered features
    """

    coef_: FloatArray
    intercept_: float
    values: Sequence[str] = ()

    def __init__(
        self, *, interactions: bool = False, distance: str = "euclidean", missing: str = "ignore"
    ) -> None:
        self.interactions = interactions
        self.distance = distance
        self.missing = missing

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        tags.target_tags.required = tags.target_tags.multi_output = True
        tags.target_tags.single_output = False  # y has a column a unit
        return tags

    def inner_folds(self, columns: Sequence[FeatureColumn], groups: IntArray) -> IntArray | None:
        """(n_stimuli,) the folds with which `fit` chooses something; None where it does not."""
        return None

    def fit(
        self, X: StimulusSet | pd.DataFrame, y: NDArray[np.floating], groups: IntArray | None = None
    ) -> Self:
        """Fit the metric on all pairs of the stimuli.

        Parameters
        ----------
        X : a StimulusSet, or a DataFrame (n_stimuli, n_features) whose numeric columns are ordered
        y : (n_stimuli, n_units) representations, or (n_stimuli, n_stimuli) precomputed distances;
            the rows of a DataFrame are matched with the index of X
        groups : (n_stimuli,) groups that folds keep together; by default those of the StimulusSet,
            else every stimulus is its own. Of no effect where nothing is cross-validated

        Raises InputError: a parameter that cannot be used; X without names of its columns, or with
        a column `sentence`; y that is not two-dimensional, finite and of one row a stimulus, or
        has an index of other names; groups that are not one a stimulus.
        """
        self.check()
        if not isinstance(self.interactions, bool | np.bool_):
            raise InputError(f"interactions is {self.interactions!r}; expected True or False.")
        check_choice("policy for missing values", self.missing, MISSING)
        columns = resolved_columns(X, self.values)
        if not columns:
            raise InputError("found no feature to fit; at least one is needed.")
        squared = [name + SQUARED for name in metrics() if distance_named(name).may_be_squared]
        check_choice("distance", self.distance, (*metrics(), PRECOMPUTED, *squared))
        rows = _neural(y, X)
        folds = self.inner_folds(columns, stimulus_groups(groups, X))
        coding = _Coding(self.distance, self.missing, self.interactions)
        statistics = coding.statistics(columns, rows, folds)
        training_pairs = None
        if self.needs_pairs:
            training_pairs = TrainingPairs.from_columns(
                statistics.columns,
                statistics.moments.folds,
                1,
                lambda _: squared_distances(rows, self.distance, layer="y"),
            )
        solution = self.solve(statistics, [None], training_pairs)
        # Nothing is kept before, so that a fit that fails changes nothing.
        self.spans_ = {c.name: c.span for c in columns}
        self.kinds_ = {c.name: c.kind for c in columns}
        self.value_names_ = {c.name: c.names for c in columns if c.names}
        self.feature_names_in_ = np.array([c.name for c in columns], dtype=object)
        self.n_features_in_ = len(columns)
        self._names, self._coding = statistics.columns.names, coding
        self.coef_ = solution.coef[0, 0]
        self.intercept_ = 0.0 if solution.intercept is None else float(solution.intercept[0, 0])
        if solution.alpha is not None:
            self.alpha_ = float(solution.alpha[0, 0])
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """(n_columns,) names of the terms; `input_features` may only be those of the fit."""
        check_is_fitted(self)
        names = self.feature_names_in_.tolist()
        if input_features is not None and list(input_features) != names:
            raise InputError(
                f"input_features are {input_features!r}; expected those of fit, {names}."
            )
        return np.array(self._names, dtype=object)

    @property
    def W_(self) -> FloatArray:
        """(n_features, n_features) the metric, symmetric; InputError where values are resolved."""
        check_is_fitted(self)
        if self.value_names_:
            raise InputError(
                "there is no matrix W where features are resolved by value; read the weights by "
                "their names."
            )
        return metric_matrix(self.coef_, len(self.feature_names_in_))

    def predict(self, X: StimulusSet | pd.DataFrame) -> FloatArray:
        """Predicted squared distance of every pair, up to the scale of the fitted target.

        Features are matched by name, in any order. A category that was not fitted is a category
        like the others, unless its feature is resolved by value.

        Returns (n_pairs,) in the order (0,1), (0,2), ..., (1,2), ...

        Raises InputError: X is no table with names; features that are missing or were not fitted,
        or are of another kind than in the fit; a value without a weight.
        """
        columns = PairColumns.from_features(
            self._fitted(X), self._coding.missing, self._coding.interactions
        )
        first, second = np.triu_indices(len(X), 1)
        return columns.predictions(self.coef_[None], first, second)[0] + self.intercept_

    def score(self, X: StimulusSet | pd.DataFrame, y: NDArray[np.floating]) -> float:
        """Spearman ρ between predicted and neural distances over all pairs of these stimuli.

        X as in `predict`, y as in `fit`. Raises InputError: as both.
        """
        columns = self._fitted(X)
        statistics = self._coding.statistics(columns, _neural(y, X))
        return float(statistics.tests.folds[0].scores(self.coef_[None, None]).rho[0, 0])

    def _fitted(self, X: StimulusSet | pd.DataFrame) -> list[FeatureColumn]:
        """The features of other stimuli that were fitted, in the order of the fit.

        Raises InputError: a feature that is missing, that the model does not know, or that is of
        another kind: codes in the place of categories would be numeric.
        """
        check_is_fitted(self)
        columns = feature_columns(X, self.spans_, self.value_names_)
        known, kinds = {column.name: column for column in columns}, self.kinds_
        lacks = [name for name in kinds if name not in known]
        extra = [name for name in known if name not in kinds]
        if lacks or extra:
            differences = [f"lack {some(lacks)}"] * bool(lacks)
            differences += [f"add {some(extra)}"] * bool(extra)
            raise InputError(
                f"the features {' and '.join(differences)}; expected those that the model was "
                f"fitted with, in any order: {some(list(kinds))}."
            )
        for name, kind in kinds.items():
            if (known_kind := known[name].kind) != kind:
                raise InputError(
                    f"the feature {name!r} is {_KINDS[known_kind]} here and was {_KINDS[kind]} "
                    "when the model was fitted; give it as it was then: numbers as numbers, "
                    "categories as text (not as codes)."
                )
        return [known[name] for name in kinds]


def _neural(y: Any, X: StimulusSet | pd.DataFrame) -> NDArray[Any]:
    """Neural data (n_stimuli, n_units) in the order of the stimuli, at least 3 of these."""
    rows = neural_rows(y, X)
    check_rows(rows, len(X), "y")
    if len(X) < FEWEST_TESTED:
        raise InputError(
            f"found {len(X)} stimuli; at least {FEWEST_TESTED} are needed, to form 3 pairs."
        )
    return rows


def stimulus_groups(groups: Any, X: StimulusSet | pd.DataFrame) -> IntArray:
    """The group of each stimulus as a number: (n_stimuli,).

    Without any these are those of a `StimulusSet`; else every stimulus is its own. Raises
    InputError for groups that are not one a stimulus.
    """
    if groups is None:
        return X.groups if isinstance(X, StimulusSet) else np.arange(len(X))
    if isinstance(groups, pd.Series):
        groups = groups.iloc[index_order(groups.index, X, "groups")]
    try:
        labels = np.asarray(groups)
        if labels.shape == (len(X),) and not pd.isna(labels).any():
            return np.unique(labels, return_inverse=True)[1].astype(np.int64)
    except (TypeError, ValueError):
        pass
    raise InputError(
        f"the groups are {groups!r:.60}; expected {len(X)} numbers or names without gaps, the "
        "group of each stimulus."
    )


class RidgeMLEM(RidgeSolver, TableModel):
    """Metric-learning encoding model fitted by non-negative ridge regression.

    Predicts the squared neural distance of two stimuli, min-max scaled over the fitted pairs, as
    Σ_f w_f Δ_f² + b, where Δ_f is their distance on feature f and w_f >= 0; with interactions also
    2 w_fg Δ_f Δ_g of every two features, with w_fg >= 0. A feature that is resolved by value has
    the terms of `mlem_core.pairs.column_builder` in the place of Δ_f², shrunk towards its Δ_f² by
    a penalty of strength β (`mlem_core.estimators.normal_equations.penalty_matrices`).

    Parameters
    ----------
    alphas : ridge strengths of at least 0 to choose from by cross-validation over the groups (mean
        ρ); a single one is used as it is
    betas : the same where features are resolved by value: chosen by the mean correlation of the
        predictions with the ranks of the distances, which needs no sorting. Beside several of them
        features may be coded as same or different, with one of the `alphas`, which mean ρ decides
    target : "distance", or "rank": the rank of the distance among the fitted pairs, scaled to
        [0, 1]
    interactions, distance, missing, values : as in `mlem_core.estimators.base.TableModel`
    cv : how `fit` chooses α: a number of folds, or a scikit-learn splitter whose test sets have
        each stimulus once. `cross_validate` uses the folds of the tables instead
    random_state : of the folds where `cv` is a number

    Attributes are those of `mlem_core.estimators.base.TableModel` and alpha_ (where values are
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
