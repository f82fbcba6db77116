"""Features that are given as vectors or as distances: patterns, weights and scales."""

import explicit
import numpy as np
import pytest
from inputs import index_of, refused
from scipy.spatial.distance import cdist, squareform

from mlem_core.data.distance_features import with_rdm, with_vector
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.pairs.columns import (
    chosen_to_resolve,
    coding,
    feature_columns,
    principal_coordinates,
)

N = 60


def frame():
    vectors = np.random.default_rng(5).integers(0, 4, (N, 3)).astype(float)
    named = {f"s{k}": vectors[:, k] for k in range(3)}
    sentences = [f"number {row}" for row in range(N)]
    return explicit.random_features(N).assign(sentence=sentences, **named)


@pytest.fixture(scope="module")
def given():
    """A vector with equal and missing values, and distances that no vector has."""
    table = frame()
    table.loc[[4, 9], "s1"] = np.nan
    apart = squareform(np.random.default_rng(6).random(N * (N - 1) // 2))
    stimuli = with_vector(from_frame(table, "made up"), "vec", "s*")
    return with_rdm(stimuli, "own", apart), apart


def column_of(stimuli, name, *spans):
    return next(one for one in feature_columns(stimuli, *spans) if one.name == name)


def expected_distances(apart, missing):
    table = frame()
    table.loc[[4, 9], "s1"] = np.nan
    plain = explicit.feature_distances(table[["kind", "length", "gender", "frequency"]], missing)
    vectors = table[["s0", "s1", "s2"]].to_numpy()
    i, j = explicit.pairs(len(table))
    of_vectors = np.sqrt(((vectors[i] - vectors[j]) ** 2).sum(axis=1))
    gone = np.isnan(vectors).any(axis=1)
    level = (gone[i] != gone[j]) & (missing == "level")
    scaled = of_vectors / np.nanmax(of_vectors)
    of_vectors = np.where(gone[i] | gone[j], level, scaled)
    return np.column_stack([plain, of_vectors, apart[i, j] / apart.max()])


@pytest.mark.parametrize("missing", ["ignore", "level"])
def test_patterns_are_those_of_the_explicit_pairs(given, missing):
    stimuli, apart = given
    index = index_of(stimuli, explicit.random_folds(N), missing=missing)
    assert index.kinds[-2:] == ("vector", "rdm") and not index.notes
    assert coding(index.kinds[-1:], []) != coding(index.kinds[:1], [])
    expected = expected_distances(apart, missing)
    np.testing.assert_allclose(index.patterns[index.pair_pattern], expected, atol=1e-11)


@pytest.mark.parametrize("interactions", [False, True])
def test_weights_are_those_of_ridge_on_the_explicit_pairs(given, interactions):
    stimuli, apart = given
    layer = explicit.random_layer(frame())
    model = RidgeMLEM(alphas=[1.0], interactions=interactions).fit(stimuli, layer)
    x = expected_distances(apart, "ignore")
    terms = explicit.products(x) if interactions else x**2
    expected = explicit.ridge(terms, explicit.scaled(explicit.squared(layer)), 1.0)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict(stimuli), expected.predict(terms), atol=1e-6)


def test_more_patterns_than_there_may_be_are_put_into_bins_and_said(given):
    stimuli, apart = given
    index = index_of(stimuli.select(["kind", "own"]), np.zeros(N, dtype=np.int64), most_cells=300)
    exact = (apart / apart.max())[explicit.pairs(N)]
    off = np.abs(index.patterns[index.pair_pattern][:, 1] - exact).max()
    assert index.n_patterns <= 300 and 0 < off <= 0.5 / 64 + 1e-9
    assert "'own'" in index.notes[0] and "0.0078" in index.notes[0]


def test_a_few_values_can_be_told_apart(given):
    table = from_frame(frame(), "made up").table.assign(item=[f"i{row % 3}" for row in range(N)])
    apart = np.array([[0, 1, 2], [1, 0, 1.5], [2, 1.5, 0]])
    found = with_rdm(from_frame(table, "made up"), "own", apart, ["i0", "i1", "i2"])
    index = index_of(found.select(["own"]), resolved=["own"])
    np.testing.assert_allclose(index.levels[0], [0, 0.5, 1, 0, 0.75, 0])
    assert index.value_names == (("i0", "i1", "i2"),)
    with refused("'own'", "too many"):
        chosen_to_resolve(feature_columns(given[0]), ["own"])


def test_principal_coordinates_have_the_distances(given):
    column = column_of(given[0], "vec")
    points = principal_coordinates(column, 20)
    there = np.array([value is not None for value in column.values])
    assert points.shape == (N, 3) and not points[~there].any()
    vectors = frame()[["s0", "s1", "s2"]].to_numpy()[there]
    expected = cdist(vectors, vectors) / column.span[1]
    np.testing.assert_allclose(cdist(points[there], points[there]), expected, atol=1e-9)
    assert principal_coordinates(column, 2).shape == (N, 2)


def test_scales_are_those_of_the_stimuli_that_were_fitted(given):
    stimuli, apart = given
    fitted = RidgeMLEM().fit(stimuli[:30], explicit.random_layer(frame())[:30])
    assert fitted.spans_["own"] == (0.0, apart[:30, :30].max())
    assert column_of(stimuli[30:], "own", fitted.spans_).span == fitted.spans_["own"]
