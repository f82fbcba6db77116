from __future__ import annotations

import explicit
import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from mlem_core.pairs import resampling
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign, pairs_among, places_of
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.resampling import (
    RankedPairs,
    leave_out,
    multinomial,
    rank_classes,
)

N = 40


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, 0), np.round(explicit.random_layer(features, 1))]
    groups = np.arange(N) // 3 * 2
    index = PairIndex.build(feature_columns(features), np.zeros(N, dtype=np.int64))
    distances = [explicit.squared(layer) for layer in layers]
    ranks = [(2 * rankdata(d)).astype(np.uint32) for d in distances]
    return index, groups, distances, ranks


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("budget", [None, 400])
def test_sums_equal_those_of_explicit_copies_of_the_pairs(case, n_layers, budget):
    """Of all pairs, or of an incomplete design of them; two layers have a kernel of their own."""
    _, groups, distances, _ = case
    design = PairDesign.of(np.arange(N) % 2, budget)
    columns = feature_columns(explicit.random_features(N))
    index = PairIndex.build(columns, np.zeros(N, dtype=np.int64), design=design)
    i, j = design.ends(np.arange(design.n_pairs))
    places = places_of(i, j, N)
    # The third is a mixture of the other two.
    distances = [*distances, distances[0] + np.sqrt(distances[1])]
    distances = [own[places] for own in distances[:n_layers]]
    ranks = [(2 * rankdata(own)).astype(np.uint32) for own in distances]
    pattern, n_patterns = index.pair_pattern, index.n_patterns
    pairs = RankedPairs.of(ranks, pattern, groups, n_patterns, design=design)
    weights = multinomial(pairs.n_groups, 6, np.random.default_rng(0))
    (draws,) = pairs.draw(weights, products=True)
    assert (weights == 0).any() and (weights > 1).any()
    for d, row in enumerate(weights.astype(int)):
        own = row[groups // 2]
        times = np.where(groups[i] == groups[j], own[i], own[i] * own[j])
        cells, *copies = (np.repeat(value, times) for value in (pattern, *distances))
        true = [rankdata(c) - (len(c) + 1) / 2 for c in copies]
        np.testing.assert_allclose(draws.counts[d], np.bincount(cells, minlength=n_patterns))
        for layer, rank in enumerate(true):
            sums = np.bincount(cells, rank, n_patterns)
            np.testing.assert_allclose(draws.sums[d, layer], sums, atol=1e-6)
            assert draws.squares[d, layer] == pytest.approx(rank @ rank)
            for other, with_rank in enumerate(true):
                assert draws.products[d, layer, other] == pytest.approx(rank @ with_rank)
                expected = spearmanr(copies[layer], copies[other]).statistic
                assert draws.rsa()[d, layer, other] == pytest.approx(expected, abs=1e-12)


def test_a_part_of_the_stimuli_is_ranked_by_itself(case):
    index, groups, distances, ranks = case
    stimuli = np.flatnonzero(np.arange(N) % 3 != 1)
    pairs = RankedPairs.of(ranks, index.pair_pattern, groups, index.n_patterns, stimuli)
    (draws,) = pairs.draw(np.ones((1, pairs.n_groups)))
    i, j = explicit.pairs(N)
    inside = np.isin(i, stimuli) & np.isin(j, stimuli)
    np.testing.assert_array_equal(pairs_among(stimuli, N), np.flatnonzero(inside))
    true = rankdata(distances[0][inside])
    true -= true.mean()
    expected = np.bincount(index.pair_pattern[inside], true, index.n_patterns)
    np.testing.assert_allclose(draws.sums[0, 0], expected, atol=1e-6)
    assert draws.products.shape == (1, 0, 0)


def test_parts_of_the_draws_give_the_same_as_all_at_once(case, monkeypatch):
    index, groups, _, ranks = case
    pairs = RankedPairs.of(ranks, index.pair_pattern, groups, index.n_patterns)
    weights = multinomial(pairs.n_groups, 7, np.random.default_rng(0))
    (whole,) = pairs.draw(weights)
    monkeypatch.setattr(resampling, "CHUNK", 1)
    seen = []
    parts = list(pairs.draw(weights, progress=lambda done, total: seen.append((done, total))))
    assert len(parts) == 7 and seen == [(d, 7) for d in range(1, 8)]
    np.testing.assert_array_equal(np.concatenate([p.sums for p in parts]), whole.sums)


def test_classes_of_many_values_move_a_correlation_little(monkeypatch):
    rng = np.random.default_rng(0)
    a = rng.permutation(20_000)
    b = np.argsort(np.argsort(a + 9_000 * rng.standard_normal(20_000)))
    np.testing.assert_array_equal(rank_classes(np.array([7, 2, 2, 9])), [1, 0, 0, 2])
    monkeypatch.setattr(resampling, "CLASSES", 1000)
    coarse = rank_classes(2 * a)
    assert (
        len(np.unique(coarse)) == 1000 and (np.diff(coarse[np.argsort(a)].astype(int)) >= 0).all()
    )
    exact = spearmanr(a, b).statistic
    assert spearmanr(coarse, rank_classes(2 * b)).statistic == pytest.approx(exact, abs=3e-5)


def test_jackknife_blocks_leave_out_each_group_once():
    weights = leave_out(10, 4, np.random.default_rng(0))
    assert (weights == 0).sum(axis=0).tolist() == [1] * 10
    assert sorted((weights == 0).sum(axis=1)) == [2, 2, 3, 3]
    assert leave_out(3, 9, np.random.default_rng(0)).shape == (3, 3)
