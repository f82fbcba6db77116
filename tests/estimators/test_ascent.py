"""The search for the highest rank correlation: the explicit pairs, all angles, planted truths."""

from __future__ import annotations

import explicit
import numpy as np
import pytest
from inputs import refused
from scipy.stats import rankdata
from sklearn.datasets import make_spd_matrix

from mlem_core.estimators.ascent import Shape, maximise
from mlem_core.estimators.rank_objective import RankObjective
from mlem_core.pairs.terms import Columns

NAMES = ("a", "b", "c")


def problems(columns, truth, noise=0.0, n_problems=2, n_pairs=4000, seed=0, name="rho_a"):
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
    return RankObjective(terms, counts, sums, squares, name), pairs


@pytest.mark.parametrize("name", ["rho_a", "rho"])
def test_exact_objective_equals_the_explicit_pairs(name):
    objective, pairs = problems(Columns(NAMES), np.array([1.0, 0.5, 0.2]), 5.0, name=name)
    tries = np.random.default_rng(1).random((2, 4, 3))
    # Weights that are equal or zero tie patterns.
    tries[:, 1, 2], tries[:, 2, 0], tries[:, 3] = 0.0, tries[:, 2, 1], 0.0
    found = objective.exact(tries)
    score = {"rho": explicit.rho, "rho_a": explicit.rho_a}[name]
    for k, (terms, target) in enumerate(pairs):
        for t in range(3):
            assert found[k, t] == pytest.approx(score(terms @ tries[k, t], target), abs=1e-9)
        assert found[k, 3] == 0


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
    found = objective.exact(maximise(objective, Shape(columns))[:, None])[:, 0]
    np.testing.assert_allclose(found, best, atol=2e-5)


@pytest.mark.parametrize("interactions", [False, True])
@pytest.mark.parametrize("constraint", ["metric", "none"])
def test_planted_truth_is_recovered_from_distorted_distances(interactions, constraint):
    columns = Columns(NAMES, interactions)
    w = make_spd_matrix(3, random_state=1) if interactions else np.diag([1.0, 0.5, 0.2])
    truth = columns.unit(columns.weights(w))
    shape = Shape(columns, constraint)
    objective, _ = problems(columns, truth)
    found = maximise(objective, shape)
    assert np.linalg.norm(columns.matrix(found - truth), axis=(1, 2)).max() < 0.05
    np.testing.assert_allclose(np.linalg.norm(columns.matrix(found), axis=(1, 2)), 1)
    ceiling = objective.exact(np.broadcast_to(truth, (2, 1, len(columns))))[:, 0]
    assert (objective.exact(found[:, None])[:, 0] > ceiling - 2e-4).all()


def test_a_metric_is_positive_definite_and_fr_rsa_need_not_be():
    columns = Columns(NAMES, interactions=True)
    w = np.array([[1.0, 0.9, 0.0], [0.9, 0.1, 0.3], [0.0, 0.3, 0.4]])
    assert np.linalg.eigvalsh(w).min() < -0.1
    objective, _ = problems(columns, columns.weights(w))
    metric, free = (maximise(objective, Shape(columns, c)) for c in ("metric", "none"))
    assert np.linalg.eigvalsh(columns.matrix(metric)).min() > 0
    assert np.linalg.eigvalsh(columns.matrix(free)).min() < -0.05
    best = [objective.exact(found[:, None]).min() for found in (metric, free)]
    assert best[1] > best[0] + 0.001


def test_terms_that_do_not_vary_and_tied_distances_have_no_weight():
    columns = Columns(NAMES)
    objective, _ = problems(columns, np.array([1.0, 0.5, 0.2]))
    objective.terms[:, 1] = 0.0
    objective.sums[1], objective.squares[1] = 0.0, 0.0
    found = maximise(objective, Shape(columns))
    assert (found[:, 1] == 0).all() and not found[1].any()
    assert np.linalg.norm(found[0]) == pytest.approx(1)


def test_unknown_choices():
    with refused("tau", "rho_a, rho"):
        problems(Columns(NAMES), np.ones(3), name="tau")
    with refused("spd", "metric, none"):
        Shape(Columns(NAMES), "spd")
