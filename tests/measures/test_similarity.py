"""RSA, τ, maps and trees of layers: SciPy, scikit-learn, and every pair tried."""

import itertools

import explicit
import numpy as np
import pytest
from inputs import index_of, sums_of
from scipy import stats
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata, spearmanr
from sklearn.manifold import MDS

from mlem_core.measures import similarity
from mlem_core.pairs.build import PassOptions
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.ranks import PairRanks


def ranks_of(layers):
    n = len(layers[0])
    ranks = PairRanks(len(layers), n_pairs(n))
    index = index_of(explicit.random_features(n))
    sums_of(index, layers, options=PassOptions(keep_ranks=ranks.put))
    return ranks


@pytest.mark.parametrize("in_memory", [True, False])
def test_rsa_equals_spearmanr_of_the_condensed_distances(in_memory, monkeypatch):
    if not in_memory:
        monkeypatch.setattr("mlem_core.pairs.ranks.IN_MEMORY_BYTES", 0)
    monkeypatch.setattr("mlem_core.pairs.ranks.BAND", 97)
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((50, 9)), rng.integers(0, 2, (50, 4)).astype(float)]
    layers.append(layers[0] + rng.standard_normal((50, 9)))
    rsa = ranks_of(layers).rsa()
    # Squares of whole numbers are exact, so that ties are ties on both sides.
    expected = spearmanr(np.transpose([pdist(layer, "sqeuclidean") for layer in layers]))
    np.testing.assert_allclose(rsa, expected.statistic, atol=1e-9)


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


def test_average_ranks_are_those_of_scipy():
    values = np.random.default_rng(0).integers(0, 9, 40) / 3
    np.testing.assert_array_equal(similarity.average_ranks(values), rankdata(values))
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


def test_feature_correlations_equal_pearson_over_pairs():
    features = explicit.random_features(60)
    index = index_of(features, explicit.random_folds(60))
    counts = np.bincount(index.cell_pattern, index.counts)
    found = similarity.feature_correlations(index.patterns, counts)
    expected = np.corrcoef(explicit.feature_distances(features).T)
    np.testing.assert_allclose(found, expected, atol=1e-12)


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
        found = similarity.most_alike(rsa, layers, groups=groups)
        assert found == (layers[seed], layers[4 + j])
        among = similarity.candidates(rsa, layers, groups=groups)
        assert len(among.cell) == 8 and among.what == "layers of models of two groups"
        # With nothing but seeds of one they are compared.
        seeds = similarity.most_alike(rsa[:4, :4], layers[:4], groups=groups)
        assert seeds[0][0] != seeds[1][0]
    nowhere = np.full((2, 2), np.nan)
    assert similarity.most_alike(nowhere, LAYERS[1:3]) == (("a", 1), ("a", 2))


def test_clustering_joins_what_is_nearest_on_average():
    rng = np.random.default_rng(4)
    rsa = np.corrcoef(rng.normal(size=(9, 12)))
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
