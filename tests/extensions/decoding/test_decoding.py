"""Decoding: against ridge regression on signs and explicit selections of stimuli."""

import numpy as np
import pandas as pd
import pytest
from helpers import explicit

from mlem_core.extensions.decoding.computation import decoding

N = 150


@pytest.fixture(scope="module")
def written():
    """A layer in which "kind" and "length" are written, and "noise" is not."""
    rng = np.random.default_rng(1)
    features = explicit.random_features(N)[["kind", "length"]]
    features["noise"] = rng.choice(["a", "b"], N)
    layer = rng.standard_normal((N, 12)) * 0.2
    layer[:, 0] += 2.0 * (features["kind"] == "noun")
    layer[:, 1] += 2.0 * (features["kind"] == "verb")
    layer[:, 2] += features["length"].fillna(3.0)
    return features, layer.astype(np.float32), explicit.random_folds(N)


def test_decoding_equals_regression_on_signs(written):
    features, layer, folds = written
    table = decoding(features[["noise"]], {("net", 0): layer}, folds).table
    sign = np.where(features["noise"] == "a", 1.0, -1.0)
    for fold in range(5):
        train, test = folds != fold, folds == fold
        mean, sd = layer[train].mean(axis=0), layer[train].std(axis=0)
        x, new = (layer[train] - mean) / sd, (layer[test] - mean) / sd
        offset = sign[train].mean()
        weights = np.linalg.solve(x.T @ x + np.eye(12), x.T @ (sign[train] - offset))
        right = np.sign(new @ weights + offset) == sign[test]
        row = table[table["fold"] == fold].iloc[0]
        assert row["accuracy"] == pytest.approx(right.mean())
        most = max(("a", "b"), key=lambda level: (features["noise"][train] == level).sum())
        assert row["majority"] == pytest.approx((features["noise"][test] == most).mean())


def test_decoding_leaves_missing_values_out_and_says_what_it_skips(written):
    features, layer, folds = written
    part = features[["length"]].copy()
    part.loc[folds == 2, "length"] = np.nan
    table = decoding(part, {("net", 0): layer}, folds).table
    assert list(table["fold"]) == [0, 1, 3, 4]
    known = part["length"].notna().to_numpy()
    rest = part[known].reset_index(drop=True)
    same = decoding(rest, {("net", 0): layer[known]}, folds[known])
    pd.testing.assert_frame_equal(table, same.table)
    odd = {"size": np.arange(N, dtype=float), "same": "x", "few": np.arange(N) % 3.0}
    found = decoding(pd.DataFrame(odd), {("net", 0): layer}, folds)
    assert set(found.table["feature"]) == {"few"}
    assert "'size'" in found.notices[0] and "150 distinct values" in found.notices[0]
    assert "'same'" in found.notices[1]
