"""The rank correlation of predictions and distances as a function of the metric's weights.

A prediction is constant within a covariate pattern, so its rank correlation with the distances of
millions of pairs follows exactly from one sort of the patterns (`RankObjective.exact`). That is a
staircase; smoothed, it has a gradient (`RankObjective.slope`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import unknown
from mlem_core.base.numbers import nonnegative_quadratic
from mlem_core.base.typing import FloatArray

OBJECTIVES = ("rho_a", "rho")

CHUNK = 2**21
# Half the width of the smoothing kernel in bins; Epanechnikov's, since it ends.
HALF = 8
KERNEL = 1 - (np.arange(-HALF, HALF + 1) / (HALF + 0.5)) ** 2
KERNEL /= KERNEL.sum()


def divisors(values: FloatArray) -> FloatArray:
    """The values to divide by: what is not above 0 becomes 1."""
    return np.where(values > 0, values, 1.0)


@dataclass(frozen=True)
class RankObjective:
    """Rank correlation of n_problems predictions with as many sets of pairs.

    The problems share their patterns; a pattern that a problem lacks has the count 0 there.

    Attributes
    ----------
    terms : (n_patterns, n_columns) see `mlem_core.pairs.terms.Columns.values`
    counts : (n_problems, n_patterns) pairs that have each pattern
    sums : (n_problems, n_patterns) sums of the centred average ranks of their distances
    squares : (n_problems,) sums of the squares of those ranks
    name : "rho_a", the mean of Spearman's ρ over random tie-breaks, or "rho" with average ranks
    """

    terms: FloatArray
    counts: FloatArray
    sums: FloatArray
    squares: FloatArray
    name: str = "rho_a"

    def __post_init__(self) -> None:
        if self.name not in OBJECTIVES:
            raise unknown("objective", self.name, OBJECTIVES)

    @property
    def _untied(self) -> FloatArray:
        """(n_problems,) sum of the squares of ranks without ties."""
        total = self.counts.sum(axis=-1)
        return divisors((total**3 - total) / 12)

    def exact(self, weights: FloatArray) -> FloatArray:
        """The objective (n_problems, n_tries) of weights (n_problems, n_tries, n_columns)."""
        n_tries = weights.shape[1]
        step = max(1, CHUNK // (len(weights) * len(self.terms)))
        parts = [
            self._of_predictions(weights[:, start : start + step] @ self.terms.T)
            for start in range(0, n_tries, step)
        ]
        return np.concatenate(parts, axis=1)

    def _of_predictions(self, predictions: FloatArray) -> FloatArray:
        """The objective of predictions (n_problems, n_tries, n_patterns)."""
        n_problems, n_tries, n_patterns = predictions.shape
        rows = n_problems * n_tries
        order = np.argsort(predictions, axis=-1).reshape(rows, n_patterns)
        offsets = np.arange(rows)[:, None] * n_patterns
        ascending = predictions.ravel().take(order + offsets)
        # As elsewhere: what differs by less than this differs in how the sum was rounded.
        tiny = 1e-12 * (ascending[:, -1:] - ascending[:, :1])
        begins = np.ones((rows, n_patterns), dtype=bool)
        np.greater(ascending[:, 1:] - ascending[:, :-1], tiny, out=begins[:, 1:])
        # From here on all rows in one line, a number for each group of tied patterns.
        groups = np.flatnonzero(begins)
        edges = np.searchsorted(groups, offsets.ravel())
        order += np.repeat(np.arange(n_problems) * n_patterns, n_tries)[:, None]
        counts = np.add.reduceat(self.counts.ravel().take(order).ravel(), groups)
        sums = np.add.reduceat(self.sums.ravel().take(order).ravel(), groups)
        total = np.repeat(self.counts.sum(axis=-1), n_tries)
        ranks: FloatArray = np.cumsum(counts) - counts / 2
        ranks -= np.repeat(np.cumsum(total) - total / 2, np.diff(edges, append=len(groups)))
        sums *= ranks
        covariance = np.add.reduceat(sums, edges).reshape(n_problems, n_tries)
        if self.name == "rho_a":
            return covariance / self._untied[:, None]
        ranks *= ranks * counts
        both = np.add.reduceat(ranks, edges).reshape(n_problems, n_tries) * self.squares[:, None]
        return np.divide(covariance, np.sqrt(both), out=np.zeros_like(both), where=both > 0)

    def slope(self, weights: FloatArray, width: float) -> FloatArray:
        """Gradient of the objective with the steps of its staircase made smooth.

        The rank of a prediction is the number of pairs below it. Here a pair counts by how far
        below it is, in a window whose half width is a share of the range of the predictions:
        `width`, between 0 and 1. For "rho" the result is proportional to the gradient. Weights and
        result are (n_problems, n_columns).
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
            read: FloatArray = bins[at] * (1 - right) + bins[at + 1] * right
            return read.reshape(values.shape)

        if self.name == "rho":
            # d(J / √V) is dJ - (J / 2V) dV up to a factor.
            ranks = _centred_ranks(predictions, counts)
            spread = np.einsum("ij,ij,ij->i", counts, ranks, ranks)
            share = np.einsum("ij,ij->i", sums, ranks) / divisors(spread)
            sums = sums - share[:, None] * (counts * ranks)
        slope: FloatArray = sums * smooth(counts) - counts * smooth(sums)
        slope *= (n_bins - 1) / (span * self._untied[:, None])
        gradient: FloatArray = slope @ self.terms
        return gradient

    def least_squares(self, nonnegative: bool) -> FloatArray:
        """Weights (n_problems, n_columns) of the linear regression of the ranks on the terms."""
        total = divisors(self.counts.sum(axis=-1))
        mean = self.counts @ self.terms / total[:, None]
        gram = np.einsum("kp,pi,pj->kij", self.counts, self.terms, self.terms, optimize=True)
        gram -= total[:, None, None] * mean[:, :, None] * mean[:, None, :]
        moment = self.sums @ self.terms
        if nonnegative:
            return nonnegative_quadratic(gram, moment)
        solved: FloatArray = (np.linalg.pinv(gram, hermitian=True) @ moment[..., None])[..., 0]
        return solved

    def varies(self) -> NDArray[np.bool_]:
        """(n_problems, n_columns) whether a term takes more than one value in a problem's pairs."""
        there = self.counts > 0
        low = np.where(there[:, :, None], self.terms, np.inf).min(axis=1)
        high = np.where(there[:, :, None], self.terms, -np.inf).max(axis=1)
        different: NDArray[np.bool_] = high > low
        return different


def _centred_ranks(predictions: FloatArray, counts: FloatArray) -> FloatArray:
    """Centred ranks (n_problems, n_patterns) of predictions, ties in any order."""
    order = np.argsort(predictions, axis=-1)
    counts = np.take_along_axis(counts, order, axis=-1)
    ranks = np.empty_like(counts)
    after = np.cumsum(counts, axis=-1) - counts / 2 - counts.sum(axis=-1, keepdims=True) / 2
    np.put_along_axis(ranks, order, after, axis=-1)
    return ranks
