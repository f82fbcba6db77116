"""Baselines and methods side by side: against scikit-learn, explicit fits and matrices."""

import explicit
import numpy as np
import pandas as pd
import pytest
from inputs import finished, in_files, probing, refused, tables_of
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr, weightedtau

from mlem_core import RidgeMLEM, Store
from mlem_core.analysis import baselines, methods

N = 150
FEATURES = ("part_of_speech", "tense", "word_position")


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
    table = baselines.decoding(features[["noise"]], {("net", 0): layer}, folds).table
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
    table = baselines.decoding(part, {("net", 0): layer}, folds).table
    assert list(table["fold"]) == [0, 1, 3, 4]
    known = part["length"].notna().to_numpy()
    rest = part[known].reset_index(drop=True)
    same = baselines.decoding(rest, {("net", 0): layer[known]}, folds[known])
    pd.testing.assert_frame_equal(table, same.table)
    odd = {"size": np.arange(N, dtype=float), "same": "x", "few": np.arange(N) % 3.0}
    found = baselines.decoding(pd.DataFrame(odd), {("net", 0): layer}, folds)
    assert set(found.table["feature"]) == {"few"}
    assert "'size'" in found.notices[0] and "150 distinct values" in found.notices[0]
    assert "'same'" in found.notices[1]


def test_features_are_encoded_one_hot_and_scaled():
    features = pd.DataFrame({"kind": ["a", None, "b"], "size": [2.0, 6.0, np.nan]})
    inputs, owners = baselines.encoded_features(features)
    assert owners == ("kind", "kind", "size")
    np.testing.assert_array_equal(inputs, [[1, 0, 0], [0, 0, 1], [0, 1, -1]])


def test_forest_importance_is_a_drop_of_the_distances_rho(written):
    # One whole tree learns the mean of each combination of levels: no library's importance needed.
    features, layer, folds = written
    features, repeats = features[["kind", "noise"]], 60
    table = baselines.random_forest(
        features, {("net", 0): layer}, folds, repeats=repeats, n_estimators=1, bootstrap=False
    )
    rng = np.random.default_rng(5)
    for fold in (0, 3):
        train, test = folds != fold, folds == fold
        levels = [features[train][name].to_numpy() for name in features]
        means = pd.DataFrame(layer[train].astype(float)).groupby(levels).mean()
        own = features[test].reset_index(drop=True)

        def rho(frame, means=means, test=test):
            predicted = means.loc[list(zip(frame["kind"], frame["noise"], strict=True))].to_numpy()
            return spearmanr(pdist(predicted), pdist(layer[test])).statistic

        rows = table[(table["fold"] == fold) & (table["feature"] == "kind")].iloc[0]
        assert rows["rho"] == pytest.approx(rho(own), abs=1e-9)
        drops = []
        for _ in range(repeats):
            drops.append(rho(own) - rho(own.assign(kind=rng.permutation(own["kind"]))))
        error = np.std(drops) * np.sqrt(2 / repeats)
        assert abs(rows["importance"] - np.mean(drops)) < 4 * error


def test_univariate_is_a_fit_for_each_unit_alone(written, monkeypatch):
    features, layer, folds = written
    layer = layer.copy()
    layer[:, 5] = 1.0
    monkeypatch.setattr(baselines, "UNITS_AT_ONCE", 5)
    table = baselines.univariate(features, {("net", 2): layer}, folds)
    assert len(table) == 12 * 5
    mean = table.groupby("unit")["rho"].mean()
    assert set(mean.nlargest(3).index) == {0, 1, 2}
    assert mean[5] == 0.0 and abs(mean[[6, 7, 8, 9, 10, 11]]).max() < 0.1
    gaps = np.abs(layer[:, 2].astype(float)[:, None] - layer[:, 2].astype(float))
    alone = RidgeMLEM().cross_validate(tables_of(features, [gaps], folds, distance="precomputed"))
    np.testing.assert_allclose(table.loc[table["unit"] == 2, "rho"], alone.rho[0], atol=1e-9)


@pytest.fixture(scope="module")
def patterns(tmp_path_factory):
    """Layer 0 says part of speech in every unit, layer 1 in a pattern over units; 2 is noise."""
    folder, table = tmp_path_factory.mktemp("methods"), probing(40)
    rng = np.random.default_rng(0)
    kinds = pd.get_dummies(table["part_of_speech"]).to_numpy(float)
    noise = [rng.standard_normal((len(table), 12)) for _ in range(3)]
    turn = np.linalg.qr(rng.standard_normal((kinds.shape[1], kinds.shape[1])))[0]
    spread = np.concatenate([kinds @ turn, np.zeros((len(table), 12 - kinds.shape[1]))], axis=1)
    verbs = kinds @ kinds[0][:, None] * 3.0
    layers = {0: verbs + 0.3 * noise[0], 1: 1.6 * spread + 0.3 * noise[1], 2: noise[2]}
    spec = in_files(folder, table, {"model": layers}, folds=3, features=FEATURES)
    return finished(folder, spec, layers)


@pytest.mark.parametrize("interactions", [False, True])
def test_agreement_is_that_of_explicit_matrices(patterns, interactions):
    analysis = patterns.analysis
    one, other = (
        analysis.results(estimator=name, interactions=interactions) for name in ("ridge", "frrsa")
    )
    found = methods.agreement_by_layer(one, other).set_index(["model", "layer", "fold"])
    assert len(found) == 9
    for at, row in found.iterrows():
        matrices, profiles = [], []
        for results in (one, other):
            own = results.weights.set_index(["model", "layer", "fold"]).loc[at]
            matrix = np.zeros((3, 3))
            for term, weight in zip(own["feature"], own["weight"], strict=True):
                ends = [FEATURES.index(name) for name in term.split(" × ")]
                matrix[ends[0], ends[-1]] = matrix[ends[-1], ends[0]] = weight
            matrices.append(matrix / (np.linalg.norm(matrix) or 1.0))
            own = results.importance.set_index(["model", "layer", "fold"]).loc[at]
            profiles.append(own.set_index("feature")["importance"].sort_index())
        apart = np.linalg.norm(matrices[0] - matrices[1])
        assert row["frobenius"] == pytest.approx(apart, abs=1e-12)
        assert 0 <= row["frobenius"] <= 2
        expected = weightedtau(*profiles).statistic
        # SciPy has no τ of a profile without any order.
        assert row["tau"] == pytest.approx(np.nan_to_num(expected), abs=1e-12)
    assert not methods.agreement_by_layer(one, one)["frobenius"].any()
    with refused("same layers, folds and features"):
        methods.agreement_by_layer(one, analysis.results(features=FEATURES[:2], estimator="frrsa"))


def test_units_tell_a_pattern_from_single_units(patterns):
    table = baselines.of_analysis(patterns.analysis, "univariate", patterns.store).table
    results = patterns.analysis.results()
    for layer, row in methods.units(table, results).set_index("layer").iterrows():
        own = table[table["layer"] == layer]
        rho = [own.loc[own["unit"] == unit, "rho"].mean() for unit in range(12)]
        whole = results.scores.loc[results.scores["layer"] == layer, "rho"].mean()
        assert row["n_units"] == 12 and row["whole"] == pytest.approx(whole)
        assert (row["median"], row["best"]) == pytest.approx((np.median(rho), max(rho)))
        assert row["above_whole"] == pytest.approx(np.mean(np.array(rho) > whole))


def test_kept_fits_are_the_fits_and_are_computed_once(patterns, tmp_path, monkeypatch):
    analysis, store = patterns.analysis, Store(tmp_path, overlays=())
    layers, features = [("model", 0), ("model", 2)], list(FEATURES[1:])
    asked = {"features": features, "estimator": "spearman", "interactions": False}

    def kept(of=analysis, **changes):
        return methods.kept_results(of, store, of.select(**{"layers": layers, **asked, **changes}))

    assert kept() is None
    made = methods.fitted_results(analysis, store, analysis.select(layers=layers, **asked))
    expected = analysis.results(features, layers, "spearman", False)
    for name in ("scores", "importance", "weights", "layer_map"):
        pd.testing.assert_frame_equal(getattr(made, name), getattr(expected, name))
    monkeypatch.setattr(methods, "fitted", None)  # would be fitted again
    for other in ({"estimator": "frrsa"}, {"interactions": True}, {"features": features[:1]}):
        assert kept(**other) is None
