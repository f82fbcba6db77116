"""Kinds of models: planted truths, levels, and intervals over members and stimuli by hand."""

from __future__ import annotations

import numpy as np
import pytest
from inputs import finished, in_files, words
from scipy.stats import t, ttest_1samp

from mlem_core.base.labels import Names
from mlem_core.cli.found import found
from mlem_core.inference.jackknife import standard_error
from mlem_core.inference.kinds import Kinds, kind_of, kinds
from mlem_core.inference.populations import (
    Left,
    by_groups,
    estimate,
    profile_interval,
    within_and_between,
)
from validation.populations import TRUTH, drawn

COLUMNS = ("pos", "tense", "length")


def members(n: int, truth: tuple[float, ...], spread: float, seed: int) -> np.ndarray:
    """(n, 4) ρ of 0.5 and importances about the truth."""
    noise = np.random.default_rng(seed).standard_normal((n, len(truth))) * spread
    return np.column_stack((np.full(n, 0.5), np.array(truth) + noise))


def said(*groups: np.ndarray) -> Kinds:
    n = len(groups)
    known = [kind_of(f"k{i}", own, COLUMNS, None, n) for i, own in enumerate(groups)]
    return Kinds(tuple(known), "models", Names())


def test_the_differences_are_those_of_members_by_t() -> None:
    for seed in range(50):
        own = members(3, (0.2, 0.15, 0.0), 0.02, seed)
        top = int(own[:, 1:].mean(axis=0).argmax())
        ahead = [own[:, 1 + top]]
        ahead += [own[:, 1 + top] - own[:, 1 + f] for f in range(3) if f != top]
        sure = all(one.mean() - t.ppf(0.975, 2) * one.std(ddof=1) / np.sqrt(3) > 0 for one in ahead)
        kind = kind_of("k", own, COLUMNS)
        assert (kind.top, kind.sure) == (COLUMNS[top], sure)
        assert kind.surely == sure  # one kind


def test_one_kind_that_is_unsure_makes_the_others_be_corrected() -> None:
    rng = np.random.default_rng(0)
    sure = alone = 0
    for _ in range(200):
        own = np.column_stack((np.full(3, 0.5), rng.normal((0.3, 0.1, 0.0), 0.05, (3, 3))))
        kind = kind_of("k", own, COLUMNS, n_kinds=5)
        sure, alone = sure + kind.surely, alone + kind.sure
    assert 0 < sure < alone


@pytest.mark.parametrize("n", [2, 3, 5])
def test_features_that_matter_alike_are_seldom_told_apart(n: int) -> None:
    """Of 400 analyses whose features all have one importance, 5 % may be wrong, and few are."""
    rng, wrong = np.random.default_rng(n), 0
    for _ in range(400):
        groups = [
            np.column_stack((np.full(n, 0.5), rng.normal(0.2, 0.05, (n, 3)))) for _ in range(3)
        ]
        wrong += "most for sure" not in said(*groups).headline
    assert wrong <= 0.05 * 400


def test_two_features_that_matter_alike_in_one_kind_are_no_claim_of_each() -> None:
    """The other kinds are as sure as can be: all hangs on the one that is not."""
    rng, wrong = np.random.default_rng(0), 0
    sure = members(3, (0.3, 0.0, 0.0), 0.001, 0)
    for _ in range(400):
        tied = np.column_stack((np.full(3, 0.5), rng.normal((0.3, 0.3, 0.0), 0.05, (3, 3))))
        wrong += "most in each" in said(sure, tied, sure).headline
    assert wrong <= 0.05 * 400


def test_noise_that_all_members_share_is_seen_over_the_stimuli() -> None:
    """Labels that are permuted fit the stimuli by chance, the same in every member."""
    own = members(3, (0.2, 0.19, 0.0), 1e-4, 0)
    assert kind_of("k", own, COLUMNS).sure
    blocks = own[None] + np.random.default_rng(0).normal(0, 0.005, (20, 1, 4))
    kind = kind_of("k", own, COLUMNS, Left(blocks, (20,)))
    assert not kind.sure and kind.rivals == ("tense",)


def test_copies_of_a_member_are_one() -> None:
    kind = kind_of("k", members(1, (0.3, 0.1, 0.0), 0.01, 0).repeat(3, axis=0), COLUMNS)
    assert kind.members == 1 and not kind.sure


def test_kinds_of_an_analysis_are_means_of_their_members(tmp_path) -> None:
    table, rng = words(), np.random.default_rng(0)
    noun = (table["noun"].to_numpy() - 0.5)[:, None] * 4
    names = {group: [f"{group}{seed}" for seed in range(3)] for group in ("f", "g")}
    made_up = {
        one: {n: noun + rng.standard_normal((len(table), 2)) for n in range(2)}
        for own in names.values()
        for one in own
    }
    analysis = finished(tmp_path, in_files(tmp_path, table, made_up, groups=names), {}).analysis
    results = analysis.results()
    first = found(analysis, results)[0]
    assert "2 kinds: noun matters most in each" in first and "one file each" not in first
    known = kinds(analysis, results)
    assert known is not None
    means = results.importance.groupby(["model", "feature"])["importance"].mean()
    for kind, own in zip(known.kinds, names.values(), strict=True):
        np.testing.assert_allclose(kind.importance, means.unstack()["noun"][own].mean())
    alone = analysis.select(layers=[layer for layer in analysis.layers if layer[0][1] == "0"])
    assert kinds(analysis, analysis.results_of(alone), alone) is None


@pytest.mark.parametrize("n_members", [3, 5])
def test_intervals_hold_the_planted_truth(n_members: int) -> None:
    """Of within, between and universality, in at least 9 of 10."""
    rng, hits, n = np.random.default_rng(0), np.zeros(3), 80
    for _ in range(n):
        matrix, stimuli, group_of = drawn(rng, n_members)
        one = estimate(within_and_between, matrix, group_of, stimuli, n_replicates=100)
        hits += (one.lower[0] <= TRUTH) & (one.upper[0] >= TRUTH)
    assert (hits / n >= 0.9).all()


def test_the_size_is_that_of_members_and_blocks_left_out() -> None:
    """By t with Welch's degrees of freedom, written out, where draws are symmetric enough."""
    matrix, stimuli, group_of = drawn(np.random.default_rng(1), 4)
    whole = estimate(within_and_between, matrix, group_of, stimuli, n_replicates=2000)
    width = (whole.upper - whole.lower)[0, :2]
    kinds_of_pairs = [(g, h) for g in range(3) for h in range(g, 3)]
    same = np.array([g == h for g, h in kinds_of_pairs])

    def without(member: int) -> tuple[float, float]:
        """Means within and between groups of all pairs that do not have the member."""
        means = []
        for pair in kinds_of_pairs:
            own = [
                matrix[0, i, j]
                for i in range(12)
                for j in range(i)
                if member not in (i, j) and {group_of[i], group_of[j]} == set(pair)
            ]
            means.append(np.mean(own))
        return np.array(means)[same].mean(), np.array(means)[~same].mean()

    variances, freedom = [], []
    for group in range(3):
        values = [without(member) for member in np.flatnonzero(group_of == group)]
        variances.append(3 * np.var(values, axis=0))
        freedom.append(3)
    left = within_and_between(stimuli.without, np.ones(12), group_of)[:, 0, :2]
    variances.append(standard_error(left, stimuli.sizes) ** 2)
    freedom.append(49)
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
    bounds = ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(np.stack(alone), np.stack((bounds.low, bounds.high)))
    still = profile_interval(values, Left(np.repeat(values[None], 20, axis=0), (20,)))
    np.testing.assert_allclose(np.stack(still), np.stack(alone))
    moved = values + rng.standard_normal((20, 1, 3))
    assert (profile_interval(values, Left(moved, (20,))).upper > alone.upper).all()
    assert np.isnan(profile_interval(values[:1]).lower).all()
