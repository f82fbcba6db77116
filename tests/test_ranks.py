from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from mlem_core.ranks import doubled_ranks, order_pairs, pattern_ranks, score_patterns


@pytest.mark.parametrize("ties", [False, True])
def test_order_and_ranks_equal_scipy(ties):
    values = np.random.default_rng(0).random(5000)
    if ties:
        values = values.round(2)
    order, ascending = order_pairs(values)
    ranks = np.empty(len(values))
    ranks[order] = doubled_ranks(ascending) / 2
    np.testing.assert_array_equal(ranks, rankdata(values))


def test_very_large_and_very_small_distances_keep_their_order():
    values = np.array([1e-30, 1e-3, 1.0, 2.0, 1e300])
    np.testing.assert_array_equal(order_pairs(values).order, np.arange(5))
    assert len(np.unique(order_pairs(values[:4]).value)) == 4


def explicit(values, counts):
    return np.repeat(values, counts)


@pytest.mark.parametrize("decimals", [12, 1])
def test_pattern_ranks_equal_ranks_of_explicit_pairs(decimals):
    rng = np.random.default_rng(0)
    predictions = rng.random((3, 40)).round(decimals)
    counts = rng.integers(1, 9, 40)
    ranks = pattern_ranks(predictions, counts.astype(float))
    for row, found in zip(predictions, ranks, strict=True):
        expected = rankdata(explicit(row, counts))
        np.testing.assert_allclose(explicit(found, counts), expected - expected.mean())


def test_predictions_that_differ_only_by_rounding_are_tied():
    ranks = pattern_ranks(np.array([0.1 + 0.2, 0.3, 1.0]), np.ones(3))
    np.testing.assert_array_equal(ranks, [-0.5, -0.5, 1.0])


@pytest.mark.parametrize("decimals", [12, 1])
def test_score_equals_spearmanr(decimals):
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 30, 50)
    pattern = np.repeat(np.arange(50), counts)
    prediction = rng.random(50).round(decimals)
    target = prediction[pattern] + rng.random(len(pattern)).round(decimals)
    centred = rankdata(target) - (len(target) + 1) / 2
    score = score_patterns(
        prediction, counts.astype(float), np.bincount(pattern, centred), centred @ centred
    )
    expected = spearmanr(prediction[pattern], target).statistic
    assert score.rho == pytest.approx(expected, abs=1e-12)
    # ρ_a is what random tie-breaks give on average.
    broken = []
    for _ in range(300):
        a = prediction[pattern] + 1e-9 * rng.random(len(pattern))
        b = target + 1e-9 * rng.random(len(pattern))
        broken.append(spearmanr(a, b).statistic)
    assert score.rho_a == pytest.approx(np.mean(broken), abs=4 * np.std(broken) / 300**0.5 + 1e-9)


def test_a_constant_side_scores_0():
    counts = np.ones(4)
    assert score_patterns(np.ones(4), counts, np.arange(4.0) - 1.5, np.array(5.0)).rho == 0
    assert score_patterns(np.arange(4.0), counts, np.zeros(4), np.array(0.0)).rho == 0
