"""`analyze` and `stimuli`: the files of the contract, and one line for bad input."""

import json

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, finished, in_files, noise, probing

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.cli.commands import main
from mlem_core.data import datasets
from mlem_core.data.roles import read_csv

LAYERS = "layer,brain:0,brain:1"
FILES = {
    "scores.csv": "model,layer,fold,rho,rho_a,ceiling,alpha",
    "importance.csv": "model,layer,fold,feature,importance",
    "weights.csv": "model,layer,fold,feature,weight",
    "folds.csv": "stimulus,fold",
    "similarity_profiles.csv": LAYERS,
    "similarity_rsa.csv": LAYERS,
    "layer_map.csv": "measure,model,layer,x,y",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder, table = tmp_path_factory.mktemp("input"), probing(30)
    layers, features = noise(len(table)), ("tense", "number")
    spec = in_files(folder, table, {"brain": layers}, features=features, folds=3)
    return finished(folder, spec, layers)


def analyzed(made, out, *more):
    """The names of the files that the command writes into the folder."""
    command = ["analyze", *arguments_of(made.spec), "--features", "tense,number", "--folds", "3"]
    assert main([*command, *more, "--out", str(out)]) == 0
    return {path.name for path in out.iterdir()}


def test_it_writes_the_files_of_the_contract(made, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(made.store.root))
    assert analyzed(made, tmp_path) == {*FILES, "manifest.json"}
    for name, header in FILES.items():
        assert (tmp_path / name).read_text().splitlines()[0] == header
    importance = pd.read_csv(tmp_path / "importance.csv")["importance"]
    np.testing.assert_allclose(importance, made.analysis.results().importance["importance"])
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["stimuli"]["digest"] == made.analysis.stimuli.digest
    assert manifest["models"]["brain"]["layers"] == [0, 1]
    again = AnalysisSpec.from_dict(manifest["parameters"])
    assert again.seed == 0 and again.representations == made.spec.representations


@pytest.mark.slow
def test_baselines_have_files_of_their_own(made, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(made.store.root))
    there = analyzed(made, tmp_path, "--baselines", "decoding,random-forest,univariate")
    assert there > {"decoding.csv", "random_forest.csv", "univariate.csv", *FILES}
    for name, n in (("random_forest", 2), ("univariate", 5)):
        table = pd.read_csv(tmp_path / f"{name}.csv")
        assert len(table) == 2 * 3 * n and table["rho"].between(-1, 1).all()


ASKED = ["analyze", "--out", "o", "--stimuli"]
BAD = [
    ([*ASKED, "probing", "--model", "minilm", "--baselines", "forest"], "random-forest"),
    ([*ASKED, "probing", "--model", "minilmm"], "did you mean minilm"),
    ([*ASKED, "none.csv", "--model", "minilm"], "none.csv"),
    ([*ASKED, "probing", "--layers", "x"], "'x' is not a list"),
    ([*ASKED, "probing", "--model", "minilm", "--pairs", "many"], "20000000, or all"),
    (["stimuli", "probin", "--out", "o.csv"], "did you mean probing"),
    (["stimuli", "probing", "--out", "no/such/folder/o.csv"], "no/such/folder"),
]


@pytest.mark.parametrize(("arguments", "fact"), BAD)
def test_bad_input_is_one_line_and_exit_code_2(arguments, fact, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "c"))
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr().err
    assert code == 2 and fact in said and len(said.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


def test_stimuli_writes_a_csv_that_is_read_back(tmp_path, capsys):
    assert main(["stimuli", "probing", "--out", str(tmp_path / "p.csv")]) == 0
    assert "--nominal person" in capsys.readouterr().err
    again = read_csv(tmp_path / "p.csv", nominal=["person"])
    assert again.digest == datasets.load("probing").digest
