"""Incomplete designs of pairs: balanced, independent, and indexed as the pairs that they are."""

from __future__ import annotations

import itertools

import explicit
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlem_core.base.errors import InputError
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign, n_pairs, places_of
from mlem_core.pairs.patterns import PairIndex, block_numbers

N = 300


def ends(design: PairDesign) -> tuple[np.ndarray, np.ndarray]:
    return design.ends(np.arange(design.n_pairs))


@pytest.fixture(scope="module")
def folds() -> np.ndarray:
    return explicit.random_folds(N)


@pytest.fixture(scope="module")
def design(folds) -> PairDesign:
    return PairDesign.of(folds, 16_000)


def test_all_pairs_where_they_are_within_the_budget(folds):
    for budget in (None, n_pairs(N)):
        design = PairDesign.of(folds, budget)
        assert design.is_complete and design.n_pairs == n_pairs(N)
        i, j = ends(design)
        np.testing.assert_array_equal((i, j), np.triu_indices(N, 1))


def test_each_design_is_balanced_and_has_no_pair_twice(folds, design):
    assert not design.is_complete and design.n_designs == 8
    assert design.n_pairs == pytest.approx(16_000, rel=0.05)
    for k in range(8):
        own = design.only(k, k + 1)
        i, j = ends(own)
        assert (i != j).all()
        assert len(np.unique(places_of(i, j, N))) == own.n_pairs
        times = np.bincount(np.concatenate((i, j)), minlength=N)
        assert times.min() > 0 and np.ptp(times) <= 7
    # Every two folds have the share of the pairs that they have among all.
    blocks, share = block_numbers(folds)[1], design.n_pairs / n_pairs(N)
    i, j = ends(design)
    found = np.bincount(blocks[folds[i], folds[j]], minlength=15)
    all_i, all_j = np.triu_indices(N, 1)
    expected = np.bincount(blocks[folds[all_i], folds[all_j]]) * share
    np.testing.assert_allclose(found, expected, rtol=0.1)


def test_designs_are_parts_of_the_whole_and_differ(design):
    i, j = ends(design)
    parts = [ends(design.only(k, k + 1)) for k in range(8)]
    np.testing.assert_array_equal(np.concatenate([a for a, _ in parts]), i)
    np.testing.assert_array_equal(np.concatenate([b for _, b in parts]), j)
    first = ends(design.first(3))
    np.testing.assert_array_equal(first[0], i[: len(first[0])])
    sets = [set(places_of(a, b, N).tolist()) for a, b in parts]
    share = len(sets[0]) / n_pairs(N)
    assert len(sets[0] & sets[1]) < 3 * share * len(sets[0]) + 10


@pytest.mark.parametrize("budget", [None, 16_000])
def test_pairs_among_some_stimuli(folds, budget):
    design = PairDesign.of(folds, budget)
    stimuli = np.flatnonzero(folds == 2)
    places, among = design.among(stimuli)
    i, j = ends(design)
    inside = np.isin(i, stimuli) & np.isin(j, stimuli)
    np.testing.assert_array_equal(places, np.flatnonzero(inside))
    a, b = ends(among)
    np.testing.assert_array_equal(stimuli[a], i[inside])
    np.testing.assert_array_equal(stimuli[b], j[inside])
    assert among.n_designs == design.n_designs and among.n_stimuli == len(stimuli)


def test_slices_cover_all_rows(design):
    for n in (1, 3, 7):
        parts = design.slices(n)
        assert parts[0][0] == 0 and parts[-1][1] == len(design.stimulus)
        assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))


def test_a_budget_too_small_says_how_many(folds):
    with pytest.raises(InputError, match="give at least 2,400"):
        PairDesign.of(folds, 2_000)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    seed=st.integers(0, 5),
    times=st.integers(8, 20),
)
def test_any_folds_give_pairs_of_different_stimuli(sizes, seed, times):
    folds = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    n = len(folds)
    design = PairDesign.of(folds, times * n, seed)
    if n > 1:
        i, j = ends(design)
        assert (i != j).all() and i.max() < n and j.max() < n
        assert len(np.unique(np.concatenate((i, j)))) == n
    again = PairDesign.of(folds, times * n, seed)
    np.testing.assert_array_equal(design.partner, again.partner)


@pytest.mark.parametrize("missing", ["ignore", "level"])
@pytest.mark.parametrize("kept", [0, 2**28])
def test_the_index_of_a_design_is_that_of_its_pairs(folds, design, missing, kept, monkeypatch):
    monkeypatch.setattr("mlem_core.pairs.patterns.KEPT", kept)
    features = explicit.random_features(N)
    columns = feature_columns(features)
    index = PairIndex.build(columns, folds, missing, design=design)
    i, j = ends(design)
    expected = explicit.feature_distances(features, missing)[places_of(i, j, N)]
    np.testing.assert_allclose(index.patterns[index.pair_pattern], expected, atol=1e-12)
    blocks = block_numbers(folds)[1][folds[i], folds[j]]
    np.testing.assert_array_equal(index.cell_block[index.cell], blocks)
    np.testing.assert_array_equal(index.counts, np.bincount(index.cell))
    assert index.counts.min() > 0


@pytest.mark.parametrize("kept", [0, 2**28])
@pytest.mark.parametrize("budget", [None, 16_000])
def test_the_index_is_the_same_by_any_number_of_threads(folds, budget, kept, monkeypatch):
    columns = feature_columns(explicit.random_features(len(folds)))
    design = PairDesign.of(folds, budget)
    monkeypatch.setattr("mlem_core.pairs.patterns.KEPT", kept)
    monkeypatch.setattr("mlem_core.pairs.designs.cores", lambda: 3)
    one = PairIndex.build(columns, folds, design=design)
    assert len(design.shares()) == 1
    monkeypatch.setattr("mlem_core.pairs.designs.SHARE", 100)
    many = PairIndex.build(columns, folds, design=design)
    assert len(design.shares()) == 3
    for name in ("codes", "cell", "counts", "cell_block", "cell_pattern"):
        np.testing.assert_array_equal(getattr(many, name), getattr(one, name))
    # More patterns than are allowed: in the threads' own counts, and only in all together.
    n = one.n_patterns
    for limit in (n // 4, n - 1):
        binned = PairIndex.build(columns, folds, max_patterns=limit, design=design)
        assert binned.n_patterns <= limit
        assert binned.notes
