"""An analysis of a budget of pairs: near that of all pairs, and everything works on it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, in_files, words

from mlem_core.analysis import files
from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.inference import layer_pairs
from mlem_core.inference.all_layers import layer_intervals
from mlem_core.inference.behind import behind, contributions
from mlem_core.inference.explanation import explain, with_intervals
from mlem_core.inference.layer_pairs import LayerPairs, sampled_rows
from mlem_core.inference.permutation import score_above_chance
from mlem_core.pairs import designs
from mlem_core.pairs.designs import n_pairs
from mlem_core.report import capsule, methods
from mlem_core.report.figures import Drawing
from mlem_core.report.shown import basis
from mlem_core.report.verify import verify
from mlem_core.robustness.audit import audit
from mlem_core.storage.store import Store

BUDGET = 60_000


def planted(table: pd.DataFrame) -> dict[int, np.ndarray]:
    """Layers with noun (0), noun and length (1), and nothing (2) in them."""
    rng = np.random.default_rng(0)
    n = len(table)
    base = rng.standard_normal((3, n, 6)) * 0.7
    noun = table["noun"].to_numpy(float)[:, None] * 2.0
    length = table["length"].to_numpy(float)[:, None] / 2
    base[0, :, :1] += noun
    base[1, :, :2] += np.hstack((noun, length))
    return dict(enumerate(base))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("budget")


@pytest.fixture(scope="module")
def store(folder) -> Store:
    return Store(folder / "store")


@pytest.fixture(scope="module")
def spec(folder) -> AnalysisSpec:
    table = words(180)
    return in_files(folder, table, {"m": planted(table)}, folds=4, pairs=BUDGET)


@pytest.fixture(scope="module")
def some(spec, store) -> Analysis:
    return run(spec, store, progress=False)


@pytest.fixture(scope="module")
def every(spec, store) -> Analysis:
    return run(replace(spec, pairs=0), store, progress=False)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Parts and samples as small as the analysis."""
    monkeypatch.setattr(designs, "RESAMPLED", BUDGET // 3)
    monkeypatch.setattr(layer_pairs, "PERMUTED", 200)


def test_numbers_say_how_many_pairs_they_are_from(some, every):
    n, whole = some.tables.n_pairs, n_pairs(len(some.stimuli))
    assert 0.9 * BUDGET < n < 1.1 * BUDGET < whole == every.tables.n_pairs
    words_of = f"{n:,} of {whole:,} pairs"
    results = some.results()
    assert words_of in repr(some) and words_of in repr(results)
    assert words_of in basis(some, some.select(), results, some.tables.coding)
    assert any(note.startswith(f"Computed on {words_of}, 8 indep") for note in some.notices)
    assert some.manifest["parameters"]["pairs"] == BUDGET
    text = methods.methods_paragraph(some, results)
    assert f"of their {whole:,} pairs {n:,} were used" in text
    assert f"every one of their {whole:,} pairs" in methods.methods_paragraph(
        every, every.results()
    )
    assert "pairs" not in repr(every) and f"stimuli, {whole:,} pairs" in repr(every.results())
    assert (
        "pair_errors.csv" in results.tables() and "pair_errors.csv" not in every.results().tables()
    )


def test_numbers_are_near_those_of_all_pairs(some, every):
    """Each within five of the standard errors that are stated of it."""
    errors = some.pair_errors
    assert set(errors["measure"]) == {"rho", "ceiling", "importance", "rsa"}
    found, truth = some.results(), every.results()
    for layer in range(3):
        own = errors[(errors["layer"] == layer)]
        rho = [r.scores[r.scores["layer"] == layer]["rho"].mean() for r in (found, truth)]
        assert abs(rho[0] - rho[1]) < 5 * own.loc[own["measure"] == "rho", "error"].item() + 1e-4
        for feature in some.tables.features:
            values = [
                r.importance.groupby(["layer", "feature"])["importance"].mean()[layer, feature]
                for r in (found, truth)
            ]
            of = own.loc[(own["measure"] == "importance") & (own["feature"] == feature), "error"]
            assert abs(values[0] - values[1]) < 5 * of.item() + 1e-3
    rsa = errors[errors["measure"] == "rsa"].set_index(["layer", "layer_b"])["error"]
    for (a, b), error in rsa.items():
        assert abs(some.rsa[a, b] - every.rsa[a, b]) < 5 * error
        # As the correlation of so many pairs has it.
        assert 0.3 < error / ((1 - every.rsa[a, b] ** 2) / np.sqrt(some.tables.n_pairs)) < 3
    means = found.importance.groupby(["layer", "feature"])["importance"].mean()
    assert means[0].idxmax() == "noun" and means[1, "length"] > 0.05 > abs(means[2]).max()


def test_it_survives_the_disk_and_is_another_analysis_than_that_of_all_pairs(some, store, spec):
    folder = store.root / "kept"
    folder.mkdir()
    files.save(some, folder)
    kept = files.load(folder)
    pd.testing.assert_frame_equal(kept.pair_errors, some.pair_errors)
    np.testing.assert_array_equal(kept.design.partner, some.design.partner)
    again = run(spec, store, progress=False)
    pd.testing.assert_frame_equal(again.pair_errors, some.pair_errors, check_dtype=False)


def test_intervals_resample_a_part_around_what_all_of_its_pairs_give(some, every, store):
    pairs = LayerPairs.of(some, [("m", 0), ("m", 1)], store)
    assert len(pairs.cells) == pairs.design.n_pairs < some.tables.n_pairs
    why = with_intervals(explain(some, ("m", 0), ("m", 1)), some, store, 100)
    truth = explain(every, ("m", 0), ("m", 1))
    assert why.value == pytest.approx(some.rsa[0, 1])
    for table, of_all in ((why.terms, truth.terms), (why.whole, truth.whole)):
        assert (table["lower"] <= table["value"]).all() and (table["value"] <= table["upper"]).all()
        inside = (table["lower"] <= of_all["value"]) & (of_all["value"] <= table["upper"])
        assert inside.all()
    assert "Intervals draw the stimuli again on all of the" in why.notes[-2]
    assert f"of the {len(some.stimuli)} stimuli" in why.notes[-1]
    noun = why.terms.iloc[0]
    assert noun["term"] == "noun" and noun["lower"] > 0 and noun["value"] > noun["chance"]
    fewer = with_intervals(explain(some, ("m", 0), ("m", 1), ["noun"]), some, store, 100)
    assert fewer.terms["lower"].iloc[0] > 0


def test_intervals_of_all_layers(some, every, store):
    found, truth = layer_intervals(some, store), layer_intervals(every, store)
    np.testing.assert_allclose(found.rsa, some.rsa)
    assert ((found.scores_lower <= found.scores) & (found.scores <= found.scores_upper)).all()
    planted_scores = truth.scores[0, 0], truth.scores[1, 0]
    for layer, value in enumerate(planted_scores):
        assert found.scores_lower[layer, 0] < value < found.scores_upper[layer, 0]
    # From fewer pairs: wider, not narrower, but not by much.
    width = found.scores_upper[:2, 0] - found.scores_lower[:2, 0]
    assert (width > 0.7 * (truth.scores_upper[:2, 0] - truth.scores_lower[:2, 0])).all()
    np.testing.assert_allclose(found.terms[:, 0, 1], explain_terms(some), atol=1e-9)


def explain_terms(analysis):
    return explain(analysis, ("m", 0), ("m", 1)).terms["value"].to_numpy()


def test_labels_are_permuted_in_whole_sentences_of_every_fold(some, store):
    rows = sampled_rows(some, 200)
    assert 150 < len(rows) <= 210
    groups = some.stimuli.groups
    assert set(np.flatnonzero(np.isin(groups, groups[rows]))) == set(rows)
    shares = np.bincount(some.folds[rows]) / np.bincount(some.folds)
    assert np.ptp(shares) < 0.1
    pairs = LayerPairs.of_sample(some, [("m", 0), ("m", 2)], store)
    assert pairs.design.is_complete and len(pairs.folds) == len(rows)
    table = score_above_chance(pairs, RidgeMLEM().cross_validate, n_permutations=99)
    assert table["p"][0] == 0.01 and table["p"][1] > 0.01


def test_pairs_behind_a_term_are_of_the_design(some, store):
    layers = [("m", 0), ("m", 1)]
    pairs = LayerPairs.of(some, layers, store)
    added = contributions(pairs, "noun")
    assert len(added) == pairs.design.n_pairs
    table = behind(some, store, layers, some.tables.features, "noun")
    assert (table["contribution"] > 0).all() and len(table) > 3
    assert (table["first"] != table["second"]).all()


def test_audit_of_a_budget(some, store):
    found = audit(some, store)
    assert len(found.layers) == 3 and found.layers["mean_cosine"].notna().all()
    assert found.layers["position0"].between(0, 1).all()


def test_subsets_of_features_are_summed_out(some, every):
    for feature in ("noun", "length"):
        found, truth = (a.results([feature]).scores["rho"].mean() for a in (some, every))
        assert found == pytest.approx(truth, abs=0.02)


def test_the_command_line(spec, folder, capsys, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(folder / "store"))
    out = folder / "out"
    asked = [*arguments_of(spec), "--folds", "4"]
    assert main(["analyze", *asked, "--pairs", f"{BUDGET:,}", "--out", str(out)]) == 0
    table = pd.read_csv(out / "pair_errors.csv")
    assert (table["error"] > 0).sum() > 15 and len(table) == 18
    about = json.loads((out / "manifest.json").read_text())
    assert about["parameters"]["pairs"] == BUDGET
    assert main(["analyze", *asked, "--pairs", "100", "--out", str(out)]) == 2
    assert "give at least" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["analyze", *asked, "--pairs", "many", "--out", str(out)])
    assert "expected a number such as 20000000, or all" in capsys.readouterr().err


def test_a_capsule_of_a_budget_runs_again(some, tmp_path):
    path = capsule.write(some, tmp_path / "budget.zip", drawing=Drawing(images=False))
    found = verify(path)
    assert found.same, "\n".join(found.lines())
    assert "pair_errors.csv" in {table.name for table in found.tables}


def test_a_budget_below_what_stimuli_need_is_one_sentence(spec, store):
    with pytest.raises(InputError, match=r"found a budget of 1,000 pairs for \d+ stimuli"):
        run(replace(spec, pairs=1_000), store, progress=False)
