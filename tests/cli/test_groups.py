"""Groups of models from the command line to their tables, on planted seeds of recipes."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, in_files, words

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.cli.commands import main
from mlem_core.inference.all_layers import layer_intervals, stimuli_left
from mlem_core.inference.recipes import recipes
from mlem_core.measures.decomposition import decompose
from mlem_core.report import capsule
from mlem_core.report.figures import Drawing
from mlem_core.report.verify import verify
from mlem_core.storage.store import Store

GROUPS = {name: tuple(f"{name}{seed}" for seed in range(3)) for name in ("f", "g", "h")}


def seeds() -> dict[str, dict[int, np.ndarray]]:
    """Three seeds of three recipes: all code `noun`, f and g `length` too, each has noise."""
    table, rng = words(), np.random.default_rng(0)
    noun = (table["noun"].to_numpy() - 0.5) * 3
    length = table["length"].to_numpy(dtype=float)
    found = {}
    for group, members in GROUPS.items():
        own = rng.standard_normal((len(table), 3)) * 2
        for member in members:
            layers = {}
            for layer in range(2):
                coded = [noun, length * (group != "h")]
                noise = rng.standard_normal((len(table), 3))
                layers[layer] = np.column_stack([*coded, own + noise])
            found[member] = layers
    return found


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> AnalysisSpec:
    folder = tmp_path_factory.mktemp("seeds")
    labels = {"f": ("kind:x",), "g": ("kind:x",), "h": ("kind:y",)}
    return in_files(folder, words(), seeds(), groups=GROUPS, labels=labels)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("groups"))


@pytest.fixture(scope="module")
def analysis(given: AnalysisSpec, store: Store) -> Analysis:
    return run(given, store, progress=False)


def command(spec: AnalysisSpec, out: Path) -> list[str]:
    given = ["analyze", *arguments_of(spec), "--out", str(out)]
    for name, members in spec.groups:
        given += ["--group", f"{name}={','.join(members)}"]
    return given


def test_tables_and_closing_lines(
    given: AnalysisSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    asked = [*command(given, tmp_path / "out"), "--label", "f=kind:x", "--label", "g=kind:x"]
    assert main([*asked, "--label", "h=kind:y", "--bootstrap", "20"]) == 0
    said = capsys.readouterr().out
    assert all(f"{group} (3 members)" in said for group in GROUPS)
    assert "over models, and sentences" in said and "too few to test kind" in said
    read = {
        name: pd.read_csv(tmp_path / "out" / f"{name}.csv")
        for name in ("groups", "group_similarity", "universality", "group_tests")
    }
    groups = read["groups"]
    assert len(groups) == 3 * 2 * 3 and (groups["members"] == 3).all()
    assert (groups["lower"] <= groups["importance"]).all()
    similar = read["group_similarity"].set_index(["group_a", "group_b"])
    assert similar.loc[("f", "f"), "pairs"] == 3 and similar.loc[("f", "g"), "pairs"] == 9
    whole = read["universality"].set_index("term").loc["rsa"]
    assert whole["within"] > whole["between"] and whole["universality"] < 1
    assert whole["universality_lower"] < whole["universality"] < whole["universality_upper"]
    assert list(read["group_tests"]["factor"]) == ["group", "kind"]


def test_universality_is_of_terms_pair_by_pair(analysis: Analysis) -> None:
    found = recipes(analysis, analysis.results())
    terms = decompose(analysis.tables, analysis.rsa)
    place = {layer: at for at, layer in enumerate(analysis.layers)}
    pairs: dict[bool, list[np.ndarray]] = {True: [], False: []}
    models = [(group, member) for group, members in GROUPS.items() for member in members]
    for at, (group, one) in enumerate(models):
        for other_group, other in models[:at]:
            both = [terms.values[:, place[one, n], place[other, n]] for n in range(2)]
            pairs[group == other_group].append(np.mean(both, axis=0))
    table = found.universality.set_index("term").loc[list(terms.names)]
    np.testing.assert_allclose(table["within"], np.mean(pairs[True], axis=0))
    np.testing.assert_allclose(table["between"], np.mean(pairs[False], axis=0))
    rows = found.universality.set_index("term")
    # All code the noun; one of three recipes does not code the length.
    assert rows.loc["noun", "universality"] == pytest.approx(1.0, abs=0.25)
    assert rows.loc["length", "between"] < 0.7 * rows.loc["length", "within"]


@pytest.mark.slow
def test_without_each_block_is_what_the_rest_gives(analysis: Analysis, store: Store) -> None:
    """The deviations are those of the intervals of RSA that are there for all layers."""
    left = stimuli_left(analysis, store, report=lambda _: None)
    bounds = layer_intervals(analysis, store, n_replicates=20)
    # Blocks are drawn with as many replicates as intervals have by default.
    assert left.without.shape[1:] == (5, 18, 18) and left.sizes == bounds.sizes
    np.testing.assert_allclose(left.without[:, :4].sum(axis=1), left.without[:, 4], atol=1e-5)


def test_a_group_of_one_speaks_of_no_other_model(given: AnalysisSpec, tmp_path: Path) -> None:
    ones = {name: members[:1] for name, members in given.groups}
    files = tuple(each for each in given.representations if each[0].endswith("0"))
    spec = replace(given, groups=ones, labels=(), representations=files)
    analysis = run(spec, Store(tmp_path), progress=False)
    found = recipes(analysis, analysis.results())
    (line,) = found.lines()
    assert "nothing of other models" in line
    assert found.profiles["lower"].isna().all() and not found.tests


@pytest.mark.slow
def test_a_capsule_has_the_groups_and_is_verified(analysis: Analysis, tmp_path: Path) -> None:
    path = capsule.write(analysis, tmp_path / "c.zip", drawing=Drawing(images=False))
    with zipfile.ZipFile(path) as archive:
        names, methods = archive.namelist(), archive.read("methods.md").decode()
    tables = ("groups", "group_similarity", "universality", "group_tests")
    assert {f"tables/{name}.csv" for name in tables} <= {*names}
    assert "f (f0, f1 and f2)" in methods and "kind" in methods
    verified = verify(path, models={})
    assert verified.same, verified.lines()


def test_labels_alone_are_tested_model_by_model(given: AnalysisSpec, tmp_path: Path) -> None:
    labels = {name: (f"kind:{name[0]}",) for name, _ in given.representations}
    spec = replace(given, groups=(), labels=labels)
    analysis = run(spec, Store(tmp_path), progress=False)
    (test,) = recipes(analysis, analysis.results()).tests
    # Recipes of three seeds each, which share more among themselves than with others.
    assert (test.factor, test.permuted, test.n) == ("kind", "models", 9)
    assert test.value > 0 and test.p < 0.05
