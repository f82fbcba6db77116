"""Features given by their distances, as they are analysed and rerun."""

import io
import zipfile

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import in_files, noise
from scipy.spatial.distance import pdist, squareform

from mlem_core import Store, run
from mlem_core.analysis import files
from mlem_core.report.archive import write_archive
from mlem_core.report.rerun import rerun

N = 80


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("given")


@pytest.fixture(scope="module")
def spec(folder):
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((N, 4))
    table = pd.DataFrame(rng.standard_normal((N, 2)), columns=["s1", "s2"])
    table["sentence"] = [f"the sentence number{row} is short" for row in range(N)]
    table["noun"] = rng.choice(["a", "b", "c"], N)
    np.save(folder / "own.npy", squareform(pdist(hidden)))
    layers = noise(N, n_layers=1)
    layers[1] = hidden @ rng.standard_normal((4, 20))
    given = {"vectors": ("semantics=s1,s2",), "rdms": (f"own={folder / 'own.npy'}",)}
    return in_files(folder, table, {"brain": layers}, **given, folds=4)


@pytest.fixture(scope="module")
def analysis(spec, folder):
    return run(spec, Store(folder / "cache"))


def test_an_rdm_that_drives_a_layer_is_what_matters_there(analysis, tmp_path):
    importance = analysis.results().importance.groupby(["layer", "feature"])["importance"].mean()
    assert importance[1, "own"] > 0.7
    assert importance[1].drop("own").abs().max() < 0.1
    assert importance[0].abs().max() < 0.1
    assert analysis.pairs.columns.kinds == ("nominal", "vector", "rdm")
    files.save_analysis(analysis, tmp_path)
    kept = files.load_analysis(tmp_path)
    assert kept.whole.digest == analysis.whole.digest
    pd.testing.assert_frame_equal(kept.results().importance, analysis.results().importance)


@pytest.mark.slow
def test_a_zip_holds_the_distances_and_is_rerun(analysis, folder):
    path = write_archive(analysis, folder / "all.zip", Store(folder / "cache"), images=False)
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert str(folder).encode() not in b"".join(found.values())
    with np.load(io.BytesIO(found["rdms.npz"]), allow_pickle=False) as kept:
        own = np.load(folder / "own.npy")
        np.testing.assert_array_equal(kept["distances_0"], own[np.triu_indices(N, 1)])
    assert b"semantics (vector)" in found["methods.md"] and b"own (RDM)" in found["methods.md"]
    again = rerun(path, representations=dict(analysis.spec.representations))
    assert again.same, again.lines()
