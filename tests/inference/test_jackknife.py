"""Estimates of the jackknife against known variances, and the blocks of stimuli that it takes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import refused
from scipy.stats import false_discovery_control, t

from mlem_core import from_frame
from mlem_core.inference.intervals import family_of_tests
from mlem_core.inference.resample import check_enough, jackknife, standard_error
from mlem_core.pairs import resampling_units
from mlem_core.pairs.resampling_units import StimulusUnits, Units

# Words of 14 sentences, of 11 forms, of which some are twice in a sentence.
N = 42
GROUPS = np.arange(N) // 3
ITEMS = np.random.default_rng(5).integers(0, 11, N)


def test_the_standard_error_of_a_mean_is_the_known_one():
    x = np.random.default_rng(0).standard_normal(30)
    without = (x.sum() - x) / 29
    error = x.std(ddof=1) / 30**0.5
    assert standard_error(without) == pytest.approx(error)
    p = jackknife(np.float64(x.mean() + 0.3), without + 0.3).p
    assert p == pytest.approx(2 * t.sf(abs(x.mean() + 0.3) / error, 29))
    above = jackknife(np.float64(0.3), without + 0.3, above=True).p
    assert above == pytest.approx(t.sf(0.3 / error, 29))


def test_an_interval_stays_within_what_is_possible():
    without = 0.99 + 0.01 * np.random.default_rng(0).standard_normal((50, 1))
    found = jackknife(np.array([0.99]), without, within=(-1.0, 1.0))
    assert found.upper[0] == 1.0 and found.lower[0] < 0.95


def test_what_no_stimulus_changes_is_certain():
    same = np.repeat([[0.0, 0.5]], 9, axis=0)
    found = jackknife(same[0], same)
    np.testing.assert_array_equal(found.lower, found.upper)
    np.testing.assert_array_equal(found.p, [1.0, 0.0])
    np.testing.assert_array_equal(jackknife(-same[0], -same, above=True).p, [1.0, 1.0])


def test_corrections():
    table, family = family_of_tests(pd.DataFrame({"p": [0.01, np.nan, 0.02, 0.03, 0.5]}), "tests")
    expected = [0.04, np.nan, 0.04, 0.04, 0.5]
    np.testing.assert_allclose(table["p_corrected"], expected)
    assert family == "4 tests (Benjamini-Hochberg)"
    assert family_of_tests(pd.DataFrame({"p": [np.nan]}), "tests").table["p_corrected"].isna().all()
    p = np.random.default_rng(0).random(200).round(2)  # ties, 0 and 1 among them
    of_many = family_of_tests(pd.DataFrame({"p": p}), "tests").table["p_corrected"]
    np.testing.assert_allclose(of_many, false_discovery_control(p), rtol=0, atol=1e-15)


def test_too_few_sentences_are_refused():
    check_enough(10)
    with refused("9 resampling units", "at least 10"):
        check_enough(9)


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
    units, part = Units.from_stimuli(stimuli), stimuli.take(np.arange(30))
    assert (units.n_sentences, units.n_items, units.two_way) == (40, 12, True)
    assert not replace(units, n_items=9).two_way and not Units(40).two_way
    assert (
        Units.from_stimuli(part) == Units.from_stimuli(part) == Units(30, 12)
    )  # the second time from memory
    named = from_frame(table.assign(item=[f"i{k % 10}" for k in range(40)]), "items")
    assert Units.from_stimuli(named).n_items == 10


def test_numbers_of_units_are_those_of_their_blocks():
    for items, sizes in (
        (ITEMS, (14, 11, len(set(zip(GROUPS, ITEMS, strict=True))))),
        (None, (14,)),
    ):
        units = StimulusUnits(GROUPS, GROUPS, items)
        assert units.counts == units.blocks().sizes == sizes


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
