"""Files with names of their own for layers, and distances beside models, from run to capsule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, words
from scipy.spatial.distance import pdist, squareform

from mlem_core.analysis import files
from mlem_core.analysis.baselines import of_analysis
from mlem_core.analysis.maps import stimulus_map
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec, with_files
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.cli.options import parser, spec_of
from mlem_core.inference.explanation import explain
from mlem_core.report.figures import Drawing, Shown, draw
from mlem_core.report.verify import verify
from mlem_core.robustness.audit import audit
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> AnalysisSpec:
    """A model, two regions with names, and the distances in the second of them."""
    folder = tmp_path_factory.mktemp("given")
    table = words()
    rng = np.random.default_rng(0)
    regions = {name: rng.standard_normal((len(table), 5)) for name in ("V1", "IT")}
    regions["IT"][:, 0] += 5 * table["noun"]
    spec = in_files(folder, table, {}, models=("mini-bert",), layers=(0, 1))
    np.savez(folder / "brain.npz", **regions)
    np.savez(folder / "rated.npz", IT=squareform(pdist(regions["IT"])))
    paths = tuple((name, str(folder / f"{name}.npz")) for name in ("brain", "rated"))
    return replace(spec, representations=paths, precomputed=("rated",))


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


def test_names_of_layers_go_with_the_analysis(given, store, tmp_path):
    analysis = run(given, store, progress=False)
    named = {("brain", 0): "V1", ("brain", 1): "IT", ("rated", 0): "IT"}
    assert analysis.layer_names == named
    files.save(analysis, tmp_path)
    assert files.load(tmp_path).layer_names == named


def test_names_of_layers_are_in_sentences_figures_and_a_report(given, store):
    analysis = run(given, store, progress=False)
    why = explain(analysis, "brain:1", "mini-bert:0")
    assert why.called == ("brain IT", "mini-bert layer 0")
    assert "brain IT and mini-bert layer 0" in why.sentence
    ticks = analysis.plot.similarity().layout.xaxis.ticktext
    assert [*ticks] == ["M0", "M1", "V1", "B IT", "R IT"]
    shown = Shown(analysis, analysis.select(), analysis.results(), Drawing())
    made = draw("profiles", shown)
    assert made is not None
    assert "V1" not in made.data.to_csv() and "V1" in made.printed.to_csv()


def test_distances_beside_models_are_what_their_rows_give(given, store):
    analysis = run(given, store, progress=False)
    scores = analysis.results().scores.set_index(["model", "layer"])["rho"]
    np.testing.assert_allclose(scores.loc["rated", 0], scores.loc["brain", 1])
    at = [analysis.layers.index(layer) for layer in (("brain", 1), ("rated", 0))]
    assert analysis.rsa[at[0], at[1]] == pytest.approx(1)
    a, b = (
        pdist(stimulus_map(analysis, *layer, store)[["x", "y"]])
        for layer in (("brain", 1), ("rated", 0))
    )
    np.testing.assert_allclose(a, b, atol=1e-6)
    # Of distances there is no other distance, nor are there units.
    other = run(replace(given, distance="cosine", units="standardised"), store, progress=False)
    again = other.results().scores.set_index(["model", "layer"])["rho"]
    np.testing.assert_allclose(again.loc["rated", 0], scores.loc["rated", 0])
    assert not np.allclose(again.loc["brain", 1], scores.loc["brain", 1])
    layers = audit(analysis, store).layers.set_index(["model", "layer"])
    assert layers.loc[("rated", 0), "n_units"] == 0
    assert layers.loc[("brain", 1), "n_units"] == 5
    found = of_analysis(analysis, "univariate", store)
    assert set(found.table["model"]) == {"mini-bert", "brain"}


def test_the_same_file_as_distances_is_another_analysis(given, store):
    square = replace(given, models=(), representations=given.representations[1:])
    rows = replace(square, precomputed=())
    assert analyses.job_id(square) != analyses.job_id(rows)
    a, b = (run(one, store, progress=False).results().scores["rho"] for one in (square, rows))
    assert not np.allclose(a, b)
    all_given = replace(rows, distance="precomputed")
    c = run(all_given, store, progress=False).results().scores["rho"]
    np.testing.assert_allclose(a, c)


def test_what_a_first_column_is_goes_with_the_analysis(given, store, tmp_path):
    """Its row numbers left out, a CSV gives what it gives without them, and not what it gives as
    units."""
    rng, n = np.random.default_rng(3), len(words())
    frame = pd.DataFrame(rng.standard_normal((n, 4)))
    frame.to_csv(tmp_path / "with.csv")
    frame.to_csv(tmp_path / "without.csv", index=False)
    one = replace(given, models=(), precomputed=(), layers=None)
    of = {
        name: replace(one, representations=(("b", str(tmp_path / f"{name}.csv")),))
        for name in ("with", "without")
    }
    with pytest.raises(InputError, match="--first-column NAME=skip"):
        run(of["with"], store, progress=False)
    said = {how: replace(of["with"], first_column=(("b", how),)) for how in ("skip", "unit")}
    assert analyses.job_id(said["skip"]) != analyses.job_id(said["unit"])
    found = {
        how: run(spec, store, progress=False).results().scores["rho"].tolist()
        for how, spec in {**said, "without": of["without"]}.items()
    }
    assert found["skip"] == found["without"] != found["unit"]
    line = ["analyze", "--stimuli", "s", "--out", "o", "--first-column", "b=skip"]
    assert spec_of(parser(None).parse_args(line)).first_column == said["skip"].first_column
    assert AnalysisSpec.from_dict(said["skip"].to_dict()) == said["skip"]
    assert "first_column" not in of["with"].to_dict()
    assert with_files(said["skip"], ()).first_column == ()
    for wrong, says in ((("b", "drop"), "unknown choice"), (("c", "skip"), "unknown repres")):
        with pytest.raises(InputError, match=says):
            replace(of["with"], first_column=(wrong,)).check()


def test_distances_of_a_file_that_is_not_there(given):
    with pytest.raises(InputError, match="did you mean rated"):
        replace(given, precomputed=("ratd",)).check()


def test_the_command_line_and_a_capsule_know_them(given, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    named = [f"--representations={name}={path}" for name, path in given.representations]
    arguments = ["--stimuli", given.stimuli, "--model", "mini-bert", "--layers", "0,1", *named]
    capsule = tmp_path / "all.zip"
    where = ["--out", str(tmp_path / "out"), "--capsule", str(capsule)]
    assert main(["analyze", *arguments, "--precomputed", "rated", *where]) == 0
    found = verify(capsule)
    assert found.same, found.lines()
