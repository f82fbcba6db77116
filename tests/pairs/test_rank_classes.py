"""Ranks by class of distance, tile by tile: within their bound of those of explicit pairs."""

from __future__ import annotations

import explicit
import numpy as np
import pytest
from hypothesis import given
from scipy.stats import rankdata, spearmanr

from mlem_core.base.errors import InputError
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.pairs import class_passes, distances, patterns, rank_classes
from mlem_core.pairs.build import PassOptions, pair_tables
from mlem_core.pairs.class_passes import class_map
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import Distance, squared_distances
from mlem_core.pairs.kernels.classes import classes_of
from mlem_core.pairs.patterns import PairIndex, left_out
from mlem_core.pairs.rank_store import PairRanks
from mlem_core.pairs.tables import BY_LAYER

N = 150
SUMS = ("rank_sums", "within_sums", "rank_squares", "within_squares")


def whole_distances(rng: np.random.Generator) -> np.ndarray:
    matrix = np.triu(rng.integers(0, 9, (N, N)), 1).astype(np.float64)
    return matrix + matrix.T


def layer_of(kind: str) -> tuple[np.ndarray, str]:
    """Representations, or distances, and which distance they are for."""
    rng = np.random.default_rng(0)
    layer = explicit.random_layer(explicit.random_features(N))
    if kind == "equal rows":
        layer[::3] = layer[1]
        layer[1::9] = layer[4]
    elif kind == "far apart":
        layer *= np.exp(8 * rng.standard_normal((N, 1))).astype(np.float32)
    elif kind == "all equal":
        layer[:] = 1.0
    elif kind == "few distances":
        return whole_distances(rng), "precomputed"
    elif kind == "precomputed":
        gaps = rng.random((N, N))
        return np.triu(gaps, 1) + np.triu(gaps, 1).T, "precomputed"
    elif kind in ("cosine", "correlation", "manhattan"):
        return layer, kind
    return layer, "euclidean"


KINDS = (
    "continuous",
    "equal rows",
    "far apart",
    "all equal",
    "few distances",
    "precomputed",
    "cosine",
    "correlation",
    "manhattan",
)


def index_of(missing: str = "ignore", folds: np.ndarray | None = None) -> PairIndex:
    columns = feature_columns(explicit.random_features(N))
    return PairIndex.build(columns, explicit.random_folds(N) if folds is None else folds, missing)


def in_classes(monkeypatch, n: int = 2**14) -> None:
    """So many classes, and more than one tile."""
    monkeypatch.setattr(class_passes, "CLASSES", n)
    monkeypatch.setattr(class_passes, "FEWEST", n)
    monkeypatch.setattr(class_passes, "TILE_ELEMENTS", 3000)
    monkeypatch.setattr(rank_classes, "TILE_ELEMENTS", 2000)


def tables_of(index, layer, distance, *, memory=1, kept=None, workers=None):
    options = PassOptions(memory=memory, keep_classes=kept and kept.__setitem__, workers=workers)
    return pair_tables(index, [lambda: layer], distance=distance, train_ranks=True, options=options)


@pytest.mark.parametrize("n_classes", [64, 2**14])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_within_the_bound_of_explicit_pairs(kind, n_classes, monkeypatch):
    in_classes(monkeypatch, n_classes)
    index, (layer, distance) = index_of(), layer_of(kind)
    bounds = {}

    def keep(position, found):
        bounds[position] = found.bound

    options = PassOptions(memory=1, keep_classes=keep)
    found = pair_tables(
        index, [lambda: layer], distance=distance, train_ranks=True, options=options
    )
    squared = squared_distances(layer, distance)
    bound, block = bounds[0], index.cell_block[index.cell]
    # Of a fold's 435 pairs, three in a class are off by 1.
    assert bound <= (0.2 if n_classes == 64 else 2 / 435)
    np.testing.assert_allclose(found.target_sums[0], np.bincount(index.cell, squared), atol=1e-12)
    for of in range(index.n_blocks):
        assert found.target_low[0, of] == pytest.approx(squared[block == of].min())
        assert found.target_high[0, of] == pytest.approx(squared[block == of].max())

    # What differs by rounding alone is tied.
    keys = squared.view(np.int64) + 2**12
    tied = keys - keys % 2**13

    def hold(sums: np.ndarray, squares: float, pairs: np.ndarray) -> None:
        n = int(pairs.sum())
        ranks = rankdata(tied[pairs])
        ranks -= (n + 1) / 2
        expected = np.bincount(index.cell[pairs], ranks, index.n_cells)
        counts = np.bincount(index.cell[pairs], minlength=index.n_cells)
        assert (np.abs(sums - expected) <= bound * n * counts + 1e-6).all()
        assert abs(squares - ranks @ ranks) <= 2 * bound * n * np.abs(ranks).sum() + 1e-6

    hold(found.rank_sums[0], found.rank_squares[0], np.ones(len(squared), dtype=bool))
    out, tested = left_out(index.n_folds, index.n_blocks), patterns.tested_blocks(index.n_folds)
    for fold in range(index.n_folds):
        inside = np.where(index.cell_block == tested[fold], found.within_sums[0], 0.0)
        hold(inside, found.within_squares[0, fold], block == tested[fold])
        train = found.training_ranks[0, fold]
        hold(train, found.train_squares[0, fold], ~out[fold, block])


@pytest.mark.parametrize("kind", ["all equal", "few distances"])
def test_classes_of_one_distance_are_exact(kind, monkeypatch):
    in_classes(monkeypatch)
    index, (layer, distance) = index_of(), layer_of(kind)
    kept = {0: None}
    found = tables_of(index, layer, distance, kept=kept)
    exact = tables_of(index, layer, distance, memory=2**40)
    assert kept[0].bound == 0.0
    for name in (*SUMS, "target_low", "target_high"):
        np.testing.assert_array_equal(getattr(found, name), getattr(exact, name), err_msg=name)
    np.testing.assert_array_equal(found.training_ranks, exact.training_ranks)
    np.testing.assert_array_equal(found.train_squares, exact.train_squares)


@pytest.mark.parametrize("missing", ["ignore", "level"])
@pytest.mark.parametrize("between", [False, True])
def test_missing_values_and_folds_over_both(missing, between, monkeypatch):
    in_classes(monkeypatch, 2**16)
    folds = explicit.random_folds(N, 4)
    if between:
        # Some stimuli stand between two folds.
        from mlem_core.data.folds import fold_pairs

        folds = np.where(np.arange(N) % 7 == 0, -1 - folds, folds)
        assert fold_pairs(folds).shape == (N, 2)
    index, layer = index_of(missing, folds), layer_of("continuous")[0]
    found, exact = (tables_of(index, layer, "euclidean", memory=m) for m in (1, 2**40))
    for name in (*SUMS, "target_sums", "target_low", "target_high"):
        a, b = getattr(found, name), getattr(exact, name)
        np.testing.assert_allclose(a, b, atol=2e-3 * np.abs(b).max(), err_msg=name)
    a, b = found.training_ranks, exact.training_ranks
    np.testing.assert_allclose(a, b, atol=2e-3 * np.abs(b).max())
    np.testing.assert_array_equal(found.counts, exact.counts)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("kind", ["continuous", "equal rows"])
def test_threads_change_nothing(kind, workers, monkeypatch):
    in_classes(monkeypatch)
    # All threads may count.
    monkeypatch.setattr(class_passes, "FEWEST", 2**10)
    index, (layer, distance) = index_of(), layer_of(kind)
    one, several = (
        tables_of(index, layer, distance, memory=2**17, workers=n) for n in (1, workers)
    )
    for name in BY_LAYER:
        np.testing.assert_array_equal(getattr(one, name), getattr(several, name), err_msg=name)
    np.testing.assert_array_equal(one.training_ranks, several.training_ranks)


@given(**explicit.CLASSES)
def test_a_lower_distance_has_no_higher_class(sample, values, n_classes, n_pairs):
    to = class_map(np.array(sample), n_classes, n_pairs)
    values = np.sort(np.concatenate((values, sample, [0.0, 1e-300, 1.0, 1e300])))
    found = np.empty(len(values), dtype=np.int64)
    classes_of(values.view(np.uint64), to, found)
    assert (np.diff(found) >= 0).all()
    assert found[0] >= 0
    assert found[-1] < len(to.alone)
    again = np.empty(1, dtype=np.int64)
    classes_of(np.array([-0.0]).view(np.uint64), to, again)
    assert again[0] == found[0]


def test_classes_hold_about_equally_many_pairs():
    rng = np.random.default_rng(1)
    every = np.concatenate((rng.chisquare(30, 400_000), 1e-6 * rng.random(40_000), [1e9] * 5000))
    to = class_map(rng.permutation(every)[:100_000], 2**12, len(every))
    found = np.empty(len(every), dtype=np.int64)
    classes_of(every.view(np.uint64), to, found)
    counts = np.bincount(found, minlength=len(to.alone))
    assert counts[~to.alone].max() < 12 * len(every) / len(to.alone)
    assert to.alone[found[-1]]


@pytest.mark.parametrize("reload", [False, True])
def test_rsa_is_that_of_scipy_within_the_bound(reload, monkeypatch):
    in_classes(monkeypatch, 2**16)
    monkeypatch.setattr(rank_classes, "RANKS", 9_000 if reload else 2**29)
    monkeypatch.setattr(rank_classes, "CHUNK", 97)
    index, features = index_of(), explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(3)]
    layers[1][::3] = layers[1][0]
    layers.append(np.ones((N, 2)))
    with PairRanks(4, index.design.n_pairs) as ranks:
        pair_tables(
            index,
            [lambda layer=layer: layer for layer in layers],
            options=PassOptions(memory=1, keep_classes=ranks.put_classes),
        )
        rsa, bound = ranks.rsa(), ranks.bound
    expected = spearmanr(np.stack([squared_distances(layer) for layer in layers[:3]], axis=1))
    assert 0 < bound <= 2 / 435
    np.testing.assert_allclose(rsa[:3, :3], expected.statistic, atol=14 * bound + 1e-6)
    np.testing.assert_array_equal(rsa[3], [0, 0, 0, 1])


def test_a_planted_metric_is_recovered(monkeypatch):
    in_classes(monkeypatch)
    features = explicit.random_features(N)[["kind", "frequency"]]
    layer = 0.3 * np.random.default_rng(0).standard_normal((N, 6))
    layer[:, 0] += 2.0 * (features["kind"] == "noun")
    index = PairIndex.build(feature_columns(features), explicit.random_folds(N))
    found, exact = (
        RidgeMLEM().cross_validate(tables_of(index, layer, "euclidean", memory=m))
        for m in (1, 2**40)
    )
    kind, frequency = found.weights[0].T
    assert (kind > 10 * frequency).all()
    np.testing.assert_allclose(found.weights, exact.weights, atol=1e-6)
    np.testing.assert_allclose(found.rho, exact.rho, atol=1e-3)
    assert found.rho.min() > 0.3


def test_a_distance_that_gives_all_pairs_at_once_is_told_what_it_needs(monkeypatch):
    whole = Distance("whole", condensed=lambda rows: np.ones(len(rows) * (len(rows) - 1) // 2))
    monkeypatch.setitem(distances.DISTANCES, "whole", whole)
    with pytest.raises(InputError, match=r"'whole' gives all 11,175 pairs of layer 0 at once"):
        tables_of(index_of(), layer_of("continuous")[0], "whole")


def test_a_matrix_of_distances_may_stay_in_its_file(tmp_path, monkeypatch):
    in_classes(monkeypatch)
    index, (matrix, distance) = index_of(), layer_of("precomputed")
    np.save(tmp_path / "gaps.npy", matrix)
    kept = np.load(tmp_path / "gaps.npy", mmap_mode="r")
    one, other = (tables_of(index, own, distance) for own in (matrix, kept))
    for name in BY_LAYER:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_a_layer_without_distances_is_left_out(monkeypatch):
    in_classes(monkeypatch)
    good, bad = layer_of("continuous")[0], layer_of("continuous")[0]
    bad[7, 2] = np.nan
    failed = {}
    options = PassOptions(memory=1, failed=failed.__setitem__)
    found = pair_tables(index_of(), [lambda: bad, lambda: good], options=options)
    assert found.n_layers == 1
    assert list(failed) == [0]
    assert "layer 0 holds a value that is not finite in row 8" in str(failed[0])
