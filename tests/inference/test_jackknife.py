from __future__ import annotations

import explicit
import numpy as np
import pandas as pd
import pytest
from scipy.stats import t
from test_bootstrap import layer_pairs

from mlem_core.base.errors import InputError
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.jackknife import (
    Resampling,
    compare_importances,
    compare_terms,
    corrected,
    interval,
    p_value,
    resampled_scores,
    resampled_terms,
    score_table,
    standard_error,
)


def test_the_standard_error_of_a_mean_is_the_known_one():
    x = np.random.default_rng(0).standard_normal(30)
    without = (x.sum() - x) / 29
    assert standard_error(without) == pytest.approx(x.std(ddof=1) / 30**0.5)
    p = p_value(np.float64(x.mean() + 0.3), without + 0.3)
    statistic = (x.mean() + 0.3) / (x.std(ddof=1) / 30**0.5)
    assert p == pytest.approx(2 * t.sf(abs(statistic), 29))
    assert p_value(np.float64(0.3), without + 0.3, above=True) == pytest.approx(
        t.sf(0.3 / (x.std(ddof=1) / 30**0.5), 29)
    )


def test_an_interval_has_the_shape_of_the_bootstrap_and_the_scale_of_the_jackknife():
    rng = np.random.default_rng(0)
    draws = rng.exponential(size=20_000) * 10
    without = rng.standard_normal(5000)
    found = interval(np.float64(2.0), draws, without)
    error = standard_error(without)
    low, high = (np.quantile(draws, [0.025, 0.975]) - draws.mean()) / draws.std()
    assert found.lower == pytest.approx(2 + error * low, rel=1e-2)
    assert found.upper == pytest.approx(2 + error * high, rel=1e-2)
    assert 2 - found.lower < found.upper - 2


def test_what_no_stimulus_changes_is_certain():
    found = interval(np.zeros(2), np.zeros((50, 2)), np.zeros((9, 2)))
    np.testing.assert_array_equal(found.lower, found.upper)
    same = np.repeat([[0.0, 0.5]], 9, axis=0)
    np.testing.assert_array_equal(p_value(same[0], same), [1.0, 0.0])
    np.testing.assert_array_equal(p_value(-same[0], -same, above=True), [1.0, 1.0])


def test_corrections():
    p = np.array([0.01, 0.02, 0.03, 0.5])
    np.testing.assert_allclose(corrected(p), [0.04, 0.04, 0.04, 0.5])
    np.testing.assert_allclose(corrected(p, "bonferroni"), [0.04, 0.08, 0.12, 1.0])
    np.testing.assert_array_equal(corrected(p, "none"), p)
    with pytest.raises(InputError, match="bonferroni"):
        corrected(p, "bonferoni")


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(120)
    rng = np.random.default_rng(0)
    kind = 4.0 * (features[["kind"]] == "noun").to_numpy()
    size = 6.0 * features[["frequency"]].to_numpy()
    layers = [
        np.hstack((part, rng.standard_normal((120, 2))))
        for part in (np.hstack((kind, size)), kind, kind)
    ]
    return features, layers, np.arange(120), np.arange(120) % 4


@pytest.fixture(scope="module")
def scored(case):
    features, layers, groups, folds = case
    pairs = layer_pairs(features, layers[:2], groups, folds)
    return pairs, resampled_scores(pairs, "ridge", 60)


def test_scores_have_intervals_and_tests(scored):
    pairs, scores = scored
    table, family = score_table(pairs, scores)
    fits = RidgeMLEM().cross_validate(pairs.tables)
    rho = table.query("quantity == 'rho'")
    np.testing.assert_allclose(rho["value"], fits.rho.mean(axis=1), atol=1e-9)
    assert (table["lower"] <= table["value"]).all() and (table["value"] <= table["upper"]).all()
    own = table.query("quantity == 'importance'").set_index(["layer", "feature"])
    assert own.loc[(0, "kind"), "p_corrected"] < 0.01 and own.loc[(0, "frequency"), "p"] < 0.01
    assert own.loc[(1, "frequency"), "p"] > 0.05 and own.loc[(0, "gender"), "p"] > 0.05
    assert family == "8 importances; Benjamini-Hochberg"
    assert rho["p"].isna().all()


def test_importances_of_two_layers_are_compared(scored):
    pairs, scores = scored
    table, family = compare_importances(pairs, scores, "bonferroni")
    own = table.set_index("feature")
    assert own.loc["frequency", "p_corrected"] < 0.01 and own.loc["frequency", "value"] > 0.05
    assert own.loc["gender", "p_corrected"] > 0.05
    assert family == "4 differences of importance, m:0 less m:1; Bonferroni"


def test_two_similarities_are_compared(case):
    features, layers, groups, folds = case
    one, other = (
        resampled_terms(layer_pairs(features, [layers[a], layers[b]], groups, folds), 60, seed=3)
        for a, b in ((0, 1), (1, 2))
    )
    names = tuple(features.columns)
    table, family = compare_terms(other, one, names, "B and C less A and B")
    own = table.set_index("term")
    assert own.loc["RSA", "value"] == pytest.approx(other.value[5] - one.value[5])
    assert own.loc["RSA", "p"] < 0.05 and own.loc["kind", "value"] > 0
    assert family == "6 differences, B and C less A and B; Benjamini-Hochberg"
    same = compare_terms(one, one, names, "the same").table
    assert (same["value"] == 0).all() and (same["p"] == 1).all()
    with pytest.raises(InputError, match="same draws"):
        compare_terms(one, Resampling(one.value, one.draws[:9], one.left_out), names, "")


def test_too_few_draws_or_sentences_are_refused(case):
    features, layers, groups, folds = case
    pairs = layer_pairs(features, layers[:2], groups, folds)
    with pytest.raises(InputError, match="at least 20"):
        resampled_terms(pairs, 5)
    few = layer_pairs(features, layers[:2], groups // 20, groups // 20 % 3)
    with pytest.raises(InputError, match="6 sentences"):
        resampled_scores(few)
    with pytest.raises(InputError, match="ridge"):
        resampled_scores(pairs, "rigde")


def test_other_estimators_keep_their_weights(case):
    features, layers, groups, folds = case
    pairs = layer_pairs(features, layers[:1], groups, folds, train_ranks=True)
    found = resampled_scores(pairs, "ridge-rank", 20)
    assert isinstance(score_table(pairs, found).table, pd.DataFrame)
    assert (standard_error(found.left_out)[0, :2] > 0).all()
