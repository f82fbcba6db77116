"""Average ranks, of the pairs of a layer and of predictions that are constant within a pattern."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import each
from mlem_core.base.typing import FloatArray

# Predictions that differ by less than this part of their range differ only in how the sum was
# rounded: they are ties.
TIE = 1e-12
# Predictions that are looked at together.
AT_ONCE = 2**17
NO_CELLS = np.empty(0, dtype=np.int32)


class Keys(NamedTuple):
    """The pairs of a layer, or some of them, in ascending order of their distance.

    sorted : (n,) 64-bit keys: the distance in the high bits, the number of the pair or its cell in
        the low ones
    number_bits : how many low bits are the number
    """

    sorted: NDArray[np.uint64]
    number_bits: int

    def slices(self, n: int) -> list[slice]:
        """Cut into about n parts of the same size, no tie divided."""
        keys, bits = self.sorted, np.uint64(self.number_bits)
        edges = [0]
        for edge in np.linspace(0, len(keys), n + 1).astype(int)[1:-1]:
            above = ((keys[edge - 1] >> bits) + np.uint64(1)) << bits
            edges.append(max(edges[-1], int(np.searchsorted(keys, above))))
        return [slice(*ends) for ends in itertools.pairwise([*edges, len(keys)])]


def bits_dropped(n_pairs: int) -> int:
    """How many low bits of the distances of so many pairs are rounded away, see `keys_of`."""
    return max(1, (n_pairs - 1).bit_length()) - 1


def keys_of(
    distances: FloatArray,
    overwrite: bool = False,
    threads: int = 1,
    cells: NDArray[np.int32] = NO_CELLS,
) -> Keys:
    """Sort the pairs of a layer by distance.

    The number of a pair goes into the low bits of a 64-bit key and its distance, rounded to the
    bits that are left, into the high ones, so that one sort (vectorised in NumPy) does the work of
    a slower argsort. 2 million pairs leave 32 bits of mantissa: distances that differ by less than
    a relative 2e-10, which is finer than any model computes, are ties (as they should be where only
    the order of summation tells them apart).

    Parameters
    ----------
    distances : (n_pairs,), may be squared; of at least 0
    overwrite : their memory may be used for the keys
    cells : (n_pairs,) what the keys hold instead of the number of a pair, below n_pairs
    """
    from mlem_core.pairs.kernels.sweep import to_keys

    number_bits = bits_dropped(len(distances)) + 1
    keys = (distances if overwrite else distances.copy()).view(np.uint64)
    to_keys(keys, number_bits, cells)
    edges = np.linspace(0, len(keys), threads + 1).astype(int)
    keys.partition(edges[1:-1])
    each(lambda ends: keys[slice(*ends)].sort(), itertools.pairwise(edges), threads)
    return Keys(keys, number_bits)


def pair_ranks(
    distances: FloatArray, overwrite: bool = False, threads: int = 1
) -> NDArray[np.uint32]:
    """Twice the average ranks (1-based) of distances (n_pairs,): whole numbers, so exact.

    What is tied, and the parameters: see `keys_of`.
    """
    return doubled_ranks(keys_of(distances, overwrite, threads), threads)


def doubled_ranks(keys: Keys, threads: int = 1) -> NDArray[np.uint32]:
    """(n_pairs,) twice the average ranks, from the keys of all pairs."""
    from mlem_core.pairs.kernels import sweep

    doubled = np.empty(len(keys.sorted), dtype=np.uint32)

    def fill(part: slice) -> None:
        sweep.doubled_ranks(keys.sorted[part], keys.number_bits, part.start, doubled)

    each(fill, keys.slices(threads), threads)
    return doubled


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
    from mlem_core.pairs.kernels.scores import rank_moments

    covariance, spread = np.zeros((2, *predictions.shape[:2]))
    if predictions.size:
        predictions, sums = np.ascontiguousarray(predictions), np.ascontiguousarray(rank_sums)
        leaders = np.argsort(predictions[:, ::series], axis=-1)
        rank_moments(predictions, leaders, counts, sums, TIE, covariance, spread)
        layer, p = np.nonzero(np.isnan(covariance))
        if len(layer):
            far, found = predictions[layer, p][:, None], np.zeros((2, len(layer), 1))
            rank_moments(far, np.argsort(far, axis=-1), counts, sums[layer], TIE, *found)
            covariance[layer, p], spread[layer, p] = found[:, :, 0]
    total = float(counts.sum())
    untied = (total**3 - total) / 12
    both = spread * rank_squares[:, None]
    rho = np.divide(covariance, np.sqrt(both), out=np.zeros_like(covariance), where=both > 0)
    return Score(rho, covariance / untied if untied > 0 else np.zeros_like(covariance))


def few_at_once(n: int, each: int) -> list[slice]:
    """Cut n things of so many numbers each into parts whose numbers stay in a processor's cache."""
    step = max(1, AT_ONCE // max(each, 1))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


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
