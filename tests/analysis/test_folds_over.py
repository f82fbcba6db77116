"""Folds over sentences or over words: which stimuli a fold's model has not seen."""

from __future__ import annotations

from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import in_files

from mlem_core.analysis.baselines import decoding, of_analysis
from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.all_layers import depends_on, layer_intervals
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation import permuted_labels, score_above_chance
from mlem_core.report.methods import methods_paragraph
from mlem_core.storage.store import Store

N_SENTENCES, N_FORMS = 80, 20


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """Words whose layer is their form alone; a feature names the half of the lexicon at random."""
    folder = tmp_path_factory.mktemp("folds")
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.choice(N_FORMS, 2, replace=False) for _ in range(N_SENTENCES)])
    words = pairs.ravel()
    table = pd.DataFrame(
        {
            "sentence": np.repeat([f"w{a} and w{b} in {k}" for k, (a, b) in enumerate(pairs)], 2),
            "word_index": np.tile([0, 2], N_SENTENCES),
            "half": np.where(rng.permutation(N_FORMS)[words] < N_FORMS // 2, "x", "y"),
            "size": rng.integers(0, 5, len(words)),
        }
    )
    layer = 3 * rng.standard_normal((N_FORMS, 40))[words]
    layer = layer + 0.1 * rng.standard_normal(layer.shape)
    return in_files(folder, table, {"m": {0: layer}}, folds=4), Store(folder / "cache")


@pytest.fixture(scope="module", params=["sentences", "items"])
def analysis(request, spec):
    own, store = spec
    return run(replace(own, folds_over=request.param), store), store


def test_a_fold_holds_whole_units(analysis):
    whole, _ = analysis
    items, groups = whole.stimuli.items, whole.stimuli.groups
    together = items if whole.spec.folds_over == "items" else groups
    apart = groups if whole.spec.folds_over == "items" else items
    assert all(len(set(whole.folds[together == unit])) == 1 for unit in np.unique(together))
    assert any(len(set(whole.folds[apart == unit])) > 1 for unit in np.unique(apart))


def test_scores_are_those_of_explicit_held_out_pairs(analysis):
    whole, _ = analysis
    table = whole.stimuli.table[["half", "size"]].astype({"size": float})
    x = explicit.feature_distances(table)
    with np.load(dict(whole.spec.representations)["m"]) as arrays:
        squared = explicit.squared(arrays["layer_00"])
    results = whole.results()
    weights = results.weights.pivot(index="fold", columns="feature", values="weight")
    for fold, row in results.scores.set_index("fold").iterrows():
        inside = explicit.held_out(whole.folds, fold)
        predicted = x[inside] ** 2 @ weights.loc[fold, ["half", "size"]].to_numpy()
        assert row["rho"] == pytest.approx(explicit.rho(predicted, squared[inside]), abs=1e-9)


def test_words_that_were_seen_can_be_decoded_and_others_cannot(spec):
    """The layer knows the word, not its half: only who has seen the word can tell the half."""
    own, store = spec
    accuracy = {}
    for over in ("sentences", "items"):
        whole = run(replace(own, folds_over=over), store)
        table = of_analysis(whole, "decoding", store).table
        accuracy[over] = table[table["feature"] == "half"]["accuracy"].mean()
        with np.load(dict(own.representations)["m"]) as arrays:
            rows = {("m", 0): arrays["layer_00"]}
        again = decoding(whole.stimuli, rows, whole.folds).table
        pd.testing.assert_series_equal(table["accuracy"], again["accuracy"])
    assert accuracy["sentences"] > 0.95 and accuracy["items"] < 0.75


def test_intervals_and_tests_keep_to_the_folds(analysis):
    whole, store = analysis
    pairs = LayerPairs.of(whole, whole.layers, store)
    over = whole.spec.folds_over
    assert (pairs.fold_units is pairs.items) == (over == "items")
    labels = permuted_labels(pairs.fold_units, pairs.folds, 20, np.random.default_rng(0))
    assert (pairs.folds[labels] == pairs.folds).all() and (labels != np.arange(160)).any()
    chance = score_above_chance(pairs, RidgeMLEM().cross_validate, n_permutations=19)
    assert 0 < chance["p"].iloc[0] <= 1
    found = layer_intervals(whole, store, n_replicates=50)
    assert found.sizes == (50, 20, 50)
    rho = whole.results().scores["rho"].mean()
    assert found.scores[0, 0] == pytest.approx(rho, abs=1e-6)
    assert found.scores_lower[0, 0] < rho < found.scores_upper[0, 0]
    # Each replicate has as many sentences, though over items not in each fold.
    weights = pairs.bootstrap_weights(30, np.random.default_rng(0))
    assert (weights.sum(axis=1) == N_SENTENCES).all()


def test_keys_speak_of_it_only_where_it_is_not_the_default(spec):
    own, store = spec
    assert "folds_over" not in own.to_dict() and "folds_over" not in own.pair_choices
    over_items = replace(own, folds_over="items")
    assert over_items.to_dict()["folds_over"] == "items"
    assert AnalysisSpec.from_dict(over_items.to_dict()) == over_items
    assert AnalysisSpec.from_dict(own.to_dict()) == own
    keys = []
    for each in (own, over_items):
        whole = run(each, store)
        keys.append(depends_on(whole, whole.select()))
        assert ("folds_over" in whole.manifest["parameters"]) == (each is over_items)
        said = "over words or other items" in methods_paragraph(whole, whole.results())
        assert said == (each is over_items)
    assert "folds_over" not in keys[0] and keys[1] == keys[0] | {"folds_over": "items"}


def test_stimuli_without_recurring_words_have_no_such_folds(spec, tmp_path, capsys, monkeypatch):
    own, _ = spec
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    (file,) = own.representations
    inputs = ["--stimuli", own.stimuli, "--representations", "=".join(file), "--folds", "4"]
    assert main(["analyze", *inputs, "--folds-over", "items", "--out", str(tmp_path / "o")]) == 0
    folds = pd.read_csv(tmp_path / "o" / "folds.csv")["fold"].to_numpy()
    expected = run(replace(own, folds_over="items"), Store(tmp_path / "cache")).folds
    np.testing.assert_array_equal(folds, expected)
    assert main(["analyze", *inputs, "--folds-over", "words", "--out", str(tmp_path / "o")]) == 2
    assert "sentences, items" in capsys.readouterr().err
    table = pd.DataFrame({"sentence": [f"s {k}" for k in range(30)], "f": np.arange(30) % 4})
    alone = in_files(tmp_path, table, {"m": {0: np.random.default_rng(0).standard_normal((30, 3))}})
    with pytest.raises(InputError, match="the only choice is sentences"):
        run(replace(alone, folds_over="items"), Store(tmp_path / "cache"))
    found = lint(alone.load_stimuli(), folds_over="items").findings
    assert found[0].severity == "problem" and "only choice is sentences" in found[0].sentence
