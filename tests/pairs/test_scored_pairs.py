"""The pairs that test each fold: grouped where equal, scored as explicit pairs are; ceilings."""

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import for_each, statistics_of
from scipy.stats import rankdata

from mlem_core.estimators.base import RidgeMLEM
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import fitted
from mlem_core.pairs import scored_pairs
from mlem_core.pairs.scored_pairs import feature_ceilings

N = 90
FOLDS = explicit.random_folds(N, 3)
FEATURES = explicit.random_features(N).assign(number=np.random.default_rng(0).random(N))
LAYERS = [explicit.random_layer(FEATURES, seed) for seed in range(2)]
FEW = ["kind", "gender"]


@for_each("features", FEW, [*FEATURES])
@for_each(
    "more",
    {},
    {"resolved": ("kind",)},
    {"interactions": True, "missing": "level"},
    {"items": np.arange(N) % 40},
)
def test_scores_are_those_of_the_explicit_pairs(features, more, monkeypatch):
    pairs = statistics_of(FEATURES[features], LAYERS, FOLDS, **more)
    assert pairs.tests.is_grouped == (features == FEW)
    rng = np.random.default_rng(1)
    weights = rng.integers(1, 4, (2, 4, len(pairs.columns))).astype(float)  # ties among them
    test = explicit.held_out(FOLDS, 1, more.get("items"))
    x = pairs.columns.pair_values(*explicit.pairs(N))[test]
    fold = pairs.tests.folds[1]
    assert fold.counts.sum() == test.sum()
    rows = np.unique(x.round(9), axis=0)
    assert len(fold.counts) == (len(rows) if fold.is_grouped else test.sum())
    for most in (scored_pairs.MOST_VALUES, 0):
        monkeypatch.setattr(scored_pairs, "MOST_VALUES", most)
        found = pairs.select_layers([0, 1]).tests.folds[1].scores(weights)
        for layer in range(2):
            target = explicit.squared(LAYERS[layer])[test]
            for number, own in enumerate(weights[layer]):
                scores = found.rho[layer, number], found.rho_a[layer, number]
                expected = explicit.rho(x @ own, target), explicit.rho_a(x @ own, target)
                np.testing.assert_allclose(scores, expected, atol=1e-9)


def test_pairs_of_some_features_are_grouped_anew():
    pairs = statistics_of(FEATURES, LAYERS, FOLDS)
    some, alone = pairs.select_features(FEW), statistics_of(FEATURES[FEW], LAYERS, FOLDS)
    assert not pairs.tests.is_grouped and some.tests.is_grouped
    for own, expected in zip(some.tests.folds, alone.tests.folds, strict=True):
        order, other = (np.lexsort(fold.values.T) for fold in (own, expected))
        np.testing.assert_array_equal(own.values[order], expected.values[other])
        np.testing.assert_array_equal(own.counts[order], expected.counts[other])
        np.testing.assert_allclose(own.rank_sums[:, order], expected.rank_sums[:, other])


def test_drawn_scores_are_those_of_scipy_or_near_in_classes(monkeypatch):
    fold = statistics_of(FEATURES, LAYERS, FOLDS).tests.folds[0]
    predictions = np.random.default_rng(0).random((2, 3, len(fold.counts))) ** 2
    predictions[0, 1], predictions[1, 2] = 0.0, np.round(predictions[1, 2], 1)
    test = explicit.held_out(FOLDS, 0)
    expected = [
        [explicit.rho(own, explicit.squared(layer)[test]) if own.any() else 0.0 for own in of_layer]
        for of_layer, layer in zip(predictions, LAYERS, strict=True)
    ]
    np.testing.assert_allclose(fold.drawn_scores(predictions), expected, rtol=0, atol=1e-12)
    monkeypatch.setattr(scored_pairs, "CLASSES", 400)
    off = np.abs(fold.drawn_scores(predictions) - expected)
    assert 0 < off.max() < 0.005 and off[0, 1] == 0


def test_the_ceiling_of_a_fold_is_that_of_explicit_pairs():
    for resolved in ((), ("kind",)):
        pairs = statistics_of(FEATURES[FEW], LAYERS, FOLDS, resolved)
        x = pairs.columns.pair_values(*explicit.pairs(N))
        found = feature_ceilings(pairs.tests)
        for own, layer in zip(found, LAYERS, strict=True):
            expected = explicit.ceilings(x, explicit.squared(layer), FOLDS)
            np.testing.assert_allclose(own, expected, atol=1e-9)
        np.testing.assert_array_equal(RidgeMLEM().cross_validate(pairs).ceiling, found)


def test_there_is_no_ceiling_where_few_pairs_are_equal_or_no_other_fold_has_any(monkeypatch):
    assert np.isnan(feature_ceilings(statistics_of(FEATURES, LAYERS, FOLDS).tests)).all()
    assert np.isnan(feature_ceilings(statistics_of(FEATURES[FEW], LAYERS).tests)).all()
    tests = statistics_of(FEATURES[FEW], LAYERS, FOLDS).tests
    sizes = sum(len(fold.counts) for fold in tests.folds)
    mean = sum(fold.counts.sum() for fold in tests.folds) / sizes
    for least, has_ceiling in ((mean - 1, True), (mean + 1, False)):
        monkeypatch.setattr(scored_pairs, "PAIRS_A_GROUP", least)
        assert np.isfinite(feature_ceilings(tests)).all() == has_ceiling


def test_the_ceiling_is_what_the_best_function_of_the_features_reaches():
    rng = np.random.default_rng(0)
    n, folds = 500, explicit.random_folds(500, 5)
    features = pd.DataFrame({"a": rng.choice(list("xy"), n), "b": rng.choice(list("xyz"), n)})
    # Only the two together matter: no metric without interactions can have it all.
    layer = rng.standard_normal((n, 3))
    layer[:, 0] += 3.0 * ((features["a"] == "x") & (features["b"] == "y"))
    fits = RidgeMLEM().cross_validate(statistics_of(features, [layer], folds))
    i, j = explicit.pairs(n)
    apart = {f: features[f].to_numpy()[i] != features[f].to_numpy()[j] for f in "ab"}
    target = explicit.squared(layer)
    for fold in range(5):
        test = explicit.held_out(folds, fold)
        ranks = pd.Series(rankdata(target[test]))
        best = ranks.groupby([own[test] for own in apart.values()]).transform("mean")
        # With 4 groups and 4,950 pairs the best function in hindsight is hardly too good.
        assert fits.ceiling[0, fold] == pytest.approx(np.corrcoef(best, ranks)[0, 1], abs=0.03)
    assert fits.ceiling.mean() > fits.rho.mean() + 0.02 > 0.07


@for_each("features", FEW, [*FEATURES])
def test_a_fold_that_no_pair_tests_scores_0(features):
    """All of its stimuli are of one item."""
    items = np.where(FOLDS == 2, 0, np.arange(N))
    pairs = statistics_of(FEATURES[features], LAYERS, FOLDS, items=items)
    fits, importance = fitted(pairs)
    assert (fits.rho[:, 2] == 0).all() and (importance[:, 2] == 0).all()
    assert (fits.rho[:, :2] != 0).all() and np.isfinite(decompose(pairs.moments).terms).all()
