"""RSA divided among features: explicit pairs, what is planted, what is noise; terms of ρ and τ."""

import itertools
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import for_each, refused, statistics_of
from helpers.moments import made_up, moments_of
from scipy.stats import rankdata

from mlem_core.measures import contributions, decomposition
from mlem_core.measures.decomposition import UNEXPLAINED, decompose

N = 45
FEATURES, FOLDS = explicit.random_features(N), explicit.random_folds(N, 3)
LAYERS = [explicit.random_layer(FEATURES, seed) for seed in range(3)]


@pytest.fixture(scope="module")
def pairs():
    return statistics_of(FEATURES, LAYERS, FOLDS)


@for_each(
    "more",
    {},
    {"by_value": ("kind", "length")},
    {"interactions": True},
    {"missing": "level", "items": np.arange(60) % 23},
)
def test_contributions_are_those_of_explicit_pairs(more):
    made = made_up(**more)
    found = decompose(made.moments)
    columns, items = made.moments.columns, more.get("items")
    ranks = np.stack([rankdata(own) for own in made.distances])
    x = columns.pair_values(*explicit.pairs(len(made.folds)))
    features = [*zip(columns.first_feature, columns.second_feature, strict=True)]
    terms = explicit.contributions(x, features, ranks, made.folds, items)
    rsa = np.corrcoef(ranks)
    np.testing.assert_allclose(found.terms, terms, atol=1e-11)
    np.testing.assert_allclose(found.rsa, rsa, atol=1e-12)
    np.testing.assert_allclose(found.terms.sum(axis=0) + found.unexplained, rsa, atol=1e-12)


@pytest.mark.slow
def test_sampled_orders_agree_with_all_sets_within_their_error(monkeypatch):
    made = made_up(by_value=("kind",))
    exact = decompose(made.moments)
    for module in (contributions, decomposition):
        monkeypatch.setattr(module, "EXACT_FEATURES", 0)
        monkeypatch.setattr(module, "ORDERS", 50)
    sampled = decompose(made.moments)
    assert sampled.error is not None
    assert (np.abs(sampled.terms - exact.terms) <= 5 * sampled.error + 1e-12).all()
    np.testing.assert_allclose(sampled.unexplained, exact.unexplained, atol=1e-12)


def test_planted_shares_are_recovered_and_noise_has_none():
    """Two layers of the same features, 3 : 2 : 1, and three features of nothing."""
    n, rng = 400, np.random.default_rng(0)
    values = rng.uniform(size=(n, 6))
    planted = np.array([3.0, 2.0, 1.0, 0.0, 0.0, 0.0])
    layers = [
        values * np.sqrt(planted) @ np.linalg.qr(rng.standard_normal((6, 6)))[0] for _ in range(2)
    ]
    layers = [layer + 0.05 * rng.standard_normal(layer.shape) for layer in layers]
    features = pd.DataFrame(values, columns=list("abcdef"))
    found = decompose(moments_of(features, layers, explicit.random_folds(n)).moments)
    terms = found.terms[:, 0, 1]
    assert terms[0] > 1.5 * terms[1] > 2 * terms[2] > 0.05
    assert np.abs(terms[3:]).max() < 0.005
    assert abs(found.unexplained[0, 1]) < 0.1


def test_one_fold_leaves_nothing_outside():
    features = pd.DataFrame({"a": list("xyxyxy")})
    made = moments_of(
        features, [np.random.default_rng(0).random((6, 2))] * 2, np.zeros(6, dtype=int)
    )
    with refused("1 fold", "at least 2"):
        decompose(made.moments)


def test_a_column_that_is_constant_outside_a_fold_explains_nothing():
    features = pd.DataFrame({"a": ["x"] * 24 + ["y"] * 6, "b": list("pq") * 15})
    folds = np.repeat(np.arange(5), 6)
    layers = [np.random.default_rng(k).random((30, 3)) for k in range(2)]
    found = decompose(moments_of(features, layers, folds).moments)
    assert np.isfinite(found.terms).all()
    assert found.rsa[0, 1] == pytest.approx(found.terms[:, 0, 1].sum() + found.unexplained[0, 1])


def test_fewer_features_have_the_terms_that_they_have_alone(pairs):
    fewer = decompose(pairs.select_features(["kind", "gender"]).moments)
    alone = decompose(statistics_of(FEATURES[["kind", "gender"]], LAYERS, FOLDS).moments)
    np.testing.assert_allclose(fewer.terms, alone.terms, atol=1e-12)


def balanced(n=800, seed=0):
    """Balanced, independent binary features a, b, c."""
    values = np.array(list(itertools.product("xy", repeat=3)))[np.arange(n) % 8]
    return pd.DataFrame(values, columns=["a", "b", "c"]), np.random.default_rng(seed)


def divided(features, layers):
    """The terms of two layers by name, and their RSA."""
    found = decompose(statistics_of(features, layers, explicit.random_folds(len(features))).moments)
    return found.pair(0, 1).set_index("term")["value"], found.rsa[0, 1]


def test_a_feature_that_two_layers_share_is_given_everything():
    features, rng = balanced()
    shared = 3.0 * (features[["a"]] == "x").to_numpy()
    layers = [np.hstack((shared, rng.standard_normal((len(features), 5)))) for _ in range(2)]
    found, rsa = divided(features, layers)
    assert found["a"] == pytest.approx(rsa, abs=0.02) and found["a"] > 0.2
    assert found.drop("a").abs().max() < 0.02


def test_what_is_common_but_no_feature_is_unexplained():
    features, rng = balanced()
    common = rng.standard_normal((len(features), 4))
    layers = [common + 0.3 * rng.standard_normal(common.shape) for _ in range(2)]
    found, rsa = divided(features, layers)
    assert found[UNEXPLAINED] == pytest.approx(rsa, abs=0.02) and rsa > 0.7


def test_what_two_features_do_only_together_is_unexplained_unless_it_is_a_column():
    features, rng = balanced()
    both = 3.0 * ((features["a"] == "x") == (features["b"] == "x")).to_numpy()[:, None]
    layers = [np.hstack((both, rng.standard_normal((len(features), 5)))) for _ in range(2)]
    found, rsa = divided(features, layers)
    assert found[UNEXPLAINED] == pytest.approx(rsa, abs=0.02) and rsa > 0.2
    folds = explicit.random_folds(len(features))
    crossed = decompose(statistics_of(features, layers, folds, interactions=True).moments)
    terms = crossed.terms[:, 0, 1]
    assert crossed.unexplained[0, 1] < 0.05 and abs(terms[0] - terms[1]) < 0.01 > abs(terms[2])


CENTRES = np.random.default_rng(7).standard_normal((4, 4))


def planted(n, seed):
    """A class and a number that two layers share beside noise of their own; two idle features."""
    rng = np.random.default_rng(seed)
    kind, size, idle = rng.integers(0, 4, n), rng.random(n), rng.integers(0, 8, n)
    features = pd.DataFrame({"kind": [f"k{k}" for k in kind], "size": size})
    features = features.assign(idle=[f"i{k}" for k in idle], number=rng.random(n))
    noise = rng.standard_normal((2, n, 3))
    return features, [np.column_stack((CENTRES[kind], 4 * size, own)) for own in noise]


@lru_cache
def truth(n=100_000):
    """Terms of the class and the number in the population: of pairs that share no stimulus."""
    features, layers = planted(2 * n, 0)
    first, second = (features[at].reset_index(drop=True) for at in (slice(n), slice(n, None)))
    of_two = [first["kind"].where(first["kind"] < second["kind"], second["kind"])]
    of_two.append(first["kind"].where(first["kind"] > second["kind"], second["kind"]))
    columns = pd.get_dummies(of_two[0] + of_two[1]).to_numpy(float)[:, 1:]
    columns = np.column_stack((columns, (first["size"] - second["size"]) ** 2))
    columns -= columns.mean(axis=0)
    ranks = [rankdata(((own[:n] - own[n:]) ** 2).sum(axis=1)) for own in layers]
    ranks = [(own - own.mean()) / own.std() / np.sqrt(n) for own in ranks]

    def value(members):
        x = columns[:, [*range(9)] * (0 in members) + [9] * (1 in members)]
        return (x @ np.linalg.lstsq(x, ranks[0], rcond=None)[0]) @ ranks[1] if members else 0.0

    return explicit.shapley_values(value, 2)


@for_each(
    "n, n_seeds",
    pytest.param(60, 100, marks=pytest.mark.slow),
    (300, 30),
    (2_000, 1),
)
def test_planted_terms_are_those_of_the_population_and_idle_features_have_none(n, n_seeds):
    found = []
    for seed in range(n_seeds):
        features, layers = planted(n, seed + 1)
        folds = explicit.random_folds(n, 5, seed)
        found.append(
            decompose(statistics_of(features, layers, folds, ("kind", "idle")).moments).terms
        )
    terms = np.mean(found, axis=0)[:, 0, 1]
    np.testing.assert_allclose(terms[:2], truth(), atol=0.01)
    assert np.abs(terms[2:]).max() < 0.005


def test_layers_with_nothing_in_common_have_terms_as_small_as_their_similarity():
    """A ratio of two similarities near 0 would be of any size."""
    terms = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        features = pd.DataFrame({"a": rng.choice(list("uvwxyz"), 60), "b": rng.random(60)})
        layers = [rng.standard_normal((60, 5)) for _ in range(2)]
        pairs = statistics_of(features, layers, explicit.random_folds(60, 5, seed), ("a",))
        terms.append(decompose(pairs.moments).terms[:, 0, 1])
    assert np.abs(terms).max() < 0.1
    assert np.abs(np.mean(terms, axis=0)).max() < 0.005


@for_each(
    "n, extra",
    (450, lambda rng, n: {"noise": rng.normal(size=n).round(3)}),
    (300, lambda rng, n: {f"n{k}": rng.choice(list("abc"), n) for k in range(40)}),
)
def test_features_of_pure_noise_leave_terms_and_the_unexplained_as_they_were(n, extra):
    rng = np.random.default_rng(0)
    features = pd.DataFrame({"true": np.array(list("xy"))[np.arange(n) % 2]})
    shared = 2.5 * (features[["true"]] == "x").to_numpy()
    layers = [np.hstack((shared, rng.standard_normal((n, 3)))) for _ in range(2)]
    before, _ = divided(features, layers)
    after, _ = divided(features.assign(**extra(rng, n)), layers)
    assert before["true"] > 0.1
    for term in ("true", UNEXPLAINED):
        assert after[term] == pytest.approx(before[term], abs=0.01)
    assert abs(after.drop(["true", UNEXPLAINED]).sum()) < 0.01


def test_tables_of_all_layers(pairs):
    layers, rsa = [("one", 0), ("one", 1), ("two", 0)], pairs.moments.rsa
    found = decompose(pairs.moments)
    table = found.table(layers)
    assert len(table) == 3 * 5
    sums = table.groupby(["model_a", "layer_a", "model_b", "layer_b"], sort=False)["value"].sum()
    np.testing.assert_allclose(sums, [rsa[0, 1], rsa[0, 2], rsa[1, 2]], atol=1e-12)
    assert found.matrix("kind", layers).loc["one:1", "two:0"] == pytest.approx(found.terms[0, 1, 2])
    summary = found.summary(layers).set_index(["model_a", "model_b", "term"])
    between = table.query("model_b == 'two' and term == 'kind'")["value"]
    assert summary.loc[("one", "two", "kind"), "mean"] == pytest.approx(between.mean())
    assert summary.loc[("one", "two"), "share"].sum() == pytest.approx(1.0)
    with refused("knd", "kind"):
        found.matrix("knd", layers)
