"""Resampling: a draw, or what is left of the stimuli, gives what an analysis of these gives."""

from dataclasses import replace
from typing import NamedTuple

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import layer_pairs, tables_of_rows

from mlem_core.data.folds import group_folds
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.bootstrap import (
    mean_ceilings,
    score_replicates,
    tables_without,
    term_replicates,
    without_each,
)
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import mean_scores, permutation_importance
from mlem_core.pairs.crossfit import CrossFit, outside_means
from mlem_core.pairs.resampling import multinomial

FIT = RidgeMLEM().cross_validate


class Case(NamedTuple):
    """Stimuli in sentences, their layers, and the pairs of these."""

    features: pd.DataFrame
    layers: list[np.ndarray]
    pairs: LayerPairs

    @property
    def two(self):
        """The pairs of the first two layers."""
        return layer_pairs(self.features, self.layers[:2], self.pairs.groups, self.pairs.folds)

    def without(self, weights):
        """Tables of the stimuli that stay; how targets are scaled does not change.

        With one α another scale would be another penalty.
        """
        rows, whole = np.flatnonzero(weights), self.pairs.tables
        tables = tables_of_rows(self.features, self.pairs.folds, rows, self.layers)
        return replace(tables, target_low=whole.target_low, target_high=whole.target_high)


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(90)
    layers = [explicit.random_layer(features, seed) for seed in range(3)]
    groups = np.arange(90) // 2
    return Case(features, layers, layer_pairs(features, layers, groups, groups % 3))


@pytest.fixture(scope="module")
def over_both():
    """Words in sentences, with folds over both words and sentences."""
    rng = np.random.default_rng(0)
    items = np.concatenate([rng.choice(15, 3, replace=False) for _ in range(40)])
    groups = np.repeat(np.arange(40), 3)
    features = explicit.random_features(len(items))[["kind", "frequency"]]
    layers = [explicit.random_layer(features.assign(length=3.0), seed) for seed in range(2)]
    a, b = group_folds(groups, 3, 0), group_folds(items, 3, 0)
    low, high = np.minimum(a, b), np.maximum(a, b)
    folds = np.where(low == high, low, -1 - (high * (high - 1) // 2 + low))
    pairs = layer_pairs(features, layers, groups, folds, train_ranks=True)
    return Case(features, layers, replace(pairs, items=items))


def test_a_draw_of_some_sentences_is_an_analysis_of_these(case):
    pairs, two, fits = case.pairs, case.two, FIT(case.pairs.tables)
    weights = (np.random.default_rng(0).random((2, pairs.n_groups)) < 0.6).astype(float)
    terms = term_replicates(two.whole, two.tables, weights)
    scores = score_replicates(pairs, fits.weights, True, weights)
    means = outside_means(pairs.tables)  # of the other folds, over all stimuli
    for d, own in enumerate(weights):
        drawn = np.flatnonzero(own[pairs.groups])
        tables = tables_of_rows(case.features, pairs.folds, drawn, case.layers)
        rsa = next(two.whole.draw(own[None], products=True)).rsa()[0]
        # Features are dropped in the order that they have over all stimuli.
        priority = CrossFit.of(two.tables).priority
        expected = decompose(tables.of_layers([0, 1]), rsa, priority=priority)
        np.testing.assert_allclose(terms[d, :-5], expected.values[:, 0, 1], atol=1e-9)
        whole = np.diagonal(expected.terms.sum(axis=0))
        np.testing.assert_allclose(terms[d, -4:-2], np.sqrt(np.maximum(whole, 0)), atol=1e-9)
        share = np.zeros((3, 3))
        for fold in range(3):
            at = tables.held_out(fold)
            codes = [tuple(code) for code in tables.patterns[tables.cell_pattern[at]]]
            known = pairs.tables.cell_pattern[pairs.tables.held_out(fold)]
            known = [tuple(code) for code in pairs.tables.patterns[known]]
            mean = means[fold][:, [known.index(code) for code in codes]]
            scale = np.sqrt(tables.within_squares[:, fold] * tables.counts[at].sum())
            share[:, fold] = (mean * tables.within_sums[:, at]).sum(axis=1) / scale
        ceilings = np.sqrt(np.maximum(share, 0)).mean(axis=1)
        np.testing.assert_allclose(scores[d, :, 1], ceilings, atol=1e-9)
        importance = permutation_importance(tables, fits.weights).mean(axis=1)
        np.testing.assert_allclose(scores[d, :, 2:], importance, atol=1e-9)


def test_scores_of_a_draw_equal_those_of_explicit_copies(case):
    pairs, fits = case.pairs, FIT(case.pairs.tables)
    (draw,) = pairs.units.bootstrap(1, np.random.default_rng(3))
    found = score_replicates(pairs, fits.weights, False, draw[None])
    x, (i, j) = explicit.feature_distances(case.features), explicit.pairs(90)
    own = draw[pairs.groups]
    times = np.where(pairs.groups[i] == pairs.groups[j], own[i], own[i] * own[j]).astype(int)
    for layer in range(3):
        rho = []
        for fold in range(3):
            rows = np.repeat(np.arange(len(i)), times * explicit.held_out(pairs.folds, fold))
            predicted = x[rows] ** 2 @ fits.weights[layer, fold]
            rho.append(explicit.rho(predicted, explicit.squared(case.layers[layer])[rows]))
        assert found[0, layer, 0] == pytest.approx(np.mean(rho), abs=1e-9)
    for fold in range(3):
        drawn = draw[pairs.groups_in(fold)]
        assert drawn.sum() == len(drawn)


def test_interactions_are_permuted_term_by_term(case):
    pairs = layer_pairs(
        case.features, case.layers, case.pairs.groups, case.pairs.folds, interactions=True
    )
    fits = FIT(pairs.tables)
    found = score_replicates(pairs, fits.weights, True, np.ones((2, pairs.n_groups)))
    expected = permutation_importance(pairs.tables, fits.weights).mean(axis=1)
    np.testing.assert_allclose(found[1, :, 2:], expected, atol=1e-12)


def test_the_spread_of_the_draws_is_that_of_new_stimuli():
    rng, n = np.random.default_rng(0), 80

    def rsa_of(weights):
        features = explicit.random_features(n, int(rng.integers(1_000_000)))
        common = rng.standard_normal((n, 3))
        layers = [common + 0.7 * rng.standard_normal((n, 3)) for _ in range(2)]
        pairs = layer_pairs(features, layers, np.arange(n), np.arange(n) % 4)
        return term_replicates(pairs.whole, pairs.tables, weights)[:, -5]

    new = [rsa_of(np.ones((1, n)))[0] for _ in range(60)]
    again = rsa_of(multinomial(n, 300, rng))
    assert 0.6 < again.std() / np.std(new) < 1.7


def test_models_that_are_fitted_anew_are_those_of_an_analysis_of_the_drawn(case):
    pairs = case.pairs
    weights = np.ones((2, pairs.n_groups))
    weights[1, ::5] = 0.0
    found = without_each(pairs, mean_scores, True, weights)
    np.testing.assert_allclose(
        without_each(pairs, mean_ceilings, True, weights), found[..., 1], atol=1e-12
    )
    for d, tables in enumerate((pairs.tables, case.without(weights[1][pairs.groups]))):
        fits = FIT(tables)
        np.testing.assert_allclose(found[d, :, 0], fits.rho.mean(axis=1), atol=1e-5)
        np.testing.assert_allclose(found[d, :, 1], fits.ceiling.mean(axis=1), atol=1e-5)
        importance = permutation_importance(tables, fits.weights).mean(axis=1)
        np.testing.assert_allclose(found[d, :, 2:], importance, atol=1e-5)


def test_with_folds_over_both_they_are_too(over_both):
    pairs = over_both.pairs
    weights = np.ones((3, len(pairs.folds)))
    weights[1, pairs.groups < 4] = 0.0
    weights[2, pairs.items < 2] = 0.0
    alone = pairs.by_stimulus
    found = without_each(alone, mean_scores, True, weights)
    np.testing.assert_allclose(found[0, :, 0], FIT(pairs.tables).rho.mean(axis=1), atol=1e-5)
    for d, tables in enumerate(tables_without(alone, weights)):
        own = over_both.without(weights[d])
        np.testing.assert_array_equal(tables.cell_block, own.cell_block)
        np.testing.assert_allclose(tables.counts, own.counts)
        np.testing.assert_allclose(tables.within_squares, own.within_squares)
        fits = FIT(own)
        np.testing.assert_allclose(found[d, :, 0], fits.rho.mean(axis=1), atol=1e-5)
        np.testing.assert_allclose(found[d, :, 1], fits.ceiling.mean(axis=1), atol=1e-5)


def test_a_fold_that_is_left_without_stimuli_has_a_score_of_0(over_both):
    pairs = over_both.pairs
    weights = np.where(pairs.folds == 0, 0.0, 1.0)[None]
    assert np.isfinite(without_each(pairs.by_stimulus, mean_scores, True, weights)).all()
    (tables,) = tables_without(pairs.by_stimulus, weights)
    fits = FIT(tables)
    assert np.isfinite(fits.weights).all()
    assert not fits.rho[:, 0].any() and not fits.ceiling[:, 0].any() and fits.rho[:, 1:].all()
