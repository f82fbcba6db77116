"""RSA of what features say and of the rest: explicit pairs, and planted likeness in either."""

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import refused, tables_of
from scipy.stats import rankdata, spearmanr, t

from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.measures.partial import (
    Explained,
    above_zero,
    feature_similarity,
    partial_similarity,
    rest_similarity,
    transfer,
)

N = 45


def squares_of(layers):
    return [explicit.squared(layer) for layer in layers]


def rsa_of(layers):
    return np.corrcoef([rankdata(own) for own in squares_of(layers)])


def partial_of(features, layers, n_folds=5, seed=0, interactions=False):
    folds = explicit.random_folds(len(features), n_folds, seed)
    tables = tables_of(features, layers, folds).with_interactions(interactions)
    weights = RidgeMLEM().cross_validate(tables).weights
    return partial_similarity(tables, rsa_of(layers), weights)


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(3)]
    folds = explicit.random_folds(N, 3)
    return features, layers, folds, tables_of(features, layers, folds)


def explicit_v(case, a, b):
    """v of all features over explicit pairs, and that of the first layer by itself in each fold."""
    features, layers, folds, _ = case
    x = explicit.feature_distances(features)
    ra, rb = (rankdata(explicit.squared(layers[i])) for i in (a, b))
    orders = [explicit.priority(x, ranks, folds) for ranks in (ra, rb)]
    own = [explicit.explained_in(x, ra, ra, folds, fold, orders[0]) for fold in range(3)]
    v = explicit.cross_fitted(x, ra, rb, folds, range(x.shape[1]), orders)
    return v, np.array(own) / ra.var()


def test_both_parts_equal_those_of_explicit_pairs(case):
    _, layers, _, tables = case
    weights = RidgeMLEM().cross_validate(tables).weights
    found, known = partial_similarity(tables, rsa_of(layers), weights), Explained.of(tables)
    for a, b in ((0, 1), (2, 0)):
        (v_ab, _), (v_aa, by_fold), (v_bb, _) = (
            explicit_v(case, *at) for at in ((a, b), (a, a), (b, b))
        )
        assert known.whole[a, b] == pytest.approx(v_ab, abs=1e-9)
        rho = spearmanr(*squares_of([layers[a], layers[b]])).statistic
        expected = (rho - v_ab) / np.sqrt((1 - v_aa) * (1 - v_bb))
        assert found.rest[a, b] == pytest.approx(expected, abs=1e-9)
        of_features = feature_similarity(*(known.whole[at] for at in ((a, b), (a, a), (b, b))))
        assert of_features == pytest.approx(v_ab / np.sqrt(v_aa * v_bb), abs=1e-9)
        np.testing.assert_allclose(known.own[a], by_fold, atol=1e-9)
        assert known.own[a].mean() == pytest.approx(v_aa, abs=1e-9)
        clear = above_zero(known.own)
        expected = of_features if clear[a] and clear[b] else np.nan
        np.testing.assert_allclose(found.features[a, b], expected)


@pytest.mark.parametrize("interactions", [False, True])
def test_transfer_is_the_score_of_one_metric_on_explicit_distances_of_the_other(case, interactions):
    features, layers, folds, tables = case
    tables = tables.with_interactions(interactions)
    fits = RidgeMLEM().cross_validate(tables)
    found = transfer(tables, fits.weights)
    x = explicit.feature_distances(features)
    terms = explicit.products(x) if interactions else x**2
    assert len(tables.columns.names) == terms.shape[1]
    for a, b in ((0, 1), (1, 0), (2, 2)):
        for fold in range(3):
            test = explicit.held_out(folds, fold)
            predicted = terms[test] @ fits.weights[a, fold]
            expected = explicit.rho(predicted, explicit.squared(layers[b])[test])
            assert found[a, b, fold] == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(np.diagonal(found).T, fits.rho, atol=1e-12)


def test_ratios_are_of_the_score_of_the_layer_that_is_predicted(case):
    _, layers, _, tables = case
    weights = RidgeMLEM().cross_validate(tables).weights
    found, scores = partial_similarity(tables, rsa_of(layers), weights), transfer(tables, weights)
    own = scores.mean(axis=-1)[[0, 1, 2], [0, 1, 2]]
    known = above_zero(scores[[0, 1, 2], [0, 1, 2]])
    assert known.any()
    for b in np.flatnonzero(known):
        np.testing.assert_allclose(found.ratio[:, b], scores[:, b].mean(axis=-1) / own[b])
        assert found.ratio[b, b] == pytest.approx(1.0)


def test_what_is_clearly_above_0_has_an_interval_over_folds_above_it():
    rng = np.random.default_rng(0)
    values = rng.normal(0.4, 0.5, size=(200, 5))
    low = [t.interval(0.95, 4, one.mean(), one.std(ddof=1) / np.sqrt(5))[0] > 0 for one in values]
    np.testing.assert_array_equal(above_zero(values), low)
    assert 20 < sum(low) < 180
    assert not above_zero(np.ones((2, 1))).any() and not above_zero(np.zeros((1, 4))).any()
    assert above_zero(np.ones((1, 4))).all()


def test_one_fold_and_constant_layers_have_no_such_numbers(case):
    features, layers, folds, _ = case
    with refused("at least two"):
        Explained.of(tables_of(features, layers, np.zeros(N, dtype=np.int64)))
    tables = tables_of(features, [layers[0], np.ones((N, 2))], folds)
    rsa, weights = np.eye(2), RidgeMLEM().cross_validate(tables).weights
    found = partial_similarity(tables, rsa, weights)
    assert np.isnan(found.features[0, 1]) and np.isnan(found.ratio[0, 1])
    assert found.transfer[0, 1] == 0
    rest = rest_similarity(np.ones(2), np.zeros(2), np.array([1.0, 0.75]), np.zeros(2))
    np.testing.assert_array_equal(rest, [np.nan, 2.0])


def planted(n, seed):
    """Independent binary features, and what makes layers of them."""
    rng = np.random.default_rng(seed)
    features = pd.DataFrame({name: rng.choice(["x", "y"], n) for name in "abcd"})
    return features, (features == "x").to_numpy().astype(float), rng


def test_layers_of_the_same_features_differ_in_nothing_but_noise():
    features, x, rng = planted(600, 0)
    used = x * np.array([3.0, 2.0, 1.0, 0.0])
    layers = [np.hstack((used, rng.standard_normal((600, units)))) for units in (3, 8)]
    found = partial_of(features, layers)
    assert found.features[0, 1] == pytest.approx(1.0, abs=0.03)
    assert found.rest[0, 1] == pytest.approx(0.0, abs=0.03)
    assert found.ratio[0, 1] == pytest.approx(1.0, abs=0.02)
    assert found.ratio[1, 0] == pytest.approx(1.0, abs=0.02)
    # The RSA of the same two layers is far from 1: one has more noise.
    assert rsa_of(layers)[0, 1] < 0.7


def test_layers_of_different_features_are_unlike_in_them():
    features, x, rng = planted(600, 1)
    noise = rng.standard_normal((2, 600, 3))
    layers = [
        np.hstack((3.0 * x[:, at], own)) for at, own in zip(([0, 1], [2, 3]), noise, strict=True)
    ]
    found = partial_of(features, layers)
    assert found.features[0, 1] == pytest.approx(0.0, abs=0.05)
    assert found.rest[0, 1] == pytest.approx(0.0, abs=0.03)


def test_noise_features_and_permuted_labels_give_no_similarity_in_the_features():
    told = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        features = pd.DataFrame({f"n{k}": rng.choice(list("abc"), 60) for k in range(40)})
        common = rng.standard_normal((60, 3))
        own = 3.0 * (features[["n0", "n1"]] == "a").to_numpy()
        layers = [np.hstack((common, own, rng.standard_normal((60, 2)))) for _ in range(2)]
        permuted = features.iloc[rng.permutation(60)].reset_index(drop=True)
        tables = tables_of(permuted, layers, explicit.random_folds(60, 5, seed))
        told.append(above_zero(Explained.of(tables).own))
    # Of 300 such data sets 7 % passed in a layer, and 1 % in both.
    assert np.mean(told) <= 0.15 and np.all(told, axis=1).sum() <= 1
