"""Two methods on a layer with noise: the rows are those of fits of explicit noisy layers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, probing

from mlem_core.analysis import methods
from mlem_core.analysis.run import run
from mlem_core.base.errors import InputError
from mlem_core.robustness import noise
from mlem_core.storage.store import Store

FEATURES = ("part_of_speech", "tense", "word_position")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("noise")


@pytest.fixture(scope="module")
def layer():
    codes = probing(40)["part_of_speech"].astype("category").cat.codes.to_numpy()
    rng = np.random.default_rng(0)
    return np.eye(codes.max() + 1)[codes] + 0.2 * rng.standard_normal((len(codes), codes.max() + 1))


@pytest.fixture(scope="module")
def analysis(folder, layer):
    layers = {"model": {0: np.roll(layer, 3, axis=0), 1: layer}}
    spec = in_files(folder, probing(40), layers, folds=3, features=FEATURES)
    return run(spec, Store(folder / "cache"))


@pytest.mark.parametrize("interactions", [False, True])
def test_the_rows_are_those_of_explicit_noisy_layers(
    analysis, folder, layer, interactions, monkeypatch, tmp_path
):
    monkeypatch.setattr(noise, "LEVELS", (0.0, 1.5))
    store, selection = Store(folder / "cache"), analysis.select(interactions=interactions)
    assert noise.find(analysis, store, selection, ("model", 1)) is None
    seen = []
    found = noise.make(analysis, store, selection, ("model", 1), seen.append)
    assert (seen[-1].done, seen[-1].total) == (2, 2)
    added = np.random.default_rng(analysis.spec.seed).standard_normal(layer.shape)
    noisy = layer + 1.5 * added * layer.std(axis=0)
    again = run(
        in_files(tmp_path, probing(40), {"m": {0: layer, 1: noisy}}, folds=3, features=FEATURES),
        Store(tmp_path / "cache"),
    )
    expected = methods.agreement(
        *(again.results(estimator=name, interactions=interactions) for name in methods.COMPARED)
    )
    pd.testing.assert_frame_equal(
        found[["fold", "frobenius", "tau"]], expected[["fold", "frobenius", "tau"]], atol=1e-6
    )
    assert list(found["noise"]) == [0.0] * 3 + [1.5] * 3
    kept = noise.find(analysis, store, selection, ("model", 1))
    pd.testing.assert_frame_equal(kept, found)
    assert noise.find(analysis, store, selection, ("model", 0)) is None


def test_distances_and_resolved_features_take_no_noise(analysis, folder, layer, tmp_path):
    apart = np.linalg.norm(layer[:, None] - layer, axis=-1)
    given = run(
        in_files(
            tmp_path, probing(40), {"m": {0: apart}}, folds=3, features=FEATURES,
            precomputed=("m",),
        ),
        Store(tmp_path / "cache"),
    )  # fmt: skip
    assert not noise.can_be_made(given, given.select(), ("m", 0))
    with pytest.raises(InputError, match="noise cannot be added to m layer 0: it needs units"):
        noise.make(given, Store(tmp_path / "cache"), given.select(), ("m", 0))
    with pytest.raises(InputError):
        noise.make(analysis, Store(folder / "cache"), analysis.select(), ("model", 7))
