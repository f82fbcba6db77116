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
def prediction_keys(predictions: Array, units: float, place_bits: int, keys: Array) -> None:
    """Fill keys that sort as predictions do, rounded in so many units of their range.

    The place of each of (n_predictions, n_patterns) is in the low bits of its key.
    """
    for p in range(len(predictions)):
        x = predictions[p]
        low, high = x.min(), x.max()
        span = high - low if high > low else 1.0
        for k in range(len(x)):
            keys[p, k] = (np.int64(np.rint((x[k] - low) / span * units)) << place_bits) | k


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
def pair_moments(
    keys: Array, place_bits: int, layers: Array, rank_sums: Array, moments: Array
) -> None:
    """As `rank_moments` (2, n_predictions), of single pairs, tied where sorted keys agree.

    `layers` (n_predictions,) says whose `rank_sums` (n_layers, n_pairs) each is compared with.
    """
    n, places = keys.shape[1], (1 << place_bits) - 1
    for p in range(len(keys)):
        ascending, ranks = keys[p], rank_sums[layers[p]]
        products, squares, start = 0.0, 0.0, 0
        while start < n:
            tied, total, stop = ascending[start] >> place_bits, 0.0, start
            while stop < n and ascending[stop] >> place_bits == tied:
                total += ranks[ascending[stop] & places]
                stop += 1
            rank = (start + stop - n) / 2
            products += rank * total
            squares += rank * rank * (stop - start)
            start = stop
        moments[0, p], moments[1, p] = products, squares


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def class_moments(
    predictions: Array, n_classes: int, layers: Array, rank_sums: Array, moments: Array
) -> None:
    """As `pair_moments`, of predictions (n_predictions, n_pairs) in classes of equal width."""
    for p in range(len(predictions)):
        x, ranks = predictions[p], rank_sums[layers[p]]
        low, high = x.min(), x.max()
        scale = (n_classes - 1) / (high - low) if high > low else 0.0
        counts, sums = np.zeros(n_classes), np.zeros(n_classes)
        for k in range(len(x)):
            number = int((x[k] - low) * scale)
            counts[number] += 1.0
            sums[number] += ranks[k]
        products, squares, below = 0.0, 0.0, -len(x) / 2
        for number in range(n_classes):
            rank = below + counts[number] / 2
            products += rank * sums[number]
            squares += rank * rank * counts[number]
            below += counts[number]
        moments[0, p], moments[1, p] = products, squares
