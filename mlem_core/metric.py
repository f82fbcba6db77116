"""Metric models: distances between representations as a weighted sum of feature distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from mlem_core.columns import Columns
from mlem_core.equations import moments, rank_moments, ridge_weights, training_blocks
from mlem_core.errors import InputError, unknown
from mlem_core.pairs import pair_tables
from mlem_core.parallel import side_by_side
from mlem_core.patterns import (
    FloatArray,
    IntArray,
    PairIndex,
    feature_columns,
)
from mlem_core.ranks import Score, score_patterns
from mlem_core.stimuli import StimulusSet
from mlem_core.tables import PairTables

TARGETS = ("distance", "rank")
# Salle et al. 2024, appendix B: "α ∈ 10^[-4, 4]".
ALPHAS: tuple[float, ...] = tuple(10.0**e for e in range(-4, 5))


@dataclass(frozen=True)
class FoldFits:
    """Metric models of n_layers layers, one a fold, each tested on that fold's pairs.

    weights : (n_layers, n_folds, n_columns), see `mlem_core.columns.Columns`
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
    series : see `mlem_core.ranks.score_patterns`

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


def cross_validate_ridge(
    tables: PairTables, alphas: Sequence[float] = ALPHAS, target: str = "distance"
) -> FoldFits:
    """Nested cross-validation of the non-negative ridge metric, for every layer at once.

    For each fold that is left out, α is the one with the highest mean ρ when each other fold in
    turn is left out too; the weights are then fitted on all stimuli outside the fold and scored on
    the pairs inside it. Of α that score the same the smallest is taken.

    With the target "rank" the ranks are those among the pairs that leave out the tested fold; the
    pairs that choose α have a part in them, the tested ones have none.

    Parameters
    ----------
    target : "distance", the squared neural distance, or "rank"

    Raises
    ------
    InputError
        Fewer than three folds; an unknown target; ranks that the tables do not have.

    Source: Salle et al. 2024, appendix B.
    """
    n_folds = tables.n_folds
    if n_folds < 3:
        raise InputError(
            f"found {n_folds} folds; nested cross-validation needs at least 3, since one is left "
            "out to test and one to choose α."
        )
    if target not in TARGETS:
        raise unknown("target", target, TARGETS)
    ranked = target == "rank"
    couples = [
        (k, j) for k in range(n_folds) for j in range(n_folds) if k < j or (ranked and k != j)
    ]
    blocks = training_blocks(n_folds, [*couples, *((k,) for k in range(n_folds))])
    equations = (
        rank_moments(tables, blocks, [*(k for k, _ in couples), *range(n_folds)])
        if ranked
        else moments(tables, blocks)
    )
    fitted = ridge_weights(equations, alphas)
    inner = np.zeros((n_folds, tables.n_layers, len(alphas)))

    def inner_scores(j: int) -> tuple[list[int], FloatArray]:
        # Every model that saw nothing of fold j, at once: they order its pairs nearly alike.
        others = [k for k in range(n_folds) if k != j]
        sets = [couples.index((k, j) if k < j or ranked else (j, k)) for k in others]
        weights = fitted[:, sets].reshape(tables.n_layers, -1, len(tables.columns))
        rho = held_out_scores(tables, weights, j, series=len(alphas)).rho
        return others, rho.reshape(tables.n_layers, len(others), -1).swapaxes(0, 1)

    for others, rho in side_by_side(inner_scores, range(n_folds)):
        inner[others] += rho
    inner /= n_folds - 1
    best = np.argmax(inner >= inner.max(axis=-1, keepdims=True) - 1e-12, axis=-1)
    layers = np.arange(tables.n_layers)
    weights = np.stack([fitted[layers, len(couples) + k, best[k]] for k in range(n_folds)], axis=1)
    return tested(tables, weights, np.asarray(alphas)[best.T])


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


def group_folds(groups: IntArray, n_folds: int, seed: int) -> IntArray:
    """Divide stimuli into folds so that no group is split.

    Parameters
    ----------
    groups : (n_stimuli,) group (sentence) of each stimulus

    Returns
    -------
    (n_stimuli,) the fold that tests each stimulus

    Raises
    ------
    InputError
        Fewer groups than folds, or a fold with fewer than 3 stimuli (and so fewer than 3 pairs).
    """
    from sklearn.model_selection import GroupKFold

    n_groups = len(np.unique(groups))
    if n_folds < 2 or n_groups < n_folds:
        raise InputError(
            f"found {n_folds} folds for {n_groups} sentences; the number of folds must be between "
            f"2 and the number of sentences."
        )
    folds = np.empty(len(groups), dtype=np.int64)
    splitter = GroupKFold(n_folds, shuffle=True, random_state=seed)
    for fold, (_, test) in enumerate(splitter.split(groups, groups=groups)):
        folds[test] = fold
    smallest = int(np.bincount(folds).min())
    if smallest < 3:
        raise InputError(
            f"{len(groups)} stimuli in {n_groups} sentences leave a fold with {smallest} of them; "
            f"each of the {n_folds} folds needs at least 3, so choose fewer folds or add stimuli."
        )
    return folds


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
        patterns = np.stack(
            [level[index.codes[:, f]] for f, level in enumerate(index.levels)], axis=1
        )
        predicted: FloatArray = self._columns.values(patterns) @ self.weights_ + self.intercept_
        return predicted[index.pattern_cell]

    def score(self, X: StimulusSet | pd.DataFrame, y: NDArray[np.floating]) -> float:
        """Spearman ρ between predicted and neural distances over all pairs of these stimuli."""
        check_is_fitted(self, "weights_")
        tables = self._tables(X, y)
        return float(held_out_scores(tables, self.weights_[None, None], 0).rho[0, 0])


class RidgeMLEM(MetricModel):
    """Metric-learning encoding model fitted by non-negative ridge regression.

    Predicts the squared neural distance of two stimuli, min-max scaled over the fitted pairs, as
    Σ_f w_f Δ_f² + b, where Δ_f is their distance on feature f and w_f >= 0; with interactions also
    2 w_fg Δ_f Δ_g of every two features, with w_fg >= 0.

    Parameters
    ----------
    alphas : ridge strengths to choose from by cross-validation over the groups (mean ρ); a single
        one is used as it is
    target : "distance", or "rank": the rank of the distance among the fitted pairs, scaled to
        [0, 1]
    interactions : whether products of two feature distances are weighed too
    distance : neural distance, see `mlem_core.distances.METRICS`, or "precomputed"
    missing : "ignore" or "level", see `mlem_core.patterns.PairIndex`
    cv : number of folds that choose α
    seed : seed of the folds

    Attributes
    ----------
    weights_ : (n_columns,) of at least 0, one for each of `column_names_`
    W_ : (n_features, n_features) the same as a matrix
    intercept_ : float
    alpha_ : float
    feature_names_in_ : (n_features,)
    spans_ : lowest and highest value of each feature, which scale ordered features

    Source: Salle et al. 2024, appendix B.
    """

    def __init__(
        self,
        alphas: Sequence[float] = ALPHAS,
        *,
        target: str = "distance",
        interactions: bool = False,
        distance: str = "euclidean",
        missing: str = "ignore",
        cv: int = 5,
        seed: int = 0,
    ) -> None:
        self.alphas = alphas
        self.target = target
        self.interactions = interactions
        self.distance = distance
        self.missing = missing
        self.cv = cv
        self.seed = seed

    def fit(
        self,
        X: StimulusSet | pd.DataFrame,
        y: NDArray[np.floating],
        groups: IntArray | None = None,
    ) -> RidgeMLEM:
        """Fit the metric on all pairs of the stimuli.

        Parameters
        ----------
        X : a StimulusSet, or a DataFrame (n_stimuli, n_features) whose numeric columns are ordered
        y : (n_stimuli, n_units) representations, or (n_stimuli, n_stimuli) precomputed distances
        groups : (n_stimuli,) groups that folds keep together; by default those of the StimulusSet,
            else every stimulus is its own
        """
        if self.target not in TARGETS:
            raise unknown("target", self.target, TARGETS)
        alphas = tuple(self.alphas)
        if groups is None:
            groups = X.groups if isinstance(X, StimulusSet) else np.arange(len(X))
        several = len(alphas) > 1
        folds = group_folds(np.asarray(groups), self.cv, self.seed) if several else None
        self._begin(X)
        ranked = self.target == "rank"
        tables = self._tables(X, y, folds, train_ranks=ranked and several)
        n_folds = tables.n_folds
        left_out: list[tuple[int, ...]] = [(), *((k,) for k in range(n_folds) if several)]
        blocks = training_blocks(n_folds, left_out)
        without = [fold for (fold,) in left_out[1:]]
        equations = (
            rank_moments(tables, blocks, [None, *without]) if ranked else moments(tables, blocks)
        )
        fitted = ridge_weights(equations, alphas)
        best = 0
        if several:
            scores = [held_out_scores(tables, fitted[:, 1 + k], k).rho for k in range(n_folds)]
            mean = np.mean(scores, axis=0)[0]
            best = int(np.argmax(mean >= mean.max() - 1e-12))
        self.alpha_ = float(alphas[best])
        self.weights_ = fitted[0, 0, best]
        self.intercept_ = float(equations.y_mean[0, 0] - equations.x_mean[0] @ self.weights_)
        return self
