"""Importance: permutations of explicit pairs and of stimuli, refits, planted."""

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import for_each, statistics_of

from mlem_core.estimators.base import RidgeMLEM
from mlem_core.measures import importance
from mlem_core.measures.importance import (
    correlation_warning,
    fitted,
    importances,
    loco_importance,
    most_important,
    permutation_importance,
)
from mlem_core.measures.similarity import correlations_of_predictions

N = 120
FOLDS = explicit.random_folds(N, 3)
CODINGS = for_each(
    "more", {}, {"resolved": ("kind", "gender")}, {"interactions": True}, {"missing": "level"}
)


def features_of(grouped):
    """Features, of which one mostly goes along with kind; some of many values or none."""
    features, rng = explicit.random_features(N), np.random.default_rng(1)
    along = rng.random(N) < 0.9
    features["noun"] = np.where(along, features["kind"] == "noun", rng.random(N) < 0.5).astype(str)
    if grouped:
        return features.drop(columns="frequency")
    return features.assign(frequency=rng.random(N))


LAYER = explicit.random_layer(features_of(True))


@CODINGS
def test_importance_of_groups_is_the_mean_over_permutations_of_pairs(more):
    """It is computed: permuting a feature over pairs makes it independent of the others."""
    features = features_of(True)[["kind", "gender", "length"]]
    pairs = statistics_of(features, [LAYER], FOLDS, **more)
    assert pairs.tests.is_grouped
    weights = np.random.default_rng(0).random((1, 3, len(pairs.columns)))
    computed, no_error = permutation_importance(pairs.tests, weights)
    assert (no_error == 0).all()
    test = explicit.held_out(FOLDS, 2)
    x = pairs.columns.pair_values(*explicit.pairs(N))[test]
    target = explicit.squared(LAYER)[test]
    for part in range(len(pairs.columns.parts)):
        own = np.flatnonzero(pairs.columns.part == part)
        mean, error = explicit.drop(x, weights[0, 2], target, explicit.permuting(own), 200)
        assert computed[0, 2, part] == pytest.approx(mean, abs=4 * error + 1e-12)


@CODINGS
def test_elsewhere_it_is_the_mean_over_permutations_of_stimuli(more):
    pairs = statistics_of(features_of(False), [LAYER], FOLDS, **more)
    assert not pairs.tests.is_grouped
    weights = np.random.default_rng(0).random((1, 3, len(pairs.columns)))
    drawn = permutation_importance(pairs.tests, weights, permutations=100)
    stimuli = np.flatnonzero(FOLDS == 1)
    i, j = explicit.pairs(len(stimuli))
    target = ((LAYER[stimuli[i]].astype(float) - LAYER[stimuli[j]]) ** 2).sum(axis=1)
    x, rng = pairs.columns.pair_values(stimuli[i], stimuli[j]), np.random.default_rng(5)
    whole = explicit.rho(x @ weights[0, 1], target)
    for part in range(3):
        own, drops = pairs.columns.part == part, []
        for _ in range(100):
            order = rng.permutation(stimuli)
            moved = np.where(own, pairs.columns.pair_values(order[i], order[j]), x)
            drops.append(whole - explicit.rho(moved @ weights[0, 1], target))
        error = np.hypot(drawn.error[0, 1, part], np.std(drops) / 10)
        assert drawn.drop[0, 1, part] == pytest.approx(np.mean(drops), abs=4 * error)
        assert drawn.error[0, 1, part] == pytest.approx(np.std(drops) / 10, rel=0.4)


@CODINGS
def test_drawn_importance_is_that_of_explicit_pairs_with_the_same_permutations(more, monkeypatch):
    layers = [explicit.random_layer(features_of(True), seed) for seed in range(3)]
    pairs = statistics_of(features_of(False), layers, FOLDS, **more)
    weights = np.random.default_rng(0).random((3, 3, len(pairs.columns)))
    drop = permutation_importance(pairs.tests, weights, permutations=2).drop
    stimuli = np.flatnonzero(FOLDS == 1)
    i, j = explicit.pairs(len(stimuli))
    x = pairs.columns.pair_values(stimuli[i], stimuli[j])
    for part in range(3):
        rng, own = np.random.default_rng([0, 1, part]), pairs.columns.part == part
        orders = [stimuli[rng.permutation(len(stimuli))] for _ in range(2)]
        for number, layer in enumerate(layers):
            target, metric = explicit.squared(layer[stimuli]), weights[number, 1]
            moved = [np.where(own, pairs.columns.pair_values(o[i], o[j]), x) for o in orders]
            permuted = np.mean([explicit.rho(columns @ metric, target) for columns in moved])
            expected = explicit.rho(x @ metric, target) - permuted
            assert drop[number, 1, part] == pytest.approx(expected, abs=1e-11)
    monkeypatch.setattr(importance, "MOST_PREDICTIONS", 1)  # a layer at a time
    alone = permutation_importance(pairs.tests, weights, permutations=2).drop
    np.testing.assert_allclose(alone, drop, rtol=0, atol=1e-12)


def test_what_the_others_determine_is_not_missed_when_it_is_left_out():
    features = explicit.random_features(150)[["kind", "length"]]
    features["copy"] = features["kind"]
    layer, folds = explicit.random_layer(features), explicit.random_folds(150, 3)
    pairs = statistics_of(features, [layer], folds)
    fits = RidgeMLEM().cross_validate(pairs)
    by_name = importances(pairs, [("m", 4)], fits, "ridge").set_index("feature")
    assert by_name.loc[["kind", "copy"], "permuted"].min() > 0.01
    assert by_name.loc[["kind", "copy"], "left_out"].abs().max() < 0.01
    assert by_name.loc["length", "left_out"] > 0.05
    assert by_name["model"].unique() == ["m"] and by_name["layer"].unique() == [4]
    warning = correlation_warning(pairs, fits.weights)
    assert "over the pairs: kind and copy (r = 1.00)" in warning
    assert correlation_warning(pairs.select_features(["kind"]), fits.weights[..., :1]) == ""


def test_with_interactions_a_feature_has_all_the_columns_that_it_is_in():
    features = features_of(True)[["kind", "gender"]]
    pairs = statistics_of(features, [LAYER], FOLDS, interactions=True)
    fits = RidgeMLEM().cross_validate(pairs)
    drop = permutation_importance(pairs.tests, fits.weights).drop[0].mean(axis=0)
    table = importances(pairs, [("m", 0)], fits, "ridge").set_index("feature")
    assert pairs.columns.parts == ("kind", "gender", "kind × gender")
    assert table.loc["kind", "permuted"] == pytest.approx(drop[0] + drop[2])
    assert table.loc["gender", "permuted"] == pytest.approx(drop[1] + drop[2])
    assert (table["permutation_error"] == 0).all()


def test_the_error_of_drawn_permutations_stands_beside_the_importance():
    pairs = statistics_of(features_of(False), [LAYER], FOLDS)
    fits = RidgeMLEM().cross_validate(pairs)
    _, error = permutation_importance(pairs.tests, fits.weights)
    table = importances(pairs, [("m", 0)], fits, "ridge")
    expected = np.linalg.norm(error[0], axis=0) / pairs.n_folds
    np.testing.assert_allclose(table["permutation_error"], expected)
    assert table["permutation_error"].max() > 0


def test_leaving_a_feature_out_is_a_fit_without_it():
    features = features_of(False)
    pairs = statistics_of(features, [LAYER], FOLDS)
    rho = RidgeMLEM().cross_validate(pairs).rho
    found = loco_importance(pairs, rho, "ridge")
    fewer = statistics_of(features.drop(columns="kind"), [LAYER], FOLDS)
    without = RidgeMLEM().cross_validate(fewer).rho
    np.testing.assert_allclose(found[..., 0], rho - without, atol=1e-9)


@CODINGS
def test_correlations_of_predictions_are_those_of_the_explicit_pairs(more):
    pairs = statistics_of(features_of(True), [LAYER], FOLDS, **more)
    weights = np.random.default_rng(0).random((1, 3, len(pairs.columns)))
    x, columns = pairs.columns.pair_values(*explicit.pairs(N)), pairs.columns
    own = columns.first_feature == columns.second_feature
    each = []
    for metric in weights[0]:
        of_features = [
            x[:, own & (columns.first_feature == f)] @ metric[own & (columns.first_feature == f)]
            for f in range(len(pairs.features))
        ]
        each.append(np.corrcoef(of_features))
    found = correlations_of_predictions(pairs.moments, weights)
    np.testing.assert_allclose(found, np.mean(each, axis=0), atol=1e-9)


@pytest.mark.parametrize("grouped", [True, False])
def test_what_changes_nothing_has_no_importance_beside_a_layer_in_which_it_does(grouped):
    pairs = statistics_of(features_of(grouped), [LAYER, LAYER], FOLDS)
    weights = np.random.default_rng(0).random((2, 3, len(pairs.columns)))
    # Without weight, or with one too small to order any pair anew.
    weights[0, :, 1] = 0
    weights[0, :, 2] = 1e-14 * weights[0].max()
    importance = permutation_importance(pairs.tests, weights).drop
    # Features that change nothing are tied wherever importances are ordered.
    assert (importance[0, :, 1:3] == 0).all() and not np.signbit(importance[0, :, 1:3]).any()
    assert (importance[1, :, 1:3] != 0).all()


def test_layers_have_the_numbers_that_each_has_alone_with_any_share_of_the_work(monkeypatch):
    other = explicit.random_layer(features_of(True), 3)
    for grouped in (True, False):
        features = features_of(grouped)
        together, importance = fitted(statistics_of(features, [LAYER, other], FOLDS))
        with monkeypatch.context() as patch:
            patch.setattr("mlem_core.estimators.registry.LARGE", 0)
            patch.setattr("mlem_core.pairs.ranks.AT_ONCE", 1)
            patch.setattr("mlem_core.pairs.scored_pairs.MOST_VALUES", 0)
            alone, its_importance = fitted(statistics_of(features, [other], FOLDS))
        for name in ("weights", "alpha", "rho", "rho_a", "ceiling"):
            expected = getattr(together, name)[1:]
            np.testing.assert_allclose(getattr(alone, name), expected, atol=1e-9)
        np.testing.assert_allclose(its_importance, importance[1:], atol=1e-9)


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
