"""Distances that a file does not have for every two stimuli: those pairs are left out."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.explicit import hold_ridge, random_features, random_layer, squared
from helpers.inputs import RIDGE, arguments_of, for_each, in_files, refused
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata, spearmanr

from mlem_core import AnalysisSpec, Store, from_frame, run
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.files import load_analysis, save_analysis
from mlem_core.analysis.similarities import SIMILARITY
from mlem_core.base.text import fraction
from mlem_core.cli.commands import main
from mlem_core.inference.explanation import explain, with_chance
from mlem_core.inference.layer_intervals import LAYER_INTERVALS
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.designs import pair_places

N = 45
GONE = np.random.default_rng(3).random(N * (N - 1) // 2) < 0.1


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A system of representations, and two of distances, each without some of the pairs."""
    folder, features = tmp_path_factory.mktemp("missing"), random_features(N)
    table = features.assign(sentence=[f"number {row}" for row in range(N)])
    table.to_csv(folder / "s.csv", index=False)
    layers = [random_layer(features, seed) for seed in range(3)]
    np.savez(folder / "m.npz", layer_00=layers[0])
    for name, layer, half in (("IT", layers[1], 0), ("V4", layers[2], 1)):
        gone = GONE & (np.arange(len(GONE)) % 2 == half)
        apart = np.where(gone, np.nan, pdist(layer.astype(np.float64)))
        np.savez(folder / f"{name}.npz", layer_00=squareform(apart))
    spec = AnalysisSpec(
        stimuli=str(folder / "s.csv"),
        representations={name: str(folder / f"{name}.npz") for name in ("m", "IT", "V4")},
        precomputed=("IT", "V4"),
        folds=3,
        **RIDGE,
    )
    store = Store(folder / "cache", overlays=())
    return features, layers, run(spec, store, progress=False), store


def test_everything_is_that_of_the_pairs_with_a_distance(made, monkeypatch, tmp_path):
    features, layers, analysis, _ = made
    first, second = np.triu_indices(N, 1)
    x = explicit.feature_distances(features)[~GONE] ** 2
    distances = np.stack([squared(layer) for layer in layers])[:, ~GONE]
    monkeypatch.setattr(explicit, "pairs", lambda n: (first[~GONE], second[~GONE]))
    np.testing.assert_allclose(analysis.rsa, spearmanr(distances.T).statistic, atol=1e-9)
    fits = analysis.compute_fits(analysis.select()).fits
    alphas = analysis.manifest["alphas"]
    for layer in range(3):
        hold_ridge(fits, layer, 1, x, distances[layer], analysis.folds, alphas)
    x = analysis.pairs.columns.pair_values(first[~GONE], second[~GONE])
    ranks = np.stack([rankdata(of_layer) for of_layer in distances])
    of_columns = [(feature,) for feature in analysis.pairs.columns.first_feature]
    terms = explicit.contributions(x, of_columns, ranks, analysis.folds)
    np.testing.assert_allclose(decompose(analysis.pairs.moments).terms, terms, atol=1e-9)
    (notice,) = (notice for notice in analysis.notices if "distance" in notice)
    assert f"{GONE.sum()} of 990" in notice and "IT layer 0 and V4 layer 0" in notice
    save_analysis(analysis, tmp_path)
    again = load_analysis(tmp_path)
    assert all(map(np.array_equal, again.design.pairs(), (first[~GONE], second[~GONE])))


def test_what_needs_all_pairs_says_so_and_the_rest_is_there(made):
    *_, analysis, store = made
    why = explain(analysis, ("m", 0), ("IT", 0))
    bounded = with_chance(why, SelectionContext.from_analysis(analysis, store))
    assert bounded.notes == (*why.notes, analysis.lacks_pairs)
    assert bounded.terms.equals(why.terms)
    context = SelectionContext.from_analysis(analysis, store)
    for compute in (LAYER_INTERVALS.get, partial(SIMILARITY.get, name="cka")):
        with refused(f"{GONE.sum()} pairs", "fill these in"):
            compute(context)


@for_each(("budget", "estimator"), (0, "ridge-rank"), (600, "ridge"), (0, "spearman"))
def test_other_estimators_and_a_budget_of_pairs_leave_them_out_too(made, budget, estimator):
    *_, analysis, store = made
    other = run(replace(analysis.spec, pairs=budget, estimator=estimator), store, False)
    first, second = other.design.pairs()
    assert not GONE[pair_places(first, second, N)].any() and other.pairs.n_pairs == len(first)
    assert len(other.pair_errors) == 0 or budget
    assert np.isfinite(other.results().scores["rho"]).all()


def test_too_few_pairs_of_a_fold_name_the_layer_that_lacks_most(made):
    *_, analysis, store = made
    tested = np.flatnonzero(analysis.folds == 1)
    apart = np.load(dict(analysis.spec.representations)["V4"])["layer_00"]
    apart[np.ix_(tested, tested)] = np.nan
    path = store.root / "few.npz"
    np.savez(path, layer_00=apart)
    few = replace(analysis.spec, representations={"few": str(path)}, precomputed=("few",))
    with refused("fold 1 is left with 0 pairs", "few layer 0 lacks"):
        run(few, store, False)


@for_each("n", 4, 8, 3)
def test_rsa_of_stimuli_that_are_too_few_for_folds_is_given(n, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLEM_CACHE", str(tmp_path / "cache"))
    table = pd.DataFrame(
        {"sentence": [f"number {row}" for row in range(n)], "odd": np.arange(n) % 2}
    )
    layers = {system: {0: np.random.default_rng(k).random((n, 5))} for k, system in enumerate("ab")}
    spec, out = in_files(tmp_path, from_frame(table, "few"), layers), tmp_path / "out"
    assert main(["analyze", *arguments_of(spec), "--out", str(out)]) == 2
    message = capsys.readouterr().err
    assert out.exists() == (n > 3)
    if n > 3:
        rho = spearmanr(*(pdist(layer[0]) for layer in layers.values())).statistic
        assert (
            f"at least 9 stimuli, so add some. RSA needs no folds; it is {fraction(rho)} of"
            in message
        )
        rsa = pd.read_csv(out / "similarity_rsa.csv", index_col="layer")
        np.testing.assert_allclose(rsa, [[1, rho], [rho, 1]], atol=1e-12)
