"""Trajectories over training: tables against explicit means, and on a planted course."""

from __future__ import annotations

import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, finished, in_files, words
from scipy.stats import t

from mlem_core.analysis.analysis import Analysis
from mlem_core.cli.commands import main
from mlem_core.inference.all_layers import layer_intervals
from mlem_core.inference.trajectories import trajectories
from mlem_core.measures.trajectories import nearest_depth
from mlem_core.report import capsule
from mlem_core.report.figures import Drawing
from mlem_core.report.verify import verify
from mlem_core.storage.store import Store

SEEDS = ("s0", "s1", "s2")
MEMBERS = tuple(f"{seed}@step{step}" for step in (0, 10, 100) for seed in SEEDS)


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Three seeds at three steps: `noun` is learned between the last two, `length` at once.

    A seed has a layer more than the others.
    """
    folder, table, rng = tmp_path_factory.mktemp("steps"), words(), np.random.default_rng(0)
    noun = (table["noun"].to_numpy() - 0.5) * 3
    length = table["length"].to_numpy(dtype=float)
    made = {}
    for name in MEMBERS:
        step = int(name.rpartition("step")[2])
        coded = np.column_stack([noun * (step > 10), length * (step > 0)])
        layers = 3 if name.startswith("s2") else 2
        made[name] = {n: coded + rng.standard_normal(coded.shape) for n in range(layers)}
    named = {"three": MEMBERS, "one": [name for name in MEMBERS if name.startswith("s0")]}
    return finished(folder, in_files(folder, table, made, trajectories=named), made).analysis


def explicit(analysis: Analysis, step: int, feature: str) -> np.ndarray:
    """(3 seeds, 3) importance in the first layer, the last, and their mean; loops alone."""
    table = analysis.results().importance
    rows = []
    for seed in SEEDS:
        own = table[(table["model"] == f"{seed}@step{step}") & (table["feature"] == feature)]
        by = own.groupby("layer")["importance"].mean()
        # Depths 0 and 1: the first and the last layer of each.
        two = [by.iloc[0], by.iloc[-1]]
        rows.append([*two, sum(two) / 2])
    return np.array(rows)


def test_means_and_intervals_are_those_of_the_seeds(analysis: Analysis) -> None:
    table = trajectories(analysis, analysis.results()).table
    three = table[(table["trajectory"] == "three") & (table["quantity"] == "importance")]
    assert len(three) == 3 * 3 * 3 and (three["seeds"] == 3).all()
    for (step, feature), own in three.groupby(["step", "feature"]):
        values = explicit(analysis, int(step), str(feature))
        np.testing.assert_allclose(own["value"], values.mean(axis=0))
        np.testing.assert_allclose(own["sd"], values.std(axis=0, ddof=1))
        for column, (low, high) in enumerate(zip(own["lower"], own["upper"], strict=True)):
            mean, sd = values[:, column].mean(), values[:, column].std(ddof=1)
            bounds = mean + np.array([-1, 1]) * t.ppf(0.975, 2) * sd / 3**0.5
            np.testing.assert_allclose((low, high), bounds, atol=1e-12)
        assert list(own["layer"].fillna(-1)) == [0, 1, -1]
    one = table[table["trajectory"] == "one"]
    assert one[["sd", "lower", "upper"]].isna().all(axis=None) and (one["seeds"] == 1).all()


def test_what_is_learned_when_is_found(analysis: Analysis) -> None:
    table = nearest_depth(trajectories(analysis, analysis.results()).table, None)
    three = table[table["trajectory"] == "three"].set_index(["feature", "step"])
    lower, upper = three["lower"], three["upper"]
    assert lower["length", 10] > upper["length", 0]
    assert lower["noun", 100] > upper["noun", 10] and abs(three["value"]["noun", 10]) < 0.05
    # The position is in no checkpoint.
    assert (three["value"]["position"].abs() < 0.05).all()
    score = three["value"][""]
    assert score[0] < 0.1 < score[10] < score[100]


def test_a_depth_is_the_layer_nearest_to_it(analysis: Analysis) -> None:
    table = trajectories(analysis, analysis.results()).table
    assert set(nearest_depth(table, 0.9)["layer"]) == {1}
    assert set(nearest_depth(table, 0.5)["layer"]) == {0}
    assert nearest_depth(table, None)["layer"].isna().all()


def test_stimuli_make_intervals_wider_and_leave_one_seed_without(analysis, tmp_path) -> None:
    bounds = layer_intervals(analysis, Store(tmp_path), n_replicates=20)
    results = analysis.results()
    seeds, both = (trajectories(analysis, results, bounds=b) for b in (None, bounds))
    assert seeds.over == "seeds" and both.over == "seeds, and sentences and words"
    width = [one.table["upper"] - one.table["lower"] for one in (seeds, both)]
    known = seeds.table["seeds"] > 1
    # Degrees of freedom of both together are more than those of three seeds.
    assert width[1][known].notna().all() and width[1][~known].isna().all()
    variance = seeds.table["sd"] ** 2 / 3
    freedom_of_all = t.ppf(0.975, 1000)
    assert (width[1][known] / 2 >= freedom_of_all * variance[known] ** 0.5).all()


def test_what_is_too_little_for_a_trajectory_or_an_interval(analysis: Analysis) -> None:
    layers = [layer for layer in analysis.layers if layer[0].endswith("step0")]
    selection = analysis.select(layers=layers)
    found = trajectories(analysis, analysis.results_of(selection), selection)
    assert not found.members and not found.lines() and found.table.empty
    # Seeds are counted step by step.
    own = replace(analysis.spec, trajectories={"x": (*MEMBERS[:3], "s1@step10", "s0@step100")})
    table = trajectories(replace(analysis, spec=own), analysis.results()).table
    assert list(table.groupby("step")["seeds"].first()) == [3, 1, 1]
    assert set(table.loc[table["lower"].notna(), "step"]) == {0}


def test_the_command_line_writes_the_table(analysis, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    given = ["analyze", *arguments_of(analysis.spec), "--out", str(tmp_path / "out")]
    assert main([*given, "--trajectory", f"three={','.join(MEMBERS)}"]) == 0
    assert "three: 3 steps of training (0 to 100), 3 seeds" in capsys.readouterr().out
    read = pd.read_csv(tmp_path / "out" / "trajectories.csv")
    table = trajectories(analysis, analysis.results()).table
    pd.testing.assert_frame_equal(
        read[["value", "lower"]], table.loc[table["trajectory"] == "three", ["value", "lower"]]
    )


@pytest.mark.slow
def test_a_capsule_has_the_table_and_the_members(analysis, tmp_path) -> None:
    path = capsule.write(analysis, tmp_path / "c.zip", drawing=Drawing(images=False))
    with zipfile.ZipFile(path) as archive:
        assert "tables/trajectories.csv" in archive.namelist()
        assert "three (s0@step0" in archive.read("methods.md").decode()
    verified = verify(path, models={})
    assert verified.same, verified.lines()
