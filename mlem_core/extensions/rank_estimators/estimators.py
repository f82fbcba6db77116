"""The metric of the highest rank correlation with the neural distances.

The published recipe (`SoftRankMLEM`) is gradient ascent on a soft rank correlation of pairs that
are drawn at random. Pairs with equal columns have one prediction, so that the correlation depends
on the mean of their ranks alone (`mlem_core.estimators.training_pairs`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.parallel import map_on_all_cores
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.estimators.base import TableModel
from mlem_core.estimators.registry import Solution, check_installed, check_number
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.extensions.rank_estimators.rank_optimizer import (
    CONSTRAINTS,
    RankObjective,
    WeightForm,
    maximise,
)
from mlem_core.pairs.statistics import PairStatistics

if TYPE_CHECKING:
    import torch


def rank_objectives(
    pairs: TrainingPairs, layer: int, left_out: Sequence[int | None]
) -> Iterator[RankObjective]:
    """The rank correlation of one layer on several training sets.

    Where pairs are grouped it is one objective of all sets; else one after the other, each of the
    pairs of its set alone.
    """
    sums = pairs.sums(layer, left_out)
    if pairs.is_grouped:
        yield RankObjective(pairs.values, *map(np.array, zip(*sums, strict=True)))
        return
    for of_set in sums:
        trained = np.flatnonzero(of_set.counts)
        yield RankObjective(
            pairs.values[trained],
            of_set.counts[None, trained],
            of_set.sums[None, trained],
            np.array([of_set.squares]),
        )


class RankModel(TableModel):
    """A metric that is fitted to the ranks of the training pairs; `layer_weights` says how."""

    needs_pairs = True

    @abstractmethod
    def layer_weights(
        self, pairs: TrainingPairs, layer: int, left_out: Sequence[int | None]
    ) -> FloatArray:
        """Weights (n_sets, n_columns) of one layer; the other parameters are those of `solve`."""

    def solve(
        self,
        pairs: PairStatistics,
        left_out: Sequence[int | None],
        training_pairs: TrainingPairs | None = None,
    ) -> Solution:
        """Search for the metric of each layer and training set, layers side by side.

        Layers are independent of one another, so that a layer's result does not depend on which
        others are there.
        """
        if training_pairs is None:
            raise InputError(
                "a rank correlation does not follow from the statistics of pairs; this estimator "
                "needs the pairs of its training sets too."
            )
        weights = map_on_all_cores(
            lambda layer: self.layer_weights(training_pairs, layer, left_out),
            range(training_pairs.n_layers),
        )
        return Solution(np.stack(weights))


class SpearmanMLEM(RankModel):
    """Metric-learning encoding model fitted by maximising a rank correlation, ρ_a.

    Predicts the squared neural distance of two stimuli, up to a monotone function, as Δᵀ W Δ, where
    Δ are their distances on the features. W is diagonal with entries of at least 0; with
    interactions it is symmetric positive definite. Its Frobenius norm is 1. The search has no
    randomness but for the sample of pairs where there are many
    (`mlem_core.estimators.training_pairs.TrainingPairs`), on which the objective is exact;
    `mlem_core.extensions.rank_estimators.estimators.SoftRankMLEM` is the published recipe.

    Parameters
    ----------
    interactions : whether W is full
    distance, missing : as in `mlem_core.estimators.base.TableModel`

    Attributes are those of `mlem_core.estimators.base.TableModel`; intercept_ is 0.

    Source: Jalouzot et al. 2024, sections 2.1.2 and 2.2.

    Examples
    --------
    >>> X = pd.DataFrame({"noun": [0, 0, 1, 1], "long": [0, 1, 0, 1]})
    >>> round(SpearmanMLEM().fit(X, X).score(X, X), 2)
    1.0
    """

    _constraint = "metric"

    def layer_weights(
        self, pairs: TrainingPairs, layer: int, left_out: Sequence[int | None]
    ) -> FloatArray:
        columns = pairs.columns
        shape = WeightForm(len(columns.features), columns.interactions, self._constraint)
        objectives = rank_objectives(pairs, layer, left_out)
        return np.concatenate([maximise(objective, shape) for objective in objectives])


class FRRSA(SpearmanMLEM):
    """Feature-reweighted RSA, the baseline: the same model and fit without constraint on W.

    Weights of any sign; with interactions (FR-RSA-I) W is symmetric but need not be positive
    definite, so that predictions may be no distance. The rest is as in `SpearmanMLEM`.

    Source: Jalouzot et al. 2024, section 2.4.

    Examples
    --------
    >>> X = pd.DataFrame({"noun": [0, 0, 1, 1], "long": [0, 1, 0, 1]})
    >>> FRRSA().fit(X, X.to_numpy() * [1.0, 2.0]).coef_.shape
    (2,)
    """

    _constraint = "none"


LARGEST_BATCH = 1_000_000  # pairs, which take about 1 GB
# Batch sizes are tried from the first on, with so many batches of each.
FIRST_BATCH, N_BATCHES = 1_000.0, 20
# Of Adam. Published code has 0.1; on layers of the probing set 0.05 ends higher, and sooner, than
# 0.01.
RATE = 0.05
# Jalouzot et al. 2024, appendix B: most steps, and steps without a gain after which it stops.
MAX_STEPS, PATIENCE = 1_000, 50


@dataclass(frozen=True)
class Cells:
    """Pairs to draw from, in cells: those of a cell have the same terms.

    terms : (n_patterns, n_columns) the columns of the pairs of each pattern
    pattern : (n_cells,) the pattern of each cell
    counts : (n_cells,) its pairs
    target : (n_cells,) the mean of what is to be predicted of them
    """

    terms: FloatArray
    pattern: IntArray
    counts: FloatArray
    target: FloatArray

    @cached_property
    def edges(self) -> IntArray:
        """(n_cells,) how many pairs there are up to the end of each cell."""
        return np.cumsum(self.counts).astype(np.int64)

    def draw(self, size: int, rng: np.random.Generator) -> IntArray:
        """The cells (size,) of pairs that are drawn with replacement."""
        return np.searchsorted(self.edges, rng.integers(0, self.edges[-1], size), side="right")


def stable_batch_size(
    cells: Cells, seed: int = 0, threshold: float = 0.01, largest: int = 50_000
) -> int:
    """Batch size (pairs) from which on the correlations of the terms are stable.

    The smallest size, growing by a fifth from the first, at which no correlation of two terms has
    a standard deviation over batches above the threshold; at most the largest, and the number of
    pairs. Correlations of a term that does not vary in a batch do not count. The rule and its
    threshold are in the paper; the authors' code begins at 256 pairs, draws 16 batches and stops at
    2²⁰ pairs. Here the cap is lower, since where features are sparse the rule alone may ask for
    more pairs than a step can rank in time.

    Source: Jalouzot et al. 2024, appendix C; the code released with it.
    """
    rng = np.random.default_rng(seed)
    limit = min(largest, int(cells.edges[-1]))
    upper = np.triu_indices(cells.terms.shape[1], 1)
    size = FIRST_BATCH
    while size < limit:
        correlations = []
        for _ in range(N_BATCHES):
            terms = cells.terms[cells.pattern[cells.draw(int(size), rng)]]
            terms = terms - terms.mean(axis=0)
            spread = np.sqrt((terms**2).sum(axis=0))
            both = spread[:, None] * spread[None, :]
            products = np.divide(
                terms.T @ terms, both, out=np.full(both.shape, np.nan), where=both > 1e-9
            )
            correlations.append(products[upper])
        varying = np.array(correlations)
        varying = varying[:, ~np.isnan(varying).any(axis=0)]
        if varying.std(axis=0).max(initial=0.0) <= threshold:
            return int(size)
        size *= 1.2
    return limit


def spacing(values: FloatArray, counts: FloatArray) -> float:
    """Regularisation strength at which a soft rank of these values is still a rank.

    Two neighbouring values are separated when their difference, divided by the number of pairs
    from the middle of one to the middle of the other, exceeds the strength. The strength is the
    lower quartile of these: most neighbours are separated, and those that are not pass on a
    gradient. The range divided by the number of pairs would do for values spread evenly, not for
    skewed ones.

    Parameters
    ----------
    values : (n_values,) distinct, ascending
    counts : (n_values,) pairs that have each value
    """
    if len(values) < 2:
        return 1.0
    gaps = np.diff(values) / ((counts[1:] + counts[:-1]) / 2)
    return float(max(np.quantile(gaps, 0.25), 1e-12 * (values[-1] - values[0]), 1e-300))


class Ascent(NamedTuple):
    """A finished training: weights (n_columns,) of norm 1, those of the best step; steps taken."""

    weights: FloatArray
    n_steps: int


def ascend(
    cells: Cells,
    shape: WeightForm,
    strength: float | None = None,
    batch_size: int | None = None,
    seed: Any = 0,
) -> Ascent:
    """Maximise a soft Spearman correlation over batches of pairs with Adam.

    W is Cholesky's L Lᵀ with the softplus on the diagonal of L (diagonal W: the squares of
    softplus), or free for FR-RSA; its Frobenius norm is brought to 1 at each step. Targets are
    scaled to [0, 1]. It stops when the correlation has not risen for a while, and the weights of
    the best step are returned (the authors' code returns those of the last step).

    The pairs of a batch that have the same pattern get one and the same prediction, so they are
    truly tied and the soft rank gives them their average rank, whatever the strength.

    Parameters
    ----------
    cells : what is drawn
    shape : the terms and the constraint
    strength : regularisation strength of the soft ranks of predictions and targets, both in
        [0, 1]; None: see `spacing` for the predictions, and targets that are ranks already. With
        torchsort's default of 1.0 a soft rank is the value itself up to scale, and what is
        maximised is Pearson's correlation
    batch_size : pairs in a batch; None is `stable_batch_size`
    seed : of the start and the pairs that are drawn

    Raises InputError: torch or torchsort is not installed.

    Source: Jalouzot et al. 2024, section 2.2, appendices B and C; Blondel et al. 2020.
    """
    check_installed("soft-rank")
    import torch
    import torchsort

    low = cells.target.min()
    target = (cells.target - low) / ((cells.target.max() - low) or 1.0)
    size = batch_size or stable_batch_size(cells, seed=seed)
    rng = np.random.default_rng(seed)
    start = rng.uniform(-1.0, 1.0, shape.n_columns) / shape.n_features**0.5
    parameters = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([parameters], lr=RATE)
    get_weights = _weights_function(shape)
    best, best_weights, since, n_steps = -np.inf, get_weights(parameters).detach().clone(), 0, 0
    for _ in range(MAX_STEPS):
        n_steps, drawn = n_steps + 1, cells.draw(size, rng)
        patterns, inverse = np.unique(cells.pattern[drawn], return_inverse=True)
        weights = get_weights(parameters)
        scores = torch.from_numpy(cells.terms[patterns]) @ weights
        span = scores.detach().max() - scores.detach().min()
        scores = scores / span if span > 0 else scores
        value = _soft_spearman(torch, torchsort.soft_rank, scores, inverse, target[drawn], strength)
        if float(value.detach()) > best:
            # A copy: the parameters go on changing.
            best, best_weights, since = float(value.detach()), weights.detach().clone(), 0
        else:
            since += 1
            if since >= PATIENCE:
                break
        if not value.requires_grad:
            break
        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
    return Ascent(best_weights.numpy(), n_steps)


class SoftRankMLEM(RankModel):
    """The metric of `SpearmanMLEM` or `FRRSA`, found by the published recipe.

    It draws the pairs of its batches from those of `TrainingPairs`, and needs torch and torchsort.

    Parameters
    ----------
    constraint : "metric" (weights of at least 0; with interactions W positive definite), or "none"
        (feature-reweighted RSA)
    strength, batch_size : see `ascend`; with a strength the squared distances are predicted,
        without one their ranks
    random_state : seed of the start and the pairs that are drawn

    The other parameters and the attributes are those of
    `mlem_core.extensions.rank_estimators.estimators.SpearmanMLEM`.

    Source: Jalouzot et al. 2024, section 2.2, appendices B and C.

    Examples
    --------
    >>> SoftRankMLEM(constraint="none")
    SoftRankMLEM(constraint='none')
    """

    def __init__(
        self,
        *,
        interactions: bool = False,
        constraint: str = "metric",
        strength: float | None = None,
        batch_size: int | None = None,
        distance: str = "euclidean",
        missing: str = "ignore",
        random_state: int = 0,
    ) -> None:
        self.interactions = interactions
        self.constraint = constraint
        self.strength = strength
        self.batch_size = batch_size
        self.distance = distance
        self.missing = missing
        self.random_state = random_state

    def check(self) -> None:
        """Raise InputError for a parameter that cannot be used, before anything is computed."""
        check_installed("soft-rank")
        check_choice("constraint", self.constraint, CONSTRAINTS)
        if self.strength is not None:
            check_number("strength", self.strength, np.finfo(float).tiny)
        if self.batch_size is not None:
            check_number("batch_size", self.batch_size, 2, LARGEST_BATCH, whole=True)
        try:
            np.random.default_rng(self.random_state)
        except (TypeError, ValueError):
            raise InputError(
                f"the random state {self.random_state!r} is no seed; expected a whole number of at "
                "least 0, None or a generator."
            ) from None

    def ascent(self, cells: Cells, n_features: int, interactions: bool) -> Ascent:
        """The training on batches that are drawn from some cells."""
        shape = WeightForm(n_features, interactions, self.constraint)
        return ascend(cells, shape, self.strength, self.batch_size, self.random_state)

    def layer_weights(
        self, pairs: TrainingPairs, layer: int, left_out: Sequence[int | None]
    ) -> FloatArray:
        weights, columns = [], pairs.columns
        for of_set in pairs.sums(layer, left_out, ranked=self.strength is None):
            trained = np.flatnonzero(of_set.counts)
            counts = of_set.counts[trained]
            cells = Cells(pairs.values, trained, counts, of_set.sums[trained] / counts)
            weights.append(self.ascent(cells, len(columns.features), columns.interactions).weights)
        return np.stack(weights)


def _weights_function(shape: WeightForm) -> Any:
    """Parameters (n_columns,) to weights (n_columns,) of norm 1, in torch."""
    import torch

    n = shape.n_features
    first, second = torch.from_numpy(shape.first), torch.from_numpy(shape.second)
    times = torch.from_numpy(shape.times)

    def weights(parameters: torch.Tensor) -> torch.Tensor:
        free = parameters
        if shape.constraint == "metric":
            diagonal = torch.nn.functional.softplus(parameters[:n])
            free = diagonal**2
            if shape.interactions:
                lower = torch.diag(diagonal).index_put((second[n:], first[n:]), parameters[n:])
                free = (lower @ lower.T)[first, second]
        return free / (free**2 * times).sum().sqrt()

    return weights


def _soft_spearman(
    torch: Any,
    soft_rank: Any,
    scores: torch.Tensor,
    inverse: IntArray,
    target: FloatArray,
    strength: float | None,
) -> torch.Tensor:
    """Correlation of the soft ranks of scores[inverse] with those of the target, or with itself."""
    ranks = torch.from_numpy(target)
    if strength is None:
        distinct, where = np.unique(scores.detach().numpy(), return_inverse=True)
        counts = np.bincount(where[inverse], minlength=len(distinct)).astype(np.float64)
        strength = spacing(distinct, counts)
    else:
        ranks = soft_rank(ranks[None], regularization_strength=strength)[0]
    predicted = soft_rank(
        scores[torch.from_numpy(inverse)][None], regularization_strength=strength
    )[0]
    predicted = predicted - predicted.mean()
    ranks = ranks - ranks.mean()
    both = (predicted**2).sum() * (ranks**2).sum()
    if float(both.detach()) <= 0:
        return torch.zeros((), dtype=torch.float64)
    return (predicted * ranks).sum() / both.sqrt()
