"""Distances: those of SciPy."""

import numpy as np
import pytest
from helpers import explicit
from helpers.inputs import for_each, refused
from scipy.spatial.distance import cdist, pdist, squareform

from mlem_core.pairs import distances as tiles
from mlem_core.pairs.designs import PairDesign, pair_places
from mlem_core.pairs.distances import (
    DISTANCES,
    SQUARED,
    Distance,
    condensed_from_matrix,
    metrics,
    squared_distances,
)

N = 120
SCIPY = {"manhattan": "cityblock"}


@pytest.fixture(scope="module")
def design():
    return PairDesign.from_budget(explicit.random_folds(N), 3_000)


def rows_of(dtype):
    """Rows of which several are equal."""
    rows = np.random.default_rng(0).standard_normal((N, 11)).astype(dtype)
    rows[[4, 8, 90]] = rows[1]
    return rows


@pytest.mark.parametrize("metric", metrics())
def test_distances_are_those_of_scipy_in_bands_and_threads(metric, monkeypatch):
    rows = np.random.default_rng(0).standard_normal((103, 5))
    whole = squared_distances(rows, metric)
    np.testing.assert_allclose(whole, pdist(rows, SCIPY.get(metric, metric)) ** 2, rtol=1e-9)
    monkeypatch.setattr(tiles, "CHUNK_ELEMENTS", 500)
    monkeypatch.setattr(tiles, "CHUNK_ROWS", 5)
    bands = squared_distances(rows, metric)
    np.testing.assert_allclose(bands, whole, rtol=1e-12)
    np.testing.assert_array_equal(squared_distances(rows, metric, threads=3), bands)


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_what_is_squared_already_is_taken_as_it_is(design, metric):
    rows = rows_of(np.float64)
    expected = squareform(pdist(rows, metric))
    i, j = design.ends(np.arange(design.n_pairs))
    found = squared_distances(rows, metric + SQUARED, design=design)
    np.testing.assert_allclose(found, expected[i, j], rtol=1e-9, atol=1e-12)
    found = squared_distances(rows, metric + SQUARED)
    np.testing.assert_allclose(found, pdist(rows, metric), rtol=1e-9, atol=1e-12)
    with refused("'euclidean-squared'"):
        squared_distances(rows, "euclidean" + SQUARED)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("metric", metrics())
def test_distances_along_a_design_are_those_of_scipy(design, metric, dtype):
    rows = rows_of(dtype)
    exact = rows.astype(np.float64)
    i, j = design.ends(np.arange(design.n_pairs))
    expected = cdist(exact, exact, SCIPY.get(metric, metric))[i, j] ** 2
    for threads in (1, 3):
        found = squared_distances(rows, metric, design=design, threads=threads)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)
    same, other = (np.isin(end, [1, 4, 8, 90]) for end in (i, j))
    assert not found[same & other].any()
    # Equal rows are at exactly the same distance from any third row.
    for third in range(N):
        at = ((i == third) & other) | ((j == third) & same)
        assert len(np.unique(found[at & (found > 0)])) <= 1


def test_a_distance_of_ones_own_is_computed_of_all_pairs_or_not_at_all(design, monkeypatch):
    whole = Distance("own", condensed=lambda rows: np.zeros(0))
    monkeypatch.setitem(DISTANCES, "own", whole)
    with refused("own", "all pairs", "euclidean"):
        squared_distances(rows_of(np.float32), "own", design=design)
    whole = Distance("own", condensed=lambda rows: pdist(rows, "chebyshev"))
    monkeypatch.setitem(DISTANCES, "own", whole)
    equal = rows_of(np.float64)[[*range(N), N - 1, N - 1]]
    np.testing.assert_allclose(squared_distances(equal, "own"), pdist(equal, "chebyshev") ** 2)


def test_distances_hold_where_norms_differ_by_a_factor_of_50():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((200, 576)).astype(np.float32)
    rows *= (400 / np.linalg.norm(rows, axis=1))[:, None]
    rows[::7] *= 50
    # Neighbours a hundredth of their norm apart are where cancellation bites.
    rows[1::7] = rows[2 : 2 + len(rows[1::7])] + 0.2 * rng.standard_normal(rows[1::7].shape)
    expected = cdist(rows.astype(np.float64), rows.astype(np.float64))[np.triu_indices(200, 1)]
    np.testing.assert_allclose(np.sqrt(squared_distances(rows)), expected, rtol=1e-6)


def test_rows_that_are_close_are_subtracted():
    rows = 300 + 1e-3 * np.random.default_rng(0).standard_normal((20, 7))
    above = np.triu(tiles.squared_euclidean(rows, np.square(rows).sum(axis=1), 0, 20), 1)
    np.testing.assert_allclose(above, np.triu(cdist(rows, rows, "sqeuclidean")), rtol=1e-9)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_one_row_of_any_size_leaves_the_others_as_they_are(metric):
    rows = np.random.default_rng(0).standard_normal((20, 5))
    without = squared_distances(rows[1:], metric)
    rows[0] *= 1e20  # what some formats write where a value is missing
    found = squareform(squared_distances(rows, metric))[1:, 1:]
    np.testing.assert_allclose(squareform(found), without, rtol=1e-9)


def test_equal_rows_have_distance_0_and_equal_distances_to_all_others():
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((80, 64)).astype(np.float32) * 300
    copies = [3, 17, 40, 79]
    # As a model gives them in different batches: equal up to the last bits.
    rows[copies] = rows[3] * (1 + 2e-7 * rng.standard_normal((4, 64))).astype(np.float32)
    square = squareform(squared_distances(rows))
    assert (square[np.ix_(copies, copies)] == 0).all()
    others = np.setdiff1d(np.arange(80), copies)
    for copy in copies[1:]:
        np.testing.assert_array_equal(square[copy, others], square[3, others])
    assert (square[np.ix_(others, others)][np.triu_indices(len(others), 1)] > 0).all()
    assert (squared_distances(np.full((20, 4), 3.5)) == 0).all()


@for_each(
    "metric, value, facts",
    ("euclidean", np.nan, ("minilm layer 2", "row 4")),
    ("euclidean", np.inf, ("minilm layer 2", "row 4")),
    ("cosine", 0.0, ("minilm layer 2", "row 4")),
    ("euclidian", 1.0, ("euclidian", "euclidean")),
)
def test_what_has_no_distance_is_named(metric, value, facts):
    rows = np.ones((5, 3))
    rows[3] = value
    with refused(*facts):
        squared_distances(rows, metric, layer="minilm layer 2")


def test_a_matrix_of_distances_is_taken_as_it_is(design):
    square = squareform(pdist(np.random.default_rng(0).standard_normal((12, 4))))
    expected = square[np.triu_indices(12, 1)] ** 2
    np.testing.assert_allclose(condensed_from_matrix(square), expected)
    np.testing.assert_array_equal(squared_distances(square, "precomputed"), expected)
    matrix = cdist(rows_of(np.float64), rows_of(np.float64))
    i, j = design.ends(np.arange(design.n_pairs))
    np.testing.assert_array_equal(
        squared_distances(matrix, "precomputed", design=design), matrix[i, j] ** 2
    )
    matrix[3, 5] += 1
    with refused("not symmetric"):
        squared_distances(matrix, "precomputed", design=design)


@for_each(
    "damage, fact",
    (lambda m: m[:, :-1], "square"),
    (lambda m: m + np.triu(m, 1), "symmetric; expected one distance for every two stimuli."),
    (np.tril, "fill the triangle that is 0"),
    (lambda m: 1 - m / m.max(), "similarities"),
    (lambda m: np.where(m == m[3, 5], np.nan, m), "row 4, column 6"),
    (lambda m: -m, "negative"),
)
def test_a_matrix_that_is_no_distance_matrix(damage, fact):
    square = squareform(pdist(np.random.default_rng(0).standard_normal((12, 4))))
    with refused(fact):
        condensed_from_matrix(damage(square))


@pytest.mark.parametrize(("kind", "offset"), [("<f8", 1e12), ("<f4", 1e5), ("<f8", -1e9)])
def test_an_offset_of_all_rows_makes_no_rows_equal(kind, offset):
    rows = np.random.default_rng(0).integers(0, 40, (30, 6)) / 8
    rows[7] = rows[3]
    moved = (rows + offset).astype(kind)
    assert np.array_equal(moved.astype(float) - offset, rows)
    expected = pdist(rows, "sqeuclidean")
    design = PairDesign.from_budget(np.arange(30) % 3, 300, 0)
    for given in (rows, moved):
        np.testing.assert_allclose(squared_distances(given), expected, rtol=1e-6)
        assert squared_distances(given)[pair_places(np.array([3]), np.array([7]), 30)] == 0
        i, j = design.ends(np.arange(design.n_pairs))
        along = squared_distances(given, "euclidean", design=design)
        np.testing.assert_allclose(along, ((rows[i] - rows[j]) ** 2).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("metric", [*metrics(), "precomputed"])
@pytest.mark.parametrize("factor", [1e-170, 1e170, 1e-300, 1e300])
def test_numbers_of_any_size_have_the_same_distances_up_to_a_factor(metric, factor):
    rows = np.random.default_rng(0).standard_normal((40, 6))
    rows = squareform(pdist(rows)) if metric == "precomputed" else rows
    design = PairDesign.from_budget(np.arange(40) % 3, 400, 0)
    usual = squared_distances(rows, metric)
    found = squared_distances(rows * factor, metric)
    assert len(np.unique(found)) == len(found) and np.isfinite(found).all()
    np.testing.assert_allclose(found / found.max(), usual / usual.max(), rtol=1e-9)
    some, along = (squared_distances(one, metric, design=design) for one in (rows, rows * factor))
    np.testing.assert_allclose(along / along.max(), some / some.max(), rtol=1e-9)
