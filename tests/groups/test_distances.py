"""Distances of systems: every warping path one by one, planted depths, an analysis by hand."""

import itertools

import numpy as np
import pandas as pd
import pytest
from inputs import arguments_of, in_files, words

from mlem_core import Store, run
from mlem_core.cli.commands import main
from mlem_core.groups.system_distances import warped_distance


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
    assert list(found) == ["measure", "system", "other", "distance", "lower", "upper"]
    apart = found.set_index(["measure", "system", "other"])
    profiles = apart.loc["profiles"]
    assert profiles.loc[("near", "twice"), "distance"] == pytest.approx(0, abs=1e-9)
    assert profiles.loc[("near", "far"), "lower"] > 0
    bounded = found[found["measure"] != "s_feat"]
    assert (bounded["lower"] <= bounded["distance"] + 1e-12).all() and bounded[
        "upper"
    ].notna().all()
    assert apart.loc[("s_feat", "near", "twice"), "distance"] == pytest.approx(0, abs=1e-9)

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
