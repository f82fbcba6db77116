from __future__ import annotations

import explicit
import numpy as np
import pytest
from inputs import layer_pairs
from scipy.stats import t

from mlem_core.base.errors import InputError
from mlem_core.inference.corrections import corrected
from mlem_core.inference.jackknife import p_value, standard_error
from mlem_core.inference.replicates import Replicates, resampled_scores, resampled_terms


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
    replicates = rng.exponential(size=20_000) * 10
    without = rng.standard_normal(5000)
    found = Replicates(np.float64(2.0), replicates, without).interval()
    error = standard_error(without)
    low, high = (np.quantile(replicates, [0.025, 0.975]) - replicates.mean()) / replicates.std()
    assert found.lower == pytest.approx(2 + error * low, rel=1e-2)
    assert found.upper == pytest.approx(2 + error * high, rel=1e-2)
    assert 2 - found.lower < found.upper - 2


def test_what_no_stimulus_changes_is_certain():
    found = Replicates(np.zeros(2), np.zeros((50, 2)), np.zeros((9, 2))).interval()
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


def test_too_few_replicates_or_sentences_are_refused(case):
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
    assert (standard_error(found.left_out)[0, :2] > 0).all()
