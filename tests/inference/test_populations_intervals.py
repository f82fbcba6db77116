"""Intervals over models x stimuli: hold a planted truth, and are what is left out one by one."""

from __future__ import annotations

import numpy as np
import pytest

from mlem_core.inference.jackknife import standard_error
from mlem_core.inference.populations import (
    Left,
    by_groups,
    estimate,
    profile_interval,
    within_and_between,
)
from validation.populations import TRUTH, drawn


def coverage(n_members: int, n: int = 150) -> np.ndarray:
    """How often the intervals hold the truth: within, between, universality."""
    rng, hits = np.random.default_rng(0), np.zeros(3)
    for _ in range(n):
        matrix, stimuli, group_of = drawn(rng, n_members)
        found = estimate(within_and_between, matrix, group_of, stimuli, n_replicates=100)
        hits += (found.lower[0] <= TRUTH) & (found.upper[0] >= TRUTH)
    return hits / n


@pytest.mark.parametrize("n_members", [3, 5])
def test_intervals_hold_the_planted_truth(n_members: int) -> None:
    assert (coverage(n_members) >= 0.9).all()


def test_the_size_is_that_of_members_and_blocks_left_out() -> None:
    """By t with Welch's degrees of freedom, written out, where draws are symmetric enough."""
    matrix, stimuli, group_of = drawn(np.random.default_rng(1), 4)
    found = estimate(within_and_between, matrix, group_of, stimuli, n_replicates=2000)
    width = (found.upper - found.lower)[0, :2]
    variances, freedom = [], []
    for group in range(3):
        values = []
        for member in np.flatnonzero(group_of == group):
            own = np.array(
                [
                    np.array(
                        [
                            matrix[0, i, j]
                            for i in range(12)
                            for j in range(i)
                            if member not in (i, j) and {group_of[i], group_of[j]} == {g, h}
                        ]
                    ).mean()
                    for g in range(3)
                    for h in range(g, 3)
                ]
            )
            same = np.array([True, False, False, True, False, True])
            values.append((own[same].mean(), own[~same].mean()))
        variances.append(3 * np.var(values, axis=0))
        freedom.append(3)
    every = np.ones(12)
    whole = within_and_between(stimuli.without, every, group_of)[:, 0, :2]
    variances.append(standard_error(whole, stimuli.sizes) ** 2)
    freedom.append(49)
    from scipy.stats import t

    total = np.sum(variances, axis=0)
    degrees = total**2 / sum(v**2 / f for v, f in zip(variances, freedom, strict=True))
    np.testing.assert_allclose(width, 2 * np.sqrt(total) * t.ppf(0.975, degrees), rtol=0.1)


def test_over_members_alone_it_is_narrower_and_the_value_the_same() -> None:
    matrix, stimuli, group_of = drawn(np.random.default_rng(2), 4)
    both = estimate(by_groups, matrix, group_of, stimuli)
    alone = estimate(by_groups, matrix, group_of)
    assert np.array_equal(both.value, alone.value)
    assert ((both.upper - both.lower).mean()) > (alone.upper - alone.lower).mean()


def test_without_enough_members_there_is_no_interval() -> None:
    matrix, _, _ = drawn(np.random.default_rng(3), 2)
    two = estimate(within_and_between, matrix, np.repeat(np.arange(3), 2))
    assert np.isfinite(two.value).all() and np.isnan(two.lower[0, 0])
    assert np.isfinite(two.lower[0, 1])
    one = estimate(within_and_between, matrix[:, :3, :3], np.arange(3))
    assert np.isnan(one.lower).all() and np.isnan(one.value[0, [0, 2]]).all()


def test_the_interval_of_a_mean_profile() -> None:
    rng = np.random.default_rng(4)
    values = rng.standard_normal((4, 3))
    alone = profile_interval(values)
    from scipy import stats

    bounds = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(np.stack(alone), np.stack((bounds.low, bounds.high)))
    still = profile_interval(values, Left(np.repeat(values[None], 20, axis=0), (20,)))
    np.testing.assert_allclose(np.stack(still), np.stack(alone))
    moved = values + rng.standard_normal((20, 1, 3))
    assert (profile_interval(values, Left(moved, (20,))).upper > alone.upper).all()
    assert np.isnan(profile_interval(values[:1]).lower).all()
