"""Moments and test pairs where not all pairs are compared, held against explicit pairs."""

import numpy as np
import pytest
from helpers.explicit import random_features, random_folds, random_layer, rho
from helpers.inputs import for_each
from helpers.moments import CODINGS, close, moments_of, moments_of_columns
from scipy.stats import rankdata, spearmanr

from mlem_core.estimators.ridge_solver import RidgeSolver
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.columns import FeatureColumn, feature_columns
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.stimuli.stimulus_set import Rdm

N = 90


def columns_of(*, by_value=(), missing="ignore", interactions=False):
    """Columns of features of every kind; by distances too, where they are no products."""
    own = feature_columns(random_features(N), resolved=by_value)
    if not interactions:
        apart = np.array([[0, 1, 2], [1, 0, 4], [2, 4, 0.0]])
        values = np.random.default_rng(3).choice(np.array(["a", "b", "c", None], object), N)
        own.append(
            FeatureColumn("meaning", "rdm", values, (0.0, 4.0), rdm=Rdm(tuple("abc"), apart))
        )
    return PairColumns.from_features(own, missing, interactions)


def layers_of(n_layers):
    features = random_features(N)
    return [random_layer(features, seed) for seed in range(1, n_layers + 1)]


def explicit_design(folds, items=None):
    """All pairs of the stimuli, written down in another order, as a design that is not complete."""
    rng = np.random.default_rng(0)
    i, j = np.triu_indices(len(folds), 1)
    swap = rng.random(len(i)) < 0.5
    first, second = np.where(swap, j, i), np.where(swap, i, j)
    order = np.argsort(first, kind="stable")
    starts = np.searchsorted(first[order], np.arange(len(folds) + 1))
    stimulus = np.arange(len(folds), dtype=np.int32)
    partner, parts = second[order].astype(np.int32), np.array([0, len(folds)])
    return PairDesign(len(folds), stimulus, starts, partner, parts, items)


@CODINGS
def test_looked_up_columns_are_the_sums_of_products_of_the_basis(more):
    columns, rng = columns_of(**more), np.random.default_rng(0)
    first, second = rng.integers(0, N, (2, 2_000))
    first, second = first[first != second], second[first != second]
    values = columns.pair_values(first, second)
    terms = columns.basis[first][:, columns.left] * columns.basis[second][:, columns.right]
    close(values[:, columns.product_columns], columns.sum_terms(terms))
    for number, column in columns.pairwise.items():
        close(values[:, number], column.pair_values(first, second))
    weights = rng.standard_normal((3, len(columns)))
    weights[1, : len(columns) // 2] = 0.0
    close(columns.predictions(weights, first, second), weights @ values.T)


@CODINGS
def test_columns_with_the_values_of_other_stimuli_are_looked_up_as_such(more):
    columns, rng = columns_of(**more), np.random.default_rng(0)
    givers = rng.permutation(N)
    first, second = np.triu_indices(N, 1)
    permuted = columns.with_values_of(givers, [0])
    changed = (columns.first_feature == 0) | (columns.second_feature == 0)
    values = permuted.pair_values(first, second)
    np.testing.assert_array_equal(
        values[:, ~changed], columns.pair_values(first, second)[:, ~changed]
    )
    alone = columns.first_feature + columns.second_feature == 0
    of_givers = columns.pair_values(givers[first], givers[second])
    np.testing.assert_array_equal(values[:, alone], of_givers[:, alone])
    terms = permuted.basis[first][:, columns.left] * permuted.basis[second][:, columns.right]
    close(values[:, columns.product_columns], columns.sum_terms(terms))


@CODINGS
def test_codes_of_a_part_are_equal_where_its_columns_are(more):
    columns = columns_of(**more)
    first, second = np.triu_indices(N, 1)
    values = columns.pair_values(first, second).round(9)
    for part in range(len(columns.parts)):
        codes = columns.part_codes(part, first, second)
        expected = np.unique(values[:, columns.part == part], axis=0, return_inverse=True)[1]
        both = np.unique(np.column_stack((codes, expected.ravel())), axis=0)
        assert len(both) == len(np.unique(codes)) == expected.max() + 1


@CODINGS
def test_a_design_of_all_pairs_has_the_moments_of_all_pairs(more):
    columns, folds, layers = columns_of(**more), random_folds(N), layers_of(3)
    items = np.random.default_rng(0).integers(0, 25, N)
    complete = moments_of_columns(columns, layers, folds, items)
    made = moments_of_columns(columns, layers, folds, items, explicit_design(folds, items))
    assert made.moments.n_pairs == complete.moments.n_pairs == N * (N - 1) / 2
    for name in ("products", "sums", "pairwise_products", "rank_products", "low", "high", "counts"):
        close(getattr(made.moments, name), getattr(complete.moments, name))
    some = made.moments.select_features(["length", "gender"])
    alone = complete.moments.select_features(["length", "gender"])
    for got, expected in ((made.moments, complete.moments), (some, alone)):
        for blocks in (got.training(1), got.training(0, 2), got.tested(3)):
            for left, right in zip(got.within(blocks), expected.within(blocks), strict=True):
                np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-7)
        for left, right in zip(got.inside_fold(2), expected.inside_fold(2), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-7)
        close(got.rank_covariances(got.tested(2), 2), expected.rank_covariances(got.tested(2), 2))
    statistics = [PairStatistics(own.moments, own.tests) for own in (made, complete)]
    fits = [RidgeSolver().solve(own, range(5)) for own in statistics]
    np.testing.assert_allclose(fits[0].coef, fits[1].coef, atol=1e-9)
    for fold in range(5):
        weights = fits[1].coef[:, [fold]]
        scores = [own.tests.folds[fold].scores(weights).rho for own in (made, complete)]
        np.testing.assert_allclose(*scores, atol=1e-12)
    shares = [decompose(own.moments).terms for own in (made, complete)]
    np.testing.assert_allclose(*shares, atol=1e-9)


@CODINGS
def test_moments_of_an_incomplete_design_are_those_of_its_pairs(more):
    columns, folds, layers = columns_of(**more), random_folds(N), layers_of(2)
    items = np.random.default_rng(0).integers(0, 25, N)
    design = PairDesign.from_budget(folds, 1_800, items=items)
    assert not design.is_complete
    made = moments_of_columns(columns, layers, folds, items, design)
    moments, (i, j) = made.moments, design.pairs()
    z = columns.pair_values(i, j)
    ranks = np.stack([rankdata(own) for own in made.distances]) - (len(i) + 1) / 2
    expected = spearmanr(*made.distances).statistic
    assert moments.n_pairs == len(i) and moments.rsa[0, 1] == pytest.approx(expected, abs=1e-12)

    def hold(own, use):
        centred = z[use] - z[use].mean(axis=0)
        assert own.n_pairs == use.sum()
        close(own.means, z[use].mean(axis=0))
        close(own.gram, centred.T @ centred)
        close(own.with_ranks, ranks[:, use] @ centred)

    for out in [(0,), (1, 3)]:
        use = ~np.isin(folds[i], out) & ~np.isin(folds[j], out)
        own = moments.within(moments.training(*out))
        hold(own, use)
        close(own.with_distances, made.distances[:, use] @ (z[use] - z[use].mean(axis=0)))
        low, high = moments.spans(moments.training(*out))
        assert (low == made.distances[:, use].min(axis=1)).all()
        assert (high == made.distances[:, use].max(axis=1)).all()
    test = (folds[i] == 2) & (folds[j] == 2) & (items[i] != items[j])
    hold(moments.inside_fold(2), test)
    covariances = np.cov(ranks[:, test]) * (test.sum() - 1)
    close(moments.rank_covariances(moments.tested(2), 2), covariances)

    weights = np.random.default_rng(0).random((2, 1, len(columns)))
    scores = made.tests.folds[2].scores(weights).rho[:, 0]
    for layer in (0, 1):
        target = made.distances[layer][test]
        assert scores[layer] == pytest.approx(rho(z[test] @ weights[layer, 0], target), abs=1e-9)


@for_each("by_value", (), ("kind",))
def test_pairs_of_a_design_are_grouped_as_those_of_all_pairs(by_value):
    features = random_features(400)[["kind", "gender"]]
    layers = [np.random.default_rng(1).standard_normal((400, 4))]
    folds = random_folds(400)
    columns = PairColumns.from_features(feature_columns(features, resolved=by_value))
    design = PairDesign.from_budget(folds, 20_000)
    made = moments_of_columns(columns, layers, folds, design=design)
    complete = moments_of(features, layers, folds, by_value=by_value)
    assert made.tests.is_grouped and complete.tests.is_grouped
    i, j = design.pairs()
    for fold, (few, every) in enumerate(zip(made.tests.folds, complete.tests.folds, strict=True)):
        assert few.counts.sum() == ((folds[i] == fold) & (folds[j] == fold)).sum()
        assert len(few.counts) <= len(every.counts) <= 40


def test_pairs_among_the_stimuli_of_a_fold_leave_out_those_of_one_item():
    folds, rng = random_folds(N), np.random.default_rng(0)
    items = rng.integers(0, 25, N)
    stimuli = np.flatnonzero(folds == 1)
    for design in (
        PairDesign.complete(N, items),
        explicit_design(folds, items),
        PairDesign.from_budget(folds, 1_800, items=items),
    ):
        i, j = design.pairs()
        tests = (folds[i] == 1) & (folds[j] == 1) & (items[i] != items[j])
        places, among = design.among(stimuli)
        assert np.array_equal(places, np.flatnonzero(tests))
        first, second = among.pairs()
        assert np.array_equal(stimuli[first], i[places])
        assert np.array_equal(stimuli[second], j[places])
        assert np.array_equal(design.pairs(7, 500), (i[7:500], j[7:500]))
    assert np.array_equal(PairDesign.complete(9).pairs(), np.triu_indices(9, 1))
