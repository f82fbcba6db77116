"""Ranks of the pairs of a layer, and Spearman ρ of predictions, compiled by numba.

A pair is a 64-bit key: its distance, rounded, in the high bits, and its number in the low ones.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

NEGATIVE_ZERO = np.uint64(1 << 63)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def distance_keys(bits: Array, number_bits: int) -> None:
    """Make keys, in place, of distances (n_pairs,) of at least 0, given by their bits (uint64)."""
    dropped = np.uint64(number_bits - 1)
    # To the nearest, not down: a value just below a round one belongs to it.
    half = (np.uint64(1) << dropped) >> np.uint64(1)
    for k in range(len(bits)):
        value = np.uint64(0) if bits[k] == NEGATIVE_ZERO else bits[k]
        bits[k] = (((value + half) >> dropped) << np.uint64(number_bits)) | np.uint64(k)


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def fill_doubled_ranks(keys: Array, number_bits: int, below: int, doubled: Array) -> None:
    """Twice the average ranks (n_pairs,) of pairs, filled for those of some keys.

    `keys` are (n,) sorted; so many pairs are `below` them, and none is tied with them.
    """
    bits, number = np.uint64(number_bits), np.uint64((1 << number_bits) - 1)
    start = 0
    while start < len(keys):
        stop = start + 1
        while stop < len(keys) and keys[stop] >> bits == keys[start] >> bits:
            stop += 1
        for k in range(start, stop):
            doubled[keys[k] & number] = 2 * below + start + stop + 1
        start = stop


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def prediction_keys(predictions: Array, place_bits: int, keys: Array) -> None:
    """Fill keys that sort as the predictions do, the place of each in the low bits.

    predictions, keys : (n_layers, n_predictions, n_patterns)
    """
    n_layers, n_predictions, n = predictions.shape
    for layer in range(n_layers):
        for p in range(n_predictions):
            x, of_prediction = predictions[layer, p], keys[layer, p]
            low, high = x.min(), x.max()
            scale = 2.0 ** (62 - place_bits) / (high - low) if high > low else 0.0
            for k in range(n):
                of_prediction[k] = (np.int64((x[k] - low) * scale) << place_bits) | k


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def rank_moments(
    predictions: Array,
    keys: Array,
    place_bits: int,
    counts: Array,
    rank_sums: Array,
    tie: float,
    moments: Array,
) -> None:
    """Σ of predicted rank x rank and Σ of squared predicted ranks, over the pairs.

    Predictions are constant within a pattern; those closer than `tie` times their range are tied.

    Parameters
    ----------
    predictions, keys : (n_layers, n_predictions, n_patterns), and their sorted keys
    place_bits : low bits of a key, see `prediction_keys`
    counts : (n_patterns,) pairs
    rank_sums : (n_layers, n_patterns) sums of the centred average ranks
    moments : (2, n_layers, n_predictions) filled with both
    """
    n_layers, n_predictions, n = predictions.shape
    lowest, places = -counts.sum() / 2, (1 << place_bits) - 1
    for layer in range(n_layers):
        for p in range(n_predictions):
            x, ascending = predictions[layer, p], keys[layer, p]
            last = x[ascending[0] & places]
            tolerance = tie * (x[ascending[-1] & places] - last)
            below, pairs, ranks, products, squares = lowest, 0.0, 0.0, 0.0, 0.0
            for k in range(n):
                pattern = ascending[k] & places
                if x[pattern] - last > tolerance:
                    rank = below + pairs / 2
                    products += rank * ranks
                    squares += rank * rank * pairs
                    below += pairs
                    pairs, ranks = 0.0, 0.0
                last = x[pattern]
                pairs += counts[pattern]
                ranks += rank_sums[layer, pattern]
            rank = below + pairs / 2
            moments[0, layer, p] = products + rank * ranks
            moments[1, layer, p] = squares + rank * rank * pairs


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def least_costs(cost: Array, total: Array) -> None:
    """Fill the least cost of all warping paths to each two places of two sequences.

    Parameters
    ----------
    cost : (n, m, n_sets) of these two; a step along both sequences counts it twice
    total : (n, m, n_sets) filled
    """
    n, m, n_sets = cost.shape
    for i in range(n):
        for j in range(m):
            for s in range(n_sets):
                cheapest = least = cost[i, j, s]
                if i and j:
                    along_one = min(total[i - 1, j, s], total[i, j - 1, s]) + cheapest
                    least = min(along_one, total[i - 1, j - 1, s] + 2 * cheapest)
                elif i or j:
                    least += total[max(i - 1, 0), max(j - 1, 0), s]
                total[i, j, s] = least
