"""RSA divided among features: explicit pairs, every order and set of features, planted, noise."""

import itertools

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import index_of, refused, sums_and_ranks
from scipy.stats import rankdata, spearmanr

from mlem_core.estimators.base import RidgeMLEM
from mlem_core.measures import decomposition, shapley, similarity
from mlem_core.measures.decomposition import (
    UNEXPLAINED,
    decompose,
    divide,
    score_terms,
    tau_terms,
)
from mlem_core.measures.shapley import FeatureSubsets
from mlem_core.pairs.crossfit import CrossFit, both_ways, fold_ceilings

N = 45


def made(features, layers, folds=None):
    tables, ranks, _ = sums_and_ranks(index_of(features, folds), layers)
    return tables, ranks.rsa()


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(3)]
    return features, layers, *made(features, layers, explicit.random_folds(N, 3))


def test_terms_equal_those_of_every_order_of_the_features_over_explicit_pairs(case):
    features, layers, tables, rsa = case
    folds, x = explicit.random_folds(N, 3), explicit.feature_distances(features)
    found = decompose(tables, rsa)
    for a, b in ((0, 1), (1, 1)):
        both = [rankdata(explicit.squared(layers[layer])) for layer in (a, b)]
        orders = [explicit.priority(x, ranks, folds) for ranks in both]

        def value(chosen, both=both, orders=orders):
            return explicit.cross_fitted(x, *both, folds, chosen, orders)

        expected = explicit.shapley_values(value, x.shape[1])
        np.testing.assert_allclose(found.terms[:, a, b], expected, atol=1e-9)


def test_one_fold_cannot_be_cross_fitted(case):
    features, layers, *_ = case
    with refused("at least two"):
        decompose(*made(features, layers))


def test_the_ceiling_of_a_fold_is_that_of_explicit_pairs(case):
    features, layers, tables, _ = case
    folds, x = explicit.random_folds(N, 3), explicit.feature_distances(features)
    found = fold_ceilings(tables)
    for layer, rows in enumerate(layers[:2]):
        for fold in range(3):
            expected = explicit.ceiling(x, explicit.squared(rows), folds, fold)
            assert found[layer, fold] == pytest.approx(expected, abs=1e-9)


def test_terms_and_the_unexplained_add_up_to_the_rsa_correlation(case):
    features, layers, tables, rsa = case
    found = decompose(tables, rsa)
    expected = spearmanr(explicit.squared(layers[0]), explicit.squared(layers[2])).statistic
    assert found.values[:, 0, 2].sum() == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(found.values.sum(axis=0), rsa, atol=1e-12)
    assert found.error is None
    fewer = decompose(tables.of_features(["kind", "gender"]), rsa)
    own, _ = made(features[["kind", "gender"]], layers, explicit.random_folds(N, 3))
    np.testing.assert_allclose(fewer.terms, decompose(own, rsa).terms, atol=1e-12)


def test_sampled_orders_come_within_their_error_and_still_add_up(case):
    _, _, tables, rsa = case
    exact = decompose(tables, rsa)
    found = decompose(tables, rsa, exact_up_to=2, orders=40, seed=1)
    assert found.error is not None and found.error.max() < 0.01
    np.testing.assert_allclose(found.values.sum(axis=0), rsa, atol=1e-12)
    np.testing.assert_array_less(np.abs(found.terms - exact.terms), 4 * found.error + 1e-12)


def in_folds(features, layers):
    return made(features, layers, explicit.random_folds(len(features)))


def planted(n=800, seed=0):
    """Balanced, independent binary features a, b, c and a copy of a."""
    values = np.array(list(itertools.product("xy", repeat=3)))[np.arange(n) % 8]
    features = pd.DataFrame(values, columns=["a", "b", "c"]).assign(copy=values[:, 0])
    return features, np.random.default_rng(seed)


def divided(features, layers):
    """The terms of two layers by name, and their RSA."""
    tables, rsa = in_folds(features, layers)
    return decompose(tables, rsa).pair(0, 1).set_index("term")["value"], rsa[0, 1]


def test_a_feature_that_two_layers_share_is_given_everything():
    features, rng = planted()
    shared = 3.0 * (features[["a"]] == "x").to_numpy()
    layers = [np.hstack((shared, rng.standard_normal((len(features), 5)))) for _ in range(2)]
    found, rsa = divided(features[["a", "b", "c"]], layers)
    assert found["a"] == pytest.approx(rsa, abs=0.02) and found["a"] > 0.2
    assert found.drop("a").abs().max() < 0.02


def test_what_is_common_but_no_feature_is_unexplained():
    features, rng = planted()
    common = rng.standard_normal((len(features), 4))
    layers = [common + 0.3 * rng.standard_normal(common.shape) for _ in range(2)]
    found, rsa = divided(features, layers)
    assert found[UNEXPLAINED] == pytest.approx(rsa, abs=0.02) and rsa > 0.7


def test_score_terms_add_up_to_rho_and_equal_every_order_over_explicit_pairs(case):
    features, layers, tables, _ = case
    fits = RidgeMLEM().cross_validate(tables)
    terms = score_terms(tables, fits.weights)
    np.testing.assert_allclose(terms.sum(axis=-1), fits.rho, atol=1e-9)
    folds = explicit.random_folds(N, 3)
    test, other = explicit.held_out(folds, 1), explicit.training(folds, 1)
    x = explicit.feature_distances(features)
    predicted = np.round(x**2 @ fits.weights[0, 1], 12)
    true = rankdata(explicit.squared(layers[0])[test])
    own = rankdata(predicted[test])
    # The rank that any pair's prediction has among those of the fold's pairs.
    below = (predicted[:, None] > predicted[test]).sum(axis=1)
    tied = (predicted[:, None] == predicted[test]).sum(axis=1)
    ranks, true = below + tied / 2, true - true.mean()
    scale = own.std() * true.std() * len(own)

    def value(chosen, order):
        """The covariance with the mean prediction that the chosen features alone allow."""
        if len(chosen) == x.shape[1]:
            return (own - own.mean()) @ true / scale
        kept = [f for f in order if f in chosen]
        places = np.flatnonzero(test), np.flatnonzero(other)
        return explicit.coarser_means(x, ranks, kept, *places) @ true / scale

    alone = [round(value((f,), (f,)), 9) for f in range(x.shape[1])]
    order = sorted(range(x.shape[1]), key=lambda f: -alone[f])
    expected = explicit.shapley_values(lambda chosen: value(chosen, order), x.shape[1])
    np.testing.assert_allclose(terms[0, 1], expected, atol=1e-9)


def with_noise(n, extra, seed=0):
    """A balanced feature that two layers have, beside features of pure noise."""
    rng = np.random.default_rng(seed)
    features = pd.DataFrame({"true": np.array(list("xy"))[np.arange(n) % 2]})
    shared = 2.5 * (features[["true"]] == "x").to_numpy()
    layers = [np.hstack((shared, rng.standard_normal((n, 3)))) for _ in range(2)]
    return features, features.assign(**extra(rng, n)), layers


# Stimuli, noise, and data sets.
NOISE = {
    "a normal number with three decimals": (
        450, lambda rng, n: {"noise": rng.normal(size=n).round(3)}, 1,
    ),
    "forty nominal features of 60 stimuli": (
        60, lambda rng, n: {f"n{k}": rng.choice(list("abc"), n) for k in range(40)}, 5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOISE)
def test_features_of_pure_noise_leave_terms_ceilings_and_the_unexplained_as_they_were(name):
    n, extra, data_sets = NOISE[name]
    changes = []
    for seed in range(data_sets):
        *both, layers = with_noise(n, extra, seed)
        made_of = [in_folds(features, layers) for features in both]
        before, after = (decompose(*made, orders=2) for made in made_of)
        assert before.terms[0, 0, 1] > 0.1
        ceilings = [fold_ceilings(tables).mean() for tables, _ in made_of]
        assert made_of[1][0].n_patterns > 2 * made_of[0][0].n_patterns
        changes.append(
            (
                after.terms[0, 0, 1] - before.terms[0, 0, 1],
                after.terms[1:, 0, 1].sum(),
                after.unexplained[0, 1] - before.unexplained[0, 1],
                ceilings[1] - ceilings[0],
            )
        )
    # One data set decides where there are many pairs; else the mean of some, within its error.
    error = np.std(changes, axis=0, ddof=1) / np.sqrt(data_sets) if data_sets > 1 else np.zeros(4)
    assert (np.abs(np.mean(changes, axis=0)) < np.maximum(0.01, 3 * error)).all()
    assert (error < 0.02).all()


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
    assert found.matrix("kind", layers).loc["one:1", "two:0"] == pytest.approx(found.terms[0, 1, 2])
    summary = found.summary(layers).set_index(["model_a", "model_b", "term"])
    between = table.query("model_b == 'two' and term == 'kind'")["value"]
    assert summary.loc[("one", "two", "kind"), "mean"] == pytest.approx(between.mean())
    assert summary.loc[("one", "two"), "share"].sum() == pytest.approx(1.0)
    with refused("knd", "kind"):
        found.matrix("knd", layers)


def test_patterns_that_no_other_stimuli_have_fall_back_on_coarser_ones():
    rng = np.random.default_rng(3)
    n, folds = 36, explicit.random_folds(36, 3)
    # Hardly a pattern has pairs both inside and outside a fold; the layers have other features.
    features = pd.DataFrame(
        {
            "fine": rng.normal(size=n).round(2),
            "kind": rng.choice(list("abcd"), n),
            "size": rng.integers(0, 5, n).astype(float),
            "odd": [None if i % 5 == 0 else str(i % 7) for i in range(n)],
        }
    )
    layers = [rng.standard_normal((n, 3)) for _ in range(2)]
    layers[0][:, 0] += 3.0 * (features["kind"] == "a")
    layers[1][:, 0] += 1.5 * features["size"]
    x = explicit.feature_distances(features)
    ra, rb = (rankdata(explicit.squared(layer)) for layer in layers)
    orders = [explicit.priority(x, ranks, folds) for ranks in (ra, rb)]
    assert orders[0][0] == 1 and orders[1][0] == 2
    tables, _ = made(features, layers, folds)
    fit = CrossFit.of(tables)
    np.testing.assert_array_equal(np.argsort(fit.priority, axis=1), orders)
    for chosen in ((0, 1, 2, 3), (0, 3), (0, 2, 3), (1, 2)):
        own = fit.explained(fit.whole.only(np.array(chosen)))[0, 0, 1]
        expected = explicit.cross_fitted(x, ra, rb, folds, chosen, orders)
        assert own == pytest.approx(expected, abs=1e-9)


FEATURES, LAYERS, FOLDS, DRAWS = 4, 2, 3, 5


def random_fit(seed=0, sizes=(2, 5, 3, 2), share=0.6):
    """Patterns, and sums by fold of which some have no pairs."""
    rng = np.random.default_rng(seed)
    every = np.array(list(itertools.product(*map(range, sizes))), dtype=np.int64)
    codes = every[rng.random(len(every)) < 0.7]
    counts = rng.poisson(share, (len(codes), 2, 1, FOLDS, DRAWS)).astype(float)
    ranks = rng.normal(size=(len(codes), 2, LAYERS, FOLDS, DRAWS)) * counts
    priority = np.stack([rng.permutation(len(sizes)) for _ in range(LAYERS)])
    spread = rng.random((DRAWS, LAYERS)) + 0.5
    return CrossFit(codes, np.concatenate((counts, ranks), axis=2), spread, priority)


def by_patterns(fit, chosen, d):
    """v of a set of features in one draw: (n_layers, n_layers), pattern by pattern."""
    found, used = np.zeros((LAYERS, LAYERS)), 0
    for k in range(FOLDS):
        inside, outside = (fit.sums[:, side, :, k, d] for side in (0, 1))
        pairs = inside[:, 0].sum()
        if pairs == 0:
            continue
        used += 1
        for a in range(LAYERS):
            order = sorted(chosen, key=lambda f, a=a: fit.priority[a, f])
            for p, code in enumerate(fit.codes):
                for n in range(len(order), -1, -1):
                    alike = (fit.codes[:, order[:n]] == code[order[:n]]).all(axis=1)
                    if outside[alike, 0].sum() > 0:
                        mean = outside[alike, 1 + a].sum() / outside[alike, 0].sum()
                        found[a] += mean * inside[p, 1:] / pairs
                        break
    return (found + found.T) / 2 / np.outer(fit.spread[d], fit.spread[d]) / max(used, 1)


@pytest.mark.parametrize("share", [0.6, 0.05])
def test_every_set_of_features_explains_what_loops_over_patterns_find(share):
    fit = random_fit(share=share)
    sets = FeatureSubsets.of(fit.codes, fit.priority)
    found = both_ways(sets.explained(fit.sums), fit.spread)
    for number, members in enumerate(sets.members):
        for d in range(DRAWS):
            expected = by_patterns(fit, np.flatnonzero(members).tolist(), d)
            np.testing.assert_allclose(found[d, number], expected, atol=1e-12)


@pytest.mark.parametrize("share", [0.6, 0.05])
def test_draws_together_are_divided_as_each_alone(share, monkeypatch):
    fit = random_fit(seed=1, share=share)
    together = divide(fit)
    for d in range(DRAWS):
        alone = divide(CrossFit(fit.codes, fit.sums[..., [d]], fit.spread[[d]], fit.priority))
        np.testing.assert_allclose(together.terms[:, [d]], alone.terms, atol=1e-12)
        np.testing.assert_allclose(together.whole[[d]], alone.whole, atol=1e-12)
    # Too many patterns in all sets together: the same, set by set.
    monkeypatch.setattr(shapley, "MOST_GROUPS", 10)
    shapley._subsets_of.cache_clear()
    assert FeatureSubsets.of(fit.codes, fit.priority) is None
    np.testing.assert_allclose(divide(fit).terms, together.terms, atol=1e-12)
    shapley._subsets_of.cache_clear()
    monkeypatch.setattr(decomposition, "FEW_LAYERS", 1)
    np.testing.assert_allclose(divide(fit).terms, together.terms, atol=1e-12)


def test_its_shares_are_those_of_every_order_of_the_features():
    fit = random_fit()
    sets = FeatureSubsets.of(fit.codes, fit.priority)
    for s, members in enumerate(sets.members):
        only = tuple(np.flatnonzero(members).tolist())
        expected = explicit.shapley_values(lambda chosen, only=only: chosen == only, FEATURES)
        np.testing.assert_allclose(sets.shares[:, s], expected, atol=1e-15)
