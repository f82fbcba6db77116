"""Groups and trajectories of models: planted truths, levels, and formulas by hand."""

import itertools

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, finished, in_files, words
from scipy.stats import t, ttest_1samp

from mlem_core.cli.commands import main
from mlem_core.groups.members import within_and_between
from mlem_core.groups.mrqap import mrqap, same_label, too_few
from mlem_core.groups.profiles import estimate, mean_estimate
from mlem_core.groups.summary import GroupSummary
from mlem_core.inference.intervals import Left
from mlem_core.inference.layer_intervals import layer_intervals
from mlem_core.inference.resample import standard_error
from mlem_core.storage.store import Store
from validation.mrqap import labelled, similarities, symmetric
from validation.populations import TRUTH, drawn


def trajectories(analysis, bounds=None):
    return GroupSummary(analysis, analysis.results(), bounds=bounds).trajectories


@pytest.mark.parametrize("n_members", [3, 5])
def test_intervals_hold_the_planted_truth(n_members):
    """Of within, between and universality, in at least 9 of 10."""
    rng, hits, n = np.random.default_rng(0), np.zeros(3), 80
    for _ in range(n):
        matrix, stimuli, group_of = drawn(rng, n_members)
        one = estimate(within_and_between, matrix, group_of, stimuli, n_replicates=100)
        hits += (one.lower[0] <= TRUTH) & (one.upper[0] >= TRUTH)
    assert (hits / n >= 0.9).all()


def test_the_size_is_that_of_members_and_blocks_left_out():
    """By t with Welch's degrees of freedom, written out, where draws are symmetric enough."""
    matrix, stimuli, group_of = drawn(np.random.default_rng(1), 4)
    whole = estimate(within_and_between, matrix, group_of, stimuli, n_replicates=2000)
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
    left = within_and_between(stimuli.without, group_of)[:, 0, :2]
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


def least_squares(y, columns):
    """The first column's coefficient and its t, by NumPy's least squares."""
    x = np.column_stack([*columns, np.ones(len(y))])
    solved = np.linalg.lstsq(x, y, rcond=None)[0]
    variance = ((y - x @ solved) ** 2).sum() / (len(y) - x.shape[1])
    return solved[0], solved[0] / np.sqrt(variance * np.linalg.inv(x.T @ x)[0, 0])


def brute_force(similarity, factors, name, of_each=()):
    """Coefficient, t and p over all orders of the models that leave the other factors as they are.

    Where the factor is the same in all of another's labels, these are whole groups that move.
    """
    n, same = len(similarity), {key: same_label(labels) for key, labels in factors.items()}
    orders = np.array(list(itertools.permutations(range(n))))
    upper = np.triu_indices(n, 1)
    others = [square for key, square in same.items() if key != name]
    for other in others:
        moved = other[orders[:, upper[0]], orders[:, upper[1]]]
        orders = orders[(moved == other[upper]).all(axis=1)]
    rest = [*(other[upper] for other in others), *of_each[:-1]]
    value, t = least_squares(similarity[upper], [same[name][upper], *rest])
    moved = np.unique(same[name][orders[:, upper[0]], orders[:, upper[1]]], axis=0)
    found = [abs(least_squares(similarity[upper], [one, *rest])[1]) for one in moved]
    return value, t, float(np.mean(np.array(found) >= abs(t) - 1e-9)), 1 / len(moved)


@pytest.mark.parametrize(
    ("kind", "objective"),
    # Unbalanced; partly nested, where two kinds of one model each exchange their objectives.
    [("aaaaabbb", "xxyyyxyx"), ("aaaabbcd", "xyzxxyyx")],
)
def test_models_that_agree_on_the_other_factors_exchange_labels(kind, objective):
    factors = {"objective": list(objective), "kind": list(kind)}
    similarity = symmetric(np.random.default_rng(1), 8)
    found = mrqap(similarity, factors)[0][0]
    assert found[1:5] == pytest.approx(brute_force(similarity, factors, "objective"))
    assert (found.permuted, found.n) == ("models", 8) and not too_few(found)


def test_groups_permuted_as_a_whole():
    """The mean over the models of each two groups stands for them, and is what is regressed."""
    factors = {"group": list("aabbccddeeeff"), "objective": list("xxyyxxzzyyyxx")}
    similarity = symmetric(np.random.default_rng(1), 13)
    group, objective = mrqap(similarity, factors, n_permutations=99)[0]
    belongs = np.array([[one == of for one in factors["group"]] for of in "abcdef"], dtype=float)
    means = belongs @ similarity @ belongs.T / np.outer(belongs.sum(axis=1), belongs.sum(axis=1))
    upper = np.triu_indices(6, 1)
    of_each = [(upper[0] == at) | (upper[1] == at) for at in range(6)]  # one is three models
    expected = brute_force(means, {"objective": list("xyxzyx")}, "objective", of_each)
    assert objective[1:5] == pytest.approx(expected)
    assert (objective.permuted, objective.n) == ("groups", 6)
    # Only models of the same objective exchange their groups.
    assert (group.permuted, group.n, group.n_permutations) == ("groups", 12, 100)


def test_random_orders_come_near_to_all_of_them(monkeypatch):
    factors = {"family": list("aaabbbccc"), "objective": list("xyxyyxyxx")}
    similarity = symmetric(np.random.default_rng(2), 9) + 0.3 * same_label(factors["family"])
    exact = mrqap(similarity, factors)[0]
    monkeypatch.setattr("mlem_core.groups.mrqap.EXACT", 3)
    drawn = mrqap(similarity, factors)[0]
    assert [test.n_permutations for test in (*exact, *drawn)] == [120 * 24, 6**3, 10000, 10000]
    for one, other in zip(exact, drawn, strict=True):
        assert other.p == pytest.approx(one.p, abs=0.02)
        assert other.smallest == pytest.approx(one.smallest)


@pytest.mark.parametrize(
    ("labels", "smallest", "few"),
    # 3! 3! 2 of 6! orders leave the labels as they are.
    [("xxxyyy", 0.1, True), ("xxxxyyyy", 2 / 70, False)],
)
def test_too_few_models_are_said_to_be(labels, smallest, few):
    similarity = symmetric(np.random.default_rng(3), len(labels))
    (test,), _ = mrqap(similarity, {"objective": list(labels)})
    assert test.smallest == pytest.approx(smallest) and bool(too_few(test)) == few
    assert np.isnan(test.p) == few


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        ({"f": "xxxxx"}, ["'f'", "the same label"]),
        ({"f": "abcde"}, ["'f'", "another label"]),
        ({"f": "xxyyy", "g": "aabbb"}, ["f and g", "separated"]),
        ({"f": "xyy"}, ["3 models"]),
    ],
)
def test_what_cannot_be_tested_is_refused(labels, facts):
    similarity = symmetric(np.random.default_rng(0), len(labels["f"]))
    tests, notes = mrqap(similarity, {name: list(each) for name, each in labels.items()})
    assert not tests and all(fact in note for fact in facts for note in notes)


def rejected(effect, design, n):
    """How often the objective is found beside a family that has an effect."""
    rng, count = np.random.default_rng(0), 0
    factors, group_of = labelled(design)
    for _ in range(n):
        tests, _ = mrqap(similarities(rng, factors, group_of, effect), factors, n_permutations=199)
        count += tests[list(factors).index("objective")].p <= 0.05
    return count / n


@pytest.mark.slow
@pytest.mark.parametrize("design", ["crossed", "nested", "partly"])
def test_the_level_holds_beside_a_planted_family_and_an_objective_is_found(design):
    assert 0.02 <= rejected(0.0, design, n=600) <= 0.07
    assert rejected(0.3, design, n=60) > 0.8


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
    table = trajectories(analysis)
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
    bounds = layer_intervals(analysis, Store(tmp_path), n_replicates=20)
    both = GroupSummary(analysis, analysis.results(), bounds=bounds)
    assert both.over_seeds == "seeds, and sentences and words"
    seeds = trajectories(analysis)
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
    table = trajectories(analysis)
    pd.testing.assert_frame_equal(
        read[["value", "lower"]], table.loc[table["trajectory"] == "three", ["value", "lower"]]
    )
