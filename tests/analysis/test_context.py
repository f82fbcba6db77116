"""Cached fits: those of an analysis with the same choices, computed once."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import finished, in_files, probing, refused

from mlem_core import run
from mlem_core.analysis import context
from mlem_core.analysis.context import FITS, SelectionContext

FEATURES = ("part_of_speech", "tense", "word_position")


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    """Three layers: part of speech with more and more noise."""
    folder, table = tmp_path_factory.mktemp("fits"), probing(40)
    kinds = pd.get_dummies(table["part_of_speech"]).to_numpy(float)
    noise = np.random.default_rng(0).standard_normal((3, *kinds.shape))
    layers = {n: kinds + 0.3 * (n + 1) * noise[n] for n in range(3)}
    spec = in_files(folder, table, {"model": layers}, folds=3, features=FEATURES)
    return finished(folder, spec, layers)


def test_kept_fits_are_the_fits_and_are_computed_once(analysed, monkeypatch):
    analysis, store = analysed.analysis, analysed.store
    layers, features = [("model", 0), ("model", 2)], list(FEATURES[1:])
    asked = {"features": features, "estimator": "spearman", "interactions": False}

    def kept(of=analysis, **changes):
        selection = of.select(**{"layers": layers, **asked, **changes})
        return FITS.find(SelectionContext(of, selection, store))

    assert kept() is None
    selected = SelectionContext(analysis, analysis.select(layers=layers, **asked), store)
    FITS.get(selected)
    made = selected.results
    # It is fitted to single pairs, which an analysis by another estimator does not hold.
    with refused("spearman", "FITS.get"):
        analysis.results(features, layers, "spearman", False)
    spec = replace(analysed.spec, layers=(0, 2), features=tuple(features), estimator="spearman")
    expected = run(spec, store, progress=False).results()
    for name in ("scores", "importance", "weights", "layer_map"):
        pd.testing.assert_frame_equal(getattr(made, name), getattr(expected, name))
    monkeypatch.setattr(context, "fitted", None)  # would be fitted again
    for other in ({"estimator": "frrsa"}, {"interactions": True}, {"features": features[:1]}):
        assert kept(**other) is None


def test_results_without_patience_lack_what_takes_long_until_it_is_kept(analysed, monkeypatch):
    analysis = analysed.analysis
    whole = analysis.select(features=FEATURES[:2], estimator="ridge")
    some = SelectionContext(analysis, replace(whole, layers=whole.layers[1:]), analysed.store)
    expected = analysis.compute_results(some.selection)

    def is_expected(results):
        for name in ("scores", "importance", "weights", "layer_map", "similarity_profiles"):
            found, computed = getattr(results, name), getattr(expected, name)
            pd.testing.assert_frame_equal(found, computed, rtol=0, atol=1e-12)
        assert results.map_stress == pytest.approx(expected.map_stress, abs=1e-12, nan_ok=True)

    hasty = replace(some, patient=False)
    assert not hasty.awaits_fits  # so few are fitted at once, in all layers
    is_expected(hasty.results)
    monkeypatch.setattr(context, "MOST_RANKED", 0)
    hasty, patient = (replace(some, patient=patient, memory={}) for patient in (False, True))
    assert hasty.awaits_fits and not patient.awaits_fits
    assert not replace(hasty, selection=whole).results.scores["rho"].notna().any()
    known = hasty.results
    assert known.importance["importance"].isna().all() and known.weights["weight"].isna().all()
    assert known.similarity_profiles.isna().all(axis=None) and np.isnan(known.agreement)
    pd.testing.assert_frame_equal(known.similarity_rsa, expected.similarity_rsa)
    assert known.map_stress["rsa"] >= 0 and np.isnan(known.map_stress["profiles"])
    FITS.get(hasty.all_layers)
    assert not hasty.awaits_fits
    monkeypatch.setattr("mlem_core.analysis.analysis.fitted", None)  # would be fitted again
    is_expected(hasty.results)
