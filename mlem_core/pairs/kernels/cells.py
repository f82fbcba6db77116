"""Patterns and cells of pairs of stimuli, and sums and means by them, compiled by numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Stimulus, starts and partner of the rows of a `mlem_core.pairs.designs.PairDesign`.
_Rows = tuple[Array, Array, Array]
# Spreads keys over the slots (the golden ratio's fraction in 64 bits).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Differences(NamedTuple):
    """Tables by which two stimuli's values become the key of a pattern: a sum over the features.

    values : (n_stimuli, n_features) int64 the number of each value; in a feature without a table,
        below 0 where it is missing and says nothing
    width : (n_features,) int64 side of a feature's table; 0 where values are only equal or not
    start : (n_features,) int64 where its table begins
    terms : (n,) int64 the tables one after the other, row by row: what two values add
    differ : (n_features,) int64 what two values that differ add where there is no table
    """

    values: Array
    width: Array
    start: Array
    terms: Array
    differ: Array


class Lookup(NamedTuple):
    """Lookup of the pattern and the cell of any two stimuli that some pair of the index is like.

    differences : of the stimuli
    keys, pattern : (n_slots,) int64 and int32; n_slots is a power of 2, pattern below 0 where a
        slot is empty
    part : (n_stimuli,) int64 which folds a stimulus belongs to
    offset : (n_parts, n_parts) int64 block of every two parts, times the number of patterns
    item, same : (n_stimuli,) int64 item of each stimulus, and (n_parts,) int64 as `offset`, of the
        pairs of one item in a part
    number : (n_blocks · n_patterns,) int32 number of the cell
    """

    differences: Differences
    keys: Array
    pattern: Array
    part: Array
    offset: Array
    item: Array
    same: Array
    number: Array


@numba.njit(nogil=True, cache=True, inline="always")  # type: ignore[untyped-decorator, unused-ignore]
def _slot_of(key: int, keys: Array, pattern: Array) -> Any:
    """Slot where a key stands, or would."""
    mask = len(keys) - 1
    slot = np.int64((np.uint64(key) * _SPREAD) >> np.uint64(20)) & mask
    while pattern[slot] >= 0 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def number_patterns(
    rows: _Rows, differences: Differences, keys: Array, pattern: Array, first: Array, found: Array
) -> int:
    """The pattern of each pair, by number; new ones are numbered in the order they are met in.

    Parameters
    ----------
    rows : of a `mlem_core.pairs.designs.PairDesign`
    keys, pattern : (n_slots,) see `Lookup`, with the patterns that are known; filled
    first : (limit, 2) int64, filled with the two stimuli of the first pair of each new pattern
    found : (n_pairs,) int32, filled with the number of each pair

    Returns the number of new patterns; limit + 1 as soon as there are more.
    """
    stimulus, starts, partner = rows
    n, complete = 0, len(partner) == 0
    values, width, start, terms, differ = differences
    for row in range(len(stimulus)):
        i = stimulus[row]
        for k in range(starts[row], starts[row + 1]):
            j = i + 1 + k - starts[row] if complete else partner[k]
            key = 0
            for f in range(values.shape[1]):
                a, b = values[i, f], values[j, f]
                if width[f] > 0:
                    key += terms[start[f] + a * width[f] + b]
                elif a != b and a >= 0 and b >= 0:
                    key += differ[f]
            slot = _slot_of(key, keys, pattern)
            if pattern[slot] < 0:
                if n == len(first):
                    return n + 1
                keys[slot], pattern[slot] = key, n
                first[n, 0], first[n, 1] = i, j
                n += 1
            found[k] = pattern[slot]
    return n


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def place_patterns(numbered: Array, keys: Array, pattern: Array) -> None:
    """Fill the slots, all empty, with the patterns of these keys, in their order."""
    for number in range(len(numbered)):
        slot = _slot_of(numbered[number], keys, pattern)
        keys[slot], pattern[slot] = numbered[number], number


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def place_pairs(rows: _Rows, look: Lookup, found: Array, counts: Array) -> None:
    """Count the pairs of each block and pattern; or, once these have numbers, find their cells.

    Parameters
    ----------
    found : (n_pairs,) int32 pattern of each pair; where there is nothing to count into, its cell
        takes its place
    counts : (n_blocks · n_patterns,) int64 zeros, filled, `look.number` not being used; or (0,)
    """
    stimulus, starts, partner = rows
    complete, count = len(partner) == 0, len(counts) > 0
    for row in range(len(stimulus)):
        i = stimulus[row]
        part, item = look.part[i], look.item[i]
        offset, same = look.offset[part], look.same[part]
        for k in range(starts[row], starts[row + 1]):
            j = i + 1 + k - starts[row] if complete else partner[k]
            of_item = look.item[j] == item and look.part[j] == part
            at = (same if of_item else offset[look.part[j]]) + found[k]
            if count:
                counts[at] += 1
            else:
                found[k] = look.number[at]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def group_sums(group: Array, values: Array, sums: Array) -> None:
    """Sums of values (n,) by their group (n,), added to sums (n_groups,)."""
    for k in range(len(group)):
        sums[group[k]] += values[k]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def fold_sums(
    counts: Array, rank_sums: Array, pattern: Array, block: Array, side_of: Array, sums: Array
) -> None:
    """Sums of cells by pattern inside and outside each fold, ranks centred there.

    Parameters
    ----------
    counts : (n_draws, n_cells) weight of the pairs of each cell
    rank_sums : (n_draws, n_layers, n_cells) sums of their ranks
    pattern, block : (n_cells,) of each cell
    side_of : (n_blocks, n_folds) whether a block's pairs are inside a fold, 0, outside it, 1, or
        neither, below 0
    sums : (n_draws, n_patterns, 2, 1 + n_layers, n_folds) filled, see
        `mlem_core.pairs.crossfit`
    """
    n_draws, n_layers, n_cells = rank_sums.shape
    n_patterns, n_rows, n_folds = sums.shape[1], 1 + n_layers, side_of.shape[1]
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
                side = side_of[block[c], k]
                if side < 0:
                    continue
                into = added[pattern[c], side, k]
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
def explained_by_sets(sums: Array, sets: tuple[Array, ...], explained: Array) -> None:
    """Part of the products of two layers' ranks that each set of features explains, one way.

    Parameters
    ----------
    sums : (n_draws, n_patterns, 2, 1 + n_layers, n_folds), see `mlem_core.pairs.crossfit`
    sets : begins, source, edges, into, coarser of `mlem_core.measures.shapley.FeatureSubsets`
    explained : (n_draws, n_sets, n_layers, n_layers) filled: the mean over the folds that have
        pairs of Σ mean of the one layer outside · ranks of the other inside / pairs inside
    """
    begins, source, edges, into, coarser = sets
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
    """First and last row of those that agree with each row in `depth` leading columns."""
    n = len(first)
    for i in range(n):
        first[i] = i if shared[i] < depth else first[i - 1]
    for i in range(n - 1, -1, -1):
        last[i] = i + 1 if shared[i + 1] < depth else last[i + 1]


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def leading_alike(codes: Array, place: Array, order: Array, shared: Array) -> None:
    """Number of leading codes in which each row agrees with the one before it.

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
