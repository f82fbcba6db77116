from __future__ import annotations

import explicit
import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from mlem_core.analysis import baselines
from mlem_core.analysis.baselines import decoding, encoded_features, random_forest, univariate
from mlem_core.base.errors import InputError
from mlem_core.estimators.ridge import RidgeMLEM
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex

N = 150


@pytest.fixture(scope="module")
def planted():
    """A layer in which "kind" and "length" are written, and "noise" is not."""
    rng = np.random.default_rng(1)
    features = explicit.random_features(N)[["kind", "length"]]
    features["noise"] = rng.choice(["a", "b"], N)
    layer = rng.standard_normal((N, 12)) * 0.2
    layer[:, 0] += 2.0 * (features["kind"] == "noun")
    layer[:, 1] += 2.0 * (features["kind"] == "verb")
    layer[:, 2] += features["length"].fillna(3.0)
    return features, layer.astype(np.float32), explicit.random_folds(N)


def test_decoding_finds_what_is_written_and_nothing_else(planted):
    features, layer, folds = planted
    found = decoding(features, {("net", 4): layer}, folds)
    assert list(found.table.columns) == [
        "model", "layer", "fold", "feature", "accuracy", "majority"
    ]  # fmt: skip
    assert set(found.table["model"]) == {"net"} and set(found.table["layer"]) == {4}
    assert len(found.table) == 5 * 3
    mean = found.table.groupby("feature")[["accuracy", "majority"]].mean()
    assert mean.loc["kind", "accuracy"] > 0.95
    assert mean.loc["length", "accuracy"] > mean.loc["length", "majority"] + 0.15
    assert abs(mean.loc["noise", "accuracy"] - 0.5) < 0.12


def test_decoding_equals_regression_on_signs(planted):
    features, layer, folds = planted
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


def test_decoding_leaves_missing_values_out(planted):
    features, layer, folds = planted
    part = features[["length"]].copy()
    part.loc[folds == 2, "length"] = np.nan
    table = decoding(part, {("net", 0): layer}, folds).table
    assert list(table["fold"]) == [0, 1, 3, 4]
    known = part["length"].notna().to_numpy()
    same = decoding(part[known].reset_index(drop=True), {("net", 0): layer[known]}, folds[known])
    pd.testing.assert_frame_equal(table, same.table)


def test_decoding_does_not_see_copies_of_a_test_stimulus():
    # Labels at random, but shared by both words of a sentence, whose rows are alike.
    rng = np.random.default_rng(0)
    sentences = np.repeat(np.arange(60), 2)
    rows = rng.standard_normal((60, 80))[sentences]
    features = pd.DataFrame({"label": rng.choice(["a", "b"], 60)[sentences]})
    apart = decoding(features, {("net", 0): rows}, sentences % 5).table["accuracy"].mean()
    leaking = decoding(features, {("net", 0): rows}, np.arange(120) % 2).table["accuracy"].mean()
    assert leaking > 0.95 and apart < 0.65


def test_decoding_says_what_it_skips(planted):
    _, layer, folds = planted
    features = pd.DataFrame(
        {"size": np.arange(N, dtype=float), "same": "x", "few": np.arange(N) % 3.0}
    )
    found = decoding(features, {("net", 0): layer}, folds)
    assert set(found.table["feature"]) == {"few"}
    assert "'size'" in found.notices[0] and "150 distinct values" in found.notices[0]
    assert "'same'" in found.notices[1]


def test_decoding_takes_another_classifier(planted):
    features, layer, folds = planted
    found = decoding(
        features[["kind"]], {("net", 0): layer}, folds, classifier=LogisticRegression()
    )
    assert found.table["accuracy"].mean() > 0.95


def test_features_are_encoded_one_hot_and_scaled():
    features = pd.DataFrame({"kind": ["a", None, "b"], "size": [2.0, 6.0, np.nan]})
    inputs, owners = encoded_features(features)
    assert owners == ("kind", "kind", "size")
    np.testing.assert_array_equal(inputs, [[1, 0, 0], [0, 0, 1], [0, 1, -1]])


def test_forest_finds_the_planted_features(planted):
    features, layer, folds = planted
    table = random_forest(features, {("net", 1): layer}, folds, repeats=3, n_estimators=20)
    assert len(table) == 5 * 3
    mean = table.groupby("feature")["importance"].mean()
    assert mean["kind"] > 0.1 and mean["length"] > 0.1
    assert abs(mean["noise"]) < 0.03
    again = random_forest(features, {("net", 1): layer}, folds, repeats=3, n_estimators=20)
    pd.testing.assert_frame_equal(table, again)


def test_forest_importance_is_a_drop_of_the_distances_rho(planted):
    # One whole tree learns the mean of each combination of levels: no library's importance needed.
    features, layer, folds = planted
    features = features[["kind", "noise"]]
    table = random_forest(
        features, {("net", 0): layer}, folds, repeats=200, n_estimators=1, bootstrap=False
    )
    rng = np.random.default_rng(5)
    for fold in (0, 3):
        train, test = folds != fold, folds == fold
        means = pd.DataFrame(layer[train].astype(float)).groupby(
            [features[train]["kind"].to_numpy(), features[train]["noise"].to_numpy()]
        ).mean()  # fmt: skip
        own = features[test].reset_index(drop=True)

        def rho(frame, means=means, test=test):
            predicted = means.loc[list(zip(frame["kind"], frame["noise"], strict=True))].to_numpy()
            return spearmanr(pdist(predicted), pdist(layer[test])).statistic

        rows = table[(table["fold"] == fold) & (table["feature"] == "kind")].iloc[0]
        assert rows["rho"] == pytest.approx(rho(own), abs=1e-9)
        drops = []
        for _ in range(200):
            drops.append(rho(own) - rho(own.assign(kind=rng.permutation(own["kind"]))))
        error = np.std(drops) * np.sqrt(2 / 200)
        assert abs(rows["importance"] - np.mean(drops)) < 4 * error


def test_univariate_is_a_fit_for_each_unit_alone(planted, monkeypatch):
    features, layer, folds = planted
    layer = layer.copy()
    layer[:, 5] = 1.0
    monkeypatch.setattr(baselines, "UNITS_AT_ONCE", 5)
    table = univariate(features, {("net", 2): layer}, folds)
    assert list(table.columns) == ["model", "layer", "unit", "fold", "rho"]
    assert len(table) == 12 * 5
    mean = table.groupby("unit")["rho"].mean()
    assert set(mean.nlargest(3).index) == {0, 1, 2}
    assert mean[5] == 0.0 and abs(mean[[6, 7, 8, 9, 10, 11]]).max() < 0.1
    index = PairIndex.build(feature_columns(features), folds)
    gaps = np.abs(layer[:, 2].astype(float)[:, None] - layer[:, 2].astype(float))
    alone = RidgeMLEM().cross_validate(pair_tables(index, [lambda: gaps], distance="precomputed"))
    np.testing.assert_allclose(table.loc[table["unit"] == 2, "rho"], alone.rho[0], atol=1e-9)


def test_univariate_of_some_units(planted):
    features, layer, folds = planted
    some = univariate(features, {("net", 2): layer}, folds, units=[7, 2])
    every = univariate(features, {("net", 2): layer}, folds)
    for unit in (7, 2):
        pd.testing.assert_series_equal(
            some.loc[some["unit"] == unit, "rho"],
            every.loc[every["unit"] == unit, "rho"],
            check_index=False,
        )
    with pytest.raises(InputError, match=r"unit 12 .* units 0 to 11"):
        univariate(features, {("net", 2): layer}, folds, units=[12])


@pytest.mark.parametrize("baseline", [decoding, random_forest, univariate])
def test_layers_must_fit_the_stimuli(planted, baseline):
    features, layer, folds = planted
    with pytest.raises(InputError, match="layer 3 of net has 149 rows"):
        baseline(features, {("net", 3): layer[:-1]}, folds)
    broken = layer.copy()
    broken[4, 4] = np.inf
    with pytest.raises(InputError, match=r"layer 3 of net .* finite"):
        baseline(features, {("net", 3): broken}, folds)
