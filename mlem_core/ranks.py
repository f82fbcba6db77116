"""Average ranks, of the pairs of a layer and of predictions that are constant within a pattern."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


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
    summation tells them apart).

    Parameters
    ----------
    distances : (n_pairs,) distances or squared distances, at least 0
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
    keys |= np.arange(n, dtype=np.uint64)
    keys.sort()
    value = keys >> number_bits
    keys &= np.uint64((1 << int(number_bits)) - 1)
    return PairOrder(keys.view(np.int64), value)


def doubled_ranks(sorted_values: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Twice the average ranks (1-based) of values in ascending order: whole numbers, so exact.

    Parameters
    ----------
    sorted_values : (n,) ascending

    Returns
    -------
    (n,) uint32
    """
    n = len(sorted_values)
    if n == 0:
        return np.empty(0, dtype=np.uint32)
    starts = np.flatnonzero(np.concatenate(([True], sorted_values[1:] != sorted_values[:-1])))
    ends = np.append(starts[1:], n)
    sums = (starts + ends + 1).astype(np.uint32)
    return sums if len(starts) == n else np.repeat(sums, ends - starts)


def pattern_ranks(predictions: FloatArray, counts: FloatArray) -> FloatArray:
    """Centred average ranks that predictions have when each stands for many pairs.

    Predictions that differ by less than 1e-12 of their range are ties: they differ only in how
    the sum was rounded.

    Parameters
    ----------
    predictions : (..., n_patterns)
    counts : (..., n_patterns) or (n_patterns,), how many pairs each stands for (may be fractional)

    Returns
    -------
    (..., n_patterns) centred average ranks of the pairs, in the order of `predictions`
    """
    shape = predictions.shape
    flat = predictions.reshape(-1, shape[-1])
    order = np.argsort(flat, axis=-1)
    ranks = np.empty_like(flat)
    np.put_along_axis(ranks, order, _sorted_ranks(flat, order, counts)[0], axis=-1)
    return ranks.reshape(shape)


def _sorted_ranks(
    flat: FloatArray, order: NDArray[np.intp], counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Centred average ranks and counts, both in the ascending order of each row of `flat`."""
    ascending = np.take_along_axis(flat, order, axis=-1)
    n = counts[order] if counts.ndim == 1 else np.take_along_axis(counts, order, axis=-1)
    after = np.cumsum(n, axis=-1)
    total = after[:, -1:]
    ranks = after - n / 2 - total / 2
    spread = ascending[:, -1:] - ascending[:, :1]
    tied = np.diff(ascending, axis=-1) <= 1e-12 * spread
    rows = np.flatnonzero(tied.any(axis=-1))
    if len(rows):
        tie, upto = tied[rows], after[rows]
        edge = np.ones((len(rows), 1), dtype=bool)
        begins = np.concatenate((edge, ~tie), axis=-1)
        finishes = np.concatenate((~tie, edge), axis=-1)
        lower = np.maximum.accumulate(np.where(begins, upto - n[rows], 0.0), axis=-1)
        upper = np.where(finishes, upto, np.inf)
        upper = np.minimum.accumulate(upper[:, ::-1], axis=-1)[:, ::-1]
        ranks[rows] = (lower + upper) / 2 - total[rows] / 2
    return ranks, n


class Score(NamedTuple):
    """ρ and ρ_a, of one shape."""

    rho: FloatArray
    rho_a: FloatArray


def score_patterns(
    predictions: FloatArray,
    counts: FloatArray,
    rank_sums: FloatArray,
    rank_squares: FloatArray,
) -> Score:
    """Spearman ρ between predictions that are constant within a pattern and the pairs' distances.

    Exact: equals `scipy.stats.spearmanr` over the explicit pairs. ρ_a is the mean of ρ over random
    tie-breaks on both sides (the centred average ranks, divided by the spread of untied ranks).
    A prediction with one value, or distances with one value, have ρ = ρ_a = 0.

    Parameters
    ----------
    predictions : (..., n_patterns)
    counts : (n_patterns,) pairs a pattern
    rank_sums : (..., n_patterns), sums of the centred average ranks of the distances
    rank_squares : (...), sum of the squared centred ranks over the pairs

    Returns
    -------
    Score of arrays of shape (...)

    Source: Jalouzot et al. 2024, section 2.3.
    """
    leading = np.broadcast_shapes(predictions.shape[:-1], rank_sums.shape[:-1])
    width = predictions.shape[-1]
    flat = np.broadcast_to(predictions, (*leading, width)).reshape(-1, width)
    sums = np.broadcast_to(rank_sums, (*leading, width)).reshape(-1, width)
    squares = np.broadcast_to(rank_squares, leading).reshape(-1)
    order = np.argsort(flat, axis=-1)
    ranks, n = _sorted_ranks(flat, order, counts)
    covariance = np.einsum("ij,ij->i", ranks, np.take_along_axis(sums, order, axis=-1))
    ranks *= ranks
    spread = np.einsum("ij,ij->i", ranks, n)
    total = float(counts.sum())
    untied = (total**3 - total) / 12
    both = spread * squares
    rho = np.divide(covariance, np.sqrt(both), out=np.zeros_like(covariance), where=both > 0)
    rho_a = covariance / untied if untied > 0 else np.zeros_like(covariance)
    return Score(rho.reshape(leading), rho_a.reshape(leading))
