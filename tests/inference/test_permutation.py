from __future__ import annotations

from dataclasses import replace

import explicit
import numpy as np
import pytest
from inputs import layer_pairs

from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.corrections import family_of_tests
from mlem_core.inference.permutation import (
    chance_terms,
    permuted_labels,
    permuted_tables,
    permuted_terms,
    score_above_chance,
)
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.crossfit import CrossFit
from mlem_core.pairs.patterns import PairIndex

N = 60


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    rng = np.random.default_rng(0)
    layers = [explicit.random_layer(features, 1), rng.standard_normal((N, 5)).astype(np.float32)]
    # Sentences of one to three words.
    groups = np.repeat(np.arange(N), rng.integers(1, 4, N))[:N]
    folds = groups % 3
    return features, layers, layer_pairs(features, layers, groups, folds)


def test_sentences_change_labels_whole_and_inside_their_fold(case):
    *_, pairs = case
    found = permuted_labels(pairs.groups, pairs.folds, 50, np.random.default_rng(0))
    sizes = np.bincount(pairs.groups)
    for labels in found:
        assert sorted(labels) == list(range(N))
        assert (pairs.folds[labels] == pairs.folds).all()
        for group in np.unique(pairs.groups):
            members = np.flatnonzero(pairs.groups == group)
            (other,) = set(pairs.groups[labels[members]])
            assert sizes[other] == sizes[group] and (np.diff(labels[members]) == 1).all()
    assert len({tuple(labels) for labels in found}) == 50


@pytest.mark.parametrize("train_ranks", [False, True])
def test_tables_are_those_of_features_that_were_permuted(case, train_ranks):
    features, layers, pairs = case
    labels = permuted_labels(pairs.groups, pairs.folds, 2, np.random.default_rng(1))
    # The tables that the permuted ones stand in for must have these ranks too.
    index = PairIndex.build(feature_columns(features), pairs.folds)
    own = pair_tables(index, [lambda: layers[0]], train_ranks=train_ranks)
    found = permuted_tables(replace(pairs, tables=own), 0, labels, train_ranks)
    for d, permutation in enumerate(labels):
        again = features.iloc[permutation].reset_index(drop=True)
        index = PairIndex.build(feature_columns(again), pairs.folds)
        expected = pair_tables(index, [lambda: layers[0]], train_ranks=train_ranks)
        np.testing.assert_array_equal(found.counts, expected.counts)
        np.testing.assert_allclose(found.target_sums[d], expected.target_sums[0], rtol=1e-5)
        np.testing.assert_allclose(found.within_sums[d], expected.within_sums[0])
        if train_ranks:
            np.testing.assert_allclose(found.training_ranks[d], expected.training_ranks[0])


def test_a_planted_layer_is_above_chance_and_noise_is_not(case):
    pairs = case[2]
    chances = score_above_chance(pairs, RidgeMLEM().cross_validate, n_permutations=99)
    found = family_of_tests(chances, "layers' scores", "bh")
    p = found.table.set_index("layer")["p"]
    assert p[0] == 0.01 and p[1] > 0.05
    assert found.family == "2 layers' scores; Benjamini-Hochberg"
    assert found.table["p_corrected"][0] == pytest.approx(0.02)


def test_terms_under_permuted_labels_are_those_of_features_that_were_permuted(case):
    features, layers, pairs = case
    found = permuted_terms(pairs, 3, seed=4)
    labels = permuted_labels(pairs.groups, pairs.folds, 3, np.random.default_rng(4))
    priority = CrossFit.of(pairs.tables).priority
    for terms, permutation in zip(found, labels, strict=True):
        again = features.iloc[permutation].reset_index(drop=True)
        tables = layer_pairs(again, layers, pairs.groups, pairs.folds).tables
        expected = decompose(tables, np.eye(2), priority=priority).terms[:, 0, 1]
        np.testing.assert_allclose(terms, expected, atol=1e-12)


def test_a_planted_feature_is_above_chance_and_labels_that_mean_nothing_are_not():
    rng = np.random.default_rng(0)
    above = []
    for _ in range(30):
        n = 60
        groups, folds = np.arange(n), np.arange(n) % 3
        features = explicit.random_features(n, int(rng.integers(1_000_000)))
        shared = 2.0 * (features[["kind"]] == "noun").to_numpy()
        common = rng.standard_normal((n, 2))
        layers = [np.hstack((shared, common, rng.standard_normal((n, 2)))) for _ in range(2)]
        pairs = layer_pairs(features, layers, groups, folds)
        terms = decompose(pairs.tables, np.eye(2)).terms[:, 0, 1]
        above.append(terms > chance_terms(permuted_terms(pairs, 60)))
    above = np.array(above)
    assert above[:, 0].mean() > 0.8
    # In 5 of 100 data sets a feature of the other three; in 30 sets rarely more than 5.
    assert above[:, 1:].any(axis=1).sum() <= 5
