"""Intervals and tests of all layers, and of the largest: of two layers, planted, of nothing."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import finished, in_files
from scipy.stats import norm, t

from mlem_core.analysis.context import FITS, SelectionContext
from mlem_core.inference.block_influence import (
    BlockSums,
    jackknife_fit_scores,
    jackknife_rsa,
    jackknife_scores,
)
from mlem_core.inference.explanation import explain, explanation_from_intervals, with_intervals
from mlem_core.inference.explanation_text import as_chosen
from mlem_core.inference.intervals import (
    Left,
    agreement_interval,
    bounds_of_largest,
    importance_difference_table,
    score_table,
    similarity_table,
    terms_and_whole,
)
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.resample import jackknife, standard_error
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.measures.similarity import agreement
from mlem_core.pairs.resampling_units import Units
from mlem_core.storage.store import Store

A, B, C = (("m", layer) for layer in range(3))


@pytest.fixture(scope="module")
def intervals(planted):
    return LAYER_INTERVALS.get(SelectionContext.from_analysis(planted.analysis, planted.store))


def test_values_are_those_of_the_analysis(planted, intervals):
    whole = planted.analysis
    results = whole.results()
    means = results.importance.groupby(["layer", "feature"], sort=False)["importance"].mean()
    np.testing.assert_allclose(intervals.scores[:, 1:].ravel(), means, atol=1e-6)
    rho = results.scores.groupby("layer")["rho"].mean()
    np.testing.assert_allclose(intervals.scores[:, 0], rho, atol=1e-6)
    np.testing.assert_allclose(intervals.tau, results.similarity_profiles, atol=1e-6)
    np.testing.assert_allclose(intervals.values, results.similarity_rsa, atol=1e-6)
    terms, totals = terms_and_whole(intervals, A, B)
    exact = explain(whole, A, B)
    known = explanation_from_intervals(exact, intervals)
    assert (known.layers, known.others, known.coding) == (exact.layers, exact.others, exact.coding)
    pd.testing.assert_frame_equal(known.terms, terms)
    pd.testing.assert_frame_equal(known.whole, totals)
    assert terms["term"].tolist() == exact.terms["term"].tolist()
    np.testing.assert_allclose(terms["value"], exact.terms["value"], atol=1e-6)
    np.testing.assert_allclose(totals["value"], exact.whole["value"], atol=1e-6)


def test_errors_of_terms_are_those_of_two_layers_alone(planted, intervals):
    # The same blocks, and so the same interval for the same number.
    blocks = BlockSums.from_pairs(
        LayerPairs.from_analysis(
            planted.analysis, planted.analysis.select(layers=(A, B)), planted.store
        )
    )
    alone = jackknife_rsa(planted.analysis.pairs.select_layers([0, 1]), blocks)
    error = standard_error(alone.terms_without)[:, 0, 1]
    np.testing.assert_allclose(intervals.terms_error[:, 0, 1], error, rtol=1e-6)
    rsa_error = standard_error(alone.values_without)[0, 1]
    assert standard_error(intervals.values_without)[0, 1] == pytest.approx(rsa_error, rel=1e-4)
    sure = with_intervals(explain(planted.analysis, A, B), planted.analysis, planted.store)
    known = terms_and_whole(intervals, A, B)[1]
    np.testing.assert_allclose(sure.whole[["lower", "upper"]], known[["lower", "upper"]], atol=1e-5)
    terms, totals = terms_and_whole(intervals, A, B)
    reach = t.ppf(0.975, 119) * intervals.terms_error[:, 0, 1]
    np.testing.assert_allclose(terms["value"] - terms["lower"], reach)
    above = (terms["upper"] - terms["value"]).to_numpy()
    assert above[-1] == pytest.approx(reach[-1]) and (above[:-1] > reach[:-1]).all()
    assert (totals["lower"] < totals["value"]).all() and (totals["upper"] <= 1).all()


def test_scores_are_those_of_the_inference(planted, intervals):
    pairs = LayerPairs.from_analysis(planted.analysis, planted.analysis.select(), planted.store)
    without = jackknife_scores(pairs, "ridge", pairs.units.blocks())
    np.testing.assert_allclose(intervals.scores_without, without, atol=1e-6)
    reach = t.ppf(0.975, 119) * standard_error(without)
    np.testing.assert_allclose(intervals.scores - intervals.scores_lower, reach, atol=1e-6)
    above = intervals.scores_upper - intervals.scores
    np.testing.assert_allclose(above[:, 0], reach[:, 0], atol=1e-6)
    assert (above[:, 1:] >= reach[:, 1:] - 1e-9).all()
    assert (above[:, 1:] <= 2 * reach[:, 1:] + 1e-9).all()


def test_planted_features_are_found_and_others_are_not(intervals):
    table, family = score_table(intervals)
    own = table[table["quantity"] == "importance"].set_index(["layer", "feature"])
    assert (own.loc[[(0, "colour"), (1, "colour")], "p_corrected"] < 1e-6).all()
    assert (own.loc[[(2, "colour"), (2, "size")], "p"] > 0.05).all()
    assert family == "6 importances (Benjamini-Hochberg)"
    assert (table["lower"] <= table["value"]).all() and (table["value"] <= table["upper"]).all()
    assert table.loc[table["quantity"] != "importance", "p"].isna().all()


def test_similarities_have_intervals_and_tests(intervals):
    table, family = similarity_table(intervals)
    assert family == "3 RSA correlations (Benjamini-Hochberg)"
    own = table.set_index(["layer_a", "layer_b"])
    near, far = own.loc[("m:0", "m:1")], own.loc[("m:0", "m:2")]
    assert near["rsa_p_corrected"] < 1e-6 < 0.05 < far["rsa_p"]
    assert far["rsa_lower"] < 0 < far["rsa_upper"] and near["rsa_lower"] > 0.2
    for measure in ("rsa", "weighted_tau"):
        assert (table[f"{measure}_lower"] <= table[measure]).all()
        assert (table[measure] <= table[f"{measure}_upper"]).all()


def test_other_features_and_estimators_have_intervals_too(planted, intervals, tmp_path):
    whole = planted.analysis
    selection = whole.select(["colour"], estimator="ridge-rank")
    found = LAYER_INTERVALS.get(SelectionContext(whole, selection, Store(tmp_path / "one")))
    assert found.columns == ("colour",) and found.estimator == "ridge-rank"
    np.testing.assert_allclose(found.values_without, intervals.values_without, atol=1e-6)
    assert terms_and_whole(found, A, B)[0]["term"].tolist() == ["colour", UNEXPLAINED]


def test_interactions_have_importances_of_their_own(planted, tmp_path):
    spec = replace(planted.spec, interactions=True)
    made = finished(tmp_path, spec, planted.layers)
    found = LAYER_INTERVALS.get(SelectionContext.from_analysis(made.analysis, made.store))
    assert found.columns == ("colour", "size", "colour × size")
    assert found.scores.shape == (3, 4) and len(found.terms) == 3


def test_weights_of_an_estimator_of_single_pairs_are_held(planted, tmp_path):
    whole, store = planted.analysis, planted.store
    selection = whole.select(estimator="spearman")
    found = LAYER_INTERVALS.get(SelectionContext(whole, selection, store))
    assert (standard_error(found.scores_without)[:2, 1] > 0).all()
    pairs = LayerPairs.from_analysis(whole, whole.select(), store)
    fits = FITS.get(SelectionContext(whole, selection, store))
    np.testing.assert_allclose(found.scores, fits.mean_scores, atol=1e-6)
    held = jackknife_fit_scores(BlockSums.from_pairs(pairs), fits, pairs.statistics.n_pairs, None)
    np.testing.assert_allclose(found.scores_without, held, atol=1e-6)


def test_of_many_stimuli_intervals_are_from_a_sample(planted, intervals, monkeypatch, tmp_path):
    """Half of the stimuli: errors are nearly those of all."""
    monkeypatch.setattr("mlem_core.inference.block_influence.PERMUTED", 80)
    found = LAYER_INTERVALS.get(
        SelectionContext.from_analysis(planted.analysis, Store(tmp_path / "cache"))
    )
    np.testing.assert_allclose(found.scores, intervals.scores, atol=1e-6)
    np.testing.assert_allclose(found.values, intervals.values, atol=1e-6)
    assert len(found.values_without) < 90
    for name in ("values", "scores"):
        error, expected = (
            standard_error(getattr(own, f"{name}_without")) for own in (found, intervals)
        )
        matters = expected > 0.3 * expected.max()
        ratio = error[matters] / expected[matters]
        assert ((ratio > 0.6) & (ratio < 1.7)).all()


@pytest.fixture(scope="module")
def of_words(tmp_path_factory):
    """Words of 60 sentences, of 15 forms; two of three layers share the form and its colour."""
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.choice(15, 2, replace=False) for _ in range(60)])
    words, colour = pairs.ravel(), np.arange(15) % 2
    n, forms = len(words), rng.standard_normal((15, 3))
    table = pd.DataFrame(
        {
            "sentence": np.repeat([f"w{a} and w{b} in {k}" for k, (a, b) in enumerate(pairs)], 2),
            "word_index": np.tile([0, 2], n // 2),
            "colour": np.where(colour[words] == 1, "red", "blue"),
            "size": rng.integers(0, 5, n),
        }
    )
    shared = 1.5 * forms[words] + 2.0 * colour[words][:, None]
    layers = {k: shared + rng.standard_normal((n, 3)) for k in range(2)}
    layers[2] = rng.standard_normal((n, 3))
    folder = tmp_path_factory.mktemp("words")
    made = finished(folder, in_files(folder, table, {"m": layers}), layers)
    return made, LAYER_INTERVALS.get(SelectionContext.from_analysis(made.analysis, made.store))


def test_words_are_drawn_too_where_they_recur(of_words):
    _, intervals = of_words
    assert intervals.units == Units(60, 15, "word") and intervals.sizes == (60, 15, 120)
    assert len(intervals.values_without) == len(intervals.scores_without) == 195
    # The errors are those of both kinds of units, against t with as many degrees as words give.
    both = standard_error(intervals.values_without, intervals.sizes)[0, 1]
    sentences = standard_error(intervals.values_without[:50])[0, 1]
    words = standard_error(intervals.values_without[50:65])[0, 1]
    assert both > 1.5 * sentences and both >= words
    quantile = t.ppf(0.975, 14)
    terms, _ = terms_and_whole(intervals, A, B)
    error = intervals.terms_error[:, 0, 1]
    np.testing.assert_allclose(terms["value"] - terms["lower"], quantile * error)
    differences, _ = importance_difference_table(intervals, A, C)
    without = intervals.scores_without[:, 0, 1:] - intervals.scores_without[:, 2, 1:]
    error = standard_error(without, intervals.sizes)
    np.testing.assert_allclose(differences["upper"] - differences["value"], quantile * error)


@pytest.mark.slow
def test_the_agreement_of_the_measures_has_an_interval(systems):
    intervals = LAYER_INTERVALS.get(SelectionContext.from_analysis(systems.analysis, systems.store))
    value, low, high = agreement_interval(intervals)
    assert value == pytest.approx(agreement(intervals.tau, intervals.values))
    assert -1 <= low <= value <= high <= 1


def means(n, n_blocks, seed, shared=0.0):
    """Means of independent (or correlated) normal numbers about 0, and without each."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_blocks, n)) + shared * rng.standard_normal((n_blocks, 1))
    return x.mean(axis=0), Left((x.sum(axis=0) - x) / (n_blocks - 1), (n_blocks,))


def test_the_reach_is_that_of_the_largest_of_independent_normal_numbers():
    value, left = means(20, 400, 0)
    error = standard_error(*left)
    for sides, tail in ((1, norm.cdf), (2, lambda z: 2 * norm.cdf(z) - 1)):
        found = bounds_of_largest(value, left, sides=sides)
        reach = (value - found.lower) / error
        assert np.ptp(reach) < 1e-9  # one reach for all
        # Of 20 independent ones none is further out, in 95 of 100.
        assert tail(reach[0]) ** 20 == pytest.approx(0.95, abs=0.012)
        own = t.ppf(0.95, 399) if sides == 1 else reach[0]
        np.testing.assert_allclose((found.upper - value) / error, own)
    # Copies of one number are one number.
    copies = Left(np.repeat(left.without[:, :1], 9, axis=1), left.sizes)
    alone = bounds_of_largest(np.repeat(value[:1], 9), copies)
    assert (alone.value - alone.lower)[0] / error[0] == pytest.approx(t.ppf(0.95, 399), rel=0.05)


def test_the_largest_of_nothing_is_seldom_above_0_and_alone_it_is_mostly():
    above, alone = [], []
    for seed in range(200):
        value, left = means(60, 40, seed, shared=0.5)
        at = value.argmax()
        above.append(bounds_of_largest(value, left).lower[at] > 0)
        alone.append(jackknife(value, *left).lower[at] > 0)
    assert np.mean(above) < 0.09 and np.mean(alone) > 0.4


def test_two_layers_that_were_chosen_say_so_and_others_do_not(systems):
    analysis = systems.analysis
    a, b = analysis.most_alike()
    why = explain(analysis, a, b)
    why = replace(why, whole=why.whole.assign(lower=why.value - 0.1, upper=why.value + 0.1))
    found = as_chosen(why, analysis, analysis.layers)
    assert found.among == "9 pairs of layers of two models"
    assert "9 pairs of layers of two models: the lower bound" in found.how_sure
    # Without the intervals of all layers it is Sidak's for 9.
    reach = norm.ppf([0.95 ** (1 / 9), 0.95]) / norm.ppf(0.975)
    row = found.whole.iloc[0]
    assert row["lower"] == pytest.approx(why.value - 0.1 * reach[0])
    assert row["upper"] == pytest.approx(why.value + 0.1 * reach[1])
    other = explain(analysis, "one:0", "one:1")
    assert as_chosen(other, analysis, analysis.layers) is other
    assert as_chosen(why, analysis, [a, b]) is why


def test_in_groups_the_mean_over_members_comes_first(systems):
    analysis = systems.analysis
    # A second seed of one of them, somewhat less similar to all.
    pairs = analysis.pairs.select_layers([*range(6), 3, 4, 5])
    vars(pairs.moments)["rsa"] = np.block(
        [
            [analysis.rsa, analysis.rsa[:, 3:] - 0.1],
            [analysis.rsa[3:] - 0.1, analysis.rsa[3:, 3:]],
        ]
    )
    grouped = replace(
        analysis,
        layers=[*analysis.layers, *(("two-s1", k) for k in range(3))],
        pairs=pairs,
        spec=replace(
            analysis.spec,
            groups=(("g", ("two", "two-s1")),),
            representations=(*analysis.spec.representations, ("two-s1", "")),
        ),
    )
    (_, i), (_, j) = grouped.most_alike()
    found = as_chosen(explain(analysis, ("one", i), ("two", j)), grouped, grouped.layers)
    assert found.among == "18 pairs of layers of models of two groups"
    mean = f"{analysis.rsa[i, 3 + j] - 0.05:.2f}"[1:]
    said = f"The mean RSA of 2 pairs of members, one layer {i} and g layer {j}, is {mean}."
    assert found.headline.startswith(f"{said} Of these, one layer {i} and two layer {j} are")
