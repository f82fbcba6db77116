"""Features given by their distances, from the command line to a capsule that is run again."""

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, noise
from scipy.spatial.distance import pdist, squareform

from mlem_core.analysis import baselines, diagnostics, files
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import elsewhere
from mlem_core.cli.commands import main
from mlem_core.figures.plots import Drawing
from mlem_core.inference.layer_intervals import layer_intervals
from mlem_core.report import capsule
from mlem_core.report.verify import verify
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, visitors

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
    assert analysis.tables.kinds == ("nominal", "vector", "rdm")
    files.save_analysis(analysis, tmp_path)
    kept = files.load_analysis(tmp_path)
    assert kept.whole.digest == analysis.whole.digest
    pd.testing.assert_frame_equal(kept.results().importance, analysis.results().importance)


@pytest.mark.slow
def test_a_capsule_holds_the_distances_and_is_run_again(analysis, folder):
    path = capsule.write(analysis, folder / "capsule.zip", drawing=Drawing(images=False))
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert "pair_tables/rdms.npz" not in found
    assert str(folder).encode() not in b"".join(found.values())
    with np.load(io.BytesIO(found["rdms.npz"]), allow_pickle=False) as kept:
        own = np.load(folder / "own.npy")
        np.testing.assert_array_equal(kept["distances_0"], own[np.triu_indices(N, 1)])
    assert b"semantics (vector)" in found["methods.md"] and b"own (RDM)" in found["methods.md"]
    again = verify(path)
    assert again.same, again.lines()


def test_the_command_line_takes_them(spec, folder, capsys):
    command = ["lint", "--stimuli", spec.stimuli, "--vector", "semantics=s*"]
    assert main([*command, "--rdm", f"own={folder / 'own.npy'}"]) == 0
    said = capsys.readouterr().out
    assert "noun (nominal), semantics (vector), own (rdm)" in said
    assert "identifier" not in said
    assert main([*command, "--rdm", f"own={folder / 'none.npy'}"]) == 2
    error = capsys.readouterr().err
    assert "none.npy" in error and len(error.splitlines()) == 1
    with pytest.raises(SystemExit):
        main(["stimuli", spec.stimuli, "--vector", "semantics=s*", "--out", "x.csv"])


@pytest.mark.slow
def test_what_is_said_of_the_stimuli_and_the_baselines(analysis, folder):
    found = diagnostics.lint(analysis.stimuli, analysis.spec).findings
    assert not [one for one in found if one.kind in ("identifier", "rare", "range")]
    rows = {("brain", 1): np.random.default_rng(0).standard_normal((N, 5))}
    decoded = baselines.decoding(analysis.stimuli, rows, analysis.folds)
    assert set(decoded.table["feature"]) == {"noun"}
    assert sum("given by the distances" in notice for notice in decoded.notices) == 2
    inputs, of = baselines.encoded_features(analysis.stimuli)
    assert of.count("semantics") == 2 and of.count("own") == 4 and len(inputs) == N
    drawn = layer_intervals(analysis, Store(folder / "cache"), n_replicates=20)
    assert drawn.columns == ("noun", "semantics", "own")


def test_an_upload_goes_where_the_analysis_goes_and_its_content_names_the_job(
    spec, folder, tmp_path
):
    store = Store(tmp_path)
    path = analyses.keep_upload((folder / "own.npy").read_bytes(), "own.npy", store)
    uploaded = replace(spec, rdms=(("own", str(path)),))
    before = analyses.job_id(uploaded)
    np.save(path, 2 * np.load(folder / "own.npy"))
    assert analyses.job_id(uploaded) != before
    moved = elsewhere(uploaded, lambda one: one.upper())
    assert moved.rdms == (("own", str(path).upper()),) and moved.stimuli == spec.stimuli.upper()
    job = tmp_path / "jobs" / "one"
    job.mkdir(parents=True)
    (job / "spec.json").write_text(json.dumps(uploaded.to_dict()))
    visitors.purge_uploads(store, days=-1)
    assert path.exists()
    (job / "spec.json").unlink()
    visitors.purge_uploads(store, days=-1)
    assert not path.exists()
