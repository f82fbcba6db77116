"""Pair tables: every sum is that of the explicit pairs, ranked by SciPy."""

import itertools
from dataclasses import replace

import explicit
import numpy as np
import pytest
from inputs import index_of, refused, sums_of
from scipy.stats import rankdata, spearmanr

from mlem_core.pairs.build import PassOptions
from mlem_core.pairs.designs import PairDesign, n_pairs
from mlem_core.pairs.kernels.sweep import LANES
from mlem_core.pairs.layer_sums import layer_sums
from mlem_core.pairs.pair_sampling_error import together
from mlem_core.pairs.patterns import left_out
from mlem_core.pairs.rank_store import PairRanks

N = 60
LARGER = 200


@pytest.fixture(scope="module", params=["ignore", "level"])
def case(request):
    """Layers, one with equal stimuli, the index of their pairs, and the tables."""
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    layers[1][7] = layers[1][8]
    index = index_of(features, explicit.random_folds(N), missing=request.param)
    return layers, index, sums_of(index, layers, train_ranks=True), request.param


def test_sums_are_those_of_the_explicit_pairs(case):
    layers, index, tables, missing = case
    expected = explicit.feature_distances(explicit.random_features(N), missing)
    np.testing.assert_allclose(tables.patterns[index.pair_pattern], expected, atol=1e-12)
    assert len(np.unique(tables.patterns, axis=0)) == len(tables.patterns)
    for layer, rows in enumerate(layers):
        target = explicit.squared(rows)
        explicit.hold_sums(tables, layer, target, index.cell, explicit.random_folds(N))


def test_summing_features_out_equals_leaving_them_out(case):
    layers, _, tables, missing = case
    features = explicit.random_features(N)[["length", "gender"]]
    fewer = index_of(features, explicit.random_folds(N), missing=missing)
    expected = sums_of(fewer, layers, train_ranks=True)
    found = tables.of_features(["gender", "length"])
    assert found.features == expected.features
    both = (found, expected)
    order, other = (np.lexsort(t.patterns.T) for t in both)
    np.testing.assert_allclose(found.patterns[order], expected.patterns[other], atol=1e-12)
    sums = [
        {name: getattr(t, name) for name in ("counts", "target_sums", "rank_sums", "within_sums")}
        | {fold: t.training_ranks[:, fold] for fold in range(5)}
        for t in both
    ]
    for name in sums[0]:
        dense = [np.zeros((2, 15, len(t.patterns))) for t in both]
        for array, t, own in zip(dense, both, sums, strict=True):
            array[:, t.cell_block, t.cell_pattern] = own[name]
        np.testing.assert_allclose(dense[0][..., order], dense[1][..., other], atol=1e-6)


def test_what_cannot_be_summed_names_the_layer_and_the_feature():
    features = explicit.random_features(10)
    with refused("brain layer 3", "9 rows", "10 stimuli"):
        sums_of(index_of(features), [np.ones((9, 2))], names=["brain layer 3"])
    tables = sums_of(index_of(features), [np.eye(10)])
    with refused("gendre", "gender"):
        tables.of_features(["gendre"])
    with refused("no feature"):
        tables.of_features([])


@pytest.fixture(scope="module", params=["ignore", "level"])
def designed(request):
    """An incomplete design: its tables, those of each part, the targets and the ranks of pairs."""
    features, folds = explicit.random_features(LARGER), explicit.random_folds(LARGER)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    # Whole numbers make many ties.
    layers[1] = layers[1].round(0)
    design = PairDesign.of(folds, 6_000)
    index = index_of(features, folds, missing=request.param, design=design)
    ranks, parts = PairRanks(2, design.n_pairs), {}
    options = PassOptions(keep_ranks=ranks.put, of_design=parts.__setitem__)
    tables = sums_of(index, layers, train_ranks=True, options=options)
    ends = design.ends(np.arange(design.n_pairs))
    targets = []
    for rows in layers:
        exact = rows.astype(np.float64)
        targets.append(((exact[ends[0]] - exact[ends[1]]) ** 2).sum(axis=1).round(9))
    part = np.zeros(design.n_pairs, dtype=int)
    for k, (start, end) in enumerate(itertools.pairwise(design.starts[design.parts])):
        part[start:end] = k
    return folds, design, index.cell, ends, part, targets, tables, parts, ranks


def hold_part(found, case, layer, own):
    """Sums of a part of the pairs, in which cells without pairs are left out."""
    folds, _, cell, ends, part, targets, tables, _, _ = case
    its, its_own = (t.cell_block * t.n_patterns + t.cell_pattern for t in (tables, found))
    at = np.searchsorted(its_own, its[cell[own]])
    ends = tuple(end[own] for end in ends)
    explicit.hold_sums(found, 0, targets[layer][own], at, folds, ends, 1e-5, part[own])
    assert found.n_layers == 1


def test_sums_of_a_design_and_of_its_parts_are_those_of_their_pairs(designed):
    folds, design, cell, ends, part, targets, tables, parts, ranks = designed
    assert tables.n_pairs == design.n_pairs < n_pairs(LARGER)
    assert [len(own) for own in parts.values()] == [8, 8]
    of_parts = ranks.rsa(design.starts[design.parts])
    whole = [rankdata(target) for target in targets]
    for layer, target in enumerate(targets):
        explicit.hold_sums(tables, layer, target, cell, folds, ends, 1e-5)
    for k in range(8):
        own = part == k
        for layer in range(2):
            hold_part(parts[layer][k], designed, layer, own)
        expected = np.corrcoef(whole[0][own], whole[1][own])[0, 1]
        assert of_parts[k, 0, 1] == pytest.approx(expected)
    np.testing.assert_allclose(ranks.rsa()[0, 1], spearmanr(*targets)[0])


@pytest.mark.parametrize("chosen", [[3], [2, 3], [0, 2, 5, 7], list(range(8))])
def test_sums_of_some_designs_together_are_those_of_their_pairs(designed, chosen):
    parts, part = designed[-2], designed[4]
    own = [parts[1][k] for k in chosen]
    hold_part(together(own), designed, 1, np.isin(part, chosen))
    plain = together([replace(one, train_sums=None, train_squares=None) for one in own])
    assert plain.train_sums is None and plain.train_squares is None


SWEPT = 100


def distances(kind):
    """Squared distances of all pairs: without ties, with short ones, with a long one."""
    values = np.random.default_rng(0).random(n_pairs(SWEPT))
    if kind == "short ties":
        return values.round(3)
    if kind == "a long tie":
        values[: len(values) // 2] = 0.5
    return values


KINDS = ["no ties", "short ties", "a long tie"]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n_folds", [5, LANES + 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_gives_the_ranks_of_scipy(kind, n_folds, threads):
    squared = distances(kind)
    folds = explicit.random_folds(SWEPT, n_folds)
    index = index_of(explicit.random_features(SWEPT), folds, missing="level")
    given = squared.copy()
    sums, doubled = layer_sums(index, squared, True, threads=threads)
    np.testing.assert_array_equal(squared, given)
    np.testing.assert_array_equal(doubled, 2 * rankdata(squared))
    np.testing.assert_allclose(sums.target_sums, np.bincount(index.cell, squared))
    block = index.cell_block[index.cell]

    def hold(found, squares, pairs, own=slice(None)):
        expected, own_squares = explicit.cell_sums(squared, pairs, index.cell, index.n_cells)
        np.testing.assert_array_equal(found[own], expected[own])
        assert squares == pytest.approx(own_squares)

    hold(sums.rank_sums, sums.rank_squares, np.ones(len(squared), dtype=bool))
    out = left_out(n_folds, index.n_blocks)
    only = out.sum(axis=0) == 1
    for fold in range(n_folds):
        hold(sums.train_sums[fold], sums.train_squares[fold], ~out[fold, block])
        inside = out[fold] & only
        within = sums.within_sums, sums.within_squares[fold]
        hold(*within, inside[block], inside[index.cell_block])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("train_ranks", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_the_same_without_the_ranks_of_pairs(kind, train_ranks, threads, monkeypatch):
    squared = distances(kind)
    folds = explicit.random_folds(SWEPT, 5)
    index = index_of(explicit.random_features(SWEPT), folds, missing="level")
    sums, _ = layer_sums(index, squared, train_ranks)
    alone, doubled = layer_sums(index, squared, train_ranks, ranks=False, threads=threads)
    assert doubled is None
    for name in vars(sums):
        np.testing.assert_array_equal(getattr(alone, name), getattr(sums, name))
    # Sums of targets in parts: by any number of threads the same, and the ends of blocks exact.
    monkeypatch.setattr("mlem_core.pairs.layer_sums.TOGETHER", 1000)
    parts = [layer_sums(index, squared, threads=n)[0] for n in (1, 3)]
    for own in parts:
        np.testing.assert_array_equal(own.target_sums, parts[0].target_sums)
        np.testing.assert_allclose(own.target_sums, sums.target_sums, rtol=1e-12)
        np.testing.assert_array_equal(own.target_low, sums.target_low)
        np.testing.assert_array_equal(own.target_high, sums.target_high)
