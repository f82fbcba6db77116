"""Ranks by class of distance, tile by tile, in NumPy and torch: near those of explicit pairs."""

import explicit
import numpy as np
import pytest
import torch
from hypothesis import given
from inputs import index_of, sums_of
from scipy.stats import rankdata, spearmanr

from mlem_core.data.folds import fold_pairs
from mlem_core.pairs import class_passes, patterns, rank_classes, torch_classes
from mlem_core.pairs.build import PassOptions
from mlem_core.pairs.class_passes import class_map
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.kernels.classes import classes_of
from mlem_core.pairs.patterns import left_out
from mlem_core.pairs.rank_store import PairRanks
from mlem_core.pairs.tables import BY_LAYER
from mlem_core.pairs.torch_classes import TorchMap

N = 146  # ten bands: of an odd number the counts come out right even if some are lost
SUMS = ("rank_sums", "within_sums", "rank_squares", "within_squares")
GPU = ["cuda"] if torch.cuda.is_available() else []
TORCH = ["cpu", *GPU]
DEVICES = [None, *TORCH]
EXACT = 2**40  # so much memory that the ranks of pairs fit
KINDS = ("continuous", "equal rows", "far apart", "all equal", "few distances", "precomputed")
KINDS += ("cosine", "correlation", "manhattan")


def layer_of(kind, dtype=np.float32):
    """Representations, or distances, and which distance they are for."""
    rng = np.random.default_rng(0)
    layer = explicit.random_layer(explicit.random_features(N)).astype(dtype)
    if kind in ("few distances", "precomputed"):
        few = kind == "few distances"
        gaps = np.triu(rng.integers(0, 9, (N, N)) if few else rng.random((N, N)), 1).astype(dtype)
        return gaps + gaps.T, "precomputed"
    if kind == "equal rows":
        layer[::3] = layer[1]
        layer[1::9] = layer[4]
    elif kind == "far apart":
        layer *= np.exp(8 * rng.standard_normal((N, 1))).astype(dtype)
    elif kind == "all equal":
        layer[:] = 1.0
    return layer, kind if kind in ("cosine", "correlation", "manhattan") else "euclidean"


def index_with(missing="ignore", n_folds=5, between=False):
    """The index of pairs; some stimuli may stand between two folds."""
    folds = explicit.random_folds(N, n_folds)
    if between:
        folds = np.where(np.arange(N) % 7 == 0, -1 - folds, folds)
        assert fold_pairs(folds).shape == (N, 2)
    return index_of(explicit.random_features(N), folds, missing=missing)


def in_classes(monkeypatch, n=2**14):
    """So many classes, and more than one tile, of the rows and of the stimuli of a band."""
    monkeypatch.setattr(class_passes, "CLASSES", n)
    monkeypatch.setattr(class_passes, "FEWEST", n)
    monkeypatch.setattr(class_passes, "TILE_ELEMENTS", 3000)
    monkeypatch.setattr(rank_classes, "TILE_ELEMENTS", 2000)
    monkeypatch.setattr(torch_classes, "FEWEST_PAIRS", 2100)


def tables_of(index, layer, distance="euclidean", memory=1, **more):
    """Tables of one layer, and its classes where there are any."""
    kept = {}
    options = PassOptions(memory=memory, keep_classes=kept.__setitem__, **more)
    tables = sums_of(index, [layer], distance=distance, train_ranks=True, options=options)
    return tables, kept


def hold(found, expected, names=BY_LAYER):
    """The same numbers; sums of distances to the last bits."""
    for name in (*names, "training_ranks", "train_squares"):
        rtol, atol = (1e-10, 1e-12) if name.startswith("target") else (0.0, 0.0)
        both = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(*both, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_classes", [64, 2**14])
@pytest.mark.parametrize(
    ("kind", "missing", "between"),
    [
        *((kind, "ignore", False) for kind in KINDS),
        ("continuous", "level", False),
        ("continuous", "level", True),
        ("equal rows", "ignore", True),
    ],
)
def test_sums_are_within_the_bound_of_explicit_pairs(
    kind, missing, between, n_classes, device, monkeypatch
):
    in_classes(monkeypatch, n_classes)
    index, (layer, distance) = index_with(missing, 5, between), layer_of(kind)
    found, kept = tables_of(index, layer, distance, device=device)
    squared = squared_distances(layer, distance)
    bound, block = kept[0].bound, index.cell_block[index.cell]
    out, tested = left_out(index.n_folds, index.n_blocks), patterns.tested_blocks(index.n_folds)
    fewest = min((block == of).sum() for of in tested)
    # Of a fold's pairs, three in a class are off by 1.
    assert bound <= (0.3 if n_classes == 64 else 2 / fewest)
    expected = np.bincount(index.cell, squared)
    np.testing.assert_allclose(found.target_sums[0], expected, rtol=1e-7, atol=1e-12)
    for of in np.unique(block):
        assert found.target_low[0, of] == pytest.approx(squared[block == of].min())
        assert found.target_high[0, of] == pytest.approx(squared[block == of].max())

    # What differs by rounding alone is tied.
    keys = squared.view(np.int64) + 2**12
    tied = keys - keys % 2**13

    def hold_ranks(sums, squares, pairs):
        n = int(pairs.sum())
        ranks = rankdata(tied[pairs])
        ranks -= (n + 1) / 2
        expected = np.bincount(index.cell[pairs], ranks, index.n_cells)
        counts = np.bincount(index.cell[pairs], minlength=index.n_cells)
        assert (np.abs(sums - expected) <= bound * n * counts + 1e-6).all()
        assert abs(squares - ranks @ ranks) <= 2 * bound * n * np.abs(ranks).sum() + 1e-6

    hold_ranks(found.rank_sums[0], found.rank_squares[0], np.ones(len(squared), dtype=bool))
    for fold in range(index.n_folds):
        inside = np.where(index.cell_block == tested[fold], found.within_sums[0], 0.0)
        hold_ranks(inside, found.within_squares[0, fold], block == tested[fold])
        train = found.training_ranks[0, fold]
        hold_ranks(train, found.train_squares[0, fold], ~out[fold, block])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["all equal", "few distances"])
def test_classes_of_one_distance_are_exact(kind, device, monkeypatch):
    in_classes(monkeypatch)
    index, (layer, distance) = index_with(), layer_of(kind)
    found, kept = tables_of(index, layer, distance, device=device)
    exact, none = tables_of(index, layer, distance, memory=EXACT)
    assert kept[0].bound == 0.0 and not none
    hold(found, exact, (*SUMS, "target_low", "target_high"))
    assert kind != "all equal" or (not found.rank_sums.any() and not found.target_sums.any())


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("kind", ["continuous", "equal rows"])
def test_threads_change_nothing(kind, workers, monkeypatch):
    in_classes(monkeypatch)
    # All threads may count.
    monkeypatch.setattr(class_passes, "FEWEST", 2**10)
    index, (layer, _) = index_with(), layer_of(kind)
    one, several = (
        tables_of(index, layer, memory=2**17, workers=n)[0] for n in (1, workers)
    )  # fmt: skip
    for name in (*BY_LAYER, "training_ranks"):
        np.testing.assert_array_equal(getattr(one, name), getattr(several, name), err_msg=name)


@pytest.mark.parametrize("device", TORCH)
@pytest.mark.parametrize("looked_up", [0, 2**24])
@pytest.mark.parametrize(
    ("kind", "dtype", "missing", "between"),
    [
        ("equal rows", np.float32, "ignore", False),
        ("equal rows", np.float32, "level", True),
        ("equal rows", np.float64, "ignore", True),
        ("few distances", np.float32, "level", False),
        ("cosine", np.float64, "ignore", False),
        ("manhattan", np.float32, "ignore", False),
    ],
)
def test_sums_in_torch_are_those_of_numpy_in_tiles_of_any_size(
    kind, dtype, missing, between, looked_up, device, monkeypatch
):
    in_classes(monkeypatch, 2**12)
    monkeypatch.setattr(torch_classes, "TYPE_PAIRS", looked_up)
    index, (layer, metric) = index_with(missing, 3, between), layer_of(kind, dtype)
    expected, theirs = tables_of(index, layer, metric)
    for pairs in (2100, 2**12, 2**24):
        monkeypatch.setattr(torch_classes, "FEWEST_PAIRS", pairs)
        found, ours = tables_of(index, layer, metric, device=device)
        hold(found, expected)
        assert ours[0].bound == theirs[0].bound
        np.testing.assert_array_equal(ours[0].ranks, theirs[0].ranks)


@given(**explicit.CLASSES)
def test_a_lower_distance_has_no_higher_class_in_numpy_and_torch(
    sample, values, n_classes, n_pairs
):
    to = class_map(np.array(sample), n_classes, n_pairs)
    values = np.sort(np.concatenate((values, sample, [0.0, -0.0, 1e-300, 1.0, 1e300])))
    found = np.empty(len(values), dtype=np.int64)
    classes_of(values.view(np.uint64), to, found)
    assert (np.diff(found) >= 0).all() and len(set(found[values == 0])) == 1
    assert found[0] >= 0 and found[-1] < len(to.alone)
    for device in TORCH:
        there = torch.from_numpy(values).to(device)
        own = torch_classes.classes_of(there, TorchMap.of(to, device))
        np.testing.assert_array_equal(own.cpu().numpy(), found)


@pytest.mark.parametrize(("device", "reload"), [*((d, False) for d in DEVICES), (None, True)])
def test_rsa_is_that_of_scipy_within_the_bound(reload, device, monkeypatch):
    in_classes(monkeypatch, 2**16)
    monkeypatch.setattr(rank_classes, "RANKS", 9_000 if reload else 2**29)
    monkeypatch.setattr(rank_classes, "CHUNK", 97)
    index, features = index_with(), explicit.random_features(N)
    layers = [explicit.random_layer(features, seed) for seed in range(3)]
    layers[1][::3] = layers[1][0]
    layers.append(np.ones((N, 2)))
    with PairRanks(4, index.design.n_pairs) as ranks:
        options = PassOptions(memory=1, keep_classes=ranks.put_classes, device=device)
        sums_of(index, layers, options=options)
        rsa, bound = ranks.rsa(), ranks.bound
    expected = spearmanr(np.stack([squared_distances(layer) for layer in layers[:3]], axis=1))
    assert 0 < bound <= 2 / 378
    np.testing.assert_allclose(rsa[:3, :3], expected.statistic, atol=14 * bound + 1e-6)
    np.testing.assert_array_equal(rsa[3], [0, 0, 0, 1])


def test_a_layer_without_distances_is_left_out(monkeypatch):
    in_classes(monkeypatch)
    good, bad = layer_of("continuous")[0], layer_of("continuous")[0]
    bad[7, 2] = np.nan
    failed = {}
    options = PassOptions(memory=1, failed=failed.__setitem__)
    found = sums_of(index_with(), [bad, good], options=options)
    assert found.n_layers == 1 and list(failed) == [0]
    assert "layer 0" in str(failed[0]) and "row 8" in str(failed[0])
