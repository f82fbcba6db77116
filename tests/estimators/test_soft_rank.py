"""Soft ranks by torchsort: pairs, batches, ranks, and the ascent to a planted metric."""

import sys

import explicit
import numpy as np
import pandas as pd
import pytest
import torch
import torchsort
from inputs import refused
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata, spearmanr
from sklearn.base import clone

from mlem_core.estimators.soft_rank import (
    FeatureDistances,
    SoftRankMLEM,
    _soft_spearman,
    sample_pairs,
    spacing,
    stable_batch_size,
)
from mlem_core.estimators.spearman import SpearmanMLEM
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import pair_distances
from mlem_core.pairs.terms import Columns


def soft_rank(values, strength):
    return torchsort.soft_rank(torch.tensor(values)[None], regularization_strength=strength)[0]


@pytest.mark.parametrize("missing", ["ignore", "level"])
def test_feature_distances_are_those_of_the_explicit_pairs(missing):
    features = explicit.random_features(40)
    found = FeatureDistances(feature_columns(features), missing).of(*explicit.pairs(40))
    np.testing.assert_allclose(found, explicit.feature_distances(features, missing), atol=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan", "correlation"])
def test_neural_distances_of_any_pairs(metric):
    rows = np.random.default_rng(0).standard_normal((30, 6))
    names = {"euclidean": "sqeuclidean", "manhattan": "cityblock"}
    expected = pdist(rows, names.get(metric, metric)) ** (1 if metric == "euclidean" else 2)
    i, j = explicit.pairs(30)
    np.testing.assert_allclose(pair_distances(rows, metric)(i, j), expected, atol=1e-9)
    matrix = squareform(expected)
    np.testing.assert_allclose(pair_distances(matrix, "precomputed")(i, j), expected**2)


def test_sampled_pairs_are_of_two_stimuli_each_as_likely():
    i, j = sample_pairs(6, 60_000, np.random.default_rng(0))
    assert (i != j).all()
    off = np.bincount(i * 6 + j, minlength=36).reshape(6, 6)[~np.eye(6, dtype=bool)]
    assert np.abs(off - 2000).max() < 250


def test_batch_size_is_where_correlations_of_the_terms_are_stable():
    rng = np.random.default_rng(0)
    features = pd.DataFrame(rng.choice(["x", "y"], (400, 3)), columns=list("abc"))
    distances = FeatureDistances(feature_columns(features))
    columns = Columns(("a", "b", "c"))
    size = stable_batch_size(distances, 400, columns)
    # The standard deviation of a correlation near 0 is 1 / √n: 10,000 pairs for 0.01.
    assert 5_000 < size < 25_000
    assert stable_batch_size(distances, 400, columns, threshold=0.02) < size / 2
    assert stable_batch_size(distances, 400, columns, threshold=1e-4) == 50_000


def test_a_soft_rank_of_strength_one_is_no_rank_and_ours_is():
    values = np.random.default_rng(0).exponential(size=20_000)
    values = (values - values.min()) / np.ptp(values)
    ranks = rankdata(values)
    strength = spacing(np.sort(values), np.ones(len(values)))
    ours = soft_rank(values, strength).numpy()
    default = soft_rank(values, 1.0).numpy()
    assert np.corrcoef(ours, ranks)[0, 1] > 0.999
    assert np.corrcoef(default, ranks)[0, 1] < 0.9
    assert np.corrcoef(default, values)[0, 1] > 0.999999


def test_tied_predictions_get_their_average_rank():
    rng = np.random.default_rng(0)
    scores, inverse = torch.tensor([0.0, 0.2, 0.5, 1.0]).double(), rng.integers(0, 4, 500)
    target = rng.random(500) + 0.3 * inverse
    found = _soft_spearman(torch, torchsort.soft_rank, scores, inverse, target, 1e-6)
    # Ranks of the target are soft as well where the strength is given; they are nearly exact.
    expected = spearmanr(scores.numpy()[inverse], target).statistic
    assert float(found) == pytest.approx(expected, abs=1e-3)


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(0)
    features = pd.DataFrame(rng.integers(0, 6, (150, 3)) / 5, columns=list("abc"))
    w = np.array([[1.0, 0.3, 0.0], [0.3, 0.6, 0.2], [0.0, 0.2, 0.3]])
    values = features.to_numpy()
    apart = np.abs(values[:, None] - values[None])
    return features, np.einsum("ijf,fg,ijg->ij", apart, w, apart) ** 2, w / np.linalg.norm(w)


@pytest.mark.parametrize("constraint", ["metric", "none"])
def test_planted_metric_comes_near(planted, constraint):
    features, matrix, w = planted
    model = SoftRankMLEM(
        interactions=True, constraint=constraint, distance="precomputed", batch_size=500
    )
    model.fit(features, matrix)
    assert np.linalg.norm(model.W_ - w) < 0.15
    assert np.linalg.norm(model.W_) == pytest.approx(1)
    assert model.score(features, matrix) > 0.99
    assert 50 < model.n_steps_ < 1000
    if constraint == "metric":
        assert np.linalg.eigvalsh(model.W_).min() > 0
    np.testing.assert_array_equal(model.coef_, clone(model).fit(features, matrix).coef_)


def test_without_torchsort_it_says_so(monkeypatch, planted):
    monkeypatch.setitem(sys.modules, "torchsort", None)
    with refused("torchsort", "SpearmanMLEM"):
        SoftRankMLEM(distance="precomputed").fit(*planted[:2])
    SpearmanMLEM(distance="precomputed").fit(*planted[:2])
