"""What every set of features explains in one pass, beside explicit loops over patterns."""

import itertools

import explicit
import numpy as np
import pytest

from mlem_core.measures import decomposition, shapley
from mlem_core.measures.decomposition import divide
from mlem_core.measures.shapley import FeatureSubsets
from mlem_core.pairs.crossfit import CrossFit, both_ways

FEATURES, LAYERS, FOLDS, DRAWS = 4, 2, 3, 5


def made(seed=0, sizes=(2, 5, 3, 2), share=0.6):
    """Patterns, and sums by fold of which some have no pairs."""
    rng = np.random.default_rng(seed)
    every = np.array(list(itertools.product(*map(range, sizes))), dtype=np.int64)
    codes = every[rng.random(len(every)) < 0.7]
    counts = rng.poisson(share, (len(codes), 2, 1, FOLDS, DRAWS)).astype(float)
    ranks = rng.normal(size=(len(codes), 2, LAYERS, FOLDS, DRAWS)) * counts
    priority = np.stack([rng.permutation(len(sizes)) for _ in range(LAYERS)])
    spread = rng.random((DRAWS, LAYERS)) + 0.5
    return CrossFit(codes, np.concatenate((counts, ranks), axis=2), spread, priority)


def by_patterns(fit, chosen, d):
    """v of a set of features in one draw: (n_layers, n_layers), pattern by pattern."""
    found, used = np.zeros((LAYERS, LAYERS)), 0
    for k in range(FOLDS):
        inside, outside = (fit.sums[:, side, :, k, d] for side in (0, 1))
        pairs = inside[:, 0].sum()
        if pairs == 0:
            continue
        used += 1
        for a in range(LAYERS):
            order = sorted(chosen, key=lambda f, a=a: fit.priority[a, f])
            for p, code in enumerate(fit.codes):
                for n in range(len(order), -1, -1):
                    alike = (fit.codes[:, order[:n]] == code[order[:n]]).all(axis=1)
                    if outside[alike, 0].sum() > 0:
                        mean = outside[alike, 1 + a].sum() / outside[alike, 0].sum()
                        found[a] += mean * inside[p, 1:] / pairs
                        break
    scale = np.outer(fit.spread[d], fit.spread[d])
    return (found + found.T) / 2 / scale / max(used, 1)


@pytest.mark.parametrize("share", [0.6, 0.05])
def test_every_set_of_features_explains_what_loops_over_patterns_find(share):
    fit = made(share=share)
    sets = FeatureSubsets.of(fit.codes, fit.priority)
    found = both_ways(sets.explained(fit.sums), fit.spread)
    for number, members in enumerate(sets.members):
        for d in range(DRAWS):
            expected = by_patterns(fit, np.flatnonzero(members).tolist(), d)
            np.testing.assert_allclose(found[d, number], expected, atol=1e-12)


@pytest.mark.parametrize("share", [0.6, 0.05])
def test_draws_together_are_divided_as_each_alone(share, monkeypatch):
    fit = made(seed=1, share=share)
    together = divide(fit)
    for d in range(DRAWS):
        own = CrossFit(fit.codes, fit.sums[..., [d]], fit.spread[[d]], fit.priority)
        alone = divide(own)
        np.testing.assert_allclose(together.terms[:, [d]], alone.terms, atol=1e-12)
        np.testing.assert_allclose(together.whole[[d]], alone.whole, atol=1e-12)
    # Too many patterns in all sets together: the same, set by set.
    monkeypatch.setattr(shapley, "MOST_GROUPS", 10)
    shapley._subsets_of.cache_clear()
    assert FeatureSubsets.of(fit.codes, fit.priority) is None
    np.testing.assert_allclose(divide(fit).terms, together.terms, atol=1e-12)
    shapley._subsets_of.cache_clear()
    monkeypatch.setattr(decomposition, "FEW_LAYERS", 1)
    np.testing.assert_allclose(divide(fit).terms, together.terms, atol=1e-12)


def test_its_shares_are_those_of_every_order_of_the_features():
    fit = made()
    sets = FeatureSubsets.of(fit.codes, fit.priority)
    for s, members in enumerate(sets.members):
        only = tuple(np.flatnonzero(members).tolist())
        expected = explicit.shapley_values(lambda chosen, only=only: chosen == only, FEATURES)
        np.testing.assert_allclose(sets.shares[:, s], expected, atol=1e-15)
