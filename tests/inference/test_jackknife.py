"""Stimuli drawn or left out: against loops over stimuli, analyses of these, and known variances."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import layer_pairs, over_both, refused, tables_of_rows
from scipy.stats import spearmanr, t

from mlem_core import RidgeMLEM, from_frame
from mlem_core.estimators.ridge_solver import ALPHAS
from mlem_core.inference import replicates
from mlem_core.inference.bootstrap import (
    mean_ceilings,
    score_replicates,
    tables_without,
    term_replicates,
    without_each,
)
from mlem_core.inference.intervals import corrected
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.replicates import resampled_scores, resampled_terms
from mlem_core.inference.resample import Replicates, jackknife, standard_error, t_quantile
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import mean_scores, permutation_importance
from mlem_core.pairs import resampling_units
from mlem_core.pairs.crossfit import CrossFit, outside_means
from mlem_core.pairs.resampling_units import StimulusUnits, Units, multinomial

# Words of 14 sentences, of 11 forms, of which some are twice in a sentence.
N = 42
GROUPS = np.arange(N) // 3
ITEMS = np.random.default_rng(5).integers(0, 11, N)


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((14, 7))[GROUPS] + 2 * rng.standard_normal((11, 7))[ITEMS]
    layers = [explicit.random_layer(features, seed) + shared for seed in range(2)]
    pairs = layer_pairs(features, layers, GROUPS, GROUPS % 3, train_ranks=True)
    return features, layers, replace(pairs, items=ITEMS)


def test_the_standard_error_of_a_mean_is_the_known_one():
    x = np.random.default_rng(0).standard_normal(30)
    without = (x.sum() - x) / 29
    error = x.std(ddof=1) / 30**0.5
    assert standard_error(without) == pytest.approx(error)
    p = jackknife(np.float64(x.mean() + 0.3), without + 0.3).p
    assert p == pytest.approx(2 * t.sf(abs(x.mean() + 0.3) / error, 29))
    above = jackknife(np.float64(0.3), without + 0.3, above=True).p
    assert above == pytest.approx(t.sf(0.3 / error, 29))


def test_an_interval_has_the_shape_of_the_bootstrap_and_the_scale_of_the_jackknife():
    rng = np.random.default_rng(0)
    replicates = rng.exponential(size=20_000) * 10
    without = rng.standard_normal(5000)
    found = Replicates(np.float64(2.0), replicates, without).estimate()
    error = standard_error(without)
    low, high = (np.quantile(replicates, [0.025, 0.975]) - replicates.mean()) / replicates.std()
    assert found.lower == pytest.approx(2 + error * low, rel=1e-2)
    assert found.upper == pytest.approx(2 + error * high, rel=1e-2)
    assert 2 - found.lower < found.upper - 2


def test_an_interval_stays_within_what_is_possible():
    without = 0.99 + 0.01 * np.random.default_rng(0).standard_normal((50, 1))
    found = jackknife(np.array([0.99]), without, within=(-1.0, 1.0))
    assert found.upper[0] == 1.0 and found.lower[0] < 0.95


def test_what_no_stimulus_changes_is_certain():
    found = Replicates(np.zeros(2), np.zeros((50, 2)), np.zeros((9, 2))).estimate()
    np.testing.assert_array_equal(found.lower, found.upper)
    same = np.repeat([[0.0, 0.5]], 9, axis=0)
    np.testing.assert_array_equal(jackknife(same[0], same).p, [1.0, 0.0])
    np.testing.assert_array_equal(jackknife(-same[0], -same, above=True).p, [1.0, 1.0])


def test_corrections():
    p = np.array([0.01, 0.02, 0.03, 0.5])
    np.testing.assert_allclose(corrected(p), [0.04, 0.04, 0.04, 0.5])
    np.testing.assert_allclose(corrected(p, "bonferroni"), [0.04, 0.08, 0.12, 1.0])
    np.testing.assert_array_equal(corrected(p, "none"), p)
    with refused("bonferroni"):
        corrected(p, "bonferoni")


def test_too_few_replicates_or_sentences_are_refused(case):
    features, layers, pairs = case
    few = layer_pairs(features, layers, GROUPS // 3, GROUPS // 3 % 3)
    with refused("at least 20"):
        resampled_scores(pairs, n_replicates=5)
    with refused("5 resampling units"):
        resampled_scores(few)
    with refused("ridge"):
        resampled_scores(pairs, "rigde")


def test_other_estimators_keep_their_weights(case):
    found = resampled_scores(replace(case[2], items=None), "ridge-rank", 20)
    assert (standard_error(found.left_out)[0, :2] > 0).all()


def looped(statistic):
    """V_sentence + V_item - V_both of a statistic of the rows that stay, one unit at a time."""
    found = {}
    units = {
        "sentence": [(g,) for g in GROUPS],
        "item": [(w,) for w in ITEMS],
        "both": list(zip(GROUPS, ITEMS, strict=True)),
    }
    for kind, own in units.items():
        values = []
        for unit in sorted(set(own)):
            values.append(statistic(np.array([row for row in range(N) if own[row] != unit])))
        n, mean = len(values), sum(values) / len(values)
        found[kind] = (n - 1) / n * sum((value - mean) ** 2 for value in values)
    both = found["sentence"] + found["item"] - found["both"]
    return max(both, found["sentence"], found["item"]), found


def test_the_error_of_rsa_is_that_of_a_loop_over_explicit_stimuli(case):
    _, layers, pairs = case

    def rsa(rows):
        return spearmanr(*(explicit.squared(layer[rows]) for layer in layers)).statistic

    expected, parts = looped(rsa)
    assert all(expected != part for part in parts.values())
    found = resampled_terms(pairs)
    at = len(pairs.tables.features) + 1
    n_both = len(set(zip(GROUPS, ITEMS, strict=True)))
    assert found.sizes == (14, 11, n_both) and n_both < N
    assert found.error[at] ** 2 == pytest.approx(expected, rel=1e-6)
    alone = resampled_terms(replace(pairs, items=None))
    assert alone.error[at] ** 2 == pytest.approx(parts["sentence"], rel=1e-6)
    bounds, narrow = found.estimate(), alone.estimate()
    wider = found.error[at] * t_quantile(11) / (alone.error[at] * t_quantile(14))
    assert wider > 1
    ratio = (bounds.upper[at] - bounds.lower[at]) / (narrow.upper[at] - narrow.lower[at])
    assert ratio == pytest.approx(wider)


def test_the_error_of_a_score_is_that_of_a_loop_over_explicit_stimuli(case):
    features, layers, pairs = case
    weights = RidgeMLEM().cross_validate(pairs.tables).weights
    x, squared = explicit.feature_distances(features), explicit.squared(layers[0])
    i, j = explicit.pairs(N)

    def rho(rows):
        kept = np.isin(i, rows) & np.isin(j, rows)
        scores = []
        for fold in range(3):
            at = kept & explicit.held_out(GROUPS % 3, fold)
            scores.append(explicit.rho(x[at] ** 2 @ weights[0, fold], squared[at]))
        return np.mean(scores)

    found = resampled_scores(pairs, "ridge", 20)
    assert found.error[0, 0] ** 2 == pytest.approx(looped(rho)[0], rel=1e-6)


def crossed(sd, n_sets=1000):
    """Means of crossed random effects and what is left without each block: sets, and their truth.

    160 stimuli in 40 sentences of 4 words, of 40 forms: y = sentence + word + rest.
    """
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(40), 4)
    items = rng.permutation(np.arange(160) % 40)
    blocks = StimulusUnits(groups, groups, items).blocks()
    effects = [s * rng.standard_normal((n_sets, n)) for s, n in zip(sd, (40, 40, 160), strict=True)]
    y = effects[0][:, groups] + effects[1][:, items] + effects[2]
    left_out = blocks.weights @ y.T / blocks.weights.sum(axis=1, keepdims=True)
    known = sd[0] ** 2 / 40 + sd[1] ** 2 / 40 + sd[2] ** 2 / 160
    return y.mean(axis=1), left_out, blocks.sizes, known


@pytest.mark.parametrize("sd", [(1.0, 1.0, 1.0), (0.3, 2.0, 1.0), (2.0, 0.5, 0.2)])
def test_the_variance_of_crossed_random_effects_is_recovered(sd):
    means, left_out, sizes, known = crossed(sd)
    assert means.var() == pytest.approx(known, rel=0.15)
    assert sizes[:2] == (40, 40) and 150 < sizes[2] <= 160
    assert (standard_error(left_out, sizes) ** 2).mean() == pytest.approx(known, rel=0.08)
    bounds = jackknife(means, left_out, sizes)
    assert (bounds.n, bounds.units) == (40, sizes)
    holds = np.mean((bounds.lower <= 0) & (bounds.upper >= 0))
    assert 0.93 < holds < 0.975
    assert np.mean(bounds.p < 0.05) == pytest.approx(1 - holds)
    if sd[1] == 2.0:  # where words vary, sentences alone hold the truth too rarely
        bounds = jackknife(means, left_out[:40])
        assert np.mean((bounds.lower <= 0) & (bounds.upper >= 0)) < 0.8


def test_a_variance_is_at_least_that_of_either_unit():
    rng = np.random.default_rng(0)
    parts = [scale * rng.standard_normal((20, 3)) for scale in (1.0, 2.0, 9.0)]
    found = standard_error(np.concatenate(parts), (20, 20, 20))
    np.testing.assert_allclose(found, np.maximum(*(standard_error(part) for part in parts[:2])))


def test_every_block_leaves_out_whole_units_each_once(monkeypatch):
    monkeypatch.setattr(resampling_units, "SINGLE", 10)
    monkeypatch.setattr(resampling_units, "BLOCKS", 5)
    blocks = StimulusUnits(GROUPS, GROUPS + 7, ITEMS * 3).blocks()
    assert blocks.sizes == (5, 5, 5)
    for start, unit in ((0, GROUPS), (5, ITEMS), (10, GROUPS * 100 + ITEMS)):
        rows = blocks.weights[start : start + 5]
        np.testing.assert_array_equal((rows == 0).sum(axis=0), 1)
        for row in rows:
            assert not set(unit[row == 0]) & set(unit[row == 1])


def test_units_are_those_of_the_stimuli():
    rows = [(f"{word} of sentence{k}", 0, k % 7) for k in range(40) for word in (f"word{k % 12}",)]
    table = pd.DataFrame(rows, columns=["sentence", "word_index", "f"])
    stimuli = from_frame(table, "words")
    units, part = Units.of(stimuli), stimuli.take(np.arange(30))
    assert (units.n_sentences, units.n_items, units.two_way) == (40, 12, True)
    assert not replace(units, n_items=9).two_way and not Units(40).two_way
    assert Units.of(part) == Units.of(part) == Units(30, 12)  # the second time from memory
    named = from_frame(table.assign(item=[f"i{k % 10}" for k in range(40)]), "items")
    assert Units.of(named).n_items == 10


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
def drawn_from():
    features = explicit.random_features(90)
    layers = [explicit.random_layer(features, seed) for seed in range(3)]
    groups = np.arange(90) // 2
    return Case(features, layers, layer_pairs(features, layers, groups, groups % 3))


@pytest.fixture(scope="module")
def both():
    """Words in sentences, with folds over both words and sentences."""
    return Case(*over_both(0, 40, 15))


def test_a_draw_of_some_sentences_is_an_analysis_of_these(drawn_from):
    pairs, two, fits = drawn_from.pairs, drawn_from.two, FIT(drawn_from.pairs.tables)
    weights = (np.random.default_rng(0).random((2, pairs.n_groups)) < 0.6).astype(float)
    terms = term_replicates(two.whole, two.tables, weights)
    scores = score_replicates(pairs, fits.weights, True, weights)
    means = outside_means(pairs.tables)  # of the other folds, over all stimuli
    for d, own in enumerate(weights):
        drawn = np.flatnonzero(own[pairs.groups])
        tables = tables_of_rows(drawn_from.features, pairs.folds, drawn, drawn_from.layers)
        rsa = next(two.whole.draw(own[None], products=True)).rsa()[0]
        # Features are dropped in the order that they have over all stimuli.
        priority = CrossFit.of(two.tables).priority
        expected = decompose(tables.of_layers([0, 1]), rsa, priority=priority)
        np.testing.assert_allclose(terms[d, :-3], expected.values[:, 0, 1], atol=1e-9)
        whole = np.diagonal(expected.terms.sum(axis=0))
        np.testing.assert_allclose(terms[d, -2:], np.sqrt(np.maximum(whole, 0)), atol=1e-9)
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


def test_scores_of_a_draw_equal_those_of_explicit_copies(drawn_from):
    pairs, fits = drawn_from.pairs, FIT(drawn_from.pairs.tables)
    (draw,) = pairs.units.bootstrap(1, np.random.default_rng(3))
    found = score_replicates(pairs, fits.weights, False, draw[None])
    x, (i, j) = explicit.feature_distances(drawn_from.features), explicit.pairs(90)
    own = draw[pairs.groups]
    times = np.where(pairs.groups[i] == pairs.groups[j], own[i], own[i] * own[j]).astype(int)
    for layer in range(3):
        rho = []
        for fold in range(3):
            rows = np.repeat(np.arange(len(i)), times * explicit.held_out(pairs.folds, fold))
            predicted = x[rows] ** 2 @ fits.weights[layer, fold]
            rho.append(explicit.rho(predicted, explicit.squared(drawn_from.layers[layer])[rows]))
        assert found[0, layer, 0] == pytest.approx(np.mean(rho), abs=1e-9)
    for fold in range(3):
        drawn = draw[pairs.groups_in(fold)]
        assert drawn.sum() == len(drawn)


def test_interactions_are_permuted_term_by_term(drawn_from):
    pairs = layer_pairs(
        drawn_from.features,
        drawn_from.layers,
        drawn_from.pairs.groups,
        drawn_from.pairs.folds,
        interactions=True,
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
        return term_replicates(pairs.whole, pairs.tables, weights)[:, -3]

    new = [rsa_of(np.ones((1, n)))[0] for _ in range(60)]
    assert 0.6 < rsa_of(multinomial(n, 300, rng)).std() / np.std(new) < 1.7


def test_models_that_are_fitted_anew_are_those_of_an_analysis_of_the_drawn(drawn_from):
    pairs = drawn_from.pairs
    weights = np.ones((2, pairs.n_groups))
    weights[1, ::5] = 0.0
    found = without_each(pairs, mean_scores, weights)
    ceilings = without_each(pairs, mean_ceilings, weights)
    np.testing.assert_allclose(ceilings, found[..., 1], atol=1e-12)
    for d, tables in enumerate((pairs.tables, drawn_from.without(weights[1][pairs.groups]))):
        fits = FIT(tables)
        np.testing.assert_allclose(found[d, :, 0], fits.rho.mean(axis=1), atol=1e-5)
        np.testing.assert_allclose(found[d, :, 1], fits.ceiling.mean(axis=1), atol=1e-5)
        importance = permutation_importance(tables, fits.weights).mean(axis=1)
        np.testing.assert_allclose(found[d, :, 2:], importance, atol=1e-5)


def test_with_folds_over_both_they_are_too(both):
    pairs = both.pairs
    weights = np.ones((3, len(pairs.folds)))
    weights[1, pairs.groups < 4] = 0.0
    weights[2, pairs.items < 2] = 0.0
    alone = pairs.by_stimulus
    found = without_each(alone, mean_scores, weights)
    np.testing.assert_allclose(found[0, :, 0], FIT(pairs.tables).rho.mean(axis=1), atol=1e-5)
    for d, tables in enumerate(tables_without(alone, weights)):
        own = both.without(weights[d])
        np.testing.assert_array_equal(tables.cell_block, own.cell_block)
        np.testing.assert_allclose(tables.counts, own.counts)
        np.testing.assert_allclose(tables.within_squares, own.within_squares)
        fits = FIT(own)
        np.testing.assert_allclose(found[d, :, 0], fits.rho.mean(axis=1), atol=1e-5)
        np.testing.assert_allclose(found[d, :, 1], fits.ceiling.mean(axis=1), atol=1e-5)


def test_a_fold_that_is_left_without_stimuli_has_a_score_of_0(both):
    pairs = both.pairs
    weights = np.where(pairs.folds == 0, 0.0, 1.0)[None]
    assert np.isfinite(without_each(pairs.by_stimulus, mean_scores, weights)).all()
    (tables,) = tables_without(pairs.by_stimulus, weights)
    fits = FIT(tables)
    assert np.isfinite(fits.weights).all()
    assert not fits.rho[:, 0].any() and not fits.ceiling[:, 0].any() and fits.rho[:, 1:].all()


def test_blocks_are_always_those_of_the_stimuli():
    groups, items = np.repeat(np.arange(300), 2), np.random.default_rng(3).integers(0, 90, 600)
    found = [StimulusUnits(folds, groups, items).blocks() for folds in (groups % 5, groups % 3)]
    np.testing.assert_array_equal(found[0].weights, found[1].weights)
    # 90 items are few enough to be left out one by one.
    assert found[0].sizes == (50, 90, 50)
    for row in found[0].weights[50:140]:
        assert len(np.unique(items[row == 0])) == 1 and set(items[row == 1]).isdisjoint(
            items[row == 0]
        )


def test_a_metric_is_fitted_at_the_penalties_that_are_held(case):
    tables = case[2].tables
    solver = RidgeMLEM()
    solution = solver.solve(tables, range(tables.n_folds))
    np.testing.assert_allclose(solver.refit(tables, solution), solution.coef)
    np.testing.assert_allclose(solver.refit(tables), solution.coef)
    one = RidgeMLEM(alphas=(10.0,)).solve(tables, range(tables.n_folds)).coef
    held = replace(solution, choice=np.full_like(solution.choice, ALPHAS.index(10.0)))
    np.testing.assert_allclose(solver.refit(tables, held), one)


def test_what_choosing_the_penalty_changes_is_added_block_by_block(case, monkeypatch):
    pairs = replace(case[2], items=None)
    monkeypatch.setattr(replicates, "CHOSEN_ANEW", 14)
    whole = resampled_scores(pairs, "ridge", 20).left_out
    monkeypatch.setattr(replicates, "CHOSEN_ANEW", 5)
    some = resampled_scores(pairs, "ridge", 20).left_out
    np.testing.assert_allclose(some[:5], whole[:5])
    held = RidgeMLEM().solve(pairs.tables, range(pairs.tables.n_folds))
    of = partial(mean_scores, estimator="ridge", held=held)
    kept = without_each(pairs.by_stimulus, of, pairs.units.blocks().weights)
    for block in range(5, 14):
        turn = block % 5
        expected = kept[block] + whole[turn] - kept[turn]
        np.testing.assert_allclose(some[block, :, 1:], expected[:, 1:], atol=1e-12)
