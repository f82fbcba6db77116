"""Spearman ρ of predictions that are constant within a pattern, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def to_keys(predictions: Array, place_bits: int, keys: Array) -> None:
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
    place_bits : low bits of a key, see `to_keys`
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
