"""Arrays compared by their features; stimuli, stores and arrays that no file names."""

import gc
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import in_files, refused, words
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr

import mlem_core
from mlem_core import AnalysisSpec, RidgeMLEM, Store, beside_subjects, compare, from_frame, run

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


def test_models_stand_beside_subjects_that_give_units_or_distances():
    subjects = [IT + 0.5 * RNG.standard_normal(IT.shape) for _ in range(3)]
    choices = {"estimator": "ridge", "values": (), "folds": 3}
    units = compare({"V4": V4, "IT": IT}, X, subjects={"brain": subjects}, **choices)
    given = {"V4": squareform(pdist(V4)), "IT": IT}
    rdms = [pdist(rows) for rows in subjects]
    distances = compare(given, X, subjects={"brain": rdms}, distances=("V4", "brain"), **choices)
    expected = [
        np.mean([spearmanr(pdist(model), rdm).statistic for rdm in rdms]) for model in (V4, IT)
    ]
    tables = []
    for compared, models in ((units, "array"), (distances, "distances")):
        assert {*compared.layers} == {"V4", "IT"} == {*compared.importance.columns}
        with refused("nothing to draw for the figure model_comparison"):
            compared.plot.model_comparison()
        beside = beside_subjects(compared.context)
        rows = beside.models.set_index(["model", "layer"])["rsa"]
        np.testing.assert_allclose(rows[[(models, 0), ("array", int(models == "array"))]], expected)
        assert (beside.models["rsa_lower"] < beside.models["rsa"]).all()
        assert len(beside.differences) == 3 and len(beside.sentences) == 1
        assert any(trace.type == "bar" for trace in compared.plot.model_comparison().data)
        assert compared.plot.group_rdms().data
        tables.append(beside.ceilings[["lower", "upper"]])
    pd.testing.assert_frame_equal(*tables)
    assert beside_subjects(compare({"V4": V4, "IT": IT}, X, **choices).context) is None


@pytest.mark.parametrize(
    ("subjects", "distances", "facts"),
    [
        ({"brain": [IT]}, (), ("the subjects of 'brain'", "(80, 5)", "two subjects or more")),
        ({"brain": [IT, IT[:, :2]]}, (), ("(80, 2)", "of one shape", "give distances")),
        ({"brain": [IT, IT], "rdms": [pdist(IT)] * 2}, ("rdms",), ("all or none",)),
        ({"brain": [IT, IT]}, ("brian",), ("unknown array of distances 'brian'", "V4, brain")),
        ([IT, IT], (), ("found list", "{name: array}")),
        ({"layer_0": [IT, IT]}, (), ("'layer_0'", "a name of its own")),
    ],
)
def test_subjects_that_cannot_be_compared_are_refused(subjects, distances, facts):
    with refused(*facts):
        compare({"V4": V4}, X, subjects=subjects, distances=distances)


KILLED = """
import numpy as np, os, pandas as pd, signal
from mlem_core import compare
X = pd.DataFrame({"f": [0, 1] * 20})
kept = compare({"a": np.c_[X], "b": np.c_[X] + np.arange(40)[:, None]}, X)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_goes_with_the_next(tmp_path, monkeypatch):
    subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(tmp_path)})
    assert any(path.name.startswith(".mlem-compare") for path in tmp_path.iterdir())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = compare({"V4": V4, "IT": IT}, X)
    (folder,) = (path for path in tmp_path.iterdir() if path.name.startswith(".mlem-compare"))
    assert (folder / "array.npz").exists()
    del found
    gc.collect()
    assert not folder.exists()


def test_tables_are_matched_by_their_index():
    names = [f"s{number}" for number in range(80)]
    features, table = X.set_index([names]), pd.DataFrame(IT, names)
    means = [
        compare({"IT": y, "V4": V4}, features, estimator="ridge", values=()).importance["IT"]
        for y in (table, table.sample(frac=1, random_state=1), IT)
    ]
    pd.testing.assert_series_equal(means[0], means[1])
    pd.testing.assert_series_equal(means[0], means[2])
    for other, fact in (
        (table.set_axis([f"t{number}" for number in range(80)]), "no row named 's0'"),
        (np.ma.masked_less(IT, 0), "the array 'IT'"),
        (IT + 1j, "real numbers"),
    ):
        with refused(fact):
            compare({"IT": other}, features)


@pytest.mark.parametrize("values", [(), ("kind",)])
def test_an_estimator_an_analysis_and_a_comparison_agree_on_the_same_folds(values, tmp_path):
    """Numbers reach from 0 to 1 outside every fold, so that all scale them alike."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"kind": rng.choice(list("xyz"), 90)})
    for number in range(6):
        ends = rng.permutation(np.repeat([0.0, 1.0], 20))
        table[f"n{number}"] = rng.permutation(np.concatenate((ends, rng.random(50))))
    rows = table[["n0", "n1", "n2"]].to_numpy() * [2.0, 1.0, 1.0]
    rows = np.column_stack((rows, 1.5 * (table["kind"] == "x"), rng.standard_normal((90, 2))))
    choices = {"estimator": "ridge", "values": values, "folds": 4}
    analysis = compare({"A": rows}, table, **choices).analysis
    named = table.assign(sentence=[f"stimulus {n}" for n in range(90)])
    by_file = run(in_files(tmp_path, named, {"m": {0: rows}}, **choices), Store(tmp_path / "s"))
    np.testing.assert_array_equal(analysis.folds, by_file.folds)
    for name in ("scores", "importance", "weights"):
        one, other = (getattr(of.results(), name) for of in (analysis, by_file))
        pd.testing.assert_frame_equal(one.drop(columns="model"), other.drop(columns="model"))
    results = analysis.results()
    weights = results.weights.pivot(index="fold", columns="feature", values="weight")
    for fold, row in results.scores.set_index("fold").iterrows():
        train, test = (
            np.flatnonzero(use) for use in (analysis.folds != fold, analysis.folds == fold)
        )
        inner = [analysis.folds[train] == other for other in range(4) if other != fold]
        splits = [(np.flatnonzero(~of), np.flatnonzero(of)) for of in inner]
        model = RidgeMLEM(cv=splits, values=values).fit(table.iloc[train], rows[train])
        assert model.alpha_ == row["alpha"]
        own = weights.loc[fold, model.get_feature_names_out()]
        np.testing.assert_allclose(model.coef_, own, atol=1e-9)
        assert model.score(table.iloc[test], rows[test]) == pytest.approx(row["rho"], abs=1e-9)


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
