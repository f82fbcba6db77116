"""Features resolved by value: against explicit designs, planted distances and the 0/1 metric."""

import itertools

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import index_of, refused, tables_of
from scipy.optimize import lsq_linear

from mlem_core.estimators.base import RidgeMLEM
from mlem_core.estimators.normal_equations import (
    LEAST,
    NOT_APART,
    held_out_correlations,
    moments,
    penalty_matrices,
    ridge_weights,
    training_blocks,
    value_weights,
)
from mlem_core.estimators.ridge_solver import ALPHAS, BETAS
from mlem_core.measures.importance import fitted, permutation_importance
from mlem_core.pairs.columns import MISSING, MISSING_NAME
from mlem_core.pairs.tables import BY_LAYER, same_or_different

N, N_NEW = 75, 120
RESOLVED = ("kind", "gender")


def resolved_tables(features, layers, folds, resolved=RESOLVED):
    return tables_of(features, layers, folds, resolved, train_ranks=True)


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    folds = explicit.random_folds(N)
    return features, layers, folds, resolved_tables(features, layers, folds)


@pytest.mark.parametrize("missing", MISSING)
def test_same_or_different_is_the_sum_over_the_pairs_of_values(case, missing):
    features, layers, folds, _ = case
    by_value = tables_of(
        features, layers, folds, ("kind", "length"), train_ranks=True, missing=missing
    )
    found = same_or_different(by_value)
    expected = tables_of(features, layers, folds, train_ranks=True, missing=missing)
    assert by_value.resolved and not found.resolved and found.features == expected.features
    for name in ("cell_block", "cell_pattern", "counts", "patterns", *BY_LAYER, "training_ranks"):
        rtol = 1e-12 * (name == "target_sums")
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol)


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


def test_terms_are_those_of_the_explicit_pairs(case):
    features, _, _, tables = case
    x, names, _ = explicit_design(features)
    index = index_of(features, explicit.random_folds(N), resolved=RESOLVED)
    np.testing.assert_allclose(tables.terms.dense[index.pair_pattern], x, atol=1e-12)
    assert list(tables.columns.names) == names and tables.resolved == RESOLVED
    # The feature distances are those of the coding that tells no values apart.
    expected = explicit.feature_distances(features)
    np.testing.assert_allclose(tables.patterns[index.pair_pattern], expected, atol=1e-12)


@pytest.mark.parametrize("beta", [1.0, 300.0, 1e5])
def test_weights_equal_bounded_least_squares_on_the_explicit_pairs(case, beta):
    features, layers, folds, tables = case
    x, names, aims = explicit_design(features)
    use = explicit.training(folds, 1)
    penalties = penalty_matrices(tables, [beta])
    found = ridge_weights(moments(tables, training_blocks(tables, [(1,)])), penalties)[:, 0, 0]
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
    for layer, representations in enumerate(layers):
        y = explicit.scaled(explicit.squared(representations)[use])
        target = np.concatenate((y - y.mean(), np.zeros(len(rows))))
        expected = lsq_linear(design, target, (0, np.inf), tol=1e-14, method="bvls").x[:n]
        np.testing.assert_allclose(found[layer], expected, atol=1e-7)


def test_the_strength_is_chosen_by_the_correlation_with_held_out_ranks(case, monkeypatch):
    features, layers, folds, tables = case
    x, *_ = explicit_design(features)
    weights = np.random.default_rng(0).random((2, 3, x.shape[1]))
    test = explicit.held_out(folds, 2)
    found = held_out_correlations(tables, weights, 2)
    for layer, representations in enumerate(layers):
        ranks = pd.Series(explicit.squared(representations)[test]).rank()
        for p in range(3):
            expected = np.corrcoef(x[test] @ weights[layer, p], ranks)[0, 1]
            assert found[layer, p] == pytest.approx(expected, abs=1e-9)
    monkeypatch.setattr("mlem_core.estimators.ridge_solver.CLOSE", -1.0)
    fits = RidgeMLEM().cross_validate(tables)
    labels = np.array([*BETAS, *[NOT_APART] * len(ALPHAS)])
    for outer in range(5):
        scores = []
        for inner in set(range(5)) - {outer}:
            equations = moments(tables, training_blocks(tables, [(outer, inner)]))
            own = value_weights(tables, equations, BETAS, ALPHAS)[:, 0]
            scores.append(held_out_correlations(tables, own, inner))
        best = np.mean(scores, axis=0).argmax(axis=-1)
        np.testing.assert_array_equal(fits.alpha[:, outer], labels[best])
    assert (fits.alpha < NOT_APART).any()


def test_values_that_are_equally_far_apart_are_not_told_apart():
    rng = np.random.default_rng(0)
    n, kind, other = 300, rng.integers(0, 7, 300), rng.integers(0, 5, 300)
    layer = np.concatenate((np.eye(7)[kind], 0.2 * rng.standard_normal((n, 20))), axis=1)
    features = pd.DataFrame({"kind": kind.astype(str), "other": other.astype(str)})
    features["kind"] = "v" + features["kind"]
    features["other"] = "v" + features["other"]
    folds = explicit.random_folds(n)
    expected = RidgeMLEM().cross_validate(resolved_tables(features, [layer], folds, ()))
    found = RidgeMLEM().cross_validate(resolved_tables(features, [layer], folds, ("kind", "other")))
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
    tables = resolved_tables(features, [layer], folds, ("kind", "other"))
    fits, importance = fitted(tables)
    weights = dict(zip(tables.columns.names, fits.weights[0].mean(axis=0), strict=True))
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
    plain = resolved_tables(features, [layer], folds, ())
    assert fits.rho.mean() > fitted(plain)[0].rho.mean() + 0.1


def test_importance_is_what_permuting_the_pairs_of_values_does(case):
    features, layers, folds, tables = case
    x, names, _ = explicit_design(features)
    weights = np.random.default_rng(1).random((2, 5, x.shape[1]))
    found = permutation_importance(tables, weights)
    assert found.shape == (2, 5, 4)
    test = explicit.held_out(folds, 3)
    own = [k for k, name in enumerate(names) if name.startswith("kind:")]
    for layer, representations in enumerate(layers):
        target = explicit.squared(representations)[test]
        mean, error = explicit.drop(
            x[test], weights[layer, 3], target, explicit.permuting(own), 200
        )
        assert found[layer, 3, 0] == pytest.approx(mean, abs=4 * error + 0.01)


def test_a_subset_of_features_equals_a_run_with_only_these(case):
    features, layers, folds, tables = case
    keep = ["kind", "length"]
    fewer = resolved_tables(features[keep], layers, folds, ("kind",))
    (expected, its_importance), (found, importance) = map(fitted, (fewer, tables.of_features(keep)))
    for name, one in vars(found).items():
        np.testing.assert_allclose(one, getattr(expected, name), atol=1e-9)
    np.testing.assert_allclose(importance, its_importance, atol=1e-9)


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
