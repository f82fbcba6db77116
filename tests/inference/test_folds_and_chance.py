"""Resampling and permutation tests with folds over both sentences and words."""

from __future__ import annotations

from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import layer_pairs

from mlem_core.data.folds import fold_pairs, group_folds
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.behind import contributions
from mlem_core.inference.permutation import permuted_labels, permuted_tables, score_above_chance
from mlem_core.inference.refits import refitted_scores, replicate_tables
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex

K = 3


def made(seed, n_sentences, n_forms, planted=0.0):
    """Words in sentences; a feature of the word, one of the sentence and one of the stimulus."""
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
    a, b = group_folds(groups, K, seed), group_folds(items, K, seed)
    low, high = np.minimum(a, b), np.maximum(a, b)
    folds = np.where(low == high, low, -1 - (high * (high - 1) // 2 + low))
    pairs = layer_pairs(features, layers, groups, folds, train_ranks=True)
    return features, layers, replace(pairs, items=items)


@pytest.fixture(scope="module")
def case():
    return made(0, 40, 15)


def test_models_that_are_fitted_anew_are_those_of_an_analysis_of_the_rest(case):
    features, layers, pairs = case
    weights = np.ones((3, len(pairs.folds)))
    weights[1, pairs.groups < 4] = 0.0
    weights[2, pairs.items < 2] = 0.0
    alone = pairs.by_stimulus
    found = refitted_scores(alone, weights, RidgeMLEM().cross_validate)
    whole = RidgeMLEM().cross_validate(pairs.tables)
    np.testing.assert_allclose(found.rho[0], whole.rho.mean(axis=1), atol=1e-5)
    spans = {c.name: c.span for c in feature_columns(features) if c.kind == "ordered"}
    for d, tables in enumerate(replicate_tables(alone, weights)):
        drawn = np.flatnonzero(weights[d])
        index = PairIndex.build(feature_columns(features.iloc[drawn], spans), pairs.folds[drawn])
        own = pair_tables(index, [lambda x=x[drawn]: x for x in layers])
        np.testing.assert_array_equal(tables.cell_block, own.cell_block)
        np.testing.assert_allclose(tables.counts, own.counts)
        np.testing.assert_allclose(tables.within_squares, own.within_squares)
        low, high = pairs.tables.target_low, pairs.tables.target_high
        expected = RidgeMLEM().cross_validate(replace(own, target_low=low, target_high=high))
        np.testing.assert_allclose(found.rho[d], expected.rho.mean(axis=1), atol=1e-5)
        np.testing.assert_allclose(found.ceiling[d], expected.ceiling.mean(axis=1), atol=1e-5)


def test_a_fold_that_is_left_without_stimuli_has_a_score_of_0(case):
    *_, pairs = case
    weights = np.where(pairs.folds == 0, 0.0, 1.0)[None]
    found = refitted_scores(pairs.by_stimulus, weights, RidgeMLEM().cross_validate)
    assert np.isfinite(found.importance).all()
    (tables,) = replicate_tables(pairs.by_stimulus, weights)
    fits = RidgeMLEM().cross_validate(tables)
    assert np.isfinite(fits.weights).all()
    assert not fits.rho[:, 0].any() and not fits.ceiling[:, 0].any() and fits.rho[:, 1:].all()


def test_words_change_labels_whole_in_each_part_of_the_folds(case):
    features, layers, pairs = case
    found = permuted_labels(pairs.fold_units, pairs.folds, 2, np.random.default_rng(0))
    for labels in found:
        assert (pairs.folds[labels] == pairs.folds).all() and sorted(labels) == [
            *range(len(labels))
        ]
        for unit in np.unique(np.column_stack((pairs.items, pairs.folds)), axis=0):
            members = (pairs.items == unit[0]) & (pairs.folds == unit[1])
            assert len(set(pairs.items[labels[members]])) == 1
    tables = permuted_tables(pairs, 0, found, train_ranks=True)
    for d, labels in enumerate(found):
        again = features.iloc[labels].reset_index(drop=True)
        index = PairIndex.build(feature_columns(again), pairs.folds)
        expected = pair_tables(index, [lambda: layers[0]], train_ranks=True)
        np.testing.assert_array_equal(tables.counts, expected.counts)
        np.testing.assert_allclose(tables.within_sums[d], expected.within_sums[0])
        np.testing.assert_allclose(tables.training_ranks[d], expected.training_ranks[0])


def test_contributions_add_up_to_the_terms(case):
    *_, pairs = case
    terms = decompose(pairs.tables, np.eye(2)).terms[:, 0, 1]
    i, j = explicit.pairs(len(pairs.folds))
    two = fold_pairs(pairs.folds)
    tested = (two[i] == two[j]).all(axis=1) & (two[i, 0] == two[i, 1])
    for f, name in enumerate(pairs.tables.features):
        found = contributions(pairs, name)
        assert found.sum() == pytest.approx(terms[f], abs=1e-9) and not found[~tested].any()


def test_a_planted_feature_is_above_chance_and_labels_that_mean_nothing_are_not():
    fit, p = RidgeMLEM(alphas=[1.0]).cross_validate, {0.0: [], 2.0: []}
    for planted, found in p.items():
        for seed in range(40 if planted == 0 else 6):
            *_, pairs = made(seed, 60, 24, planted)
            found.append(score_above_chance(pairs, fit, n_permutations=39)["p"][0])
    # In 5 of 100 data sets; in 40 rarely more than 5.
    assert (np.array(p[0.0]) <= 0.05).sum() <= 5
    assert np.mean(np.array(p[2.0]) <= 0.05) > 0.8
