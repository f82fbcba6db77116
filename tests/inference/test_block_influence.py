"""Numbers without each block, by influence, beside those of stimuli that are really left out."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import layer_pairs, words_over_both
from scipy.stats import spearmanr, t

from mlem_core import from_frame
from mlem_core.inference.block_influence import (
    BlockSums,
    fitted_target,
    jackknife_fit_scores,
    jackknife_rsa,
    jackknife_scores,
)
from mlem_core.inference.influence import cross_rsa_influence, rsa_influence
from mlem_core.inference.resample import standard_error
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import fitted

N = 120
GROUPS = np.arange(N) // 3


def made(seed):
    """Words of 40 sentences, of 24 forms, in two layers; the pairs have both as units."""
    rng = np.random.default_rng(seed)
    features, items = explicit.random_features(N, seed), rng.integers(0, 24, N)
    shared = rng.standard_normal((40, 7))[GROUPS] + rng.standard_normal((24, 7))[items]
    layers = [2.0 * rng.standard_normal((N, 7)) + shared for _ in range(2)]
    for layer in layers:
        layer[:, 0] += 8.0 * (features["kind"] == "noun")
        layer[:, 1] += 3.0 * features["length"].fillna(3.0)
    pairs = layer_pairs(features, layers, GROUPS, GROUPS % 4)
    return features, layers, replace(pairs, items=items)


@pytest.fixture(scope="module")
def case():
    return made(0)


def left_out(case, number):
    """(n_blocks, ...) a number of the pairs of the stimuli that stay without each block."""
    _, layers, pairs = case
    found = []
    for weights in pairs.units.blocks().weights:
        rows = np.flatnonzero(weights)
        columns = pairs.statistics.columns.select_stimuli(rows)
        distances = [explicit.squared(layer[rows]) for layer in layers]
        some = type(pairs).from_distances(
            pairs.layers, distances, columns, pairs.folds[rows], pairs.groups[rows]
        )
        found.append(number(some.statistics))
    return np.stack(found)


def hold_errors(without, explicit_without, sizes, within):
    """Standard errors by influence are those of stimuli left out, but for a part of them."""
    by_influence = standard_error(without, sizes)
    expected = standard_error(explicit_without, sizes)
    matters = expected > 0.1 * expected.max()
    ratio = by_influence[matters] / expected[matters]
    assert (np.abs(np.log(ratio)) < np.log(1 + within)).all(), ratio


def test_errors_of_rsa_and_contributions_are_those_of_stimuli_left_out(case):
    *_, pairs = case
    blocks = BlockSums.from_pairs(pairs)
    found = jackknife_rsa(pairs.statistics, blocks)
    split = decompose(pairs.statistics.moments)
    np.testing.assert_array_equal(found.values, split.rsa)
    np.testing.assert_array_equal(found.terms, split.values)
    expected = left_out(case, lambda statistics: decompose(statistics.moments).values)
    rsa = found.values_without[:, 0, 1], expected.sum(axis=1)[:, 0, 1]
    hold_errors(*rsa, blocks.sizes, 0.1)
    hold_errors(found.terms_without, expected, blocks.sizes, 0.25)
    # Ranks of the stimuli that stay are those among themselves.
    of_others = (explicit.squared(layer[pairs.units.blocks().weights[0] > 0]) for layer in case[1])
    assert rsa[1][0] == pytest.approx(spearmanr(*of_others).statistic)


def test_scores_without_blocks_are_around_those_of_the_fits(case):
    *_, pairs = case
    blocks, fits = pairs.units.blocks(), fitted(pairs.statistics, "ridge-rank")
    found = jackknife_scores(pairs, "ridge-rank", blocks)
    scores = fits.mean_scores
    np.testing.assert_allclose(found.mean(axis=0), scores, atol=0.01)
    of_weights_held = jackknife_fit_scores(BlockSums.from_pairs(pairs), fits, 1, None)
    assert fitted_target("spearman") is None and not np.allclose(of_weights_held, found)


@pytest.mark.slow
def test_errors_of_scores_are_those_of_other_sentences_and_words():
    values, errors = [], []
    for seed in range(24):
        *_, pairs = made(seed)
        blocks = pairs.units.blocks()
        values.append(fitted(pairs.statistics, "ridge").mean_scores)
        errors.append(standard_error(jackknife_scores(pairs, "ridge", blocks), blocks.sizes))
    # The two layers are two samples of the same.
    spread = np.sqrt(np.var(values, axis=0, ddof=1).mean(axis=0))
    ratio = np.sqrt(np.mean(np.square(errors), axis=(0, 1))) / spread
    # ρ, the two features that matter, and two that do not.
    assert ((ratio > 0.7) & (ratio < 2.0)).all(), ratio
    nothing, error = np.array(values)[..., 3:], np.array(errors)[..., 3:]
    assert (nothing > t.ppf(0.95, 23) * error + 1e-12).mean() < 0.05


def test_with_folds_over_both_words_and_sentences_there_are_intervals_too():
    words = words_over_both(0, 40, 15, planted=2.0)
    pairs = layer_pairs(words.features, words.layers, words.groups, words.folds, items=words.items)
    blocks = pairs.units.blocks()
    error = standard_error(jackknife_scores(pairs, "ridge", blocks), blocks.sizes)
    assert (error[:, [0, 3]] > 0).all() and (error < 0.3).all()


def test_influences_of_a_sample_are_smaller_by_the_root_of_its_share(case):
    *_, pairs = case
    frame = case[0].assign(sentence=[f"s {group}" for group in GROUPS])
    twice = from_frame(
        pd.DataFrame(np.repeat(frame.to_numpy(), 2, axis=0), columns=frame.columns).assign(
            sentence=[f"s {number}" for number in np.arange(2 * N) // 3]
        ),
        "s",
    )
    alone = replace(pairs, items=None)
    whole, sample = BlockSums.from_pairs(alone), BlockSums.from_pairs(alone, twice)
    value, influence = np.zeros(()), np.ones(40)
    np.testing.assert_allclose(whole.without(value, influence), -40 / 39)
    np.testing.assert_allclose(sample.without(value, influence), -40 / 39 * np.sqrt(0.5))


def test_influence_on_rsa_of_some_layers_with_others_is_that_of_all(case):
    *_, pairs = case
    blocks = pairs.units.blocks()
    of_all = rsa_influence(BlockSums.from_pairs(pairs, blocks=blocks).sums)
    ranks = np.stack(pairs.ranks).astype(np.float64)
    ranks -= ranks.mean(axis=1, keepdims=True)
    ranks /= np.linalg.norm(ranks, axis=1, keepdims=True)
    members = (blocks.weights == 0).astype(np.float64)
    crossed = cross_rsa_influence(ranks[:1], ranks, members)
    np.testing.assert_allclose(crossed, of_all[:, :1], atol=1e-12)
