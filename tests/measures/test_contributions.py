"""Contributions from moments: brute force over all sets of features and explicit pairs."""

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.explicit import pairs, random_folds
from helpers.inputs import for_each, refused
from helpers.moments import made_up, moments_of
from scipy.stats import rankdata

from mlem_core.measures import contributions, decomposition
from mlem_core.measures.decomposition import decompose


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
    x, own = (
        columns.pair_values(*pairs(len(made.folds))),
        (columns.first_feature, columns.second_feature),
    )
    terms = explicit.contributions(x, [*zip(*own, strict=True)], ranks, made.folds, items)
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
    found = decompose(moments_of(features, layers, random_folds(n)).moments)
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
