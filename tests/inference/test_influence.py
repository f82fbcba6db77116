"""Influence of units of stimuli: numerical derivatives over explicit, weighted pairs."""

import numpy as np
import pytest
from helpers.explicit import held_out, pairs, shapley_values, training
from helpers.inputs import for_each
from helpers.moments import made_up
from scipy.stats import rankdata

from mlem_core.base.numbers import nonnegative_quadratic
from mlem_core.estimators.normal_equations import NOT_APART, normal_equations, penalty_matrices
from mlem_core.inference.block_influence import BlockSums
from mlem_core.inference.influence import score_influence, similarity_influence
from mlem_core.inference.resample import squared_effect_bounds, standard_error
from mlem_core.measures import contributions
from mlem_core.measures.contributions import STABLE
from mlem_core.pairs import unit_sums


def weighted_numbers(made, weights, same_item=None, far=True):
    """Contributions and RSA where a pair counts as often as its two stimuli together."""
    columns, folds, n_folds = made.moments.columns, made.folds, made.moments.n_folds
    i, j = pairs(len(folds))
    z, of_pair = columns.pair_values(i, j), weights[i] * weights[j]
    ranks = np.stack([rankdata(own) for own in made.distances], axis=1)
    tests = [held_out(folds, fold) & far for fold in range(n_folds)]
    if same_item is not None:
        tests = [own & ~same_item for own in tests]

    def covariance(one, other, use):
        share = (of_pair * use)[:, None]
        one, other = (x - (share * x).sum(axis=0) / share.sum() for x in (one, other))
        return (share * one).T @ other

    def stable(fold):
        own = z[training(folds, fold) & far]
        return STABLE * ((own - own.mean(axis=0)) ** 2).sum(axis=0)

    def explained(members):
        own = np.isin(columns.first_feature, members) & np.isin(columns.second_feature, members)
        total = 0.0
        for fold in range(n_folds):
            outside = training(folds, fold) & far
            gram = covariance(z[:, own], z[:, own], outside) + np.diag(stable(fold)[own])
            beta = np.linalg.solve(gram, covariance(z[:, own], ranks, outside))
            one_way = beta.T @ covariance(z[:, own], ranks, tests[fold])
            total += (one_way[0, 1] + one_way[1, 0]) / 2
        return total

    n_features = len(columns.features)
    squares = sum(np.diag(covariance(ranks, ranks, own)) for own in tests)
    every = covariance(ranks, ranks, np.ones(len(i), dtype=bool) & far)
    rsa = every[0, 1] / np.sqrt(every[0, 0] * every[1, 1])
    terms = shapley_values(explained, n_features)
    return np.append(terms / np.sqrt(squares.prod()), rsa)


CODINGS = for_each(
    ("more", "with_items"),
    ({}, False),
    ({"by_value": ("kind", "length")}, False),
    ({"interactions": True}, False),
    ({"by_value": ("kind",)}, True),
    ({"interactions": True}, True),
)


def made_with(more, with_items, n=30):
    """Moments of a few stimuli, which pairs are of one item, and three units of stimuli."""
    items = np.random.default_rng(0).integers(0, 12, n) if with_items else None
    made = made_up(n, n_folds=3, items=items, **more)
    i, j = pairs(n)
    same = None if items is None else items[i] == items[j]
    is_member = np.zeros((3, n), dtype=bool)
    for unit, members in zip(is_member, ([0], [7, 8, 20], [29, 3, 11, 12]), strict=True):
        unit[members] = True
    return made, same, is_member


def slopes(numbers, is_member, step=1e-5):
    """(n_units, ...) derivative of numbers by how often the stimuli of a unit count."""
    up, down = ([numbers(1.0 + sign * step * unit) for unit in is_member] for sign in (1.0, -1.0))
    return (np.array(up) - np.array(down)) / (2 * step)


@CODINGS
def test_influence_is_the_derivative_of_each_number(more, with_items):
    made, same, is_member = made_with(more, with_items)
    rsa, terms = similarity_influence(made.unit_sums(is_member))
    numbers = np.column_stack((terms[:, :-1, 0, 1], rsa[:, 0, 1]))
    expected = slopes(lambda weights: weighted_numbers(made, weights, same), is_member)
    np.testing.assert_allclose(numbers, expected, atol=1e-6)
    np.testing.assert_allclose(terms, terms.swapaxes(2, 3))
    np.testing.assert_allclose(terms.sum(axis=1), rsa, atol=1e-12)


@for_each("more", {}, {"by_value": ("kind",)}, {"interactions": True})
def test_influence_with_a_lag_is_the_derivative_over_the_pairs_that_are_left(more):
    times = np.random.default_rng(0).permutation(30) / 3
    made, _, is_member = made_with({"times": times, **more}, False)
    i, j = pairs(30)
    far = np.abs(times[i] - times[j]) >= 1 - 1e-9
    rsa, terms = similarity_influence(made.unit_sums(is_member))
    numbers = np.column_stack((terms[:, :-1, 0, 1], rsa[:, 0, 1]))
    expected = slopes(lambda weights: weighted_numbers(made, weights, far=far), is_member)
    np.testing.assert_allclose(numbers, expected, atol=1e-6)


def test_sums_of_units_do_not_depend_on_how_many_stimuli_are_summed_at_once(monkeypatch):
    """One at a time too, where a fold tests or trains with none of them."""
    made, _, is_member = made_with({"by_value": ("kind",)}, with_items=True)
    expected = made.unit_sums(is_member)
    monkeypatch.setattr(unit_sums, "TILE", 1)
    sums = made.unit_sums(is_member)
    for name in ("training", "tested", "all_ranks", "all_totals", "tested_ranks"):
        np.testing.assert_allclose(getattr(sums, name), getattr(expected, name), atol=1e-9)


def test_influences_along_sampled_orders_are_those_of_their_sets(monkeypatch):
    """Sampled often enough, orders give what every set gives; units in small parts too."""
    made, _, is_member = made_with({}, False)
    sums = made.unit_sums(is_member)
    _, exact = similarity_influence(sums)
    monkeypatch.setattr(unit_sums, "MOST_NUMBERS", 1)
    for name, value in (("EXACT_FEATURES", 1), ("ORDERS", 40)):
        monkeypatch.setattr(contributions, name, value)
    _, sampled = similarity_influence(sums)
    np.testing.assert_allclose(sampled, exact, atol=0.05 * np.abs(exact).max())
    # What no feature explains is the same along any order.
    np.testing.assert_allclose(sampled[:, -1], exact[:, -1], atol=1e-12)


def weighted_scores(made, weights, strength, target, same_item=None, coef=None):
    """Pearson's r with the ranks, and importances, of ridge on weighted pairs; mean over folds."""
    columns, folds, n_folds = made.moments.columns, made.folds, made.moments.n_folds
    i, j = pairs(len(folds))
    z, of_pair = columns.pair_values(i, j), weights[i] * weights[j]
    ranks = np.stack([rankdata(own) for own in made.distances])
    scores = np.zeros((len(ranks), n_folds, 1 + len(columns.parts)))
    for layer, fold in np.ndindex(*scores.shape[:2]):
        train = training(folds, fold)
        squared = made.distances[layer]
        scale = len(i) if target == "rank" else np.ptp(squared[train])
        y = (ranks[layer] if target == "rank" else squared) / scale
        share = (of_pair * train)[:, None]
        mean, y_mean = (share * z).sum(axis=0) / share.sum(), (share[:, 0] @ y) / share.sum()
        gram = (share * (z - mean)).T @ (z - mean)
        moment = (share * (z - mean)).T @ (y - y_mean)
        w = by_penalty(columns, gram, moment, strength) if coef is None else coef[layer, fold]
        test = held_out(folds, fold)
        if same_item is not None:
            test = test & ~same_item
        use = of_pair * test
        r = ranks[layer] - use @ ranks[layer] / use.sum()
        z_test = z - use @ z / use.sum()
        variance = use @ r**2

        def correlation(shared, spread, variance=variance):
            return shared / np.sqrt(spread * variance) if spread > 0 else 0.0

        predicted = z_test @ w
        score = correlation(use @ (predicted * r), use @ predicted**2)
        scores[layer, fold, 0] = score
        for part in range(len(columns.parts)):
            own = columns.part == part
            permuted, rest = z_test @ np.where(own, w, 0), z_test @ np.where(own, 0, w)
            # The permuted part shares nothing with the ranks, but its spread remains.
            spread = use @ permuted**2 + use @ rest**2
            scores[layer, fold, 1 + part] = score - correlation(use @ (rest * r), spread)
    return scores.mean(axis=1)


def by_penalty(columns, gram, moment, strength):
    """Non-negative weights of one penalty; a pair is a β, or NOT_APART, and its α."""
    if isinstance(strength, tuple):
        merged = np.zeros((len(columns), len(columns.features)))
        merged[np.arange(len(columns)), columns.part] = columns.as_distance
        own = merged.T @ gram @ merged + strength[1] * np.eye(merged.shape[1])
        return merged @ nonnegative_quadratic(own, merged.T @ moment)
    penalty = penalty_matrices(columns, [strength])[0]
    n, K = len(penalty), len(columns)
    padded, target = penalty.copy(), np.zeros(n)
    padded[:K, :K] += gram
    target[:K] = moment
    return nonnegative_quadratic(padded, target)[:K]


@for_each(
    ("more", "with_items", "strength", "target"),
    ({}, False, 3.0, "distance"),
    ({"missing": "level"}, True, 3.0, "rank"),
    ({"interactions": True}, True, 3.0, "distance"),
    ({"by_value": ("kind", "length")}, False, 10.0, "distance"),
    ({"by_value": ("kind",)}, True, 1.0, "rank"),
    ({"by_value": ("kind", "length")}, False, (NOT_APART, 3.0), "distance"),
    ({}, False, None, "distance"),
)
def test_influence_on_scores_is_their_derivative(more, with_items, strength, target):
    made, same, is_member = made_with(more, with_items)
    columns, sums = made.moments.columns, made.unit_sums(is_member)
    equations = normal_equations(made.moments, [(fold,) for fold in range(3)], target)
    kind = 1.0 if strength is None else strength
    coef = np.array(
        [
            [
                by_penalty(columns, equations.gram[fold], equations.moment[layer, fold], kind)
                for fold in range(3)
            ]
            for layer in range(2)
        ]
    )
    number = strength[0] if isinstance(strength, tuple) else strength
    alpha = None if strength is None else np.full((2, 3), number)
    found = score_influence(sums, coef, alpha, target)
    held = coef if strength is None else None
    expected = slopes(
        lambda weights: weighted_scores(made, weights, strength, target, same, held), is_member
    )
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_scores_of_ranks_are_those_of_the_weights_nearest_to_them():
    """The same influence where the nearest weights, by explicit pairs, are given as predictions."""
    made, _, is_member = made_with({"by_value": ("kind",)}, False)
    columns, sums = made.moments.columns, made.unit_sums(is_member)
    coef = np.random.default_rng(0).uniform(size=(2, 3, len(columns)))
    coef[:, :, ::3] = 0.0
    nearest = np.zeros_like(coef)
    i, j = pairs(30)
    for layer, fold in np.ndindex(2, 3):
        test = held_out(made.folds, fold)
        z = columns.pair_values(i[test], j[test])
        ranks = rankdata(np.round(z @ coef[layer, fold], 9))
        used = np.flatnonzero((coef[layer, fold] != 0) & (np.ptp(z, axis=0) > 0))
        z = z[:, used] - z[:, used].mean(axis=0)
        square = z.T @ z
        square += STABLE * np.diag(np.diag(square))
        nearest[layer, fold, used] = np.linalg.solve(square, z.T @ ranks)
    found = score_influence(sums, coef, None, tests=made.tests)
    np.testing.assert_allclose(found, score_influence(sums, nearest, None), atol=1e-8)
    # Weights that follow with the stimuli move the ranks as they move the predictions.
    strength = np.ones((2, 3))
    moved = score_influence(sums, coef, strength, tests=made.tests) - found
    assert np.abs(moved).max() > 1e-3


def test_the_standard_error_of_a_mean_is_that_of_its_clusters():
    """Of a mean of 40 sentences of three stimuli, by hand: values without each, by influence."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 3)
    values = rng.standard_normal(120) + rng.standard_normal(40)[groups]
    influence = np.bincount(groups, (values - values.mean()) / 120)
    blocks = BlockSums(None, (40,), None, (1.0,))
    error = standard_error(blocks.without(values.mean(), influence))
    assert error == pytest.approx(np.sqrt((influence**2).sum() * 40 / 39))


def test_the_upper_bound_of_a_squared_effect_is_that_of_the_effect():
    """An effect of 2 ± 0.5 squared; of a square that happens to be 0, at most twice the reach."""
    lower, upper = squared_effect_bounds(np.array([4.0, 0.0, -1.0]), np.array([2.0, 1.0, 1.0]))
    np.testing.assert_allclose(upper, [2.5**2, 2.0, 1.0])
    np.testing.assert_allclose(lower, [2.0, -1.0, -2.0])
