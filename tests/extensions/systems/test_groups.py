"""Groups of models with planted seeds: tables, closing lines, figures."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import arguments_of, for_each, in_files, words

from mlem_core import Store, run
from mlem_core.analysis.context import SelectionContext
from mlem_core.cli.commands import main
from mlem_core.extensions.systems.group_figures import (
    group_profiles,
    group_similarity,
    trajectories,
)
from mlem_core.extensions.systems.summary import TERMS_WITHOUT, GroupSummary, training_line
from mlem_core.measures.decomposition import decompose

GROUPS = {name: tuple(f"{name}{seed}" for seed in range(3)) for name in ("f", "g", "h")}


def seeds():
    """Three seeds of three groups: all code `noun`, f and g `length` too, each has noise."""
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
    assert all(f"{group} 3" in said for group in GROUPS)
    assert "over models, and sentences" in said
    read = {
        name: pd.read_csv(tmp_path / "out" / f"{name}.csv")
        for name in ("groups", "group_similarity", "universality")
    }
    groups = read["groups"]
    assert len(groups) == 3 * 2 * 3 and (groups["members"] == 3).all()
    assert (groups["lower"] <= groups["importance"]).all()
    similar = read["group_similarity"].set_index(["group_a", "group_b"])
    assert similar.loc[("f", "f"), "pairs"] == 3 and similar.loc[("f", "g"), "pairs"] == 9
    whole = read["universality"].set_index("term").loc["rsa"]
    assert whole["within"] > whole["between"] and whole["universality"] < 1
    assert whole["universality_lower"] < whole["universality"] < whole["universality_upper"]


def test_universality_is_of_terms_pair_by_pair(analysis, tmp_path):
    summary = GroupSummary.from_analysis(analysis)
    terms = decompose(analysis.pairs.moments)
    place = {layer: at for at, layer in enumerate(analysis.layers)}
    pairs: dict[bool, list[np.ndarray]] = {True: [], False: []}
    models = [(group, member) for group, members in GROUPS.items() for member in members]
    for at, (group, one) in enumerate(models):
        for other_group, other in models[:at]:
            both = [terms.values[:, place[one, n], place[other, n]] for n in range(2)]
            pairs[group == other_group].append(np.mean(both, axis=0))
    table = summary.universality.set_index("term").loc[list(terms.names)]
    np.testing.assert_allclose(table["within"], np.mean(pairs[True], axis=0))
    np.testing.assert_allclose(table["between"], np.mean(pairs[False], axis=0))
    rows = summary.universality.set_index("term")
    # All code the noun; one of three groups does not code the length.
    assert rows.loc["noun", "universality"] == pytest.approx(1.0, abs=0.25)
    assert rows.loc["length", "between"] < 0.7 * rows.loc["length", "within"]
    left = TERMS_WITHOUT.get(SelectionContext.from_analysis(analysis, Store(tmp_path)))
    over_both = replace(summary, left=left)
    assert summary.over == "models" and "sentences" in over_both.over


def test_profiles_of_groups_have_a_band_where_there_is_a_spread():
    rows = [(*one, *pair) for one, pair in product([("g", 3), ("h", 1)], product(range(3), "xy"))]
    table = pd.DataFrame(rows, columns=["group", "members", "layer", "feature"])
    table = table.assign(depth=table["layer"] / 2, importance=0.1 * table["layer"])
    half = np.where(table["group"] == "g", 0.05, np.nan)
    table = table.assign(lower=table["importance"] - half, upper=table["importance"] + half)
    figure = group_profiles(table, ["x", "y"])
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    lines = [trace for trace in figure.data if trace.fill is None]
    assert len(bands) == 2 and len(lines) == 4
    np.testing.assert_allclose(bands[0].y, [0.05, 0.15, 0.25, 0.15, 0.05, -0.05])
    np.testing.assert_allclose(lines[0].x, [0, 0.5, 1])
    assert [one.text for one in figure.layout.annotations] == ["g (n = 3)", "h (n = 1)"]


def over_training(steps):
    """Two features and ρ at some (step, seeds) of each trajectory; none of one seed has bounds."""
    rows = []
    for name, own in steps.items():
        for at, (step, seeds) in enumerate(own):
            value = 0.1 * at
            bounds = (value - 0.05, value + 0.07) if seeds > 1 else (np.nan, np.nan)
            for which in (("rho", ""), ("importance", "x"), ("importance", "y")):
                rows.append((name, step, seeds, *which, value, *bounds))
    names = ["trajectory", "step", "seeds", "quantity", "feature", "value", "lower", "upper"]
    return pd.DataFrame(rows, columns=names)


def test_trajectories_have_a_line_each_with_bands_over_seeds():
    given = over_training({"many": [(0, 3), (10, 3), (100, 3)], "one": [(10, 1), (100, 1)]})
    figure = trajectories(given, ["x", "y"])
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    lines = [trace for trace in figure.data if trace.fill is None]
    assert len(bands) == 3 and len(lines) == 6
    np.testing.assert_allclose(bands[1].y[:3], [0.07, 0.17, 0.27])
    np.testing.assert_allclose(lines[1].x, np.log10([1, 2, 11]))
    np.testing.assert_allclose(lines[1].y, [0, 0.1, 0.2])
    assert "step 10" in lines[1].hovertext[1] and " to " in lines[1].hovertext[1]
    # A band crosses no step without an interval.
    broken = over_training({"t": [(1, 3), (10, 3), (100, 1), (1000, 3)]})
    bands = [trace for trace in trajectories(broken, ["x", "y"]).data if trace.fill]
    assert len(bands) == 3 and {len(trace.x) for trace in bands} == {4}


def test_the_matrix_of_groups_has_every_pair_once_with_its_interval():
    rows = [("g", "g", 3, 0.9, 0.8, 0.95), ("g", "h", 3, -0.2, -0.5, 0.1)]
    rows.append(("h", "h", 0, np.nan, np.nan, np.nan))
    columns = ["group_a", "group_b", "pairs", "rsa", "lower", "upper"]
    figure = group_similarity(pd.DataFrame(rows, columns=columns))
    (heatmap,) = figure.data
    np.testing.assert_allclose(heatmap.z, [[0.9, np.nan], [-0.2, np.nan]])
    ((one, above), (other, alone)) = heatmap.text
    assert ".90" in one and ".80 to .95" in one and "−.20" in other and not above and not alone
    assert "3 pairs of members" in heatmap.hovertext[1][0] and "−.500" in heatmap.hovertext[1][0]


SEEDS = [f"{seed}@step{step}" for step in (0, 10) for seed in ("s0", "s1", "s2")]


@for_each(
    "members, parts",
    (["s0@step0", "s0@step9"], ["one run (s0), so results do not extend to other runs."]),
    (SEEDS, ["3 seeds a step (s0, s1 and s2); 95 % CI over seeds, where there are two."]),
    (SEEDS[1:], ["2 to 3 seeds a step", "seeds differ between steps, so a change may be due"]),
    (["a@random", "a@2"], ["one run (a)", "step 0 has random weights."]),
)
def test_of_a_trajectory_it_is_said_what_varies(members, parts):
    line = training_line("x", members, "seeds")
    assert not [part for part in parts if part not in line]
