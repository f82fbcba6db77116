from __future__ import annotations

import itertools

import explicit
import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata, spearmanr

from mlem_core.base.errors import InputError
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.measures import similarity
from mlem_core.measures.decomposition import (
    UNEXPLAINED,
    decompose,
    score_terms,
    tau_terms,
)
from mlem_core.pairs.build import PassOptions, pair_tables
from mlem_core.pairs.patterns import PairIndex, feature_columns
from mlem_core.pairs.rank_store import PairRanks

N = 60


def made(features, layers, folds=None):
    folds = np.zeros(len(features), dtype=np.int64) if folds is None else folds
    index = PairIndex.build(feature_columns(features), folds)
    ranks = PairRanks(len(layers), len(features))
    tables = pair_tables(
        index, [lambda x=x: x for x in layers], options=PassOptions(keep_ranks=ranks.put)
    )
    return tables, ranks.rsa()


def by_permutations(value, n):
    """Shapley values from every order of the features."""
    terms = np.zeros(n)
    orders = list(itertools.permutations(range(n)))
    for order in orders:
        before, inside = value(()), []
        for feature in order:
            inside.append(feature)
            now = value(tuple(sorted(inside)))
            terms[feature] += now - before
            before = now
    return terms / len(orders)


def mean_within(values, x, chosen):
    """The mean of values over the pairs that the chosen features do not tell apart."""
    rows = np.column_stack((np.zeros(len(x)), np.round(x[:, list(chosen)], 12)))
    _, groups = np.unique(rows, axis=0, return_inverse=True)
    return pd.Series(values).groupby(groups).transform("mean").to_numpy()


def explicit_terms(features, a, b):
    x = explicit.feature_distances(features)
    ra, rb = (rankdata(explicit.squared(layer)) for layer in (a, b))
    ra, rb = ra - ra.mean(), rb - rb.mean()
    scale = np.sqrt((ra @ ra) * (rb @ rb))
    return by_permutations(
        lambda s: mean_within(ra, x, s) @ mean_within(rb, x, s) / scale, x.shape[1]
    )


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(3)]
    return features, layers, *made(features, layers, explicit.random_folds(N, 3))


def test_terms_equal_those_of_every_order_of_the_features_over_explicit_pairs(case):
    features, layers, tables, rsa = case
    found = decompose(tables, rsa)
    for a, b in ((0, 1), (2, 0), (1, 1)):
        expected = explicit_terms(features, layers[a], layers[b])
        np.testing.assert_allclose(found.terms[:, a, b], expected, atol=1e-9)


def test_terms_and_the_unexplained_add_up_to_the_rsa_correlation(case):
    features, layers, tables, rsa = case
    found = decompose(tables, rsa)
    expected = spearmanr(explicit.squared(layers[0]), explicit.squared(layers[2])).statistic
    assert found.values[:, 0, 2].sum() == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(found.values.sum(axis=0), rsa, atol=1e-12)
    assert found.error is None
    fewer = decompose(tables.of_features(["kind", "gender"]), rsa)
    own, _ = made(features[["kind", "gender"]], layers)
    np.testing.assert_allclose(fewer.terms, decompose(own, rsa).terms, atol=1e-12)


def test_sampled_orders_come_within_their_error_and_still_add_up(case):
    _, _, tables, rsa = case
    exact = decompose(tables, rsa)
    found = decompose(tables, rsa, exact_up_to=2, orders=40, seed=1)
    assert found.error is not None and found.error.max() < 0.01
    np.testing.assert_allclose(found.values.sum(axis=0), rsa, atol=1e-12)
    np.testing.assert_array_less(np.abs(found.terms - exact.terms), 4 * found.error + 1e-12)
    # Nothing depends on chance but the order: two seeds differ.
    assert (found.terms != decompose(tables, rsa, exact_up_to=2, orders=40).terms).any()


def planted(n=800, seed=0):
    """Balanced, independent binary features a, b, c and a copy of a."""
    values = np.array(list(itertools.product("xy", repeat=3)))[np.arange(n) % 8]
    features = pd.DataFrame(values, columns=["a", "b", "c"]).assign(copy=values[:, 0])
    return features, np.random.default_rng(seed)


def test_a_feature_that_two_layers_share_is_given_everything():
    features, rng = planted()
    shared = 3.0 * (features[["a"]] == "x").to_numpy()
    layers = [np.hstack((shared, rng.standard_normal((len(features), 5)))) for _ in range(2)]
    tables, rsa = made(features[["a", "b", "c"]], layers)
    found = decompose(tables, rsa).pair(0, 1).set_index("term")["value"]
    assert found["a"] == pytest.approx(rsa[0, 1], abs=0.02) and found["a"] > 0.2
    assert found.drop("a").abs().max() < 0.02


def test_copies_of_a_feature_share_equally():
    features, rng = planted()
    layers = [
        4.0 * (features[["a", "b"]] == "x").to_numpy() + rng.standard_normal((len(features), 2))
        for _ in range(2)
    ]
    found = decompose(*made(features, layers)).pair(0, 1).set_index("term")["value"]
    alone = decompose(*made(features.drop(columns="copy"), layers)).pair(0, 1)
    assert found["a"] == pytest.approx(found["copy"], abs=1e-12)
    assert found["a"] + found["copy"] > 0.2
    assert alone["value"].sum() == pytest.approx(found.sum(), abs=1e-12)


def test_a_feature_in_one_layer_only_gives_nothing():
    features, rng = planted()
    a, b = (2.0 * (features[[name]] == "x").to_numpy() for name in "ab")
    noise = rng.standard_normal((2, len(features), 3))
    layers = [np.hstack((a, b, noise[0])), np.hstack((a, noise[1]))]
    found = decompose(*made(features[["a", "b", "c"]], layers)).pair(0, 1).set_index("term")
    assert abs(found.loc["b", "value"]) < 0.01 and found.loc["a", "value"] > 0.15


def test_what_is_common_but_no_feature_is_unexplained():
    features, rng = planted()
    common = rng.standard_normal((len(features), 4))
    layers = [common + 0.3 * rng.standard_normal(common.shape) for _ in range(2)]
    tables, rsa = made(features, layers)
    found = decompose(tables, rsa).pair(0, 1).set_index("term")["value"]
    assert found[UNEXPLAINED] == pytest.approx(rsa[0, 1], abs=0.02) and rsa[0, 1] > 0.7


def test_a_constant_layer_has_no_terms(case):
    features, layers, *_ = case
    found = decompose(*made(features, [layers[0], np.ones((N, 2))]))
    assert (found.terms[:, 0, 1] == 0).all() and (found.terms[:, 1, 1] == 0).all()


def test_score_terms_add_up_to_rho_and_equal_every_order_over_explicit_pairs(case):
    features, layers, tables, _ = case
    fits = RidgeMLEM().cross_validate(tables)
    terms = score_terms(tables, fits.weights)
    np.testing.assert_allclose(terms.sum(axis=-1), fits.rho, atol=1e-9)
    test = explicit.held_out(explicit.random_folds(N, 3), 1)
    x = explicit.feature_distances(features)[test]
    predicted = rankdata(np.round(x**2 @ fits.weights[0, 1], 12))
    true = rankdata(explicit.squared(layers[0])[test])
    ranks = [r - r.mean() for r in (predicted, true)]
    scale = np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1]))
    expected = by_permutations(
        lambda s: mean_within(ranks[0], x, s) @ mean_within(ranks[1], x, s) / scale, x.shape[1]
    )
    np.testing.assert_allclose(terms[0, 1], expected, atol=1e-9)


def test_tau_terms_add_up_to_tau_and_show_what_is_ranked_differently():
    rng = np.random.default_rng(0)
    profiles = np.vstack((rng.random((3, 6)), [[0.3, 0.3, 0.1, 0.2, 0.0, 0.0]]))
    terms = tau_terms(profiles)
    np.testing.assert_allclose(terms.sum(axis=0), similarity.weighted_tau(profiles), atol=1e-12)
    moved = tau_terms(np.array([[5.0, 4.0, 3.0, 2.0, 1.0], [5.0, 4.0, 3.0, 2.0, 6.0]]))[:, 0, 1]
    assert moved[4] < 0 < moved[:4].min()
    np.testing.assert_array_equal(tau_terms(np.array([[0.0, 0.0], [1.0, 2.0]]))[:, 0, 1], 0)


def test_tables_of_all_layers(case):
    _, _, tables, rsa = case
    layers = [("one", 0), ("one", 1), ("two", 0)]
    found = decompose(tables, rsa)
    table = found.table(layers)
    assert len(table) == 3 * 5
    sums = table.groupby(["model_a", "layer_a", "model_b", "layer_b"], sort=False)["value"].sum()
    np.testing.assert_allclose(sums, [rsa[0, 1], rsa[0, 2], rsa[1, 2]], atol=1e-12)
    square = found.matrix("kind", layers)
    assert square.loc["one:1", "two:0"] == pytest.approx(found.terms[0, 1, 2])
    summary = found.summary(layers).set_index(["model_a", "model_b", "term"])
    between = table.query("model_b == 'two' and term == 'kind'")["value"]
    assert summary.loc[("one", "two", "kind"), "mean"] == pytest.approx(between.mean())
    assert summary.loc[("one", "two"), "share"].sum() == pytest.approx(1.0)
    with pytest.raises(InputError, match="kind"):
        found.matrix("knd", layers)
