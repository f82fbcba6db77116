"""The rank correlation of predictions and distances, and the search for the metric of the highest.

A prediction is constant for pairs with equal columns, so its rank correlation with the distances of
millions of pairs follows exactly from one sort of the groups of such pairs (`RankObjective.exact`).
That is a staircase; smoothed, it has a gradient (`RankObjective.slope`), which leads uphill. The
exact one has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import check_choice
from mlem_core.base.numbers import nonnegative_quadratic
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.column_builder import metric_matrix, metric_terms
from mlem_core.pairs.ranks import few_at_once, score_patterns

CONSTRAINTS = ("metric", "none")
# The kernel's half width goes from the first to the second share of the range of predictions.
WIDTHS = (0.2, 0.005)

# Half the width of the smoothing kernel in bins; Epanechnikov's, since it ends.
HALF = 8
KERNEL = 1 - (np.arange(-HALF, HALF + 1) / (HALF + 0.5)) ** 2
KERNEL /= KERNEL.sum()


def divisors(values: FloatArray) -> FloatArray:
    """The values to divide by: what is not above 0 becomes 1."""
    return np.where(values > 0, values, 1.0)


@dataclass(frozen=True)
class RankObjective:
    """ρ_a of n_problems predictions with as many sets of pairs.

    It is the mean of Spearman's ρ over random tie-breaks: ρ itself, with average ranks, rewards a
    prediction for its ties and so leaves features out. The problems share their groups; a group
    that a problem lacks has the count 0 there.

    terms : (n_groups, n_columns) the columns of the pairs of each group, which are equal
    counts : (n_problems, n_groups) pairs of each group
    sums : (n_problems, n_groups) sums of the centred average ranks of their distances
    squares : (n_problems,) sums of the squares of those ranks
    """

    terms: FloatArray
    counts: FloatArray
    sums: FloatArray
    squares: FloatArray

    def exact(self, weights: FloatArray) -> FloatArray:
        """The objective (n_problems, n_tries) of weights (n_problems, n_tries, n_columns)."""
        values = np.empty(weights.shape[:2])
        one = np.ones(1)
        for problem, (counts, sums) in enumerate(zip(self.counts, self.sums, strict=True)):
            for tries in few_at_once(weights.shape[1], len(self.terms)):
                predictions = weights[problem, tries] @ self.terms.T
                score = score_patterns(predictions[None], counts, sums[None], one)
                values[problem, tries] = score.rho_a[0]
        return values

    def slope(self, weights: FloatArray, width: float) -> FloatArray:
        """Gradient of the objective with the steps of its staircase made smooth.

        The rank of a prediction is the number of pairs below it. Here a pair counts by how far
        below it is, in a window whose half width is a share of the range of the predictions:
        `width`, between 0 and 1. Weights and result are (n_problems, n_columns).
        """
        predictions = weights @ self.terms.T
        counts, sums = self.counts, self.sums
        n_problems = len(predictions)
        low = predictions.min(axis=-1, keepdims=True)
        span = divisors(predictions.max(axis=-1, keepdims=True) - low)
        n_bins = int(np.ceil(HALF / width)) + 1
        place = (predictions - low) * ((n_bins - 1) / span)
        left = np.minimum(place.astype(np.int64), n_bins - 2)
        right = (place - left).ravel()
        # A margin of bins keeps the kernel of one problem out of the next one's bins.
        size = n_bins + 2 * HALF
        at = (left + HALF + (np.arange(n_problems) * size)[:, None]).ravel()

        def smooth(values: FloatArray) -> FloatArray:
            flat = values.ravel()
            placed = np.bincount(at, flat * (1 - right), n_problems * size)
            bins = placed + np.bincount(at + 1, flat * right, n_problems * size)
            bins = np.convolve(bins, KERNEL, mode="same")
            return (bins[at] * (1 - right) + bins[at + 1] * right).reshape(values.shape)

        slope: FloatArray = sums * smooth(counts) - counts * smooth(sums)
        total = counts.sum(axis=-1, keepdims=True)
        untied = divisors((total**3 - total) / 12)  # sum of the squares of ranks without ties
        slope *= (n_bins - 1) / (span * untied)
        return slope @ self.terms

    def least_squares(self, nonnegative: bool) -> FloatArray:
        """Weights (n_problems, n_columns) of the linear regression of the ranks on the terms."""
        total = divisors(self.counts.sum(axis=-1))
        mean = self.counts @ self.terms / total[:, None]
        gram = np.einsum("kp,pi,pj->kij", self.counts, self.terms, self.terms, optimize=True)
        gram -= total[:, None, None] * mean[:, :, None] * mean[:, None, :]
        moment = self.sums @ self.terms
        if nonnegative:
            return nonnegative_quadratic(gram, moment)
        return (np.linalg.pinv(gram, hermitian=True) @ moment[..., None])[..., 0]

    def varies(self) -> NDArray[np.bool_]:
        """(n_problems, n_columns) whether a term takes more than one value in a problem's pairs."""
        there = self.counts > 0
        low = np.where(there[:, :, None], self.terms, np.inf).min(axis=1)
        high = np.where(there[:, :, None], self.terms, -np.inf).max(axis=1)
        return high > low


@dataclass(frozen=True)
class WeightForm:
    """The symmetric matrix W of a metric, its weights, and the free parameters behind them.

    Without interactions W is diagonal, and its weights are those of Δ_f². With them there are
    F (F + 1) / 2: first those of Δ_f² of the F features, then those of 2 Δ_f Δ_g of every two, in
    the order of `mlem_core.pairs.pair_columns.PairColumns`. A weight is an entry of W.

    Without interactions the parameters are the weights: at least 0 for a metric, any number for
    FR-RSA. With them a metric has W = L Lᵀ, the parameters are the lower triangle of L, and the
    softplus of those on its diagonal makes W positive definite.

    Source: Jalouzot et al. 2024, appendix B (Cholesky), section 2.4 (FR-RSA), appendix D.
    """

    n_features: int
    interactions: bool = False
    constraint: str = "metric"

    def __post_init__(self) -> None:
        check_choice("constraint", self.constraint, CONSTRAINTS)

    @property
    def cholesky(self) -> bool:
        return self.constraint == "metric" and self.interactions

    @cached_property
    def first(self) -> IntArray:
        """(n_columns,) the first feature of each weight."""
        n = self.n_features
        return metric_terms(n)[0] if self.interactions else np.arange(n)

    @cached_property
    def second(self) -> IntArray:
        """(n_columns,) the second feature; the same as the first for Δ_f²."""
        return metric_terms(self.n_features)[1] if self.interactions else self.first

    @property
    def n_columns(self) -> int:
        return len(self.first)

    @property
    def times(self) -> FloatArray:
        """(n_columns,) how often each weight stands in W."""
        return np.where(self.first == self.second, 1.0, 2.0)

    def feature_weights(self, matrix: FloatArray) -> FloatArray:
        """(..., n_columns) weights of W (..., n_features, n_features)."""
        return matrix[..., self.first, self.second]

    def unit(self, weights: FloatArray) -> FloatArray:
        """Weights (..., n_columns) scaled so that W has the Frobenius norm 1; zeros stay."""
        norm = np.sqrt((weights**2 * self.times).sum(axis=-1, keepdims=True))
        return weights / divisors(norm)

    def _lower(self, parameters: FloatArray) -> FloatArray:
        n = self.n_features
        lower = np.zeros((*parameters.shape[:-1], n, n))
        # Weights run over a <= b; the lower triangle has them the other way round.
        lower[..., self.second, self.first] = parameters
        lower[..., range(n), range(n)] = np.logaddexp(0.0, parameters[..., :n])
        return lower

    def weights(self, parameters: FloatArray) -> FloatArray:
        """Weights (..., n_columns) with Frobenius norm 1 of parameters (..., n_columns)."""
        if self.cholesky:
            lower = self._lower(parameters)
            parameters = self.feature_weights(lower @ lower.swapaxes(-1, -2))
        return self.unit(parameters)

    def parameters(self, weights: FloatArray) -> FloatArray:
        """Parameters whose weights are these, or near them where they are no metric."""
        weights = self.unit(weights)
        if not self.cholesky:
            return self.settled(weights)
        values, vectors = np.linalg.eigh(metric_matrix(weights, self.n_features))
        values = np.maximum(values, 1e-4)
        lower = np.linalg.cholesky((vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2))
        parameters = lower[..., self.second, self.first]
        n = self.n_features
        # The inverse of the softplus.
        parameters[..., :n] += np.log(-np.expm1(-parameters[..., :n]))
        return parameters

    def settled(self, parameters: FloatArray) -> FloatArray:
        """Parameters brought back to where they are allowed, at norm 1."""
        if self.cholesky:
            return parameters
        if self.constraint == "metric":
            parameters = np.maximum(parameters, 0.0)
        return self.unit(parameters)

    def slope(self, parameters: FloatArray, weights: FloatArray, slope: FloatArray) -> FloatArray:
        """Gradient in the parameters, of a gradient in the weights (..., n_columns)."""
        # The objective does not depend on the scale; what the smoothing leaves of it is taken out.
        along = (slope * weights).sum(axis=-1, keepdims=True)
        along /= divisors((weights**2).sum(axis=-1, keepdims=True))
        slope = slope - along * weights
        if not self.cholesky:
            return slope
        n = self.n_features
        lower = self._lower(parameters)
        matrix = metric_matrix(slope, n)
        # The weight of a product stands twice in W.
        matrix[..., ~np.eye(n, dtype=bool)] /= 2
        pulled: FloatArray = 2 * (matrix @ lower)[..., self.second, self.first]
        pulled[..., :n] /= 1 + np.exp(-parameters[..., :n])
        return pulled


def climb(
    objective: RankObjective, shape: WeightForm, parameters: FloatArray, steps: int, rate: float
) -> tuple[FloatArray, FloatArray]:
    """Ascend the smoothed objective (Adam), ever less smoothed; the exactly best seen is kept.

    `parameters` are (n_problems, n_columns), where to start.

    Returns (n_problems, n_columns) parameters and (n_problems,) their exact objective.
    """
    best = parameters
    value = objective.exact(shape.weights(parameters)[:, None])[:, 0]
    first, second = np.zeros_like(parameters), np.zeros_like(parameters)
    for step in range(1, steps + 1):
        done = step / steps
        weights = shape.weights(parameters)
        slope = objective.slope(weights, WIDTHS[0] * (WIDTHS[1] / WIDTHS[0]) ** done)
        slope = shape.slope(parameters, weights, slope)
        first += 0.1 * (slope - first)
        second += 0.05 * (slope**2 - second)
        size = rate * 0.05**done * (1 - 0.95**step) ** 0.5 / (1 - 0.9**step)
        parameters = shape.settled(parameters + size * first / (np.sqrt(second) + 1e-15))
        if step % 10 == 0 or step == steps:
            exact = objective.exact(shape.weights(parameters)[:, None])[:, 0]
            best, value = better(best, value, parameters, exact)
    return best, value


def better(
    best: FloatArray, value: FloatArray, other: FloatArray, other_value: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Better row of two a problem, by value (the first, where they are even), and its value."""
    up = other_value > value
    return np.where(up[:, None], other, best), np.where(up, other_value, value)


def polish(
    objective: RankObjective, shape: WeightForm, parameters: FloatArray, sweeps: int
) -> FloatArray:
    """Search along one parameter at a time on the exact objective.

    Steps grow where they help and shrink where they do not. A diagonal metric is first tried with
    each weight at 0, at sizes over four decades, and at the other weights: a small weight orders
    what the others leave tied, and at equal weights groups tie; a smoothed objective sees
    neither. Parameters and result are (n_problems, n_columns).
    """
    parameters = shape.settled(parameters)
    value = objective.exact(shape.weights(parameters)[:, None])[:, 0]
    problems = np.arange(len(parameters))
    diagonal = not shape.interactions
    grid = np.geomspace(1e-3, 1.5, 12)
    if shape.constraint == "none":
        grid = np.concatenate((-grid, grid))
    steps = np.full(parameters.shape, 0.7 if diagonal else 0.02)
    for sweep in range(sweeps):
        wide = diagonal and sweep == 0
        for c in range(parameters.shape[1]):
            current = parameters[:, c, None]
            top = np.abs(parameters).max(axis=1, keepdims=True)
            step = steps[:, c, None]
            if wide:
                others = np.delete(parameters, c, axis=1)
                tries = np.concatenate((np.zeros_like(current), top * grid, others), axis=1)
            elif diagonal:
                here = np.where(current == 0, 1e-3 * top, current)
                tries = np.concatenate((here * np.exp(step), here / np.exp(step)), axis=1)
            else:
                tries = np.concatenate((current + step, current - step), axis=1)
            several = np.repeat(parameters[:, None], tries.shape[1], axis=1)
            several[:, :, c] = tries
            exact = objective.exact(shape.weights(several))
            at = exact.argmax(axis=1)
            up = exact[problems, at] > value + 1e-12
            parameters[up, c] = tries[problems, at][up]
            value[up] = exact[problems, at][up]
            if not wide:
                steps[:, c] *= np.where(up, 1.3, 0.5)
    return parameters


def maximise(objective: RankObjective, shape: WeightForm) -> FloatArray:
    """Weights of (nearly) the highest objective, the same each time.

    Climbs from equal weights and from the regression of the ranks on the terms, keeps the better of
    the two, and searches on around it. A term that does not vary in a problem, and every term where
    all distances are tied, has the weight 0.

    `objective` is of n_problems problems, with a column for each weight of `shape`.

    Returns (n_problems, n_columns) with Frobenius norm 1.

    Source: Jalouzot et al. 2024, section 2.1.2 (the objective; the search is ours).
    """
    varies = objective.varies()
    equal = np.zeros(varies.shape)
    equal[:, : shape.n_features] = 1.0
    regression = objective.least_squares(
        nonnegative=shape.constraint == "metric" and not shape.interactions
    )
    steps, rate = (300, 0.05) if shape.interactions else (120, 0.1)
    climbed = [
        climb(objective, shape, shape.parameters(start * varies), steps, rate)
        for start in (regression, equal)
    ]
    best = better(*climbed[0], *climbed[1])[0]
    best = polish(objective, shape, best, sweeps=2 if shape.interactions else 4)
    weights = shape.weights(best)
    weights = np.where(varies & (objective.squares > 0)[:, None], weights, 0.0)
    return shape.unit(weights)
