"""Ranks of pairs, scores of patterns by them, ranks of drawn stimuli, and weights of terms."""

import explicit
import numpy as np
import pytest
from inputs import index_of
from scipy.stats import rankdata, spearmanr
from sklearn.datasets import make_spd_matrix

from mlem_core.pairs import resampling_units
from mlem_core.pairs.designs import PairDesign, pairs_among, places_of
from mlem_core.pairs.ranks import pair_ranks, score_patterns
from mlem_core.pairs.resampling_units import RankedPairs, leave_out, multinomial, rank_classes
from mlem_core.pairs.terms import Columns

N = 40


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


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, 0), np.round(explicit.random_layer(features, 1))]
    groups = np.arange(N) // 3 * 2
    distances = [explicit.squared(layer) for layer in layers]
    ranks = [(2 * rankdata(d)).astype(np.uint32) for d in distances]
    return index_of(features), groups, distances, ranks


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("budget", [None, 400])
def test_sums_equal_those_of_explicit_copies_of_the_pairs(case, n_layers, budget):
    """Of all pairs, or of an incomplete design of them; two layers have a kernel of their own."""
    _, groups, distances, _ = case
    design = PairDesign.of(np.arange(N) % 2, budget)
    index = index_of(explicit.random_features(N), design=design)
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


def test_classes_of_many_values_move_a_correlation_little(monkeypatch):
    rng = np.random.default_rng(0)
    a = rng.permutation(20_000)
    b = np.argsort(np.argsort(a + 9_000 * rng.standard_normal(20_000)))
    np.testing.assert_array_equal(rank_classes(np.array([7, 2, 2, 9])), [1, 0, 0, 2])
    monkeypatch.setattr(resampling_units, "CLASSES", 1000)
    coarse = rank_classes(2 * a)
    assert len(np.unique(coarse)) == 1000
    assert (np.diff(coarse[np.argsort(a)].astype(int)) >= 0).all()
    exact = spearmanr(a, b).statistic
    assert spearmanr(coarse, rank_classes(2 * b)).statistic == pytest.approx(exact, abs=3e-5)


def test_jackknife_blocks_leave_out_each_group_once():
    weights = leave_out(10, 4, np.random.default_rng(0))
    assert (weights == 0).sum(axis=0).tolist() == [1] * 10
    assert sorted((weights == 0).sum(axis=1)) == [2, 2, 3, 3]
    assert leave_out(3, 9, np.random.default_rng(0)).shape == (3, 3)


def test_terms_weighed_by_w_are_the_quadratic_form():
    patterns = np.random.default_rng(0).random((20, 4))
    w = make_spd_matrix(4, random_state=0)
    columns = Columns(("a", "b", "c", "d"), interactions=True)
    assert columns.names[:5] == ("a", "b", "c", "d", "a × b") and len(columns) == 10
    expected = [delta @ w @ delta for delta in patterns]
    np.testing.assert_allclose(columns.values(patterns) @ columns.weights(w), expected)
    np.testing.assert_allclose(columns.matrix(columns.weights(w)), w)
    scaled = columns.unit(np.stack([columns.weights(w), np.zeros(10)]))
    np.testing.assert_allclose(columns.matrix(scaled[0]), w / np.linalg.norm(w))
    assert not scaled[1].any()
