"""Pair tables of an incomplete design: every sum is that of its explicit pairs."""

from __future__ import annotations

import explicit
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import rankdata, spearmanr

from mlem_core.base.errors import InputError
from mlem_core.pairs import distances
from mlem_core.pairs.build import PassOptions, pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign, n_pairs
from mlem_core.pairs.distances import DISTANCES, Distance, metrics, squared_along
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.rank_store import PairRanks

N = 200
SCIPY = {"manhattan": "cityblock"}


@pytest.fixture(scope="module")
def design():
    return PairDesign.of(explicit.random_folds(N), 6_000)


def rows_of(dtype, seed=0):
    rows = np.random.default_rng(seed).standard_normal((N, 11)).astype(dtype)
    rows[[4, 8, 90]] = rows[1]
    return rows


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("metric", metrics())
def test_distances_are_those_of_scipy(design, metric, dtype):
    rows = rows_of(dtype)
    exact = rows.astype(np.float64)
    i, j = design.ends(np.arange(design.n_pairs))
    expected = cdist(exact, exact, SCIPY.get(metric, metric))[i, j] ** 2
    for threads in (1, 3):
        found = squared_along(rows, metric, design, threads=threads)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)
    same = np.isin(i, [1, 4, 8, 90])
    assert not found[same & np.isin(j, [1, 4, 8, 90])].any()
    # Equal rows are at exactly the same distance from any third row.
    for third in range(N):
        at = ((i == third) & np.isin(j, [1, 4, 8, 90])) | ((j == third) & same)
        assert len(np.unique(found[at & (found > 0)])) <= 1


def test_precomputed_distances_are_looked_up(design):
    rows = rows_of(np.float64)
    matrix = cdist(rows, rows)
    i, j = design.ends(np.arange(design.n_pairs))
    np.testing.assert_array_equal(squared_along(matrix, "precomputed", design), matrix[i, j] ** 2)
    matrix[3, 5] += 1
    with pytest.raises(InputError, match="not symmetric"):
        squared_along(matrix, "precomputed", design)


def test_a_distance_of_ones_own(design, monkeypatch):
    """With `pairwise` it is computed pair by pair; with all pairs at once only, it cannot be."""
    whole = Distance("own", condensed=lambda rows: np.zeros(0))
    monkeypatch.setitem(DISTANCES, "own", whole)
    with pytest.raises(InputError, match=r"only be computed of all pairs.*euclidean"):
        squared_along(rows_of(np.float32), "own", design)
    pairwise = Distance(
        "own", tile=lambda *_: None, pairwise=lambda a, b: np.abs(a - b).max(axis=1)
    )
    monkeypatch.setitem(DISTANCES, "own", pairwise)
    monkeypatch.setattr(distances, "PAIR_ELEMENTS", 1_000)
    rows = rows_of(np.float64)
    i, j = design.ends(np.arange(design.n_pairs))
    found = squared_along(rows, "own", design, threads=2)
    np.testing.assert_allclose(found, cdist(rows, rows, "chebyshev")[i, j] ** 2)


@pytest.mark.parametrize("missing", ["ignore", "level"])
def test_sums_are_those_of_the_explicit_pairs(design, missing):
    features, folds = explicit.random_features(N), explicit.random_folds(N)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    layers[1] = layers[1].round(0)
    index = PairIndex.build(feature_columns(features), folds, missing, design=design)
    ranks = PairRanks(2, design.n_pairs)
    parts = {}
    options = PassOptions(keep_ranks=ranks.put, of_design=parts.__setitem__)
    tables = pair_tables(
        index, [lambda layer=layer: layer for layer in layers], train_ranks=True, options=options
    )
    i, j = design.ends(np.arange(design.n_pairs))
    assert tables.n_pairs == design.n_pairs < n_pairs(N)
    targets = []
    for number, rows in enumerate(layers):
        exact = rows.astype(np.float64)
        target = ((exact[i] - exact[j]) ** 2).sum(axis=1).round(9)
        targets.append(target)
        check(tables, number, target, index.cell, folds[i], folds[j])
        assert [part.n_layers for part in parts[number]] == [1] * 8
        edges = design.starts[design.parts]
        for k, part in enumerate(parts[number]):
            own = slice(edges[k], edges[k + 1])
            # Cells without pairs are left out of a part.
            names = tables.cell_block * 10_000 + tables.cell_pattern
            at = np.searchsorted(
                part.cell_block * 10_000 + part.cell_pattern, names[index.cell[own]]
            )
            check(part, 0, target[own], at, folds[i][own], folds[j][own])
    np.testing.assert_allclose(ranks.rsa()[0, 1], spearmanr(*targets)[0])
    of_parts = ranks.rsa(design.starts[design.parts])
    whole = [rankdata(target) for target in targets]
    for k in range(8):
        own = slice(edges[k], edges[k + 1])
        expected = np.corrcoef(whole[0][own], whole[1][own])[0, 1]
        assert of_parts[k, 0, 1] == pytest.approx(expected)


def check(tables, layer, target, cell, of_i, of_j):
    """Sums of one layer against SciPy's ranks of the pairs."""

    def sums(pairs):
        ranks = rankdata(target[pairs]) - (pairs.sum() + 1) / 2
        return np.bincount(cell[pairs], ranks, len(tables.counts)), ranks @ ranks

    np.testing.assert_array_equal(tables.counts, np.bincount(cell))
    np.testing.assert_allclose(tables.target_sums[layer], np.bincount(cell, target), rtol=1e-5)
    found = sums(np.ones(len(target), dtype=bool))
    np.testing.assert_allclose(tables.rank_sums[layer], found[0], atol=1e-6)
    assert tables.rank_squares[layer] == pytest.approx(found[1])
    for fold in range(5):
        inside = (of_i == fold) & (of_j == fold)
        found, squares = sums(inside)
        own = tables.held_out(fold)
        np.testing.assert_allclose(tables.within_sums[layer, own], found[own], atol=1e-6)
        assert tables.within_squares[layer, fold] == pytest.approx(squares)
        found, squares = sums((of_i != fold) & (of_j != fold))
        np.testing.assert_allclose(tables.training_ranks[layer, fold], found, atol=1e-6)
        assert tables.train_squares[layer, fold] == pytest.approx(squares)
