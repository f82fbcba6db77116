"""Tile by tile in torch: classes, counts and sums are those of the CPU and of explicit pairs."""

from __future__ import annotations

import explicit
import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.stats import rankdata, spearmanr

from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.pairs import class_passes, torch_classes
from mlem_core.pairs.build import PassOptions, pair_tables
from mlem_core.pairs.class_passes import class_map
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.kernels.classes import classes_of
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.rank_store import PairRanks
from mlem_core.pairs.tables import BY_LAYER
from mlem_core.pairs.torch_classes import TorchMap

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
N = 140
WHOLE = ("rank_sums", "within_sums", "rank_squares", "within_squares")
METRICS = ("euclidean", "cosine", "correlation", "manhattan", "precomputed")
BETWEEN = np.where(np.arange(N) % 7 == 0, -1 - np.arange(N) % 5, explicit.random_folds(N))


def layer_of(metric: str, dtype: type = np.float32) -> np.ndarray:
    """Rows of which several are equal, or whole distances, of which most are."""
    if metric == "precomputed":
        gaps = np.triu(np.random.default_rng(0).integers(1, 40, (N, N)), 1).astype(dtype)
        return gaps + gaps.T
    layer = explicit.random_layer(explicit.random_features(N)).astype(dtype)
    layer[::9] = layer[1]
    layer[4:8] = layer[3]
    return layer


def index_of(missing: str = "ignore", folds: np.ndarray | None = None) -> PairIndex:
    columns = feature_columns(explicit.random_features(N))
    return PairIndex.build(columns, explicit.random_folds(N) if folds is None else folds, missing)


@pytest.fixture(autouse=True)
def few_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And more than one tile, of the rows and of the stimuli of a band, whatever the memory."""
    monkeypatch.setattr(class_passes, "CLASSES", 2**12)
    monkeypatch.setattr(class_passes, "FEWEST", 2**12)
    monkeypatch.setattr(torch_classes, "FEWEST_PAIRS", 2100)


def tables_of(index, layer, metric, device, *, kept=None):
    options = PassOptions(memory=1, keep_classes=kept and kept.__setitem__, device=device)
    return pair_tables(index, [lambda: layer], distance=metric, train_ranks=True, options=options)


def hold(found, expected, rtol=0.0) -> None:
    for name in BY_LAYER:
        close = name not in WHOLE
        a, b = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(
            a, b, rtol=1e-10 if close else rtol, atol=1e-12 * close, err_msg=name
        )
    np.testing.assert_allclose(found.training_ranks, expected.training_ranks, rtol=rtol)
    np.testing.assert_allclose(found.train_squares, expected.train_squares, rtol=rtol)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", METRICS)
def test_sums_are_those_of_the_cpu(metric, dtype, device):
    index, layer = index_of(), layer_of(metric, dtype)
    ours, theirs = {0: None}, {0: None}
    found = tables_of(index, layer, metric, device, kept=ours)
    hold(found, tables_of(index, layer, metric, None, kept=theirs))
    assert ours[0].bound == theirs[0].bound
    np.testing.assert_array_equal(ours[0].ranks, theirs[0].ranks)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("missing", ["ignore", "level"])
@pytest.mark.parametrize("folds", [explicit.random_folds(N, 3), BETWEEN])
@pytest.mark.parametrize("looked_up", [0, 2**24])
def test_missing_values_folds_over_both_and_many_types(
    looked_up, folds, missing, device, monkeypatch
):
    monkeypatch.setattr(torch_classes, "TYPE_PAIRS", looked_up)
    index, layer = index_of(missing, folds), layer_of("euclidean")
    hold(tables_of(index, layer, "euclidean", device), tables_of(index, layer, "euclidean", None))


@pytest.mark.parametrize("device", DEVICES)
def test_sums_are_within_the_bound_of_explicit_pairs(device):
    index, layer, kept = index_of(), layer_of("euclidean"), {0: None}
    found = tables_of(index, layer, "euclidean", device, kept=kept)
    squared = squared_distances(layer)
    # What differs by rounding alone is tied.
    ranks = rankdata((squared.view(np.int64) + 2**12) >> 13)
    ranks -= (len(ranks) + 1) / 2
    off, counts = kept[0].bound * len(ranks), np.bincount(index.cell)
    assert 0 < kept[0].bound < 0.01
    assert (found.rank_sums[0] <= np.bincount(index.cell, ranks) + off * counts + 1e-6).all()
    assert (found.rank_sums[0] >= np.bincount(index.cell, ranks) - off * counts - 1e-6).all()
    np.testing.assert_allclose(found.target_sums[0], np.bincount(index.cell, squared), rtol=1e-10)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pairs", [2**12, 2**24])
def test_tiles_and_their_number_change_nothing(pairs, device, monkeypatch):
    index, layer = index_of(), layer_of("euclidean")
    expected = tables_of(index, layer, "euclidean", device)
    monkeypatch.setattr(torch_classes, "FEWEST_PAIRS", pairs)
    hold(tables_of(index, layer, "euclidean", device), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_all_equal(device):
    index, layer, kept = index_of(), np.ones((N, 3), dtype=np.float32), {0: None}
    found = tables_of(index, layer, "euclidean", device, kept=kept)
    assert kept[0].bound == 0.0
    for name in ("rank_sums", "rank_squares", "within_sums", "target_sums"):
        assert not getattr(found, name).any()


@given(**explicit.CLASSES)
def test_classes_are_those_of_the_cpu(sample, values, n_classes, n_pairs):
    to = class_map(np.array(sample), n_classes, n_pairs)
    values = np.concatenate((values, sample, [0.0, -0.0, 1e-300, 1.0, 1e300]))
    expected = np.empty(len(values), dtype=np.int64)
    classes_of(values.view(np.uint64), to, expected)
    for device in DEVICES:
        there = torch.from_numpy(values).to(device)
        found = torch_classes.classes_of(there, TorchMap.of(to, device))
        np.testing.assert_array_equal(found.cpu().numpy(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_rsa_is_that_of_scipy_within_the_bound(device, monkeypatch):
    monkeypatch.setattr(class_passes, "CLASSES", 2**16)
    features, index = explicit.random_features(N), index_of()
    layers = [explicit.random_layer(features, seed) for seed in range(3)]
    with PairRanks(3, index.design.n_pairs) as ranks:
        pair_tables(
            index,
            [lambda layer=layer: layer for layer in layers],
            options=PassOptions(memory=1, keep_classes=ranks.put_classes, device=device),
        )
        rsa, bound = ranks.rsa(), ranks.bound
    expected = spearmanr(np.stack([squared_distances(layer) for layer in layers], axis=1))
    np.testing.assert_allclose(rsa, expected.statistic, atol=14 * bound + 1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_a_planted_feature_is_found(device):
    features = explicit.random_features(N)[["kind", "frequency"]]
    layer = 0.3 * np.random.default_rng(0).standard_normal((N, 6))
    layer[:, 0] += 2.0 * (features["kind"] == "noun")
    index = PairIndex.build(feature_columns(features), explicit.random_folds(N))
    found = RidgeMLEM().cross_validate(tables_of(index, layer, "euclidean", device))
    kind, frequency = found.weights[0].T
    assert (kind > 5 * frequency).all() and found.rho.min() > 0.3
