"""Distances over repetitions: explicit products of pairs, rsatoolbox, noise and a planted truth."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from helpers.inputs import for_each, in_files, refused, words
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

from mlem_core import run
from mlem_core.extensions.repeated_measures.crossnobis import (
    cross_validated_distances,
    diagonal,
    non_negative_distances,
    shrunken,
)
from mlem_core.pairs.distances import metrics, squared_distances


def measured(n_repetitions=3, n_stimuli=12, n_units=6, seed=0):
    """Repetitions with noise that is correlated over units, and a level of each repetition."""
    rng = np.random.default_rng(seed)
    mixed = np.eye(n_units) + 0.4 * rng.standard_normal((n_units, n_units))
    noise = rng.standard_normal((n_repetitions, n_stimuli, n_units)) @ mixed
    level = 5 * rng.standard_normal((n_repetitions, 1, n_units))
    return rng.standard_normal((n_stimuli, n_units)) + noise + level


def by_pairs(given, precision=None, shrink=False):
    """The mean over ordered pairs of different repetitions, one product at a time."""
    found = []
    for i, j in itertools.combinations(range(given.shape[1]), 2):
        if precision is None:
            # Of one group the last pair of groups in order: (0, 4), (1, 4), (2, 4), (3, 4), (3, 4).
            groups = {i % 5, j % 5} if i % 5 != j % 5 else {i % 5, 4 if i % 5 < 4 else 3}
            others = [k for k in range(given.shape[1]) if k % 5 not in groups]
            own = np.linalg.inv(covariance(given[:, others], shrink))
        else:
            own = precision
        products = [
            (given[m, i] - given[m, j]) @ own @ (given[n, i] - given[n, j])
            for m, n in itertools.permutations(range(len(given)), 2)
        ]
        found.append(np.mean(products))
    return np.array(found)


def covariance(given, shrink):
    """The covariance of the noise by its definition, shrunk by scikit-learn or its diagonal."""
    from sklearn.covariance import LedoitWolf

    left = given - given.mean(axis=0) - given.mean(axis=1, keepdims=True) + given.mean(axis=(0, 1))
    rows = left.reshape(-1, given.shape[2])
    more = len(rows) / ((len(given) - 1) * (given.shape[1] - 1))
    if shrink:
        return more * LedoitWolf(assume_centered=True).fit(rows).covariance_
    degrees = len(rows) / more
    return np.diag((rows**2).sum(axis=0) / (degrees - 2))


@pytest.mark.parametrize("n_repetitions", [2, 3, 5])
@pytest.mark.parametrize(("whiten", "shrink"), [(shrunken, True), (diagonal, False)])
def test_they_are_the_products_of_explicit_pairs(n_repetitions, whiten, shrink):
    given = measured(n_repetitions)
    expected = by_pairs(given, shrink=shrink)
    found = cross_validated_distances(given, whiten)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    assert (found < 0).any()
    np.testing.assert_allclose(
        non_negative_distances(given, whiten), expected - expected.min(), atol=1e-9
    )


@pytest.mark.filterwarnings("ignore")
def test_they_are_those_of_rsatoolbox():
    import rsatoolbox

    given = measured(4, 11, 5)
    n_repetitions, n_stimuli, n_units = given.shape
    data = rsatoolbox.data.Dataset(
        given.reshape(-1, n_units),
        obs_descriptors={
            "stimulus": np.tile(np.arange(n_stimuli), n_repetitions),
            "run": np.repeat(np.arange(n_repetitions), n_stimuli),
        },
    )
    for precision in (np.eye(n_units), np.linalg.inv(covariance(given, True))):
        factor = np.linalg.cholesky(precision)
        expected = rsatoolbox.rdm.calc_rdm(
            data, "crossnobis", descriptor="stimulus", cv_descriptor="run", noise=precision
        ).dissimilarities[0]
        found = cross_validated_distances(given, lambda rows, *_, factor=factor: rows @ factor)
        np.testing.assert_allclose(by_pairs(given, precision) / n_units, expected, rtol=1e-8)
        np.testing.assert_allclose(found / n_units, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["crossnobis", "crossnobis-diagonal"])
def test_they_are_registered_distances(name):
    given = measured()
    whiten = shrunken if name == "crossnobis" else diagonal
    np.testing.assert_array_equal(
        squared_distances(given, name), non_negative_distances(given, whiten)
    )
    assert name not in metrics()
    for rows in (given[0], given[:1]):
        with refused("V1", "at least two"):
            squared_distances(rows, name, layer="V1")


def test_what_cannot_be_compared_is_refused():
    given = measured()
    with refused("all the same"):
        squared_distances(np.stack([given[0]] * 3), "crossnobis")
    with refused("9 stimuli", "at least 10"):
        squared_distances(given[:, :9], "crossnobis")
    given[1, 4, 2] = np.nan
    with refused("repetition 2", "row 5"):
        squared_distances(given, "crossnobis")


def test_a_unit_without_noise_has_no_weight_by_variance():
    given = measured()
    given[:, :, 3] = np.arange(12)
    expected = cross_validated_distances(np.delete(given, 3, axis=2), diagonal)
    np.testing.assert_allclose(cross_validated_distances(given, diagonal), expected, atol=1e-9)


@for_each(
    "whiten, n_draws, slack",
    # A shrunken covariance is not right on average, and nor is its inverse.
    (lambda rows, *_: rows, 150, 0.0),
    (diagonal, 150, 0.0),
    (shrunken, 25, 0.1),
    ids=["plain", "diagonal", "shrunken"],
)
def test_noise_is_at_no_distance_and_a_planted_one_is_found_without_bias(whiten, n_draws, slack):
    rng = np.random.default_rng(1)
    n_units = 8
    truth = np.zeros((10, n_units))
    truth[5:] = rng.standard_normal(n_units)
    between, planted = pdist(truth) > 0, (truth[5] ** 2).sum()
    plain, means = [], []
    for _ in range(n_draws):
        given = truth + rng.standard_normal((4, 10, n_units))
        plain.append(((given[:, 0] - given[:, 1]).mean(axis=0) ** 2).sum())
        found = cross_validated_distances(given, whiten)
        means.append([found[~between].mean(), found[between].mean()])
    # The distance of means is too large by the noise, by as much for all pairs.
    assert np.mean(plain) > 0.8 * 2 * n_units / 4
    (same, apart), error = np.mean(means, axis=0), np.std(means, axis=0) / np.sqrt(n_draws)
    assert abs(same) < 3 * error[0]
    assert abs(apart - planted) < 3 * error[1] + slack * planted


def test_an_analysis_is_of_the_distances_over_repetitions(store, tmp_path):
    """Two regions measured four times: one that tells nouns apart, one of noise alone."""
    table = words()
    noise = np.random.default_rng(0).standard_normal((2, 4, len(table), 6))
    means = np.zeros((len(table), 6))
    means[:, 0] = 3 * table["noun"]
    regions = {"V1": means + noise[0], "nothing": noise[1]}
    np.savez(tmp_path / "scans.npz", **regions)
    files = (("brain", str(tmp_path / "scans.npz")),)
    spec = in_files(tmp_path, table, {}, folds=4, distance="crossnobis")
    spec = replace(spec, representations=files)
    analysis = run(spec, store)
    squared = [cross_validated_distances(rows, shrunken) for rows in regions.values()]
    assert analysis.rsa[0, 1] == pytest.approx(spearmanr(*squared).statistic, abs=1e-7)
    scores = analysis.results().scores.groupby("layer")["rho"].mean()
    assert scores[0] > 0.6 and abs(scores[1]) < 0.05
    # Without the choice it is the mean.
    mean = run(replace(spec, distance="euclidean"), store)
    distances = [pdist(rows.mean(axis=0)) for rows in regions.values()]
    assert mean.rsa[0, 1] == pytest.approx(spearmanr(*distances).statistic, abs=1e-7)
    (note,) = [n for n in mean.notices if "repetitions" in n]
    assert "scans.npz" in note and "4 repetitions" in note and "mean" in note
