"""The pass over the pairs in torch gives what the one in NumPy gives; a GPU, where there is one."""

import dataclasses

import explicit
import numpy as np
import pytest
import torch
from inputs import index_of, refused, sums_of

from mlem_core.pairs.build import PassOptions
from mlem_core.pairs.distances import metrics, squared_distances

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
N = 90


def layers_of(n):
    features = explicit.random_features(n)
    plain = explicit.random_layer(features, 0).astype(np.float32)
    # Equal rows, rows that differ little beside their norm, and many ties.
    equal = plain.copy()
    equal[7:20] = equal[6]
    far = plain + 1e4
    coarse = np.round(plain)
    coarse[:, 0] += 1.0
    return [plain, equal, far, coarse]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("metric", metrics())
def test_distances_are_those_of_numpy(metric, device):
    for rows in layers_of(N):
        found = squared_distances(rows, metric, device=device)
        np.testing.assert_allclose(found, squared_distances(rows, metric), rtol=1e-7, atol=1e-12)


# Three folds, and, as with folds over both sentences and items, stimuli between every two of them.
BETWEEN = np.random.default_rng(0).permutation(np.arange(N) % 6 - 3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("folds", [explicit.random_folds(N), BETWEEN])
def test_tables_are_those_of_numpy(device, folds):
    index = index_of(explicit.random_features(N), folds)
    ranks: dict[str, dict[int, np.ndarray]] = {"numpy": {}, "torch": {}}
    tables = {
        name: sums_of(
            index,
            layers_of(N),
            train_ranks=True,
            options=PassOptions(keep_ranks=ranks[name].__setitem__, device=own),
        )
        for name, own in (("numpy", None), ("torch", device))
    }
    for field in dataclasses.fields(tables["numpy"]):
        one, other = (getattr(tables[name], field.name) for name in ("numpy", "torch"))
        if isinstance(one, np.ndarray):
            scale = np.abs(one).max(initial=1.0)
            np.testing.assert_allclose(other, one, rtol=1e-7, atol=1e-9 * scale, err_msg=field.name)
    # Whole numbers, added in any order.
    for name in ("rank_sums", "within_sums", "training_ranks"):
        np.testing.assert_array_equal(*(getattr(own, name) for own in tables.values()), name)
    for layer, expected in ranks["numpy"].items():
        np.testing.assert_array_equal(ranks["torch"][layer], expected)


@pytest.mark.parametrize("device", DEVICES)
def test_errors_are_those_of_numpy(device):
    rows = layers_of(20)[0]
    rows[3, 1] = np.inf
    with refused("row 4"):
        squared_distances(rows, "euclidean", device=device)
    with refused("square"):
        squared_distances(np.zeros((20, 19)), "precomputed", device=device)
