"""Folds over sentences, words or both: which stimuli a fold's model has not seen."""

from __future__ import annotations

from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, finished, in_files, refused, tables_of
from scipy.spatial.distance import pdist
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mlem_core.analysis.baselines import decoding, encoded_features, of_analysis, random_forest
from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.cli.commands import main
from mlem_core.data.folds import FOLDS_OVER, in_training, stimulus_folds
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.all_layers import depends_on, layer_intervals
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation import permuted_labels, score_above_chance
from mlem_core.report.figures import basis
from mlem_core.report.methods import methods_paragraph
from mlem_core.storage.store import Store

N_SENTENCES, N_FORMS = 80, 20
HELD_OUT = {
    "sentences": "unseen sentences made of these words",
    "items": "unseen words, in sentences that may have been seen",
    "both": "unseen sentences made of unseen words",
}


@pytest.fixture(scope="module")
def analyses(tmp_path_factory):
    """Words whose layer is their form alone; a feature names the half of the lexicon at random.

    By what the folds are over: finished analyses in one store.
    """
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
    spec = in_files(folder, table, {"m": {0: layer}}, folds=4)
    return {
        over: finished(folder, replace(spec, folds_over=over), {("m", 0): layer})
        for over in FOLDS_OVER
    }


@pytest.mark.parametrize("over", ["sentences", "items"])
def test_a_fold_holds_whole_units(analyses, over):
    folds, stimuli = analyses[over].analysis.folds, analyses[over].analysis.stimuli
    together, apart = stimuli.groups, stimuli.items
    if over == "items":
        together, apart = apart, together
    assert all(len(set(folds[together == unit])) == 1 for unit in np.unique(together))
    assert any(len(set(folds[apart == unit])) > 1 for unit in np.unique(apart))


@pytest.mark.parametrize("over", FOLDS_OVER)
def test_scores_are_those_of_explicit_held_out_pairs(analyses, over):
    whole = analyses[over].analysis
    x = explicit.feature_distances(whole.stimuli.table[["half", "size"]].astype({"size": float}))
    squared = explicit.squared(analyses[over].layers["m", 0])
    results = whole.results()
    weights = results.weights.pivot(index="fold", columns="feature", values="weight")
    for fold, row in results.scores.set_index("fold").iterrows():
        inside = explicit.held_out(whole.folds, fold)
        predicted = x[inside] ** 2 @ weights.loc[fold, ["half", "size"]].to_numpy()
        assert row["rho"] == pytest.approx(explicit.rho(predicted, squared[inside]), abs=1e-9)


def test_words_that_were_seen_can_be_decoded_and_others_cannot(analyses):
    """The layer knows the word, not its half: only who has seen the word can tell the half."""
    accuracy = {}
    for over, made in analyses.items():
        table = of_analysis(made.analysis, "decoding", made.store).table
        accuracy[over] = table[table["feature"] == "half"]["accuracy"].mean()
        again = decoding(made.analysis.stimuli, made.layers, made.analysis.folds).table
        pd.testing.assert_series_equal(table["accuracy"], again["accuracy"])
    assert accuracy["sentences"] > 0.95
    assert accuracy["items"] < 0.75 and accuracy["both"] < 0.75


def test_decoding_and_forests_over_both_see_nothing_of_what_they_are_tested_on(analyses):
    made, whole = analyses["both"], analyses["both"].analysis
    rows, stimuli = made.layers["m", 0], whole.stimuli
    found = decoding(stimuli, made.layers, whole.folds).table
    forest = random_forest(stimuli, made.layers, whole.folds, n_estimators=3, repeats=1)
    inputs, half = encoded_features(stimuli)[0], stimuli.values("half")
    words, sentences = np.array(stimuli.words), np.array(stimuli.sentences)
    for fold in range(4):
        test = whole.folds == fold
        of_fold = [set(own[test]) for own in (words, sentences)]
        shares = np.isin(words, list(of_fold[0])) | np.isin(sentences, list(of_fold[1]))
        # Not only those that share something with a tested stimulus: all that could have.
        train = in_training(whole.folds, fold)
        assert not (train & shares).any() and train.sum() > 40
        fitted = make_pipeline(StandardScaler(), RidgeClassifier()).fit(rows[train], half[train])
        row = found[(found["fold"] == fold) & (found["feature"] == "half")].iloc[0]
        assert row["accuracy"] == pytest.approx(fitted.score(rows[test], half[test]))
        trees = RandomForestRegressor(3, random_state=0).fit(inputs[train], rows[train])
        rho = explicit.rho(pdist(trees.predict(inputs[test])).round(9), pdist(rows[test]))
        assert forest[forest["fold"] == fold]["rho"].iloc[0] == pytest.approx(rho, abs=1e-6)


def test_what_was_learnt_of_some_words_is_of_no_use_with_others():
    """Features drawn at random for each word go with its form by chance, in these words only.

    The pairs of one word are left out: any feature of the word tells them from the others.
    """
    scores = {over: [] for over in FOLDS_OVER}
    for seed in range(15):
        rng = np.random.default_rng(seed)
        words = np.concatenate([rng.choice(24, 3, replace=False) for _ in range(60)])
        values = rng.integers(0, 2, (24, 40))[words]
        layer = rng.standard_normal((24, 2))[words] + 0.1 * rng.standard_normal((len(words), 2))
        table = pd.DataFrame(values, columns=[f"f{k}" for k in range(40)]).astype(bool)
        sentences = [" ".join(f"w{w}" for w in own) for own in words.reshape(-1, 3)]
        table.insert(0, "sentence", np.repeat([f"{s} {k}" for k, s in enumerate(sentences)], 3))
        table.insert(1, "word_index", np.tile(np.arange(3), 60))
        stimuli = from_frame(table, "words")
        i, j = explicit.pairs(len(words))
        x, target = (values[i] != values[j]).astype(float), explicit.squared(layer)
        for over in FOLDS_OVER:
            folds = stimulus_folds(stimuli, over, 3, seed)
            tables = tables_of(table.iloc[:, 2:], [layer], folds)
            weights = RidgeMLEM(alphas=[1.0]).cross_validate(tables).weights[0]
            for fold in range(3):
                use = explicit.held_out(folds, fold) & (words[i] != words[j])
                predicted = x[use] @ weights[fold]
                rho = explicit.rho(predicted, target[use]) if np.ptp(predicted) > 1e-9 else 0.0
                scores[over].append(rho)
    mean = {over: np.mean(own) for over, own in scores.items()}
    assert mean["sentences"] > 0.2
    assert max(abs(mean["items"]), abs(mean["both"])) < 0.1


@pytest.mark.parametrize("over", FOLDS_OVER)
def test_intervals_and_tests_keep_to_the_folds(analyses, over):
    whole, store = analyses[over].analysis, analyses[over].store
    pairs = LayerPairs.of(whole, whole.layers, store)
    assert (pairs.fold_units is pairs.groups) == (over == "sentences")
    assert (pairs.fold_units is pairs.items) == (over == "items")
    labels = permuted_labels(pairs.fold_units, pairs.folds, 20, np.random.default_rng(0))
    assert (pairs.folds[labels] == pairs.folds).all() and (labels != np.arange(160)).any()
    chance = score_above_chance(pairs, RidgeMLEM().cross_validate, n_permutations=19)
    assert 0 < chance["p"].iloc[0] <= 1
    found = layer_intervals(whole, store, n_replicates=20)
    assert found.sizes == (50, 20, 50)
    rho = whole.results().scores["rho"].mean()
    assert found.scores[0, 0] == pytest.approx(rho, abs=1e-6)
    assert found.scores_lower[0, 0] < rho < found.scores_upper[0, 0]
    # Each replicate has as many sentences, though over items or both not in each fold.
    weights = pairs.bootstrap_weights(30, np.random.default_rng(0))
    assert (weights.sum(axis=1) == N_SENTENCES).all()


def test_keys_and_texts_speak_of_it_only_where_it_is_not_the_default(analyses):
    keys = {}
    for over, (spec, whole, *_) in analyses.items():
        assert spec.to_dict().get("folds_over", "sentences") == over
        assert ("folds_over" in spec.to_dict()) == (over != "sentences")
        assert ("folds_over" in spec.pair_choices) == (over != "sentences")
        assert AnalysisSpec.from_dict(spec.to_dict()) == spec
        keys[over] = depends_on(whole, whole.select())
        assert ("folds_over" in whole.manifest["parameters"]) == (over != "sentences")
        results = whole.results()
        assert HELD_OUT[over] in methods_paragraph(whole, results)
        assert HELD_OUT[over] in basis(whole, whole.select(), results, whole.tables.coding)
    assert "folds_over" not in keys["sentences"]
    for over in ("items", "both"):
        assert keys[over] == keys["sentences"] | {"folds_over": over}


def test_the_command_line_takes_them(analyses, tmp_path, capsys, monkeypatch):
    made = analyses["sentences"]
    monkeypatch.setenv("MLEM_CACHE", str(made.store.root))
    inputs = ["analyze", *arguments_of(made.spec), "--out", str(tmp_path)]
    for over in ("items", "both"):
        assert main([*inputs, "--folds", "4", "--folds-over", over]) == 0
        folds = pd.read_csv(tmp_path / "folds.csv")["fold"].to_numpy()
        np.testing.assert_array_equal(folds, np.maximum(analyses[over].analysis.folds, -1))
    assert set(folds) == {-1, 0, 1, 2, 3}
    assert main([*inputs, "--folds-over", "both", "--folds", "9"]) == 2
    assert "fewer folds" in capsys.readouterr().err


@pytest.mark.parametrize("over", ["items", "both"])
def test_stimuli_without_recurring_words_have_no_such_folds(over, tmp_path):
    table = pd.DataFrame({"sentence": [f"s {k}" for k in range(30)], "f": np.arange(30) % 4})
    spec = in_files(tmp_path, table, {"m": {0: np.random.default_rng(0).random((30, 3))}})
    with refused("the only choice is sentences"):
        run(replace(spec, folds_over=over), Store(tmp_path / "cache"))
    first = lint(spec.load_stimuli(), AnalysisSpec(folds_over=over)).findings[0]
    assert first.severity == "problem" and "only choice is sentences" in first.sentence


@pytest.mark.parametrize("over", FOLDS_OVER)
def test_how_many_pairs_are_of_one_word_is_said_before_a_run(analyses, over):
    stimuli = analyses[over].analysis.stimuli
    i, j = explicit.pairs(len(stimuli))
    alike = stimuli.items[i] == stimuli.items[j]
    findings = lint(stimuli, AnalysisSpec(folds=4, folds_over=over)).findings
    said = [one.sentence for one in findings if "are of one word" in one.sentence]
    assert bool(said) == (over != "sentences")
    if said:
        folds = analyses[over].analysis.folds
        inside = np.any([explicit.held_out(folds, fold) for fold in range(4)], axis=0)
        assert f"{alike[inside].mean():.1%}" in said[0] and f"{alike.mean():.1%}" in said[0]
