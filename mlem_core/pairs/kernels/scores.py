"""Spearman ρ of predictions that are constant within a pattern, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


# A prediction that is further from the order of the one before it is sorted afresh.
MOST_MOVES = 8


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def rank_moments(
    predictions: Array,
    leaders: Array,
    counts: Array,
    rank_sums: Array,
    tie: float,
    covariance: Array,
    spread: Array,
) -> None:
    """Σ of predicted rank x rank and Σ of squared predicted ranks, over the pairs.

    Predictions are constant within a pattern; those closer than `tie` times their range are tied.

    Parameters
    ----------
    predictions : (n_layers, n_predictions, n_patterns) in series of predictions that order the
        patterns nearly alike, so that a few moves sort the next one
    leaders : (n_layers, n_series, n_patterns) the order of the first prediction of each series
    counts : (n_patterns,) pairs
    rank_sums : (n_layers, n_patterns) sums of the centred average ranks
    covariance, spread : (n_layers, n_predictions), filled
    """
    n_layers, n_predictions, n = predictions.shape
    series = n_predictions // leaders.shape[1]
    total = counts.sum()
    order = np.empty(n, dtype=np.int64)
    for layer in range(n_layers):
        for p in range(n_predictions):
            x = predictions[layer, p]
            if p % series == 0:
                order[:] = leaders[layer, p // series]
            else:
                moves = 0
                for k in range(1, n):
                    pattern, j = order[k], k
                    while j > 0 and x[order[j - 1]] > x[pattern]:
                        order[j] = order[j - 1]
                        j -= 1
                    order[j] = pattern
                    moves += k - j
                    if moves > MOST_MOVES * n:
                        order[:] = np.argsort(x)
                        break
            tolerance = tie * (x[order[n - 1]] - x[order[0]])
            below, pairs, ranks = -total / 2, 0.0, 0.0
            products, squares = 0.0, 0.0
            last = x[order[0]]
            for k in range(n):
                pattern = order[k]
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
            covariance[layer, p] = products + rank * ranks
            spread[layer, p] = squares + rank * rank * pairs


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def cell_scores(
    pattern: Array,
    level: Array,
    begins: Array,
    counts: Array,
    sums: Array,
    shares: Array,
    squares: Array,
    scores: Array,
) -> None:
    """Spearman ρ, draw by draw, of predictions that are constant within a cell.

    A cell is a pattern and a level; it has the share of that level of the pattern's pairs.

    Parameters
    ----------
    pattern, level : (n_cells,) of the cells in ascending order of their prediction
    begins : (n_cells,) whether the cell's prediction is higher than that of the one before
    counts : (n_draws, n_patterns) pairs
    sums : (n_draws, n_patterns) sums of the centred ranks of the distances
    shares : (n_draws, n_levels), each row sums to 1
    squares : (n_draws,) sum of the squared ranks of the distances
    scores : (n_draws,) filled
    """
    n_cells = len(pattern)
    for d in range(len(counts)):
        below = -counts[d].sum() / 2
        covariance = spread = tied = together = 0.0
        for c in range(n_cells + 1):
            if c == n_cells or begins[c]:
                rank = below + tied / 2
                covariance += rank * together
                spread += rank * rank * tied
                below += tied
                tied = together = 0.0
            if c < n_cells:
                share = shares[d, level[c]]
                tied += counts[d, pattern[c]] * share
                together += sums[d, pattern[c]] * share
        both = spread * squares[d]
        scores[d] = covariance / np.sqrt(both) if both > 0 else 0.0
