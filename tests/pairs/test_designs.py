"""Incomplete designs of pairs: balanced, independent, and indexed as the pairs that they are."""

from __future__ import annotations

import itertools

import explicit
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import refused

from mlem_core.pairs import half_samples as module
from mlem_core.pairs.designs import PairDesign, n_pairs, places_of
from mlem_core.pairs.half_samples import half_samples
from mlem_core.pairs.patterns import block_numbers

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
        np.testing.assert_array_equal(ends(design), np.triu_indices(N, 1))


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
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), (i, j))
    first = ends(design.first(3))
    np.testing.assert_array_equal(first[0], i[: len(first[0])])
    sets = [set(places_of(a, b, N).tolist()) for a, b in parts]
    share = len(sets[0]) / n_pairs(N)
    assert len(sets[0] & sets[1]) < 3 * share * len(sets[0]) + 10
    for n in (1, 3, 7):
        slices = design.slices(n)
        assert slices[0][0] == 0 and slices[-1][1] == len(design.stimulus)
        assert all(a[1] == b[0] for a, b in itertools.pairwise(slices))


@pytest.mark.parametrize("budget", [None, 16_000])
def test_pairs_among_some_stimuli(folds, budget):
    design = PairDesign.of(folds, budget)
    stimuli = np.flatnonzero(folds == 2)
    places, among = design.among(stimuli)
    i, j = ends(design)
    inside = np.isin(i, stimuli) & np.isin(j, stimuli)
    np.testing.assert_array_equal(places, np.flatnonzero(inside))
    np.testing.assert_array_equal(stimuli[np.array(ends(among))], (i[inside], j[inside]))
    assert among.n_designs == design.n_designs and among.n_stimuli == len(stimuli)


def test_a_budget_too_small_says_how_many(folds):
    with refused("2,000", "2,400"):
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


def test_halves_are_balanced(monkeypatch):
    monkeypatch.setattr(module, "together", list)
    halves = list(half_samples(range(8)))
    assert len(halves) == 14 and {len(half) for half in halves} == {4}
    for half, other in zip(halves[::2], halves[1::2], strict=True):
        assert sorted(half + other) == list(range(8))
    for a, b in itertools.combinations(range(8), 2):
        assert sum(a in half and b in half for half in halves) == 3


def test_means_over_halves_vary_as_the_mean_of_all_does(monkeypatch):
    """The oracle is the variance between designs, over their number."""
    values = np.random.default_rng(0).standard_normal(8)
    monkeypatch.setattr(module, "together", np.mean)
    halves = np.array(list(half_samples(values)))
    assert ((halves - values.mean()) ** 2).mean() == pytest.approx(values.var(ddof=1) / 8)
    assert halves.mean() == pytest.approx(values.mean())
