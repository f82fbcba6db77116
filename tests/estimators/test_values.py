"""Features coded by value: against explicit designs, planted distances and the 0/1 metric."""

import itertools

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import refused, statistics_of
from scipy.optimize import lsq_linear

from mlem_core.estimators.base import RidgeMLEM
from mlem_core.estimators.normal_equations import (
    LEAST,
    NOT_APART,
    normal_equations,
    penalty_matrices,
    ridge_weights,
    value_weights,
)
from mlem_core.estimators.ridge_solver import ALPHAS, BETAS
from mlem_core.measures.importance import fitted
from mlem_core.measures.similarity import plain_columns
from mlem_core.pairs.columns import MISSING, MISSING_NAME

N, N_NEW = 75, 120
RESOLVED = ("kind", "gender")
FEATURES, FOLDS = explicit.random_features(N), explicit.random_folds(N)
LAYERS = [explicit.random_layer(FEATURES, seed) for seed in range(2)]


@pytest.fixture(scope="module")
def pairs():
    return statistics_of(FEATURES, LAYERS, FOLDS, RESOLVED)


@pytest.mark.parametrize("missing", MISSING)
def test_same_or_different_is_the_sum_over_the_pairs_of_values(missing):
    columns = statistics_of(FEATURES, LAYERS, FOLDS, ("kind", "length"), missing).columns
    assert columns.by_value == ("kind", "length")
    plain = columns.pair_values(*explicit.pairs(N)) @ plain_columns(columns).T
    expected = explicit.feature_distances(FEATURES, missing) ** 2
    np.testing.assert_allclose(plain, expected, atol=1e-12)


def explicit_design(features):
    """Terms (n_pairs, n_columns), pair by pair; their names; what each is shrunk towards."""
    distances = explicit.feature_distances(features)
    columns, names, aims = [], [], []
    i, j = explicit.pairs(len(features))
    for f, name in enumerate(features.columns):
        if name not in RESOLVED:
            columns.append(distances[:, f] ** 2)
            names.append(name)
            aims.append(np.nan)
            continue
        texts = [MISSING_NAME if pd.isna(v) else v for v in features[name]]
        values = sorted(set(texts), key=lambda value: (value == MISSING_NAME, value))
        sides = [(texts[a], texts[b]) for a, b in zip(i, j, strict=True)]
        for a, b in itertools.combinations(values, 2):
            columns.append([float(set(pair) == {a, b}) for pair in sides])
            names.append(f"{name}: {a}/{b}")
            # A missing value is at no distance to any other.
            aims.append(0.0 if MISSING_NAME in (a, b) else 1.0)
        for a in values:
            columns.append([float((one == a) + (other == a)) for one, other in sides])
            names.append(f"{name}: {a}")
            aims.append(0.0)
    return np.array(columns, dtype=float).T, names, np.array(aims)


def test_columns_are_those_of_the_explicit_pairs(pairs):
    x, names, aims = explicit_design(FEATURES)
    np.testing.assert_allclose(pairs.columns.pair_values(*explicit.pairs(N)), x, atol=1e-12)
    assert list(pairs.columns.names) == names and pairs.resolved == RESOLVED
    np.testing.assert_array_equal(pairs.columns.as_distance, np.nan_to_num(aims, nan=1.0))


@pytest.mark.parametrize("beta", [1.0, 300.0, 1e5])
def test_weights_equal_bounded_least_squares_on_the_explicit_pairs(pairs, beta):
    x, names, aims = explicit_design(FEATURES)
    use = explicit.training(FOLDS, 1)
    equations = normal_equations(pairs.moments, [(1,)])
    found = ridge_weights(equations, penalty_matrices(pairs.columns, [beta]))[:, 0, 0]
    n = len(names)
    # Rows of the penalty: what values are shrunk towards is one variable more for each feature.
    rows = []
    for k, name in enumerate(names):
        row = np.zeros(n + len(RESOLVED))
        own = [f for f, one in enumerate(RESOLVED) if name.startswith(f"{one}:")]
        row[k] = np.sqrt(beta if own else LEAST)
        if own:
            row[n + own[0]] = -np.sqrt(beta) * aims[k]
        rows.append(row)
    for f in range(len(RESOLVED)):
        row = np.zeros(n + len(RESOLVED))
        row[n + f] = np.sqrt(LEAST)
        rows.append(row)
    centred = x[use] - x[use].mean(axis=0)
    design = np.vstack((np.pad(centred, ((0, 0), (0, len(RESOLVED)))), np.array(rows)))
    for layer, representations in enumerate(LAYERS):
        y = explicit.scaled(explicit.squared(representations)[use])
        target = np.concatenate((y - y.mean(), np.zeros(len(rows))))
        expected = lsq_linear(design, target, (0, np.inf), tol=1e-14, method="bvls").x[:n]
        np.testing.assert_allclose(found[layer], expected, atol=1e-7)


def test_the_strength_is_chosen_by_the_score_of_held_out_pairs(pairs):
    x, *_ = explicit_design(FEATURES)
    fits = RidgeMLEM().cross_validate(pairs)
    labels = np.array([*BETAS, *[NOT_APART] * len(ALPHAS)])
    for layer, outer in ((0, 0), (1, 3)):
        target, scores = explicit.squared(LAYERS[layer]), []
        for inner in set(range(5)) - {outer}:
            equations = normal_equations(pairs.moments, [(outer, inner)])
            weights = value_weights(pairs.columns, equations, BETAS, ALPHAS)[layer, 0]
            test = explicit.held_out(FOLDS, inner)
            scores.append([explicit.rho(x[test] @ own, target[test]) for own in weights])
        means = np.mean(scores, axis=0)
        assert fits.alpha[layer, outer] == labels[np.argmax(means >= means.max() - 1e-9)]
        test = explicit.held_out(FOLDS, outer)
        expected = explicit.rho(x[test] @ fits.weights[layer, outer], target[test])
        assert fits.rho[layer, outer] == pytest.approx(expected, abs=1e-9)
    assert (fits.alpha < NOT_APART).any()


def test_values_that_are_equally_far_apart_are_not_told_apart():
    rng = np.random.default_rng(0)
    n, kind, other = 300, rng.integers(0, 7, 300), rng.integers(0, 5, 300)
    layer = np.concatenate((np.eye(7)[kind], 0.2 * rng.standard_normal((n, 20))), axis=1)
    features = pd.DataFrame({"kind": kind.astype(str), "other": other.astype(str)})
    features["kind"] = "v" + features["kind"]
    features["other"] = "v" + features["other"]
    folds = explicit.random_folds(n)
    expected, found = (
        RidgeMLEM().cross_validate(statistics_of(features, [layer], folds, resolved))
        for resolved in ((), ("kind", "other"))
    )
    assert (found.alpha == NOT_APART).all()
    np.testing.assert_allclose(found.rho, expected.rho, atol=1e-9)


def test_planted_distances_between_values_come_back():
    rng = np.random.default_rng(0)
    n, names = 600, np.array(list("abcd"))
    kind, other = rng.integers(0, 4, n), rng.choice(list("xy"), n)
    centres = np.array([[0.0, 0, 0], [3, 0, 0], [0, 1, 0], [0, 0, 6]])
    spread = np.array([0.2, 0.2, 2.0, 0.2])
    layer = centres[kind] + spread[kind][:, None] * rng.standard_normal((n, 3))
    features = pd.DataFrame({"kind": names[kind], "other": other})
    folds = explicit.random_folds(n)
    pairs = statistics_of(features, [layer], folds, ("kind", "other"))
    fits, importance = fitted(pairs)
    weights = dict(zip(pairs.columns.names, fits.weights[0].mean(axis=0), strict=True))
    apart = {
        f"kind: {names[a]}/{names[b]}": ((centres[a] - centres[b]) ** 2).sum()
        for a, b in itertools.combinations(range(4), 2)
    }
    scale = weights["kind: a/d"] / apart["kind: a/d"]
    for name, expected in apart.items():
        assert weights[name] / scale == pytest.approx(expected, rel=0.1, abs=1.2), name
    # The diffuse value has the largest spread: three units of variance 4.
    assert (weights["kind: c"] - weights["kind: a"]) / scale == pytest.approx(12, abs=1.5)
    assert importance[0, :, 0].mean() > 0.5 > 0.02 > abs(importance[0, :, 1].mean())
    plain = statistics_of(features, [layer], folds)
    assert fits.rho.mean() > fitted(plain)[0].rho.mean() + 0.1


def test_an_estimator_predicts_other_stimuli_by_the_values_it_knows():
    features = explicit.random_features(N_NEW, 3)
    model = RidgeMLEM(values=RESOLVED).fit(features, explicit.random_layer(features))
    x, names, _ = explicit_design(features)
    assert model.get_feature_names_out().tolist() == names
    np.testing.assert_allclose(model.predict(features), x @ model.coef_ + model.intercept_)
    rows = np.flatnonzero(features["kind"] != "other")
    few = features.iloc[rows].reset_index(drop=True)
    i, j = explicit.pairs(N_NEW)
    at = np.isin(i, rows) & np.isin(j, rows)
    np.testing.assert_allclose(model.predict(few), x[at] @ model.coef_ + model.intercept_)
    unknown = few.assign(kind="adverb")
    with refused("'kind'", "'adverb'", "noun, other"):
        model.predict(unknown)
    with refused("no matrix W"):
        _ = model.W_
