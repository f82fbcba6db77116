"""Groups of models: pairs and warping paths one by one, depths matched by hand."""

import itertools

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import arguments_of, in_files, words
from scipy import stats

from mlem_core import Store, run
from mlem_core.cli.commands import main
from mlem_core.extensions.systems.group_spec import GroupOptions
from mlem_core.extensions.systems.mean_profiles import mean_profiles
from mlem_core.extensions.systems.model_groups import (
    Members,
    best_match_distances,
    group_means,
    group_similarities,
    model_similarity,
    warped_distance,
    warping_path,
)
from mlem_core.extensions.systems.summary import GroupSummary

GROUPS = (("g", ("a0", "a1", "a2")), ("h", ("b0", "gone", "b1")))
LAYERS = [(model, n) for model in ("b0", "a0", "a1", "c", "a2", "b1") for n in range(4)]


def members(groups=GROUPS, layers=LAYERS):
    models = list(dict.fromkeys(model for model, _ in layers))
    return Members.from_table(GroupOptions(groups=groups).models_table(models), layers)


def symmetric(rng, *shape):
    values = rng.standard_normal(shape)
    return (values + np.swapaxes(values, -1, -2)) / 2


def test_models_stand_in_their_groups_and_the_others_alone():
    found = members()
    assert found.groups == ("g", "h", "c")
    assert found.members == ("a0", "a1", "a2", "b0", "b1", "c")
    assert found.group_of.tolist() == [0, 0, 0, 1, 1, 2] and found.sizes.tolist() == [3, 2, 1]
    for member, places in zip(found.members, found.places, strict=True):
        assert [LAYERS[at] for at in places] == [(member, n) for n in range(4)]


def test_layers_of_models_of_different_depth_are_matched_by_relative_depth():
    layers = [("s", n) for n in range(3)] + [("l", n) for n in (6, 0, 1, 2, 3, 4, 5)]
    found = members((), layers)
    first, second = found.matched(0, 1)
    assert [layers[at] for at in first] == [("s", 0), ("s", 1), ("s", 2)]
    assert [layers[at] for at in second] == [("l", 0), ("l", 3), ("l", 6)]
    assert [list(each) for each in found.matched(1, 0)] == [list(second), list(first)]
    # Between two that are as near the lower one.
    two = members((), [("s", 0), ("s", 1), ("s", 2), *(("l", n) for n in range(4))])
    assert two.matched(0, 1)[1].tolist() == [3, 4, 6]


def test_similarities_of_models_are_means_over_pairs_of_layers():
    rng, found = np.random.default_rng(0), members()
    squares = symmetric(rng, 3, len(LAYERS), len(LAYERS))
    depth = model_similarity(squares, found)
    place = {layer: at for at, layer in enumerate(LAYERS)}
    for (i, a), (j, b) in itertools.combinations(enumerate(found.members), 2):
        same = [squares[:, place[a, n], place[b, n]] for n in range(4)]
        np.testing.assert_allclose(depth[:, i, j], np.mean(same, axis=0))
    np.testing.assert_allclose(depth, np.swapaxes(depth, 1, 2))
    assert np.isnan(depth[:, range(6), range(6)]).all()


def test_mean_profiles_have_the_t_interval_over_members():
    rng, found = np.random.default_rng(1), members()
    importance = rng.standard_normal((len(LAYERS), 2))
    table = mean_profiles(found, LAYERS, np.c_[np.zeros(len(LAYERS)), importance], ["x", "y"])
    table = table[(table["quantity"] == "importance") & table["layer"].notna()]
    assert len(table) == 3 * 4 * 2
    for row in table.itertuples():
        names = [m for name, ms in (*GROUPS, ("c", ("c",))) if name == row.group for m in ms]
        column = ["x", "y"].index(row.feature)
        own = [importance[LAYERS.index((m, row.layer)), column] for m in names if m != "gone"]
        assert row.members == len(own) and row.depth == pytest.approx(row.layer / 3)
        assert row.value == pytest.approx(np.mean(own))
        if len(own) == 1:
            assert np.isnan(row.lower) and np.isnan(row.upper)
        else:
            bounds = stats.ttest_1samp(own, 0).confidence_interval(0.95)
            assert (row.lower, row.upper) == pytest.approx((bounds.low, bounds.high))


def test_profiles_of_members_of_different_depth_stand_at_those_of_the_shallowest():
    layers = [("l", n) for n in range(5)] + [("s", n) for n in range(3)]
    values = members((("g", ("l", "s")),), layers).member_profiles(0, np.arange(8.0)[:, None])
    assert values[:, :, 0].tolist() == [[0, 2, 4], [5, 6, 7]]


@pytest.mark.parametrize(
    "weights", [None, [2, 0, 1, 1, 1, 1], [1, 2, 3, 0, 2, 1], [3, 0, 0, 2, 0, 1]]
)
def test_means_of_pairs_one_by_one(weights):
    """Draws are written out member by member; two copies of one are no pair."""
    group_of = members().group_of
    matrix = symmetric(np.random.default_rng(2), 2, 6, 6)
    np.einsum("kii->ki", matrix)[:] = np.nan
    drawn = np.repeat(np.arange(6), weights or np.ones(6, dtype=int))
    pairs = [(i, j) for i, j in itertools.combinations(drawn, 2) if i != j]
    given = None if weights is None else np.array(weights, dtype=float)
    means = group_means(matrix, group_of, given)
    found = np.moveaxis(group_similarities(matrix, group_of, given), -1, 0)

    def mean(wanted):
        own = [matrix[:, i, j] for i, j in pairs if wanted(group_of[i], group_of[j])]
        return np.mean(own, axis=0) if own else np.full(2, np.nan)

    for g, h in itertools.product(range(3), repeat=2):
        np.testing.assert_allclose(means[:, g, h], mean(lambda i, j, g=g, h=h: {i, j} == {g, h}))
    # Each group, and each two, count as the pairs of all of their members.
    size = np.bincount(group_of)
    same = {(g, g): size[g] * (size[g] - 1) / 2 for g in range(3) if size[g] > 1}
    other = {(g, h): size[g] * size[h] for g, h in itertools.combinations(range(3), 2)}
    within, between = (
        sum(n * means[:, g, h] for (g, h), n in each.items()) / sum(each.values())
        for each in (same, other)
    )
    if weights is None:
        np.testing.assert_allclose(within, mean(lambda i, j: i == j))
        np.testing.assert_allclose(between, mean(lambda i, j: i != j))
    with np.errstate(invalid="ignore"):
        ratio = np.where(within > 0, between / within, np.nan)
    np.testing.assert_allclose(found, [within, between, ratio])


def test_without_two_members_of_a_group_there_is_no_universality():
    within, between, ratio = group_similarities(np.ones((3, 3)), np.arange(3))
    assert np.isnan(within) and between == 1 and np.isnan(ratio)


def by_every_path(one, other):
    """The least cost of all warping paths, a diagonal step counting twice, over n + m."""

    def costs(i, j):
        cost = np.linalg.norm(one[i] - other[j])
        if i == j == 0:
            yield cost
        for di, dj in ((1, 0), (0, 1), (1, 1)):
            if di <= i and dj <= j:
                yield from (before + (di + dj) * cost for before in costs(i - di, j - dj))

    return min(costs(len(one) - 1, len(other) - 1)) / (len(one) + len(other))


@pytest.mark.parametrize(("n", "m"), [*itertools.product((1, 2, 5), (1, 4))])
def test_it_is_the_least_of_all_warping_paths(n, m):
    rng = np.random.default_rng(n * m)
    one, other = rng.random((3, n, 2)), rng.random((3, m, 2))
    found = warped_distance(one, other)
    np.testing.assert_allclose(
        found, [by_every_path(a, b) for a, b in zip(one, other, strict=True)]
    )
    np.testing.assert_allclose(warped_distance(other, one), found)
    path = warping_path(one[0], other[0])
    steps = np.diff(path, axis=0, prepend=0).sum(axis=1)
    steps[0] = 1
    cost = np.linalg.norm(one[0][path[:, 0]] - other[0][path[:, 1]], axis=1)
    assert path[-1].tolist() == [n - 1, m - 1]
    assert (steps * cost).sum() / (n + m) == pytest.approx(found[0])
    # Layers that are there twice are no distance.
    assert warped_distance(one[0], one[0].repeat(3, axis=0)) == 0


@pytest.mark.slow
def test_an_analysis_writes_the_distances_of_its_models(tmp_path, monkeypatch):
    table, rng = words(), np.random.default_rng(0)
    noun = (table["noun"].to_numpy() - 0.5)[:, None]
    # Of "near" each layer stands twice in "twice"; "far" has the feature in its last layer only.
    strength = {"near": (3, 1, 0), "twice": (3, 3, 1, 1, 0, 0), "far": (0, 0, 3)}
    noise = rng.standard_normal((3, len(table), 4))
    layers = {
        name: {n: size * noun + noise[n * 3 // len(own)] for n, size in enumerate(own)}
        for name, own in strength.items()
    }
    spec = in_files(tmp_path, table, layers, folds=3)
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    arguments = ["analyze", *arguments_of(spec), "--folds", "3", "--out", str(out)]
    assert main([*arguments, "--bootstrap", "100"]) == 0
    found = pd.read_csv(out / "system_distances.csv")
    columns = ["measure", "system", "other", "distance", "lower", "upper", "cross_validated"]
    assert list(found) == columns
    apart = found.set_index(["measure", "system", "other"])
    profiles = apart.loc["profiles"]
    assert profiles.loc[("near", "twice"), "distance"] == pytest.approx(0, abs=1e-9)
    assert profiles.loc[("near", "far"), "lower"] > 0
    assert (found["lower"] <= found["distance"] + 1e-12).all() and found["upper"].notna().all()
    assert set(found["measure"]) == {"profiles", "rsa", "best_match"}

    analysis = run(spec, Store(tmp_path / "cache"))
    importance = analysis.results().importance
    of = {
        key: own.pivot(index="layer", columns="feature", values="importance").to_numpy()
        for key, own in importance.groupby(["model", "fold"])
    }
    folds = [by_every_path(of["near", k], of["far", k]) for k in range(3)]
    assert profiles.loc[("near", "far"), "distance"] == pytest.approx(np.mean(folds))
    rsa = analysis.results().similarity_rsa
    same_depth = [rsa.loc[f"near:{n}", f"far:{n}"] for n in range(3)]
    assert apart.loc[("rsa", "near", "far"), "distance"] == pytest.approx(1 - np.mean(same_depth))
    best = apart.loc[("best_match", "near", "far")]
    assert 0 < best["distance"] < 1 and best["lower"] < best["upper"]


def test_the_best_match_is_chosen_in_the_other_half():
    rng, found = np.random.default_rng(3), members(())
    halves = symmetric(rng, 3, 2, len(LAYERS), len(LAYERS))
    best = best_match_distances(halves, found, halves.mean(axis=(0, 1))).values
    matched = []
    a, b = found.places[0], found.places[1]
    for draw, half, (one, other) in itertools.product(range(3), (0, 1), ((a, b), (b, a))):
        for layer in one:
            at = max(other, key=lambda place, at=layer: halves[draw, 1 - half, at, place])
            matched.append(halves[draw, half, layer, at])
    assert best[0, 1] == pytest.approx(1 - np.mean(matched))


def test_with_permuted_stimuli_the_best_match_is_no_similarity():
    rng, one = np.random.default_rng(0), members(GROUPS[:1])
    found = []
    for _ in range(20):
        noise = rng.standard_normal((4, 2, len(LAYERS), 30))
        halves = np.stack([[np.corrcoef(half) for half in draw] for draw in noise])
        found.append(best_match_distances(halves, one, halves.mean(axis=(0, 1))).values[0, 1:])
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - 1) < 3 * error and error < 0.02


@pytest.mark.slow
def test_profiles_are_as_far_apart_by_chance_as_with_permuted_stimuli(tmp_path):
    table, rng = words(), np.random.default_rng(1)
    noun = (table["noun"].to_numpy() - 0.5)[:, None]
    sizes = {"a": (3, 2, 1), "b": (1, 2, 3, 4)}
    layers = {
        name: {n: size * noun + rng.standard_normal((len(table), 4)) for n, size in enumerate(own)}
        for name, own in sizes.items()
    }
    order = rng.permutation(len(table))
    layers |= {
        f"{name} permuted": {n: own[order] for n, own in layers[name].items()} for name in sizes
    }
    analysis = run(in_files(tmp_path, table, layers, folds=3), Store(tmp_path / "cache"))
    summary = GroupSummary.from_analysis(analysis)
    at = {name: place for place, name in enumerate(summary.systems.members)}
    values, _, _, chance, _ = summary.distances["profiles"]
    permuted = [values[at["a"], at["b permuted"]], values[at["a permuted"], at["b"]]]
    assert chance[at["a"], at["b"]] == pytest.approx(np.mean(permuted), rel=0.1)
    assert values[at["a"], at["b"]] < chance[at["a"], at["b"]]
