"""Ridge from moments: scikit-learn on explicit pairs, and planted weights that it must recover."""

import numpy as np
import pandas as pd
import pytest
from explicit import hold_ridge, pairs, random_folds
from inputs import for_each, refused
from made_moments import made_up, moments_of

from mlem_core.estimators.registry import FoldFits
from mlem_core.estimators.ridge_solver import ALPHAS, fit_ridge
from mlem_core.measures.importance import permutation_importance


def fits_of(made, fit):
    scores = [own.scores(fit.coef[:, [k]]) for k, own in enumerate(made.tests.folds)]
    rho, rho_a = (np.concatenate(own, axis=1) for own in zip(*scores, strict=True))
    return FoldFits(fit.coef, fit.alpha, rho, rho_a, np.full(rho.shape, np.nan))


@for_each("more", {}, {"interactions": True}, {"missing": "level"})
@pytest.mark.filterwarnings("ignore:The lbfgs solver did not converge")
def test_nested_ridge_is_that_of_explicit_pairs(more):
    made = made_up(**more)
    fit = fit_ridge(made.moments, made.tests, range(5))
    x = made.moments.columns.of_pairs(*pairs(60))
    fits = fits_of(made, fit)
    hold_ridge(fits, 1, 3, x, made.distances[1], made.folds, ALPHAS, "distance")


def test_weights_of_many_continuous_features_are_recovered_without_bins():
    """Twenty continuous features, ten of which count: held-out ρ is what explicit pairs have."""
    n, rng = 300, np.random.default_rng(0)
    planted = np.r_[np.linspace(3.0, 0.3, 10), np.zeros(10)]
    values = rng.uniform(size=(n, 20))
    values = (values - values.min(axis=0)) / np.ptp(values, axis=0)
    layer = values * np.sqrt(planted) @ np.linalg.qr(rng.standard_normal((20, 20)))[0]
    features = pd.DataFrame(values, columns=[f"f{k}" for k in range(20)])
    made = moments_of(features, [layer], random_folds(n))
    assert not made.tests.is_grouped
    fit = fit_ridge(made.moments, made.tests, range(5))
    rho = fits_of(made, fit).rho
    assert rho.min() > 0.999
    mean = fit.coef[0].mean(axis=0)
    np.testing.assert_allclose(mean / mean.sum(), planted / planted.sum(), atol=2e-3)
    importance = permutation_importance(made.tests, fit.coef)
    drops = importance.drop[0].mean(axis=0)
    assert np.corrcoef(drops, planted)[0, 1] > 0.95 and np.abs(drops[10:]).max() < 1e-3
    assert (importance.error[0, :, :10] > 0).all()


def test_by_value_recovers_distances_that_same_or_different_cannot_tell():
    n, rng = 240, np.random.default_rng(1)
    kind = rng.choice(["a", "b", "c"], n)
    # a and b are 1 apart, c is 3 from a and 2 from b
    layer = np.array([{"a": 0.0, "b": 1.0, "c": 3.0}[own] for own in kind])[:, None]
    layer = np.column_stack((layer, rng.standard_normal((n, 3)) * 0.05))
    folds = random_folds(n)
    by_value = moments_of(pd.DataFrame({"kind": kind}), [layer], folds, by_value=("kind",))
    fit = fit_ridge(by_value.moments, by_value.tests, range(5))
    weights = dict(zip(by_value.moments.columns.names, fit.coef[0].mean(axis=0), strict=True))
    ratio = weights["kind: a/c"] / weights["kind: a/b"]
    assert ratio == pytest.approx(9.0, rel=0.05)
    plain = moments_of(pd.DataFrame({"kind": kind}), [layer], folds)
    worse = fit_ridge(plain.moments, plain.tests, range(5))
    assert fits_of(by_value, fit).rho.mean() > fits_of(plain, worse).rho.mean() + 0.05


def test_ranks_are_fitted_where_they_are_the_target():
    made = made_up()
    fit = fit_ridge(made.moments, made.tests, [None], target="rank", alphas=[1e-9])
    z = made.moments.columns.of_pairs(*pairs(60))
    from scipy.stats import rankdata
    from sklearn.linear_model import LinearRegression

    target = rankdata(made.distances[0]) / z.shape[0]
    own = LinearRegression(positive=True).fit(z, target)
    np.testing.assert_allclose(fit.coef[0, 0], own.coef_, atol=1e-7)


def test_two_folds_leave_none_to_choose_by():
    made = made_up(n_folds=2)
    with refused("2 folds", "at least 3"):
        fit_ridge(made.moments, made.tests, range(2))


def test_importance_of_groups_is_the_mean_over_permutations_of_pairs():
    n, rng = 150, np.random.default_rng(0)
    features = pd.DataFrame({"a": rng.choice(list("xyz"), n), "b": rng.choice(list("pq"), n)})
    layer = rng.standard_normal((n, 4))
    layer[:, 0] += 2.0 * (features["a"] == "x")
    made = moments_of(features, [layer], random_folds(n, 3))
    assert made.tests.is_grouped
    fit = fit_ridge(made.moments, made.tests, range(3))
    computed = permutation_importance(made.tests, fit.coef)
    assert (computed.error == 0).all()
    fold = made.tests.folds[0]
    i, j = np.triu_indices(len(fold.stimuli), 1)
    z = made.moments.columns.of_pairs(fold.stimuli[i], fold.stimuli[j])
    from explicit import rho

    target = np.sum((layer[fold.stimuli[i]] - layer[fold.stimuli[j]]) ** 2, axis=1)
    whole = rho(z @ fit.coef[0, 0], target)
    drops = []
    for _ in range(100):
        permuted = z.copy()
        permuted[:, 0] = rng.permutation(z[:, 0])
        drops.append(whole - rho(permuted @ fit.coef[0, 0], target))
    error = np.std(drops) / 10
    assert computed.drop[0, 0, 0] == pytest.approx(np.mean(drops), abs=4 * error)
