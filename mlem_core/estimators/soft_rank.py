"""The published recipe: gradient ascent on a soft rank correlation of sampled pairs.

No table of pairs is made: a step needs the features and representations of a batch of pairs only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.stimuli import StimulusSet
from mlem_core.estimators.ascent import CONSTRAINTS, Shape
from mlem_core.estimators.base import MetricModel, terms_of
from mlem_core.estimators.inputs import check_number, stimulus_groups
from mlem_core.pairs.columns import (
    MISSING,
    FeatureColumn,
    distances_of_values,
    value_codes,
)
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.distances import pair_distances
from mlem_core.pairs.terms import Columns

if TYPE_CHECKING:
    import torch

LARGEST_BATCH = 1_000_000  # pairs, which take about 1 GB
# Batch sizes are tried from the first on, with so many batches of each.
FIRST_BATCH, N_BATCHES = 1_000.0, 20


def sample_pairs(n_stimuli: int, size: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Pairs of different stimuli, drawn with replacement: two arrays (size,)."""
    i = rng.integers(0, n_stimuli, size)
    return i, (i + rng.integers(1, n_stimuli, size)) % n_stimuli


class FeatureDistances:
    """Feature distances of any pairs of stimuli.

    Columns and `missing` are as in `mlem_core.pairs.patterns.PairIndex.build`.
    """

    def __init__(self, columns: Sequence[FeatureColumn], missing: str = "ignore") -> None:
        check_choice("policy for missing values", missing, MISSING)
        self.missing = missing
        # The values of a feature that is given by its distances are rows of their table.
        self._values: list[tuple[bool, FloatArray, FloatArray | None]] = []
        for column in columns:
            codes, scaled = value_codes(column)
            values = codes.astype(np.float64) if scaled is None else np.append(scaled, 0.0)[codes]
            values[codes < 0] = np.nan
            given = None if column.rdm is None else distances_of_values(column, codes, None)
            self._values.append((scaled is not None, values, given))

    def of(self, i: IntArray, j: IntArray) -> FloatArray:
        """(n_pairs, n_features) distances of the pairs (i, j)."""
        distances = np.empty((len(i), len(self._values)))
        for f, (ordered, values, given) in enumerate(self._values):
            a, b = values[i], values[j]
            gone = np.isnan(a), np.isnan(b)
            if given is not None:
                rows, columns = (
                    np.where(out, 0, x).astype(np.int64)
                    for out, x in zip(gone, (a, b), strict=True)
                )
                apart = given[rows, columns]
            else:
                apart = np.abs(a - b) if ordered else (a != b).astype(np.float64)
            # Sums of decimals differ in their last bits.
            apart = np.round(apart, 12)
            level = gone[0] != gone[1] if self.missing == "level" else 0.0
            distances[:, f] = np.where(gone[0] | gone[1], level, apart)
        return distances


def stable_batch_size(
    distances: FeatureDistances,
    n_stimuli: int,
    columns: Columns,
    seed: int = 0,
    threshold: float = 0.01,
    largest: int = 50_000,
) -> int:
    """How many pairs a batch needs for the correlations of the terms to be stable.

    The smallest size, growing by a fifth from the first, at which no correlation of two terms has
    a standard deviation over batches above the threshold; at most the largest, and the number of
    pairs. Correlations of a term that does not vary in a batch do not count. The rule and its
    threshold are in the paper; the authors' code begins at 256 pairs, draws 16 batches and stops at
    2²⁰ pairs. Here the cap is lower, since where features are sparse the rule alone may ask for
    more pairs than a step can rank in time.

    Source: Jalouzot et al. 2024, appendix C; the code released with it.
    """
    rng = np.random.default_rng(seed)
    limit = min(largest, n_pairs(n_stimuli))
    upper = np.triu_indices(len(columns), 1)
    size = FIRST_BATCH
    while size < limit:
        correlations = []
        for _ in range(N_BATCHES):
            terms = columns.values(distances.of(*sample_pairs(n_stimuli, int(size), rng)))
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

    Two neighbouring values are told apart when their difference, divided by the number of pairs
    from the middle of one to the middle of the other, exceeds the strength. The strength is the
    lower quartile of these: most neighbours are told apart, and those that are not pass on a
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


@dataclass(frozen=True)
class Ascent:
    """A finished training.

    weights : (n_columns,) with Frobenius norm 1, those of the best step
    n_steps : steps taken
    batch_size : pairs in a batch
    trace : (n_steps,) the soft rank correlation of each step
    """

    weights: FloatArray
    n_steps: int
    batch_size: int
    trace: FloatArray


@dataclass(frozen=True)
class Schedule:
    """How the ascent goes.

    strength : regularisation strength of the soft ranks of predictions and distances, both in
        [0, 1]; None: see `spacing` for the predictions, and average ranks for the distances. With
        torchsort's default of 1.0 a soft rank is the value itself up to scale, and what is
        maximised is Pearson's correlation
    batch_size : pairs in a batch; None is `stable_batch_size`
    rate : of Adam. Published code has 0.1; on layers of the probing set 0.05 ends higher, and
        sooner, than 0.01
    max_steps : most steps
    patience : steps without a gain after which it stops
    seed : of the start and the sampled pairs

    Source: Jalouzot et al. 2024, appendix B (steps and patience).
    """

    strength: float | None = None
    batch_size: int | None = None
    rate: float = 0.05
    max_steps: int = 1_000
    patience: int = 50
    seed: int = 0


def ascend(
    features: FeatureDistances,
    representations: NDArray[np.floating],
    shape: Shape,
    distance: str = "euclidean",
    schedule: Schedule | None = None,
) -> Ascent:
    """Maximise a soft Spearman correlation over batches of sampled pairs with Adam.

    W is Cholesky's L Lᵀ with the softplus on the diagonal of L (diagonal W: the squares of
    softplus), or free for FR-RSA; its Frobenius norm is brought to 1 at each step. The squared
    neural distances are scaled to [0, 1] by the lowest and highest seen so far. It stops when the
    correlation has not risen for a while, and the weights of the best step are returned (the
    authors' code returns those of the last step).

    The pairs of a batch that have the same feature distances get one and the same prediction, so
    they are truly tied and the soft rank gives them their average rank, whatever the strength.

    Parameters
    ----------
    features : of n_stimuli stimuli
    representations : (n_stimuli, n_units), or distances (n_stimuli, n_stimuli) if "precomputed"
    shape : the terms and the constraint

    Raises InputError: torch or torchsort is not installed.

    Source: Jalouzot et al. 2024, section 2.2, appendices B and C; Blondel et al. 2020.
    """
    torch, soft_rank = _torch()
    schedule = schedule or Schedule()
    n_stimuli, terms = len(representations), shape.columns
    neural_distances = pair_distances(representations, distance, "y")
    size = schedule.batch_size or stable_batch_size(features, n_stimuli, terms, seed=schedule.seed)
    rng = np.random.default_rng(schedule.seed)
    start = rng.uniform(-1.0, 1.0, len(terms)) / len(terms.features) ** 0.5
    parameters = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([parameters], lr=schedule.rate)
    weights_of = _weights_function(shape)
    low, high = np.inf, -np.inf
    best, best_weights, trace = -np.inf, weights_of(parameters).detach().clone(), []
    since = 0
    for _ in range(schedule.max_steps):
        i, j = sample_pairs(n_stimuli, size, rng)
        patterns, inverse = _distinct_rows(features.of(i, j))
        target = neural_distances(i, j)
        low, high = min(low, float(target.min())), max(high, float(target.max()))
        target = (target - low) / (high - low if high > low else 1.0)

        weights = weights_of(parameters)
        scores = torch.from_numpy(terms.values(patterns)) @ weights
        span = scores.detach().max() - scores.detach().min()
        scores = scores / span if span > 0 else scores
        value = _soft_spearman(torch, soft_rank, scores, inverse, target, schedule.strength)
        trace.append(float(value.detach()))
        if trace[-1] > best:
            # A copy: the parameters go on changing.
            best, best_weights, since = trace[-1], weights.detach().clone(), 0
        else:
            since += 1
            if since >= schedule.patience:
                break
        if not value.requires_grad:
            break
        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
    return Ascent(best_weights.numpy(), len(trace), size, np.array(trace))


class SoftRankMLEM(MetricModel):
    """The metric of `SpearmanMLEM` or `FRRSA`, found by the published recipe.

    It samples pairs of one layer's stimuli and makes no pair table, so an analysis does not offer
    it. It needs torch and torchsort.

    Parameters
    ----------
    constraint : "metric" (weights of at least 0; with interactions W positive definite), or "none"
        (feature-reweighted RSA)
    strength, batch_size : see `Schedule`
    random_state : seed of the start and the sampled pairs

    The other parameters and the attributes are those of
    `mlem_core.estimators.spearman.SpearmanMLEM`; n_steps_ is the number of steps taken.

    Source: Jalouzot et al. 2024, section 2.2, appendices B and C.
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

    def fit(
        self,
        X: StimulusSet | pd.DataFrame,
        y: NDArray[np.floating],
        groups: IntArray | None = None,
    ) -> Self:
        """Fit the metric on sampled pairs of the stimuli.

        X and y as in `mlem_core.estimators.base.TableModel.fit`; `groups` is not used, since there
        is nothing to choose by cross-validation.

        Raises InputError: as there; torch or torchsort is not installed.
        """
        self.check()
        columns, rows = self._given(X, y)
        stimulus_groups(groups, X)
        terms = terms_of(columns, self.interactions)
        ascent = ascend(
            FeatureDistances(columns, self.missing),
            rows,
            Shape(terms, self.constraint),
            self.distance,
            Schedule(self.strength, self.batch_size, seed=self.random_state),
        )
        self._keep(columns, terms, ascent.weights, 0.0)
        self.n_steps_ = ascent.n_steps
        return self

    def check(self) -> None:
        """Raise InputError for a parameter that cannot be used, before anything is computed."""
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


def _torch() -> tuple[Any, Any]:
    try:
        import torch
        import torchsort
    except ImportError as error:
        raise InputError(
            f"SoftRankMLEM needs torch and torchsort, but {error.name} is not installed; install "
            "it (README, requirements-torchsort.txt) or choose SpearmanMLEM or FRRSA."
        ) from None
    return torch, torchsort.soft_rank


def _distinct_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """The distinct rows, and the number of the distinct row that each row is."""
    direction = np.random.default_rng(0).random(rows.shape[1])
    _, first, inverse = np.unique(rows @ direction, return_index=True, return_inverse=True)
    return rows[first], inverse.astype(np.int64)


def _weights_function(shape: Shape) -> Any:
    """Parameters (n_columns,) to weights (n_columns,) of norm 1, in torch."""
    import torch

    columns = shape.columns
    n = len(columns.features)
    first, second = torch.from_numpy(columns.first), torch.from_numpy(columns.second)
    times = torch.where(first == second, 1.0, 2.0).double()

    def weights(parameters: torch.Tensor) -> torch.Tensor:
        free = parameters
        if shape.constraint == "metric":
            diagonal = torch.nn.functional.softplus(parameters[:n])
            free = diagonal**2
            if columns.interactions:
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
    """Correlation of the soft ranks of scores[inverse] with those of the target."""
    if strength is None:
        from scipy.stats import rankdata

        distinct, where = np.unique(scores.detach().numpy(), return_inverse=True)
        counts = np.bincount(where[inverse], minlength=len(distinct)).astype(np.float64)
        ranks = torch.from_numpy(rankdata(target))
        strength = spacing(distinct, counts)
    else:
        ranks = soft_rank(torch.from_numpy(target)[None], regularization_strength=strength)[0]
    predicted = soft_rank(
        scores[torch.from_numpy(inverse)][None], regularization_strength=strength
    )[0]
    predicted = predicted - predicted.mean()
    ranks = ranks - ranks.mean()
    both = (predicted**2).sum() * (ranks**2).sum()
    if float(both.detach()) <= 0:
        return torch.zeros((), dtype=torch.float64)
    result: torch.Tensor = (predicted * ranks).sum() / both.sqrt()
    return result
