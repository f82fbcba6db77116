"""Arrays compared by their features; stimuli, stores and arrays that no file names."""

import numpy as np
import pandas as pd
import pytest
from inputs import refused, words
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

import mlem_core
from mlem_core import AnalysisSpec, compare, from_frame, run

RNG = np.random.default_rng(0)
X = pd.DataFrame({"animal": RNG.permutation([True, False] * 40), "size": np.arange(80) % 3})
V4 = np.c_[X["size"], 0.3 * RNG.standard_normal((80, 3))]
IT = np.c_[3 * X["animal"], X["size"], 0.3 * RNG.standard_normal((80, 3))]


def test_arrays_are_compared_by_name():
    found = compare({"V4": V4, "IT": IT}, X)
    assert found.importance.idxmax().to_dict() == {"V4": "size", "IT": "animal"}
    rho = spearmanr(pdist(V4), pdist(IT)).statistic
    assert found.similarity.loc["IT", "V4"] == pytest.approx(rho, abs=1e-9)
    terms = found.why("V4", "IT", intervals=True).terms.set_index("term")
    assert terms["value"].sum() == pytest.approx(rho, abs=1e-9)
    assert terms.loc["size", "lower"] > 0.1 and abs(terms.loc["animal", "value"]) < 0.05
    assert found.plot.similarity().data and len(repr(found).splitlines()) < 12
    with refused("unknown array 'V5'", "V4, IT"):
        found.why("V4", "V5")


def test_what_is_given_in_python_is_recorded_or_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    table = words(20)
    with refused("representations 'a' are of the type ndarray", "compare"):
        AnalysisSpec(representations={"a": V4})
    np.savez(tmp_path / "a.npz", layer_00=RNG.standard_normal((len(table), 3)))
    spec = AnalysisSpec(representations={"a": str(tmp_path / "a.npz")}, folds=3)
    analysis = run(spec, progress=False, stimuli=from_frame(table, "mine"))
    assert analysis.manifest["parameters"]["stimuli"] == "mine"
    assert list((tmp_path / "cache").iterdir())
    assert repr(spec).count("=") == 3 and len(repr(analysis.stimuli).splitlines()) == 1


def test_the_package_names_what_is_public_and_the_spec_its_fields():
    assert {*dir(mlem_core)} == {"__version__", *mlem_core.__all__}
    assert all(f"\n    {name} : " in AnalysisSpec.__doc__ for name in AnalysisSpec().to_dict())
