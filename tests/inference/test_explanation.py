from __future__ import annotations

import re
import shutil
from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, layer_pairs, three_layers
from scipy.stats import rankdata, spearmanr

from mlem_core.analysis.run import run
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.inference.behind import behind, contributing_pairs, contributions, is_kept
from mlem_core.inference.caveats import generalises
from mlem_core.inference.explained import Explanation
from mlem_core.inference.explanation import explain, with_intervals
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.measures.decomposition import UNEXPLAINED, decompose
from mlem_core.pairs.units import Units
from mlem_core.storage.store import Store

N = 60


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
    with pytest.raises(InputError, match="kind"):
        contributions(pairs, "knid")


def test_examples_are_the_pairs_that_add_most_each_stimulus_once(case):
    features, _, pairs = case
    table = features.assign(sentence=[f"sentence {n}" for n in range(N)])
    stimuli = from_frame(table, "made")
    added = contributions(pairs, "kind")
    found = contributing_pairs(pairs, stimuli, "kind", 5)
    i, j = explicit.pairs(N)
    best = int(np.argmax(added))
    assert tuple(found.loc[0, ["first", "second"]]) == (i[best], j[best])
    assert found.loc[0, "contribution"] == added.max()
    assert found["contribution"].is_monotonic_decreasing
    assert found.loc[0, "first_text"] == f"sentence {i[best]}"
    assert len(set(found["first"]) | set(found["second"])) == 10
    rank = rankdata(explicit.squared(case[1][0]))[best]
    assert found.loc[0, "distance_a"] == pytest.approx((rank - 0.5) / len(i))
    least = contributing_pairs(pairs, stimuli, UNEXPLAINED, 3, most=False)
    assert (least["contribution"] < 0).all()
    assert least.loc[0, "contribution"] == contributions(pairs, UNEXPLAINED).min()


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    folder = tmp_path_factory.mktemp("why")
    spec, layers = three_layers(folder)
    store = Store(folder / "cache")
    return run(spec, store), store, layers


def test_pairs_behind_a_term_are_kept_and_need_no_representations_then(analysis, tmp_path):
    whole, store, _ = analysis
    asked = (whole, store, [("m", 0), ("m", 1)], ["colour", "size"], "colour")
    assert not is_kept(*asked)
    found = behind(*asked)
    assert is_kept(*asked) and not is_kept(*asked, most=False)
    pairs = LayerPairs.of(whole, [("m", 0), ("m", 1)], store, ["colour", "size"])
    pd.testing.assert_frame_equal(
        found, contributing_pairs(pairs, whole.stimuli, "colour", len(found)), check_dtype=False
    )
    # In a store with nothing else in it, and in no other order of the layers.
    for entry in (store.root / "pairs-behind").rglob("pairs.csv"):
        there = tmp_path / entry.relative_to(store.root)
        shutil.copytree(entry.parent, there.parent)
    alone = Store(tmp_path)
    pd.testing.assert_frame_equal(behind(whole, alone, *asked[2:]), found)
    assert not is_kept(whole, alone, [("m", 1), ("m", 0)], *asked[3:])


def test_two_layers_of_an_analysis_are_explained(analysis):
    whole, store, layers = analysis
    found = with_intervals(explain(whole, ("m", 0), ("m", 1)), whole, store, 100)
    expected = spearmanr(*(explicit.squared(layers[f"layer_0{k}"]) for k in (0, 1))).statistic
    assert found.value == pytest.approx(expected, abs=1e-9)
    assert found.terms["value"].sum() == pytest.approx(expected, abs=1e-9)
    assert list(found.terms.columns) == ["term", "value", "lower", "upper", "chance"]
    for table in (found.terms, found.whole):
        assert (table["lower"] <= table["value"]).all() and (table["value"] <= table["upper"]).all()
    colour = found.terms.set_index("term").loc["colour"]
    assert colour["lower"] > 0.2 and colour["upper"] - colour["lower"] < 0.3
    assert found.notes == ()
    alone = explain(whole, ("m", 0), ("m", 1))
    pd.testing.assert_frame_equal(alone.terms, found.terms[["term", "value"]])
    fewer = with_intervals(explain(whole, ("m", 0), ("m", 1), ["size"]), whole, store, 50)
    assert fewer.terms["term"].tolist() == ["size", UNEXPLAINED]
    assert fewer.value == pytest.approx(expected, abs=1e-9)
    # The same replicates give the same intervals.
    again = with_intervals(explain(whole, ("m", 0), ("m", 1)), whole, store, 100)
    pd.testing.assert_frame_equal(again.terms, found.terms)


def test_what_cannot_be_explained_is_said(analysis):
    whole, store, _ = analysis
    with pytest.raises(InputError, match="m:9"):
        explain(whole, ("m", 0), ("m", 9))
    with pytest.raises(InputError, match="at least 20"):
        with_intervals(explain(whole, ("m", 0), ("m", 1)), whole, store, 3)


def made(values, bounds=False, chance=None):
    terms = pd.DataFrame({"term": list(values), "value": list(values.values())})
    whole = pd.DataFrame({"quantity": ["rsa"], "value": [sum(values.values())]})
    if bounds:
        terms = terms.assign(lower=terms["value"] - 0.01, upper=terms["value"] + 0.02)
        whole = whole.assign(lower=whole["value"] - 0.01, upper=whole["value"] + 0.02)
    if chance is not None:
        terms = terms.assign(chance=[*chance, np.nan])
    return Explanation((("one", 3), ("two", 20)), terms, whole)


def test_the_sentence():
    values = {"pos": 0.2, "place": 0.1, "tense": 0.004, "length": -0.05, UNEXPLAINED: 0.06}
    assert made(values).sentence == (
        "The RSA correlation of one layer 3 and two layer 20 is 0.314. Of the features, pos "
        "contributes 0.200 and place contributes 0.100. The two are less alike for length by "
        "0.050. The other feature contributes 0.004. These features, coded by whether they "
        "differ, do not explain 0.060 of it."
    )
    values = {"pos": 0.2, "tense": 0.001, "length": 0.002, UNEXPLAINED: -0.06}
    text = made(values, bounds=True).sentence
    assert "0.143 [0.133, 0.163]" in text and "the other 2 features" in text.lower()
    assert "makes the two less alike, by 0.060 [0.040, 0.070]" in text
    assert text.endswith("they say nothing about other models.")
    assert "None of the features" in made({"pos": 0.0, UNEXPLAINED: 0.5}).sentence


def test_the_headline_and_how_sure_it_is():
    values = {"pos": 0.2, "place": 0.1, "length": -0.05, UNEXPLAINED: 0.06}
    assert made(values, bounds=True).headline == (
        "one layer 3 and two layer 20 are alike (RSA 0.31), most of all in pos, which makes 65 % "
        "of it. 19 % of it is not explained by whether these features differ."
    )
    resolved = "which values of pos differ (others: whether they differ)"
    assert replace(made(values, bounds=True), coding=resolved).headline.endswith(
        "19 % of it is not explained by these features and which values of pos differ."
    )
    assert made(values).how_sure == ""
    assert made(values, bounds=True).how_sure == (
        "How sure: other sentences of this kind would put their RSA between 0.30 and 0.33 and what "
        "pos adds between 0.19 and 0.22 (95 % intervals)."
    )
    twice = replace(made(values, bounds=True), others="other sentences and other words")
    assert twice.how_sure.startswith("How sure: other sentences and other words would put")
    assert "intervals for other sentences and other words; they" in twice.sentence
    assert "sets the two apart" in made({"pos": 0.5, UNEXPLAINED: -0.1}).headline
    assert "None of it is explained" in made({"pos": -0.1, UNEXPLAINED: 0.5}).headline
    assert "but hardly for any" in made({"pos": 0.001, UNEXPLAINED: 0.5}).headline
    unlike = made({"pos": 0.03, UNEXPLAINED: 0.01}, bounds=True).headline
    assert unlike == "one layer 3 and two layer 20 are hardly alike (RSA 0.04)."


def test_the_headline_names_no_feature_that_may_be_there_by_chance():
    values = {"place": 0.2, "pos": 0.1, "length": -0.05, UNEXPLAINED: 0.06}
    # Nothing is known of chance, neither from labels nor from intervals.
    unknown = made(values).headline
    assert "Add confidence intervals" in unknown and "place" not in unknown
    # What labels give that are permuted counts for more than intervals.
    above = made(values, bounds=True, chance=[0.21, 0.03, 0.03])
    assert (
        "(RSA 0.31), most of all in pos, which makes 32 % of it. More goes with place, but "
        "permuted labels give as much." in above.headline
    )
    assert "what pos adds between 0.09 and 0.12" in above.how_sure
    none = made(values, bounds=True, chance=[0.21, 0.11, 0.03])
    assert "for none of these features more than by chance" in none.headline
    assert "pos" not in none.headline and "adds" not in none.how_sure
    assert "Permuted labels give as much for place and pos." in none.sentence
    assert "Permuted" not in made(values, bounds=True, chance=[0.1, 0.05, 0.0]).sentence
    unsure = made({"pos": 0.2, UNEXPLAINED: 0.06}, bounds=True)
    unsure.terms.loc[0, "lower"] = -0.02
    assert "for none of these features more than by chance" in unsure.headline


def test_the_command_line_says_the_same(analysis, tmp_path, capsys, monkeypatch):
    whole = analysis[0]
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    inputs = arguments_of(whole.spec)
    arguments = ["why", "m:0", "m:1", *inputs, "--out", str(tmp_path / "why.csv")]
    assert main(arguments) == 0
    found = explain(whole, ("m", 0), ("m", 1))
    printed = capsys.readouterr().out
    assert found.sentence in printed and "RSA (their sum)" in printed
    written = pd.read_csv(tmp_path / "why.csv")
    assert list(written.columns) == ["term", "value"]
    assert written["value"].sum() == pytest.approx(found.value, abs=1e-9)
    assert main([*arguments, "--bootstrap", "30"]) == 0
    written = pd.read_csv(tmp_path / "why.csv")
    assert list(written.columns) == ["term", "value", "lower", "upper", "chance"]
    assert generalises(Units(120)) in capsys.readouterr().err
    assert main(["why", "m:0", "m:7", *inputs]) == 2
    assert re.search(r"of m .7.*: the choices are 0, 1, 2\.$", capsys.readouterr().err)
    assert main(["why", "m", "m:1", *inputs]) == 2
    assert "such as minilm:3" in capsys.readouterr().err


def test_an_analysis_is_written_with_intervals(analysis, tmp_path, monkeypatch, capsys):
    whole = analysis[0]
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    inputs = arguments_of(whole.spec)
    out = tmp_path / "out"
    assert (
        main(["analyze", *inputs, "--layers", "0,2", "--bootstrap", "30", "--out", str(out)]) == 0
    )
    found = pd.read_csv(out / "intervals.csv")
    columns = "model,layer,quantity,feature,value,lower,upper,p,p_corrected"
    assert list(found.columns) == columns.split(",")
    rho = pd.read_csv(out / "scores.csv").groupby("layer")["rho"].mean()
    np.testing.assert_allclose(found.query("quantity == 'rho'")["value"], rho, atol=1e-9)
    own = found.query("quantity == 'importance'").set_index(["layer", "feature"])
    assert own.loc[(0, "colour"), "p_corrected"] < 0.01 < own.loc[(2, "colour"), "p"]
    alike = pd.read_csv(out / "similarity_intervals.csv").iloc[0]
    rsa = pd.read_csv(out / "similarity_rsa.csv", index_col="layer")
    assert (alike["layer_a"], alike["layer_b"]) == ("m:0", "m:2")
    assert alike["rsa"] == pytest.approx(rsa.loc["m:0", "m:2"])
    assert alike["rsa_lower"] < alike["rsa"] < alike["rsa_upper"] and 0 <= alike["rsa_p"] <= 1
    assert "tests in similarity_intervals.csv are a family: 1 RSA" in capsys.readouterr().err
    too_few = ["analyze", *inputs, "--layers", "0", "--bootstrap", "3", "--out", str(out)]
    assert main(too_few) == 2 and "at least 20" in capsys.readouterr().err
