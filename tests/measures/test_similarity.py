"""RSA, τ, maps and trees of layers by libraries, and pairs that surprise, which are planted."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import explicit
from helpers.inputs import for_each, statistics_of
from scipy import stats
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr
from sklearn.manifold import MDS

from mlem_core.measures import similarity
from mlem_core.measures.decomposition import (
    APART,
    MOST,
    NOT_EXPLAINED,
    PREDICTED,
    discordant_pairs,
)
from mlem_core.measures.similarity import tau_by_chance
from mlem_core.pairs.ranks import NumbersInFile, PairRanks, pair_ranks

FOLDS = explicit.random_folds(50)


@pytest.mark.parametrize("in_memory", [True, False])
def test_rsa_equals_spearmanr_of_the_condensed_distances(in_memory, monkeypatch):
    if not in_memory:
        monkeypatch.setattr("mlem_core.pairs.ranks.IN_MEMORY_BYTES", 0)
    monkeypatch.setattr("mlem_core.pairs.ranks.AT_ONCE", 97)
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((50, 9)), rng.integers(0, 2, (50, 4)).astype(float)]
    layers.append(layers[0] + rng.standard_normal((50, 9)))
    squared = [explicit.squared(layer) for layer in layers]
    ranks = PairRanks(3, len(squared[0]))
    for at, own in enumerate(squared):
        ranks.put(at, pair_ranks(own))
    of_moments = statistics_of(explicit.random_features(50), layers, FOLDS).moments.rsa
    # Squares of whole numbers are exact, so that ties are ties on both sides.
    expected = spearmanr(np.transpose([pdist(layer, "sqeuclidean") for layer in layers]))
    for rsa in (ranks.rsa(), of_moments):
        np.testing.assert_allclose(rsa, expected.statistic, atol=1e-9)


def test_of_numbers_in_a_file_only_what_is_read_is_in_memory(tmp_path):
    values = np.random.default_rng(0).integers(0, 2**32, 2**20, dtype=np.uint32)
    with (tmp_path / "numbers").open("w+b") as file:
        NumbersInFile.from_values(values[:7], file)
        numbers = NumbersInFile.from_values(values, file)
        for start in range(0, len(values), 2**16):
            part = slice(start, start + 2**16)
            np.testing.assert_array_equal(numbers[part], values[part])
    assert str(file.name) not in Path("/proc/self/maps").read_text()


def test_tau_is_that_of_scipy_also_with_ties():
    profiles = np.round(np.random.default_rng(1).normal(size=(9, 6)), 0)
    tau = similarity.weighted_tau(profiles)
    for a, b in itertools.combinations(range(9), 2):
        expected = np.nan_to_num(stats.weightedtau(profiles[a], profiles[b]).statistic)
        assert tau[a, b] == tau[b, a] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("profiles", [[[0.0, 0.0, 0.0], [3.0, 1.0, 2.0]], [[0.1], [0.2]]])
def test_tau_of_a_flat_profile_or_of_one_feature_is_0(profiles):
    np.testing.assert_array_equal(similarity.weighted_tau(np.array(profiles)), np.eye(2))


def test_a_map_and_its_stress_are_those_of_scikit_learn():
    distances = squareform(pdist(np.random.default_rng(3).standard_normal((30, 6))))
    start = similarity._classical_mds(distances)
    found = similarity.mds_map(distances)
    for normalized in (False, True):
        mds = MDS(
            2, metric="precomputed", init="random", n_init=1, normalized_stress=normalized
        )  # fmt: skip
        expected = mds.fit_transform(distances, init=start)
        if not normalized:
            np.testing.assert_allclose(pdist(found), pdist(expected), atol=1e-9)
            continue
        assert similarity.map_stress(distances, expected) == pytest.approx(mds.stress_, rel=1e-9)
        assert similarity.map_stress(distances, found) == pytest.approx(mds.stress_, rel=1e-9)


def test_agreement_is_spearman_of_the_triangles():
    a, b = (squareform(np.random.default_rng(s).integers(0, 9, 45).astype(float)) for s in (1, 2))
    expected = spearmanr(squareform(a), squareform(b)).statistic
    assert similarity.agreement(a, b) == pytest.approx(expected, abs=1e-12)
    assert np.isnan(similarity.agreement(a, np.eye(10)))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_maps_of_very_few_layers(n):
    distances = squareform(np.full(n * (n - 1) // 2, 0.4)) if n > 1 else np.zeros((1, 1))
    found = similarity.mds_map(distances)
    assert found.shape == (n, 2)
    np.testing.assert_allclose(pdist(found), 0.4, atol=1e-3) if n > 1 else None


@for_each(
    "more",
    {"missing": "level"},
    {"resolved": ("kind", "length")},
    {"interactions": True},
)
def test_feature_correlations_equal_pearson_over_pairs(more):
    """Of squared distances; by value they are those of same or different."""
    features = explicit.random_features(50)
    moments = statistics_of(features, [explicit.random_layer(features)], FOLDS, **more).moments
    found = similarity.correlations_of_features(moments)
    distances = explicit.feature_distances(features, more.get("missing", "ignore"))
    np.testing.assert_allclose(found, np.corrcoef(distances.T**2), atol=1e-12)
    same = features.assign(kind="noun")
    moments = statistics_of(same, [explicit.random_layer(features)], FOLDS).moments
    assert np.isnan(similarity.correlations_of_features(moments)[0]).all()


@pytest.mark.parametrize("n", [4, 5, 6])
def test_tau_by_chance_is_that_of_every_order(n):
    orders = itertools.permutations(range(n))
    taus = [abs(stats.weightedtau(np.arange(n), order).statistic) for order in orders]
    assert similarity.tau_by_chance(n) == pytest.approx(np.quantile(taus, 0.95, method="higher"))


def test_tau_by_chance_of_many_features_is_that_of_random_profiles():
    profiles = np.random.default_rng(1).random((150, 9))
    taus = np.abs(similarity.weighted_tau(profiles)[np.triu_indices(150, 1)])
    assert similarity.tau_by_chance(9) == pytest.approx(np.quantile(taus, 0.95), abs=0.02)
    assert similarity.tau_by_chance(8) == pytest.approx(0.63, abs=0.01)
    assert similarity.tau_by_chance(2) == similarity.tau_by_chance(1) == 1.0


LAYERS = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]


def test_the_most_alike_layers_are_those_of_every_pair_tried():
    rng = np.random.default_rng(3)
    for _ in range(50):
        rsa = rng.uniform(-1, 1, (6, 6))
        rsa = (rsa + rsa.T) / 2
        rsa[rng.random((6, 6)) < 0.1] = np.nan
        tried = {
            (LAYERS[i], LAYERS[j]): rsa[i, j]
            for i, j in itertools.combinations(range(6), 2)
            if LAYERS[i][0] != LAYERS[j][0] and LAYERS[i][1] and LAYERS[j][1]
            if np.isfinite(rsa[i, j])
        }
        assert similarity.most_alike(rsa, LAYERS) == max(tried, key=tried.get)


def test_embeddings_and_layers_of_one_model_come_last():
    rsa = np.full((6, 6), 0.1)
    rsa[1, 2] = rsa[2, 1] = 0.99  # of one model
    rsa[0, 3] = rsa[3, 0] = 0.95  # the embeddings of two
    rsa[2, 4] = rsa[4, 2] = 0.3
    assert similarity.most_alike(rsa, LAYERS) == (("a", 2), ("b", 1))
    # The first layer of a recording is no embedding.
    assert similarity.most_alike(rsa, LAYERS, files=("a", "b")) == (("a", 0), ("b", 0))


def test_models_of_two_groups_come_before_two_of_one():
    layers = [(model, n) for model in ("a", "a-s1", "b") for n in (1, 2)]
    for seed in range(20):
        rsa = np.random.default_rng(seed).uniform(-1, 1, (6, 6))
        # The mean over both seeds chooses the layers, not the highest of one.
        means = {(i, j): (rsa[i, 4 + j] + rsa[2 + i, 4 + j]) / 2 for i in (0, 1) for j in (0, 1)}
        i, j = max(means, key=means.get)
        seed = max((i, 2 + i), key=lambda at: rsa[at, 4 + j])
        groups = {"a": "a", "a-s1": "a"}
        assert similarity.most_alike(rsa, layers, groups=groups) == (layers[seed], layers[4 + j])
        among = similarity.candidates(rsa, layers, groups=groups)
        assert len(among.cell) == 8 and among.what == "layers of models of two groups"
        # With nothing but seeds of one they are compared.
        seeds = similarity.most_alike(rsa[:4, :4], layers[:4], groups=groups)
        assert seeds[0][0] != seeds[1][0]
    assert similarity.most_alike(np.full((2, 2), np.nan), LAYERS[1:3]) == (("a", 1), ("a", 2))


def test_clustering_joins_what_is_nearest_on_average():
    rsa = np.corrcoef(np.random.default_rng(4).normal(size=(9, 12)))
    tree = similarity.clustering(rsa)
    groups = {place: [place] for place in range(9)}
    for step, (a, b, height, size) in enumerate(tree):
        means = {
            (i, j): np.mean([1 - rsa[x, y] for x in groups[i] for y in groups[j]])
            for i, j in itertools.combinations(groups, 2)
        }
        assert height == pytest.approx(min(means.values()))
        assert means[tuple(sorted((int(a), int(b))))] == pytest.approx(height)
        groups[9 + step] = groups.pop(int(a)) + groups.pop(int(b))
        assert len(groups[9 + step]) == size


TWELVE = [(model, layer) for model in ("a", "b") for layer in range(6)]


def square(rng, low, high):
    """A symmetric matrix of similarities."""
    values = rng.uniform(low, high, (12, 12))
    return np.triu(values, 1) + np.triu(values, 1).T + np.eye(12)


@pytest.fixture
def agreeing():
    """Two similarities in the same order, of well predicted layers, half explained."""
    rsa = square(np.random.default_rng(0), 0.2, 0.8)
    return {
        "rsa": rsa,
        "tau": rsa.copy(),
        "unexplained": rsa / 2,
        "layers": TWELVE,
        "rho": np.full(12, 0.5),
        "n_features": 8,
    }


def planted(given, name, i, j, value):
    changed = given[name].copy()
    changed[i, j] = changed[j, i] = value
    return {**given, name: changed}


def test_nothing_surprises_where_both_agree_and_features_explain(agreeing):
    assert discordant_pairs(**agreeing).empty


def test_a_planted_disagreement_is_found_with_its_ranks(agreeing):
    given = planted(planted(agreeing, "rsa", 1, 8, 0.95), "tau", 1, 8, -0.5)
    (row,) = discordant_pairs(**given).to_dict("records")
    assert (row["kind"], row["layer_a"], row["layer_b"]) == ("distances", "a:1", "b:2")
    # By hand: it is the first of the 36 pairs of both models in RSA, and the last in τ.
    assert row["above_rsa"] == pytest.approx(35.5 / 36)
    assert row["above_tau"] == pytest.approx(0.5 / 36)
    given = planted(planted(agreeing, "rsa", 1, 8, 0.0), "tau", 1, 8, 0.95)
    assert set(discordant_pairs(**given)["kind"]) == {"features"}


def test_every_row_is_what_the_docstring_says(agreeing):
    rng = np.random.default_rng(2)
    given = {**agreeing, "tau": square(rng, -1.0, 1.0), "unexplained": agreeing["rsa"] * 0.9}
    found = discordant_pairs(**given)
    pairs = [(i, j) for i in range(6) for j in range(6, 12)]
    rsa = np.array([given["rsa"][pair] for pair in pairs])
    tau = np.array([given["tau"][pair] for pair in pairs])
    at = {(f"a:{i}", f"b:{j - 6}"): number for number, (i, j) in enumerate(pairs)}
    for row in found.to_dict("records"):
        k = at[row["layer_a"], row["layer_b"]]
        assert row["above_rsa"] == pytest.approx(((rsa < rsa[k]).sum() + 0.5) / 36)
        assert row["above_tau"] == pytest.approx(((tau < tau[k]).sum() + 0.5) / 36)
        apart = row["above_rsa"] - row["above_tau"]
        if row["kind"] == "distances":
            assert apart >= APART and row["tau"] <= tau_by_chance(8)
        elif row["kind"] == "features":
            assert apart <= -APART and row["tau"] > tau_by_chance(8)
        else:
            assert row["unexplained"] >= NOT_EXPLAINED and row["above_rsa"] > 0.5
    for _, rows in found.groupby("kind"):
        assert len(rows) <= MOST and pd.concat([rows["layer_a"], rows["layer_b"]]).is_unique


def test_what_the_audit_changes_is_not_named_and_few_pairs_are_too_few(agreeing):
    given = planted(planted(agreeing, "rsa", 1, 8, 0.95), "tau", 1, 8, -0.5)
    assert discordant_pairs(**given, left_out={frozenset((("a", 1), ("b", 2)))}).empty
    few = [0, 1, 2, 6, 7, 8]
    cut = {name: given[name][np.ix_(few, few)] for name in ("rsa", "tau", "unexplained")}
    rest = {"layers": [TWELVE[i] for i in few], "rho": given["rho"][few], "n_features": 8}
    assert discordant_pairs(**cut, **rest).empty
    # Where it is not known what is explained, no pair is named for it.
    assert set(discordant_pairs(**{**given, "unexplained": None})["kind"]) == {"distances"}


def test_layers_that_no_feature_predicts_are_in_no_disagreement(agreeing):
    noise = {**agreeing, "tau": square(np.random.default_rng(1), -1.0, 1.0)}
    assert not discordant_pairs(**noise).empty
    assert discordant_pairs(**{**noise, "rho": np.full(12, PREDICTED / 2)}).empty
