"""Choices, of a user or the analysis itself: as on changed arrays, planted, and run again."""

import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.explicit import rho
from helpers.inputs import finished, in_files, probing, refused, words
from scipy.spatial.distance import pdist
from scipy.stats import zscore
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mlem_core import AnalysisSpec, Store, run
from mlem_core.analysis import files, planning
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.source import as_written
from mlem_core.analysis.transforms import changed_units
from mlem_core.extensions.decoding.computation import decoding
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.inference.resample import ceiling_caveats
from mlem_core.report.archive import write_archive
from mlem_core.report.methods import methods_paragraph
from mlem_core.report.rerun import rerun
from mlem_core.stimuli.folds import FOLDS_OVER, is_training


@pytest.fixture(scope="module")
def brain(tmp_path_factory):
    """Words and two layers of a made-up brain, the second with one huge unit."""
    folder, table = tmp_path_factory.mktemp("brain"), words()
    layers = np.random.default_rng(1).standard_normal((2, len(table), 12))
    layers[:, :, 0] += 2 * table["noun"].to_numpy()
    layers[1, :, 3] *= 60
    made = dict(enumerate(layers))
    return finished(folder, in_files(folder, table, {"brain": made}), made)


def test_changed_units_are_those_of_the_definition():
    rows = np.random.default_rng(0).normal(3, 2, (60, 8)).astype(np.float32)
    rows[:, 2] *= 500
    rows[:, 5] = 0.1
    rows[9] = rows[4] * (1 + 1e-7)
    expected = zscore(np.delete(rows, 5, axis=1).astype(np.float64), axis=0)
    found = changed_units(rows, "standardised")
    np.testing.assert_allclose(np.delete(found, 5, axis=1), expected, atol=1e-5)
    assert (found[:, 5] == 0).all() and (found[9] == found[4]).all()
    without = changed_units(rows, "without-outliers")
    np.testing.assert_allclose(without, np.delete(rows, 2, axis=1), rtol=1e-6)
    assert (without[9] == without[4]).all()
    assert changed_units(rows, "raw") is rows


@pytest.mark.parametrize("units", ["raw", "standardised", "without-outliers"])
@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("positions", ["all", "without-first"])
def test_a_variant_is_a_run_on_the_changed_arrays(brain, positions, units, distance):
    chosen = replace(brain.spec, positions=positions, units=units, distance=distance)
    analysis = run(chosen, brain.store, progress=False)
    kept = np.flatnonzero((positions == "all") | (words()["word_index"] > 0))
    condensed = []
    for number, rows in brain.layers.items():
        rows = rows[kept]
        if units == "standardised":
            rows = zscore(rows, axis=0)
        if units == "without-outliers" and number == 1:
            rows = np.delete(rows, 3, axis=1)
        condensed.append(pdist(rows, distance))
    assert analysis.rsa[0, 1] == pytest.approx(rho(*condensed), abs=1e-9)
    assert list(analysis.rows) == list(kept) == list(analysis.results().folds["stimulus"])
    assert analysis.manifest["parameters"].get("units", "raw") == units


VALUES = ("values_matrices",)


def of_arrays(folder, table, **choices):
    rng = np.random.default_rng(0)
    layers = {k: rng.standard_normal((len(table), 5)) for k in range(2)}
    return in_files(folder, table, {"m": layers}, **choices)


def of_values(folder):
    chosen = {"values": ("all",), "features": ("part_of_speech", "tense")}
    return of_arrays(folder, probing(30), **chosen)


def repetitions(folder):
    spec = of_arrays(folder, words(), folds=3, distance="crossnobis")
    rows = np.random.default_rng(0).standard_normal((2, 4, len(words()), 6))
    np.savez(folder / "m.npz", V1=rows[0], V2=rows[1])
    return spec


def as_excel_writes(folder):
    """Semicolons, decimal commas and another encoding, with roles, added features and marks."""
    rows = [f"né{i} b{i} x;b{i};{i % 5},5;{'Nom' if i % 3 else 'NA'};y" for i in range(24)]
    text = "\n".join(["Text;target;Häufigkeit;Kasus;note", *rows])
    (folder / "excel.csv").write_bytes(text.encode("cp1252"))
    np.savez(folder / "r.npz", layer_00=np.random.default_rng(0).normal(size=(24, 4)))
    sources = (("r", str(folder / "r.npz")),)
    read = {"roles": (("note", "ignore"),), "add": ("word_length",), "na": ("NA",)}
    spec = AnalysisSpec(str(folder / "excel.csv"), representations=sources, folds=3, **read)
    assert as_written(spec, "x") == AnalysisSpec(stimuli="x", representations=sources, folds=3)
    return spec


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "holds"),
    [
        (lambda folder: of_arrays(folder, words(40), pairs=8_000), ["pair_errors.csv"]),
        (lambda folder: of_arrays(folder, words(60), folds=3, folds_over="both"), []),
        (of_values, ["value_distances.csv", *(f"figures/{name}.html" for name in VALUES)]),
        (repetitions, []),
        (lambda folder: of_arrays(folder, probing(30), estimator="auto"), ["choices.csv"]),
        (as_excel_writes, []),
    ],
)
def test_a_rerun_gives_the_same_tables(asked, holds, tmp_path):
    made = finished(tmp_path, asked(tmp_path), {})
    (tmp_path / "kept").mkdir()
    files.save_analysis(made.analysis, tmp_path / "kept")
    assert files.load_analysis(tmp_path / "kept").stimuli.digest == made.analysis.stimuli.digest
    path = write_archive(made.analysis, tmp_path / "c.zip", made.store, images=False)
    with zipfile.ZipFile(path) as archive:
        assert set(holds) <= set(archive.namelist())
    found = rerun(path, representations=dict(made.analysis.spec.representations))
    assert found.same, found.lines()
    assert {name for name in holds if name.endswith(".csv")} <= {*found.differences}


N_SENTENCES, N_FORMS = 80, 20


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


@pytest.mark.parametrize("over", FOLDS_OVER)
def test_scores_are_those_of_explicit_held_out_pairs(analyses, over):
    whole = analyses[over].analysis
    x = explicit.feature_distances(whole.stimuli.table[["half", "size"]].astype({"size": float}))
    squared = explicit.squared(analyses[over].layers["m", 0])
    results = whole.results()
    weights = results.weights.pivot(index="fold", columns="feature", values="weight")
    i, j = np.triu_indices(len(whole.folds), 1)
    of_two_words = np.array(whole.stimuli.words)[i] != np.array(whole.stimuli.words)[j]
    for fold, row in results.scores.set_index("fold").iterrows():
        inside = explicit.held_out(whole.folds, fold)
        # Two tokens of a word are near each other whatever was learnt.
        inside = inside if over == "sentences" else inside & of_two_words
        assert whole.pairs.tests.folds[fold].counts.sum() == inside.sum()
        predicted = x[inside] ** 2 @ weights.loc[fold, ["half", "size"]].to_numpy()
        assert row["rho"] == pytest.approx(explicit.rho(predicted, squared[inside]), abs=1e-9)


def test_decoding_over_both_sees_nothing_of_what_they_are_tested_on(analyses):
    made, whole = analyses["both"], analyses["both"].analysis
    rows, stimuli = made.layers["m", 0], whole.stimuli
    found = decoding(stimuli, made.layers, whole.folds).table
    half = stimuli.values("half")
    words, sentences = np.array(stimuli.words), np.array(stimuli.sentences)
    for fold in range(4):
        test = whole.folds == fold
        of_fold = [set(own[test]) for own in (words, sentences)]
        shares = np.isin(words, list(of_fold[0])) | np.isin(sentences, list(of_fold[1]))
        # Not only those that share something with a tested stimulus: all that could have.
        train = is_training(whole.folds, fold)
        assert not (train & shares).any() and train.sum() > 40
        fitted = make_pipeline(StandardScaler(), RidgeClassifier()).fit(rows[train], half[train])
        row = found[(found["fold"] == fold) & (found["feature"] == "half")].iloc[0]
        assert row["accuracy"] == pytest.approx(fitted.score(rows[test], half[test]))


@pytest.mark.parametrize("over", ["items", "both"])
def test_stimuli_without_recurring_words_have_no_such_folds(over, tmp_path):
    table = pd.DataFrame({"sentence": [f"s {k}" for k in range(30)], "f": np.arange(30) % 4})
    spec = in_files(tmp_path, table, {"m": {0: np.random.default_rng(0).random((30, 3))}})
    with refused("the only choice is sentences"):
        run(replace(spec, folds_over=over), Store(tmp_path / "cache"))
    first = lint(spec.load_stimuli(), AnalysisSpec(folds_over=over)).findings[0]
    assert first.severity == "problem" and "only choice is sentences" in first.sentence


N = 150
LINE, APART = np.array([[0.0], [1.0], [5.0], [6.0]]), 3.0 * np.eye(4)
AUTO = {"estimator": "auto", "values": "auto"}


def analysis_of(folder, places, outliers=0.0, **asked):
    """Stimuli of four kinds at these places, of a skewed size, where ranks mislead, and noise."""
    rng = np.random.default_rng(0)
    kind, idle = (rng.integers(0, n, N) for n in (4, 7))
    size = np.round(rng.lognormal(0, 1, N))
    texts = [f"word {i} of {i}" for i in range(N)]
    columns = {"kind": np.array(list("abcd"))[kind], "size": size, "idle": idle}
    rows = np.column_stack((places[kind], size, outliers * rng.standard_cauchy((N, 2))))
    layers = {0: rows + 0.5 * rng.standard_normal(rows.shape)}
    table = pd.DataFrame({"sentence": texts, **columns})
    return run(in_files(folder, table, {"m": layers}, **asked), Store(folder / "store"))


@pytest.mark.parametrize(
    ("places", "outliers", "estimator", "values"),
    [(LINE, 0, "ridge", ("kind",)), (APART, 0, "ridge", ()), (APART, 2, "ridge-rank", ())],
    ids=["line", "apart", "outliers"],
)
def test_the_planted_choice_is_made_and_said(tmp_path, places, outliers, estimator, values):
    analysis = analysis_of(tmp_path, places, outliers, **AUTO)
    assert (analysis.spec.estimator, analysis.spec.values) == (estimator, values)
    assert analysis.pairs.resolved == values == tuple(analysis.manifest["parameters"]["values"])
    results, choices = analysis.results(), planning.fold_choices(analysis.manifest)
    assert (len({*choices}) > 1) == (outliers > 0)
    # A fold has the numbers of an analysis with its choice, which does not say that it chose.
    for choice in {*choices}:
        spec = replace(analysis.spec, estimator=choice.estimator, values=choice.values)
        named = run(spec, Store(tmp_path / "other"))
        in_folds = [fold for fold, of_fold in enumerate(choices) if of_fold == choice]
        for kind in ("scores", "importance"):
            rows = []
            for of in (named.results(), results):
                table = getattr(of, kind).drop(columns="alpha", errors="ignore")
                rows.append(table[table["fold"].isin(in_folds)])
            pd.testing.assert_frame_equal(*rows)
        assert planning.BY not in methods_paragraph(named, named.results())
    n_folds = choices.count(planning.Choice(estimator, values))
    assert f"{planning.BY} in {n_folds} of 5 folds" in methods_paragraph(analysis, results)
    weights = run(replace(analysis.spec), Store(tmp_path / "other")).results().weights
    pd.testing.assert_frame_equal(results.weights, weights)
    assert analysis.select(estimator="auto") == analysis.select()


def test_what_folds_choose_holds_for_a_selection_in_intervals_and_when_loaded(tmp_path):
    analysis = analysis_of(tmp_path, APART, 2, **AUTO)
    choices = planning.fold_choices(analysis.manifest)
    table = planning.choices_table(analysis.manifest)
    assert table["values"].eq("kind").any() and table["values"].eq("").any()
    few, expected = analysis.results(features=["kind", "size"]).scores["rho"], []
    for fold, choice in enumerate(choices):
        spec = replace(analysis.spec, estimator=choice.estimator, values=choice.values)
        named = run(spec, Store(tmp_path / "store")).results(features=["kind", "size"])
        expected.append(named.scores["rho"][fold])
    np.testing.assert_allclose(few, expected, atol=1e-12)
    store, rho = Store(tmp_path / "store"), analysis.results().scores["rho"]
    bounds = LAYER_INTERVALS.get(SelectionContext.from_analysis(analysis, store))
    assert bounds.scores[0, 0] == pytest.approx(rho.mean())
    assert bounds.scores_lower[0, 0] < rho.mean() < bounds.scores_upper[0, 0]
    (tmp_path / "kept").mkdir()
    files.save_analysis(analysis, tmp_path / "kept")
    loaded = files.load_analysis(tmp_path / "kept")
    pd.testing.assert_frame_equal(loaded.results().scores, analysis.results().scores)
    # One that was given the most frequent choice is another analysis to the store.
    assert analysis.key() != run(replace(analysis.spec), store).key()


def test_many_stimuli_choose_by_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "MOST_STIMULI", 120)
    analysis = analysis_of(tmp_path, LINE, **AUTO)
    assert analysis.spec.values == ("kind",) and analysis.pairs.moments.n_stimuli == N


def test_the_papers_choices_are_one_word():
    assert AnalysisSpec(as_in="paper1") == AnalysisSpec(
        as_in="paper1", estimator="ridge", values=(), distance="euclidean"
    )
    assert AnalysisSpec(as_in="paper1", estimator="spearman").estimator == "spearman"


def test_what_is_far_below_its_ceiling_is_said_with_what_to_try(tmp_path):
    results = analysis_of(tmp_path, LINE, estimator="ridge").results()
    for share, named in ((0.7, False), (0.5, True)):
        scores = results.scores.assign(ceiling=0.5, rho=0.5 * share)
        said = ceiling_caveats(replace(results, scores=scores), "ridge")
        assert ("m (.25 of .50)" in said and "ridge-rank" in said) == named == bool(said)
