"""Groups inside groups: their centres, how much lies between them, and their outlines."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.spatial import ConvexHull
from scipy.stats import f_oneway

from mlem_core.measures import nested


def points_of(n: int = 240, noise: float = 0.3, seed: int = 0) -> pd.DataFrame:
    """Clusters by a; inside them, nearer to each other, clusters by b; c says nothing."""
    rng = np.random.default_rng(seed)
    a, b, c = (rng.integers(0, k, n) for k in (3, 2, 2))
    places = np.column_stack([8.0 * a, 2.0 * b]) + noise * rng.standard_normal((n, 2))
    table = pd.DataFrame(places, columns=["x", "y"])
    return table.assign(a=[f"a{i}" for i in a], b=[f"b{i}" for i in b], c=[f"c{i}" for i in c])


def between_of(points: pd.DataFrame, *features: str) -> pd.Series:
    return nested.nested_groups(points, features).groupby("depth")["between"].first()


def test_centres_are_the_means_of_explicit_groups() -> None:
    points = points_of()
    points.loc[::7, "b"] = None
    points.loc[::11, "a"] = None
    found, rows = nested.nested_groups(points, ["a", "b"]), list(points.itertuples())
    for row in found.itertuples():
        own = [one for one in rows if one.a == row.a and (row.depth == 1 or one.b == row.b)]
        assert row.n == len(own)
        middle = np.mean([(one.x, one.y) for one in own], axis=0)
        np.testing.assert_allclose((row.x, row.y), middle)
        assert (row.b == nested.NONE) == (row.depth == 1)
    assert len(found) == 3 + 6


def test_what_lies_between_is_that_of_an_analysis_of_variance() -> None:
    """Of one coordinate, ε² = (F - 1) (k - 1) / (F (k - 1) + n - k)."""
    points = points_of().assign(y=0.0)
    found = between_of(points, "a", "b")
    for depth, by in ((1, ["a"]), (2, ["a", "b"])):
        groups = [own["x"] for _, own in points.groupby(by)]
        f, k = f_oneway(*groups).statistic, len(groups)
        expected = (f - 1) * (k - 1) / (f * (k - 1) + len(points) - k)
        assert found[depth] == pytest.approx(expected, abs=1e-12)


def test_planted_groups_are_found_and_noise_adds_nothing() -> None:
    # 8 against 2 apart: by a most, by b the rest, by c nothing.
    between = between_of(points_of(), "a", "b", "c")
    assert 0.9 < between[1] < 0.99 < between[2]
    assert between[3] == pytest.approx(between[2], abs=1e-3)
    noise = [between_of(points_of(60, seed=seed), "c")[1] for seed in range(100)]
    assert np.mean(noise) == pytest.approx(0, abs=4 * np.std(noise) / np.sqrt(100))
    assert np.isnan(between_of(points_of(2), "a", "b")[2])


@pytest.mark.parametrize("seed", range(20))
def test_an_outline_is_the_hull_of_the_nearer_half(seed: int) -> None:
    places = np.random.default_rng(seed).standard_normal((41, 2)) ** 3
    found = nested.outline(places)
    far = np.linalg.norm(places - np.median(places, axis=0), axis=1)
    near = places[np.argsort(far)[:20]]
    hull = near[ConvexHull(near).vertices]
    assert {tuple(one) for one in found} == {tuple(one) for one in hull}
    one = np.roll(found, -1, axis=0) - found
    other = np.roll(one, -1, axis=0)
    assert (one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0] > 0).all()


def test_outlines_of_few_points_and_of_points_on_a_line() -> None:
    line = np.array([[i, 2.0 * i] for i in range(9)])
    corners = nested.outline(line, 1.0)
    assert {tuple(one) for one in corners} >= {(0.0, 0.0), (8.0, 16.0)}
    few = pd.DataFrame({"x": [0.0, 1, 2, 3], "y": [0.0, 1, 0, 3], "a": ["u", "u", "u", "v"]})
    assert list(nested.outlines(few, ["a"])) == [("u",)]
    assert nested.outline(np.eye(2)).shape == (2, 2)


def test_levels_are_text_and_many_numbers_are_thirds() -> None:
    few = nested.levels(pd.Series([1.0, 2.0, np.nan, 2.0]), "ordered")
    assert list(few) == ["1", "2", None, "2"]
    nominal = nested.levels(pd.Series(["u", None, "v"]), "nominal")
    assert list(nominal) == ["u", None, "v"]
    many = nested.levels(pd.Series([*np.arange(30.0), np.nan]), "ordered")
    assert list(many) == ["up to 9.67"] * 10 + ["up to 19.3"] * 10 + ["above 19.3"] * 10 + [None]
