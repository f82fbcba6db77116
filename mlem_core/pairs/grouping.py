"""Groups of equal rows, and sums over them."""

from __future__ import annotations

import math

import numpy as np

from mlem_core.base.typing import FloatArray, IntArray


def group_rows(codes: IntArray) -> tuple[IntArray, IntArray]:
    """The first of each distinct row of codes (n_rows, n_columns) >= 0, and each row's group."""
    if codes.shape[1] == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(len(codes), dtype=np.int64)
    sizes = codes.max(axis=0, initial=0) + 1
    total = np.prod(sizes.astype(object))
    if total >= 2**62:
        # Too many combinations to number: sums of random 64-bit numbers distinguish them.
        rng = np.random.default_rng(0)
        terms = [rng.integers(-(2**62), 2**62, size) for size in sizes]
        keys = np.zeros(len(codes), dtype=np.int64)
        for term, column in zip(terms, codes.T, strict=True):
            keys += term[column]
    else:
        keys = codes @ np.concatenate(([1], np.cumprod(sizes[:-1])))
    if total <= max(len(codes), 2**16):
        # Few enough to look up: several times faster than sorting.
        at = np.full(int(total), -1)
        at[keys[::-1]] = np.arange(len(keys))[::-1]
        present = at >= 0
        return at[present], (np.cumsum(present) - 1)[keys]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.astype(np.int64)


def group_sums_of_columns(group: IntArray, values: FloatArray) -> FloatArray:
    """Sums (..., n_groups) of values (..., n) by the group (n,), from 0 on, of each column."""
    n_groups = int(group.max(initial=-1)) + 1
    rows = np.asarray(values, dtype=np.float64).reshape(math.prod(values.shape[:-1]), len(group))
    sums = [np.bincount(group, row, n_groups) for row in rows]
    return np.reshape(np.array(sums, dtype=np.float64), (*values.shape[:-1], n_groups))
