"""RSA, τ, maps and trees of layers: SciPy, scikit-learn, and every pair tried."""

from __future__ import annotations

import itertools

import explicit
import numpy as np
import pytest
from inputs import index_of, sums_of
from scipy import stats
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata, spearmanr
from sklearn.manifold import MDS

from mlem_core.measures import similarity
from mlem_core.pairs import rank_store
from mlem_core.pairs.build import PassOptions
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.rank_store import PairRanks


def ranks_of(layers):
    n = len(layers[0])
    ranks = PairRanks(len(layers), n_pairs(n))
    index = index_of(explicit.random_features(n))
    sums_of(index, layers, options=PassOptions(keep_ranks=ranks.put))
    return ranks


@pytest.mark.parametrize("in_memory", [True, False])
def test_rsa_equals_spearmanr_of_the_condensed_distances(in_memory, monkeypatch):
    if not in_memory:
        monkeypatch.setattr(rank_store, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(rank_store, "BAND", 97)
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((50, 9)), rng.integers(0, 2, (50, 4)).astype(float)]
    layers.append(layers[0] + rng.standard_normal((50, 9)))
    with ranks_of(layers) as ranks:
        rsa = ranks.rsa()
    # Squares of whole numbers are exact, so that ties are ties on both sides.
    expected = spearmanr(np.transpose([pdist(layer, "sqeuclidean") for layer in layers]))
    np.testing.assert_allclose(rsa, expected.statistic, atol=1e-9)


def test_rsa_sees_no_rotation_scale_or_shift_and_nothing_in_a_constant_layer():
    rng = np.random.default_rng(0)
    layer = rng.standard_normal((40, 6))
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    rsa = ranks_of([layer, 7 * layer @ turn + 3, np.ones((40, 3))]).rsa()
    assert rsa[0, 1] == pytest.approx(1, abs=1e-9)
    np.testing.assert_array_equal(rsa[2], [0, 0, 1])


def brute_force_tau(x, y):
    """Vigna (2015): hyperbolic weights from each ranking in turn, averaged."""

    def one(a, b):
        order = np.lexsort((b, a))[::-1]
        rank = np.empty(len(a))
        rank[order] = np.arange(len(a))
        total = concordant = 0.0
        for i in range(len(a)):
            for j in range(i):
                weight = 1 / (rank[i] + 1) + 1 / (rank[j] + 1)
                total += weight
                concordant += weight * np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])
        return concordant / total

    return (one(x, y) + one(y, x)) / 2


def test_tau_equals_brute_force_and_with_ties_scipy():
    profiles = np.random.default_rng(0).random((4, 8))
    tau = similarity.weighted_tau(profiles)
    for a, b in itertools.product(range(4), repeat=2):
        assert tau[a, b] == pytest.approx(brute_force_tau(profiles[a], profiles[b]), abs=1e-12)
    profiles = np.round(np.random.default_rng(1).normal(size=(9, 6)), 0)
    tau = similarity.weighted_tau(profiles)
    for a, b in itertools.combinations(range(9), 2):
        expected = np.nan_to_num(stats.weightedtau(profiles[a], profiles[b]).statistic)
        assert tau[a, b] == tau[b, a] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("profiles", [[[0.0, 0.0, 0.0], [3.0, 1.0, 2.0]], [[0.1], [0.2]]])
def test_tau_of_a_flat_profile_or_of_one_feature_is_0(profiles):
    np.testing.assert_array_equal(similarity.weighted_tau(np.array(profiles)), np.eye(2))


def test_agreement():
    rng = np.random.default_rng(0)
    a = squareform(rng.random(10))
    assert similarity.agreement(a, 3 * a) == pytest.approx(1)
    assert similarity.agreement(a, -a) == pytest.approx(-1)
    assert np.isnan(similarity.agreement(a, np.eye(5)))
    assert np.isnan(similarity.agreement(np.eye(2), np.eye(2)))


def test_a_map_of_points_in_the_plane_keeps_their_distances():
    points = np.random.default_rng(0).standard_normal((12, 2))
    distances = squareform(pdist(points))
    found = similarity.mds_map(distances)
    np.testing.assert_allclose(squareform(pdist(found)), distances, atol=1e-2)
    np.testing.assert_array_equal(found, similarity.mds_map(distances))


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


def test_the_stress_of_a_map_counts_every_pair():
    rng = np.random.default_rng(0)
    far, points = squareform(rng.random(28)), rng.standard_normal((8, 2))
    off = norm = 0.0
    for i, j in itertools.combinations(range(8), 2):
        placed = np.hypot(*(points[i] - points[j]))
        off, norm = off + (placed - far[i, j]) ** 2, norm + placed**2
    assert similarity.map_stress(far, points) == pytest.approx(np.sqrt(off / norm), rel=1e-12)
    assert similarity.map_stress(squareform(pdist(points)), points) == pytest.approx(0, abs=1e-12)
    assert np.isnan(similarity.map_stress(far, np.zeros((8, 2))))


def test_average_ranks_are_those_of_scipy():
    values = np.random.default_rng(0).integers(0, 9, 40) / 3
    np.testing.assert_array_equal(similarity.average_ranks(values), rankdata(values))
    a, b = (squareform(np.random.default_rng(s).integers(0, 9, 45).astype(float)) for s in (1, 2))
    expected = spearmanr(squareform(a), squareform(b)).statistic
    assert similarity.agreement(a, b) == pytest.approx(expected, abs=1e-12)


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


def test_dissimilarities_that_no_points_have_still_give_a_map():
    """τ of three layers may be such; the largest distance is kept as well as the others allow."""
    far = np.array([[0.0, 0.1, 1.4], [0.1, 0.0, 0.1], [1.4, 0.1, 0.0]])
    points = similarity.mds_map(far)
    assert np.isfinite(points).all()
    placed = np.linalg.norm(points[:, None] - points[None, :], axis=-1)
    assert placed[0, 2] == placed.max() and placed[0, 1] == pytest.approx(placed[1, 2], abs=1e-3)


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


def test_models_of_two_recipes_come_before_two_seeds_of_one():
    layers = [(model, n) for model in ("a", "a-s1", "b") for n in (1, 2)]
    for seed in range(20):
        rsa = np.random.default_rng(seed).uniform(-1, 1, (6, 6))
        tried = {
            (layers[i], layers[j]): rsa[i, j]
            for i in range(6)
            for j in range(i + 1, 6)
            if (layers[i][0] == "b") != (layers[j][0] == "b")
        }
        recipes = {"a": "a", "a-s1": "a"}
        found = similarity.most_alike(rsa, layers, recipes=recipes)
        assert found == max(tried, key=tried.get)
        # With nothing but seeds of one they are compared.
        seeds = similarity.most_alike(rsa[:4, :4], layers[:4], recipes=recipes)
        assert seeds[0][0] != seeds[1][0]
    assert similarity.most_alike(rsa[:3, :3], LAYERS[:3]) == (("a", 1), ("a", 2))
    ends = np.ix_([0, 3], [0, 3])
    assert similarity.most_alike(rsa[ends], [("a", 0), ("b", 0)]) == (("a", 0), ("b", 0))
    assert similarity.most_alike(np.ones((1, 1)), [("a", 0)]) == (("a", 0), ("a", 0))
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


def test_clustering_puts_alike_layers_side_by_side_and_takes_what_is_not_defined_as_zero():
    order = np.array([3, 0, 4, 1, 2])
    apart = np.abs(order[:, None] - order) / 5
    leaves = hierarchy.leaves_list(similarity.clustering(1 - apart))
    found = order[leaves]
    assert list(found) in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0])
    rsa = np.where(apart > 0.5, np.nan, 1 - apart)
    np.testing.assert_array_equal(
        similarity.clustering(rsa), similarity.clustering(np.nan_to_num(rsa))
    )
    assert similarity.clustering(np.ones((1, 1))).shape == (0, 4)


@pytest.mark.parametrize("seed", range(8))
def test_extremes_are_those_of_every_pair_of_two_models(seed):
    rng = np.random.default_rng(seed)
    layers = [(model, n) for model in "abc" for n in range(3)]
    square = squareform(rng.uniform(-1, 1, 36))
    square[0, 5] = square[5, 0] = np.nan
    pairs = {
        square[i, j]: (layers[i], layers[j])
        for i, j in itertools.combinations(range(9), 2)
        if layers[i][0] != layers[j][0] and np.isfinite(square[i, j])
    }
    expected = pairs[max(pairs)], pairs[min(pairs)]
    assert similarity.extremes(square, layers) == expected


def test_extremes_of_one_model_and_of_no_similarity():
    layers = [("a", n) for n in range(3)]
    square = squareform([0.1, 0.9, 0.5])
    assert similarity.extremes(square, layers) == ((layers[0], layers[2]), (layers[0], layers[1]))
    assert similarity.extremes(np.full((3, 3), np.nan), layers) is None
