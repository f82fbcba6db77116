from __future__ import annotations

import explicit
import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr, t

from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.inference import all_layers
from mlem_core.inference.all_layers import error_bars, find
from mlem_core.inference.bootstrap import LayerPairs
from mlem_core.inference.explanation import explain
from mlem_core.inference.intervals import DRAWS, ErrorBars, jackknife
from mlem_core.inference.jackknife import (
    FEW,
    FITTED,
    p_value,
    resampled_scores,
    resampled_terms,
    standard_error,
)
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.measures.similarity import agreement
from mlem_core.pairs.resampling import leave_out
from mlem_core.storage.store import Store

N = 120
A, B, C = (("m", layer) for layer in range(3))


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bars")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "sentence": [f"word {i} of {i}" for i in range(N)],
            "colour": rng.choice(["red", "blue"], N),
            "size": rng.integers(0, 5, N),
            "other": rng.choice(["x", "y"], N),
        }
    )
    table.to_csv(folder / "s.csv", index=False)
    shared = np.column_stack((4.0 * (table["colour"] == "red"), 0.5 * table["size"]))
    layers = {f"layer_{k:02d}": shared + rng.standard_normal((N, 2)) for k in range(2)}
    layers["layer_02"] = rng.standard_normal((N, 3))
    np.savez(folder / "m.npz", **layers)
    spec = AnalysisSpec(
        stimuli=str(folder / "s.csv"), representations=(("m", str(folder / "m.npz")),)
    )
    store = Store(folder / "cache")
    return run(spec, store), store, layers


@pytest.fixture(scope="module")
def bars(analysis):
    whole, store, _ = analysis
    return error_bars(whole, store)


def test_what_is_left_out_gives_the_rsa_of_the_others(analysis, bars):
    whole, store, layers = analysis
    pairs = LayerPairs.of(whole, whole.layers, store)
    rng = np.random.default_rng(0)
    pairs.by_fold(DRAWS, rng)
    kept = leave_out(pairs.n_groups, 50, rng)
    for d in (0, 17):
        rows = np.flatnonzero(kept[d][pairs.groups])
        assert len(rows) in (117, 118)
        squared = [explicit.squared(layers[f"layer_0{k}"][rows]) for k in (0, 1)]
        expected = spearmanr(*squared).statistic
        assert bars.rsa_without[d, 0, 1] == pytest.approx(expected, abs=1e-6)


def test_values_are_those_of_the_analysis(analysis, bars):
    whole, _, _ = analysis
    results = whole.results()
    means = results.importance.groupby(["layer", "feature"], sort=False)["importance"].mean()
    np.testing.assert_allclose(bars.scores[:, 2:].ravel(), means, atol=1e-6)
    rho = results.scores.groupby("layer")["rho"].mean()
    np.testing.assert_allclose(bars.scores[:, 0], rho, atol=1e-6)
    np.testing.assert_allclose(bars.tau, results.similarity_profiles, atol=1e-6)
    np.testing.assert_allclose(bars.rsa, results.similarity_rsa, atol=1e-6)
    terms, totals = bars.pair(A, B)
    exact = explain(whole, A, B)
    assert terms["term"].tolist() == exact.terms["term"].tolist()
    np.testing.assert_allclose(terms["value"], exact.terms["value"], atol=1e-6)
    np.testing.assert_allclose(totals["value"], exact.whole["value"], atol=1e-6)


def test_errors_of_terms_are_those_of_two_layers_alone(analysis, bars):
    whole, store, _ = analysis
    pairs = LayerPairs.of(whole, (A, B), store)
    # Blocks of other sentences, and more of them: alike, not the same.
    resampled = resampled_terms(pairs, 20)
    found = standard_error(resampled.left_out)
    n = len(bars.features) + 1
    np.testing.assert_allclose(bars.terms_error[:, 0, 1], found[:n], rtol=0.5, atol=1e-3)
    own = standard_error(bars.rsa_without)[0, 1]
    assert own == pytest.approx(found[n], rel=0.5)
    tests, family = bars.term_tests(A, B, "bonferroni")
    expected = p_value(resampled.value, resampled.left_out)[:n]
    assert family == f"{n} terms; Bonferroni" and (tests["p_corrected"] >= tests["p"]).all()
    np.testing.assert_array_equal(tests["p"] < 0.01, expected < 0.01)
    terms, totals = bars.pair(A, B)
    reach = t.ppf(0.975, 49) * bars.terms_error[:, 0, 1]
    np.testing.assert_allclose(terms["upper"] - terms["value"], reach)
    assert (totals["lower"] < totals["value"]).all() and (totals["upper"] <= 1).all()


def test_scores_are_those_of_the_inference(analysis, bars):
    whole, store, _ = analysis
    pairs = LayerPairs.of(whole, whole.layers, store)
    again = resampled_scores(pairs, "ridge", DRAWS)
    bounds = again.interval()
    np.testing.assert_allclose(bars.scores_lower, bounds.lower, atol=1e-6)
    np.testing.assert_allclose(bars.scores_upper, bounds.upper, atol=1e-6)
    value, low, high = bars.agreement()
    assert value == pytest.approx(agreement(bars.tau, bars.rsa))
    assert -1 <= low <= value <= high <= 1


def test_planted_features_are_found_and_others_are_not(bars):
    table, family = bars.score_table(correction="bonferroni")
    own = table[table["quantity"] == "importance"].set_index(["layer", "feature"])
    assert (own.loc[[(0, "colour"), (1, "colour")], "p_corrected"] < 1e-6).all()
    assert (own.loc[[(0, "other"), (2, "colour"), (2, "size")], "p"] > 0.05).all()
    assert family == "9 importances; Bonferroni"
    fewer, family = bars.score_table([C])
    assert family == "3 importances; Benjamini-Hochberg" and set(fewer["layer"]) == {2}
    assert (table["lower"] <= table["value"]).all() and (table["value"] <= table["upper"]).all()
    assert table.loc[table["quantity"] != "importance", "p"].isna().all()


def test_similarities_have_intervals_and_tests(bars):
    table, family = bars.similarity_table()
    assert family == "3 RSA correlations; Benjamini-Hochberg"
    own = table.set_index(["layer_a", "layer_b"])
    near, far = own.loc[("m:0", "m:1")], own.loc[("m:0", "m:2")]
    assert near["rsa_p_corrected"] < 1e-6 < 0.05 < far["rsa_p"]
    assert far["rsa_lower"] < 0 < far["rsa_upper"] and near["rsa_lower"] > 0.2
    for measure in ("rsa", "weighted_tau"):
        assert (table[f"{measure}_lower"] <= table[measure]).all()
        assert (table[measure] <= table[f"{measure}_upper"]).all()
    closer = bars.closer(A, B, C)
    assert closer["p"] < 1e-6 and closer["lower"] > 0.2
    assert closer["value"] == pytest.approx(near["rsa"] - far["rsa"])
    back = bars.closer(A, C, B)
    assert back["value"] == -closer["value"] and back["p"] == pytest.approx(closer["p"])


def test_two_layers_are_compared(bars):
    table, family = bars.differences(A, C)
    own = table.set_index("feature")
    assert own.loc["colour", "p_corrected"] < 0.01 and own.loc["other", "p"] > 0.05
    assert own.loc["colour", "lower"] > 0
    assert family == "3 differences of importance, m:0 less m:2; Benjamini-Hochberg"
    np.testing.assert_allclose(
        bars.differences(C, A).table["value"], -table["value"], rtol=0, atol=0
    )


def test_they_are_kept_and_found_for_fewer_layers(analysis, bars, tmp_path):
    whole, store, _ = analysis
    found = find(whole, store, whole.select(layers=[A, B]))
    assert found is not None and found.layers == (A, B, C)
    assert find(whole, store, whole.select(["size"])) is None
    assert find(whole, Store(tmp_path)) is None
    bars.save(tmp_path)
    again = ErrorBars.load(tmp_path)
    for name in ("terms", "rsa_without", "scores_without", "tau_lower"):
        np.testing.assert_array_equal(getattr(again, name), getattr(bars, name))
    assert again.layers == bars.layers and again.columns == bars.columns


def test_other_features_estimators_and_few_layers_at_a_time(analysis, bars, monkeypatch):
    whole, store, _ = analysis
    monkeypatch.setattr(all_layers, "CHUNK_BYTES", 1)
    asked = {"features": ["colour", "size"], "estimator": "ridge-rank", "interactions": True}
    seen = []
    found = error_bars(whole, store, whole.select(**asked), report=seen.append)
    assert found.columns == ("colour", "size", "colour × size")
    np.testing.assert_allclose(found.rsa_without, bars.rsa_without, atol=1e-6)
    assert FITTED in found.how and FITTED not in bars.how and FEW not in bars.how
    assert found.pair(A, B)[0]["term"].tolist() == ["colour", "size", UNEXPLAINED]
    assert {step.stage for step in seen} == {"error bars of scores", "error bars of RSA"}
    monkeypatch.undo()
    together = error_bars(whole, Store(store.root / "again"), whole.select(**asked))
    np.testing.assert_array_equal(together.scores_lower, found.scores_lower)
    np.testing.assert_array_equal(together.tau_upper, found.tau_upper)


def test_what_cannot_be_is_said(analysis, bars, monkeypatch):
    whole, store, _ = analysis
    with pytest.raises(InputError, match="m:9"):
        error_bars(whole, store, whole.select(layers=[("m", 9)]))
    with pytest.raises(InputError, match="m:9"):
        bars.closer(A, B, ("m", 9))
    monkeypatch.setattr(all_layers, "MOST_BYTES", 30_000)
    with pytest.raises(InputError, match="choose at most 2 layers"):
        error_bars(whole, store, whole.select(["size"]))


def test_an_interval_stays_within_what_is_possible():
    rng = np.random.default_rng(0)
    without = 0.99 + 0.01 * rng.standard_normal((50, 1))
    found = jackknife(np.array([0.99]), without, -1.0, 1.0)
    assert found.upper[0] == 1.0 and found.lower[0] < 0.95
