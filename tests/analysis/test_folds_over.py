"""Folds over sentences or over words: which stimuli a fold's model has not seen."""

from __future__ import annotations

from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, in_files, tables_of
from scipy.spatial.distance import pdist
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mlem_core.analysis.baselines import decoding, encoded_features, of_analysis, random_forest
from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.data.folds import FOLDS_OVER, in_training, stimulus_folds
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference.all_layers import depends_on, layer_intervals
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.permutation import permuted_labels, score_above_chance
from mlem_core.report import capsule
from mlem_core.report.figures import Drawing, basis
from mlem_core.report.methods import methods_paragraph
from mlem_core.report.verify import verify
from mlem_core.storage.store import Store

N_SENTENCES, N_FORMS = 80, 20
HELD_OUT = {
    "sentences": "unseen sentences made of these words",
    "items": "unseen words, in sentences that may have been seen",
    "both": "unseen sentences made of unseen words",
}


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


@pytest.fixture(scope="module", params=FOLDS_OVER)
def analysis(request, spec):
    own, store = spec
    return run(replace(own, folds_over=request.param), store), store


@pytest.mark.parametrize("analysis", ["sentences", "items"], indirect=True)
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
    for over in FOLDS_OVER:
        whole = run(replace(own, folds_over=over), store)
        table = of_analysis(whole, "decoding", store).table
        accuracy[over] = table[table["feature"] == "half"]["accuracy"].mean()
        with np.load(dict(own.representations)["m"]) as arrays:
            rows = {("m", 0): arrays["layer_00"]}
        again = decoding(whole.stimuli, rows, whole.folds).table
        pd.testing.assert_series_equal(table["accuracy"], again["accuracy"])
    assert accuracy["sentences"] > 0.95
    assert accuracy["items"] < 0.75 and accuracy["both"] < 0.75


def test_decoding_and_forests_over_both_see_no_sentence_and_no_word_that_they_are_tested_on(spec):
    own, store = spec
    whole = run(replace(own, folds_over="both"), store)
    with np.load(dict(own.representations)["m"]) as arrays:
        rows = arrays["layer_00"].astype(float)
    found = decoding(whole.stimuli, {("m", 0): rows}, whole.folds).table
    forest = random_forest(whole.stimuli, {("m", 0): rows}, whole.folds, n_estimators=3, repeats=1)
    inputs = encoded_features(whole.stimuli)[0]
    words, sentences = np.array(whole.stimuli.words), np.array(whole.stimuli.sentences)
    half = whole.stimuli.values("half")
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
        rho = explicit.rho(
            pdist(trees.predict(inputs[test])).round(9), pdist(rows[test]).astype(float)
        )
        assert forest[forest["fold"] == fold]["rho"].iloc[0] == pytest.approx(rho, abs=1e-6)


def test_what_was_learnt_of_some_words_is_of_no_use_with_others():
    """Features drawn at random for each word go with its form by chance, in these words only.

    The pairs of one word are left out: any feature of the word tells them from the others.
    """
    scores = {over: [] for over in FOLDS_OVER}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        words = np.concatenate([rng.choice(24, 3, replace=False) for _ in range(90)])
        values = rng.integers(0, 2, (24, 40))[words]
        layer = rng.standard_normal((24, 2))[words] + 0.1 * rng.standard_normal((len(words), 2))
        table = pd.DataFrame(values, columns=[f"f{k}" for k in range(40)]).astype(bool)
        sentences = [" ".join(f"w{w}" for w in own) for own in words.reshape(-1, 3)]
        table.insert(0, "sentence", np.repeat([f"{s} {k}" for k, s in enumerate(sentences)], 3))
        table.insert(1, "word_index", np.tile(np.arange(3), 90))
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


def test_intervals_and_tests_keep_to_the_folds(analysis):
    whole, store = analysis
    pairs = LayerPairs.of(whole, whole.layers, store)
    over = whole.spec.folds_over
    assert (pairs.fold_units is pairs.groups) == (over == "sentences")
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
    # Each replicate has as many sentences, though over items or both not in each fold.
    weights = pairs.bootstrap_weights(30, np.random.default_rng(0))
    assert (weights.sum(axis=1) == N_SENTENCES).all()


def test_keys_speak_of_it_only_where_it_is_not_the_default(spec):
    own, store = spec
    assert "folds_over" not in own.to_dict() and "folds_over" not in own.pair_choices
    assert AnalysisSpec.from_dict(own.to_dict()) == own
    keys = {}
    for over in FOLDS_OVER:
        each = replace(own, folds_over=over)
        assert each.to_dict().get("folds_over", "sentences") == over
        assert AnalysisSpec.from_dict(each.to_dict()) == each
        whole = run(each, store)
        keys[over] = depends_on(whole, whole.select())
        assert ("folds_over" in whole.manifest["parameters"]) == (over != "sentences")
        said = methods_paragraph(whole, whole.results())
        assert ("over words or other items" in said) == (over == "items")
        assert ("over both sentences and words or other items" in said) == (over == "both")
        coded = whole.tables.coding
        assert HELD_OUT[over] in said
        assert HELD_OUT[over] in basis(whole, whole.select(), whole.results(), coded)
    assert "folds_over" not in keys["sentences"]
    for over in ("items", "both"):
        assert keys[over] == keys["sentences"] | {"folds_over": over}


def test_stimuli_without_recurring_words_have_no_such_folds(spec, tmp_path, capsys, monkeypatch):
    own, _ = spec
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    inputs = [*arguments_of(own), "--folds", "4"]
    assert main(["analyze", *inputs, "--folds-over", "items", "--out", str(tmp_path / "o")]) == 0
    folds = pd.read_csv(tmp_path / "o" / "folds.csv")["fold"].to_numpy()
    expected = run(replace(own, folds_over="items"), Store(tmp_path / "cache")).folds
    np.testing.assert_array_equal(folds, expected)
    assert main(["analyze", *inputs, "--folds-over", "words", "--out", str(tmp_path / "o")]) == 2
    assert "sentences, items" in capsys.readouterr().err
    assert main(["analyze", *inputs, "--folds-over", "both", "--out", str(tmp_path / "o")]) == 0
    folds = pd.read_csv(tmp_path / "o" / "folds.csv")["fold"].to_numpy()
    expected = run(replace(own, folds_over="both"), Store(tmp_path / "cache")).folds
    np.testing.assert_array_equal(folds, np.maximum(expected, -1))
    assert set(folds) == {-1, 0, 1, 2, 3}
    assert main(["analyze", *inputs, "--folds-over", "both", "--folds", "9", "--out", "o"]) == 2
    assert "choose fewer folds, or folds over sentences or items" in capsys.readouterr().err
    table = pd.DataFrame({"sentence": [f"s {k}" for k in range(30)], "f": np.arange(30) % 4})
    alone = in_files(tmp_path, table, {"m": {0: np.random.default_rng(0).standard_normal((30, 3))}})
    for over in ("items", "both"):
        with pytest.raises(InputError, match="the only choice is sentences"):
            run(replace(alone, folds_over=over), Store(tmp_path / "cache"))
        found = lint(alone.load_stimuli(), AnalysisSpec(folds_over=over)).findings
        assert found[0].severity == "problem" and "only choice is sentences" in found[0].sentence


def test_how_many_pairs_are_of_one_word_is_said_before_a_run(spec):
    stimuli = spec[0].load_stimuli()
    i, j = explicit.pairs(len(stimuli))
    alike = stimuli.items[i] == stimuli.items[j]
    for over in FOLDS_OVER:
        said = [
            one.sentence for one in lint(stimuli, AnalysisSpec(folds=4, folds_over=over)).findings
        ]
        said = [sentence for sentence in said if "are of one word" in sentence]
        assert bool(said) == (over != "sentences")
        if said:
            folds = run(replace(spec[0], folds_over=over), spec[1]).folds
            inside = np.any([explicit.held_out(folds, fold) for fold in range(4)], axis=0)
            assert f"{alike[inside].mean():.1%} are of one word" in said[0]
            assert f"of all pairs {alike.mean():.1%}" in said[0]
            assert ("others help to train" in said[0]) == (over == "both")


def test_a_capsule_of_folds_over_both_can_be_verified(spec, tmp_path):
    own, store = spec
    whole = run(replace(own, folds_over="both"), store)
    path = capsule.write(whole, tmp_path / "capsule.zip", drawing=Drawing(images=False))
    assert verify(path).same
