"""Importance: explicit pairs, refits, planted."""

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import for_each, tables_of

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
