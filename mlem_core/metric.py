"""Metric models: distances between representations as a weighted sum of feature distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from mlem_core.columns import Columns
from mlem_core.errors import InputError, unknown
from mlem_core.pairs import PairTables, pair_tables, side_by_side
from mlem_core.patterns import (
    FloatArray,
    IntArray,
    PairIndex,
    block_numbers,
    feature_columns,
)
from mlem_core.ranks import Score, score_patterns
from mlem_core.solvers import nonnegative_quadratic
from mlem_core.stimuli import StimulusSet

TARGETS = ("distance", "rank")
# Salle et al. 2024, appendix B: "α ∈ 10^[-4, 4]".
ALPHAS: tuple[float, ...] = tuple(10.0**e for e in range(-4, 5))


@dataclass(frozen=True)
class Moments:
    """Centred normal equations of the squared, min-max scaled distances on training sets.

    gram : (n_sets, n_features, n_features)
    moment : (n_layers, n_sets, n_features)
    x_mean : (n_sets, n_features) means of the squared feature distances
    y_mean : (n_layers, n_sets) means of the scaled target
    """

    gram: FloatArray
    moment: FloatArray
    x_mean: FloatArray
    y_mean: FloatArray


def training_blocks(n_folds: int, left_out: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Which blocks of pairs remain when folds are left out.

    Parameters
    ----------
    left_out : for each training set, the folds whose stimuli are in none of its pairs

    Returns
    -------
    (n_sets, n_blocks) True where both folds of the block stay
    """
    numbers = block_numbers(n_folds)
    blocks = np.zeros((len(left_out), int(numbers.max()) + 1), dtype=bool)
    for row, folds in enumerate(left_out):
        stay = [k for k in range(n_folds) if k not in folds]
        blocks[row, np.unique(numbers[np.ix_(stay, stay)])] = True
    return blocks


def moments(tables: PairTables, blocks: NDArray[np.bool_]) -> Moments:
    """Normal equations of every layer on every training set.

    The target is the squared neural distance, min-max scaled to [0, 1] over the pairs of the
    training set (Salle et al. 2024, appendix B); a layer whose distances there are all equal has
    the target 0.

    Parameters
    ----------
    blocks : (n_sets, n_blocks), see `training_blocks`
    """
    x = tables.terms
    edges = tables.block_edges[:-1]
    occupied = np.diff(tables.block_edges) > 0
    columns = x[tables.cell_pattern]
    weighted = columns * tables.counts[:, None]
    n_blocks, n_features = len(edges), x.shape[1]

    def by_block(values: FloatArray) -> FloatArray:
        sums = np.zeros((*values.shape[:-1], n_blocks))
        sums[..., occupied] = np.add.reduceat(values, edges[occupied], axis=-1)
        return sums

    n = by_block(tables.counts)
    x_sum = by_block(weighted.T)
    xx_sum = np.zeros((n_blocks, n_features, n_features))
    xy_sum = np.zeros((tables.n_layers, n_blocks, n_features))
    for b in np.flatnonzero(occupied):
        at = slice(tables.block_edges[b], tables.block_edges[b + 1])
        xx_sum[b] = columns[at].T @ weighted[at]
        xy_sum[:, b] = tables.target_sums[:, at] @ columns[at]
    y_sum = by_block(tables.target_sums)

    chosen = blocks.astype(np.float64)
    total = chosen @ n
    x_mean = (chosen @ x_sum.T) / total[:, None]
    gram = np.einsum("sb,bij->sij", chosen, xx_sum)
    gram -= total[:, None, None] * x_mean[:, :, None] * x_mean[:, None, :]
    y_mean = (y_sum @ chosen.T) / total
    moment = np.einsum("sb,lbi->lsi", chosen, xy_sum, optimize=True)
    moment -= (y_mean * total)[:, :, None] * x_mean
    low = np.stack([tables.target_low[:, use].min(axis=1) for use in blocks], axis=1)
    high = np.stack([tables.target_high[:, use].max(axis=1) for use in blocks], axis=1)
    span = high - low
    constant = ~(span > 0)
    span[constant] = 1.0
    moment = np.where(constant[:, :, None], 0.0, moment / span[:, :, None])
    y_mean = np.where(constant, 0.0, (y_mean - low) / span)
    return Moments(gram, moment, x_mean, y_mean)


def rank_moments(
    tables: PairTables, blocks: NDArray[np.bool_], ranked_without: Sequence[int | None]
) -> Moments:
    """Normal equations whose target is the rank of the neural distance, scaled to [0, 1].

    Parameters
    ----------
    blocks : (n_sets, n_blocks), see `training_blocks`
    ranked_without : for each training set, the fold that the pairs leave out among which distances
        are ranked, or None for ranks among all pairs. The set is these pairs or a part of them

    Raises
    ------
    InputError
        The tables have no ranks among training pairs.
    """
    equations = moments(tables, blocks)
    moment, y_mean = np.zeros_like(equations.moment), np.zeros_like(equations.y_mean)
    edges = tables.block_edges
    counts = np.bincount(tables.cell_block, tables.counts, minlength=len(edges) - 1)
    for fold in dict.fromkeys(ranked_without):
        sums = tables.rank_sums if fold is None else tables.training_ranks[:, fold]
        own = [s for s, without in enumerate(ranked_without) if without == fold]
        among = training_blocks(tables.n_folds, [() if fold is None else (fold,)])[0]
        scale = counts[among].sum()
        xy = np.zeros((len(sums), len(counts), tables.terms.shape[1]))
        y = np.zeros((len(sums), len(counts)))
        for b in np.flatnonzero(counts):
            at = slice(int(edges[b]), int(edges[b + 1]))
            xy[:, b] = sums[:, at] @ tables.terms[tables.cell_pattern[at]]
            y[:, b] = sums[:, at].sum(axis=-1)
        chosen = blocks[own].astype(np.float64)
        total = y @ chosen.T
        moment[:, own] = np.einsum("sb,lbi->lsi", chosen, xy, optimize=True)
        moment[:, own] -= total[:, :, None] * equations.x_mean[own]
        moment[:, own] /= scale
        y_mean[:, own] = total / (chosen @ counts) / scale + 0.5
    return replace(equations, moment=moment, y_mean=y_mean)


def ridge_weights(equations: Moments, alphas: Sequence[float]) -> FloatArray:
    """Non-negative ridge weights for each α.

    Minimises ||y - Xw - b||² + α ||w||² over w >= 0 and b, the objective of scikit-learn's
    `Ridge(positive=True)`, on the pairs of each training set.

    Returns
    -------
    (n_layers, n_sets, n_alphas, n_features)
    """
    n_features = equations.gram.shape[-1]
    penalty = np.asarray(alphas)[:, None, None] * np.eye(n_features)
    gram = equations.gram[None, :, None] + penalty
    return nonnegative_quadratic(gram, equations.moment[:, :, None, :])


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
