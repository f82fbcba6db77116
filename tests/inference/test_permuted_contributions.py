"""Contributions of permuted features: columns made anew of permuted values, one at a time."""

from dataclasses import replace

import numpy as np
import pandas as pd
from helpers.explicit import beside_one, random_features, random_folds, random_layer
from helpers.inputs import for_each
from helpers.moments import made_up, moments_of, moments_of_columns

from mlem_core.inference import permuted_contributions
from mlem_core.inference.permuted_contributions import PermutedContributions
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs import permuted_moments
from mlem_core.pairs.columns import FeatureColumn, feature_columns
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.permuted_moments import PermutedFeature
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.stimuli.stimulus_set import Rdm

N = 60


def givers_of(n, n_permutations=3, seed=0):
    """Whose value each stimulus takes: permutations, and a draw in which some give twice."""
    rng = np.random.default_rng(seed)
    return np.stack(
        [*(rng.permutation(n) for _ in range(n_permutations - 1)), rng.integers(n, size=n)]
    )


def anew(columns, layers, folds, features, givers, items=None, times=None, **more):
    """Contributions of features as one beside the others, of columns of their permuted values."""
    terms = []
    for row in givers:
        permuted = [
            replace(column, values=column.values[row]) if number in features else column
            for number, column in enumerate(columns)
        ]
        of_pairs = PairColumns.from_features(permuted, **more)
        made = moments_of_columns(of_pairs, layers, folds, items, times=times)
        terms.append(beside_one(made.moments, features))
    return np.stack(terms)


def permuted_terms(made, features, givers):
    ranks = [pair_ranks(own) for own in made.distances]
    return PermutedContributions.from_moments(made.moments, ranks).feature_contributions(
        features, givers
    )


ITEMS = np.arange(N) % 23
TIMES = np.random.default_rng(5).permutation(N) / 4


@for_each(
    "by_value, more",
    ((), {}),
    (("kind", "length"), {}),
    (("kind",), {"missing": "level"}),
    ((), {"interactions": True}),
    (("kind",), {"items": ITEMS}),
    ((), {"items": ITEMS, "interactions": True}),
    (("kind",), {"times": TIMES}),
    ((), {"items": ITEMS, "times": TIMES, "interactions": True}),
)
@for_each("permuted", (0,), (1,), (2,), (3,), (0, 2))
def test_permuted_features_contribute_what_columns_made_anew_do(by_value, more, permuted):
    features, folds, givers = random_features(N), random_folds(N), givers_of(N)
    layers = [random_layer(features, seed) for seed in (1, 2, 3)]
    columns = feature_columns(features, resolved=by_value)
    made = moments_of(features, layers, folds, by_value=by_value, **more)
    found = permuted_terms(made, permuted, givers)
    expected = anew(columns, layers, folds, permuted, givers, **more)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@for_each(
    "by_value, more",
    ((), {}),
    (("kind", "length"), {}),
    ((), {"interactions": True}),
    (("kind",), {"items": ITEMS}),
    (("kind",), {"times": TIMES}),
)
@for_each("feature", 0, 1)
def test_moments_of_permuted_features_are_those_of_columns_made_anew(by_value, more, feature):
    features, folds, givers = random_features(N), random_folds(N), givers_of(N)
    layers = [random_layer(features, seed) for seed in (1, 2)]
    made = moments_of(features, layers, folds, by_value=by_value, **more)
    moments = made.moments
    permuted = PermutedFeature(moments.columns, (feature,), givers, moments.block)
    targets = [*made.distances, *map(pair_ranks, made.distances)]
    for row, of_row in zip(givers, permuted.moments(moments, targets), strict=True):
        columns = moments.columns.with_values_of(row, [feature])
        items, times = more.get("items"), more.get("times")
        anew = moments_of_columns(columns, layers, folds, items, times=times).moments
        for fold in range(5):
            for blocks in (anew.training(fold), anew.training(fold, 0)):
                hold_moments(of_row.within(blocks), anew.within(blocks))
            hold_moments(of_row.inside_fold(fold), anew.inside_fold(fold))


def hold_moments(found, expected):
    for name, array in expected._asdict().items():
        np.testing.assert_allclose(getattr(found, name), array, atol=1e-8, err_msg=name)


@for_each("feature", 0, 1)
@for_each("alone", False, True)
def test_features_given_by_distances_are_permuted_too(feature, alone):
    """Rows and columns of the distances change places; folds are over sentences and words."""
    rng, names = np.random.default_rng(0), ("a", "b", "c", "d")
    points = rng.random((4, 2))
    apart = np.abs(points[:, None] - points).sum(axis=2)
    values = rng.choice(np.array(names, dtype=object), N)
    rdm = FeatureColumn("meaning", "rdm", values, (0.0, 2.0), rdm=Rdm(names, apart))
    features = random_features(N)
    columns = [rdm, feature_columns(features)[feature]]
    if alone:
        columns, feature = columns[feature : feature + 1], 0
    # Three folds, and stimuli that stand between two of them.
    folds, givers = rng.integers(-3, 3, N), givers_of(N)
    layers = [random_layer(features, seed) for seed in (1, 2)]
    made = moments_of_columns(PairColumns.from_features(columns), layers, folds)
    found = permuted_terms(made, [feature], givers)
    expected = anew(columns, layers, folds, [feature], givers)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_the_others_as_one_leave_nearly_what_each_of_them_leaves():
    """Two features that go together; a third, of words, that layers know; all labels of words."""
    n, n_words, rng = 300, 60, np.random.default_rng(0)
    word = rng.integers(n_words, size=n)
    kind, place = rng.integers(0, 4, n_words)[word], rng.uniform(size=n)
    features = pd.DataFrame(
        {
            "kind": kind.astype(str),
            "near kind": np.where(rng.random(n) < 0.8, kind, rng.integers(0, 4, n)).astype(str),
            "place": place,
            "near place": place + 0.1 * rng.standard_normal(n),
        }
    )
    meaning, centres = rng.standard_normal((n_words, 6)), 1.5 * rng.standard_normal((4, 6))
    layers = [meaning[word] + centres[kind] + rng.standard_normal((n, 6)) for _ in range(2)]
    folds = random_folds(n)
    made = moments_of(features, layers, folds, by_value=("kind", "near kind"))
    _, first = np.unique(word, return_index=True)
    givers = np.stack([first[rng.permutation(n_words)][word] for _ in range(40)])
    of_speech = feature_columns(features, resolved=("kind", "near kind"))
    exact = []
    for row in givers:
        permuted = [replace(of_speech[0], values=of_speech[0].values[row]), *of_speech[1:]]
        again = moments_of_columns(PairColumns.from_features(permuted), layers, folds)
        exact.append(decompose(again.moments).terms[0, 0, 1])
    as_one = permuted_terms(made, [0], givers)[:, 0, 1]
    # Labels of words say which word it is.
    assert np.mean(exact) > 5 * np.std(exact) / np.sqrt(len(exact))
    np.testing.assert_allclose(as_one, exact, atol=0.03 * np.std(exact) + 1e-9)


def test_many_permutations_are_taken_a_few_at_a_time(monkeypatch):
    made, givers = made_up(by_value=("kind",)), givers_of(N, 7)
    at_once = permuted_terms(made, [0], givers)
    monkeypatch.setattr(permuted_contributions, "CHUNK", 1)
    monkeypatch.setattr(permuted_moments, "TILE", 1)
    np.testing.assert_allclose(permuted_terms(made, [0], givers), at_once, atol=1e-12)


def test_a_further_feature_contributes_what_it_does_among_the_columns():
    features, folds, givers = random_features(N), random_folds(N), givers_of(N)
    layers = [random_layer(features, seed) for seed in (1, 2)]
    made = moments_of(features, layers, folds, by_value=("kind",))
    number = FeatureColumn("number", "ordered", np.random.default_rng(3).random(N))
    permuted = PermutedContributions.from_moments(
        made.moments, [pair_ranks(own) for own in made.distances]
    )
    contributions = permuted.with_feature(number, "ignore").feature_contributions([4], givers)
    columns = [*feature_columns(features, resolved=("kind",)), number]
    expected = anew(columns, layers, folds, [4], givers)
    np.testing.assert_allclose(contributions, expected, atol=1e-9)
