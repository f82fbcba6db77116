"""The metric that maximises the rank correlation with the neural distances, and its baseline."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mlem_core.base.errors import unknown
from mlem_core.base.parallel import side_by_side
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.ascent import OBJECTIVES, RankObjective, Shape, maximise
from mlem_core.estimators.base import FoldFits, MetricModel, tested
from mlem_core.estimators.normal_equations import training_blocks
from mlem_core.pairs.patterns import feature_columns
from mlem_core.pairs.tables import PairTables

RECIPES = ("exact", "paper")


def training_objective(
    tables: PairTables, layer: int, objective: str = "rho_a", *, whole: bool = False
) -> RankObjective:
    """The rank correlation on the training pairs of each fold, for one layer.

    Ranks are those among the pairs that leave out the fold: held-out pairs have no part in them.

    Parameters
    ----------
    layer : position of the layer in the tables
    objective : one of `mlem_core.estimators.ascent.OBJECTIVES`
    whole : instead of the folds, one problem with all pairs

    Raises
    ------
    InputError
        The tables have no ranks among training pairs.
    """
    n_patterns = len(tables.codes)
    left_out: list[tuple[int, ...]] = [()] if whole else [(k,) for k in range(tables.n_folds)]
    counts = np.zeros((len(left_out), n_patterns))
    sums = np.zeros_like(counts)
    for k, blocks in enumerate(training_blocks(tables.n_folds, left_out)):
        at = np.flatnonzero(blocks[tables.cell_block])
        pattern = tables.cell_pattern[at]
        ranks = tables.rank_sums[layer] if whole else tables.training_ranks[layer, k]
        counts[k] = np.bincount(pattern, tables.counts[at], n_patterns)
        sums[k] = np.bincount(pattern, ranks[at], n_patterns)
    if whole or tables.train_squares is None:
        squares = tables.rank_squares[layer : layer + 1]
    else:
        squares = tables.train_squares[layer]
    return RankObjective(tables.terms, counts, sums, squares, objective)


def cross_validate_spearman(
    tables: PairTables, constraint: str = "metric", objective: str = "rho_a"
) -> FoldFits:
    """For each layer and fold the metric of the highest rank correlation on the training pairs.

    A layer's folds are searched side by side; layers are independent of one another, so that a
    layer's result does not depend on which others are there.

    Parameters
    ----------
    tables : with ranks among training pairs; `with_interactions` decides whether W is full
    constraint : "metric" (weights of at least 0; with interactions W positive definite), or "none"
        (FR-RSA)
    objective : one of `mlem_core.estimators.ascent.OBJECTIVES`

    Raises
    ------
    InputError
        The tables have no ranks among training pairs.

    Source: Jalouzot et al. 2024, sections 2.1.2 and 2.4.
    """
    shape = Shape(tables.columns, constraint)

    def one(layer: int) -> FloatArray:
        return maximise(training_objective(tables, layer, objective), shape)

    # Many small products: threads of their own would only be in each other's way.
    with threadpool_limits(1):
        weights = side_by_side(one, range(tables.n_layers))
    return tested(tables, np.stack(weights))


class SpearmanMLEM(MetricModel):
    """Metric-learning encoding model fitted by maximising a rank correlation.

    Predicts the squared neural distance of two stimuli, up to a monotone function, as Δᵀ W Δ, where
    Δ are their distances on the features. W is diagonal with entries of at least 0; with
    interactions it is symmetric positive definite. Its Frobenius norm is 1.

    Parameters
    ----------
    interactions : whether W is full
    recipe : "exact" searches on the pair table, where the objective is exact; "paper" ascends a
        soft rank correlation on sampled pairs, see `mlem_core.estimators.soft_rank`
        (needs torch and torchsort)
    objective : "rho_a", the mean of Spearman's ρ over random tie-breaks, or "rho", with average
        ranks, which rewards a prediction for its ties and so tends to leave features out; the
        recipe "paper" has its own, with the strength below
    strength : regularisation strength of the soft rank of the recipe "paper"; None is the spacing
        of the predictions, 1.0 is torchsort's default
    batch_size : pairs in a batch of the recipe "paper"; None follows the rule of appendix C
    distance : neural distance, a name in `mlem_core.pairs.distances.DISTANCES`
    missing : "ignore" or "level", see `mlem_core.pairs.patterns.PairIndex`
    seed : seed of the sampled pairs of the recipe "paper"; the recipe "exact" has no randomness

    Attributes
    ----------
    weights_ : (n_columns,), one for each of `column_names_`: W_ff of Δ_f², W_fg of 2 Δ_f Δ_g
    W_ : (n_features, n_features)
    column_names_ : names of the features and, with interactions, "a × b" of every two
    n_steps_ : steps taken by the recipe "paper", else 0
    feature_names_in_, spans_ : as in `mlem_core.estimators.ridge.RidgeMLEM`

    Source: Jalouzot et al. 2024, sections 2.1.2 and 2.2, appendices B and C.
    """

    _constraint = "metric"

    def __init__(
        self,
        *,
        interactions: bool = False,
        recipe: str = "exact",
        objective: str = "rho_a",
        strength: float | None = None,
        batch_size: int | None = None,
        distance: str = "euclidean",
        missing: str = "ignore",
        seed: int = 0,
    ) -> None:
        self.interactions = interactions
        self.recipe = recipe
        self.objective = objective
        self.strength = strength
        self.batch_size = batch_size
        self.distance = distance
        self.missing = missing
        self.seed = seed

    def fit(
        self,
        X: StimulusSet | pd.DataFrame,
        y: NDArray[np.floating],
        groups: IntArray | None = None,
    ) -> SpearmanMLEM:
        """Fit the metric on the pairs of the stimuli.

        Parameters
        ----------
        X : a StimulusSet, or a DataFrame (n_stimuli, n_features) whose numeric columns are ordered
        y : (n_stimuli, n_units) representations, or (n_stimuli, n_stimuli) precomputed distances
        groups : not used; there is nothing to choose by cross-validation

        Raises
        ------
        InputError
            An unknown recipe or objective; torchsort is not installed (recipe "paper").
        """
        if self.recipe not in RECIPES:
            raise unknown("recipe", self.recipe, RECIPES)
        if self.objective not in OBJECTIVES:
            raise unknown("objective", self.objective, OBJECTIVES)
        self._begin(X)
        shape = Shape(self._columns, self._constraint)
        self.intercept_ = 0.0
        if self.recipe == "exact":
            tables = self._tables(X, y)
            objective = training_objective(tables, 0, self.objective, whole=True)
            self.weights_: FloatArray = maximise(objective, shape)[0]
            self.n_steps_ = 0
        else:
            from mlem_core.estimators.soft_rank import ascend

            found = ascend(
                feature_columns(X, self.spans_),
                np.asarray(y),
                shape,
                missing=self.missing,
                distance=self.distance,
                strength=self.strength,
                batch_size=self.batch_size,
                seed=self.seed,
            )
            self.weights_, self.n_steps_ = found.weights, found.n_steps
        return self
