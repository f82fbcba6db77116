"""The methods side by side: their scores, the agreement of two, and single units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import in_files, probing
from scipy.stats import weightedtau

from mlem_core.analysis import cached_fits, methods
from mlem_core.analysis.baselines import of_analysis, with_rho
from mlem_core.analysis.run import run
from mlem_core.base.errors import InputError
from mlem_core.storage.store import Store

FEATURES = ("part_of_speech", "tense", "word_position")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def analysis(store, tmp_path_factory):
    """Layer 0 says part of speech in every unit, layer 1 in a pattern over units; 2 is noise."""
    folder, table = tmp_path_factory.mktemp("methods"), probing(60)
    rng = np.random.default_rng(0)
    codes = table["part_of_speech"].astype("category").cat.codes.to_numpy()
    kinds = np.eye(codes.max() + 1)[codes]
    noise = [rng.standard_normal((len(table), 12)) for _ in range(3)]
    turn = np.linalg.qr(rng.standard_normal((kinds.shape[1], kinds.shape[1])))[0]
    spread = np.concatenate([kinds @ turn, np.zeros((len(table), 12 - kinds.shape[1]))], axis=1)
    verbs = (codes == codes[0])[:, None] * 3.0
    layers = {0: verbs + 0.3 * noise[0], 1: 1.6 * spread + 0.3 * noise[1], 2: noise[2]}
    return run(in_files(folder, table, {"model": layers}, folds=3, features=FEATURES), store)


@pytest.mark.parametrize("interactions", [False, True])
def test_agreement_is_that_of_explicit_matrices(analysis, interactions):
    one, other = (
        analysis.results(estimator=name, interactions=interactions) for name in ("ridge", "frrsa")
    )
    found = methods.agreement(one, other).set_index(["model", "layer", "fold"])
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
    same = methods.agreement(one, one)
    assert not same["frobenius"].any()
    with pytest.raises(InputError, match="same layers, folds and features"):
        methods.agreement(one, analysis.results(features=FEATURES[:2], estimator="frrsa"))


def test_agreement_by_noise_is_that_of_explicit_matrices():
    rng, terms = np.random.default_rng(0), ["a", "b", "a × b"]
    rows = pd.DataFrame(
        [(m, n, f, t) for m in ("x", "y", "z") for n in (0, 0.5) for f in range(2) for t in terms],
        columns=["estimator", "noise", "fold", "feature"],
    )
    rows = rows.assign(weight=rng.random(len(rows)), importance=rng.random(len(rows)))
    found = methods.agreement_by_noise(rows, ("x", "y")).set_index(["noise", "fold"])
    assert len(found) == 4
    of = rows.set_index(["estimator", "noise", "fold", "feature"])
    for (noise, fold), row in found.iterrows():
        matrices = []
        for name in ("x", "y"):
            a, b, both = of.loc[name, noise, fold]["weight"].loc[terms]
            matrix = np.array([[a, both], [both, b]])
            matrices.append(matrix / np.linalg.norm(matrix))
        assert row["frobenius"] == pytest.approx(np.linalg.norm(matrices[0] - matrices[1]))
        profiles = [of.loc[name, noise, fold]["importance"].loc[terms] for name in ("x", "y")]
        assert row["tau"] == pytest.approx(weightedtau(*profiles).statistic)
    assert not methods.agreement_by_noise(rows, ("x", "x"))["frobenius"].any()
    with pytest.raises(InputError, match="same layers, folds and features"):
        methods.agreement_by_noise(rows[:-1], ("x", "z"))


def scores_of(*of):
    return methods.scores(methods.results_by_method(*of), with_rho(*of))


def test_scores_are_of_what_has_been_computed(analysis, store):
    selection = analysis.select()
    assert set(scores_of(analysis, store, selection)["method"]) == {"ridge", "ridge-rank"}
    assert methods.slow(analysis, selection) == ["spearman", "frrsa"]
    seen = []
    methods.make(analysis, store, selection, seen.append)
    assert (seen[-1].done, seen[-1].total) == (6, 6)
    forest = of_analysis(analysis, "random-forest", store).table
    units = of_analysis(analysis, "univariate", store).table
    table = scores_of(analysis, store, selection)
    assert set(table["method"]) == set(methods.NAMES)
    assert len(table) == len(methods.NAMES) * 3 * 3
    rho = table.set_index(["method", "layer", "fold"])["rho"]
    kept = cached_fits.find(analysis, store, replace(selection, estimator="frrsa"))
    expected = kept.scores.set_index(["layer", "fold"])["rho"]
    pd.testing.assert_series_equal(rho["frrsa"], expected)
    first = forest[(forest["layer"] == 1) & (forest["fold"] == 2)]
    assert rho["random-forest", 1, 2] == pytest.approx(first["rho"].iloc[0])
    first = units[(units["layer"] == 1) & (units["fold"] == 2)]
    assert rho["univariate", 1, 2] == pytest.approx(first["rho"].mean()) and len(first) == 12
    # Baselines see all features.
    fewer = scores_of(analysis, store, analysis.select(features=FEATURES[:2]))
    assert set(fewer["method"]) == {"ridge", "ridge-rank"}


def test_units_tell_a_pattern_from_single_units(analysis, store):
    univariate = of_analysis(analysis, "univariate", store).table
    results = analysis.results()
    found = methods.units(univariate, results).set_index("layer")
    for layer, row in found.iterrows():
        own = univariate[univariate["layer"] == layer]
        rho = [own.loc[own["unit"] == unit, "rho"].mean() for unit in range(12)]
        whole = results.scores.loc[results.scores["layer"] == layer, "rho"].mean()
        assert row["n_units"] == 12 and row["whole"] == pytest.approx(whole)
        assert (row["median"], row["best"]) == pytest.approx((np.median(rho), max(rho)))
        assert row["above_whole"] == pytest.approx(np.mean(np.array(rho) > whole))
    # Where every unit says it, one is nearly as good as all; a pattern needs all of them.
    share = found["median"] / found["whole"]
    assert share[0] > 0.8 and share[1] < 0.6
