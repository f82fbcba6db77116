"""What a user registers from outside works everywhere: command line, pipeline, capsule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from explicit import feature_distances, scaled, squared, training
from inputs import in_files, noise, words

from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.cli.commands import main
from mlem_core.cli.options import parser
from mlem_core.estimators.base import Solution, TableModel
from mlem_core.estimators.normal_equations import moments, training_blocks
from mlem_core.estimators.registry import ESTIMATORS, EstimatorSpec, estimator_named, register
from mlem_core.pairs.tables import PairTables
from mlem_core.report import capsule
from mlem_core.report.figures import Drawing
from mlem_core.report.verify import verify
from mlem_core.robustness.multiverse import multiverse
from mlem_core.storage.store import Store

LAYERS = noise(len(words()), n_layers=2)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnalysisSpec:
    """A CSV and a representations file, with a store of their own."""
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    return in_files(tmp_path, words(), {"brain": LAYERS}, folds=3)


def analyze(spec: AnalysisSpec, out: Path, *options: str) -> int:
    """The exit code of `python -m mlem_core analyze` on the files of the analysis."""
    files = [f"--representations={name}={path}" for name, path in spec.representations]
    folds = f"--folds={spec.folds}"
    return main(["analyze", f"--stimuli={spec.stimuli}", *files, folds, f"--out={out}", *options])


class ClippedLeastSquares(TableModel):
    """Least squares on the pair table; what comes out negative is 0."""

    def solve(self, tables: PairTables, left_out: Sequence[int | None]) -> Solution:
        sets = [() if fold is None else (fold,) for fold in left_out]
        equations = moments(tables, training_blocks(tables, sets))
        solved = np.linalg.solve(equations.gram, equations.moment[..., None])[..., 0]
        return Solution(np.maximum(solved, 0.0))


@pytest.fixture
def clipped() -> Iterator[EstimatorSpec]:
    """The toy estimator, known as "clipped" while a test runs."""
    entry = EstimatorSpec(
        name="clipped",
        model=ClippedLeastSquares,
        label="clipped: 100 % least squares",
        caption="clipped least squares",
        sentence="least squares with negative weights set to 0",
        refitted=True,
    )
    register(entry)
    yield entry
    del ESTIMATORS["clipped"]


@pytest.mark.usefixtures("clipped")
def test_a_registered_estimator_runs_from_the_command_line(
    spec: AnalysisSpec, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert analyze(spec, out, "--estimator=clipped") == 0
    weights = pd.read_csv(out / "weights.csv")
    folds = pd.read_csv(out / "folds.csv")["fold"].to_numpy()
    kinds = {"noun": str, "length": float, "position": float}
    x = feature_distances(pd.read_csv(spec.stimuli)[list(kinds)].astype(kinds)) ** 2
    for (layer, fold), rows in weights.groupby(["layer", "fold"]):
        use = training(folds, fold)
        y = scaled(squared(LAYERS[layer])[use])
        centred = x[use] - x[use].mean(axis=0)
        expected = np.linalg.lstsq(centred, y - y.mean(), rcond=None)[0]
        np.testing.assert_allclose(rows["weight"], np.maximum(expected, 0), atol=1e-6)
    assert pd.read_csv(out / "scores.csv")["alpha"].isna().all()
    sub_commands = parser(None)._subparsers
    assert sub_commands is not None
    text = sub_commands._group_actions[0].choices["analyze"].format_help()  # type: ignore[index]
    assert "|clipped" in text and "100 % least squares" in re.sub(r"\s+", " ", text)


@pytest.mark.usefixtures("clipped")
def test_a_registered_estimator_goes_into_a_capsule_and_is_verified(
    spec: AnalysisSpec, tmp_path: Path
) -> None:
    analysis = run(spec, Store())
    shown = analysis.select(estimator="clipped")
    path = capsule.write(analysis, tmp_path / "capsule.zip", shown, drawing=Drawing(images=False))
    assert verify(path).same
    text = capsule.methods_paragraph(analysis, analysis.results_of(shown), estimator="clipped")
    assert "was fitted by least squares with negative weights set to 0, in 3-fold" in text
    seen = multiverse(analysis, analysis.layers, Store(), {"estimator": ["clipped"]})
    assert list(seen.universes["estimator"]) == ["ridge", "clipped"]


def test_an_estimator_that_is_not_registered_is_unknown(
    spec: AnalysisSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze(spec, tmp_path / "out", "--estimator=clipped") == 2
    assert "unknown estimator 'clipped'" in capsys.readouterr().err
    with pytest.raises(InputError, match="the choices are ridge, ridge-rank, spearman, frrsa"):
        estimator_named("clipped")
