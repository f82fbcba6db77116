"""Views of stored representations give what a run on the changed arrays gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from explicit import rho
from inputs import in_files, words
from scipy.spatial.distance import pdist
from scipy.stats import zscore
from tiny import sentence_stimuli, word_stimuli

from mlem_core.analysis import files
from mlem_core.analysis.maps import stimulus_map
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.analysis.transforms import changed_units, kept_stimuli, outlier_units, variances
from mlem_core.base.errors import InputError
from mlem_core.data.stimulus_csv import from_frame, write_csv
from mlem_core.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def spec(tmp_path: Path) -> AnalysisSpec:
    """Words and two layers of a made-up brain, the second with one huge unit."""
    table = words()
    rng = np.random.default_rng(1)
    layers = rng.standard_normal((2, len(table), 12))
    layers[:, :, 0] += 2 * table["noun"].to_numpy()
    layers[1, :, 3] *= 60
    return in_files(tmp_path, table, {"brain": dict(enumerate(layers))})


def arrays(spec: AnalysisSpec) -> list[np.ndarray]:
    with np.load(spec.representations[0][1]) as kept:
        return [kept["layer_00"], kept["layer_01"]]


def test_planted_outlier_units_are_found_and_no_others() -> None:
    rows = np.random.default_rng(0).standard_normal((400, 50))
    rows *= np.exp(np.random.default_rng(1).normal(0, 0.4, 50))
    assert list(outlier_units(variances(rows))) == []
    rows[:, 7] *= 100
    rows[:, 30] *= 300
    assert list(outlier_units(variances(rows))) == [30, 7]
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
def test_a_variant_is_a_run_on_the_changed_arrays(
    spec: AnalysisSpec, store: Store, positions: str, units: str, distance: str
) -> None:
    analysis = run(replace(spec, positions=positions, units=units, distance=distance), store)
    table = words()
    kept = np.flatnonzero((positions == "all") | (table["word_index"] > 0))
    condensed = []
    for number, rows in enumerate(arrays(spec)):
        rows = rows[kept]
        if units == "standardised":
            rows = zscore(rows, axis=0)
        if units == "without-outliers" and number == 1:
            rows = np.delete(rows, 3, axis=1)
        condensed.append(pdist(rows, distance))
    assert analysis.rsa[0, 1] == pytest.approx(rho(*condensed), abs=1e-9)
    assert list(analysis.rows) == list(kept) == list(analysis.results().folds["stimulus"])


def test_leaving_out_the_first_words_equals_a_csv_without_them(
    spec: AnalysisSpec, store: Store, tmp_path: Path
) -> None:
    table = words()
    kept = table["word_index"].to_numpy() > 0
    write_csv(from_frame(table[kept], "fewer"), tmp_path / "fewer.csv")
    fewer = {f"layer_{n:02d}": rows[kept] for n, rows in enumerate(arrays(spec))}
    np.savez(tmp_path / "fewer.npz", **fewer)
    other = replace(
        spec,
        stimuli=str(tmp_path / "fewer.csv"),
        representations=(("brain", str(tmp_path / "fewer.npz")),),
    )
    expected = run(other, store).results()
    analysis = run(replace(spec, positions="without-first"), store)
    found = analysis.results()
    for name in ("scores", "importance", "weights", "similarity_rsa", "feature_correlations"):
        pd.testing.assert_frame_equal(getattr(found, name), getattr(expected, name))
    assert "30 of" in analysis.notices[0]
    whole = run(spec, store)
    assert (analysis.folds == whole.folds[analysis.rows]).all()
    assert analysis.manifest["stimuli"]["digest"] == whole.manifest["stimuli"]["digest"]
    files.save(analysis, tmp_path)
    loaded = files.load(tmp_path)
    assert loaded.stimuli.digest == analysis.stimuli.digest
    pd.testing.assert_frame_equal(loaded.results().folds, found.folds)
    assert len(stimulus_map(loaded, "brain", 1, store)) == kept.sum()


def test_every_variant_has_tables_of_its_own(spec: AnalysisSpec, store: Store) -> None:
    choices = [{}, {"units": "standardised"}, {"positions": "without-first"}]
    identities = set()
    for choice in choices:
        analysis = run(replace(spec, **choice), store)
        identities.add(analysis.manifest["models"]["brain"]["identity"])
        for name, value in choice.items():
            assert analysis.manifest["parameters"][name] == value
    assert len(identities) == len(list((store.root / "pair-tables").iterdir())) == len(choices)


def test_a_choice_that_cannot_be_is_one_sentence(spec: AnalysisSpec, store: Store) -> None:
    with pytest.raises(InputError, match="did you mean without-first"):
        run(replace(spec, positions="without-frist"), store)
    with pytest.raises(InputError, match="did you mean standardised"):
        run(replace(spec, units="standardized"), store)
    with pytest.raises(InputError, match="whole sentences"):
        kept_stimuli(sentence_stimuli(), "without-first")
    with pytest.raises(InputError, match="0 stimuli"):
        kept_stimuli(word_stimuli(["one", "two", "three"]), "without-first")
