"""Ridge metrics, and the choice between two: scikit-learn on explicit pairs, planted weights."""

import itertools

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import random_case, refused, tables_of
from scipy.spatial.distance import squareform
from scipy.stats import rankdata
from sklearn.model_selection import GroupKFold

from mlem_core.data.folds import group_folds
from mlem_core.estimators.base import RidgeMLEM
from mlem_core.estimators.normal_equations import (
    moments,
    penalty_matrices,
    ridge_weights,
    training_blocks,
)
from mlem_core.estimators.ridge_solver import ALPHAS, RidgeSolver, across_folds
from mlem_core.pairs.crossfit import fold_ceilings

N = 75


@pytest.fixture(scope="module")
def case():
    folds, layers, tables, distances = random_case(N, 3, train_ranks=True)
    return folds, layers, tables, distances


@pytest.mark.parametrize("left_out", [(0,), (1, 3)])
def test_fit_equals_sklearn_on_the_explicit_pairs(case, left_out):
    folds, layers, tables, distances = case
    equations = moments(tables, training_blocks(tables, [left_out]))
    fitted = ridge_weights(equations, penalty_matrices(tables, ALPHAS))
    use = explicit.training(folds, *left_out)
    for layer, rows in enumerate(layers):
        y = explicit.scaled(explicit.squared(rows)[use])
        for a, alpha in enumerate(ALPHAS):
            expected = explicit.ridge(distances[use] ** 2, y, alpha).coef_
            np.testing.assert_allclose(fitted[layer, 0, a], expected, atol=1e-6)


@pytest.mark.parametrize("target_of", ["distance", "rank"])
def test_nested_cross_validation_equals_the_slow_way(case, target_of):
    folds, layers, tables, distances = case
    alphas = ALPHAS[::2]
    fits = RidgeMLEM(alphas, target=target_of).cross_validate(tables)
    np.testing.assert_array_equal(fits.ceiling, fold_ceilings(tables))
    for layer, fold in ((0, 0), (2, 4)):
        target = explicit.squared(layers[layer])
        explicit.hold_ridge(fits, layer, fold, distances**2, target, folds, alphas, target_of)


def test_ridge_with_interactions_equals_sklearn(case):
    _, layers, _, distances = case
    features, x = explicit.random_features(N), explicit.products(distances)
    for target in ("distance", "rank"):
        y = explicit.squared(layers[0])
        y = rankdata(y) / len(y) - 0.5 / len(y) if target == "rank" else explicit.scaled(y)
        expected = explicit.ridge(x, y, 1.0)
        model = RidgeMLEM(alphas=[1.0], interactions=True, target=target).fit(features, layers[0])
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
        assert model.intercept_ == pytest.approx(expected.intercept_, abs=1e-6)
        np.testing.assert_allclose(model.predict(features), expected.predict(x), atol=1e-5)
        np.testing.assert_allclose(model.W_, model.W_.T)


def planted(n):
    """Stimuli with binary features, represented so that D² = Σ w_f Δ_f² exactly; and w."""
    rng, weights = np.random.default_rng(0), np.array([3.0, 0.0, 1.0, 0.5])
    bits = rng.integers(0, 2, (n, len(weights)))
    features = pd.DataFrame(
        {f"f{k}": np.array(["no", "yes"])[bits[:, k]] for k in range(len(weights))}
    )
    turn = np.linalg.qr(rng.standard_normal((20, len(weights))))[0]
    return features, bits * np.sqrt(weights) @ turn.T + rng.standard_normal(20), weights


def test_planted_weights_come_back():
    features, layer, truth = planted(100)
    model = RidgeMLEM(alphas=[1e-8]).fit(features, layer)
    # The target is scaled to [0, 1]: the largest distance has all features different.
    np.testing.assert_allclose(model.coef_, truth / truth.sum(), atol=1e-8)
    assert model.intercept_ == pytest.approx(0, abs=1e-8)
    assert model.score(features, layer) == pytest.approx(1)


def test_estimator_chooses_alpha_and_scores_new_stimuli():
    features, layer, _ = planted(300)
    layer = layer + 0.3 * np.random.default_rng(0).standard_normal(layer.shape)
    model = RidgeMLEM(cv=4).fit(features[:200], layer[:200])
    assert model.alpha_ in ALPHAS
    assert model.coef_.argmax() == 0 and model.coef_[1] < 0.05
    x = explicit.feature_distances(features[200:].reset_index(drop=True)) ** 2
    expected = explicit.rho(x @ model.coef_, explicit.squared(layer[200:]))
    assert model.score(features[200:], layer[200:]) == pytest.approx(expected, abs=1e-9)


def test_ordered_features_keep_the_range_they_were_fitted_with():
    rng = np.random.default_rng(0)
    features = pd.DataFrame({"x": np.arange(50.0), "y": rng.choice(["a", "b"], 50)})
    model = RidgeMLEM(alphas=[1e-8]).fit(features, rng.standard_normal((50, 3)))
    assert model.spans_["x"] == (0.0, 49.0)
    near = pd.DataFrame({"x": [0.0, 4.9], "y": ["a", "a"]})
    assert model.predict(near)[0] == pytest.approx(model.coef_[0] * 0.1**2 + model.intercept_)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_folds_split_no_group_and_are_those_of_scikit_learn(seed):
    groups = 3 * np.random.default_rng(seed).integers(0, 40, 200)
    expected = np.empty(200, dtype=np.int64)
    splitter = GroupKFold(5, shuffle=True, random_state=seed)
    for fold, (_, test) in enumerate(splitter.split(groups, groups=groups)):
        expected[test] = fold
    found = group_folds(groups, 5, seed)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(group_folds(groups, splitter, None), expected)
    assert all(len(set(found[groups == group])) == 1 for group in groups)
    assert (found != group_folds(groups, 5, seed + 1)).any()


def test_too_few_groups_or_folds():
    with refused("5 folds", "4 sentences"):
        group_folds(np.arange(4), 5, 0)
    with refused("a fold with 2"):
        group_folds(np.arange(10), 5, 0)
    features = explicit.random_features(30)
    tables = tables_of(features, [explicit.random_layer(features)], explicit.random_folds(30, 2))
    with refused("at least 3"):
        RidgeMLEM().cross_validate(tables)


def test_the_ceiling_is_what_the_best_function_of_the_pattern_reaches():
    rng = np.random.default_rng(0)
    n, folds = 500, explicit.random_folds(500, 5)
    features = pd.DataFrame({"a": rng.choice(list("xy"), n), "b": rng.choice(list("xyz"), n)})
    # Only the two together matter: no metric without interactions can have it all.
    layer = rng.standard_normal((n, 3))
    layer[:, 0] += 3.0 * ((features["a"] == "x") & (features["b"] == "y"))
    fits = RidgeMLEM().cross_validate(tables_of(features, [layer], folds))
    i, j = explicit.pairs(n)
    apart = {f: features[f].to_numpy()[i] != features[f].to_numpy()[j] for f in "ab"}
    target = explicit.squared(layer)
    for fold in range(5):
        test = explicit.held_out(folds, fold)
        ranks = pd.Series(rankdata(target[test]))
        best = ranks.groupby([own[test] for own in apart.values()]).transform("mean")
        # With 4 patterns and 4,950 pairs the best function in hindsight is hardly too good.
        assert fits.ceiling[0, fold] == pytest.approx(np.corrcoef(best, ranks)[0, 1], abs=0.03)
    assert fits.ceiling.mean() > fits.rho.mean() + 0.02 > 0.07


FEW, TARGETS = 50, ("distance", "rank")


@pytest.fixture(scope="module")
def few():
    return random_case(FEW, 2, train_ranks=True)


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
def test_scores_across_folds_are_those_of_sklearn_on_explicit_pairs(few, of):
    folds, layers, tables, distances = few
    expected = [slowly(distances**2, explicit.squared(rows), folds, of) for rows in layers]
    np.testing.assert_allclose(across_folds(tables, of == "rank"), expected, atol=1e-6)


def test_what_is_tested_has_no_part_in_the_choice(few):
    folds, layers, tables, _ = few
    square = squareform(np.sqrt(explicit.squared(layers[0])))
    i, j = explicit.pairs(FEW)
    i, j = (end[folds[i] == folds[j]] for end in (i, j))
    square[i, j] = square[j, i] = np.random.default_rng(0).permutation(square[i, j])
    other = tables_of(
        explicit.random_features(FEW), [square], folds, distance="precomputed", train_ranks=True
    )
    for of in TARGETS:
        np.testing.assert_allclose(
            *(across_folds(one, of == "rank")[:1] for one in (other, tables)), rtol=1e-9
        )
    tested = [RidgeSolver().cross_validate(one).rho[0] for one in (other, tables)]
    assert np.abs(tested[0] - tested[1]).max() > 0.05
