"""Metric models: distances between representations as a weighted sum of feature distances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.parallel import side_by_side
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.folds import group_folds
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.base import FoldFits, MetricModel, held_out_scores, tested
from mlem_core.estimators.normal_equations import (
    moments,
    rank_moments,
    ridge_weights,
    training_blocks,
)
from mlem_core.pairs.tables import PairTables

TARGETS = ("distance", "rank")
# Salle et al. 2024, appendix B: "α ∈ 10^[-4, 4]".
ALPHAS: tuple[float, ...] = tuple(10.0**e for e in range(-4, 5))


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
    distance : neural distance, a name in `mlem_core.pairs.distances.DISTANCES`
    missing : "ignore" or "level", see `mlem_core.pairs.patterns.PairIndex`
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
