"""Incomplete designs of pairs: balanced, independent, and indexed as the pairs that they are."""

import explicit
import numpy as np
import pytest
from inputs import refused

from mlem_core.pairs import pair_sampling_error as module
from mlem_core.pairs.designs import PairDesign, n_pairs, places_of
from mlem_core.pairs.pair_sampling_error import half_samples
from mlem_core.pairs.patterns import block_numbers

N = 300


def ends(design):
    return design.ends(np.arange(design.n_pairs))


@pytest.fixture(scope="module")
def folds():
    return explicit.random_folds(N)


@pytest.fixture(scope="module")
def design(folds):
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
    np.testing.assert_array_equal(stimuli[np.array(ends(among))], (i[inside], j[inside]))
    assert among.n_designs == design.n_designs and among.n_stimuli == len(stimuli)


def test_a_budget_too_small_says_how_many(folds):
    with refused("2,000", "2,400"):
        PairDesign.of(folds, 2_000)


def test_means_over_halves_vary_as_the_mean_of_all_does(monkeypatch):
    """The oracle is the variance between designs, over their number."""
    values = np.random.default_rng(0).standard_normal(8)
    monkeypatch.setattr(module, "together", np.mean)
    halves = np.array(list(half_samples(values)))
    assert ((halves - values.mean()) ** 2).mean() == pytest.approx(values.var(ddof=1) / 8)
    assert halves.mean() == pytest.approx(values.mean())
