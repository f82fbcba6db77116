"""Metrics of the highest rank correlation, exact and by soft ranks: explicit pairs, planted."""

import sys

import explicit
import numpy as np
import pandas as pd
import pytest
import torch
import torchsort
from inputs import random_case, refused
from scipy.stats import rankdata, spearmanr
from sklearn.base import clone
from sklearn.datasets import make_spd_matrix

from mlem_core import FRRSA, AnalysisSpec, RidgeMLEM, SoftRankMLEM, SpearmanMLEM
from mlem_core.estimators.ascent import RankObjective, WeightForm, maximise
from mlem_core.estimators.registry import estimator_named
from mlem_core.estimators.spearman import (
    Cells,
    _soft_spearman,
    spacing,
    stable_batch_size,
    training_objective,
)
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.terms import Columns
from validation.simulations import pair_cells

N = 75


@pytest.fixture(scope="module")
def case():
    return random_case(N, 2, train_ranks=True)


@pytest.mark.parametrize("interactions", [False, True])
def test_objective_is_the_correlation_on_the_training_pairs(case, interactions):
    folds, layers, tables, distances = case
    x = explicit.products(distances) if interactions else distances**2
    weights = np.random.default_rng(0).random(x.shape[1])
    tables = tables.with_interactions(interactions)
    objective = training_objective(tables, 1, range(tables.n_folds))
    found = objective.exact(np.broadcast_to(weights, (5, 1, len(weights))))[:, 0]
    target, score = explicit.squared(layers[1]), explicit.rho_a
    for k in range(5):
        use = explicit.training(folds, k)
        assert found[k] == pytest.approx(score(x[use] @ weights, target[use]), abs=1e-9)
    whole = training_objective(tables, 1, [None]).exact(weights[None, None])
    assert whole[0, 0] == pytest.approx(score(x @ weights, target), abs=1e-9)


@pytest.mark.parametrize("interactions", [False, True])
def test_training_beats_ridge_and_is_scored_on_held_out_pairs(case, interactions):
    folds, layers, tables, distances = case
    x = explicit.products(distances) if interactions else distances**2
    tables = tables.with_interactions(interactions)
    fits = SpearmanMLEM().cross_validate(tables)
    ridge = RidgeMLEM().cross_validate(tables)
    for layer, rows in enumerate(layers):
        objective = training_objective(tables, layer, range(tables.n_folds))
        found = objective.exact(fits.weights[layer][:, None])[:, 0]
        assert (found > objective.exact(ridge.weights[layer][:, None])[:, 0] - 1e-9).all()
        target = explicit.squared(rows)
        for k in range(5):
            test = explicit.held_out(folds, k)
            rho = explicit.rho(x[test] @ fits.weights[layer, k], target[test])
            assert fits.rho[layer, k] == pytest.approx(rho, abs=1e-9)
    assert np.isnan(fits.alpha).all()


@pytest.mark.parametrize("constraint", ["metric", "none"])
def test_importance_of_interactions_equals_monte_carlo(case, constraint):
    folds, layers, tables, distances = case
    tables = tables.with_interactions()
    fits = {"metric": SpearmanMLEM, "none": FRRSA}[constraint]().cross_validate(tables)
    fold = 1
    exact = permutation_importance(tables, fits.weights)[0, fold]
    test = explicit.held_out(folds, fold)
    x, target = explicit.products(distances)[test], explicit.squared(layers[0])[test]
    drops = [
        explicit.drop(x, fits.weights[0, fold], target, explicit.permuting(c), 150)
        for c in range(x.shape[1])
    ]
    mean, error = np.transpose(drops)
    # 1 / n_pairs is what the exact value leaves out.
    np.testing.assert_array_less(np.abs(exact - mean), 4 * error + 2 / test.sum())
    assert np.abs(exact).max() > 10 * error.max()


def test_fr_rsa_finds_a_negative_weight():
    features = pd.DataFrame(np.random.default_rng(0).integers(0, 8, (150, 3)) / 7, columns=NAMES)
    values = features.to_numpy()
    apart = np.abs(values[:, None] - values[None])
    matrix = apart**2 @ [1.0, 0.5, 0.0] + 0.5 - 0.3 * apart[..., 2]
    np.fill_diagonal(matrix, 0.0)
    free = FRRSA(distance="precomputed").fit(features, matrix)
    bound = SpearmanMLEM(distance="precomputed").fit(features, matrix)
    assert free.coef_[2] < -0.1 and bound.coef_[2] == 0
    assert free.score(features, matrix) > bound.score(features, matrix) + 0.01
    assert np.linalg.norm(free.coef_) == pytest.approx(1)


NAMES = ("a", "b", "c")


def problems(columns, truth, noise=0.0, n_problems=2, n_pairs=4000, seed=0):
    """Pairs with few distinct patterns, and the objective that their table gives."""
    rng = np.random.default_rng(seed)
    possible = rng.integers(0, 6, (150, len(columns.features))) / 5
    terms = columns.values(possible)
    counts, sums, squares = (np.zeros((n_problems, *s)) for s in ((150,), (150,), ()))
    pairs = []
    for k in range(n_problems):
        pattern = rng.integers(0, 150, n_pairs)
        target = np.exp(3 * (terms @ truth)[pattern]) + noise * rng.random(n_pairs)
        target = target.round(3)
        ranks = rankdata(target) - (n_pairs + 1) / 2
        counts[k], sums[k] = np.bincount(pattern, minlength=150), np.bincount(pattern, ranks, 150)
        squares[k] = ranks @ ranks
        pairs.append((terms[pattern], target))
    return RankObjective(terms, counts, sums, squares), pairs


def test_slope_is_the_gradient_of_the_objective_over_a_window():
    objective, _ = problems(Columns(NAMES), np.array([1.0, 0.5, 0.2]), 5.0)
    weights = np.array([[0.5, 0.5, 0.4], [0.9, 0.1, 0.3]])
    width = 0.1
    n, total = objective.counts, objective.counts.sum(axis=-1)

    def smoothed(weights, k, half):
        s = objective.terms @ weights
        apart = np.clip((s[:, None] - s[None, :]) / half, -1, 1)
        below = 0.5 + 0.75 * (apart - apart**3 / 3)
        return objective.sums[k] @ (below @ n[k]) / ((total[k] ** 3 - total[k]) / 12)

    slope = objective.slope(weights, width)
    for k in range(2):
        half = width * np.ptp(objective.terms @ weights[k])
        expected = [
            (smoothed(weights[k] + e, k, half) - smoothed(weights[k] - e, k, half)) / 2e-5
            for e in 1e-5 * np.eye(3)
        ]
        np.testing.assert_allclose(slope[k], expected, atol=0.05 * np.abs(expected).max())


def test_maximum_of_two_features_is_the_best_of_all_angles():
    columns = Columns(("a", "b"))
    objective, _ = problems(columns, np.array([1.0, 0.3]), noise=20.0)
    angle = np.linspace(0, np.pi / 2, 5001)
    every = np.stack((np.cos(angle), np.sin(angle)), axis=1)
    best = objective.exact(np.stack([every, every])).max(axis=1)
    found = objective.exact(maximise(objective, WeightForm(columns))[:, None])[:, 0]
    np.testing.assert_allclose(found, best, atol=2e-5)


def test_a_metric_is_positive_definite_and_fr_rsa_need_not_be():
    columns = Columns(NAMES, interactions=True)
    w = np.array([[1.0, 0.9, 0.0], [0.9, 0.1, 0.3], [0.0, 0.3, 0.4]])
    assert np.linalg.eigvalsh(w).min() < -0.1
    objective, _ = problems(columns, columns.weights(w))
    metric, free = (maximise(objective, WeightForm(columns, c)) for c in ("metric", "none"))
    assert np.linalg.eigvalsh(columns.matrix(metric)).min() > 0
    assert np.linalg.eigvalsh(columns.matrix(free)).min() < -0.05
    best = [objective.exact(found[:, None]).min() for found in (metric, free)]
    assert best[1] > best[0] + 0.001


def test_terms_that_do_not_vary_and_tied_distances_have_no_weight():
    columns = Columns(NAMES)
    objective, _ = problems(columns, np.array([1.0, 0.5, 0.2]))
    objective.terms[:, 1] = 0.0
    objective.sums[1], objective.squares[1] = 0.0, 0.0
    found = maximise(objective, WeightForm(columns))
    assert (found[:, 1] == 0).all() and not found[1].any()
    assert np.linalg.norm(found[0]) == pytest.approx(1)


def test_exact_objective_equals_the_explicit_pairs():
    objective, pairs = problems(Columns(NAMES), np.array([1.0, 0.5, 0.2]), 5.0)
    tries = np.random.default_rng(1).random((2, 4, 3))
    # Weights that are equal or zero tie patterns.
    tries[:, 1, 2], tries[:, 2, 0], tries[:, 3] = 0.0, tries[:, 2, 1], 0.0
    found = objective.exact(tries)
    for k, (terms, target) in enumerate(pairs):
        for t in range(3):
            assert found[k, t] == pytest.approx(
                explicit.rho_a(terms @ tries[k, t], target), abs=1e-9
            )
        assert found[k, 3] == 0


@pytest.mark.parametrize("constraint", ["metric", "none"])
@pytest.mark.parametrize("interactions", [False, True])
def test_planted_truth_is_recovered_from_distorted_distances(interactions, constraint):
    columns = Columns(NAMES, interactions)
    w = make_spd_matrix(3, random_state=1) if interactions else np.diag([1.0, 0.5, 0.2])
    truth = columns.unit(columns.weights(w))
    shape = WeightForm(columns, constraint)
    objective, _ = problems(columns, truth)
    found = maximise(objective, shape)
    assert np.linalg.norm(columns.matrix(found - truth), axis=(1, 2)).max() < 0.05
    np.testing.assert_allclose(np.linalg.norm(columns.matrix(found), axis=(1, 2)), 1)
    ceiling = objective.exact(np.broadcast_to(truth, (2, 1, len(columns))))[:, 0]
    assert (objective.exact(found[:, None])[:, 0] > ceiling - 2e-4).all()


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
    ours = soft_rank(values, spacing(np.sort(values), np.ones(len(values)))).numpy()
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
