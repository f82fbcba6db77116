"""Views of stored representations, and values told apart: as a run on the changed arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from explicit import rho
from inputs import Finished, finished, in_files, noise, probing, refused, words
from scipy.spatial.distance import pdist
from scipy.stats import zscore
from tiny import sentence_stimuli, word_stimuli

from mlem_core.analysis import files
from mlem_core.analysis.maps import stimulus_map
from mlem_core.analysis.run import run
from mlem_core.analysis.transforms import changed_units, kept_stimuli, outlier_units, variances
from mlem_core.estimators.ridge import BETAS
from mlem_core.report.methods import methods_paragraph
from mlem_core.storage.store import Store


@pytest.fixture(scope="module")
def brain(tmp_path_factory) -> Finished:
    """Words and two layers of a made-up brain, the second with one huge unit."""
    folder, table = tmp_path_factory.mktemp("brain"), words()
    layers = np.random.default_rng(1).standard_normal((2, len(table), 12))
    layers[:, :, 0] += 2 * table["noun"].to_numpy()
    layers[1, :, 3] *= 60
    made = dict(enumerate(layers))
    return finished(folder, in_files(folder, table, {"brain": made}), made)


def test_planted_outlier_units_are_found_and_no_others() -> None:
    rows = np.random.default_rng(0).standard_normal((400, 50))
    rows *= np.exp(np.random.default_rng(1).normal(0, 0.4, 50))
    assert list(outlier_units(variances(rows))) == []
    rows[:, 7] *= 100
    rows[:, 30] *= 300
    rows[:, 5] = 3.0
    assert list(outlier_units(variances(rows))) == [30, 7]
    assert list(outlier_units(np.zeros(4))) == []
    assert list(outlier_units(np.array([1.0, 1.0, 1.0, 1.5, 2.0]))) == [4]


def test_changed_units_are_those_of_the_definition() -> None:
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
def test_a_variant_is_a_run_on_the_changed_arrays(brain, positions, units, distance) -> None:
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


def test_leaving_out_the_first_words_equals_a_csv_without_them(brain, tmp_path) -> None:
    kept = words()["word_index"].to_numpy() > 0
    fewer = {n: rows[kept] for n, rows in brain.layers.items()}
    spec = in_files(tmp_path, words()[kept], {"brain": fewer})
    expected = finished(tmp_path, spec, fewer).analysis.results()
    analysis = run(replace(brain.spec, positions="without-first"), brain.store, progress=False)
    found = analysis.results()
    for name in ("scores", "importance", "weights", "similarity_rsa", "feature_correlations"):
        pd.testing.assert_frame_equal(getattr(found, name), getattr(expected, name))
    assert "30 of" in analysis.notices[0]
    whole = brain.analysis
    assert (analysis.folds == whole.folds[analysis.rows]).all()
    own, others = (one.manifest for one in (analysis, whole))
    assert own["stimuli"]["digest"] == others["stimuli"]["digest"]
    assert own["models"]["brain"]["identity"] != others["models"]["brain"]["identity"]
    files.save(analysis, tmp_path)
    loaded = files.load(tmp_path)
    assert loaded.stimuli.digest == analysis.stimuli.digest
    pd.testing.assert_frame_equal(loaded.results().folds, found.folds)
    assert len(stimulus_map(loaded, "brain", 1, brain.store)) == kept.sum()


@pytest.mark.parametrize(
    ("stimuli", "fact"),
    [(sentence_stimuli(), "whole sentences"), (word_stimuli(["one", "three"]), "0 stimuli")],
)
def test_stimuli_that_have_nothing_but_first_words(stimuli, fact) -> None:
    with refused(fact):
        kept_stimuli(stimuli, "without-first")


def test_values_that_are_told_apart_are_said_and_kept(tmp_path) -> None:
    table = probing(30)
    chosen = {"values": ("all",), "features": ("part_of_speech", "tense")}
    made = finished(tmp_path, in_files(tmp_path, table, {"brain": noise(len(table))}, **chosen), {})
    assert made.analysis.manifest["parameters"]["values"] == ["part_of_speech", "tense"]
    assert made.analysis.manifest["alphas"] == list(BETAS)
    results = made.analysis.results()
    assert results.resolved == ("part_of_speech", "tense") and "which values" in results.coding
    assert "value_distances.csv" in results.tables()
    assert made.analysis.results(["tense"]).resolved == ("tense",)
    text = methods_paragraph(made.analysis, results)
    assert "which values of part of speech and tense differ" in text
    assert "among 5 values from 1 to 10000" in text and "ridge penalty α" not in text
    # Without values nothing speaks of them.
    plain = run(replace(made.spec, values=()), Store(tmp_path / "cache"), progress=False)
    results = plain.results()
    assert results.resolved == () and results.coding == "whether they differ"
    assert "value_distances.csv" not in results.tables()
    assert "w_ab" not in methods_paragraph(plain, results)
