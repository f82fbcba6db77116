"""Capsules of analyses with other choices than the plain ones: run again they are the same."""

from __future__ import annotations

import zipfile
from dataclasses import replace

import numpy as np
import pytest
from inputs import finished, in_files, probing, words
from scipy.spatial.distance import pdist, squareform

from mlem_core.analysis import files
from mlem_core.analysis.source import as_written
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.report import capsule
from mlem_core.report.figures import Drawing
from mlem_core.report.verify import verify

pytestmark = pytest.mark.slow

VALUES = ("values", "values_layers", "values_map_a", "values_map_b", "values_compared")


def of_arrays(folder, table, **choices):
    rng = np.random.default_rng(0)
    layers = {k: rng.standard_normal((len(table), 5)) for k in range(2)}
    return in_files(folder, table, {"m": layers}, **choices)


def of_values(folder):
    chosen = {"values": ("all",), "features": ("part_of_speech", "tense")}
    return of_arrays(folder, probing(30), **chosen)


def named_layers(folder):
    """A model, regions with names, and the distances in one of them."""
    spec = of_arrays(folder, words(), models=("mini-bert",), layers=(0, 1), precomputed=("rated",))
    regions = dict(zip(("V1", "IT"), np.load(folder / "m.npz").values(), strict=True))
    np.savez(folder / "brain.npz", **regions)
    np.savez(folder / "rated.npz", IT=squareform(pdist(regions["IT"])))
    paths = tuple((name, str(folder / f"{name}.npz")) for name in ("brain", "rated"))
    return replace(spec, representations=paths)


def repetitions(folder):
    spec = of_arrays(folder, words(), folds=3, distance="crossnobis")
    rows = np.random.default_rng(0).standard_normal((2, 4, len(words()), 6))
    np.savez(folder / "m.npz", V1=rows[0], V2=rows[1])
    return spec


def as_excel_writes(folder):
    """Semicolons, decimal commas and another encoding, with roles, added features and marks."""
    rows = [f"né{i} b{i} x;b{i};{i % 5},5;{'Nom' if i % 3 else 'NA'};y" for i in range(24)]
    text = "\n".join(["Text;target;Häufigkeit;Kasus;note", *rows])
    (folder / "excel.csv").write_bytes(text.encode("cp1252"))
    np.savez(folder / "r.npz", layer_00=np.random.default_rng(0).normal(size=(24, 4)))
    sources = (("r", str(folder / "r.npz")),)
    read = {"roles": (("note", "ignore"),), "add": ("word_length",), "na": ("NA",)}
    spec = AnalysisSpec(str(folder / "excel.csv"), representations=sources, folds=3, **read)
    assert as_written(spec, "x") == AnalysisSpec(stimuli="x", representations=sources, folds=3)
    return spec


def not_missing(folder):
    """Here NA is a value, and stays one in what is kept of the analysis."""
    rows = [f"a{i} b{i},{'NA' if i % 2 else 'x'},{i}" for i in range(12)]
    (folder / "a.csv").write_text("\n".join(["sentence,f,g", *rows]))
    np.savez(folder / "r.npz", layer_00=np.random.default_rng(0).normal(size=(12, 4)))
    sources = (("r", str(folder / "r.npz")),)
    return AnalysisSpec(str(folder / "a.csv"), representations=sources, folds=3, na=())


@pytest.mark.parametrize(
    ("asked", "holds"),
    [
        (lambda folder: of_arrays(folder, words(40), pairs=8_000), ["tables/pair_errors.csv"]),
        (lambda folder: of_arrays(folder, words(60), folds=3, folds_over="both"), []),
        (
            of_values,
            ["tables/value_distances.csv", *(f"figures/{name}.html" for name in VALUES)],
        ),
        (named_layers, []),
        (repetitions, []),
        (as_excel_writes, []),
        (not_missing, []),
    ],
)
def test_a_capsule_is_the_same_when_run_again(asked, holds, tmp_path):
    made = finished(tmp_path, asked(tmp_path), {})
    (tmp_path / "kept").mkdir()
    files.save(made.analysis, tmp_path / "kept")
    assert files.load(tmp_path / "kept").stimuli.digest == made.analysis.stimuli.digest
    path = capsule.write(made.analysis, tmp_path / "c.zip", drawing=Drawing(images=False))
    with zipfile.ZipFile(path) as archive:
        assert set(holds) <= set(archive.namelist())
    found = verify(path)
    assert found.same, found.lines()
    assert {name.partition("/")[2] for name in holds if name.endswith(".csv")} <= {
        table.name for table in found.tables
    }
