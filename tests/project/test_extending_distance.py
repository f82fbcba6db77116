"""A distance registered from outside: a plain function is enough, everywhere."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, noise, probing, tables_of
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.estimators.spearman import SpearmanMLEM
from mlem_core.pairs.distances import (
    DISTANCES,
    Distance,
    distance_named,
    metrics,
    pair_distances,
    register,
    squared_distances,
)
from mlem_core.report import capsule
from mlem_core.report.figures import Drawing
from mlem_core.report.methods import methods_paragraph
from mlem_core.robustness.multiverse import choices_of, multiverse
from mlem_core.storage.store import Store


def chebyshev(rows):
    return pdist(rows, "chebyshev")


@pytest.fixture
def toy():
    distance = Distance("chebyshev", chebyshev, phrase="the Chebyshev distance")
    register(distance)
    yield distance
    del DISTANCES["chebyshev"]


@pytest.fixture
def spec(tmp_path):
    table = probing(20)
    layers = noise(len(table))
    return in_files(tmp_path, table, {"brain": layers}, distance="chebyshev", folds=3)


def test_it_gives_what_its_function_gives(toy):
    rows = np.random.default_rng(0).standard_normal((30, 7))
    expected = pdist(rows, "chebyshev") ** 2
    np.testing.assert_array_equal(squared_distances(rows, "chebyshev"), expected)
    np.testing.assert_array_equal(squared_distances(rows, "chebyshev", device="cpu"), expected)
    i, j = np.array([0, 5, 29]), np.array([1, 2, 3])
    apart = np.abs(rows[i] - rows[j]).max(axis=1)
    np.testing.assert_allclose(pair_distances(rows, "chebyshev")(i, j), apart**2)
    # The function sees rows that are equal as one.
    rows[[4, 9]] = rows[2]
    np.testing.assert_allclose(squared_distances(rows, "chebyshev"), pdist(rows, "chebyshev") ** 2)
    with pytest.raises(ValueError, match="already"):
        register(toy)


def test_it_is_squared_only_once_and_its_zero_rows_are_named():
    rows = np.ones((4, 3)) * np.arange(4)[:, None]
    try:
        register(Distance("twice", lambda rows: chebyshev(rows) ** 2, squared=True))
        register(Distance("nowhere", chebyshev, prepare=np.abs, undefined="nothing"))
        np.testing.assert_allclose(squared_distances(rows, "twice"), chebyshev(rows) ** 2)
        with pytest.raises(InputError, match="holds nothing for row 1, where the nowhere distance"):
            squared_distances(rows, "nowhere")
    finally:
        DISTANCES.pop("twice", None)
        DISTANCES.pop("nowhere", None)


@pytest.mark.parametrize("wrong", [lambda rows: np.ones(3), lambda rows: -chebyshev(rows)])
def test_a_function_that_gives_no_distances_is_one_sentence(wrong):
    try:
        register(Distance("wrong", wrong))
        with pytest.raises(InputError, match="distance 'wrong' gave an array of shape"):
            squared_distances(np.eye(5), "wrong")
    finally:
        del DISTANCES["wrong"]
    with pytest.raises(ValueError, match="no function"):
        Distance("empty")


def test_it_goes_through_the_command_line_and_a_capsule(tmp_path, spec, toy, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    files = [f"--representations={name}={path}" for name, path in spec.representations]
    given = [f"--stimuli={spec.stimuli}", *files, "--folds=3", "--distance=chebyshev"]
    assert main(["analyze", *given, f"--out={tmp_path / 'out'}"]) == 0
    rsa = pd.read_csv(tmp_path / "out" / "similarity_rsa.csv", index_col=0)
    with np.load(spec.representations[0][1]) as layers:
        one, other = (pdist(layers[name], "chebyshev") for name in ("layer_00", "layer_01"))
    assert rsa.loc["brain:0", "brain:1"] == pytest.approx(spearmanr(one, other)[0], abs=1e-9)
    path = capsule.write(
        run(spec, Store()), tmp_path / "capsule.zip", drawing=Drawing(images=False)
    )
    assert main(["verify", str(path)]) == 0
    assert "nothing differs" in capsys.readouterr().out


def test_it_is_among_the_universes_and_in_the_methods(tmp_path, spec, toy):
    store = Store(tmp_path / "cache")
    analysis = run(spec, store)
    text = methods_paragraph(analysis, analysis.results())
    assert "was the Chebyshev distance of their representations" in text
    assert choices_of(analysis)["distance"] == metrics() and "chebyshev" in metrics()
    found = multiverse(analysis, [("brain", 0)], store, {"distance": ("euclidean",)})
    assert list(found.universes["distance"]) == ["chebyshev", "euclidean"]


def test_an_unknown_name_raises_everywhere():
    rows, features = np.eye(12), probing(12).head(12)[["part_of_speech", "tense"]]
    folds = np.arange(12) % 3
    for call in (
        lambda: distance_named("chebyshev"),
        lambda: squared_distances(rows, "chebyshev"),
        lambda: pair_distances(rows, "chebyshev"),
        lambda: tables_of(features, [rows], folds, distance="chebyshev"),
        lambda: SpearmanMLEM(distance="chebyshev").fit(features, rows),
        lambda: AnalysisSpec(models=("minilm",), distance="chebyshev").check(),
    ):
        with pytest.raises(InputError, match="unknown distance 'chebyshev'"):
            call()
