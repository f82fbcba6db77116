"""Spearman ρ of predictions that are constant within a pattern, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def rank_moments(
    predictions: Array, order: Array, counts: Array, rank_sums: Array, tie: float, moments: Array
) -> None:
    """Σ of predicted rank x rank and Σ of squared predicted ranks, over the pairs.

    Predictions are constant within a pattern; those closer than `tie` times their range are tied.

    Parameters
    ----------
    predictions, order : (n_layers, n_predictions, n_patterns), and their ascending order
    counts : (n_patterns,) pairs
    rank_sums : (n_layers, n_patterns) sums of the centred average ranks
    moments : (2, n_layers, n_predictions) filled with both
    """
    n_layers, n_predictions, n = predictions.shape
    lowest = -counts.sum() / 2
    for layer in range(n_layers):
        for p in range(n_predictions):
            x, place = predictions[layer, p], order[layer, p]
            last = x[place[0]]
            tolerance = tie * (x[place[-1]] - last)
            below, pairs, ranks, products, squares = lowest, 0.0, 0.0, 0.0, 0.0
            for k in range(n):
                pattern = place[k]
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
def rank_correlations(values: Array, truth: Array, tie: float, found: Array) -> None:
    """Spearman ρ of numbers with others.

    Parameters
    ----------
    values : (n_sets, m, n); those closer than `tie` are tied
    truth : (n_sets, n), in which as close ones are tied too
    found : (n_sets, m) filled; 0 where all of one are tied
    """
    n_sets, m, n = values.shape
    ranks, own = np.empty(n), np.empty(n)
    for s in range(n_sets):
        spread = _centred_ranks(truth[s], tie, ranks)
        for k in range(m):
            product, squares = 0.0, _centred_ranks(values[s, k], tie, own)
            for i in range(n):
                product += own[i] * ranks[i]
            scale = np.sqrt(squares * spread)
            found[s, k] = product / scale if scale > 0 else 0.0


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _centred_ranks(x: Array, tie: float, ranks: Array) -> float:
    """Fill ranks of numbers less their mean, those of ties their mean; the sum of their squares."""
    order, n = np.argsort(x), len(x)
    total, first = 0.0, 0
    while first < n:
        last = first
        while last + 1 < n and x[order[last + 1]] - x[order[last]] <= tie:
            last += 1
        rank = (first + last - (n - 1)) / 2
        for place in range(first, last + 1):
            ranks[order[place]] = rank
        total += (last - first + 1) * rank**2
        first = last + 1
    return total


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
                own = least = cost[i, j, s]
                if i and j:
                    along_one = min(total[i - 1, j, s], total[i, j - 1, s]) + own
                    least = min(along_one, total[i - 1, j - 1, s] + 2 * own)
                elif i or j:
                    least += total[max(i - 1, 0), max(j - 1, 0), s]
                total[i, j, s] = least
