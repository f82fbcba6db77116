from __future__ import annotations

import explicit
import numpy as np
import pytest

from mlem_core.base.errors import InputError
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.measures.correlated import (
    conditional_importance,
    correlated_features,
    grouped_importance,
    importances,
    loco_importance,
    warning,
)
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex

N = 150


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    # Goes along with kind, mostly.
    rng = np.random.default_rng(1)
    features["noun"] = np.where(
        rng.random(N) < 0.9, features["kind"] == "noun", rng.random(N) < 0.5
    ).astype(str)
    folds = explicit.random_folds(N, 3)
    layer = explicit.random_layer(features)
    index = PairIndex.build(feature_columns(features), folds)
    tables = pair_tables(index, [lambda: layer])
    return features, folds, layer, tables, RidgeMLEM().cross_validate(tables)


def monte_carlo(case, fold, permute, n=400):
    """Mean drop and its standard error; `permute(x, rng)` changes explicit feature distances."""
    features, folds, layer, _, fits = case
    rng = np.random.default_rng(0)
    test = explicit.held_out(folds, fold)
    x = explicit.feature_distances(features)[test]
    target, weights = explicit.squared(layer)[test], fits.weights[0, fold]
    whole = explicit.rho(x**2 @ weights, target)
    drops = [whole - explicit.rho(permute(x.copy(), rng) ** 2 @ weights, target) for _ in range(n)]
    return np.mean(drops), np.std(drops) / n**0.5


def test_conditional_importance_equals_permutations_among_pairs_that_agree(case):
    exact = conditional_importance(case[3], case[4].weights)[0, 1]
    assert exact.max() > 0.02
    for f in range(5):

        def permute(x, rng, f=f):
            _, group = np.unique(np.round(np.delete(x, f, axis=1), 9), axis=0, return_inverse=True)
            order = np.argsort(group, kind="stable")
            shuffled = np.lexsort((rng.random(len(x)), group))
            x[order, f] = x[shuffled, f]
            return x

        mean, error = monte_carlo(case, 1, permute)
        assert exact[f] == pytest.approx(mean, abs=4 * error + 1e-3)


def test_group_importance_equals_permutations_of_the_group(case):
    tables, fits = case[3], case[4]
    group = [tables.features.index(name) for name in ("kind", "noun")]

    def permute(x, rng):
        x[:, group] = rng.permutation(x[:, group])
        return x

    mean, error = monte_carlo(case, 0, permute)
    exact = grouped_importance(tables, fits.weights, ["kind", "noun"])[0, 0]
    assert exact == pytest.approx(mean, abs=4 * error)
    alone = permutation_importance(tables, fits.weights)
    for f, name in enumerate(tables.features):
        one = grouped_importance(tables, fits.weights, [name])
        np.testing.assert_allclose(one, alone[..., f], atol=1e-12)
    everything = grouped_importance(tables, fits.weights, list(tables.features))
    np.testing.assert_allclose(everything, fits.rho, atol=1e-12)


def test_what_the_others_determine_has_no_importance_of_its_own():
    features = explicit.random_features(N)[["kind", "length"]]
    features["copy"] = features["kind"]
    layer = explicit.random_layer(features)
    index = PairIndex.build(feature_columns(features), explicit.random_folds(N, 3))
    tables = pair_tables(index, [lambda: layer])
    fits = RidgeMLEM().cross_validate(tables)
    by_name = importances(tables, [("m", 4)], fits, "ridge").set_index("feature")
    assert by_name.loc[["kind", "copy"], "permuted"].min() > 0.01
    np.testing.assert_allclose(by_name.loc[["kind", "copy"], "conditional"], 0, atol=1e-12)
    assert by_name.loc[["kind", "copy"], "left_out"].abs().max() < 0.01
    assert by_name.loc["length", "left_out"] > 0.05
    assert by_name["model"].unique() == ["m"] and by_name["layer"].unique() == [4]
    assert correlated_features(tables)[0] == ("kind", "copy", pytest.approx(1.0))
    text = warning(correlated_features(tables))
    assert "kind and copy (r = 1.00)" in text and warning([]) == ""


def test_leaving_a_feature_out_is_a_fit_without_it(case):
    features, folds, layer, tables, fits = case
    found = loco_importance(tables, fits.rho, "ridge")
    index = PairIndex.build(feature_columns(features.drop(columns="kind")), folds)
    without = RidgeMLEM().cross_validate(pair_tables(index, [lambda: layer])).rho
    f = tables.features.index("kind")
    np.testing.assert_allclose(found[..., f], fits.rho - without, atol=1e-9)


def test_interactions_count_for_their_features(case):
    tables = case[3].with_interactions()
    fits = RidgeMLEM().cross_validate(tables)
    found = importances(tables, [("m", 0)], fits, "ridge")
    assert found["feature"].tolist() == list(tables.features)
    assert np.isfinite(found[["permuted", "conditional", "left_out"]].to_numpy()).all()


def test_wrong_groups_are_named(case):
    with pytest.raises(InputError, match="knid"):
        grouped_importance(case[3], case[4].weights, ["knid"])
    with pytest.raises(InputError, match="at least one"):
        grouped_importance(case[3], case[4].weights, [])
    with pytest.raises(InputError, match="one feature only"):
        loco_importance(case[3].of_features(["kind"]), case[4].rho, "ridge")
