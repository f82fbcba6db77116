"""Labels that are permuted: whole units inside their fold, tables anew, levels and power."""

from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import layer_pairs

from mlem_core.data.folds import fold_pairs, group_folds
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.pair_contributions import contributions
from mlem_core.inference.permutation import permuted_tables, score_above_chance
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex

N = 60


@pytest.fixture(scope="module")
def case():
    """Sentences of one to three words, a layer with features in it, and one of noise."""
    features = explicit.random_features(N)
    rng = np.random.default_rng(0)
    layers = [explicit.random_layer(features, 1), rng.standard_normal((N, 5)).astype(np.float32)]
    groups = np.repeat(np.arange(N), rng.integers(1, 4, N))[:N]
    return features, layers, layer_pairs(features, layers, groups, groups % 3)


def over_both(seed, n_sentences, n_forms, planted=0.0):
    """Words with folds over both; a feature of the word, of the sentence and of the stimulus."""
    rng = np.random.default_rng(seed)
    items = np.concatenate([rng.choice(n_forms, 3, replace=False) for _ in range(n_sentences)])
    groups = np.repeat(np.arange(n_sentences), 3)
    features = pd.DataFrame(
        {
            "word": np.array(list("abc"))[rng.integers(0, 3, n_forms)][items],
            "frame": np.array(list("xy"))[rng.integers(0, 2, n_sentences)][groups],
            "stimulus": rng.integers(0, 4, len(items)).astype(float),
        }
    )
    layers = []
    for _ in range(2):
        layer = rng.standard_normal((n_forms, 6))[items]
        layer += 0.6 * rng.standard_normal((n_sentences, 6))[groups]
        layer += 0.6 * rng.standard_normal(layer.shape)
        layer[:, 0] += planted * features["stimulus"]
        layers.append(layer)
    a, b = group_folds(groups, 3, seed), group_folds(items, 3, seed)
    low, high = np.minimum(a, b), np.maximum(a, b)
    folds = np.where(low == high, low, -1 - (high * (high - 1) // 2 + low))
    pairs = layer_pairs(features, layers, groups, folds, train_ranks=True)
    return features, layers, replace(pairs, items=items)


@pytest.fixture(scope="module")
def words():
    return over_both(0, 40, 15)


def test_sentences_change_labels_whole_and_inside_their_fold(case):
    *_, pairs = case
    found = pairs.units.permuted(50, np.random.default_rng(0))
    sizes = np.bincount(pairs.groups)
    for labels in found:
        assert sorted(labels) == list(range(N))
        assert (pairs.folds[labels] == pairs.folds).all()
        for group in np.unique(pairs.groups):
            members = np.flatnonzero(pairs.groups == group)
            (other,) = set(pairs.groups[labels[members]])
            assert sizes[other] == sizes[group] and (np.diff(labels[members]) == 1).all()
    assert len({tuple(labels) for labels in found}) == 50


def test_words_change_labels_whole_in_each_part_of_the_folds(words):
    *_, pairs = words
    for labels in pairs.units.permuted(2, np.random.default_rng(0)):
        assert (pairs.folds[labels] == pairs.folds).all()
        assert sorted(labels) == list(range(len(labels)))
        for item, fold in np.unique(np.column_stack((pairs.items, pairs.folds)), axis=0):
            members = (pairs.items == item) & (pairs.folds == fold)
            assert len(set(pairs.items[labels[members]])) == 1


@pytest.mark.parametrize("train_ranks", [False, True])
@pytest.mark.parametrize("made", ["case", "words"])
def test_tables_are_those_of_features_that_were_permuted(request, made, train_ranks):
    features, layers, pairs = request.getfixturevalue(made)
    labels = pairs.units.permuted(2, np.random.default_rng(1))

    def tables_of(own):
        index = PairIndex.build(feature_columns(own), pairs.folds)
        return pair_tables(index, [lambda: layers[0]], train_ranks=train_ranks)

    # The tables that the permuted ones stand in for must have these ranks too.
    found = permuted_tables(replace(pairs, tables=tables_of(features)), 0, labels, train_ranks)
    for d, permutation in enumerate(labels):
        expected = tables_of(features.iloc[permutation].reset_index(drop=True))
        np.testing.assert_array_equal(found.counts, expected.counts)
        np.testing.assert_allclose(found.target_sums[d], expected.target_sums[0], rtol=1e-5)
        np.testing.assert_allclose(found.within_sums[d], expected.within_sums[0])
        if train_ranks:
            np.testing.assert_allclose(found.training_ranks[d], expected.training_ranks[0])


def test_contributions_over_both_add_up_to_the_terms(words):
    *_, pairs = words
    terms = decompose(pairs.tables, np.eye(2)).terms[:, 0, 1]
    i, j = explicit.pairs(len(pairs.folds))
    two = fold_pairs(pairs.folds)
    tested = (two[i] == two[j]).all(axis=1) & (two[i, 0] == two[i, 1])
    for f, name in enumerate(pairs.tables.features):
        found = contributions(pairs, name)
        assert found.sum() == pytest.approx(terms[f], abs=1e-9) and not found[~tested].any()


@pytest.mark.parametrize(("planted", "n_sets"), [(0.0, 40), (2.0, 6)])
def test_over_both_a_planted_feature_is_above_chance_and_what_means_nothing_is_not(planted, n_sets):
    fit, found = RidgeMLEM(alphas=[1.0]).cross_validate, []
    for seed in range(n_sets):
        *_, pairs = over_both(seed, 60, 24, planted)
        found.append(score_above_chance(pairs, fit, n_permutations=39)["p"][0] <= 0.05)
    # In 5 of 100 data sets; in 40 rarely more than 5.
    assert np.mean(found) > 0.8 if planted else sum(found) <= 5
