"""The choice between ridge and ridge on ranks: scikit-learn on the pairs across folds."""

import itertools

import explicit
import numpy as np
import pytest
from inputs import random_case, tables_of
from scipy.spatial.distance import squareform
from scipy.stats import rankdata

from mlem_core.estimators.choice import ChoosingSolver, across_folds
from mlem_core.estimators.ridge_solver import ALPHAS, RidgeSolver

N, TARGETS = 50, ("distance", "rank")


@pytest.fixture(scope="module")
def case():
    return random_case(N, 2, train_ranks=True)


def slowly(x, target, folds, of):
    """The highest mean ρ across two folds over the strengths, the spread being that of all."""
    ranks = rankdata(target) - (len(target) + 1) / 2
    i, j = explicit.pairs(len(folds))
    means = np.zeros(len(ALPHAS))
    for a, b in itertools.combinations(range(5), 2):
        test = (np.minimum(folds[i], folds[j]) == a) & (np.maximum(folds[i], folds[j]) == b)
        use = explicit.training(folds, a, b) & (folds[i] != folds[j])
        y = explicit.scaled(target[use]) if of == "distance" else ranks[use] / len(ranks)
        own = ranks[test] - ranks[test].mean()
        spread = (ranks @ ranks) * test.sum() / len(ranks)
        for at, alpha in enumerate(ALPHAS):
            predicted = rankdata(np.round(x[test] @ explicit.ridge(x[use], y, alpha).coef_, 12))
            predicted -= predicted.mean()
            means[at] += own @ predicted / np.sqrt(max(predicted @ predicted * spread, 1e-300))
    return means.max() / 10


@pytest.mark.parametrize("of", TARGETS)
def test_scores_across_folds_are_those_of_sklearn_on_explicit_pairs(case, of):
    folds, layers, tables, distances = case
    expected = [slowly(distances**2, explicit.squared(rows), folds, of) for rows in layers]
    np.testing.assert_allclose(across_folds(tables, of == "rank"), expected, atol=1e-6)


def test_what_is_tested_has_no_part_in_the_choice(case):
    folds, layers, tables, _ = case
    square = squareform(np.sqrt(explicit.squared(layers[0])))
    i, j = explicit.pairs(N)
    i, j = (end[folds[i] == folds[j]] for end in (i, j))
    square[i, j] = square[j, i] = np.random.default_rng(0).permutation(square[i, j])
    other = tables_of(
        explicit.random_features(N), [square], folds, distance="precomputed", train_ranks=True
    )
    for of in TARGETS:
        np.testing.assert_allclose(
            *(across_folds(one, of == "rank")[:1] for one in (other, tables)), rtol=1e-9
        )
    tested = [RidgeSolver().cross_validate(one).rho[0] for one in (other, tables)]
    assert np.abs(tested[0] - tested[1]).max() > 0.05


def test_the_one_that_scores_higher_is_fitted(case, monkeypatch):
    tables = case[2]
    for better in TARGETS:
        monkeypatch.setattr(
            "mlem_core.estimators.choice.across_folds",
            lambda _, ranked=False, better=better: np.array([0.5 * (TARGETS[ranked] == better)]),
        )
        found = ChoosingSolver().cross_validate(tables).weights
        np.testing.assert_array_equal(found, RidgeSolver(better).cross_validate(tables).weights)
