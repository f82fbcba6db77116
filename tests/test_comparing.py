"""Arrays compared by their features, and stimuli and stores that are not named in the analysis."""

import numpy as np
import pandas as pd
import pytest
from inputs import refused, words
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

import mlem_core
from mlem_core import AnalysisSpec, InputError, compare, from_frame, run


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"animal": rng.permutation([True, False] * 40), "size": np.arange(80) % 3})


@pytest.fixture(scope="module")
def arrays(X):
    noise = 0.3 * np.random.default_rng(1).standard_normal((2, 80, 3))
    size, animal = X["size"].to_numpy()[:, None], X["animal"].to_numpy()[:, None]
    return {"V4": np.hstack((size, noise[0])), "layer 07": np.hstack((3 * animal, size, noise[1]))}


def test_arrays_are_compared_by_name(X, arrays):
    found = compare(arrays, X, seed=1)
    assert found.importance.idxmax().to_dict() == {"V4": "size", "layer 07": "animal"}
    assert found.importance.loc["animal", "V4"] < 0.05 < found.importance.loc["size", "layer 07"]
    rho = spearmanr(*map(pdist, arrays.values())).statistic
    assert found.similarity.loc["layer 07", "V4"] == pytest.approx(rho, abs=1e-9)
    why = found.why("V4", "layer 07", intervals=True)
    terms = why.terms.set_index("term")
    assert why.value == pytest.approx(rho, abs=1e-9) == terms["value"].sum()
    assert terms.loc["size", "lower"] > 0.1 and abs(terms.loc["animal", "value"]) < 0.05
    assert found.plot.similarity().data and len(repr(found).splitlines()) < 12
    with refused("unknown array 'V5'", "V4, layer 07"):
        found.why("V4", "V5")
    reread = compare(arrays, from_frame(X.assign(stimulus=range(80)), "mine"), seed=1)
    pd.testing.assert_frame_equal(reread.importance, found.importance)


@pytest.mark.parametrize(
    "given, table, said",
    [
        (lambda y: {"a": y[:5]}, lambda X: X, "array a of arrays.npz has 5 rows"),
        (lambda y: {"a": ["x"] * 80}, lambda X: X, "the array 'a' holds no numbers"),
        (lambda y: {"layer_00": y}, lambda X: X, "is called 'layer_00'"),
        (lambda y: y, lambda X: X, "found ndarray for arrays"),
        (lambda y: {"a": y}, lambda X: X.to_numpy(), "X is of the type ndarray"),
    ],
)
def test_what_cannot_be_compared_is_refused(X, arrays, given, table, said):
    with refused(said):
        compare(given(arrays["V4"]), table(X))


def test_what_is_given_in_python_is_recorded_or_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    table = words(20)
    layer = np.random.default_rng(0).standard_normal((len(table), 3))
    with refused("representations 'a' are of the type ndarray", "compare"):
        AnalysisSpec(representations={"a": layer})
    np.savez(tmp_path / "a.npz", layer_00=layer)
    spec = AnalysisSpec(representations={"a": str(tmp_path / "a.npz")}, folds=3)
    analysis = run(spec, progress=False, stimuli=from_frame(table, "mine"))
    assert analysis.spec.stimuli == analysis.manifest["parameters"]["stimuli"] == "mine"
    assert list((tmp_path / "cache").iterdir())
    assert repr(spec).count("=") == 2 and len(repr(analysis.stimuli).splitlines()) == 1


def test_the_package_names_what_is_public_and_the_spec_its_fields():
    assert {*dir(mlem_core)} == {"__version__", *mlem_core.__all__}
    for name in AnalysisSpec().to_dict():
        assert f"\n    {name} : " in AnalysisSpec.__doc__
    assert issubclass(InputError, ValueError)
