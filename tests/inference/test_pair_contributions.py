"""The pairs behind a term of two layers' similarity: explicit pairs, and what they add up to."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import explicit
from helpers.inputs import refused
from helpers.moments import made_up, moments_of_columns
from scipy.stats import rankdata

from mlem_core.inference.pair_contributions import contributing_pairs, pair_terms
from mlem_core.measures import contributions, decomposition
from mlem_core.measures.contributions import STABLE
from mlem_core.measures.decomposition import UNEXPLAINED, decompose
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.statistics import PairStatistics

N = 60


def doubled_ranks(made):
    return [pair_ranks(distances) for distances in made.distances]


def all_terms(made):
    names = (*made.moments.columns.features, UNEXPLAINED)
    ranks = doubled_ranks(made)
    return {name: pair_terms(made.moments, ranks, name) for name in names}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"missing": "level"},
        {"by_value": ("kind", "gender")},
        {"interactions": True},
        {"items": np.arange(N) // 2},
    ],
)
@pytest.mark.parametrize("exact_up_to", [12, 0])
def test_what_the_pairs_add_is_the_term(more, exact_up_to, monkeypatch):
    for module in (contributions, decomposition):
        monkeypatch.setattr(module, "EXACT_FEATURES", exact_up_to)
    made = made_up(N, **more)
    added = all_terms(made)
    expected = decompose(made.moments)
    for feature, value in zip(expected.features, expected.terms[:, 0, 1], strict=True):
        assert added[feature].sum() == pytest.approx(value, abs=1e-9)
        tested = np.stack([explicit.held_out(made.folds, fold) for fold in range(5)]).any(axis=0)
        if "items" in more:
            i, j = explicit.pairs(N)
            tested &= more["items"][i] != more["items"][j]
        assert not added[feature][~tested].any() and added[feature][tested].any()
    assert added[UNEXPLAINED].sum() == pytest.approx(expected.unexplained[0, 1], abs=1e-9)
    ranks = [rankdata(distances) for distances in made.distances]
    ranks = [own - own.mean() for own in ranks]
    products = ranks[0] * ranks[1] / np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1]))
    np.testing.assert_allclose(sum(added.values()), products, atol=1e-9)


def test_of_each_pair_it_is_what_explicit_fits_predict():
    made = made_up(30, n_folds=3)
    columns, folds = made.moments.columns, made.folds
    z = columns.pair_values(*explicit.pairs(30))
    ranks = [rankdata(distances) for distances in made.distances]
    ranks = [own - own.mean() for own in ranks]
    spread = np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1]))
    expected, squares = np.zeros((len(z), 4)), np.zeros(2)
    for fold in range(3):
        use, test = explicit.training(folds, fold), explicit.held_out(folds, fold)
        centred = z[use] - z[use].mean(axis=0)
        inside = z[test] - z[test].mean(axis=0)
        own = [r[test] - r[test].mean() for r in ranks]
        squares += [r @ r for r in own]

        def predicted(members, layer, use=use, centred=centred, inside=inside):
            x = centred[:, list(members)]
            gram = x.T @ x
            gram += STABLE * np.diag(np.diag(gram))
            return inside[:, list(members)] @ np.linalg.solve(gram, x.T @ ranks[layer][use])

        by_layer = [explicit.shapley_values(lambda s, k=k: predicted(s, k), 4) for k in (0, 1)]
        expected[test] = (own[0] * by_layer[1] + own[1] * by_layer[0]).T / 2
    found = all_terms(made)
    expected /= np.sqrt(squares.prod())
    for feature, values in zip(columns.features, expected.T, strict=True):
        np.testing.assert_allclose(found[feature], values, atol=1e-12)
    rest = ranks[0] * ranks[1] / spread - expected.sum(axis=1)
    np.testing.assert_allclose(found[UNEXPLAINED], rest, atol=1e-12)


def test_equal_distances_add_nothing_and_an_unknown_term_is_refused():
    features, folds = explicit.random_features(N), explicit.random_folds(N, 3)
    layers = [explicit.random_layer(features), np.eye(N)]
    made = moments_of_columns(PairColumns.from_features(feature_columns(features)), layers, folds)
    for values in all_terms(made).values():
        assert not values.any()
    with refused("knid", "kind"):
        pair_terms(made.moments, doubled_ranks(made), "knid")


def test_examples_are_the_pairs_that_add_most_each_stimulus_once():
    made = made_up(N)
    pairs = SimpleNamespace(
        statistics=PairStatistics(made.moments, made.tests),
        ranks=doubled_ranks(made),
        rows=None,
    )
    added = all_terms(made)
    found = contributing_pairs(pairs, "kind", 5)
    i, j = explicit.pairs(N)
    best = int(np.argmax(added["kind"]))
    assert tuple(found.loc[0, ["first", "second"]]) == (i[best], j[best])
    assert found.loc[0, "contribution"] == added["kind"].max()
    assert found["contribution"].is_monotonic_decreasing
    assert len(set(found["first"]) | set(found["second"])) == 10
    least = contributing_pairs(pairs, UNEXPLAINED, 3, most=False)
    assert (least["contribution"] < 0).all()
    assert least.loc[0, "contribution"] == added[UNEXPLAINED].min()
    # Pairs of some of the stimuli are found among all of them.
    rows = np.arange(N) * 2 + 1
    pairs.rows = rows
    of_some = contributing_pairs(pairs, "kind", 5)
    np.testing.assert_array_equal(of_some[["first", "second"]], rows[found[["first", "second"]]])
