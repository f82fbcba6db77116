"""Groups inside groups of stimuli: means of explicit groups, analysis of variance, hulls."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial import ConvexHull

from mlem_core.measures import nested


def points_of(n=240, noise=0.3, seed=0):
    """Clusters by a; inside them, nearer to each other, clusters by b."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, k, n) for k in (3, 2))
    places = np.column_stack([8.0 * a, 2.0 * b]) + noise * rng.standard_normal((n, 2))
    table = pd.DataFrame(places, columns=["x", "y"])
    return table.assign(a=[f"a{i}" for i in a], b=[f"b{i}" for i in b])


def test_centres_are_the_means_of_explicit_groups():
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


def test_what_lies_between_is_that_of_an_analysis_of_variance():
    """Of one coordinate, ε² = (F - 1) (k - 1) / (F (k - 1) + n - k)."""
    points = points_of().assign(y=0.0)
    found = nested.nested_groups(points, ["a", "b"]).groupby("depth")["between"].first()
    for depth, by in ((1, ["a"]), (2, ["a", "b"])):
        groups = [own["x"] for _, own in points.groupby(by)]
        f, k = stats.f_oneway(*groups).statistic, len(groups)
        expected = (f - 1) * (k - 1) / (f * (k - 1) + len(points) - k)
        assert found[depth] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_an_outline_is_the_hull_of_the_nearer_half(seed):
    places = np.random.default_rng(seed).standard_normal((41, 2)) ** 3
    found = nested.outline(places)
    far = np.linalg.norm(places - np.median(places, axis=0), axis=1)
    near = places[np.argsort(far)[:20]]
    hull = near[ConvexHull(near).vertices]
    assert {tuple(one) for one in found} == {tuple(one) for one in hull}


def test_levels_are_text_and_many_numbers_are_thirds():
    few = nested.levels(pd.Series([1.0, 2.0, np.nan, 2.0]), "ordered")
    assert list(few) == ["1", "2", None, "2"]
    nominal = nested.levels(pd.Series(["u", None, "v"]), "nominal")
    assert list(nominal) == ["u", None, "v"]
    many = nested.levels(pd.Series([*np.arange(30.0), np.nan]), "ordered")
    assert list(many) == ["up to 9.67"] * 10 + ["up to 19.3"] * 10 + ["above 19.3"] * 10 + [None]
