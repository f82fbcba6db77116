"""Metrics of the highest rank correlation, exact and by soft ranks: explicit pairs, planted."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
import torchsort
from helpers import explicit
from helpers.inputs import refused, statistics_of
from scipy.stats import rankdata, spearmanr
from sklearn.base import clone
from sklearn.datasets import make_spd_matrix

from mlem_core import FRRSA, AnalysisSpec, RidgeMLEM, SoftRankMLEM, SpearmanMLEM
from mlem_core.estimators import training_pairs
from mlem_core.estimators.registry import estimator_named
from mlem_core.estimators.training_pairs import TrainingPairs
from mlem_core.extensions.rank_estimators.estimators import (
    Cells,
    _soft_spearman,
    rank_objectives,
    spacing,
    stable_batch_size,
)
from mlem_core.extensions.rank_estimators.rank_optimizer import RankObjective, WeightForm, maximise
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.column_builder import metric_matrix
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign, pair_places
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.stimuli.folds import fold_pairs
from validation.simulations import pair_cells

N = 75


def features_of(n, grouped):
    """Features of n stimuli, whose pairs are grouped or not."""
    features = explicit.random_features(n)
    if grouped:
        return features[["kind", "gender"]]
    return features.assign(frequency=np.random.default_rng(1).random(n))


def columns_of(features, interactions=False):
    return PairColumns.from_features(feature_columns(features), interactions=interactions)


def pairs_of(features, layers, folds, interactions=False):
    return TrainingPairs.from_columns(
        columns_of(features, interactions),
        folds,
        len(layers),
        lambda layer: explicit.squared(layers[layer]),
    )


def objective_of(pairs, layer, left_out, weights):
    """The objective of weights (n_columns,) on each training set."""
    objectives = list(rank_objectives(pairs, layer, left_out))
    assert len(objectives) == (1 if pairs.is_grouped else len(left_out))
    tries = [np.broadcast_to(weights, (len(own.sums), 1, len(weights))) for own in objectives]
    scores = [own.exact(of)[:, 0] for own, of in zip(objectives, tries, strict=True)]
    return np.concatenate(scores)


@pytest.fixture(params=["one by one", "grouped"])
def training(request):
    """Pairs to train on with interactions or without, and what they are made of."""

    def make(interactions):
        features = features_of(N, grouped=request.param == "grouped")
        folds = explicit.random_folds(N)
        layers = [explicit.random_layer(explicit.random_features(N), seed) for seed in range(2)]
        pairs = pairs_of(features, layers, folds, interactions)
        assert pairs.is_grouped == (request.param == "grouped")
        return folds, layers, pairs, features

    return make


@pytest.mark.parametrize("interactions", [False, True])
def test_objective_is_the_correlation_on_the_training_pairs(training, interactions):
    folds, layers, pairs, features = training(interactions)
    distances = explicit.feature_distances(features)
    x = explicit.products(distances) if interactions else distances**2
    weights = np.random.default_rng(0).random(x.shape[1])
    found = objective_of(pairs, 1, [*range(5), None], weights)
    target, score = explicit.squared(layers[1]), explicit.rho_a
    for k in range(5):
        use = explicit.training(folds, k)
        assert found[k] == pytest.approx(score(x[use] @ weights, target[use]), abs=1e-9)
    assert found[5] == pytest.approx(score(x @ weights, target), abs=1e-9)


@pytest.mark.parametrize("grouped", [False, True])
def test_sums_are_those_of_the_explicit_training_pairs(grouped):
    """Also with folds over both sentences and words, between which some stimuli stand."""
    features = features_of(40, grouped)
    layers = [explicit.random_layer(explicit.random_features(40), 3)]
    folds = np.random.default_rng(0).integers(-3, 3, 40)
    pairs = pairs_of(features, layers, folds)
    target = explicit.squared(layers[0])
    of_folds = fold_pairs(folds)
    for ranked in (True, False):
        for fold, own in enumerate(pairs.sums(0, range(3), ranked=ranked)):
            use = explicit.training(of_folds, fold)
            fitted = target[use]
            if ranked:
                fitted = rankdata(fitted) - (len(fitted) + 1) / 2
            group = pairs.group[use]
            for g, (count, total) in enumerate(zip(own.counts, own.sums, strict=True)):
                assert count == (group == g).sum()
                assert total == pytest.approx(fitted[group == g].sum())
            assert own.squares == pytest.approx((fitted**2).sum())
    x = explicit.feature_distances(features) ** 2
    np.testing.assert_allclose(pairs.values[pairs.group], x, atol=1e-12)


def test_of_many_pairs_a_sample_is_trained_on(monkeypatch):
    n = 200
    features = features_of(n, grouped=False)
    layers = [explicit.random_layer(features, 1)]
    folds = explicit.random_folds(n)
    everything = pairs_of(features, layers, folds)
    fitted = SpearmanMLEM().solve(None, [None], everything).coef
    monkeypatch.setattr(training_pairs, "MOST_PAIRS", 10_000)
    monkeypatch.setattr(training_pairs, "SAMPLED", 6_000)
    sample = pairs_of(features, layers, folds)
    assert 5_000 < len(sample.first) <= 6_000 and not sample.is_grouped
    np.testing.assert_array_equal(sample.distances(0), everything.distances(0)[sample.places])
    np.testing.assert_array_equal(sample.values, everything.values[sample.places])
    again = pairs_of(features, layers, folds)
    np.testing.assert_array_equal(sample.places, again.places)
    of_sample = SpearmanMLEM().solve(None, [None], sample).coef
    best, reached = (
        objective_of(everything, 0, [None], coef[0, 0])[0] for coef in (fitted, of_sample)
    )
    assert best - 0.01 < reached <= best
    # Few distinct rows of columns are grouped, however many pairs there are, up to a point.
    few = features_of(n, grouped=True)
    assert len(pairs_of(few, layers, folds).first) == n * (n - 1) / 2
    monkeypatch.setattr(training_pairs, "MOST_GROUPED", 10_000)
    grouped = pairs_of(few, layers, folds)
    assert grouped.is_grouped and len(grouped.first) <= 6_000
    expected = explicit.feature_distances(few)[grouped.places] ** 2
    np.testing.assert_allclose(grouped.values[grouped.group], expected)


def test_some_of_the_pairs_are_those_of_the_design(monkeypatch):
    n = 60
    features, folds = explicit.random_features(n), explicit.random_folds(n)
    rows = explicit.random_layer(features, 1)
    design = PairDesign.from_budget(folds, 600)
    first, second = design.ends(np.arange(design.n_pairs))
    x = explicit.feature_distances(features) ** 2
    target = ((rows[first].astype(float) - rows[second]) ** 2).sum(axis=1)
    columns = columns_of(features[["kind", "gender"]])
    pairs = TrainingPairs.from_columns(columns, folds, 1, lambda _: target, design)
    assert pairs.is_grouped
    places = pair_places(first, second, n)
    np.testing.assert_allclose(pairs.values[pairs.group], x[places][:, [0, 2]], atol=1e-12)
    found = objective_of(pairs, 0, [0], np.array([1.0, 0.5]))
    use = (folds[first] != 0) & (folds[second] != 0)
    predicted = x[places][:, [0, 2]] @ [1.0, 0.5]
    assert found[0] == pytest.approx(explicit.rho_a(predicted[use], target[use]), abs=1e-9)


@pytest.mark.parametrize("interactions", [False, True])
def test_training_beats_ridge_and_is_scored_on_held_out_pairs(interactions):
    features, folds = explicit.random_features(N), explicit.random_folds(N)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    pairs = pairs_of(features, layers, folds, interactions)
    distances = explicit.feature_distances(features)
    x = explicit.products(distances) if interactions else distances**2
    statistics = statistics_of(features, layers, folds, interactions=interactions)
    with refused("training sets"):
        SpearmanMLEM().cross_validate(statistics)
    fits = SpearmanMLEM().cross_validate(statistics, pairs)
    ridge = RidgeMLEM().cross_validate(statistics)
    for layer, rows in enumerate(layers):
        for fold in range(5):
            best, plain = (
                objective_of(pairs, layer, [fold], own.weights[layer, fold])[0]
                for own in (fits, ridge)
            )
            assert best > plain - 1e-9
        target = explicit.squared(rows)
        for k in range(5):
            test = explicit.held_out(folds, k)
            rho = explicit.rho(x[test] @ fits.weights[layer, k], target[test])
            assert fits.rho[layer, k] == pytest.approx(rho, abs=1e-9)
    assert np.isnan(fits.alpha).all()


@pytest.mark.parametrize("constraint", ["metric", "none"])
def test_importance_of_interactions_equals_monte_carlo(constraint):
    features, folds = explicit.random_features(N), explicit.random_folds(N)
    layers = [explicit.random_layer(features)]
    distances = explicit.feature_distances(features)
    statistics = statistics_of(features, layers, folds, interactions=True)
    pairs = pairs_of(features, layers, folds, True)
    fits = {"metric": SpearmanMLEM, "none": FRRSA}[constraint]().cross_validate(statistics, pairs)
    fold = 1
    exact = permutation_importance(statistics.tests, fits.weights).drop[0, fold]
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


def problems(shape, truth, noise=0.0, n_problems=2, n_pairs=4000, seed=0):
    """Pairs with few distinct rows of columns, and their objective."""
    rng = np.random.default_rng(seed)
    possible = rng.integers(0, 6, (150, shape.n_features)) / 5
    terms = explicit.products(possible) if shape.interactions else possible**2
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
    objective, _ = problems(WeightForm(3), np.array([1.0, 0.5, 0.2]), 5.0)
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
    shape = WeightForm(2)
    objective, _ = problems(shape, np.array([1.0, 0.3]), noise=20.0)
    angle = np.linspace(0, np.pi / 2, 5001)
    every = np.stack((np.cos(angle), np.sin(angle)), axis=1)
    best = objective.exact(np.stack([every, every])).max(axis=1)
    found = objective.exact(maximise(objective, shape)[:, None])[:, 0]
    np.testing.assert_allclose(found, best, atol=2e-5)


def test_a_metric_is_positive_definite_and_fr_rsa_need_not_be():
    shapes = [WeightForm(3, True, constraint) for constraint in ("metric", "none")]
    w = np.array([[1.0, 0.9, 0.0], [0.9, 0.1, 0.3], [0.0, 0.3, 0.4]])
    assert np.linalg.eigvalsh(w).min() < -0.1
    objective, _ = problems(shapes[0], shapes[0].feature_weights(w))
    metric, free = (maximise(objective, shape) for shape in shapes)
    assert np.linalg.eigvalsh(metric_matrix(metric, 3)).min() > 0
    assert np.linalg.eigvalsh(metric_matrix(free, 3)).min() < -0.05
    best = [objective.exact(found[:, None]).min() for found in (metric, free)]
    assert best[1] > best[0] + 0.001


def test_terms_that_do_not_vary_and_tied_distances_have_no_weight():
    objective, _ = problems(WeightForm(3), np.array([1.0, 0.5, 0.2]))
    objective.terms[:, 1] = 0.0
    objective.sums[1], objective.squares[1] = 0.0, 0.0
    found = maximise(objective, WeightForm(3))
    assert (found[:, 1] == 0).all() and not found[1].any()
    assert np.linalg.norm(found[0]) == pytest.approx(1)


def test_exact_objective_equals_the_explicit_pairs():
    objective, pairs = problems(WeightForm(3), np.array([1.0, 0.5, 0.2]), 5.0)
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
    shape = WeightForm(3, interactions, constraint)
    w = make_spd_matrix(3, random_state=1) if interactions else np.diag([1.0, 0.5, 0.2])
    truth = shape.unit(shape.feature_weights(w))
    objective, _ = problems(shape, truth)
    found = maximise(objective, shape)
    assert np.linalg.norm(metric_matrix(found - truth, 3), axis=(1, 2)).max() < 0.05
    np.testing.assert_allclose(np.linalg.norm(metric_matrix(found, 3), axis=(1, 2)), 1)
    ceiling = objective.exact(np.broadcast_to(truth, (2, 1, shape.n_columns)))[:, 0]
    assert (objective.exact(found[:, None])[:, 0] > ceiling - 2e-4).all()


def soft_rank(values, strength):
    return torchsort.soft_rank(torch.tensor(values)[None], regularization_strength=strength)[0]


def test_cells_are_drawn_as_often_as_they_have_pairs():
    counts = np.array([1.0, 2.0, 5.0])
    cells = Cells(np.zeros((3, 1)), np.arange(3), counts, np.zeros(3))
    drawn = np.bincount(cells.draw(80_000, np.random.default_rng(0)))
    assert np.abs(drawn - 10_000 * counts).max() < 600


def test_batch_size_is_where_correlations_of_the_terms_are_stable():
    rng = np.random.default_rng(0)
    features = pd.DataFrame(rng.choice(["x", "y"], (400, 3)), columns=list("abc"))
    cells = pair_cells(columns_of(features), rng.random((400, 2)))
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
    cells = pair_cells(columns_of(features, True), matrix, "precomputed", ranked=True)
    ascent = model.ascent(cells, 3, True)
    assert np.linalg.norm(metric_matrix(ascent.weights, 3) - w) < 0.15
    assert 50 < ascent.n_steps < 1000


@pytest.mark.parametrize(("name", "near"), [("spearman", 0.02), ("soft-rank", 0.15)])
def test_a_planted_metric_comes_back_with_interactions(planted, name, near):
    features, matrix, w = planted
    folds = explicit.random_folds(150, 3)
    statistics = statistics_of(features, [matrix], folds, interactions=True, distance="precomputed")
    pairs = TrainingPairs.from_columns(
        statistics.columns, folds, 1, lambda _: squared_distances(matrix, "precomputed")
    )
    model = estimator_named(name).model()
    model.batch_size = 500  # of soft-rank
    fits = model.cross_validate(statistics, pairs)
    assert fits.rho.min() > 0.98 and np.isnan(fits.alpha).all()
    found = metric_matrix(fits.weights[0], 3)
    assert np.linalg.norm(found - w, axis=(1, 2)).max() < near
    assert np.linalg.eigvalsh(found).min() > 0


def test_without_torchsort_it_says_so(monkeypatch, planted):
    monkeypatch.setitem(sys.modules, "torchsort", None)
    spec = AnalysisSpec(models=("minilm",), estimator="soft-rank")
    for asked in (lambda: SoftRankMLEM(distance="precomputed").fit(*planted[:2]), spec.check):
        with refused("soft-rank", "requirements-torchsort.txt", "another"):
            asked()
    SpearmanMLEM(distance="precomputed").fit(*planted[:2])
