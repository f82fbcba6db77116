"""Errors from the choice of pairs, held against explicit pairs of each design."""

import numpy as np
import pytest
from explicit import random_features, random_folds, random_layer, squared
from inputs import for_each
from scipy.stats import rankdata

from mlem_core.analysis.pair_errors import COLUMNS, design_errors, errors_sentence
from mlem_core.measures.contributions import contributions
from mlem_core.measures.importance import fitted
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign, places_of
from mlem_core.pairs.ranks import PairRanks
from mlem_core.pairs.statistics import ComparedPairs, pass_over_layer

N, LAYERS = 200, [("m", 0), ("m", 1)]


def designed(names, items=None):
    """The compared pairs of a design, the layers, and the statistics of all designs and of each."""
    features = random_features(N)
    layers = [random_layer(features, seed) for seed in (1, 2)]
    folds = random_folds(N)
    design = PairDesign.of(folds, 8_000, items=items)
    compared = ComparedPairs.of(feature_columns(features[names]), folds, design=design)
    ranks, statistics = PairRanks(2, design.n_pairs), []
    for number, rows in enumerate(layers):
        result = pass_over_layer(compared, lambda rows=rows: rows, "euclidean", "a layer")
        ranks.put(number, result.doubled)
        statistics.append(result.statistics)
    products = compared.rank_products(ranks, [0, 1])
    parts = [compared.together(statistics, products, number) for number in range(8)]
    return compared, layers, compared.together(statistics, products), parts


@for_each("names", ["kind", "gender"], ["kind", "length", "gender", "frequency"])
@for_each("items", None, np.arange(N) % 70)
def test_each_design_has_the_moments_and_scores_of_its_pairs(names, items):
    compared, layers, whole, parts = designed(names, items)
    assert whole.tests.is_grouped == (names == ["kind", "gender"])
    columns, folds, design = compared.columns, compared.folds, compared.design
    first, second = design.pairs()
    distances = np.stack([squared(rows)[places_of(first, second, N)] for rows in layers])
    ranks = np.stack([rankdata(row) for row in distances])
    z = columns.of_pairs(first, second)
    in_design = np.repeat(np.arange(8), np.diff(design.starts[design.parts]))
    fits, importance = fitted(whole)
    tested = (folds[first] == folds[second]) & (
        True if items is None else items[first] != items[second]
    )
    rho = np.zeros((8, 2))
    for k, part in enumerate(parts):
        of_design = in_design == k
        assert part.n_pairs == of_design.sum()
        assert part.moments.rsa[0, 1] == pytest.approx(np.corrcoef(ranks[:, of_design])[0, 1])
        train = of_design & (folds[first] != 1) & (folds[second] != 1)
        moments = part.moments.within(part.moments.training(1))
        centred = z[train] - z[train].mean(axis=0)
        np.testing.assert_allclose(moments.gram, centred.T @ centred, atol=1e-7)
        np.testing.assert_allclose(
            moments.with_ranks, ranks[:, train] @ centred, rtol=1e-7, atol=1e-5
        )
        for fold in range(5):
            test = tested & (folds[first] == fold)
            for layer in (0, 1):
                of_fold = np.zeros(len(z))
                of_fold[test] = rankdata(distances[layer][test])
                predicted = rankdata((z @ fits.weights[layer, fold])[test & of_design].round(10))
                r = np.corrcoef(predicted, of_fold[test & of_design])[0, 1]
                assert part.tests.folds[fold].scores(fits.weights[:, [fold]]).rho[
                    layer, 0
                ] == pytest.approx(r)
                rho[k, layer] += r / 5
    table = design_errors(LAYERS, whole, parts)
    assert dict(table.dtypes.astype(str)) == {
        **COLUMNS,
        **{name: table[name].dtype.name for name in ("measure", "model", "feature", "model_b")},
    }
    by = table.set_index(["measure", "layer", "feature"]).sort_index()
    for layer in (0, 1):
        assert by.loc[("rho", layer, ""), "value"] == pytest.approx(fits.rho[layer].mean())
        expected = rho[:, layer].std(ddof=1) / np.sqrt(8)
        assert by.loc[("rho", layer, ""), "error"] == pytest.approx(expected)
        drops = by.loc[("importance", layer), "value"]
        np.testing.assert_allclose(drops[names], importance[layer].mean(axis=0), atol=1e-12)
    of_designs = np.array([part.moments.rsa[0, 1] for part in parts])
    rsa = by.loc[("rsa", 0, "")]
    assert rsa["value"] == pytest.approx(whole.moments.rsa[0, 1])
    assert rsa["error"] == pytest.approx(of_designs.std(ddof=1) / np.sqrt(8))
    assert rsa["error"] == pytest.approx((1 - rsa["value"] ** 2) / np.sqrt(whole.n_pairs), rel=0.7)
    terms = np.stack([contributions(part.moments).terms[:, 0, 1] for part in parts])
    errors = by.loc[("contribution", 0), "error"]
    np.testing.assert_allclose(errors[names], terms.std(axis=0, ddof=1) / np.sqrt(8))
    assert set(errors.index) == {*names, "unexplained"}
    sentence = errors_sentence(table, whole.n_pairs, N * (N - 1) // 2, 8)
    assert f"{whole.n_pairs:,} of 19,900 pairs, 8 independent" in sentence
