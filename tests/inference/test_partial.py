"""What two layers share beside their terms, and what their metrics make of each other."""

from dataclasses import replace

import explicit
import numpy as np
import pytest
from inputs import layer_pairs, tables_of_rows
from scipy.stats import rankdata, spearmanr

from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.bootstrap import transfer_replicates
from mlem_core.inference.explanation import explain, with_chance, with_intervals, with_transfer
from mlem_core.inference.jackknife import jackknife, standard_error
from mlem_core.inference.partial import PARTS, limits, parts, parts_of, transfers
from mlem_core.inference.replicates import resampled_terms, resampled_transfers
from mlem_core.measures.partial import TRANSFERS, with_ratios

N = 48
GROUPS = np.arange(N) // 3
A, B, NOISE = (("m", layer) for layer in range(3))


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)[["kind", "gender", "length"]]
    rng = np.random.default_rng(1)
    used = 4.0 * np.column_stack((features["kind"] == "noun", features["length"].fillna(3.0) / 5))
    layers = [np.hstack((used * own, rng.standard_normal((N, 2)))) for own in (1.0, [1.0, 0.7])]
    return features, layers, layer_pairs(features, layers, GROUPS, GROUPS % 3, train_ranks=True)


def test_errors_of_both_parts_are_those_of_a_loop_over_explicit_stimuli(case):
    features, layers, pairs = case
    folds, (i, j) = GROUPS % 3, explicit.pairs(N)
    x, squared = explicit.feature_distances(features), [explicit.squared(own) for own in layers]
    orders = [explicit.priority(x, rankdata(own), folds) for own in squared]

    def both(stays):
        at = stays[i] & stays[j]
        ranks = [rankdata(own[at]) for own in squared]

        def v(a, b):
            used = [orders[a], orders[b]]
            return explicit.cross_fitted(x[at], ranks[a], ranks[b], folds[stays], range(3), used)

        ab, aa, bb = v(0, 1), v(0, 0), v(1, 1)
        rest = spearmanr(*ranks).statistic - ab
        return ab / np.sqrt(aa * bb), rest / np.sqrt((1 - aa) * (1 - bb))

    resampled = resampled_terms(pairs)
    found = resampled.made_into(lambda values: parts_of(values, 3))
    np.testing.assert_allclose(found.value, both(np.ones(N, dtype=bool)), atol=1e-9)
    left_out = np.array([both(g != GROUPS) for g in range(16)])
    assert found.left_out.shape == left_out.shape
    np.testing.assert_allclose(
        np.sort(found.left_out, axis=0), np.sort(left_out, axis=0), rtol=1e-6
    )
    np.testing.assert_allclose(found.error, standard_error(left_out), rtol=1e-6)
    table = parts(pairs.tables, resampled.value[4])
    assert tuple(table["quantity"]) == PARTS
    np.testing.assert_allclose(table["value"], found.value, atol=1e-9)


def six(x, squared, folds, weights, times):
    """What the metrics make of each other on copies of explicit pairs."""
    means = np.empty((2, 2))
    for a in range(2):
        for b in range(2):
            rho = []
            for fold in range(3):
                rows = np.repeat(np.arange(len(x)), times * explicit.held_out(folds, fold))
                rho.append(explicit.rho(x[rows] ** 2 @ weights[a, fold], squared[b][rows]))
            means[a, b] = np.mean(rho)
    (a, ab), (ba, b) = means
    return [ab, ba, a, b, ab / b, ba / a]


def test_transfer_in_a_draw_equals_that_of_explicit_copies(case):
    features, layers, pairs = case
    x, squared = explicit.feature_distances(features), [explicit.squared(own) for own in layers]
    weights = RidgeMLEM().cross_validate(pairs.tables).weights
    found = resampled_transfers(pairs, "ridge")
    drawn = pairs.units.bootstrap(20, np.random.default_rng(4))
    again = with_ratios(transfer_replicates(pairs, weights, drawn))
    i, j = explicit.pairs(N)
    for draw in (0, 11):
        own = drawn[draw][GROUPS]
        times = np.where(GROUPS[i] == GROUPS[j], own[i], own[i] * own[j]).astype(int)
        expected = six(x, squared, pairs.folds, weights, times)
        np.testing.assert_allclose(again[draw], expected, atol=1e-9)
    once = six(x, squared, pairs.folds, weights, np.ones(len(x), dtype=int))
    np.testing.assert_allclose(found.value, once, atol=1e-9)
    np.testing.assert_allclose(transfers(pairs.tables, "ridge")["value"], once, atol=1e-9)


def test_its_error_is_that_of_metrics_fitted_without_each_sentence(case):
    features, layers, pairs = case
    x, (i, j) = explicit.feature_distances(features), explicit.pairs(N)
    found = resampled_transfers(pairs, "ridge")
    kept = pairs.units.blocks().weights
    assert len(found.left_out) == len(kept) == 16
    for block in (0, 9):
        rows = np.flatnonzero(kept[block])
        tables = tables_of_rows(features, pairs.folds, rows, layers)
        low, high = pairs.tables.target_low, pairs.tables.target_high
        tables = replace(tables, target_low=low, target_high=high)
        weights = RidgeMLEM().cross_validate(tables).weights
        at = kept[block][i] * kept[block][j] > 0
        squared = [explicit.squared(own[rows]) for own in layers]
        ones = np.ones(at.sum(), dtype=int)
        expected = six(x[at], squared, pairs.folds[rows], weights, ones)
        np.testing.assert_allclose(found.left_out[block, :4], expected[:4], atol=1e-5)
        # A ratio moves to first order with its two scores.
        np.testing.assert_allclose(found.left_out[block, 4:], expected[4:], atol=5e-3)


def test_an_estimator_that_is_not_fitted_anew_keeps_its_weights(case):
    found = resampled_transfers(case[2], "ridge-rank")
    assert (found.error > 0).all() and found.left_out.shape == (16, 6)


def test_two_layers_of_an_analysis_have_them_with_intervals(planted):
    whole, store = planted.analysis, planted.store
    alone = with_transfer(explain(whole, B, A), whole)
    assert tuple(alone.partial["quantity"]) == (*PARTS, *TRANSFERS)
    why = with_intervals(alone, whole, store)
    beyond = with_chance(alone, whole, store).partial["value"]
    np.testing.assert_allclose(why.partial["value"], beyond)
    # Both metrics order the pairs alike, whichever stimuli are left out: a ratio of 1 stays 1.
    assert (why.partial["lower"] <= why.partial["value"]).all()
    assert (why.partial["value"] <= why.partial["upper"]).all()
    own = why.partial.set_index("quantity")
    assert 0.9 < own.loc["s_feat", "value"] < 1.1 and own.loc["s_feat", "lower"] > 0.7
    assert own.loc["s_rest", "lower"] < 0 < own.loc["s_rest", "upper"]
    rho = whole.results().scores.groupby("layer")["rho"].mean()
    assert own.loc["score_a", "value"] == pytest.approx(rho[1], abs=1e-9)
    assert own.loc["score_b", "value"] == pytest.approx(rho[0], abs=1e-9)


def test_what_they_say_claims_no_more_than_they_do(planted):
    whole, store = planted.analysis, planted.store
    # A layer of noise: no similarity in the features, and none of transfer is a ratio.
    noise = with_intervals(with_transfer(explain(whole, A, NOISE), whole), whole, store)
    features, rest, ab, _ = noise.beside
    assert features.value == "–" and "not clearly above 0" in features.sentence
    assert "ratio" not in ab.sentence and "[" in rest.value and "There is no number" in noise.text
    own = noise.partial.set_index("quantity")
    assert own.loc[["s_feat", "ratio_ab"]].isna().all(axis=None)


def test_a_ratio_is_as_sure_as_what_it_is_made_of():
    """Where what is below a ratio comes near 0 in a draw, its interval stays a correlation's."""
    rng = np.random.default_rng(0)
    both = 0.05 + 0.02 * rng.standard_normal((60, 2))
    draws = np.column_stack((0.02 + 0.01 * rng.standard_normal(60), np.full(60, 0.3), both))
    draws = np.vstack(([0.02, 0.3, 0.05, 0.05], draws))[:, [0, 1, 1, 1, 1, 2, 3]]
    found = parts_of(draws, 1, drawn=True)
    assert found[0] == pytest.approx(parts_of(draws[0], 1))
    # d(p / √(q r)) = dp / √(q r) - value / 2 (dq / q + dr / r).
    moved = draws[:, [0, 5, 6]] - draws[0, [0, 5, 6]]
    expected = 0.4 + moved[:, 0] / 0.05 - 0.2 * (moved[:, 1] + moved[:, 2]) / 0.05
    np.testing.assert_allclose(found[:, 0], expected)
    bounds = jackknife(found[0], found[1:], within=limits(found[0]))
    assert bounds.lower[0] >= -1 and bounds.upper[0] <= 1
    assert limits(np.array([1.2]))[1] == 1.2
