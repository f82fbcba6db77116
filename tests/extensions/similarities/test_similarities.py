"""RSA, CKA, neighbours, Procrustes and CCA: libraries, explicit pairs, and nothing by chance."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import statistics_of
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import squareform
from scipy.stats import rankdata, spearmanr
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from mlem_core.extensions.similarities.alignment import COMPONENTS, cca, components, procrustes
from mlem_core.extensions.similarities.entries import NEIGHBOURS
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs import similarity_moments as module
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.pairs.similarity_moments import similarity_moments

N = 45
NAMES = ("rsa", "cka", "neighbours")
slow = pytest.mark.slow
each = pytest.mark.parametrize("name", NAMES)


def compared(name, features, layers, folds=None):
    """The similarities of some layers, and pair statistics that divide them."""
    pairs = statistics_of(features, layers, folds)
    squared = [lambda layer=layer: explicit.squared(layer) for layer in layers]
    moments = similarity_moments(SIMILARITIES[name], squared, pairs.columns, pairs.moments.folds)
    return moments, replace(pairs, moments=moments.replace_ranks(pairs.moments))


def numbers(name, layer):
    """(n_pairs, 2) what a layer gives every pair, of explicit matrices."""
    i, j = explicit.pairs(len(layer))
    if name == "neighbours":
        near = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(layer).kneighbors()[1]
        member = np.zeros((len(layer), len(layer)))
        np.put_along_axis(member, near, 1.0, axis=1)
        return np.stack((member[i, j], member[j, i]), axis=1) - NEIGHBOURS / (len(layer) - 1)
    squared = explicit.squared(layer)
    if name == "rsa":
        one = rankdata(squared) - (len(squared) + 1) / 2
    else:
        # Székely and Rizzo (2014), definition 2; `by_dcor` holds the similarity.
        square, n = squareform(squared), len(layer)
        rows = square.sum(axis=0) / (n - 2)
        one = (square - rows[:, None] - rows + square.sum() / ((n - 1) * (n - 2)))[i, j]
    return np.stack((one, one), axis=1)


@pytest.fixture(scope="module")
def case():
    features = explicit.random_features(N)
    layers = [explicit.random_layer(features, seed).astype(np.float64) for seed in range(3)]
    return features, layers, explicit.random_folds(N, 3)


def by_scipy(a, b):
    return spearmanr(explicit.squared(a), explicit.squared(b)).statistic


def by_dcor(a, b):
    import dcor  # which compiles for 10 to 40 s

    with warnings.catch_warnings():
        # Squared distances are asked for on purpose: it is the linear kernel.
        warnings.simplefilter("ignore", UserWarning)
        return dcor.u_distance_correlation_sqr(a, b, exponent=2)


def by_sets(a, b):
    near = [NearestNeighbors(n_neighbors=NEIGHBOURS).fit(x).kneighbors()[1] for x in (a, b)]
    both = sum(len(set(one) & set(other)) for one, other in zip(*near, strict=True))
    chance = NEIGHBOURS / (N - 1)
    return (both / (N * NEIGHBOURS) - chance) / (1 - chance)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("rsa", by_scipy), pytest.param("cka", by_dcor, marks=slow), ("neighbours", by_sets)],
)
def test_similarities_are_those_of_libraries_and_definitions(case, name, expected):
    features, layers, _ = case
    found = compared(name, features, layers)[0].values
    for a, b in itertools.combinations(range(3), 2):
        assert found[a, b] == pytest.approx(expected(layers[a], layers[b]), abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_neighbours_with_many_ties_are_those_of_every_row(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(NEIGHBOURS + 2, 40))
    squared = explicit.squared(rng.integers(0, 4, (n, 2)).astype(float))
    values, _ = SIMILARITIES["neighbours"].pair_values(squared)
    found = np.zeros((n, n))
    i, j = explicit.pairs(n)
    found[i, j], found[j, i] = values
    square = squareform(squared)
    for row in range(n):
        others = np.delete(np.arange(n), row)
        own = square[row, others]
        edge = np.sort(own)[NEIGHBOURS - 1]
        left = NEIGHBOURS - (own < edge).sum()
        expected = np.where(own < edge, 1.0, np.where(own == edge, left / (own == edge).sum(), 0.0))
        np.testing.assert_allclose(found[row, others], expected, atol=1e-12)
        assert found[row].sum() == pytest.approx(NEIGHBOURS)


@each
def test_terms_are_contributions_to_what_explicit_pairs_have(case, name):
    features, layers, folds = case
    moments, pairs = compared(name, features, layers, folds)
    found = decompose(pairs.moments)
    values = np.stack([numbers(name, layer) for layer in layers])
    # Columns say the same of (i, j) and (j, i): the mean is what they can tell of.
    halves = values.mean(axis=2)
    inside = [explicit.held_out(folds, fold) for fold in range(3)]
    squares = sum(
        (values[:, own] ** 2).mean(axis=2).sum(axis=1) - halves[:, own].sum(axis=1) ** 2 / own.sum()
        for own in inside
    )
    x = explicit.feature_distances(features) ** 2
    sets = [(f,) for f in range(x.shape[1])]
    terms = explicit.contributions(x, sets, halves, folds, squares=squares)
    np.testing.assert_allclose(found.terms, terms, atol=1e-9)
    spread = np.sqrt((values**2).sum(axis=(1, 2)))
    whole = np.einsum("apk,bpk->ab", values, values) / np.outer(spread, spread)
    for matrix in (found.rsa, moments.values, found.values.sum(axis=0)):
        np.testing.assert_allclose(matrix, whole, atol=1e-9)


@each
def test_layers_whose_values_go_to_a_file_are_the_same(case, name, monkeypatch):
    features, layers, _ = case
    here = compared(name, features, layers)[0]
    monkeypatch.setattr(module, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr("mlem_core.pairs.moment_sums.CHUNK", 100)
    in_file = compared(name, features, layers)[0]
    for field, values in vars(here).items():
        np.testing.assert_allclose(getattr(in_file, field), values, atol=1e-9)


@each
@pytest.mark.parametrize("nothing", (np.zeros((N, 2)), np.eye(N)), ids=("equal", "all apart"))
def test_a_layer_in_which_all_pairs_are_alike_is_like_none(case, nothing, name):
    features, layers, folds = case
    moments, pairs = compared(name, features, [nothing, layers[1]], folds)
    np.testing.assert_array_equal(moments.values, np.eye(2))
    assert not decompose(pairs.moments).terms[:, 0, 1].any()


TURNED = 90
FOLDS = np.arange(TURNED) % 3


def layer(seed, units=7, n=TURNED):
    return np.random.default_rng(seed).standard_normal((n, units)) * np.linspace(3, 1, units)


def two(seed=0):
    """Two layers with much in common."""
    rng = np.random.default_rng(seed)
    one = layer(seed)
    return one, one @ rng.standard_normal((7, 7)) + rng.standard_normal((TURNED, 7))


def by_hand(one, other, turned):
    product, squares = 0.0, np.zeros(2)
    for fold in range(3):
        train, test = fold != FOLDS, fold == FOLDS
        means = one[train].mean(axis=0), other[train].mean(axis=0)
        trained = [x[train] - mean for x, mean in zip((one, other), means, strict=True)]
        tested = [x[test] - mean for x, mean in zip((one, other), means, strict=True)]
        a, b = turned(*trained, *tested)
        product += np.trace(a.T @ b)
        squares += [np.sum(a**2), np.sum(b**2)]
    return product / np.sqrt(np.prod(squares))


def test_components_are_those_of_scikit_learn():
    for rows in (layer(0), layer(1, units=200)):
        found = components(rows)
        expected = PCA(n_components=found.shape[1]).fit_transform(rows)
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)
    # One for ten stimuli, and at most fifty.
    assert components(layer(1, units=200)).shape[1] == 9
    assert components(layer(1, units=80, n=900)).shape[1] == COMPONENTS
    assert components(np.tile(layer(0, units=3), (1, 3))).shape[1] == 3
    assert components(np.ones((TURNED, 4))).size == 0


def test_the_rotation_is_that_of_scipy():
    def turned(a, b, left_a, left_b):
        return left_a @ orthogonal_procrustes(a, b)[0], left_b

    one, other = two()
    expected = by_hand(one, other, turned)
    assert procrustes(one, other, FOLDS) == pytest.approx(expected, abs=1e-9)
    assert procrustes(other, one, FOLDS) == pytest.approx(expected, abs=1e-9)
    assert 0.3 < expected < 1


def test_the_directions_are_those_of_scikit_learn():
    def turned(a, b, left_a, left_b):
        fitted = CCA(n_components=7, scale=False, max_iter=100_000, tol=1e-14).fit(a, b)
        x, y = fitted.transform(a, b)
        left = fitted.transform(left_a, left_b)
        return left[0] / np.linalg.norm(x, axis=0), left[1] / np.linalg.norm(y, axis=0)

    one, other = two(1)
    expected = by_hand(one, other, turned)
    assert cca(one, other, FOLDS) == pytest.approx(expected, abs=1e-4)
    assert 0.3 < expected < 1


def test_stimuli_of_no_fold_have_no_part():
    one, other = two(2)
    folds = np.where(np.arange(TURNED) < 80, FOLDS, -1)
    moved = other.copy()
    moved[80:] *= 100
    for aligned in (procrustes, cca):
        assert aligned(one, other, folds) == aligned(one, moved, folds)
        assert aligned(one, np.zeros((TURNED, 0)), folds) == 0.0


@pytest.mark.parametrize("name", ["procrustes", "cca"])
def test_layers_are_turned_onto_each_other_and_one_without_components_onto_none(name):
    layers = [*map(components, two(3)), np.zeros((TURNED, 0))]
    columns = statistics_of(explicit.random_features(TURNED), layers[:2], FOLDS).columns
    own = [lambda layer=layer: layer for layer in layers]
    found = similarity_moments(SIMILARITIES[name], own, columns, FOLDS).values
    expected = {"procrustes": procrustes, "cca": cca}[name](*layers[:2], FOLDS)
    np.testing.assert_allclose(found, [[1, expected, 0], [expected, 1, 0], [0, 0, 1]], atol=1e-12)


def within(draws, truth):
    """The mean over draws (n, ...) is the truth, to 3.5 standard errors."""
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - truth) < 3.5 * error).all()


@each
def test_unrelated_layers_have_0_on_average_and_so_have_features_that_both_ignore(name):
    values, terms, equal = [], [], []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        features = pd.DataFrame({f: rng.choice(list("abc"), 60) for f in ("one", "other")})
        # Many units in the one, few in the other, and outliers: what biases the plain estimators.
        layers = [rng.standard_normal((60, 40)), rng.standard_t(3, (60, 4))]
        moments, pairs = compared(name, features, layers, explicit.random_folds(60, 3, seed))
        values.append(moments.values[0, 1])
        terms.append(decompose(pairs.moments).terms[:, 0, 1])
        # Each stimulus stands several times, in its order, as words do in embeddings.
        layers = [rng.standard_normal((4, 3))[rng.integers(0, 4, 60)] for _ in range(2)]
        equal.append(compared(name, features, layers)[0].values[0, 1])
    within(np.column_stack((values, equal)), 0.0)
    within(np.stack(terms), 0.0)
