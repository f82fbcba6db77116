"""The sweep over a layer's pairs: ranks by cell, among all pairs and among those of each fold."""

from __future__ import annotations

import itertools

import explicit
import numba
import numpy as np
import pytest
from scipy.stats import rankdata

from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.kernels.sweep import LANES, add_lanes
from mlem_core.pairs.layer_sums import layer_sums
from mlem_core.pairs.patterns import PairIndex, left_out
from mlem_core.pairs.ranks import keys_of

N = 150


def distances(kind: str) -> np.ndarray:
    """Squared distances of all pairs: without ties, with short ones, with a long one."""
    values = np.random.default_rng(0).random(N * (N - 1) // 2)
    if kind == "short ties":
        return values.round(3)
    if kind == "a long tie":
        values[: len(values) // 2] = 0.5
    return values


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n_folds", [5, LANES + 2])
@pytest.mark.parametrize("kind", ["no ties", "short ties", "a long tie"])
def test_sums_are_those_of_scipy(kind, n_folds, threads):
    features, squared = explicit.random_features(N), distances(kind)
    index = PairIndex.build(
        feature_columns(features), explicit.random_folds(N, n_folds), missing="level"
    )
    given = squared.copy()
    sums, doubled = layer_sums(index, squared, True, threads=threads)
    np.testing.assert_array_equal(squared, given)
    np.testing.assert_array_equal(doubled, 2 * rankdata(squared))
    np.testing.assert_allclose(sums.target_sums, np.bincount(index.cell, squared))

    def expected(pairs: np.ndarray) -> tuple[np.ndarray, float]:
        ranks = rankdata(squared[pairs]) - (pairs.sum() + 1) / 2
        return np.bincount(index.cell[pairs], ranks, index.n_cells), ranks @ ranks

    block = index.cell_block[index.cell]
    ranks, squares = expected(np.ones(len(squared), dtype=bool))
    np.testing.assert_array_equal(sums.rank_sums, ranks)
    assert sums.rank_squares == pytest.approx(squares)
    out = left_out(n_folds, index.n_blocks)
    for fold in range(n_folds):
        ranks, squares = expected(~out[fold, block])
        np.testing.assert_array_equal(sums.train_sums[fold], ranks)
        assert sums.train_squares[fold] == pytest.approx(squares)
        only = out.sum(axis=0) == 1
        inside = (out[fold] & only)[block]
        ranks, squares = expected(inside)
        at = (out[fold] & only)[index.cell_block]
        np.testing.assert_array_equal(sums.within_sums[at], ranks[at])
        assert sums.within_squares[fold] == pytest.approx(squares)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("train_ranks", [False, True])
@pytest.mark.parametrize("kind", ["no ties", "short ties", "a long tie"])
def test_sums_are_the_same_without_the_ranks_of_pairs(kind, train_ranks, threads, monkeypatch):
    squared = distances(kind)
    index = PairIndex.build(
        feature_columns(explicit.random_features(N)), explicit.random_folds(N, 5), missing="level"
    )
    sums, _ = layer_sums(index, squared, train_ranks)
    alone, doubled = layer_sums(index, squared, train_ranks, ranks=False, threads=threads)
    assert doubled is None
    for name in vars(sums):
        np.testing.assert_array_equal(getattr(alone, name), getattr(sums, name))
    # Sums of targets in parts: by any number of threads the same, and the ends of blocks exact.
    monkeypatch.setattr("mlem_core.pairs.layer_sums.TOGETHER", 1000)
    parts = [layer_sums(index, squared, threads=n)[0] for n in (1, 3)]
    for own in parts:
        np.testing.assert_array_equal(own.target_sums, parts[0].target_sums)
        np.testing.assert_allclose(own.target_sums, sums.target_sums, rtol=1e-12)
        np.testing.assert_array_equal(own.target_low, sums.target_low)
        np.testing.assert_array_equal(own.target_high, sums.target_high)


def test_lanes_are_added_row_to_row():
    @numba.njit
    def added(target, source):
        for i in range(len(target)):
            add_lanes(target, i, source, len(source) - 1 - i)

    rng = np.random.default_rng(0)
    target, source = rng.integers(-(2**62), 2**62, (2, 7, LANES))
    expected = target + source[::-1]
    added(target, source)
    np.testing.assert_array_equal(target, expected)


def test_slices_divide_no_tie():
    keys = keys_of(np.repeat([3.0, 1.0, 2.0, 7.0], [5, 40, 3, 2]))
    values = keys.sorted >> np.uint64(keys.number_bits)
    for n in (1, 2, 3, 7, 60):
        parts = [values[part] for part in keys.slices(n)]
        np.testing.assert_array_equal(np.concatenate(parts), values)
        ends = [part[[0, -1]] for part in parts if len(part)]
        assert all(own[1] < other[0] for own, other in itertools.pairwise(ends))
