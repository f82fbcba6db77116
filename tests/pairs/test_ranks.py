"""Ranks of pairs, scores of predictions by them, and blocks that are left out."""

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from mlem_core.pairs.ranks import pair_ranks, score_patterns
from mlem_core.pairs.resampling_units import jackknife_weights


@pytest.mark.parametrize("ties", [False, True])
def test_ranks_equal_scipy(ties):
    values = np.random.default_rng(0).random(5000)
    if ties:
        values = values.round(2)
    given = values.copy()
    np.testing.assert_array_equal(pair_ranks(values) / 2, rankdata(values))
    np.testing.assert_array_equal(values, given)
    np.testing.assert_array_equal(pair_ranks(values, overwrite=True) / 2, rankdata(given))


@pytest.mark.parametrize("decimals", [12, 1])
def test_score_equals_spearmanr(decimals):
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 30, 50)
    pattern = np.repeat(np.arange(50), counts)
    prediction = rng.random(50).round(decimals)
    target = prediction[pattern] + rng.random(len(pattern)).round(decimals)
    centred = rankdata(target) - (len(target) + 1) / 2
    score = score_patterns(
        prediction[None, None],
        counts.astype(float),
        np.bincount(pattern, centred)[None],
        np.array([centred @ centred]),
    )
    expected = spearmanr(prediction[pattern], target).statistic
    assert score.rho[0, 0] == pytest.approx(expected, abs=1e-12)
    # ρ_a is what random tie-breaks give on average.
    broken = []
    for _ in range(300):
        a = prediction[pattern] + 1e-9 * rng.random(len(pattern))
        b = target + 1e-9 * rng.random(len(pattern))
        broken.append(spearmanr(a, b).statistic)
    assert score.rho_a[0, 0] == pytest.approx(
        np.mean(broken), abs=4 * np.std(broken) / 300**0.5 + 1e-9
    )


def test_a_constant_side_scores_0():
    counts, rising = np.ones(4), np.arange(4.0)[None]
    flat = score_patterns(np.ones((1, 1, 4)), counts, rising - 1.5, np.array([5.0]))
    assert flat.rho == 0 and flat.rho_a == 0
    constant = score_patterns(rising[None], counts, np.zeros((1, 4)), np.array([0.0]))
    assert constant.rho == 0 and constant.rho_a == 0


def test_predictions_that_differ_only_by_rounding_are_tied():
    sums, squares = np.array([[-3.0, 1.0, 2.0]]), np.array([14.0])
    rounded, equal = (
        score_patterns(np.array([[[a, 0.3, 1.0]]]), np.ones(3), sums, squares)
        for a in (0.1 + 0.2, 0.3)
    )
    assert 0.1 + 0.2 != 0.3 and rounded == equal


def test_jackknife_blocks_leave_out_each_group_once():
    weights = jackknife_weights(10, 4, np.random.default_rng(0))
    assert (weights == 0).sum(axis=0).tolist() == [1] * 10
    assert sorted((weights == 0).sum(axis=1)) == [2, 2, 3, 3]
    assert jackknife_weights(3, 9, np.random.default_rng(0)).shape == (3, 3)
