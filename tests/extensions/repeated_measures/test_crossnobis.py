"""Distances over repetitions: explicit products of pairs, rsatoolbox, noise and a planted truth."""

import itertools
from dataclasses import replace
from functools import partial

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


def dataset(given):
    """Repetitions as rsatoolbox has them, each centred over its stimuli."""
    import rsatoolbox

    n_repetitions, n_stimuli, n_units = given.shape
    return rsatoolbox.data.Dataset(
        (given - given.mean(axis=1, keepdims=True)).reshape(-1, n_units),
        obs_descriptors={
            "stimulus": np.tile(np.arange(n_stimuli), n_repetitions),
            "run": np.repeat(np.arange(n_repetitions), n_stimuli),
        },
    )


def crossnobis_by_rsatoolbox(given, precision):
    import rsatoolbox

    (rdm,) = rsatoolbox.rdm.calc_rdm_crossnobis(
        dataset(given), "stimulus", noise=precision, cv_descriptor="run"
    ).dissimilarities
    return rdm * given.shape[2]


def precision_by_rsatoolbox(given, method):
    """The inverse covariance of the noise in all stimuli, of as many degrees of freedom."""
    from rsatoolbox.data.noise import prec_from_unbalanced

    n_repetitions, n_stimuli, _ = given.shape
    degrees = (n_repetitions - 1) * (n_stimuli - 1) - 2 * (method == "diag")
    return prec_from_unbalanced(dataset(given), "stimulus", dof=degrees, method=method)


METHODS = {shrunken: "shrinkage_diag", diagonal: "diag"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("n_repetitions", "n_stimuli"), [(2, 12), (5, 12), (3, 23)])
@pytest.mark.parametrize("weigh", METHODS)
def test_each_pair_is_rsatoolboxs_by_the_noise_of_the_others(n_repetitions, n_stimuli, weigh):
    given = measured(n_repetitions, n_stimuli)
    found = cross_validated_distances(given, weigh)
    n_groups, expected = min(n_stimuli, 20), []
    for i, j in itertools.combinations(range(n_stimuli), 2):
        groups = {i % n_groups, j % n_groups}
        if len(groups) == 1:
            # Of one group the last pair of groups in order: (0, 19), (1, 19) ...
            groups.add(n_groups - 1)
        others = [k for k in range(n_stimuli) if k % n_groups not in groups]
        precision = precision_by_rsatoolbox(given[:, others], METHODS[weigh])
        expected.append(crossnobis_by_rsatoolbox(given[:, [i, j]], precision)[0])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert (found < 0).any()
    non_negative = np.array(expected) - min(expected)
    np.testing.assert_allclose(non_negative_distances(given, weigh), non_negative, atol=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weigh", METHODS)
@pytest.mark.parametrize("n_units", [6, 60])
def test_by_one_covariance_all_are_rsatoolboxs(weigh, n_units):
    given = measured(4, 11, n_units)
    centred = given - given.mean(axis=1, keepdims=True)
    noise = (centred - centred.mean(axis=0)).reshape(-1, n_units)
    expected = crossnobis_by_rsatoolbox(given, precision_by_rsatoolbox(given, METHODS[weigh]))
    found = cross_validated_distances(given, lambda rows, *_: weigh(rows, noise, 3 * 10))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_without_a_covariance_they_are_the_products_of_repetitions():
    given = measured(4, 11, 5)
    expected = []
    for i, j in itertools.combinations(range(11), 2):
        products = [
            (given[m, i] - given[m, j]) @ (given[n, i] - given[n, j])
            for m, n in itertools.permutations(range(4), 2)
        ]
        expected.append(np.mean(products))
    found = cross_validated_distances(given, lambda rows, *_: rows)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(crossnobis_by_rsatoolbox(given, np.eye(5)), expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["crossnobis", "crossnobis-diagonal"])
def test_they_are_registered_distances(name):
    given = measured()
    weigh = shrunken if name == "crossnobis" else diagonal
    np.testing.assert_array_equal(
        squared_distances(given, name), non_negative_distances(given, weigh)
    )
    assert name not in metrics()
    for rows in (given[0], given[:1]):
        with refused("V1", "at least two"):
            squared_distances(rows, name, layer="V1")


def test_what_cannot_be_compared_is_refused():
    given = measured()
    same = np.stack([given[0]] * 3)
    with refused("V1", "all the same in 10 stimuli"):
        squared_distances(same, "crossnobis", layer="V1")
    same[0, :2] += 1
    with refused("all the same in 10 stimuli"):
        squared_distances(same, "crossnobis")
    with refused("9 stimuli", "at least 10"):
        squared_distances(given[:, :9], "crossnobis")
    given[1, 4, 2] = np.nan
    with refused("repetition 2", "row 5"):
        squared_distances(given, "crossnobis")


@pytest.mark.parametrize("weigh", METHODS)
def test_a_unit_without_noise_has_no_weight(weigh):
    given = measured()
    given[:, :, 3] = np.arange(12)
    expected = cross_validated_distances(np.delete(given, 3, axis=2), weigh)
    np.testing.assert_allclose(cross_validated_distances(given, weigh), expected, atol=1e-9)


def test_noise_that_is_the_same_in_all_units_has_distances():
    given = np.repeat(measured(2, 12, 1), 5, axis=2)
    assert np.isfinite(cross_validated_distances(given)).all()


@for_each(
    "weigh, n_draws, slack",
    # A shrunken covariance is not right on average, and nor is its inverse.
    (lambda rows, *_: rows, 150, 0.0),
    (diagonal, 150, 0.0),
    (shrunken, 150, 0.1),
    ids=["plain", "diagonal", "shrunken"],
)
def test_noise_is_at_no_distance_and_a_planted_one_is_found_without_bias(weigh, n_draws, slack):
    rng = np.random.default_rng(1)
    n_units = 8
    truth = np.zeros((10, n_units))
    truth[5:] = rng.standard_normal(n_units)
    between, planted = pdist(truth) > 0, (truth[5] ** 2).sum()
    plain, means = [], []
    for _ in range(n_draws):
        given = truth + rng.standard_normal((4, 10, n_units))
        plain.append(((given[:, 0] - given[:, 1]).mean(axis=0) ** 2).sum())
        found = cross_validated_distances(given, weigh)
        means.append([found[~between].mean(), found[between].mean()])
    # The distance of means is too large by the noise, by as much for all pairs.
    assert np.mean(plain) > 0.8 * 2 * n_units / 4
    (same, apart), error = np.mean(means, axis=0), np.std(means, axis=0) / np.sqrt(n_draws)
    assert abs(same) < 3 * error[0]
    assert abs(apart - planted) < 3 * error[1] + slack * planted


def test_noise_that_differs_between_units_and_stimuli_is_at_no_distance():
    """Two repetitions, more units than degrees of freedom: by one covariance it is far from 0."""
    rng = np.random.default_rng(2)
    mixed = np.eye(30) + 0.5 * rng.standard_normal((30, 30))
    level = np.where(np.arange(12) < 6, 1.0, 3.0)
    loud = np.add.outer(level, level)[np.triu_indices(12, 1)] == 6
    means, by_one = [], []
    for _ in range(100):
        given = level[:, None] * (rng.standard_normal((2, 12, 30)) @ mixed)
        noise = (given - given.mean(axis=0)).reshape(-1, 30)
        means.append(cross_validated_distances(given)[loud].mean())
        weigh = partial(lambda rows, *_, noise: shrunken(rows, noise, 11), noise=noise)
        by_one.append(cross_validated_distances(given, weigh)[loud].mean())
    assert abs(np.mean(means)) < 3 * np.std(means) / 10
    assert np.mean(by_one) > 10 * np.std(by_one) / 10


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
