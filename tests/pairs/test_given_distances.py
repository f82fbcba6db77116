"""Features that are given by vectors or distances: columns and weights of the explicit pairs."""

import numpy as np
import pytest
from helpers import explicit
from helpers.inputs import refused
from scipy.spatial.distance import squareform

from mlem_core import RidgeMLEM, from_frame, with_rdm, with_vector
from mlem_core.pairs.columns import coding, feature_columns, resolved_columns
from mlem_core.pairs.pair_columns import PairColumns

GIVEN = 60


def frame():
    vectors = np.random.default_rng(5).integers(0, 4, (GIVEN, 3)).astype(float)
    named = {f"s{k}": vectors[:, k] for k in range(3)}
    sentences = [f"number {row}" for row in range(GIVEN)]
    return explicit.random_features(GIVEN).assign(sentence=sentences, **named)


@pytest.fixture(scope="module")
def given():
    """A vector with equal and missing values, and distances that no vector has."""
    table = frame()
    table.loc[[4, 9], "s1"] = np.nan
    apart = squareform(np.random.default_rng(6).random(GIVEN * (GIVEN - 1) // 2))
    return with_rdm(with_vector(from_frame(table, "made up"), "vec", "s*"), "own", apart), apart


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
def test_columns_are_those_of_the_explicit_pairs(given, missing):
    stimuli, apart = given
    columns = PairColumns.from_features(feature_columns(stimuli), missing)
    assert columns.kinds[-2:] == ("vector", "rdm")
    assert coding(columns.kinds[-1:], []) != coding(columns.kinds[:1], [])
    expected = expected_distances(apart, missing) ** 2
    np.testing.assert_allclose(columns.pair_values(*explicit.pairs(GIVEN)), expected, atol=1e-11)


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


def test_a_few_values_can_be_told_apart(given):
    table = from_frame(frame(), "made up").table.assign(
        item=[f"i{row % 3}" for row in range(GIVEN)]
    )
    apart = np.array([[0, 1, 2], [1, 0, 1.5], [2, 1.5, 0]])
    found = with_rdm(from_frame(table, "made up"), "own", apart, ["i0", "i1", "i2"])
    columns = PairColumns.from_features(resolved_columns(found.select(["own"]), ["own"]))
    np.testing.assert_allclose(columns.as_distance, np.array([0.5, 1, 0.75, 0, 0, 0]) ** 2)
    assert columns.value_names == (("i0", "i1", "i2"),)
    with refused("columns", "merge rare values"):
        PairColumns.from_features(resolved_columns(given[0], ["own"]))


def test_scales_are_those_of_the_stimuli_that_were_fitted(given):
    stimuli, apart = given
    fitted = RidgeMLEM().fit(stimuli[:30], explicit.random_layer(frame())[:30])
    assert fitted.spans_["own"] == (0.0, apart[:30, :30].max())
    assert column_of(stimuli[30:], "own", fitted.spans_).span == fitted.spans_["own"]
