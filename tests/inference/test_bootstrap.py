from __future__ import annotations

from dataclasses import replace

import explicit
import numpy as np
import pytest
from inputs import layer_pairs

from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.bootstrap import score_replicates, term_replicates
from mlem_core.inference.refits import refitted_scores, replicated_ceilings
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.crossfit import CrossFit, outside_means
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.resampling import multinomial

N = 90


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(3)]
    groups = np.arange(N) // 2
    folds = groups % 3
    pairs = layer_pairs(features, layers, groups, folds)
    return features, layers, pairs, RidgeMLEM().cross_validate(pairs.tables)


def copies(features, layer, drawn):
    """The drawn stimuli as a set of their own, each of them once."""
    return features.iloc[drawn].reset_index(drop=True), layer[drawn]


def test_every_sentence_once_gives_what_the_tables_give(case):
    _, _, pairs, fits = case
    ones = np.ones((1, pairs.n_groups))
    rsa = next(pairs.whole.draw(ones, products=True)).rsa()[0]
    expected = decompose(pairs.tables, rsa)
    two = layer_pairs(*case[:1], case[1][:2], pairs.groups, pairs.folds)
    found = term_replicates(two.whole, two.tables, ones)
    np.testing.assert_allclose(found.values[0], expected.values[:, 0, 1], atol=1e-12)
    assert found.rsa[0] == pytest.approx(rsa[0, 1])
    own = np.diagonal(expected.terms.sum(axis=0))[:2]
    np.testing.assert_allclose(found.ceilings[0], np.sqrt(np.maximum(own, 0)), atol=1e-12)
    scores = score_replicates(pairs, fits.weights, ones)
    np.testing.assert_allclose(scores.rho[0], fits.rho.mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(scores.ceiling[0], fits.ceiling.mean(axis=1), atol=1e-12)
    importance = permutation_importance(pairs.tables, fits.weights).mean(axis=1)
    np.testing.assert_allclose(scores.importance[0], importance, atol=1e-12)


def test_a_draw_of_some_sentences_is_an_analysis_of_these(case):
    features, layers, pairs, fits = case
    weights = (np.random.default_rng(0).random((3, pairs.n_groups)) < 0.6).astype(float)
    two = layer_pairs(features, layers[:2], pairs.groups, pairs.folds)
    terms = term_replicates(two.whole, two.tables, weights)
    scores = score_replicates(pairs, fits.weights, weights)
    for d, own in enumerate(weights):
        drawn = np.flatnonzero(own[pairs.groups])
        # Scaled as in the whole set, so that feature distances stay what they are.
        columns = feature_columns(features)
        spans = {c.name: c.span for c in columns if c.kind == "ordered"}
        index = PairIndex.build(feature_columns(features.iloc[drawn], spans), pairs.folds[drawn])
        tables = pair_tables(index, [lambda x=x[drawn]: x for x in layers])
        rsa = next(two.whole.draw(own[None], products=True)).rsa()[0]
        # Features are dropped in the order that they have over all stimuli.
        priority = CrossFit.of(two.tables).priority
        expected = decompose(tables.of_layers([0, 1]), rsa, priority=priority)
        np.testing.assert_allclose(terms.values[d], expected.values[:, 0, 1], atol=1e-9)
        whole = np.diagonal(expected.terms.sum(axis=0))
        np.testing.assert_allclose(terms.ceilings[d], np.sqrt(np.maximum(whole, 0)), atol=1e-9)
        # The means of the other folds are those of all stimuli.
        means = outside_means(pairs.tables)
        share = np.zeros((3, 3))
        for fold in range(3):
            at = tables.held_out(fold)
            codes = [tuple(code) for code in index.patterns[tables.cell_pattern[at]]]
            known = pairs.tables.cell_pattern[pairs.tables.held_out(fold)]
            known = [tuple(code) for code in pairs.tables.patterns[known]]
            own = means[fold][:, [known.index(code) for code in codes]]
            scale = np.sqrt(tables.within_squares[:, fold] * tables.counts[at].sum())
            share[:, fold] = (own * tables.within_sums[:, at]).sum(axis=1) / scale
        ceilings = np.sqrt(np.maximum(share, 0)).mean(axis=1)
        np.testing.assert_allclose(scores.ceiling[d], ceilings, atol=1e-9)
        importance = permutation_importance(tables, fits.weights).mean(axis=1)
        np.testing.assert_allclose(scores.importance[d], importance, atol=1e-9)


def test_scores_of_a_draw_equal_those_of_explicit_copies(case):
    features, layers, pairs, fits = case
    (draw,) = pairs.bootstrap_weights(1, np.random.default_rng(3))
    found = score_replicates(pairs, fits.weights, draw[None], importance=False)
    x = explicit.feature_distances(features)
    i, j = explicit.pairs(N)
    own = draw[pairs.groups]
    times = np.where(pairs.groups[i] == pairs.groups[j], own[i], own[i] * own[j]).astype(int)
    for layer in range(3):
        rho = []
        for fold in range(3):
            rows = np.repeat(np.arange(len(i)), times * explicit.held_out(pairs.folds, fold))
            predicted = x[rows] ** 2 @ fits.weights[layer, fold]
            rho.append(explicit.rho(predicted, explicit.squared(layers[layer])[rows]))
        assert found.rho[0, layer] == pytest.approx(np.mean(rho), abs=1e-9)
    for fold in range(3):
        drawn = draw[pairs.groups_in(fold)]
        assert drawn.sum() == len(drawn)


def test_interactions_are_permuted_term_by_term(case):
    features, layers, pairs, _ = case
    with_products = layer_pairs(features, layers, pairs.groups, pairs.folds, interactions=True)
    fits = RidgeMLEM().cross_validate(with_products.tables)
    found = score_replicates(with_products, fits.weights, np.ones((2, pairs.n_groups)))
    expected = permutation_importance(with_products.tables, fits.weights).mean(axis=1)
    np.testing.assert_allclose(found.importance[1], expected, atol=1e-12)


def test_the_spread_of_the_draws_is_that_of_new_stimuli():
    rng = np.random.default_rng(0)
    n = 80

    def rsa_of(weights_of):
        features = explicit.random_features(n, int(rng.integers(1_000_000)))
        common = rng.standard_normal((n, 3))
        layers = [common + 0.7 * rng.standard_normal((n, 3)) for _ in range(2)]
        pairs = layer_pairs(features, layers, np.arange(n), np.arange(n) % 4)
        return term_replicates(pairs.whole, pairs.tables, weights_of).rsa

    new = [rsa_of(np.ones((1, n)))[0] for _ in range(60)]
    again = rsa_of(multinomial(n, 300, rng))
    assert 0.6 < again.std() / np.std(new) < 1.7


def test_models_that_are_fitted_anew_are_those_of_an_analysis_of_the_drawn(case):
    features, layers, pairs, _ = case
    weights = np.ones((2, pairs.n_groups))
    weights[1, ::5] = 0.0
    found = refitted_scores(pairs, weights, RidgeMLEM().cross_validate)
    fits = RidgeMLEM().cross_validate(pairs.tables)
    np.testing.assert_allclose(found.rho[0], fits.rho.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(found.ceiling[0], fits.ceiling.mean(axis=1), atol=1e-12)
    importance = permutation_importance(pairs.tables, fits.weights).mean(axis=1)
    np.testing.assert_allclose(found.importance[0], importance, atol=1e-5)
    drawn = np.flatnonzero(weights[1][pairs.groups])
    spans = {c.name: c.span for c in feature_columns(features) if c.kind == "ordered"}
    index = PairIndex.build(feature_columns(features.iloc[drawn], spans), pairs.folds[drawn])
    tables = pair_tables(index, [lambda x=x[drawn]: x for x in layers])
    # Left out pairs do not change how the target is scaled; with one α that changes the penalty.
    low, high = pairs.tables.target_low, pairs.tables.target_high
    tables = replace(tables, target_low=low, target_high=high)
    expected = RidgeMLEM().cross_validate(tables)
    np.testing.assert_allclose(found.rho[1], expected.rho.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(found.ceiling[1], expected.ceiling.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(replicated_ceilings(pairs, weights), found.ceiling, atol=1e-12)
    importance = permutation_importance(tables, expected.weights).mean(axis=1)
    np.testing.assert_allclose(found.importance[1], importance, atol=1e-5)
