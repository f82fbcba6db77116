from dataclasses import fields, replace

import explicit
import numpy as np
import pytest
from inputs import refused, tables_of

from mlem_core.pairs import tables_io
from mlem_core.pairs.tables import PairTables
from mlem_core.pairs.tables_io import pack, unpack

N = 90


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(1)
    layers = [rng.standard_normal((N, 6)), rng.integers(0, 3, (N, 2)).astype(float)]
    features, folds = explicit.random_features(N), explicit.random_folds(N)
    # Some stimuli stand between two folds.
    folds = np.where(np.arange(N) % 7 == 0, -1 - folds, folds)
    return tables_of(features, layers, folds, train_ranks=True)


def test_numbers_of_every_size_come_back():
    rng = np.random.default_rng(0)
    for bits in (0, 1, 7, 8, 15, 16, 31, 32, 47, 62):
        numbers = rng.integers(-(2**bits), 2**bits, 200)
        np.testing.assert_array_equal(unpack(pack(numbers)), numbers)
    ends = np.array([-(2**63), 2**63 - 1, 0, -1])
    np.testing.assert_array_equal(unpack(pack(ends)), ends)
    assert pack(np.arange(-128, 128)).shape == (1, 256)
    assert unpack(pack(np.empty(0, dtype=np.int64))).shape == (0,)


@pytest.mark.parametrize("compress", [False, True])
def test_ranks_come_back_to_the_last_bit_and_targets_as_closely_as_they_are_known(
    tables, tmp_path, compress
):
    tables_io.save_pair_tables(tables, tmp_path / "tables.npz", compress=compress)
    kept = tables_io.load_pair_tables(tmp_path / "tables.npz")
    for field in fields(PairTables):
        one, other = getattr(kept, field.name), getattr(tables, field.name)
        if field.name not in ("levels", "target_sums", "train_sums"):
            np.testing.assert_array_equal(one, other, err_msg=field.name)
            assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
    np.testing.assert_array_equal(kept.training_ranks, tables.training_ranks)
    np.testing.assert_array_equal(kept.patterns, tables.patterns)
    np.testing.assert_allclose(kept.target_sums, tables.target_sums, rtol=1e-11, atol=0)
    assert tables.within_sums.any() and tables.training_ranks.any()
    tables_io.save_pair_tables(kept, tmp_path / "again.npz", compress=compress)
    again, once = ((tmp_path / name).read_bytes() for name in ("again.npz", "tables.npz"))
    assert again == once


def test_ranks_of_training_pairs_are_read_when_they_are_asked_for_and_stay(tables, tmp_path):
    tables_io.save_pair_tables(tables, tmp_path / "tables.npz")
    kept = tables_io.load_pair_tables(tmp_path / "tables.npz")
    (tmp_path / "tables.npz").unlink()
    assert kept.training_ranks is kept.training_ranks
    fewer = kept.of_layers([1]).of_features(["gender"])
    assert fewer.training_ranks.shape == (1, 5, len(fewer.counts))


@pytest.mark.parametrize("compress", [False, True])
def test_a_damaged_file_is_a_plain_error(tables, tmp_path, compress):
    path = tmp_path / "tables.npz"
    tables_io.save_pair_tables(tables, path, compress=compress)
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"no table", data[:300] + b"x" * 99 + data[399:]):
        path.write_bytes(damaged)
        with pytest.raises((ValueError, KeyError, OSError)):
            tables_io.load_pair_tables(path)
    path.write_bytes(data)
    with np.load(path) as kept:
        arrays = dict(kept)
    np.savez(path, **{name: array for name, array in arrays.items() if name != "train_03"})
    with refused("run it again"):
        _ = tables_io.load_pair_tables(path).training_ranks


def test_tables_without_ranks_among_training_pairs_have_none_on_the_disk(tables, tmp_path):
    plain = replace(tables, train_sums=None, train_squares=None)
    tables_io.save_pair_tables(plain, tmp_path / "plain.npz")
    assert tables_io.load_pair_tables(tmp_path / "plain.npz").train_sums is None
    assert plain.of_layers([1]).of_features(["gender"]).train_sums is None


def test_sums_that_are_no_ranks_are_not_written(tables, tmp_path):
    with pytest.raises(ValueError, match="half-integers"):
        tables_io.save_pair_tables(
            replace(tables, rank_sums=tables.rank_sums + 0.1), tmp_path / "tables.npz"
        )
