"""Influence of each stimulus: numerical derivatives over explicit, weighted pairs."""

import numpy as np
import pytest
from explicit import held_out, pairs, training
from inputs import for_each
from made_moments import explicit_shapley, made_up
from scipy.stats import rankdata

from mlem_core.inference.influence import pair_influence, two_way_variance
from mlem_core.measures.contributions import STABLE


def weighted_numbers(made, weights, same_item=None):
    """Contributions and RSA where a pair counts as often as its two stimuli together."""
    columns, folds, n_folds = made.moments.columns, made.folds, made.moments.n_folds
    i, j = pairs(len(folds))
    z, of_pair = columns.of_pairs(i, j), weights[i] * weights[j]
    ranks = np.stack([rankdata(own) for own in made.distances], axis=1)
    tests = [held_out(folds, fold) for fold in range(n_folds)]
    if same_item is not None:
        tests = [own & ~same_item for own in tests]

    def covariance(one, other, use):
        share = (of_pair * use)[:, None]
        one, other = (x - (share * x).sum(axis=0) / share.sum() for x in (one, other))
        return (share * one).T @ other

    def stable(fold):
        own = z[training(folds, fold)]
        return STABLE * ((own - own.mean(axis=0)) ** 2).sum(axis=0)

    def explained(members):
        own = np.isin(columns.first_feature, members) & np.isin(columns.second_feature, members)
        total = 0.0
        for fold in range(n_folds):
            outside = training(folds, fold)
            gram = covariance(z[:, own], z[:, own], outside) + np.diag(stable(fold)[own])
            beta = np.linalg.solve(gram, covariance(z[:, own], ranks, outside))
            one_way = beta.T @ covariance(z[:, own], ranks, tests[fold])
            total += (one_way[0, 1] + one_way[1, 0]) / 2
        return total

    n_features = len(columns.features)
    among = sum(covariance(ranks, ranks, own)[0, 1] for own in tests)
    every = covariance(ranks, ranks, np.ones(len(i), dtype=bool))
    rsa = every[0, 1] / np.sqrt(every[0, 0] * every[1, 1])
    terms = explicit_shapley(explained, n_features)
    return np.append(terms / among * rsa, rsa)


@for_each(
    ("more", "with_items"),
    ({}, False),
    ({"by_value": ("kind", "length")}, False),
    ({"interactions": True}, False),
    ({"by_value": ("kind",)}, True),
)
def test_influence_is_the_derivative_of_each_number(more, with_items):
    n = 30
    items = np.random.default_rng(0).integers(0, 12, n) if with_items else None
    made = made_up(n, n_folds=3, items=items, **more)
    i, j = pairs(n)
    same = None if items is None else items[i] == items[j]
    found = pair_influence(made.moments, made.stimulus_sums())
    numbers = np.vstack((found.terms, found.rsa))
    step = 1e-5
    for stimulus in (0, 7, 29):
        up, down = np.ones(n), np.ones(n)
        up[stimulus] += step
        down[stimulus] -= step
        slope = weighted_numbers(made, up, same) - weighted_numbers(made, down, same)
        np.testing.assert_allclose(numbers[:, stimulus], slope / (2 * step), atol=1e-6)


def test_variance_of_a_mean_is_that_of_its_clusters():
    """Of a mean of 40 sentences of three stimuli, of which 10 words recur, by hand."""
    rng = np.random.default_rng(0)
    groups, items = np.repeat(np.arange(40), 3), rng.integers(0, 10, 120)
    values = rng.standard_normal(120) + rng.standard_normal(40)[groups]
    influence = (values - values.mean()) / 120
    of_groups = np.bincount(groups, influence)
    assert two_way_variance(influence, groups) == pytest.approx((of_groups**2).sum() * 40 / 39)
    both = two_way_variance(influence, groups, items)
    assert both >= two_way_variance(influence, groups)
