"""Sentences and words left out: against loops over stimuli, and variances that are known."""

from dataclasses import replace
from functools import partial

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import layer_pairs, refused
from scipy.stats import spearmanr, t

from mlem_core.data.stimulus_csv import from_frame
from mlem_core.estimators.ridge import ALPHAS, RidgeMLEM
from mlem_core.inference import replicates
from mlem_core.inference.bootstrap import without_each
from mlem_core.inference.corrections import corrected
from mlem_core.inference.jackknife import fewest, jackknife, standard_error, t_quantile
from mlem_core.inference.replicates import resampled_scores, resampled_terms
from mlem_core.inference.resample import Replicates
from mlem_core.measures.importance import mean_scores
from mlem_core.pairs import resampling_units
from mlem_core.pairs.resampling_units import StimulusUnits, Units

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
    with refused("5 sentences"):
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
            stays = [row for row in range(N) if own[row] != unit]
            values.append(statistic(np.array(stays)))
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
    rejects = np.mean(bounds.p < 0.05)
    assert rejects == pytest.approx(1 - holds)
    if sd[1] == 2.0:  # where words vary, sentences alone hold the truth too rarely
        bounds = jackknife(means, left_out[:40])
        assert np.mean((bounds.lower <= 0) & (bounds.upper >= 0)) < 0.8


def test_a_variance_is_at_least_that_of_either_unit():
    rng = np.random.default_rng(0)
    parts = [scale * rng.standard_normal((20, 3)) for scale in (1.0, 2.0, 9.0)]
    found = standard_error(np.concatenate(parts), (20, 20, 20))
    np.testing.assert_allclose(found, np.maximum(*(standard_error(part) for part in parts[:2])))
    assert fewest(np.zeros((30, 1)), (9, 8, 13)) == 8 and fewest(np.zeros((30, 1))) == 30


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


def test_blocks_are_always_those_of_the_stimuli():
    rng = np.random.default_rng(3)
    groups, items = np.repeat(np.arange(300), 2), rng.integers(0, 90, 600)
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
    kept = without_each(pairs.by_stimulus, of, True, pairs.units.blocks().weights)
    for block in range(5, 14):
        turn = block % 5
        expected = kept[block] + whole[turn] - kept[turn]
        np.testing.assert_allclose(some[block, :, 1:], expected[:, 1:], atol=1e-12)
