"""Sums over weighted or relabelled pairs of stimuli, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Stimulus, starts and partner of the rows of a `mlem_core.pairs.designs.PairDesign`.
_Rows = tuple[Array, Array, Array]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _row(
    row: int, design: _Rows, kept: Array, weights: Array, groups: Array, at: Array, w: Array
) -> int:
    """Places of the pairs of a row of the design that count, and their weights; how many.

    `kept` are the stimuli whose group counts, ascending.
    """
    stimulus, starts, partner = design
    i, n = stimulus[row], 0
    group, own = groups[i], weights[groups[i]]
    if own == 0.0:
        return 0
    if len(partner) == 0:
        # All pairs: those with the later stimuli that count, without a look at the others.
        begin = np.searchsorted(kept, i) + 1
        for b in range(begin, len(kept)):
            other = groups[kept[b]]
            at[n] = starts[row] + kept[b] - i - 1
            w[n] = own if other == group else own * weights[other]
            n += 1
        return n
    for k in range(starts[row], starts[row + 1]):
        other = groups[partner[k]]
        if weights[other] > 0.0:
            at[n] = k
            w[n] = own if other == group else own * weights[other]
            n += 1
    return n


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
    design: _Rows,
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
    design : `rows` of the `mlem_core.pairs.designs.PairDesign` whose pairs these are
    weights : (n_groups,) float64, at least 0
    groups : (n_stimuli,) int64 the group of each stimulus
    cells : (n_pairs,) int32 the pattern of each pair
    classes : (n_layers, n_pairs) uint16, in the order of the layer's distances
    n_classes : one more than the highest class
    counts : (n_patterns,) zeros, filled with the weight of each pattern
    sums : (n_layers, n_patterns) zeros, filled with sums of ranks
    squares : (n_layers,) zeros, filled with sums of squared ranks
    products : (n_layers, n_layers) zeros, filled with sums of products of ranks of two layers; or
        (0, 0) where they are not wanted

    Returns the weight of all pairs.
    """
    n_layers, n_rows = len(classes), len(design[0])
    kept = np.flatnonzero(weights[groups] > 0)
    widest = np.max(np.diff(design[1]))
    rank = np.zeros((n_layers, n_classes))
    at = np.empty(widest, dtype=np.int64)
    w = np.empty(widest)
    total = 0.0
    for a in range(n_rows):
        n = _row(a, design, kept, weights, groups, at, w)
        for b in range(n):
            total += w[b]
            counts[cells[at[b]]] += w[b]
        for layer in range(n_layers):
            for b in range(n):
                rank[layer, classes[layer, at[b]]] += w[b]
    for layer in range(n_layers):
        squares[layer] = _to_ranks(rank[layer], total)
    together = len(products) > 0
    row = np.empty((n_layers, widest))
    for a in range(n_rows):
        n = _row(a, design, kept, weights, groups, at, w)
        for layer in range(n_layers):
            for b in range(n):
                row[layer, b] = rank[layer, classes[layer, at[b]]]
            for b in range(n):
                sums[layer, cells[at[b]]] += w[b] * row[layer, b]
        if together:
            for one in range(n_layers):
                for other in range(one + 1, n_layers):
                    product = 0.0
                    for b in range(n):
                        product += row[one, b] * row[other, b] * w[b]
                    products[one, other] += product
    if together:
        for one in range(n_layers):
            products[one, one] = squares[one]
            for other in range(one):
                products[one, other] = products[other, one]
    return total


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def weighted_two(
    design: _Rows,
    weights: Array,
    groups: Array,
    cells: Array,
    classes: Array,
    n_classes: int,
    out: Array,
    squares: Array,
    products: Array,
) -> float:
    """`weighted_pairs` of two layers: what is looked up for a pair lies together.

    Parameters
    ----------
    classes : (n_pairs, 2) uint16
    out : (n_patterns, 4) zeros, filled with the weight of each pattern, the sums of ranks in each
        layer, and nothing: a row is a part of one line of the cache
    """
    kept = np.flatnonzero(weights[groups] > 0)
    widest = np.max(np.diff(design[1]))
    at, w = np.empty(widest, dtype=np.int64), np.empty(widest)
    first, second = np.zeros(n_classes), np.zeros(n_classes)
    total, product = 0.0, 0.0
    for a in range(len(design[0])):
        n = _row(a, design, kept, weights, groups, at, w)
        for b in range(n):
            total += w[b]
            first[classes[at[b], 0]] += w[b]
            second[classes[at[b], 1]] += w[b]
    squares[0], squares[1] = _to_ranks(first, total), _to_ranks(second, total)
    for a in range(len(design[0])):
        n = _row(a, design, kept, weights, groups, at, w)
        for b in range(n):
            pair, times = at[b], w[b]
            x, y, cell = first[classes[pair, 0]], second[classes[pair, 1]], cells[pair]
            out[cell, 0] += times
            out[cell, 1] += times * x
            out[cell, 2] += times * y
            product += times * x * y
    if len(products) > 0:
        products[0, 0], products[1, 1] = squares
        products[0, 1] = products[1, 0] = product
    return total


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def gone_sums(
    design: _Rows, gone: Array, cells: Array, values: Array, counts: Array, sums: Array
) -> None:
    """Number of pairs with a stimulus that is gone, and sums of their values, by cell.

    Parameters
    ----------
    design : as in `weighted_pairs`
    gone : (n_stimuli,) bool
    cells : (n_pairs,) the cell of each pair
    values : (n_values, n_pairs)
    counts : (n_cells,) zeros, filled
    sums : (n_values, n_cells) zeros, filled
    """
    stimulus, starts, partner = design
    left, at = np.flatnonzero(gone), np.empty(np.max(np.diff(starts)), dtype=np.int64)
    for row in range(len(stimulus)):
        i, n = stimulus[row], 0
        if gone[i]:
            n = starts[row + 1] - starts[row]
            at[:n] = np.arange(starts[row], starts[row + 1])
        elif len(partner) == 0:
            for b in range(np.searchsorted(left, i), len(left)):
                at[n] = starts[row] + left[b] - i - 1
                n += 1
        else:
            for k in range(starts[row], starts[row + 1]):
                if gone[partner[k]]:
                    at[n] = k
                    n += 1
        for b in range(n):
            counts[cells[at[b]]] += 1.0
        for v in range(len(values)):
            for b in range(n):
                sums[v, cells[at[b]]] += values[v, at[b]]


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
def relabelled_keys(
    givers: Array, values: Array, codes: Array, width: int, base: Array, cells: Array, keys: Array
) -> None:
    """The cell of each pair when stimuli take the values that others have of one feature.

    Parameters
    ----------
    givers : (n_stimuli,) whose value each stimulus takes
    values, codes : see `mlem_core.pairs.columns.Coded`; the codes row by row, `width` to a row, and
        none (0) where values are equal or not
    base : (n_cells,) what the block and the other features of a cell add to the key
    cells : (n_pairs,) the cell of each pair, in condensed order
    keys : (n_pairs,) filled
    """
    n, at = len(givers), 0
    for i in range(n - 1):
        a = values[givers[i]]
        for j in range(i + 1, n):
            b = values[givers[j]]
            if width:
                code = codes[a * width + b]
            else:
                code = int(a != b and a >= 0 and b >= 0)
            keys[at] = base[cells[at]] + code
            at += 1
