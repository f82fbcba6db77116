"""Groups of models from the command line to their tables, on planted seeds of recipes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, in_files, words

from mlem_core.analysis.run import run
from mlem_core.cli.commands import main
from mlem_core.inference.layer_intervals import stimuli_left
from mlem_core.inference.recipes import recipes
from mlem_core.measures.decomposition import decompose
from mlem_core.storage.store import Store

GROUPS = {name: tuple(f"{name}{seed}" for seed in range(3)) for name in ("f", "g", "h")}


def seeds():
    """Three seeds of three recipes: all code `noun`, f and g `length` too, each has noise."""
    table, rng = words(), np.random.default_rng(0)
    noun = (table["noun"].to_numpy() - 0.5) * 3
    length = table["length"].to_numpy(dtype=float)
    found = {}
    for group, members in GROUPS.items():
        own = rng.standard_normal((len(table), 3)) * 2
        coded = np.column_stack((noun, length * (group != "h"), own))
        for member in members:
            noise = rng.standard_normal((2, *own.shape)) @ np.eye(3, 5, 2)
            found[member] = dict(enumerate(coded + noise))
    return found


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    labels = {"f": ("kind:x",), "g": ("kind:x",), "h": ("kind:y",)}
    return in_files(folder, words(), seeds(), groups=GROUPS, labels=labels)


@pytest.fixture(scope="module")
def analysis(given, tmp_path_factory):
    return run(given, Store(tmp_path_factory.mktemp("groups")), progress=False)


@pytest.mark.slow
def test_tables_and_closing_lines(given, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    groups = [f"--group={name}={','.join(members)}" for name, members in given.groups]
    labels = ["--label=f=kind:x", "--label=g=kind:x", "--label=h=kind:y"]
    asked = ["analyze", *arguments_of(given), *groups, *labels, f"--out={tmp_path / 'out'}"]
    assert main([*asked, "--bootstrap=20"]) == 0
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


def test_universality_is_of_terms_pair_by_pair(analysis, tmp_path):
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
    left = stimuli_left(analysis, Store(tmp_path), report=lambda _: None)
    over_both = recipes(analysis, analysis.results(), left=left)
    assert found.over == "models" and "sentences" in over_both.over


def test_labels_alone_are_tested_model_by_model(given, tmp_path):
    labels = {name: (f"kind:{name[0]}",) for name, _ in given.representations}
    spec = replace(given, groups=(), labels=labels)
    analysis = run(spec, Store(tmp_path), progress=False)
    (test,) = recipes(analysis, analysis.results()).tests
    # Recipes of three seeds each, which share more among themselves than with others.
    assert (test.factor, test.permuted, test.n) == ("kind", "models", 9)
    assert test.value > 0 and test.p < 0.05
