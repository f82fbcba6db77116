from __future__ import annotations

import explicit
import numpy as np
import pandas as pd
import pytest

from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.measures.importance import fitted, most_important, permutation_importance
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.tables import joined

N = 150


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    folds = explicit.random_folds(N)
    layer = explicit.random_layer(features)
    index = PairIndex.build(feature_columns(features), folds)
    tables = pair_tables(index, [lambda: layer])
    return features, folds, layer, tables, RidgeMLEM().cross_validate(tables)


@pytest.mark.parametrize("fold", [0, 3])
def test_equals_a_monte_carlo_permutation_of_the_explicit_pairs(case, fold):
    features, folds, layer, tables, fits = case
    exact = permutation_importance(tables, fits.weights)[0, fold]
    rng = np.random.default_rng(0)
    test = explicit.held_out(folds, fold)
    x = explicit.feature_distances(features)[test] ** 2
    target, weights = explicit.squared(layer)[test], fits.weights[0, fold]
    whole = explicit.rho(x @ weights, target)
    for f in range(x.shape[1]):
        drops = []
        for _ in range(1000):
            permuted = x.copy()
            permuted[:, f] = rng.permutation(permuted[:, f])
            drops.append(whole - explicit.rho(permuted @ weights, target))
        error = np.std(drops) / 1000**0.5
        assert exact[f] == pytest.approx(np.mean(drops), abs=3 * error + 1e-12)


def test_a_feature_without_weight_has_no_importance(case):
    tables, fits = case[3], case[4]
    weights = fits.weights.copy()
    weights[..., 1] = 0
    assert (permutation_importance(tables, weights)[..., 1] == 0).all()


def test_what_changes_nothing_has_no_importance_beside_a_layer_in_which_it_does(case):
    tables, fits = case[3], case[4]
    both = joined([tables, tables])
    weights = np.concatenate([fits.weights, fits.weights])
    # Without weight, or with one too small to order any pair anew.
    weights[0, :, 1] = 0
    weights[0, :, 2] = 1e-14 * weights[0].max()
    weights[1, :, 1:3] = weights[1].max()
    importance = permutation_importance(both, weights)
    assert (importance[0, :, 1:3] == 0).all() and not np.signbit(importance[0, :, 1:3]).any()
    assert (importance[1, :, 1:3] != 0).all()
    # Features that change nothing are tied wherever importances are ordered.
    profile = importance[0].mean(axis=0)
    assert set(profile[1:3]) == {0.0}


def test_bins_of_many_values_move_importance_little(case, monkeypatch):
    tables, fits = case[3], case[4]
    exact = permutation_importance(tables, fits.weights)
    monkeypatch.setattr("mlem_core.measures.importance.MAX_CELLS", 1)
    coarse = permutation_importance(tables, fits.weights)
    assert 0 < np.abs(coarse - exact).max() < 0.1


def test_importance_follows_what_was_planted():
    features = explicit.random_features(300, seed=5)
    rng = np.random.default_rng(0)
    layer = np.stack(
        [3.0 * (features["kind"] == "noun"), 1.0 * (features["gender"] == "f"), rng.random(300)], 1
    )
    index = PairIndex.build(feature_columns(features), explicit.random_folds(300))
    tables = pair_tables(index, [lambda: layer])
    fits = RidgeMLEM().cross_validate(tables)
    importance = permutation_importance(tables, fits.weights).mean(axis=(0, 1))
    by_name = dict(zip(tables.features, importance, strict=True))
    assert by_name["kind"] > 3 * by_name["gender"] > 0.1
    assert abs(by_name["frequency"]) < 0.01 and abs(by_name["length"]) < 0.01


def test_few_values_are_merged_as_many_are_sorted(case, monkeypatch):
    tables = case[3]
    weights = RidgeMLEM().cross_validate(tables).weights
    # Of equal weights, predictions tie.
    for own in (weights, np.ones_like(weights)):
        merged = permutation_importance(tables, own)
        monkeypatch.setattr("mlem_core.measures.importance.MERGED", 0)
        in_order = permutation_importance(tables, own)
        monkeypatch.undo()
        assert merged.any()
        np.testing.assert_allclose(merged, in_order, atol=1e-12)


def test_large_tables_are_shared_out_and_cut_up_with_the_same_numbers(case, monkeypatch):
    tables = case[3].with_interactions()
    whole, importance = fitted(tables)
    few = tables.of_features(tables.features[:-1])
    monkeypatch.setattr("mlem_core.base.parallel.LARGE", 0)
    monkeypatch.setattr("mlem_core.pairs.ranks.AT_ONCE", 1)
    shared, again = fitted(tables)
    for name in ("weights", "alpha", "rho", "rho_a", "ceiling"):
        np.testing.assert_array_equal(getattr(shared, name), getattr(whole, name))
    np.testing.assert_array_equal(again, importance)
    np.testing.assert_array_equal(tables.of_features(few.features).target_sums, few.target_sums)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        # Each leads in one layer of three.
        ([(0.24, 0.15, 0.0), (0.0, 0.15, 0.16), (0.0, 0.16, 0.15)], "b"),
        # The highest mean is that of one layer; another leads in most.
        ([(0.9, 0.1, 0.0), (0.0, 0.1, 0.0), (0.0, 0.1, 0.0)], "b"),
        ([(0.9, 0.1, 0.0), (0.0, 0.1, 0.0)], "a"),
    ],
)
def test_what_matters_most_has_the_highest_mean_or_leads_in_most_layers(
    layers: list[tuple[float, ...]], expected: str
) -> None:
    assert most_important(pd.DataFrame(layers, columns=["a", "b", "c"])) == expected
