"""Loops that NumPy has no call for, compiled by numba (imported on first use)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _row(
    a: int, kept: Array, group: Array, own: Array, n_stimuli: int, at: Array, w: Array
) -> None:
    """Where the pairs of the a-th kept stimulus with later ones stand, and their weights."""
    i = kept[a]
    start = i * n_stimuli - i * (i + 1) // 2 - i - 1
    for b in range(a + 1, len(kept)):
        at[b] = start + kept[b]
        w[b] = own[a] if group[b] == group[a] else own[a] * own[b]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _to_ranks(weights: Array, total: float) -> float:
    """Turn the weight of each class into its centred average rank; Σ of the squared ranks."""
    below, squares = -total / 2, 0.0
    for c in range(len(weights)):
        tied = weights[c]
        rank = below + tied / 2
        weights[c] = rank
        below += tied
        squares += tied * rank * rank
    return squares


# boundscheck off, no fastmath: sums are in one order, so a result does not depend on threads.
@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def weighted_pairs(
    weights: Array,
    groups: Array,
    cells: Array,
    classes: Array,
    n_classes: int,
    counts: Array,
    sums: Array,
    squares: Array,
    products: Array,
) -> float:
    """Sums over the pairs of stimuli when each group of stimuli counts so often.

    A pair of two groups counts weights[g] x weights[h] times, one inside a group weights[g] times:
    a copy of a group is never paired with another copy of it. Ranks are those among the weighted
    pairs, centred; equal classes are ties.

    Parameters
    ----------
    weights : (n_groups,) float64, at least 0
    groups : (n_stimuli,) int64 the group of each stimulus
    cells : (n_pairs,) int32 the pattern of each pair, in condensed order
    classes : (n_layers, n_pairs) uint16, in the order of the layer's distances
    n_classes : one more than the highest class
    counts : (n_patterns,) zeros, filled with the weight of each pattern
    sums : (n_layers, n_patterns) zeros, filled with sums of ranks
    squares : (n_layers,) zeros, filled with sums of squared ranks
    products : (n_layers, n_layers) zeros, filled with sums of products of ranks of two layers; or
        (0, 0) where they are not wanted

    Returns the weight of all pairs.
    """
    n_stimuli, n_layers = len(groups), len(classes)
    kept = np.flatnonzero(weights[groups] > 0)
    n = len(kept)
    group = groups[kept]
    own = weights[group]
    rank = np.zeros((n_layers, n_classes))
    at = np.empty(n, dtype=np.int64)
    w = np.empty(n)
    total = 0.0
    for a in range(n - 1):
        _row(a, kept, group, own, n_stimuli, at, w)
        for b in range(a + 1, n):
            total += w[b]
            counts[cells[at[b]]] += w[b]
        for layer in range(n_layers):
            for b in range(a + 1, n):
                rank[layer, classes[layer, at[b]]] += w[b]
    for layer in range(n_layers):
        squares[layer] = _to_ranks(rank[layer], total)
    together = len(products) > 0
    row = np.empty((n_layers, n))
    for a in range(n - 1):
        _row(a, kept, group, own, n_stimuli, at, w)
        for layer in range(n_layers):
            for b in range(a + 1, n):
                row[layer, b] = rank[layer, classes[layer, at[b]]]
            for b in range(a + 1, n):
                sums[layer, cells[at[b]]] += w[b] * row[layer, b]
        if together:
            for one in range(n_layers):
                for other in range(one + 1, n_layers):
                    product = 0.0
                    for b in range(a + 1, n):
                        product += row[one, b] * row[other, b] * w[b]
                    products[one, other] += product
    if together:
        for one in range(n_layers):
            products[one, one] = squares[one]
            for other in range(one):
                products[one, other] = products[other, one]
    return total


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def group_sums(group: Array, values: Array, sums: Array) -> None:
    """Sums of values (m, n) by the group (n,) of their column, added to sums (m, n_groups)."""
    for row in range(len(values)):
        for k in range(len(group)):
            sums[row, group[k]] += values[row, k]


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


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def permuted_sums(labels: Array, cells: Array, values: Array, sums: Array) -> None:
    """Sums of the pairs' values by cell when stimuli have the labels of others.

    Parameters
    ----------
    labels : (n_stimuli,) whose labels each stimulus has
    cells : (n_pairs,) the cell of each pair of labels, in condensed order
    values : (n_values, n_pairs)
    sums : (n_values, n_cells) zeros, filled
    """
    n, at = len(labels), 0
    for i in range(n - 1):
        for j in range(i + 1, n):
            a, b = min(labels[i], labels[j]), max(labels[i], labels[j])
            cell = cells[a * n - a * (a + 1) // 2 - a - 1 + b]
            for v in range(len(values)):
                sums[v, cell] += values[v, at]
            at += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def weighted_sums(
    weights: Array, groups: Array, cells: Array, values: Array, counts: Array, sums: Array
) -> None:
    """Weights, and sums of the pairs' values, by cell; pairs are weighted as in `weighted_pairs`.

    Parameters
    ----------
    weights, groups, cells : as in `weighted_pairs`
    values : (n_values, n_pairs)
    counts : (n_cells,) zeros, filled
    sums : (n_values, n_cells) zeros, filled
    """
    kept = np.flatnonzero(weights[groups] > 0)
    group = groups[kept]
    own = weights[group]
    at = np.empty(len(kept), dtype=np.int64)
    w = np.empty(len(kept))
    for a in range(len(kept) - 1):
        _row(a, kept, group, own, len(groups), at, w)
        for b in range(a + 1, len(kept)):
            counts[cells[at[b]]] += w[b]
        for v in range(len(values)):
            for b in range(a + 1, len(kept)):
                sums[v, cells[at[b]]] += w[b] * values[v, at[b]]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _runs(shared: Array, depth: int, first: Array, last: Array) -> None:
    """Where the rows that agree with each row in `depth` leading columns begin and end."""
    n = len(first)
    for i in range(n):
        first[i] = i if shared[i] < depth else first[i - 1]
    for i in range(n - 1, -1, -1):
        last[i] = i + 1 if shared[i + 1] < depth else last[i + 1]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def leading_alike(codes: Array, place: Array, order: Array, shared: Array) -> None:
    """In how many leading codes each row agrees with the one before it.

    Parameters
    ----------
    codes : (n, n_codes) distinct rows
    place : (n,) the order of the rows
    order : (n_codes,) the order of their codes
    shared : (n + 1,) filled but for both ends
    """
    for i in range(1, len(place)):
        n = 0
        while n < len(order) and codes[place[i], order[n]] == codes[place[i - 1], order[n]]:
            n += 1
        shared[i] = n


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def fill_missing(
    place: Array,
    shared: Array,
    n_codes: int,
    layers: Array,
    sums: Array,
    missing: Array,
    means: Array,
) -> None:
    """Give patterns without a pair the mean of the longest leading part of theirs that has pairs.

    Parameters
    ----------
    place : (n_patterns,) the patterns in the order of their codes, the first code counting most
    shared : (n_patterns + 1,) in how many leading codes each agrees with the one before it in that
        order; -1 at both ends
    n_codes : of a pattern
    layers : (n_chosen,) int64 the layers to look at
    sums : (n_patterns, 2, 1 + n_layers, n_columns) see `mlem_core.pairs.crossfit`; [:, 1] counts
    missing : (n_patterns, n_columns) which means to fill in
    means : (n_patterns, n_layers, n_columns) filled in place
    """
    n, n_columns = missing.shape
    # The longest leading part that a pattern shares with one that has pairs: such patterns nearest
    # to it in the order, before and after, share most.
    depth = np.empty((n, n_columns), dtype=np.int32)
    reach = np.full(n_columns, -1, dtype=np.int32)
    for i in range(n):
        for c in range(n_columns):
            reach[c] = min(reach[c], shared[i])
            depth[i, c] = reach[c]
            if sums[place[i], 1, 0, c] > 0:
                reach[c] = n_codes
    reach[:] = -1
    for i in range(n - 1, -1, -1):
        for c in range(n_columns):
            reach[c] = min(reach[c], shared[i + 1])
            depth[i, c] = max(depth[i, c], reach[c])
            if sums[place[i], 1, 0, c] > 0:
                reach[c] = n_codes
    upto = np.zeros((n + 1, 1 + len(layers), n_columns))
    for i in range(n):
        own = sums[place[i], 1]
        for c in range(n_columns):
            upto[i + 1, 0, c] = upto[i, 0, c] + own[0, c]
        for a in range(len(layers)):
            for c in range(n_columns):
                upto[i + 1, 1 + a, c] = upto[i, 1 + a, c] + own[1 + layers[a], c]
    # The means to fill in, by the length of their leading part.
    begins = np.zeros(n_codes + 1, dtype=np.int64)
    for i in range(n):
        for c in range(n_columns):
            if missing[place[i], c] and depth[i, c] >= 0:
                begins[depth[i, c] + 1] += 1
    begins = np.cumsum(begins)
    row, column = np.empty(begins[-1], dtype=np.int64), np.empty(begins[-1], dtype=np.int64)
    at = begins.copy()
    for i in range(n):
        for c in range(n_columns):
            d = depth[i, c]
            if missing[place[i], c] and d >= 0:
                row[at[d]], column[at[d]] = i, c
                at[d] += 1
    first, last = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for d in range(n_codes):
        if begins[d] == begins[d + 1]:
            continue
        _runs(shared, d, first, last)
        for k in range(begins[d], begins[d + 1]):
            i, c = row[k], column[k]
            low, high = first[i], last[i]
            pairs = upto[high, 0, c] - upto[low, 0, c]
            for a in range(len(layers)):
                ranks = upto[high, 1 + a, c] - upto[low, 1 + a, c]
                means[place[i], layers[a], c] = ranks / pairs
