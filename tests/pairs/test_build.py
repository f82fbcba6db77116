from __future__ import annotations

from dataclasses import fields, replace

import explicit
import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from mlem_core.base.errors import InputError
from mlem_core.pairs import tables_io
from mlem_core.pairs.build import pair_tables, tables_without_layers
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex, block_numbers
from mlem_core.pairs.tables import PairTables

N = 60


@pytest.fixture(scope="module", params=["ignore", "level"])
def case(request):
    features = explicit.random_features(N)
    folds = explicit.random_folds(N)
    layers = [explicit.random_layer(features, seed) for seed in range(2)]
    layers[1][7] = layers[1][8]
    index = PairIndex.build(feature_columns(features), folds, request.param)
    tables = pair_tables(index, [lambda layer=layer: layer for layer in layers], train_ranks=True)
    return features, folds, layers, index, tables, request.param


def pattern_of_pair(index):
    return index.pair_pattern


def test_patterns_are_the_feature_distances(case):
    features, _, _, index, tables, missing = case
    expected = explicit.feature_distances(features, missing)
    np.testing.assert_allclose(tables.patterns[pattern_of_pair(index)], expected, atol=1e-12)
    assert len(np.unique(tables.patterns, axis=0)) == len(tables.patterns)


def test_sums_are_those_of_the_explicit_pairs(case):
    _, folds, layers, index, tables, _ = case
    i, j = explicit.pairs(N)
    block = block_numbers(folds)[1][folds[i], folds[j]]
    key = block * index.n_patterns + pattern_of_pair(index)
    cell = tables.cell_block * index.n_patterns + tables.cell_pattern
    np.testing.assert_array_equal(np.unique(key), cell)
    at = np.searchsorted(cell, key)
    np.testing.assert_array_equal(tables.counts, np.bincount(at))
    for layer, rows in enumerate(layers):
        target = explicit.squared(rows)
        ranks = rankdata(target) - (len(target) + 1) / 2
        np.testing.assert_allclose(tables.target_sums[layer], np.bincount(at, target), rtol=1e-9)
        np.testing.assert_allclose(tables.rank_sums[layer], np.bincount(at, ranks), atol=1e-6)
        assert tables.rank_squares[layer] == pytest.approx(ranks @ ranks)
        for fold in range(5):
            inside = explicit.held_out(folds, fold)
            ranks = rankdata(target[inside]) - (inside.sum() + 1) / 2
            sums = np.bincount(at[inside], ranks, minlength=len(cell))
            own = tables.held_out(fold)
            np.testing.assert_allclose(tables.within_sums[layer, own], sums[own], atol=1e-6)
            assert tables.within_squares[layer, fold] == pytest.approx(ranks @ ranks)
            training = explicit.training(folds, fold)
            ranks = rankdata(target[training]) - (training.sum() + 1) / 2
            sums = np.bincount(at[training], ranks, minlength=len(cell))
            np.testing.assert_allclose(tables.training_ranks[layer, fold], sums, atol=1e-6)
            assert tables.train_squares[layer, fold] == pytest.approx(ranks @ ranks)
        for number in range(15):
            own = target[block == number]
            assert tables.target_low[layer, number] == pytest.approx(own.min(), abs=1e-12)
            assert tables.target_high[layer, number] == pytest.approx(own.max())


def test_without_layers_patterns_and_counts_are_the_same(case):
    *_, index, tables, _ = case
    found, expected = tables_without_layers(index), tables.of_layers([])
    assert found.n_layers == 0 and found.train_sums is None
    for field in fields(PairTables):
        if field.name not in ("levels", "train_sums", "train_squares"):
            np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))
    np.testing.assert_array_equal(found.patterns, expected.patterns)
    assert found.counts.sum() == N * (N - 1) / 2


def test_summing_features_out_equals_leaving_them_out(case):
    features, folds, layers, _, tables, missing = case
    keep = ["length", "gender"]
    fewer = PairIndex.build(feature_columns(features[keep]), folds, missing)
    expected = pair_tables(fewer, [lambda layer=layer: layer for layer in layers], train_ranks=True)
    found = tables.of_features(["gender", "length"])
    assert found.features == expected.features
    order, other = (np.lexsort(t.patterns.T) for t in (found, expected))
    np.testing.assert_allclose(found.patterns[order], expected.patterns[other], atol=1e-12)
    for name in ("counts", "target_sums", "rank_sums", "within_sums"):
        dense = [np.zeros((2, 15, len(t.patterns))) for t in (found, expected)]
        for array, t in zip(dense, (found, expected), strict=True):
            array[:, t.cell_block, t.cell_pattern] = getattr(t, name)
        np.testing.assert_allclose(dense[0][..., order], dense[1][..., other], atol=1e-6)
    for fold in range(5):
        dense = [np.zeros((2, 15, len(t.patterns))) for t in (found, expected)]
        for array, t in zip(dense, (found, expected), strict=True):
            array[:, t.cell_block, t.cell_pattern] = t.training_ranks[:, fold]
        np.testing.assert_allclose(dense[0][..., order], dense[1][..., other], atol=1e-6)


def test_tables_survive_the_disk(case, tmp_path):
    tables = case[4]
    tables_io.save(tables, tmp_path / "tables.npz")
    kept = tables_io.load(tmp_path / "tables.npz")
    assert kept.features == tables.features and kept.kinds == tables.kinds
    np.testing.assert_array_equal(kept.patterns, tables.patterns)
    np.testing.assert_array_equal(kept.within_sums, tables.within_sums)
    np.testing.assert_array_equal(kept.training_ranks, tables.training_ranks)
    plain = replace(tables, train_sums=None, train_squares=None)
    tables_io.save(plain, tmp_path / "plain.npz")
    assert tables_io.load(tmp_path / "plain.npz").train_sums is None
    assert plain.of_layers([1]).of_features(["gender"]).train_sums is None


def test_ranks_among_training_pairs_where_distances_are_tied():
    features = explicit.random_features(N)
    folds = explicit.random_folds(N)
    whole = np.random.default_rng(0).integers(0, 3, (N, 2)).astype(np.float64)
    index = PairIndex.build(feature_columns(features), folds)
    tables = pair_tables(index, [lambda: whole, lambda: np.ones((N, 2))], train_ranks=True)
    target = explicit.squared(whole).round(6)
    for fold in range(5):
        training = explicit.training(folds, fold)
        ranks = rankdata(target[training]) - (training.sum() + 1) / 2
        pattern = pattern_of_pair(index)[training]
        found = np.bincount(
            tables.cell_pattern, tables.training_ranks[0, fold], minlength=index.n_patterns
        )
        np.testing.assert_allclose(
            found, np.bincount(pattern, ranks, minlength=index.n_patterns), atol=1e-6
        )
        assert tables.train_squares[0, fold] == pytest.approx(ranks @ ranks)
    assert not tables.training_ranks[1].any() and not tables.train_squares[1].any()


def test_a_span_from_the_whole_set_is_not_refitted():
    features = pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": ["a", "b", "a"]})
    columns = feature_columns(features, {"x": (0.0, 10.0)})
    index = PairIndex.build(columns, np.zeros(3, dtype=np.int64))
    np.testing.assert_allclose(sorted(index.levels[0]), [0.0, 0.1, 0.2])


def test_many_patterns_are_binned_and_said():
    rng = np.random.default_rng(0)
    features = pd.DataFrame(
        {"a": rng.random(300), "b": rng.random(300), "c": rng.choice(["x", "y"], 300)}
    )
    exact = PairIndex.build(feature_columns(features), np.zeros(300, dtype=np.int64))
    assert not exact.notes and exact.n_patterns > 40_000
    binned = PairIndex.build(
        feature_columns(features), np.zeros(300, dtype=np.int64), max_patterns=2500
    )
    assert binned.n_patterns <= 2500
    assert len(binned.notes) == 2 and "'a'" in binned.notes[0]
    true, coarse = (
        np.stack([level[i.codes[:, f]] for f, level in enumerate(i.levels)], 1)[i.pair_pattern]
        for i in (exact, binned)
    )
    said = float(binned.notes[0].split("at most ")[1].split(" of")[0])
    assert 0 < np.abs(true - coarse)[:, 0].max() <= said * 1.01
    np.testing.assert_array_equal(true[:, 2], coarse[:, 2])


@pytest.mark.parametrize("n_features", [30, 70])
def test_many_nominal_features(n_features):
    rng = np.random.default_rng(0)
    features = pd.DataFrame({f"f{k}": rng.choice(["a", "b"], 40) for k in range(n_features)})
    index = PairIndex.build(feature_columns(features), np.zeros(40, dtype=np.int64))
    patterns = np.stack([level[index.codes[:, f]] for f, level in enumerate(index.levels)], 1)
    np.testing.assert_array_equal(
        patterns[index.pair_pattern], explicit.feature_distances(features)
    )


def test_more_patterns_than_can_be_kept(monkeypatch):
    monkeypatch.setattr("mlem_core.pairs.patterns.HARD_LIMIT", 100)
    features = pd.DataFrame(np.random.default_rng(0).choice(["a", "b"], (60, 12)))
    with pytest.raises(InputError, match="in more than 100 ways"):
        PairIndex.build(feature_columns(features), np.zeros(60, dtype=np.int64), max_patterns=50)


def test_a_layer_with_too_few_rows_is_named():
    features = explicit.random_features(10)
    index = PairIndex.build(feature_columns(features), np.zeros(10, dtype=np.int64))
    with pytest.raises(InputError, match="brain layer 3 has 9 rows, but there are 10 stimuli"):
        pair_tables(index, [lambda: np.ones((9, 2))], names=["brain layer 3"])


def test_unknown_feature_and_policy():
    features = explicit.random_features(10)
    columns = feature_columns(features)
    with pytest.raises(InputError, match="the choices are ignore, level"):
        PairIndex.build(columns, np.zeros(10, dtype=np.int64), "drop")
    index = PairIndex.build(columns, np.zeros(10, dtype=np.int64))
    tables = pair_tables(index, [lambda: np.eye(10)])
    with pytest.raises(InputError, match="did you mean gender"):
        tables.of_features(["gendre"])
    with pytest.raises(InputError, match="no feature is left"):
        tables.of_features([])
