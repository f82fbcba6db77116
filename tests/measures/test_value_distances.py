"""Distances of values and groups inside groups: loops, planted centres, analysis of variance."""

import itertools

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import index_of, tables_of
from scipy import stats
from scipy.spatial import ConvexHull, procrustes
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr

from mlem_core.analysis import maps
from mlem_core.estimators.base import RidgeMLEM
from mlem_core.measures.importance import fitted
from mlem_core.measures.value_distances import (
    compare_layers,
    distances_of_layer,
    square,
    value_distances,
    value_map,
)
from mlem_core.pairs.columns import MISSING_NAME
from validation.values import of_negative_type, psd_cost

LAYERS = [("m", 0), ("m", 3)]
CENTRES = np.array([[0.0, 0], [3, 0], [0, 1.5], [4, 4], [1, 5]])
NAMES = np.array(["noun", "verb", "det", "aux", "pronoun"])


def resolved_tables(features, layers, resolved=("kind",)):
    return tables_of(features, layers, explicit.random_folds(len(features)), resolved)


def planted(centres, spread=0.3, n=500, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, len(centres), n)
    features = pd.DataFrame({"kind": NAMES[kind], "other": rng.choice(list("xy"), n)})
    return features, centres[kind] + spread * rng.standard_normal((n, centres.shape[1]))


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(80)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    tables = resolved_tables(features, layers, ("kind", "gender"))
    return features, tables, np.random.default_rng(0).random((2, 5, len(tables.columns)))


def test_the_table_is_what_the_named_weights_add_up_to(case):
    features, tables, weights = case
    table = value_distances(tables, weights, LAYERS)
    named = [
        [dict(zip(tables.columns.names, fold, strict=True)) for fold in layer] for layer in weights
    ]
    i, j = explicit.pairs(len(features))
    n_rows = 0
    for feature in ("kind", "gender"):
        texts = [MISSING_NAME if pd.isna(v) else v for v in features[feature]]
        values = sorted(set(texts), key=lambda value: (value == MISSING_NAME, value))
        for at, layer in enumerate(LAYERS):
            rows = distances_of_layer(table, feature, layer).set_index(["value_a", "value_b"])
            for a, b in itertools.combinations_with_replacement(values, 2):
                spreads = [w[f"{feature}: {a}"] + w[f"{feature}: {b}"] for w in named[at]]
                apart = [0.0 if a == b else w[f"{feature}: {a}/{b}"] for w in named[at]]
                whole = np.add(apart, spreads)
                row = rows.loc[(a, b)]
                assert row["distance"] == pytest.approx(np.mean(whole))
                assert row["sd"] == pytest.approx(np.std(whole, ddof=1))
                assert row["separation"] == pytest.approx(np.mean(apart))
                pairs = [{texts[x], texts[y]} == {a, b} for x, y in zip(i, j, strict=True)]
                assert row["n_pairs"] == sum(pairs)
                n_rows += 1
    assert len(table) == n_rows and set(table["feature"]) == {"kind", "gender"}


def test_planted_centres_come_back_as_a_map():
    features, layer = planted(CENTRES)
    tables = resolved_tables(features, [layer])
    order = sorted(range(5), key=lambda at: NAMES[at])
    expected = pdist(CENTRES[order])
    # Shrunk as far as the data choose, the distances keep their order.
    chosen = value_distances(tables, fitted(tables)[0].weights, LAYERS[:1])
    apart = chosen[chosen["value_a"] != chosen["value_b"]]
    assert spearmanr(apart["separation"], expected).statistic > 0.98
    free = RidgeMLEM(betas=[1.0]).cross_validate(tables).weights
    table = value_distances(tables, free, LAYERS[:1])
    found = square(distances_of_layer(table, "kind", ("m", 0)), "separation")
    assert list(found.index) == sorted(NAMES)
    roots = np.sqrt(squareform(found.to_numpy(), checks=False))
    assert np.corrcoef(roots, expected)[0, 1] > 0.999
    assert np.ptp(roots / expected) < 0.03 * np.mean(roots / expected)
    points = value_map(table, "kind", ("m", 0))
    assert procrustes(CENTRES[order], points[["x", "y"]].to_numpy())[2] < 1e-3
    # All values are as tight: no spread but what noise leaves.
    assert points["spread"].max() < 0.02 * found.to_numpy().max()


def test_two_layers_that_arrange_the_values_differently_are_told_apart():
    features, same = planted(CENTRES)
    moved = CENTRES[[3, 4, 0, 1, 2]]
    _, other = planted(moved)
    tables = resolved_tables(features, [same, other])
    table = value_distances(tables, fitted(tables)[0].weights, LAYERS)
    rho, distances = compare_layers(table, "kind", *LAYERS)
    truth = spearmanr(pdist(CENTRES), pdist(moved)).statistic
    assert rho == pytest.approx(truth, abs=0.1)
    assert compare_layers(table, "kind", LAYERS[0], LAYERS[0])[0] == pytest.approx(1)
    assert len(distances) == 10


def test_the_projection_is_the_nearest_matrix_of_negative_type():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((6, 3))
    np.testing.assert_allclose(of_negative_type(pdist(points) ** 2, 6), pdist(points) ** 2)
    free = rng.random((2, 15))
    found = of_negative_type(free, 6)
    centre = np.eye(6) - 1 / 6
    for before, after in zip(free, found, strict=True):
        products = [-centre @ squareform(one) @ centre / 2 for one in (before, after)]
        assert np.linalg.eigvalsh(products[1]).min() > -1e-12
        nearest = np.linalg.norm(products[0] - products[1])
        assert nearest > 0.01
        # No other set of points is nearer.
        for _ in range(200):
            along = centre @ rng.random(6)
            near = products[1] + 0.05 * rng.standard_normal() * np.outer(along, along)
            values, vectors = np.linalg.eigh(near)
            near = (vectors * np.maximum(values, 0)) @ vectors.T
            assert np.linalg.norm(products[0] - near) >= nearest - 1e-12


def test_the_cost_is_that_of_the_explicit_pairs(case):
    features, tables, weights = case
    found = psd_cost(tables, weights)
    assert found.shape == (2, 5)
    folds = explicit.random_folds(80)
    terms = tables.terms.dense[index_of(features, folds, resolved=("kind", "gender")).pair_pattern]
    test = explicit.held_out(folds, 2)
    for at in range(2):
        target = explicit.squared(explicit.random_layer(features, at))[test]
        own = weights[at, 2].copy()
        free = explicit.rho(terms[test] @ own, target)
        for f, name in ((0, "kind"), (2, "gender")):
            n = len(tables.value_names[f])
            names = enumerate(tables.columns.names)
            columns = [k for k, one in names if one.startswith(f"{name}: ") and "/" in one]
            own[columns] = of_negative_type(own[columns], n)
        assert found[at, 2] == pytest.approx(free - explicit.rho(terms[test] @ own, target))


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
    found, rows = maps.nested_groups(points, ["a", "b"]), list(points.itertuples())
    for row in found.itertuples():
        own = [one for one in rows if one.a == row.a and (row.depth == 1 or one.b == row.b)]
        assert row.n == len(own)
        np.testing.assert_allclose((row.x, row.y), np.mean([(one.x, one.y) for one in own], axis=0))
        assert (row.b == maps.NONE) == (row.depth == 1)
    assert len(found) == 3 + 6


def test_what_lies_between_is_that_of_an_analysis_of_variance():
    """Of one coordinate, ε² = (F - 1) (k - 1) / (F (k - 1) + n - k)."""
    points = points_of().assign(y=0.0)
    found = maps.nested_groups(points, ["a", "b"]).groupby("depth")["between"].first()
    for depth, by in ((1, ["a"]), (2, ["a", "b"])):
        groups = [own["x"] for _, own in points.groupby(by)]
        f, k = stats.f_oneway(*groups).statistic, len(groups)
        expected = (f - 1) * (k - 1) / (f * (k - 1) + len(points) - k)
        assert found[depth] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_an_outline_is_the_hull_of_the_nearer_half(seed):
    places = np.random.default_rng(seed).standard_normal((41, 2)) ** 3
    found = maps.outline(places)
    near = places[np.argsort(np.linalg.norm(places - np.median(places, axis=0), axis=1))[:20]]
    assert {tuple(one) for one in found} == {tuple(one) for one in near[ConvexHull(near).vertices]}


def test_levels_are_text_and_many_numbers_are_thirds():
    few = maps.levels(pd.Series([1.0, 2.0, np.nan, 2.0]), "ordered")
    assert list(few) == ["1", "2", None, "2"]
    assert list(maps.levels(pd.Series(["u", None, "v"]), "nominal")) == ["u", None, "v"]
    many = maps.levels(pd.Series([*np.arange(30.0), np.nan]), "ordered")
    assert list(many) == ["up to 9.67"] * 10 + ["up to 19.3"] * 10 + ["above 19.3"] * 10 + [None]
