"""Why two layers are alike: terms, the pairs behind them, intervals."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import arguments_of, refused
from scipy.stats import spearmanr, t

from mlem_core import explain, with_intervals
from mlem_core.analysis import similarities
from mlem_core.analysis.context import SelectionContext
from mlem_core.cli.commands import main
from mlem_core.inference.explanation import explanation_from_intervals, with_chance
from mlem_core.inference.layer_intervals import LAYER_CHANCE, LAYER_INTERVALS
from mlem_core.inference.resample import standard_error
from mlem_core.measures import contributions, decomposition
from mlem_core.measures.decomposition import UNEXPLAINED, decompose
from mlem_core.pairs.resampling_units import StimulusUnits
from mlem_core.pairs.statistics import ComparedPairs, pair_statistics

N = 60
A, B = ("m", 0), ("m", 1)
COLUMNS = [
    *("term", "value", "lower", "upper", "chance", "p", "unit", "share_lower", "share_upper")
]


def test_two_layers_of_an_analysis_are_explained(planted):
    whole, store = planted.analysis, planted.store
    found = with_intervals(explain(whole, A, B), whole, store)
    squared = [explicit.squared(planted.layers[f"layer_0{k}"]) for k in (0, 1)]
    expected = spearmanr(*squared).statistic
    assert found.value == pytest.approx(expected, abs=1e-9)
    assert found.terms["value"].sum() == pytest.approx(expected, abs=1e-9)
    assert list(found.terms.columns) == COLUMNS
    for table in (found.terms, found.whole):
        assert (table["lower"] <= table["value"]).all() and (table["value"] <= table["upper"]).all()
    colour = found.terms.set_index("term").loc["colour"]
    assert colour["lower"] > 0.2 and colour["upper"] - colour["lower"] < 0.3
    with refused("m:9"):
        explain(whole, A, ("m", 9))


def test_the_interval_of_a_share_has_the_error_of_the_similarity(planted):
    # Each sentence left out, and the share of what is left computed from the beginning.
    why, told = explain(planted.analysis, A, B), []
    bounded = with_intervals(why, planted.analysis, planted.store, lambda *n: told.append(n))
    shift = (bounded.terms["value"] - why.terms["value"]).to_numpy()
    units = StimulusUnits.from_stimuli(planted.analysis.stimuli, planted.analysis.folds)
    columns, without = planted.analysis.pairs.columns, []
    for weights in units.blocks().weights:
        rows = np.flatnonzero(weights)
        statistics = pair_statistics(
            ComparedPairs.from_columns(columns.select_stimuli(rows), units.folds[rows]),
            [partial(planted.layers[f"layer_0{k}"].take, rows, axis=0) for k in (0, 1)],
        )
        split = decompose(statistics.moments)
        without.append((split.values[:, 0, 1] + shift) / split.rsa[0, 1])
    error = standard_error(np.array(without))
    terms = bounded.terms.set_index("term")
    reach = terms["value"] / why.value - terms["share_lower"]
    assert reach.to_numpy() == pytest.approx(t.ppf(0.975, len(without) - 1) * error, rel=0.1)
    # All parts of the work make one count, which never goes back.
    shares = [done / total for done, total in told]
    assert shares == sorted(shares) and 0.7 < shares[-1] <= 1
    # As the intervals of all layers know it.
    intervals = LAYER_INTERVALS.get(SelectionContext.from_analysis(planted.analysis, planted.store))
    chance = LAYER_CHANCE.get(SelectionContext.from_analysis(planted.analysis, planted.store))
    known = explanation_from_intervals(why, intervals, chance.select_layers([0, 1]))
    ends = ["share_lower", "share_upper"]
    np.testing.assert_allclose(known.terms[ends], bounded.terms[ends], atol=0.01)


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
    found = with_chance(
        explain(whole, A, B, compared=compared), SelectionContext.from_analysis(whole, store)
    )
    assert repr(found) in capsys.readouterr().out
    np.testing.assert_allclose(pd.read_csv(out)["value"], found.terms["value"])
    assert main([*command, "--bootstrap", "30"]) == 0
    assert list(pd.read_csv(out)) == COLUMNS


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


def test_of_many_features_orders_are_sampled(planted, monkeypatch):
    whole, store = planted.analysis, planted.store
    exact = with_intervals(explain(whole, A, B), whole, store).terms
    for module in (contributions, decomposition):
        monkeypatch.setattr(module, "EXACT_FEATURES", 1)
    found = with_intervals(explain(whole, A, B), whole, store).terms
    for end in ("value", "lower", "upper", "chance"):
        np.testing.assert_allclose(found[end], exact[end], atol=0.01)
