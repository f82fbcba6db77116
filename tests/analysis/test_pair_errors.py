"""Errors from the choice of pairs, held against explicit pairs of each design."""

import numpy as np
import pytest
from helpers.explicit import random_features, random_folds, random_layer, squared
from helpers.inputs import for_each
from scipy.stats import rankdata

from mlem_core.analysis import pair_errors
from mlem_core.analysis.pair_errors import COLUMNS, design_errors, errors_sentence
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.importance import fitted
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign, pair_places
from mlem_core.pairs.ranks import PairRanks
from mlem_core.pairs.statistics import ComparedPairs, pass_over_layer

N, LAYERS = 200, [("m", 0), ("m", 1)]


def designed(names, items=None):
    """Compared pairs, layers, and their statistics from all designs and without each."""
    features = random_features(N)
    layers = [random_layer(features, seed) for seed in (1, 2)]
    folds = random_folds(N)
    design = PairDesign.from_budget(folds, 8_000, items=items)
    compared = ComparedPairs.from_features(feature_columns(features[names]), folds, design=design)
    ranks, statistics = PairRanks(2, design.n_pairs), []
    for number, rows in enumerate(layers):
        result = pass_over_layer(compared, lambda rows=rows: rows, "euclidean", "a layer")
        ranks.put(number, result.doubled)
        statistics.append(result.statistics)
    products = compared.rank_products(ranks, [0, 1])
    without = list(compared.leave_designs_out(statistics, products))
    return compared, layers, compared.together(statistics, products), without


@for_each("names", ["kind", "gender"], ["kind", "length", "gender", "frequency"])
@for_each("items", None, np.arange(N) % 70)
def test_errors_are_those_of_a_jackknife_over_the_explicit_pairs_of_designs(names, items):
    compared, layers, whole, without = designed(names, items)
    assert whole.tests.is_grouped == (names == ["kind", "gender"])
    columns, folds, design = compared.columns, compared.folds, compared.design
    first, second = design.pairs()
    distances = np.stack([squared(rows)[pair_places(first, second, N)] for rows in layers])
    ranks = np.stack([rankdata(row) for row in distances])
    z = columns.pair_values(first, second)
    in_design = np.repeat(np.arange(8), np.diff(design.starts[design.parts]))
    tested = folds[first] == folds[second]
    if items is not None:
        tested &= items[first] != items[second]
    fits = [fitted(part) for part in without]
    rho = np.zeros((8, 2))
    for k, part in enumerate(without):
        used = in_design != k
        assert part.n_pairs == used.sum()
        assert part.moments.rsa[0, 1] == pytest.approx(np.corrcoef(ranks[:, used])[0, 1])
        train = used & (folds[first] != 1) & (folds[second] != 1)
        moments = part.moments.within(part.moments.training(1))
        centred = z[train] - z[train].mean(axis=0)
        np.testing.assert_allclose(moments.gram, centred.T @ centred, atol=1e-7)
        products = ranks[:, train] @ centred
        np.testing.assert_allclose(moments.with_ranks, products, rtol=1e-7, atol=1e-5)
        inside = part.moments.inside_fold(2)
        assert inside.n_pairs == (used & tested & (folds[first] == 2)).sum()
        for fold in range(5):
            test = tested & (folds[first] == fold)
            for layer in (0, 1):
                of_fold = np.zeros(len(z))
                of_fold[test] = rankdata(distances[layer][test])
                predicted = z[test & used] @ fits[k].fits.weights[layer, fold]
                expected = np.corrcoef(rankdata(predicted.round(10)), of_fold[test & used])[0, 1]
                assert fits[k].fits.rho[layer, fold] == pytest.approx(expected)
                rho[k, layer] += expected / 5
    table = design_errors(LAYERS, whole, without)
    assert list(table.columns) == list(COLUMNS)
    by = table.set_index(["measure", "layer", "feature"]).sort_index()
    everything = fitted(whole)
    drops = np.stack([own.importance.mean(axis=1) for own in fits])
    for layer in (0, 1):
        of_rho = by.loc[("rho", layer, "")]
        assert of_rho["value"] == pytest.approx(everything.fits.rho[layer].mean())
        assert of_rho["error"] == pytest.approx(jackknife(rho[:, layer]))
        of_drops = by.loc[("importance", layer)].loc[names]
        expected = everything.importance[layer].mean(axis=0)
        np.testing.assert_allclose(of_drops["value"], expected, atol=1e-12)
        np.testing.assert_allclose(of_drops["error"], jackknife(drops[:, layer]))
    rsa = by.loc[("rsa", 0, "")]
    assert rsa["value"] == pytest.approx(whole.moments.rsa[0, 1])
    assert rsa["error"] == pytest.approx(jackknife([part.moments.rsa[0, 1] for part in without]))
    assert rsa["error"] == pytest.approx((1 - rsa["value"] ** 2) / np.sqrt(whole.n_pairs), rel=0.7)
    terms = [decompose(part.moments).terms[:, 0, 1] for part in without]
    errors = by.loc[("contribution", 0), "error"]
    np.testing.assert_allclose(errors[names], jackknife(terms))
    assert set(errors.index) == {*names, "unexplained"}
    sentence = errors_sentence(table, whole.n_pairs, N * (N - 1) // 2, 8)
    assert f"{whole.n_pairs:,} of 19,900 pairs, 8 independent" in sentence


def jackknife(replicates):
    """Standard errors from n numbers, each without one of n units."""
    centred = np.array(replicates) - np.mean(replicates, axis=0)
    n = len(centred)
    return np.sqrt((n - 1) / n * (centred**2).sum(axis=0))


def test_penalties_are_kept_where_many_single_pairs_test_a_fold(monkeypatch):
    _, _, whole, without = designed(["kind", "length", "gender", "frequency"])
    chosen = design_errors(LAYERS, whole, without)
    monkeypatch.setattr(pair_errors, "MOST_PAIRS", 10)
    kept = design_errors(LAYERS, whole, without)
    np.testing.assert_array_equal(kept["value"], chosen["value"])
    ratio = (kept["error"] / chosen["error"])[chosen["measure"] == "rho"]
    assert ratio.between(0.3, 3).all() and (ratio != 1).any()
