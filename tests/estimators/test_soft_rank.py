"""Soft ranks by torchsort: pairs, batches, ranks, and the ascent to a planted metric."""

import sys

import explicit
import numpy as np
import pandas as pd
import pytest
import torch
import torchsort
from inputs import refused
from scipy.stats import rankdata, spearmanr
from sklearn.base import clone

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.estimators.registry import estimator_named
from mlem_core.estimators.soft_rank import (
    Cells,
    SoftRankMLEM,
    _soft_spearman,
    spacing,
    stable_batch_size,
)
from mlem_core.estimators.spearman import SpearmanMLEM
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.terms import Columns
from validation.simulations import pair_cells


def soft_rank(values, strength):
    return torchsort.soft_rank(torch.tensor(values)[None], regularization_strength=strength)[0]


def index_of(features):
    return PairIndex.build(feature_columns(features), np.zeros(len(features), dtype=np.int64))


def test_cells_are_drawn_as_often_as_they_have_pairs():
    counts = np.array([1.0, 2.0, 5.0])
    cells = Cells(np.zeros((3, 1)), np.arange(3), counts, np.zeros(3))
    drawn = np.bincount(cells.draw(80_000, np.random.default_rng(0)))
    assert np.abs(drawn - 10_000 * counts).max() < 600


def test_batch_size_is_where_correlations_of_the_terms_are_stable():
    rng = np.random.default_rng(0)
    features = pd.DataFrame(rng.choice(["x", "y"], (400, 3)), columns=list("abc"))
    cells = pair_cells(index_of(features), rng.random((400, 2)), Columns(("a", "b", "c")))
    size = stable_batch_size(cells)
    # The standard deviation of a correlation near 0 is 1 / √n: 10,000 pairs for 0.01.
    assert 5_000 < size < 25_000
    assert stable_batch_size(cells, threshold=0.02) < size / 2
    assert stable_batch_size(cells, threshold=1e-4) == 50_000


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
    if constraint == "metric":
        assert np.linalg.eigvalsh(model.W_).min() > 0
    np.testing.assert_array_equal(model.coef_, clone(model).fit(features, matrix).coef_)
    # As published, pair by pair.
    terms = Columns(("a", "b", "c"), interactions=True)
    cells = pair_cells(index_of(features), matrix, terms, "precomputed", ranked=True)
    ascent = model.ascent(cells, terms)
    assert np.linalg.norm(terms.matrix(ascent.weights) - w) < 0.15 and 50 < ascent.n_steps < 1000


@pytest.mark.parametrize(("name", "near"), [("spearman", 0.02), ("soft-rank", 0.15)])
def test_a_planted_metric_comes_back_with_interactions(planted, name, near):
    features, matrix, w = planted
    index = PairIndex.build(feature_columns(features), explicit.random_folds(150, 3))
    tables = pair_tables(index, [lambda: matrix], distance="precomputed", train_ranks=True)
    tables, model = tables.with_interactions(), estimator_named(name).model()
    model.batch_size = 500  # of soft-rank
    fits = model.cross_validate(tables)
    assert fits.rho.min() > 0.98 and np.isnan(fits.alpha).all()
    found = tables.columns.matrix(fits.weights[0])
    assert np.linalg.norm(found - w, axis=(1, 2)).max() < near
    assert np.linalg.eigvalsh(found).min() > 0


def test_without_torchsort_it_says_so(monkeypatch, planted):
    monkeypatch.setitem(sys.modules, "torchsort", None)
    spec = AnalysisSpec(models=("minilm",), estimator="soft-rank")
    for asked in (lambda: SoftRankMLEM(distance="precomputed").fit(*planted[:2]), spec.check):
        with refused("soft-rank", "requirements-torchsort.txt", "spearman"):
            asked()
    SpearmanMLEM(distance="precomputed").fit(*planted[:2])
