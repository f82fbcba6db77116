"""Importance, and RSA of what features say and of the rest: explicit pairs, refits, planted."""

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import for_each, refused, tables_of
from scipy.stats import rankdata, spearmanr, t

from mlem_core.estimators.base import RidgeMLEM
from mlem_core.measures.importance import (
    conditional_importance,
    correlated_features,
    fitted,
    grouped_importance,
    importances,
    loco_importance,
    most_important,
    permutation_importance,
    warning,
)
from mlem_core.measures.partial import (
    above_zero,
    explained_parts,
    feature_similarity,
    partial_similarity,
    rest_similarity,
    transfer,
)
from mlem_core.pairs.tables import joined

N = 120


@pytest.fixture(scope="module")
def case():
    """Features, of which one mostly goes along with kind; folds, a layer, tables and fits."""
    features, rng = explicit.random_features(N), np.random.default_rng(1)
    along = rng.random(N) < 0.9
    features["noun"] = np.where(along, features["kind"] == "noun", rng.random(N) < 0.5).astype(str)
    folds, layer = explicit.random_folds(N, 3), explicit.random_layer(features)
    tables = tables_of(features, [layer], folds)
    return features, folds, layer, tables, RidgeMLEM().cross_validate(tables)


def drop(case, fold, permute, n=200):
    """Mean drop and its standard error; `permute(x, rng)` changes explicit feature distances."""
    features, folds, layer, _, fits = case
    test = explicit.held_out(folds, fold)
    x, target = explicit.feature_distances(features)[test], explicit.squared(layer)[test]
    # To permute distances is to permute their squares.
    return explicit.drop(x**2, fits.weights[0, fold], target, permute, n)


def test_importance_equals_permutations_of_the_explicit_pairs(case):
    exact = permutation_importance(case[3], case[4].weights)[0, 2]
    for f in range(5):
        mean, error = drop(case, 2, explicit.permuting(f), 400)
        assert exact[f] == pytest.approx(mean, abs=3 * error + 1e-12)


def test_conditional_importance_equals_permutations_among_pairs_that_agree(case):
    exact = conditional_importance(case[3], case[4].weights)[0, 1]
    assert exact.max() > 0.02
    for f in range(5):

        def permute(x, rng, f=f):
            _, group = np.unique(np.round(np.delete(x, f, axis=1), 9), axis=0, return_inverse=True)
            order = np.argsort(group, kind="stable")
            x[order, f] = x[np.lexsort((rng.random(len(x)), group)), f]
            return x

        mean, error = drop(case, 1, permute)
        assert exact[f] == pytest.approx(mean, abs=4 * error + 1e-3)


def test_group_importance_equals_permutations_of_the_group(case):
    tables, fits = case[3], case[4]
    group = [tables.features.index(name) for name in ("kind", "noun")]
    mean, error = drop(case, 0, explicit.permuting(group))
    exact = grouped_importance(tables, fits.weights, ["kind", "noun"])[0, 0]
    assert exact == pytest.approx(mean, abs=4 * error)
    alone = permutation_importance(tables, fits.weights)
    for f, name in enumerate(tables.features):
        one = grouped_importance(tables, fits.weights, [name])
        np.testing.assert_allclose(one, alone[..., f], atol=1e-12)
    everything = grouped_importance(tables, fits.weights, list(tables.features))
    np.testing.assert_allclose(everything, fits.rho, atol=1e-12)


def test_what_the_others_determine_has_no_importance_of_its_own():
    features = explicit.random_features(150)[["kind", "length"]]
    features["copy"] = features["kind"]
    tables = tables_of(features, [explicit.random_layer(features)], explicit.random_folds(150, 3))
    fits = RidgeMLEM().cross_validate(tables)
    by_name = importances(tables, [("m", 4)], fits, "ridge").set_index("feature")
    assert by_name.loc[["kind", "copy"], "permuted"].min() > 0.01
    np.testing.assert_allclose(by_name.loc[["kind", "copy"], "conditional"], 0, atol=1e-12)
    assert by_name.loc[["kind", "copy"], "left_out"].abs().max() < 0.01
    assert by_name.loc["length", "left_out"] > 0.05
    assert by_name["model"].unique() == ["m"] and by_name["layer"].unique() == [4]
    assert correlated_features(tables)[0] == ("kind", "copy", pytest.approx(1.0))
    said = warning(correlated_features(tables))
    assert "kind" in said and "copy" in said and "1.00" in said and warning([]) == ""


def test_leaving_a_feature_out_is_a_fit_without_it(case):
    features, folds, layer, tables, fits = case
    found = loco_importance(tables, fits.rho, "ridge")
    fewer = tables_of(features.drop(columns="kind"), [layer], folds)
    without = RidgeMLEM().cross_validate(fewer).rho
    f = tables.features.index("kind")
    np.testing.assert_allclose(found[..., f], fits.rho - without, atol=1e-9)


def test_what_changes_nothing_has_no_importance_beside_a_layer_in_which_it_does(case):
    tables, fits = case[3], case[4]
    both = joined([tables, tables])
    weights = np.concatenate([fits.weights, fits.weights])
    # Without weight, or with one too small to order any pair anew.
    weights[0, :, 1] = 0
    weights[0, :, 2] = 1e-14 * weights[0].max()
    weights[1, :, 1:3] = weights[1].max()
    importance = permutation_importance(both, weights)
    # Features that change nothing are tied wherever importances are ordered.
    assert (importance[0, :, 1:3] == 0).all() and not np.signbit(importance[0, :, 1:3]).any()
    assert (importance[1, :, 1:3] != 0).all()


def test_few_values_are_merged_as_many_are_sorted(case, monkeypatch):
    tables, weights = case[3], case[4].weights
    # Of equal weights, predictions tie.
    every = (weights, np.ones_like(weights))
    merged = [permutation_importance(tables, own) for own in every]
    monkeypatch.setattr("mlem_core.measures.importance.MERGED", 0)
    for own, expected in zip(every, merged, strict=True):
        assert expected.any()
        np.testing.assert_allclose(permutation_importance(tables, own), expected, atol=1e-12)


def test_large_tables_are_shared_out_and_cut_up_with_the_same_numbers(case, monkeypatch):
    tables = case[3].with_interactions()
    whole, importance = fitted(tables)
    few = tables.of_features(tables.features[:-1])
    monkeypatch.setattr("mlem_core.base.work.LARGE", 0)
    monkeypatch.setattr("mlem_core.pairs.ranks.AT_ONCE", 1)
    shared, again = fitted(tables)
    for name in ("weights", "alpha", "rho", "rho_a", "ceiling"):
        np.testing.assert_array_equal(getattr(shared, name), getattr(whole, name))
    np.testing.assert_array_equal(again, importance)
    np.testing.assert_array_equal(tables.of_features(few.features).target_sums, few.target_sums)


@for_each(
    "layers, expected",
    # Each leads in one layer of three.
    ([(0.24, 0.15, 0.0), (0.0, 0.15, 0.16), (0.0, 0.16, 0.15)], "b"),
    # The highest mean is that of one layer; another leads in most.
    ([(0.9, 0.1, 0.0), (0.0, 0.1, 0.0), (0.0, 0.1, 0.0)], "b"),
    ([(0.9, 0.1, 0.0), (0.0, 0.1, 0.0)], "a"),
)
def test_what_matters_most_has_the_highest_mean_or_leads_in_most_layers(layers, expected):
    assert most_important(pd.DataFrame(layers, columns=["a", "b", "c"])) == expected


def test_bins_of_many_values_move_importance_little(case, monkeypatch):
    tables, fits = case[3], case[4]
    exact = permutation_importance(tables, fits.weights)
    monkeypatch.setattr("mlem_core.measures.importance.MAX_CELLS", 1)
    assert 0 < np.abs(permutation_importance(tables, fits.weights) - exact).max() < 0.1


FEW = 45


def squares_of(layers):
    return [explicit.squared(layer) for layer in layers]


def rsa_of(layers):
    return np.corrcoef([rankdata(own) for own in squares_of(layers)])


def partial_of(features, layers, n_folds=5, seed=0, interactions=False):
    folds = explicit.random_folds(len(features), n_folds, seed)
    tables = tables_of(features, layers, folds).with_interactions(interactions)
    return partial_similarity(tables, rsa_of(layers), RidgeMLEM().cross_validate(tables).weights)


@pytest.fixture(scope="module")
def three():
    features = explicit.random_features(FEW)
    layers = [explicit.random_layer(features, seed) for seed in range(3)]
    folds = explicit.random_folds(FEW, 3)
    return features, layers, folds, tables_of(features, layers, folds)


def explicit_v(three, a, b):
    """v of all features over explicit pairs, and that of the first layer by itself in each fold."""
    features, layers, folds, _ = three
    x = explicit.feature_distances(features)
    ra, rb = (rankdata(explicit.squared(layers[i])) for i in (a, b))
    orders = [explicit.priority(x, ranks, folds) for ranks in (ra, rb)]
    own = [explicit.explained_in(x, ra, ra, folds, fold, orders[0]) for fold in range(3)]
    v = explicit.cross_fitted(x, ra, rb, folds, range(x.shape[1]), orders)
    return v, np.array(own) / ra.var()


def test_both_parts_equal_those_of_explicit_pairs(three):
    _, layers, _, tables = three
    weights = RidgeMLEM().cross_validate(tables).weights
    found = partial_similarity(tables, rsa_of(layers), weights)
    whole, of_folds = explained_parts(tables)
    for a, b in ((0, 1), (2, 0)):
        (v_ab, _), (v_aa, by_fold), (v_bb, _) = (
            explicit_v(three, *at) for at in ((a, b), (a, a), (b, b))
        )
        assert whole[a, b] == pytest.approx(v_ab, abs=1e-9)
        rho = spearmanr(*squares_of([layers[a], layers[b]])).statistic
        expected = (rho - v_ab) / np.sqrt((1 - v_aa) * (1 - v_bb))
        assert found.rest[a, b] == pytest.approx(expected, abs=1e-9)
        of_features = feature_similarity(*(whole[at] for at in ((a, b), (a, a), (b, b))))
        assert of_features == pytest.approx(v_ab / np.sqrt(v_aa * v_bb), abs=1e-9)
        np.testing.assert_allclose(of_folds[a], by_fold, atol=1e-9)
        assert of_folds[a].mean() == pytest.approx(v_aa, abs=1e-9)
        clear = above_zero(of_folds)
        expected = of_features if clear[a] and clear[b] else np.nan
        np.testing.assert_allclose(found.features[a, b], expected)


@pytest.mark.parametrize("interactions", [False, True])
def test_transfer_is_the_score_of_a_metric_on_explicit_distances_of_the_other(three, interactions):
    features, layers, folds, tables = three
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


def test_ratios_are_of_the_score_of_the_layer_that_is_predicted(three):
    _, layers, _, tables = three
    weights = RidgeMLEM().cross_validate(tables).weights
    found, scores = partial_similarity(tables, rsa_of(layers), weights), transfer(tables, weights)
    own = scores.mean(axis=-1)[[0, 1, 2], [0, 1, 2]]
    known = above_zero(scores[[0, 1, 2], [0, 1, 2]])
    assert known.any()
    for b in np.flatnonzero(known):
        np.testing.assert_allclose(found.ratio[:, b], scores[:, b].mean(axis=-1) / own[b])
        assert found.ratio[b, b] == pytest.approx(1.0)


def test_what_is_clearly_above_0_has_an_interval_over_folds_above_it():
    values = np.random.default_rng(0).normal(0.4, 0.5, size=(200, 5))
    low = [t.interval(0.95, 4, one.mean(), one.std(ddof=1) / np.sqrt(5))[0] > 0 for one in values]
    np.testing.assert_array_equal(above_zero(values), low)
    assert 20 < sum(low) < 180
    assert not above_zero(np.ones((2, 1))).any() and not above_zero(np.zeros((1, 4))).any()
    assert above_zero(np.ones((1, 4))).all()


def test_one_fold_and_constant_layers_have_no_such_numbers(three):
    features, layers, folds, _ = three
    with refused("at least two"):
        explained_parts(tables_of(features, layers, np.zeros(FEW, dtype=np.int64)))
    tables = tables_of(features, [layers[0], np.ones((FEW, 2))], folds)
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
        told.append(above_zero(explained_parts(tables)[1]))
    # Of 300 such data sets 7 % passed in a layer, and 1 % in both.
    assert np.mean(told) <= 0.15 and np.all(told, axis=1).sum() <= 1
