"""Files with repetitions of each stimulus: their mean, or distances over them, in an analysis."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, words
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr

from mlem_core.analysis.maps import representations_of, stimulus_map
from mlem_core.analysis.run import run
from mlem_core.analysis.similarities import compared
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.inference.explanation import explain
from mlem_core.pairs.repetitions import cross_validated, shrunken
from mlem_core.report.figures import Drawing
from mlem_core.report.methods import methods_paragraph
from mlem_core.report.verify import verify
from mlem_core.robustness.audit import audit
from mlem_core.robustness.multiverse import multiverse
from mlem_core.storage.store import Store

TABLE = words()
V1, NOISE = ("brain", 0), ("brain", 1)


@pytest.fixture(scope="module")
def repeated() -> dict[str, np.ndarray]:
    """Two regions measured four times: one that tells nouns apart, one of noise alone."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((2, 4, len(TABLE), 6))
    told = np.zeros((len(TABLE), 6))
    told[:, 0] = 3 * TABLE["noun"]
    return {"V1": told + noise[0], "nothing": noise[1]}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory, repeated: dict[str, np.ndarray]) -> AnalysisSpec:
    folder = tmp_path_factory.mktemp("given")
    spec = in_files(folder, TABLE, {}, folds=3, distance="crossnobis")
    np.savez(folder / "brain.npz", **repeated)
    np.savez(folder / "once.npz", V1=repeated["V1"][0])
    return replace(spec, representations=(("brain", str(folder / "brain.npz")),))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


def test_an_analysis_is_of_the_distances_over_repetitions(spec, store, repeated):
    analysis = run(spec, store, progress=False)
    squared = [cross_validated(rows, shrunken) for rows in repeated.values()]
    assert all((own < 0).any() for own in squared)
    assert analysis.rsa[0, 1] == pytest.approx(spearmanr(*squared).statistic, abs=1e-7)
    found = compared(analysis, "cka", store)
    assert abs(found.values[0, 1]) < 0.1
    # What is planted is found, and it is all that there is.
    results = analysis.results_of(analysis.select())
    scores = results.scores.groupby("layer")["rho"].mean()
    assert scores[0] > 0.6 and abs(scores[1]) < 0.05
    importance = results.importance.groupby(["layer", "feature"])["importance"].mean()
    assert importance[0].idxmax() == "noun"


def test_without_the_choice_it_is_the_mean_and_says_so(spec, store, repeated):
    analysis = run(replace(spec, distance="euclidean"), store, progress=False)
    means = [pdist(rows.mean(axis=0)) for rows in repeated.values()]
    assert analysis.rsa[0, 1] == pytest.approx(spearmanr(*means).statistic, abs=1e-7)
    (note,) = [n for n in analysis.notices if "repetitions" in n]
    assert note.startswith("brain.npz has 4 repetitions of each stimulus, whose mean is taken;")
    assert analysis.manifest["models"]["brain"]["repetitions"] == {"0": 4, "1": 4}


def test_everything_that_follows_from_distances_works(spec, store):
    analysis = run(spec, store, progress=False)
    assert explain(analysis, V1, NOISE).value == pytest.approx(analysis.rsa[0, 1])
    assert len(stimulus_map(analysis, *V1, store)) == len(TABLE)
    assert set(audit(analysis, store).layers["n_units"]) == {0}
    seen = multiverse(analysis, analysis.layers, store, {"distance": ["cosine"]})
    assert list(seen.universes["distance"]) == ["crossnobis", "cosine"]
    text = methods_paragraph(analysis, analysis.results_of(analysis.select()))
    assert "the crossnobis distance over repetitions" in text


def test_a_capsule_of_it_is_the_same_when_run_again(spec, store, tmp_path):
    from mlem_core.report import capsule

    analysis = run(spec, store, progress=False)
    path = capsule.write(analysis, tmp_path / "capsule.zip", drawing=Drawing(images=False))
    assert verify(path).same


def test_a_model_beside_it_has_its_euclidean_distances(spec, store, repeated):
    with_model = replace(spec, models=("mini-bert",), layers=(0,))
    analysis = run(with_model, store, progress=False)
    assert analysis.layers == [("mini-bert", 0), V1]
    rows = representations_of(analysis, "mini-bert", store)[0]
    expected = spearmanr(pdist(rows), cross_validated(repeated["V1"], shrunken)).statistic
    assert analysis.rsa[0, 1] == pytest.approx(expected, abs=1e-5)


def test_where_there_are_no_repetitions_a_sentence_says_so(spec, store, tmp_path):
    once = Path(spec.stimuli).parent / "once.npz"
    says = r"array V1 of once.npz has no repetitions; .* \(repetitions, 60, units\)"
    with pytest.raises(InputError, match=says.replace("60", str(len(TABLE)))):
        run(replace(spec, representations=(("once", str(once)),)), store, progress=False)
    with pytest.raises(InputError, match="crossnobis needs a representations file with rep"):
        replace(spec, representations=(), models=("mini-bert",)).check()
    # Beside a file that has some it is left out.
    both = replace(spec, representations=(*spec.representations, ("once", str(once))))
    analysis = run(both, store, progress=False)
    assert {model for model, _ in analysis.layers} == {"brain"}
    assert any("once was left out: array V1" in notice for notice in analysis.notices)


def test_the_command_line_takes_it(spec, tmp_path, monkeypatch):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    files = [f"--representations={name}={path}" for name, path in spec.representations]
    out = tmp_path / "out"
    options = ["--distance=crossnobis-diagonal", "--folds=3", f"--out={out}"]
    assert main(["analyze", f"--stimuli={spec.stimuli}", *files, *options]) == 0
    scores = pd.read_csv(out / "scores.csv")
    assert scores[scores["layer"] == 0]["rho"].mean() > 0.6


def test_given_distances_beside_it_stay_as_they_are(spec, store, repeated, tmp_path):
    rated = squareform(pdist(repeated["V1"][0]))
    np.savez(tmp_path / "rated.npz", layer_00=rated)
    files = (*spec.representations, ("rated", str(tmp_path / "rated.npz")))
    both = replace(spec, representations=files, precomputed=("rated",), layers=(0,))
    analysis = run(both, store, progress=False)
    np.testing.assert_allclose(representations_of(analysis, "rated", store)[0], rated)
