"""Moments of pairs, held against explicit pairs."""

import numpy as np
import pandas as pd
import pytest
from helpers.explicit import (
    feature_distances,
    pairs,
    products,
    random_features,
    random_folds,
    squared,
    training,
)
from helpers.inputs import for_each, refused
from helpers.moments import CODINGS, close, made_up, moments_of, moments_of_columns
from scipy.stats import rankdata, spearmanr

from mlem_core.pairs.column_builder import MAX_COLUMNS
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.pair_columns import PairColumns


@for_each("missing", "ignore", "level")
def test_columns_are_squared_feature_distances(missing):
    features = random_features(40)
    distances = feature_distances(features, missing)
    columns = feature_columns(features)
    plain = PairColumns.from_features(columns, missing).pair_values(*pairs(40))
    np.testing.assert_allclose(plain, distances**2, atol=1e-12)
    crossed = PairColumns.from_features(columns, missing, interactions=True)
    np.testing.assert_allclose(crossed.pair_values(*pairs(40)), products(distances), atol=1e-12)
    assert crossed.names[4] == "kind × length" and crossed.parts == crossed.names


def test_columns_by_value_say_which_two_values_differ():
    features = pd.DataFrame({"kind": ["noun", "verb", "noun", "other"]})
    columns = PairColumns.from_features(feature_columns(features, resolved=["kind"]))
    assert columns.names == (
        "kind: noun/other", "kind: noun/verb", "kind: other/verb",
        "kind: noun", "kind: other", "kind: verb",
    )  # fmt: skip
    # noun with verb, noun with noun, noun with other
    values = columns.pair_values(np.array([0, 0, 0]), np.array([1, 2, 3]))
    assert values.tolist() == [[0, 1, 0, 1, 0, 1], [0, 0, 0, 2, 0, 0], [1, 0, 0, 1, 1, 0]]
    assert columns.as_distance.tolist() == [1, 1, 1, 0, 0, 0]


def test_too_many_columns_are_refused_with_what_to_do():
    values = [f"v{k}" for k in range(60)]
    frame = pd.DataFrame({"word": values})
    column = feature_columns(frame)[0].with_names()
    with refused("1 features", "1,830", f"{MAX_COLUMNS:,}", "merge rare values"):
        PairColumns.from_features([column])


@CODINGS
def test_moments_inside_any_folds_are_those_of_explicit_pairs(more):
    made = made_up(n_layers=3, **more)
    moments, (i, j) = made.moments, pairs(60)
    z = moments.columns.pair_values(i, j)
    ranks = np.stack([rankdata(own) for own in made.distances]) - (len(i) + 1) / 2
    for out in [(0,), (1, 3), ()]:
        use = training(made.folds, *out)
        own = moments.within(moments.training(*out) if out else np.ones(5, dtype=bool))
        centred = z[use] - z[use].mean(axis=0)
        assert own.n_pairs == use.sum()
        close(own.means, z[use].mean(axis=0))
        close(own.gram, centred.T @ centred)
        close(own.with_distances, (made.distances[:, use] @ centred))
        close(own.with_ranks, ranks[:, use] @ centred)
        close(own.distance_means, made.distances[:, use].mean(axis=1))
        np.testing.assert_allclose(own.rank_means, ranks[:, use].mean(axis=1), atol=1e-9)
        if out:
            low, high = moments.spans(moments.training(*out))
            assert (low == made.distances[:, use].min(axis=1)).all()
            assert (high == made.distances[:, use].max(axis=1)).all()
    expected = spearmanr(made.distances[0], made.distances[2]).statistic
    assert moments.rsa[0, 2] == pytest.approx(expected, abs=1e-12)


@CODINGS
def test_some_features_and_layers_have_the_moments_that_they_alone_would_have(more):
    by_value = tuple({*more.get("by_value", ())} & {"length", "gender"})
    alone = more | {"by_value": by_value}
    made = made_up(n_layers=3, **more)
    features = random_features(60)[["length", "gender"]]
    few = made.moments.select_features(["length", "gender"]).select_layers([2, 0])
    layers = _layers(3)
    expected = moments_of(features, [layers[2], layers[0]], made.folds, **alone).moments
    assert few.columns.names == expected.columns.names
    for got, own in zip(few.within(few.training(1)), expected.within(few.training(1)), strict=True):
        np.testing.assert_allclose(got, own, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(few.rsa, expected.rsa)
    with refused("feature", "tense", "kind"):
        made.moments.select_features(["tense"])


def _layers(n_layers):
    from helpers.explicit import random_layer

    features = random_features(60)
    return [random_layer(features, seed) for seed in range(1, n_layers + 1)]


def test_two_of_one_item_are_in_no_moment_that_tests():
    items = np.random.default_rng(0).integers(0, 20, 60)
    made = made_up(items=items)
    moments, (i, j) = made.moments, pairs(60)
    z = moments.columns.pair_values(i, j)
    ranks = np.stack([rankdata(own) for own in made.distances]) - (len(i) + 1) / 2
    test = (made.folds[i] == 2) & (made.folds[j] == 2) & (items[i] != items[j])
    own, centred = moments.inside_fold(2), z[test] - z[test].mean(axis=0)
    assert own.n_pairs == test.sum()
    close(own.gram, centred.T @ centred)
    close(own.with_ranks, ranks[:, test] @ centred)
    close(moments.rank_covariances(moments.tested(2), 2), np.cov(ranks[:, test]) * (test.sum() - 1))


@for_each("budget", None, 900)
def test_stimuli_that_came_close_to_each_other_are_in_no_moment(budget):
    features, folds, rng = random_features(60), random_folds(60), np.random.default_rng(0)
    items, times = rng.integers(0, 20, 60), rng.permutation(60) / 4
    columns = PairColumns.from_features(feature_columns(features, resolved=("kind",)))
    design = PairDesign.from_budget(folds, budget, items=items, times=times)
    made = moments_of_columns(columns, _layers(2), folds, design=design)
    moments, (i, j) = made.moments, design.pairs()
    far = np.abs(times[i] - times[j]) >= 1
    assert 0.03 < 1 - far.mean() < 0.15
    z = moments.columns.pair_values(i, j)
    ranks = np.stack([rankdata(own) for own in made.distances]) - (len(i) + 1) / 2
    test = far & (folds[i] == 2) & (folds[j] == 2) & (items[i] != items[j])
    train = far & (folds[i] != 1) & (folds[j] != 1)
    for own, use in ((moments.inside_fold(2), test), (moments.within(moments.training(1)), train)):
        centred = z[use] - z[use].mean(axis=0)
        assert own.n_pairs == use.sum()
        close(own.gram, centred.T @ centred)
        close(own.with_ranks, ranks[:, use] @ centred)
        close(own.with_distances, made.distances[:, use] @ centred)
        close(own.distance_means, made.distances[:, use].mean(axis=1))
    close(moments.rsa, np.corrcoef(ranks[:, far]))
    assert [int(fold.counts.sum()) for fold in made.tests.folds][2] == test.sum()
    one = moments.select_layers([1])
    close(one.within(one.training(1)).with_ranks, own.with_ranks[1:])


def test_folds_over_both_leave_out_what_stands_between_two_folds():
    features = random_features(80)
    rng = np.random.default_rng(0)
    of_sentence, of_item = rng.integers(0, 3, (2, 80))
    low, high = np.minimum(of_sentence, of_item), np.maximum(of_sentence, of_item)
    folds = np.where(low == high, low, -1 - (high * (high - 1) // 2 + low))
    layer = rng.standard_normal((80, 4))
    moments = moments_of(features, [layer], folds).moments
    i, j = pairs(80)
    z, distances = moments.columns.pair_values(i, j), squared(layer)
    stays = (of_sentence != 1) & (of_item != 1)
    use = stays[i] & stays[j]
    own = moments.within(moments.training(1))
    assert own.n_pairs == use.sum()
    close(own.with_distances[0], distances[use] @ (z[use] - z[use].mean(axis=0)))
