"""Means of patterns without a pair, from coarser ones, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


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
