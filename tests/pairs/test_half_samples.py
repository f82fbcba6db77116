"""Halves of the designs: balanced, and every sum that of their explicit pairs."""

from __future__ import annotations

import explicit
import numpy as np
import pytest
from scipy.stats import rankdata

from mlem_core.pairs import half_samples as module
from mlem_core.pairs.build import PassOptions, pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.half_samples import half_samples, together
from mlem_core.pairs.patterns import PairIndex

N = 200


@pytest.fixture(scope="module")
def made():
    """Folds, design, cells and targets of the pairs, the tables of all and of each design."""
    features, folds = explicit.random_features(N), explicit.random_folds(N)
    design = PairDesign.of(folds, 6_000)
    index = PairIndex.build(feature_columns(features), folds, design=design)
    # Whole numbers make many ties.
    rows, designs = explicit.random_layer(features).round(0), {}
    options = PassOptions(of_design=designs.__setitem__)
    tables = pair_tables(index, [lambda: rows], train_ranks=True, options=options)
    i, j = design.ends(np.arange(design.n_pairs))
    target = ((rows[i].astype(np.float64) - rows[j]) ** 2).sum(axis=1)
    return folds, design, index.cell, target, tables, designs[0]


def test_halves_are_balanced(monkeypatch):
    monkeypatch.setattr(module, "together", list)
    halves = list(half_samples(range(8)))
    assert len(halves) == 14 and {len(half) for half in halves} == {4}
    for half, other in zip(halves[::2], halves[1::2], strict=True):
        assert sorted(half + other) == list(range(8))
    for a in range(8):
        for b in range(a):
            assert sum(a in half and b in half for half in halves) == 3


def test_means_over_halves_vary_as_the_mean_of_all_does(monkeypatch):
    """The oracle is the variance between designs, over their number."""
    values = np.random.default_rng(0).standard_normal(8)
    monkeypatch.setattr(module, "together", np.mean)
    halves = np.array(list(half_samples(values)))
    assert ((halves - values.mean()) ** 2).mean() == pytest.approx(values.var(ddof=1) / 8)
    assert halves.mean() == pytest.approx(values.mean())


@pytest.mark.parametrize("chosen", [[3], [0, 2, 5, 7], list(range(8))])
def test_sums_are_those_of_the_explicit_pairs(made, chosen):
    folds, design, cell, target, tables, designs = made
    found = together([designs[k] for k in chosen])
    edges, part = design.starts[design.parts], np.zeros(design.n_pairs, dtype=int)
    for k in range(8):
        part[edges[k] : edges[k + 1]] = k
    own = np.isin(part, chosen)
    counts = np.bincount(cell[own], minlength=len(tables.counts))
    names = tables.cell_block * tables.n_patterns + tables.cell_pattern
    present = counts > 0
    assert (found.cell_block * found.n_patterns + found.cell_pattern == names[present]).all()
    np.testing.assert_array_equal(found.counts, counts[present])
    by_cell = np.bincount(cell[own], target[own], len(counts))[present]
    np.testing.assert_allclose(found.target_sums[0], by_cell, rtol=1e-6)

    def ranked(among):
        """Ranks within each design, as many times as there are pairs in all of those chosen."""
        ranks = np.zeros(len(target))
        for k in chosen:
            pairs = among & (part == k)
            centred = rankdata(target[pairs]) - (pairs.sum() + 1) / 2
            ranks[pairs] = centred * (among & own).sum() / pairs.sum()
        return np.bincount(cell, ranks, len(counts))[present], ranks @ ranks

    sums, squares = ranked(np.ones(len(target), dtype=bool))
    np.testing.assert_allclose(found.rank_sums[0], sums, atol=1e-6)
    assert found.rank_squares[0] == pytest.approx(squares)
    i, j = design.ends(np.arange(design.n_pairs))
    for fold in range(5):
        sums, squares = ranked((folds[i] == fold) & (folds[j] == fold))
        at = found.held_out(fold)
        np.testing.assert_allclose(found.within_sums[0, at], sums[at], atol=1e-6)
        assert found.within_squares[0, fold] == pytest.approx(squares)
        sums, squares = ranked((folds[i] != fold) & (folds[j] != fold))
        np.testing.assert_allclose(found.training_ranks[0, fold], sums, atol=1e-6)
        assert found.train_squares[0, fold] == pytest.approx(squares)


def test_lowest_and_highest_distances_are_those_of_the_pairs(made):
    _, design, cell, target, tables, designs = made
    found = together(designs[2:4])
    edges = design.starts[design.parts]
    own = slice(edges[2], edges[4])
    block = tables.cell_block[cell[own]]
    for number in range(tables.target_low.shape[1]):
        pairs = target[own][block == number]
        assert found.target_low[0, number] == pytest.approx(pairs.min())
        assert found.target_high[0, number] == pytest.approx(pairs.max())


def test_without_training_ranks(made):
    from dataclasses import replace

    designs = [replace(own, train_sums=None, train_squares=None) for own in made[-1]]
    found = together(designs)
    assert found.train_sums is None and found.train_squares is None
