"""Distances of values: loops, planted centres."""

import itertools

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import statistics_of
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr

from mlem_core.estimators.base import RidgeMLEM
from mlem_core.extensions.value_coding.computation import value_distances
from mlem_core.measures.importance import fitted
from mlem_core.measures.similarity import mds_map
from mlem_core.pairs.columns import MISSING_NAME
from validation.values import of_negative_type, psd_cost

LAYERS = [("m", 0), ("m", 3)]
CENTRES = np.array([[0.0, 0], [3, 0], [0, 1.5], [4, 4], [1, 5]])
NAMES = np.array(["noun", "verb", "det", "aux", "pronoun"])


def by_value(features, layers, resolved=("kind",)):
    return statistics_of(features, layers, explicit.random_folds(len(features)), resolved)


def distances_of_layer(table, feature, layer):
    of_feature = table[table["feature"] == feature]
    return of_feature[(of_feature["model"] == layer[0]) & (of_feature["layer"] == layer[1])]


def separations(table, layer):
    """(n_values, n_values) of the feature "kind", by the order of the values."""
    rows = distances_of_layer(table, "kind", layer)
    names = list(dict.fromkeys(rows["value_a"]))
    wide = rows.pivot(index="value_a", columns="value_b", values="separation").fillna(0.0)
    above = wide.loc[names, names].to_numpy()
    return names, above + above.T


def planted(centres, spread=0.3, n=500, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, len(centres), n)
    features = pd.DataFrame({"kind": NAMES[kind], "other": rng.choice(list("xy"), n)})
    return features, centres[kind] + spread * rng.standard_normal((n, centres.shape[1]))


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(80)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    pairs = by_value(features, layers, ("kind", "gender"))
    return features, pairs, np.random.default_rng(0).random((2, 5, len(pairs.columns)))


def test_the_table_is_what_the_named_weights_add_up_to(case):
    features, pairs, weights = case
    table = value_distances(pairs, weights, LAYERS)
    named = [
        [dict(zip(pairs.columns.names, fold, strict=True)) for fold in layer] for layer in weights
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
                same = [{texts[x], texts[y]} == {a, b} for x, y in zip(i, j, strict=True)]
                assert row["n_pairs"] == sum(same)
                n_rows += 1
    assert len(table) == n_rows and set(table["feature"]) == {"kind", "gender"}


def test_planted_centres_come_back_as_a_map():
    features, layer = planted(CENTRES)
    pairs = by_value(features, [layer])
    order = sorted(range(5), key=lambda at: NAMES[at])
    expected = pdist(CENTRES[order])
    # Shrunk as far as the data choose, the distances keep their order.
    chosen = value_distances(pairs, fitted(pairs)[0].weights, LAYERS[:1])
    apart = chosen[chosen["value_a"] != chosen["value_b"]]
    assert spearmanr(apart["separation"], expected).statistic > 0.98
    free = RidgeMLEM(betas=[1.0]).cross_validate(pairs).weights
    table = value_distances(pairs, free, LAYERS[:1])
    names, found = separations(table, ("m", 0))
    assert names == sorted(NAMES)
    roots = np.sqrt(squareform(found))
    assert np.corrcoef(roots, expected)[0, 1] > 0.999
    assert np.ptp(roots / expected) < 0.03 * np.mean(roots / expected)
    assert procrustes(CENTRES[order], mds_map(np.sqrt(found)))[2] < 1e-3
    # All values are as tight: no spread but what noise leaves.
    within = table[table["value_a"] == table["value_b"]]["distance"]
    assert within.max() / 2 < 0.02 * found.max()


def test_two_layers_that_arrange_the_values_differently_are_told_apart():
    features, same = planted(CENTRES)
    moved = CENTRES[[3, 4, 0, 1, 2]]
    _, other = planted(moved)
    pairs = by_value(features, [same, other])
    table = value_distances(pairs, fitted(pairs)[0].weights, LAYERS)
    table = table[table["value_a"] != table["value_b"]]
    sides = [distances_of_layer(table, "kind", layer)["distance"] for layer in LAYERS]
    truth = spearmanr(pdist(CENTRES), pdist(moved)).statistic
    assert spearmanr(*sides).statistic == pytest.approx(truth, abs=0.1)


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
    features, pairs, weights = case
    found = psd_cost(pairs, weights)
    assert found.shape == (2, 5)
    test = explicit.held_out(explicit.random_folds(80), 2)
    x, columns = pairs.columns.pair_values(*explicit.pairs(80))[test], pairs.columns
    for at in range(2):
        target = explicit.squared(explicit.random_layer(features, at))[test]
        own = weights[at, 2].copy()
        free = explicit.rho(x @ own, target)
        for f, name in ((0, "kind"), (2, "gender")):
            names = enumerate(columns.names)
            apart = [k for k, one in names if one.startswith(f"{name}: ") and "/" in one]
            own[apart] = of_negative_type(own[apart], len(columns.value_names[f]))
        assert found[at, 2] == pytest.approx(free - explicit.rho(x @ own, target))
