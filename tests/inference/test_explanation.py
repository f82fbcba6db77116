"""Why two layers are alike: terms, the pairs behind them, what is beside them, intervals."""

from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, layer_pairs, refused, tables_of_rows
from scipy.stats import rankdata, spearmanr

from mlem_core import RidgeMLEM, explain, from_frame, with_intervals, with_transfer
from mlem_core.analysis import similarities
from mlem_core.cli.commands import main
from mlem_core.inference.bootstrap import transfer_replicates
from mlem_core.inference.explanation import with_chance
from mlem_core.inference.pair_contributions import (
    contributing_pairs,
    contributions,
)
from mlem_core.inference.partial import PARTS, limits, parts, parts_of, transfers
from mlem_core.inference.replicates import resampled_terms, resampled_transfers
from mlem_core.inference.resample import jackknife, standard_error
from mlem_core.measures import shapley
from mlem_core.measures.decomposition import UNEXPLAINED, decompose
from mlem_core.measures.partial import TRANSFERS, with_ratios

N = 60
A, B = ("m", 0), ("m", 1)


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    folds = explicit.random_folds(N, 3)
    return features, layers, layer_pairs(features, layers, np.arange(N), folds)


def test_what_the_pairs_add_is_the_term(case):
    _, layers, pairs = case
    ranks = [rankdata(explicit.squared(layer)) for layer in layers]
    ranks = [r - r.mean() for r in ranks]
    scale = np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1]))
    rsa = np.full((2, 2), ranks[0] @ ranks[1] / scale)
    terms = decompose(pairs.tables, rsa).pair(0, 1).set_index("term")["value"]
    added = {term: contributions(pairs, term) for term in terms.index}
    for term, value in terms.items():
        assert added[term].sum() == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(sum(added.values()), ranks[0] * ranks[1] / scale, atol=1e-12)
    with refused("knid", "kind"):
        contributions(pairs, "knid")


def test_examples_are_the_pairs_that_add_most_each_stimulus_once(case):
    features, _, pairs = case
    stimuli = from_frame(features.assign(sentence=[f"sentence {n}" for n in range(N)]), "made")
    added = contributions(pairs, "kind")
    found = contributing_pairs(pairs, stimuli, "kind", 5)
    i, j = explicit.pairs(N)
    best = int(np.argmax(added))
    assert tuple(found.loc[0, ["first", "second"]]) == (i[best], j[best])
    assert found.loc[0, "contribution"] == added.max()
    assert found["contribution"].is_monotonic_decreasing
    assert len(set(found["first"]) | set(found["second"])) == 10
    least = contributing_pairs(pairs, stimuli, UNEXPLAINED, 3, most=False)
    assert (least["contribution"] < 0).all()
    assert least.loc[0, "contribution"] == contributions(pairs, UNEXPLAINED).min()


def test_two_layers_of_an_analysis_are_explained(planted):
    whole, store = planted.analysis, planted.store
    found = with_intervals(explain(whole, A, B), whole, store)
    squared = [explicit.squared(planted.layers[f"layer_0{k}"]) for k in (0, 1)]
    expected = spearmanr(*squared).statistic
    assert found.value == pytest.approx(expected, abs=1e-9)
    assert found.terms["value"].sum() == pytest.approx(expected, abs=1e-9)
    assert list(found.terms.columns) == ["term", "value", "lower", "upper", "chance", "p"]
    for table in (found.terms, found.whole):
        assert (table["lower"] <= table["value"]).all() and (table["value"] <= table["upper"]).all()
    colour = found.terms.set_index("term").loc["colour"]
    assert colour["lower"] > 0.2 and colour["upper"] - colour["lower"] < 0.3
    with refused("m:9"):
        explain(whole, A, ("m", 9))


@pytest.mark.parametrize("name", ["rsa", "cka", "procrustes"])
def test_the_command_line_prints_and_writes_them(planted, name, tmp_path, capsys, monkeypatch):
    whole, store = planted.analysis, planted.store
    monkeypatch.setenv("MLEM_CACHE", str(store.root))
    out = tmp_path / "why.csv"
    command = ["why", "m:0", "m:1", *arguments_of(whole.spec), "--similarity", name]
    command += ["--out", str(out)]
    compared = None if name == "rsa" else similarities.compared(whole, name, store)
    assert main(command) == 0
    if name == "procrustes":
        assert explain(whole, A, B, compared=compared).headline in capsys.readouterr().out
        return
    found = explain(whole, A, B, compared=compared)
    if name == "rsa":
        found = with_transfer(found, whole)
    found = with_chance(found, whole, store)
    assert found.sentence in capsys.readouterr().out
    np.testing.assert_allclose(pd.read_csv(out)["value"], found.terms["value"])
    assert main([*command, "--bootstrap", "30"]) == 0
    assert list(pd.read_csv(out)) == ["term", "value", "lower", "upper", "chance", "p"]
    if name == "rsa":
        partial = pd.read_csv(tmp_path / "why_partial.csv")
        assert list(partial) == ["quantity", "value", "lower", "upper"]
        np.testing.assert_allclose(partial["value"], found.partial["value"])


def test_an_analysis_is_written_with_intervals(planted, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(planted.store.root))
    command = ["analyze", *arguments_of(planted.spec), "--out", str(tmp_path), "--layers", "0,2"]
    assert main([*command, "--bootstrap", "30"]) == 0
    found = pd.read_csv(tmp_path / "intervals.csv")
    rho = pd.read_csv(tmp_path / "scores.csv").groupby("layer")["rho"].mean()
    np.testing.assert_allclose(found.query("quantity == 'rho'")["value"], rho, atol=1e-9)
    alike = pd.read_csv(tmp_path / "similarity_intervals.csv").iloc[0]
    assert (alike["layer_a"], alike["layer_b"]) == ("m:0", "m:2")
    assert alike["rsa_lower"] < alike["rsa"] < alike["rsa_upper"] and 0 <= alike["rsa_p"] <= 1
    assert "similarity_intervals.csv are a family: 1 RSA" in capsys.readouterr().err


def test_an_analysis_is_written_with_its_other_similarities(planted, tmp_path, monkeypatch):
    whole, store = planted.analysis, planted.store
    monkeypatch.setenv("MLEM_CACHE", str(store.root))
    command = ["analyze", *arguments_of(planted.spec), "--out", str(tmp_path), "--similarities"]
    assert main([*command, "cka,neighbours"]) == 0
    for name in ("cka", "neighbours"):
        found = similarities.compared(whole, name, store)
        written = pd.read_csv(tmp_path / f"similarity_{name}.csv", index_col="layer")
        np.testing.assert_allclose(written, found.square, atol=1e-9)
        terms = pd.read_csv(tmp_path / f"why_layers_{name}.csv")
        for (a, b), value in terms.groupby(["layer_a", "layer_b"])["value"].sum().items():
            assert value == pytest.approx(found.values[a, b], abs=1e-9)
        assert set(terms["term"]) == {"colour", "size", UNEXPLAINED}


N_WORDS = 48
GROUPS = np.arange(N_WORDS) // 3
NOISE = ("m", 2)


@pytest.fixture(scope="module")
def sharing():
    features = explicit.random_features(N_WORDS)[["kind", "gender", "length"]]
    rng = np.random.default_rng(1)
    used = 4.0 * np.column_stack((features["kind"] == "noun", features["length"].fillna(3.0) / 5))
    layers = [
        np.hstack((used * own, rng.standard_normal((N_WORDS, 2)))) for own in (1.0, [1.0, 0.7])
    ]
    return features, layers, layer_pairs(features, layers, GROUPS, GROUPS % 3, train_ranks=True)


def test_errors_of_both_parts_are_those_of_a_loop_over_explicit_stimuli(sharing):
    features, layers, pairs = sharing
    folds, (i, j) = GROUPS % 3, explicit.pairs(N_WORDS)
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
    np.testing.assert_allclose(found.value, both(np.ones(N_WORDS, dtype=bool)), atol=1e-9)
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


def test_transfer_in_a_draw_equals_that_of_explicit_copies(sharing):
    features, layers, pairs = sharing
    x, squared = explicit.feature_distances(features), [explicit.squared(own) for own in layers]
    weights = RidgeMLEM().cross_validate(pairs.tables).weights
    found = resampled_transfers(pairs, "ridge")
    drawn = pairs.units.bootstrap(20, np.random.default_rng(4))
    again = with_ratios(transfer_replicates(pairs, weights, drawn))
    i, j = explicit.pairs(N_WORDS)
    for draw in (0, 11):
        own = drawn[draw][GROUPS]
        times = np.where(GROUPS[i] == GROUPS[j], own[i], own[i] * own[j]).astype(int)
        expected = six(x, squared, pairs.folds, weights, times)
        np.testing.assert_allclose(again[draw], expected, atol=1e-9)
    once = six(x, squared, pairs.folds, weights, np.ones(len(x), dtype=int))
    np.testing.assert_allclose(found.value, once, atol=1e-9)
    np.testing.assert_allclose(transfers(pairs.tables, "ridge")["value"], once, atol=1e-9)


def test_its_error_is_that_of_metrics_fitted_without_each_sentence(sharing):
    features, layers, pairs = sharing
    x, (i, j) = explicit.feature_distances(features), explicit.pairs(N_WORDS)
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
        expected = six(x[at], squared, pairs.folds[rows], weights, np.ones(at.sum(), dtype=int))
        np.testing.assert_allclose(found.left_out[block, :4], expected[:4], atol=1e-5)
        # A ratio moves to first order with its two scores.
        np.testing.assert_allclose(found.left_out[block, 4:], expected[4:], atol=5e-3)


def test_an_estimator_that_is_not_fitted_anew_keeps_its_weights(sharing):
    found = resampled_transfers(sharing[2], "ridge-rank")
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


def test_of_many_patterns_and_features_orders_are_sampled(planted, monkeypatch):
    whole, store = planted.analysis, planted.store
    exact = with_intervals(explain(whole, A, B), whole, store).terms
    monkeypatch.setattr(shapley, "MOST_SETS", 0)
    found = with_intervals(explain(whole, A, B), whole, store).terms
    for end in ("value", "lower", "upper", "chance"):
        np.testing.assert_allclose(found[end], exact[end], atol=0.01)


def test_what_they_say_claims_no_more_than_they_do(planted):
    whole, store = planted.analysis, planted.store
    # A layer of noise: no similarity in the features, and none of transfer is a ratio.
    noise = with_intervals(with_transfer(explain(whole, A, NOISE), whole), whole, store)
    features, rest, ab, _ = noise.beside
    assert features.value == "–" and "not clearly above 0" in features.sentence
    assert "ratio" not in ab.sentence and "[" in rest.value and "There is no number" in noise.text
    assert noise.partial.set_index("quantity").loc[["s_feat", "ratio_ab"]].isna().all(axis=None)


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
