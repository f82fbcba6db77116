"""Why two layers are alike: terms, the pairs behind them, intervals."""

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, layer_pairs, refused
from scipy.stats import rankdata, spearmanr

from mlem_core import explain, from_frame, with_intervals
from mlem_core.analysis import similarities
from mlem_core.cli.commands import main
from mlem_core.inference.explanation import with_chance
from mlem_core.inference.pair_contributions import (
    contributing_pairs,
    contributions,
)
from mlem_core.measures import shapley
from mlem_core.measures.decomposition import UNEXPLAINED, decompose

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
    found = with_chance(explain(whole, A, B, compared=compared), whole, store)
    assert found.sentence in capsys.readouterr().out
    np.testing.assert_allclose(pd.read_csv(out)["value"], found.terms["value"])
    assert main([*command, "--bootstrap", "30"]) == 0
    assert list(pd.read_csv(out)) == ["term", "value", "lower", "upper", "chance", "p"]


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


def test_of_many_patterns_and_features_orders_are_sampled(planted, monkeypatch):
    whole, store = planted.analysis, planted.store
    exact = with_intervals(explain(whole, A, B), whole, store).terms
    monkeypatch.setattr(shapley, "MOST_SETS", 0)
    found = with_intervals(explain(whole, A, B), whole, store).terms
    for end in ("value", "lower", "upper", "chance"):
        np.testing.assert_allclose(found[end], exact[end], atol=0.01)
