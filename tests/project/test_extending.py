"""What a user registers from outside works everywhere: command line, pipeline, rerun."""

import numpy as np
import pandas as pd
import pytest
from helpers.explicit import feature_distances, scaled, training
from helpers.inputs import arguments_of, in_files, noise, refused, words
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

from mlem_core import Store, run
from mlem_core.cli.commands import main
from mlem_core.estimators.base import TableModel
from mlem_core.estimators.normal_equations import normal_equations
from mlem_core.estimators.registry import ESTIMATORS, EstimatorSpec, Solution
from mlem_core.estimators.registry import register as register_estimator
from mlem_core.pairs.distances import DISTANCES, Distance, metrics, register, squared_distances
from mlem_core.report.archive import write_archive
from mlem_core.report.methods import methods_paragraph

LAYERS = noise(len(words()), n_layers=2)


class ClippedLeastSquares(TableModel):
    """Least squares from moments of pairs; what comes out negative is 0."""

    def solve(self, pairs, left_out, training_pairs=None):
        sets = [() if fold is None else (fold,) for fold in left_out]
        equations = normal_equations(pairs.moments, sets)
        solved = np.linalg.solve(equations.gram, equations.moment[..., None])[..., 0]
        return Solution(np.maximum(solved, 0.0))


def chebyshev(rows):
    return pdist(rows, "chebyshev")


@pytest.fixture
def clipped():
    """The toy estimator, known as "clipped" while a test runs."""
    texts = {"label": "clipped: 100 % least squares", "caption": "clipped least squares"}
    texts["sentence"] = "least squares with negative weights set to 0"
    register_estimator(EstimatorSpec("clipped", ClippedLeastSquares, refitted=True, **texts))
    yield
    del ESTIMATORS["clipped"]


@pytest.fixture
def distances():
    """The toy distance, known as "chebyshev"; all that are registered in a test go after it."""
    known = set(metrics())
    register(Distance("chebyshev", chebyshev, phrase="the Chebyshev distance"))
    yield
    for name in set(metrics()) - known:
        del DISTANCES[name]


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """A CSV and a representations file, with a store of their own."""
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    return in_files(tmp_path, words(), {"brain": LAYERS}, folds=3)


def test_own_estimators_and_distances_run_on_the_command_line(spec, tmp_path, clipped, distances):
    out = tmp_path / "out"
    options = [*arguments_of(spec), "--folds=3", "--estimator=clipped", "--distance=chebyshev"]
    assert main(["analyze", *options, f"--out={out}"]) == 0
    weights = pd.read_csv(out / "weights.csv")
    folds = pd.read_csv(out / "folds.csv")["fold"].to_numpy()
    kinds = {"noun": str, "length": float, "position": float}
    x = feature_distances(pd.read_csv(spec.stimuli)[list(kinds)].astype(kinds)) ** 2
    for (layer, fold), rows in weights.groupby(["layer", "fold"]):
        use = training(folds, fold)
        y = scaled(chebyshev(LAYERS[layer])[use] ** 2)
        centred = x[use] - x[use].mean(axis=0)
        expected = np.linalg.lstsq(centred, y - y.mean(), rcond=None)[0]
        np.testing.assert_allclose(rows["weight"], np.maximum(expected, 0), atol=1e-6)
    assert pd.read_csv(out / "scores.csv")["alpha"].isna().all()
    rsa = pd.read_csv(out / "similarity_rsa.csv", index_col=0)
    expected = spearmanr(*(chebyshev(LAYERS[layer]) for layer in (0, 1)))[0]
    assert rsa.loc["brain:0", "brain:1"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_own_ones_are_rerun(spec, tmp_path, clipped, distances, capsys):
    asked = in_files(tmp_path, words(), {"brain": LAYERS}, folds=3, distance="chebyshev")
    analysis = run(asked, Store(), progress=False)
    shown = analysis.select(estimator="clipped")
    path = write_archive(analysis, tmp_path / "all.zip", Store(), images=False)
    assert main(["rerun", str(path)]) == 0 and "all are equal" in capsys.readouterr().out
    text = methods_paragraph(analysis, analysis.compute_results(shown), shown)
    assert "least squares with negative weights set to 0, in 3-fold" in text
    assert "was the Chebyshev distance of their representations" in text


def test_a_distance_gives_what_its_function_gives(distances):
    rows = np.random.default_rng(0).standard_normal((30, 7))
    expected = pdist(rows, "chebyshev") ** 2
    np.testing.assert_array_equal(squared_distances(rows, "chebyshev"), expected)
    # The function sees rows that are equal as one.
    rows[[4, 9]] = rows[2]
    np.testing.assert_allclose(squared_distances(rows, "chebyshev"), pdist(rows, "chebyshev") ** 2)
    with pytest.raises(ValueError, match="no function"):
        Distance("empty")


@pytest.mark.parametrize("wrong", [lambda rows: np.ones(3), lambda rows: -chebyshev(rows)])
def test_a_function_that_gives_no_distances_is_refused(wrong, distances):
    register(Distance("wrong", wrong))
    with refused("'wrong'", "array of shape"):
        squared_distances(np.eye(5), "wrong")
