"""Average ranks, of the pairs of a layer and of predictions that are constant within a pattern."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray

# Temporary arrays stay this small (1 MB) to be reused from the cache, not mapped afresh.
CHUNK = 2**17
# Predictions that differ by less than this part of their range differ only in how the sum was
# rounded: they are ties.
TIE = 1e-12


class PairOrder(NamedTuple):
    """The pairs of one layer in ascending order of their distance.

    order : (n_pairs,) pair numbers
    value : (n_pairs,) their distances as ascending whole numbers; equal means tied
    """

    order: NDArray[np.int64]
    value: NDArray[np.uint64]


def order_pairs(distances: FloatArray) -> PairOrder:
    """Sort the pairs of a layer by distance.

    The number of a pair goes into the low bits of a 64-bit key and its distance, rounded to the
    bits that are left, into the high ones, so that one sort does the work of a slower argsort.
    2 million pairs leave 32 bits of mantissa: distances that differ by less than a relative 2e-10,
    which is finer than any model computes, are ties (as they should be where only the order of
    summation tells them apart). Distances (n_pairs,) may be squared; they are at least 0.
    """
    n = len(distances)
    number_bits = np.uint64(max(1, (n - 1).bit_length()))
    keys = (distances + 0.0).view(np.uint64)
    dropped = int(number_bits) - 1
    if dropped:
        # To the nearest, not down: a value just below a round one belongs to it.
        keys += np.uint64(1 << (dropped - 1))
        keys >>= np.uint64(dropped)
    keys <<= number_bits
    for start in range(0, n, CHUNK):
        keys[start : start + CHUNK] |= np.arange(start, min(n, start + CHUNK), dtype=np.uint64)
    keys.sort()
    value = keys >> number_bits
    keys &= np.uint64((1 << int(number_bits)) - 1)
    return PairOrder(keys.view(np.int64), value)


class Ties(NamedTuple):
    """The runs of equal values among values in ascending order.

    first, last : (n_runs,) where each run of at least two begins and ends
    members : (n_tied,) the positions of all of them, run after run
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    members: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(n_runs,) how many values each run has."""
        return self.last - self.first + 1


def ties(ascending: NDArray[np.uint64]) -> Ties:
    """Where values (n,) in ascending order are tied."""
    same = ascending[1:] == ascending[:-1]
    begins, ends = same.copy(), same.copy()
    begins[1:] &= ~same[:-1]
    ends[:-1] &= ~same[1:]
    first, last = np.flatnonzero(begins), np.flatnonzero(ends) + 1
    sizes = last - first + 1
    members = np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
    members += np.arange(len(members))
    return Ties(first, last, members)


class Ranks(NamedTuple):
    """Average ranks of values in ascending order.

    doubled : (n,) twice the average ranks (1-based): whole numbers, so exact
    squares : sum of the squared centred average ranks
    """

    doubled: NDArray[np.uint32]
    squares: float


def average_ranks(ascending: NDArray[np.uint64]) -> Ranks:
    """Average ranks of values (n,) that are already in ascending order."""
    n = len(ascending)
    doubled = np.arange(2, 2 * n + 2, 2, dtype=np.uint32)
    tied = ties(ascending)
    doubled[tied.members] = np.repeat(tied.first + tied.last + 2, tied.sizes)
    sizes = tied.sizes.astype(np.float64)
    return Ranks(doubled, (float(n) ** 3 - n - float((sizes**3 - sizes).sum())) / 12)


class Score(NamedTuple):
    """ρ and ρ_a, of one shape."""

    rho: FloatArray
    rho_a: FloatArray


def score_patterns(
    predictions: FloatArray,
    counts: FloatArray,
    rank_sums: FloatArray,
    rank_squares: FloatArray,
    series: int = 1,
) -> Score:
    """Spearman ρ between predictions that are constant within a pattern and the pairs' distances.

    Exact: equals `scipy.stats.spearmanr` over the explicit pairs. ρ_a is the mean of ρ over random
    tie-breaks on both sides (the centred average ranks, divided by the spread of untied ranks).
    A prediction with one value, or distances with one value, have ρ = ρ_a = 0.

    Parameters
    ----------
    predictions : (n_layers, n_predictions, n_patterns)
    counts : (n_patterns,) pairs a pattern (may be fractional)
    rank_sums : (n_layers, n_patterns), sums of the centred average ranks of the distances
    rank_squares : (n_layers,), sum of the squared centred ranks over the pairs
    series : the predictions of a layer come in series of so many that are mostly alike (weights for
        neighbouring α); changes the time only

    Returns Score of arrays (n_layers, n_predictions).

    Source: Jalouzot et al. 2024, section 2.3.
    """
    from mlem_core.pairs.kernels import rank_moments

    covariance, spread = np.zeros((2, *predictions.shape[:2]))
    if predictions.size:
        rank_moments(
            np.ascontiguousarray(predictions),
            np.argsort(predictions[:, ::series], axis=-1),
            counts,
            np.ascontiguousarray(rank_sums),
            TIE,
            covariance,
            spread,
        )
    total = float(counts.sum())
    untied = (total**3 - total) / 12
    both = spread * rank_squares[:, None]
    rho = np.divide(covariance, np.sqrt(both), out=np.zeros_like(covariance), where=both > 0)
    return Score(rho, covariance / untied if untied > 0 else np.zeros_like(covariance))


def tied_order(predictions: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The ascending order of predictions (n,), and which of them, in it, begin a new tie."""
    order = np.argsort(predictions, kind="stable")
    ascending, begins = predictions[order], np.ones(len(predictions), dtype=bool)
    np.greater(np.diff(ascending), TIE * np.ptp(ascending), out=begins[1:])
    return order, begins


def predicted_ranks(predictions: FloatArray, counts: FloatArray) -> FloatArray:
    """Centred average ranks, over the pairs, of predictions (n_predictions, n_patterns).

    `counts` are the pairs (n_patterns,) that have each pattern, as in `score_patterns`.
    """
    ranks = np.empty_like(predictions)
    for row, values in zip(ranks, predictions, strict=True):
        order, begins = tied_order(values)
        tie = np.cumsum(begins) - 1
        n = np.bincount(tie, counts[order])
        row[order] = (np.cumsum(n) - n / 2 - n.sum() / 2)[tie]
    return ranks
