"""Groups and trajectories of models: planted truths, and formulas by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import arguments_of, finished, in_files, words
from scipy.stats import t, ttest_1samp

from mlem_core.analysis.context import SelectionContext
from mlem_core.cli.commands import main
from mlem_core.extensions.systems.mean_profiles import estimate
from mlem_core.extensions.systems.model_groups import group_similarities
from mlem_core.extensions.systems.summary import GroupSummary
from mlem_core.inference.group_means import mean_estimate
from mlem_core.inference.intervals import Left
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.inference.resample import standard_error
from mlem_core.storage.store import Store
from validation.populations import TRUTH, drawn


@pytest.mark.parametrize("n_members", [3, 5])
def test_intervals_hold_the_planted_truth(n_members):
    """Of within, between and universality, in at least 9 of 10."""
    rng, hits, n = np.random.default_rng(0), np.zeros(3), 80
    for _ in range(n):
        matrix, stimuli, group_of = drawn(rng, n_members)
        one = estimate(group_similarities, matrix, group_of, stimuli, n_replicates=100)
        hits += (one.lower[0] <= TRUTH) & (one.upper[0] >= TRUTH)
    assert (hits / n >= 0.9).all()


def test_the_size_is_that_of_members_and_blocks_left_out():
    """By t with Welch's degrees of freedom, written out, where draws are symmetric enough."""
    matrix, stimuli, group_of = drawn(np.random.default_rng(1), 4)
    whole = estimate(group_similarities, matrix, group_of, stimuli, n_replicates=2000)
    width = (whole.upper - whole.lower)[0, :2]
    kinds_of_pairs = [(g, h) for g in range(3) for h in range(g, 3)]
    same = np.array([g == h for g, h in kinds_of_pairs])

    def without(member):
        """Means within and between groups of all pairs that do not have the member."""
        means = []
        for pair in kinds_of_pairs:
            own = [
                matrix[0, i, j]
                for i in range(12)
                for j in range(i)
                if member not in (i, j) and {group_of[i], group_of[j]} == set(pair)
            ]
            means.append(np.mean(own))
        return np.array(means)[same].mean(), np.array(means)[~same].mean()

    variances, freedom = [], []
    for group in range(3):
        values = [without(member) for member in np.flatnonzero(group_of == group)]
        variances.append(3 * np.var(values, axis=0))
        freedom.append(3)
    left = group_similarities(stimuli.without, group_of)[:, 0, :2]
    variances.append(standard_error(left, stimuli.sizes) ** 2)
    freedom.append(49)
    total = np.sum(variances, axis=0)
    degrees = total**2 / sum(v**2 / f for v, f in zip(variances, freedom, strict=True))
    np.testing.assert_allclose(width, 2 * np.sqrt(total) * t.ppf(0.975, degrees), rtol=0.1)


def test_the_interval_of_a_mean_profile():
    rng = np.random.default_rng(4)
    values = rng.standard_normal((4, 3))
    alone = mean_estimate(values)
    bounds = ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(np.stack(alone[1:3]), np.stack((bounds.low, bounds.high)))
    still = mean_estimate(values, Left(np.repeat(values[None], 20, axis=0), (20,)))
    np.testing.assert_allclose(np.stack(still[:3]), np.stack(alone[:3]))
    moved = values + rng.standard_normal((20, 1, 3))
    assert (mean_estimate(values, Left(moved, (20,))).upper > alone.upper).all()
    assert np.isnan(mean_estimate(values[:1]).lower).all()


SEEDS = ("s0", "s1", "s2")
MEMBERS = tuple(f"{seed}@step{step}" for step in (0, 10, 100) for seed in SEEDS)


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
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


def explicit(analysis, step, feature):
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


def test_means_and_intervals_are_those_of_the_seeds(analysis):
    table = GroupSummary.from_analysis(analysis).trajectories
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


@pytest.mark.slow
def test_stimuli_make_intervals_wider_and_leave_one_seed_without(analysis, tmp_path):
    bounds = LAYER_INTERVALS.get(SelectionContext.from_analysis(analysis, Store(tmp_path)))
    alone = GroupSummary.from_analysis(analysis)
    both = replace(alone, bounds=bounds)
    assert both.seed_units == "seeds, and sentences and words"
    seeds = alone.trajectories
    width = [one["upper"] - one["lower"] for one in (seeds, both.trajectories)]
    known = seeds["seeds"] > 1
    # Degrees of freedom of both together are more than those of three seeds.
    assert width[1][known].notna().all() and width[1][~known].isna().all()
    variance = seeds["sd"] ** 2 / 3
    freedom_of_all = t.ppf(0.975, 1000)
    assert (width[1][known] / 2 >= freedom_of_all * variance[known] ** 0.5).all()


def test_the_command_line_writes_the_table(analysis, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "store"))
    given = ["analyze", *arguments_of(analysis.spec), "--out", str(tmp_path / "out")]
    assert main([*given, "--trajectory", f"three={','.join(MEMBERS)}"]) == 0
    assert "three: 3 steps (0 to 100), 3 seeds" in capsys.readouterr().out
    read = pd.read_csv(tmp_path / "out" / "trajectories.csv")
    table = GroupSummary.from_analysis(analysis).trajectories
    pd.testing.assert_frame_equal(
        read[["value", "lower"]], table.loc[table["trajectory"] == "three", ["value", "lower"]]
    )
