"""Contributions from moments: brute force over all sets of features and explicit pairs."""

import numpy as np
import pandas as pd
import pytest
from explicit import held_out, pairs, random_folds, training
from inputs import for_each, refused
from made_moments import explicit_shapley, made_up, moments_of
from scipy.stats import rankdata

from mlem_core.measures.contributions import STABLE, contributions


def explicit_terms(made):
    """Shapley values of what each set of features explains, from explicit pairs."""
    columns, folds = made.moments.columns, made.folds
    z = columns.of_pairs(*pairs(len(folds)))
    ranks = np.stack([rankdata(own) for own in made.distances])
    n_features = len(columns.features)

    def explained(members):
        own = np.isin(columns.first_feature, members) & np.isin(columns.second_feature, members)
        found = np.zeros((len(ranks),) * 2)
        for fold in range(made.moments.n_folds):
            outside, inside = training(folds, fold), held_out(folds, fold)
            a, b = z[outside][:, own], z[inside][:, own]
            a, b = a - a.mean(axis=0), b - b.mean(axis=0)
            gram = a.T @ a + np.diag(STABLE * (a**2).sum(axis=0))
            beta = np.linalg.solve(gram, a.T @ ranks[:, outside].T)
            one_way = beta.T @ (b.T @ ranks[:, inside].T)
            found += (one_way + one_way.T) / 2
        return found

    among = sum(
        np.cov(ranks[:, inside]) * (inside.sum() - 1)
        for inside in (held_out(folds, fold) for fold in range(made.moments.n_folds))
    )
    rsa = np.corrcoef(ranks)
    terms = explicit_shapley(explained, n_features)
    return terms / among * rsa, rsa


@for_each(
    "more", {}, {"by_value": ("kind", "length")}, {"interactions": True}, {"missing": "level"}
)
def test_contributions_are_those_of_explicit_pairs(more):
    made = made_up(**more)
    found = contributions(made.moments)
    terms, rsa = explicit_terms(made)
    np.testing.assert_allclose(found.terms, terms, atol=1e-11)
    np.testing.assert_allclose(found.rsa, rsa, atol=1e-12)
    np.testing.assert_allclose(found.terms.sum(axis=0) + found.unexplained, rsa, atol=1e-12)


@pytest.mark.slow
def test_sampled_orders_agree_with_all_sets_within_their_error():
    made = made_up(by_value=("kind",))
    exact = contributions(made.moments)
    sampled = contributions(made.moments, exact_up_to=0, orders=50)
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
    found = contributions(moments_of(features, layers, random_folds(n)).moments)
    terms = found.terms[:, 0, 1]
    assert terms[0] > 1.5 * terms[1] > 2 * terms[2] > 0.05
    assert np.abs(terms[3:]).max() < 0.005
    assert abs(found.unexplained[0, 1]) < 0.1


@pytest.mark.slow
@for_each("n_values", 2, 8)
def test_a_feature_of_noise_contributes_nothing_on_average(n_values):
    drawn = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        kind, noise = rng.integers(0, 4, 100), rng.integers(0, n_values, 100)
        layers = [rng.standard_normal((100, 5)) for _ in range(2)]
        centres = rng.standard_normal((4, 5))
        layers = [layer + 1.5 * centres[kind] for layer in layers]
        features = pd.DataFrame({"kind": kind.astype(str), "noise": noise.astype(str)})
        made = moments_of(
            features, layers, random_folds(100, seed=seed), by_value=("kind", "noise")
        )
        drawn.append(contributions(made.moments).terms[:, 0, 1])
    mean, error = np.mean(drawn, axis=0), np.std(drawn, axis=0, ddof=1) / np.sqrt(20)
    assert abs(mean[1]) < 3 * error[1] + 0.003 and mean[0] > 0.1


def test_one_fold_leaves_nothing_outside():
    features = pd.DataFrame({"a": list("xyxyxy")})
    made = moments_of(
        features, [np.random.default_rng(0).random((6, 2))] * 2, np.zeros(6, dtype=int)
    )
    with refused("1 fold", "at least 2"):
        contributions(made.moments)


def test_a_column_that_is_constant_outside_a_fold_explains_nothing():
    features = pd.DataFrame({"a": ["x"] * 24 + ["y"] * 6, "b": list("pq") * 15})
    folds = np.repeat(np.arange(5), 6)
    layers = [np.random.default_rng(k).random((30, 3)) for k in range(2)]
    found = contributions(moments_of(features, layers, folds).moments)
    assert np.isfinite(found.terms).all()
    assert found.rsa[0, 1] == pytest.approx(found.terms[:, 0, 1].sum() + found.unexplained[0, 1])
