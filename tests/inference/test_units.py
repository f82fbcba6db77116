"""Sentences and words that are drawn: against explicit loops, and with variances that are known."""

from __future__ import annotations

from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import layer_pairs
from scipy.stats import spearmanr

from mlem_core.data.stimulus_csv import from_frame
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.jackknife import (
    REFITS,
    fewest,
    jackknife_interval,
    p_value,
    standard_error,
    t_quantile,
)
from mlem_core.inference.refits import refitted_scores
from mlem_core.inference.replicates import resampled_scores, resampled_terms
from mlem_core.pairs.units import Units, blocks_left_out

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
    pairs = layer_pairs(features, layers, GROUPS, GROUPS % 3)
    return features, layers, replace(pairs, items=ITEMS)


def test_what_there_is_of_each_kind_is_that_of_the_stimuli_that_are_asked_for():
    table = {"sentence": ["a b", "a c", "d b"], "word_index": [0, 0, 1], "f": ["x", "y", "x"]}
    both = from_frame(pd.DataFrame(table), "three words")
    first = both.take(np.array([0, 1]))
    for _ in range(2):  # the second time from memory
        assert Units.of(both) == Units(3, 2) and Units.of(first) == Units(2, 1)


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
    found = resampled_terms(pairs, 20)
    at = len(pairs.tables.features) + 1
    n_both = len(set(zip(GROUPS, ITEMS, strict=True)))
    assert found.sizes == (14, 11, n_both) and n_both < N
    assert found.error[at] ** 2 == pytest.approx(expected, rel=1e-6)
    alone = resampled_terms(replace(pairs, items=None), 20)
    assert alone.error[at] ** 2 == pytest.approx(parts["sentence"], rel=1e-6)
    np.testing.assert_array_equal(alone.bootstrap, found.bootstrap)
    bounds, narrow = found.interval(), alone.interval()
    wider = found.error[at] * t_quantile(11) / (alone.error[at] * t_quantile(14))
    assert wider > 1
    ratio = (bounds.upper[at] - bounds.lower[at]) / (narrow.upper[at] - narrow.lower[at])
    assert ratio == pytest.approx(wider)


def test_the_error_of_a_score_is_that_of_a_loop_over_explicit_stimuli(case):
    features, layers, pairs = case
    weights = RidgeMLEM().cross_validate(pairs.tables).weights
    x = explicit.feature_distances(features)

    def rho(rows):
        i, j = explicit.pairs(N)
        kept, folds = np.isin(i, rows) & np.isin(j, rows), GROUPS % 3
        squared = explicit.squared(layers[0])
        inside = [kept & explicit.held_out(folds, fold) for fold in range(3)]
        return np.mean(
            [
                explicit.rho(x[at] ** 2 @ weights[0, fold], squared[at])
                for fold, at in enumerate(inside)
            ]
        )

    expected, _ = looped(rho)
    found = resampled_scores(pairs, "ridge", 20)
    assert found.error[0, 0] ** 2 == pytest.approx(expected, rel=1e-6)
    # Importances are of models that are fitted anew, here without one word.
    rng = np.random.default_rng(0)
    pairs.bootstrap_weights(20, rng)
    row = pairs.blocks(REFITS, rng).weights[[found.sizes[0]]]
    assert len(set(ITEMS[row[0] == 0])) == 1
    alone = layer_pairs(features, layers, np.arange(N), GROUPS % 3)
    again = refitted_scores(alone, row, RidgeMLEM().cross_validate)
    np.testing.assert_allclose(
        found.left_out[found.sizes[0], :, 2:], again.importance[0], atol=1e-12
    )


def crossed(rng, n_sets, sd):
    """Means of crossed random effects and what is left without each block: sets, and their truth.

    160 stimuli in 40 sentences of 4 words, of 40 forms: y = sentence + word + rest.
    """
    groups = np.repeat(np.arange(40), 4)
    items = rng.permutation(np.arange(160) % 40)
    blocks = blocks_left_out(groups, items, 50, rng)
    effects = [s * rng.standard_normal((n_sets, n)) for s, n in zip(sd, (40, 40, 160), strict=True)]
    y = effects[0][:, groups] + effects[1][:, items] + effects[2]
    left_out = blocks.weights @ y.T / blocks.weights.sum(axis=1, keepdims=True)
    known = sd[0] ** 2 / 40 + sd[1] ** 2 / 40 + sd[2] ** 2 / 160
    return y.mean(axis=1), left_out, blocks.sizes, known


@pytest.mark.parametrize("sd", [(1.0, 1.0, 1.0), (0.3, 2.0, 1.0), (2.0, 0.5, 0.2)])
def test_the_variance_of_crossed_random_effects_is_recovered(sd):
    means, left_out, sizes, known = crossed(np.random.default_rng(1), 1000, sd)
    assert means.var() == pytest.approx(known, rel=0.15)
    assert sizes == (40, 40, 50)
    found = standard_error(left_out, sizes) ** 2
    assert found.mean() == pytest.approx(known, rel=0.08)
    one_way = standard_error(left_out[:40]) ** 2
    # Sentences alone see a word's share in each of its stimuli as if the word were another there.
    of_words = sd[1] ** 2 * (1 / 40 - 1 / 160)
    assert one_way.mean() == pytest.approx(known - of_words, rel=0.08)
    bounds = jackknife_interval(means, left_out, sizes=sizes)
    holds = np.mean((bounds.lower <= 0) & (bounds.upper >= 0))
    assert 0.93 < holds < 0.975
    rejects = np.mean(p_value(means, left_out, sizes=sizes) < 0.05)
    assert rejects == pytest.approx(1 - holds)


def test_sentences_alone_hold_the_truth_too_rarely_where_words_vary():
    means, left_out, _, _ = crossed(np.random.default_rng(1), 1000, (0.3, 2.0, 1.0))
    bounds = jackknife_interval(means, left_out[:40])
    assert np.mean((bounds.lower <= 0) & (bounds.upper >= 0)) < 0.8


def test_a_variance_is_at_least_that_of_either_unit():
    rng = np.random.default_rng(0)
    parts = [scale * rng.standard_normal((20, 3)) for scale in (1.0, 2.0, 9.0)]
    found = standard_error(np.concatenate(parts), (20, 20, 20))
    np.testing.assert_allclose(found, np.maximum(*(standard_error(part) for part in parts[:2])))
    assert fewest(np.zeros((30, 1)), (9, 8, 13)) == 8 and fewest(np.zeros((30, 1))) == 30


def test_where_a_sentence_has_one_word_that_is_the_unit():
    """Sentences inside items: what both have in common is the sentence, and cancels exactly."""
    groups, items = np.arange(60), np.arange(60) % 12
    blocks = blocks_left_out(groups, items, 50, np.random.default_rng(0))
    assert blocks.sizes == (50, 12, 50)
    np.testing.assert_array_equal(blocks.weights[:50], blocks.weights[62:])
    for row in blocks.weights[50:62]:
        assert len(set(items[row == 0])) == 1 and (row == 0).sum() == 5
    y = np.random.default_rng(1).standard_normal(12)[items]
    left_out = blocks.weights @ y / blocks.weights.sum(axis=1)
    assert standard_error(left_out, blocks.sizes) == pytest.approx(standard_error(left_out[50:62]))


def test_every_block_leaves_out_whole_units_each_once():
    blocks = blocks_left_out(GROUPS + 7, ITEMS * 3, 5, np.random.default_rng(0))
    assert blocks.sizes == (5, 5, 5)
    for start, unit in ((0, GROUPS), (5, ITEMS), (10, GROUPS * 100 + ITEMS)):
        rows = blocks.weights[start : start + 5]
        np.testing.assert_array_equal((rows == 0).sum(axis=0), 1)
        for row in rows:
            assert not set(unit[row == 0]) & set(unit[row == 1])


def test_units_are_those_of_the_stimuli_and_say_so():
    rows = [(f"{word} of sentence{k}", 0, k % 7) for k in range(40) for word in (f"word{k % 12}",)]
    table = pd.DataFrame(rows, columns=["sentence", "word_index", "f"])
    units = Units.of(from_frame(table, "words"))
    assert (units.n_sentences, units.n_items, units.two_way) == (40, 12, True)
    assert units.over == "sentences and words"
    assert units.others == "other sentences and other words"
    few = replace(units, n_items=9)
    assert few.over == "sentences" and few.others == "other sentences made of these words"
    alone = Units.of(from_frame(table.drop(columns="word_index"), "sentences"))
    assert not alone.two_way and alone.others == "other sentences of this kind"
    named = Units.of(from_frame(table.assign(item=[f"i{k % 10}" for k in range(40)]), "items"))
    assert named.others == "other sentences and other items"
    assert units.held_out("sentences") == "unseen sentences made of these words"
    assert alone.held_out("sentences") == "unseen sentences"
    assert named.held_out("both") == "unseen sentences with unseen items"
    assert named.held_out("items") == "unseen items, in sentences that may have been seen"
    assert units.permuted("sentences") == "sentences of the same fold and of as many stimuli"
    assert units.permuted("both") == "words of the same part of the folds and of as many stimuli"
