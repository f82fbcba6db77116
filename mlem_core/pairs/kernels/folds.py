"""Sums and means by fold and pattern, and what sets of features explain, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def fold_sums(
    counts: Array,
    rank_sums: Array,
    pattern: Array,
    block: Array,
    inside: Array,
    outside: Array,
    sums: Array,
) -> None:
    """Sums of cells by pattern inside and outside each fold, ranks centred there.

    Parameters
    ----------
    counts : (n_draws, n_cells) weight of the pairs of each cell
    rank_sums : (n_draws, n_layers, n_cells) sums of their ranks
    pattern, block : (n_cells,) of each cell
    inside, outside : (n_blocks, n_folds) whether a block's pairs are inside a fold, or outside it
    sums : (n_draws, n_patterns, 2, 1 + n_layers, n_folds) filled, see
        `mlem_core.pairs.crossfit`
    """
    n_draws, n_layers, n_cells = rank_sums.shape
    n_patterns, n_rows, n_folds = sums.shape[1], 1 + n_layers, inside.shape[1]
    # Rows last, which are many where there is one draw.
    added = np.empty((n_patterns, 2, n_folds, n_rows))
    own, total = np.empty(n_rows), np.empty((2, n_folds, n_rows))
    for d in range(n_draws):
        added[:] = 0.0
        for c in range(n_cells):
            own[0] = counts[d, c]
            for layer in range(n_layers):
                own[1 + layer] = rank_sums[d, layer, c]
            for k in range(n_folds):
                if outside[block[c], k]:
                    into = added[pattern[c], 1, k]
                elif inside[block[c], k]:
                    into = added[pattern[c], 0, k]
                else:
                    continue
                for row in range(n_rows):
                    into[row] += own[row]
        total[:] = 0.0
        for p in range(n_patterns):
            total += added[p]
        for side in range(2):
            for k in range(n_folds):
                total[side, k, 1:] /= max(total[side, k, 0], 1.0)
        for p in range(n_patterns):
            for side in range(2):
                for k in range(n_folds):
                    pairs = added[p, side, k, 0]
                    sums[d, p, side, 0, k] = pairs
                    for row in range(1, n_rows):
                        sums[d, p, side, row, k] = (
                            added[p, side, k, row] - pairs * total[side, k, row]
                        )


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def explained_by_sets(
    sums: Array,
    begins: Array,
    source: Array,
    edges: Array,
    into: Array,
    coarser: Array,
    explained: Array,
) -> None:
    """What each set of features explains of the products of the ranks of two layers, one way.

    Parameters
    ----------
    sums : (n_draws, n_patterns, 2, 1 + n_layers, n_folds), see `mlem_core.pairs.crossfit`
    begins, source, edges, into, coarser : see `mlem_core.measures.shapley.FeatureSubsets`
    explained : (n_draws, n_sets, n_layers, n_layers) filled: the mean over the folds that have
        pairs of Σ mean of the one layer outside · ranks of the other inside / pairs inside
    """
    n_draws, n_patterns, _, n_rows, n_folds = sums.shape
    n_layers, n_sets = n_rows - 1, len(source)
    n_columns = 2 * n_rows * n_folds
    groups = np.empty((begins[n_sets], 2, n_rows, n_folds))
    flat = groups.reshape(begins[n_sets], n_columns)
    given = sums.reshape(n_draws, n_patterns, n_columns)
    weight, products = np.empty(n_folds), np.empty((n_layers, n_layers, n_folds))
    for d in range(n_draws):
        flat[:] = 0.0
        for p in range(n_patterns):
            own, other = flat[into[p]], given[d, p]
            for c in range(n_columns):
                own[c] += other[c]
        for s in range(1, n_sets):
            first = begins[source[s]]
            for k in range(edges[s + 1] - edges[s]):
                own, other = flat[begins[s] + into[edges[s] + k]], flat[first + k]
                for c in range(n_columns):
                    own[c] += other[c]
        # The last set is that of no features: its one group is all pairs.
        n_used = 0
        for k in range(n_folds):
            pairs = groups[begins[n_sets] - 1, 0, 0, k]
            n_used += pairs > 0
            weight[k] = 1.0 / max(pairs, 1.0) if pairs > 0 else 0.0
        weight /= max(n_used, 1)
        # Smaller sets first: the means of coarser patterns are there when they are needed.
        for s in range(n_sets - 1, -1, -1):
            products[:] = 0.0
            for g in range(begins[s], begins[s + 1]):
                here, there = groups[g, 0], groups[g, 1]
                for k in range(n_folds):
                    if there[0, k] > 0:
                        share = 1.0 / there[0, k]
                        for a in range(n_layers):
                            there[1 + a, k] *= share
                    else:
                        for a in range(n_layers):
                            near = coarser[a, g]
                            there[1 + a, k] = groups[near, 1, 1 + a, k] if near >= 0 else 0.0
                for a in range(n_layers):
                    for b in range(n_layers):
                        for k in range(n_folds):
                            products[a, b, k] += there[1 + a, k] * here[1 + b, k]
            for a in range(n_layers):
                for b in range(n_layers):
                    explained[d, s, a, b] = (products[a, b] * weight).sum()


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
