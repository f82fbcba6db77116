"""Statistics of pairs as a file: what is loaded decides as what was saved."""

import zipfile

import numpy as np
import pytest
from helpers.explicit import random_features, random_folds, random_layer
from helpers.inputs import for_each

from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import fitted
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.statistics import ComparedPairs, pair_statistics
from mlem_core.pairs.statistics_file import load_statistics, save_statistics

N = 80


def statistics(*, budget=None, by_value=(), interactions=False, few=False, items=None):
    features = random_features(N)
    layers = [random_layer(features, seed) for seed in (1, 2)]
    features = features[["kind"]] if few else features
    folds = random_folds(N)
    pairs = ComparedPairs.from_features(
        feature_columns(features, resolved=by_value),
        folds,
        interactions=interactions,
        design=PairDesign.from_budget(folds, budget, items=items),
    )
    return pair_statistics(pairs, [lambda rows=rows: rows for rows in layers])


@for_each(
    "more",
    {},
    {"by_value": ("kind", "length")},
    {"interactions": True},
    {"few": True},
    {"budget": 1_500},
    {"budget": 1_500, "items": np.arange(N) % 30, "interactions": True},
)
def test_what_is_loaded_decides_as_what_was_saved(more, tmp_path):
    saved = statistics(**more)
    save_statistics(saved, tmp_path / "pairs.npz")
    loaded = load_statistics(tmp_path / "pairs.npz")
    assert loaded.columns.names == saved.columns.names
    assert loaded.tests.is_grouped == saved.tests.is_grouped == more.get("few", False)
    assert loaded.n_pairs == saved.n_pairs
    np.testing.assert_array_equal(loaded.moments.rsa, saved.moments.rsa)
    np.testing.assert_array_equal(decompose(loaded.moments).terms, decompose(saved.moments).terms)
    for got, expected in zip(fitted(loaded), fitted(saved), strict=True):
        if isinstance(got, np.ndarray):
            np.testing.assert_array_equal(got, expected)
            continue
        for name in vars(got):
            np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))


def test_ranks_of_single_pairs_take_four_bytes_at_most(tmp_path):
    saved = statistics()
    save_statistics(saved, tmp_path / "pairs.npz")
    with zipfile.ZipFile(tmp_path / "pairs.npz") as file:
        sizes = [entry.file_size for entry in file.infolist()]
    ranks = saved.tests.folds[0].rank_sums
    assert 128 + 4 * ranks.size in sizes or 128 + 2 * ranks.size in sizes


@for_each("share", 0.2, 0.5, 0.8)
def test_a_damaged_file_is_refused(share, tmp_path):
    path = tmp_path / "pairs.npz"
    save_statistics(statistics(few=True), path)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises((ValueError, OSError, LookupError)):
        load_statistics(path)
    damaged = bytearray(data)
    damaged[int(share * len(data))] ^= 0xFF
    path.write_bytes(bytes(damaged))
    with pytest.raises((ValueError, OSError, LookupError, TypeError)):
        load_statistics(path)
