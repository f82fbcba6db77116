"""Designs of the pairs: all of them, or balanced choices of some."""

import numpy as np
import pytest
from helpers import explicit
from helpers.inputs import refused

from mlem_core.pairs.designs import PairDesign, n_pairs, pair_places, pairs_among

N = 300
FOLDS = explicit.random_folds(N)


def ends(design):
    return design.ends(np.arange(design.n_pairs))


@pytest.fixture(scope="module")
def design():
    return PairDesign.from_budget(FOLDS, 16_000)


def test_all_pairs_where_they_are_within_the_budget():
    for budget in (None, n_pairs(N)):
        design = PairDesign.from_budget(FOLDS, budget)
        assert design.is_complete and design.n_pairs == n_pairs(N)
        np.testing.assert_array_equal(ends(design), explicit.pairs(N))


def test_each_design_is_balanced_and_has_no_pair_twice(design):
    assert not design.is_complete and design.n_designs == 8
    assert design.n_pairs == pytest.approx(16_000, rel=0.05)
    for k in range(8):
        own = design.only(k, k + 1)
        i, j = ends(own)
        assert (i != j).all()
        assert len(np.unique(pair_places(i, j, N))) == own.n_pairs
        times = np.bincount(np.concatenate((i, j)), minlength=N)
        assert times.min() > 0 and np.ptp(times) <= 7
    # Every two folds have the share of the pairs that they have among all.
    shares = []
    for i, j in (ends(design), explicit.pairs(N)):
        low, high = np.minimum(FOLDS[i], FOLDS[j]), np.maximum(FOLDS[i], FOLDS[j])
        shares.append(np.bincount(5 * low + high, minlength=25) / len(i))
    np.testing.assert_allclose(*shares, rtol=0.1)


def test_designs_are_parts_of_the_whole_and_differ(design):
    i, j = ends(design)
    parts = [ends(design.only(k, k + 1)) for k in range(8)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), (i, j))
    sets = [set(pair_places(a, b, N).tolist()) for a, b in parts]
    share = len(sets[0]) / n_pairs(N)
    assert len(sets[0] & sets[1]) < 3 * share * len(sets[0]) + 10


@pytest.mark.parametrize("budget", [None, 16_000])
def test_pairs_among_some_stimuli(budget):
    design = PairDesign.from_budget(FOLDS, budget)
    stimuli = np.flatnonzero(FOLDS == 2)
    places, among = design.among(stimuli)
    i, j = ends(design)
    inside = np.isin(i, stimuli) & np.isin(j, stimuli)
    np.testing.assert_array_equal(places, np.flatnonzero(inside))
    np.testing.assert_array_equal(stimuli[np.array(ends(among))], (i[inside], j[inside]))
    assert among.n_designs == design.n_designs and among.n_stimuli == len(stimuli)
    if budget is None:
        np.testing.assert_array_equal(pairs_among(stimuli, N), places)
        none, among = PairDesign.complete(N, np.zeros(N, dtype=int)).among(stimuli)
        assert len(none) == among.n_pairs == 0 and not among.is_complete


def test_a_budget_too_small_says_how_many():
    with refused("2,000", "2,400"):
        PairDesign.from_budget(FOLDS, 2_000)
