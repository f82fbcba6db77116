from __future__ import annotations

from dataclasses import replace

import explicit
import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist, squareform
from scipy.stats import spearmanr

from mlem_core.base.errors import InputError
from mlem_core.data.given import with_rdm, with_vector
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.estimators.soft_rank import FeatureDistances
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import (
    chosen_to_resolve,
    coding,
    feature_columns,
    principal_coordinates,
)
from mlem_core.pairs.patterns import PairIndex

N = 60


def frame(n=N):
    features = explicit.random_features(n)
    rng = np.random.default_rng(5)
    vectors = rng.integers(0, 4, (n, 3)).astype(float)
    named = {f"s{k}": vectors[:, k] for k in range(3)}
    return features.assign(sentence=[f"number {row}" for row in range(n)], **named)


def stimuli(n=N):
    return from_frame(frame(n), "made up")


def given(n=N):
    """A vector with equal and missing values, and distances that no vector has."""
    table = frame(n)
    table.loc[[4, 9], "s1"] = np.nan
    rng = np.random.default_rng(6)
    apart = squareform(rng.random(n * (n - 1) // 2))
    return with_rdm(with_vector(from_frame(table, "made up"), "vec", "s*"), "own", apart), apart


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
def test_patterns_and_sums_are_those_of_the_explicit_pairs(missing):
    found, apart = given()
    folds = explicit.random_folds(N)
    layer = explicit.random_layer(frame())
    index = PairIndex.build(feature_columns(found), folds, missing)
    assert index.kinds[-2:] == ("vector", "rdm") and not index.notes
    expected = expected_distances(apart, missing)
    np.testing.assert_allclose(index.patterns[index.pair_pattern], expected, atol=1e-11)
    tables = pair_tables(index, [lambda: layer])
    sums = np.bincount(index.cell, explicit.squared(layer), index.n_cells)
    np.testing.assert_allclose(tables.target_sums[0], sums, rtol=1e-9)
    i, j = explicit.pairs(N)
    other = FeatureDistances(feature_columns(found), missing).of(i, j)
    np.testing.assert_allclose(other, expected, atol=1e-11)


@pytest.mark.parametrize("interactions", [False, True])
def test_weights_are_those_of_ridge_on_the_explicit_pairs(interactions):
    found, apart = given()
    layer = explicit.random_layer(frame())
    model = RidgeMLEM(alphas=[1.0], interactions=interactions).fit(found, layer)
    x = expected_distances(apart, "ignore")
    terms = list((x**2).T)
    if interactions:
        a, b = np.triu_indices(x.shape[1], 1)
        terms += list((2 * x[:, a] * x[:, b]).T)
    y = explicit.scaled(explicit.squared(layer))
    expected = explicit.ridge(np.array(terms).T, y, 1.0)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict(found), expected.predict(np.array(terms).T), atol=1e-6)


@pytest.mark.parametrize("what", ["vector", "rdm"])
@pytest.mark.parametrize("missing", ["ignore", "level"])
def test_one_dimension_is_the_ordered_column(what, missing):
    table = frame()
    table["freely"] = np.random.default_rng(7).lognormal(size=N)
    plain = from_frame(table, "made up").select(["kind", "freely"])
    if what == "vector":
        other = with_vector(plain, "same", ["freely"])
    else:
        values = plain.values("freely")
        other = with_rdm(plain.select(["kind"]), "same", np.abs(values[:, None] - values))
    folds, layer = explicit.random_folds(N), explicit.random_layer(table)
    tables = [
        pair_tables(PairIndex.build(feature_columns(one), folds, missing), [lambda: layer])
        for one in (plain, other)
    ]
    np.testing.assert_allclose(tables[0].patterns, tables[1].patterns, atol=1e-9)
    np.testing.assert_allclose(tables[0].rank_sums, tables[1].rank_sums, atol=1e-9)
    fits = [RidgeMLEM(missing=missing).fit(one, layer) for one in (plain, other)]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-9)
    assert fits[0].score(plain, layer) == pytest.approx(fits[1].score(other, layer), abs=1e-9)


def test_distances_that_drive_a_layer_are_recovered_in_stimuli_that_were_not_seen():
    rng = np.random.default_rng(8)
    hidden = rng.standard_normal((200, 4))
    # Ranks of the distances: an RDM that is no distance of vectors.
    apart = cdist(hidden, hidden) ** 1.5
    table = pd.DataFrame(
        {
            "sentence": [f"number {row}" for row in range(200)],
            "noise": rng.choice(["a", "b"], 200),
            "other": rng.random(200),
        }
    )
    found = with_rdm(from_frame(table, "made up"), "own", apart)
    layer = hidden @ rng.standard_normal((4, 30)) + 0.1 * rng.standard_normal((200, 30))
    fitted = RidgeMLEM().fit(found[:150], layer[:150])
    weights = dict(zip(fitted.get_feature_names_out(), fitted.coef_, strict=True))
    assert weights["own"] > 20 * max(weights["noise"], weights["other"])
    i, j = explicit.pairs(50)
    alone = spearmanr(apart[150:, 150:][i, j], explicit.squared(layer[150:])).statistic
    assert fitted.score(found[150:], layer[150:]) == pytest.approx(alone, abs=0.02)
    noise = rng.standard_normal((200, 30))
    assert abs(RidgeMLEM().fit(found[:150], noise[:150]).score(found[150:], noise[150:])) < 0.15


def test_more_patterns_than_there_may_be_are_put_into_bins_and_said():
    found, apart = given()
    columns = feature_columns(found.select(["kind", "own"]))
    index = PairIndex.build(columns, np.zeros(N, dtype=np.int64), max_patterns=300)
    exact = (apart / apart.max())[explicit.pairs(N)]
    off = np.abs(index.patterns[index.pair_pattern][:, 1] - exact).max()
    assert index.n_patterns <= 300 and 0 < off <= 0.5 / 64 + 1e-9
    assert "'own' were put into bins, which moves each by at most 0.0078" in index.notes[0]


def test_a_few_values_can_be_told_apart():
    table = stimuli().table.assign(item=[f"i{row % 3}" for row in range(N)])
    apart = np.array([[0, 1, 2], [1, 0, 1.5], [2, 1.5, 0]])
    found = with_rdm(from_frame(table, "made up"), "own", apart, ["i0", "i1", "i2"])
    columns = feature_columns(found.select(["own"]), resolved=["own"])
    index = PairIndex.build(columns, np.zeros(N, dtype=np.int64))
    np.testing.assert_allclose(index.levels[0], [0, 0.5, 1, 0, 0.75, 0])
    assert index.value_names == (("i0", "i1", "i2"),)
    with pytest.raises(InputError, match="too many to resolve it by value"):
        chosen_to_resolve(feature_columns(given()[0]), ["own"])


def test_they_are_said_to_differ_by_how_much():
    assert coding(["nominal", "rdm"], []) == "whether and by how much they differ"


def test_principal_coordinates_have_the_distances():
    found, _ = given()
    column = next(one for one in feature_columns(found) if one.name == "vec")
    points = principal_coordinates(column, 20)
    there = np.array([value is not None for value in column.values])
    assert points.shape == (N, 3) and not points[~there].any()
    vectors = frame()[["s0", "s1", "s2"]].to_numpy()[there]
    expected = cdist(vectors, vectors) / column.span[1]
    np.testing.assert_allclose(cdist(points[there], points[there]), expected, atol=1e-9)
    assert principal_coordinates(column, 2).shape == (N, 2)


def test_scales_are_those_of_the_stimuli_that_were_fitted():
    found, apart = given()
    fitted = RidgeMLEM().fit(found[:30], explicit.random_layer(frame())[:30])
    assert fitted.spans_["own"] == (0.0, apart[:30, :30].max())
    column = next(one for one in feature_columns(found[30:], fitted.spans_) if one.name == "own")
    assert column.span == (0.0, apart[:30, :30].max()) and replace(column) == column
