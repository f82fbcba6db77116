"""The largest of many: bounds at once against independent quantiles, and a truth of nothing."""

from dataclasses import replace

import numpy as np
import pytest
from inputs import finished, two_systems
from scipy.stats import norm, t

from mlem_core.inference.explanation import as_chosen, explain
from mlem_core.inference.intervals import Left
from mlem_core.inference.jackknife import jackknife, standard_error
from mlem_core.inference.largest import of_largest


def means(n, n_blocks, seed, shared=0.0):
    """Means of independent (or correlated) normal numbers about 0, and without each."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_blocks, n)) + shared * rng.standard_normal((n_blocks, 1))
    return x.mean(axis=0), Left((x.sum(axis=0) - x) / (n_blocks - 1), (n_blocks,))


def test_the_reach_is_that_of_the_largest_of_independent_normal_numbers():
    value, left = means(20, 400, 0)
    error = standard_error(*left)
    for sides, tail in ((1, norm.cdf), (2, lambda z: 2 * norm.cdf(z) - 1)):
        found = of_largest(value, left, sides=sides)
        reach = (value - found.lower) / error
        assert np.ptp(reach) < 1e-9  # one reach for all
        # Of 20 independent ones none is further out, in 95 of 100.
        assert tail(reach[0]) ** 20 == pytest.approx(0.95, abs=0.012)
        own = t.ppf(0.95, 399) if sides == 1 else reach[0]
        np.testing.assert_allclose((found.upper - value) / error, own)
    # Copies of one number are one number.
    copies = Left(np.repeat(left.without[:, :1], 9, axis=1), left.sizes)
    alone = of_largest(np.repeat(value[:1], 9), copies)
    assert (alone.value - alone.lower)[0] / error[0] == pytest.approx(t.ppf(0.95, 399), rel=0.05)


def test_the_largest_of_nothing_is_seldom_above_0_and_alone_it_is_mostly():
    above, alone = [], []
    for seed in range(200):
        value, left = means(60, 40, seed, shared=0.5)
        at = value.argmax()
        above.append(of_largest(value, left).lower[at] > 0)
        alone.append(jackknife(value, *left).lower[at] > 0)
    assert np.mean(above) < 0.09 and np.mean(alone) > 0.4


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chosen")
    spec, layers = two_systems(folder)
    return finished(folder, spec, layers).analysis


def test_two_layers_that_were_chosen_say_so_and_others_do_not(analysis):
    a, b = analysis.most_alike()
    why = explain(analysis, a, b)
    why = replace(why, whole=why.whole.assign(lower=why.value - 0.1, upper=why.value + 0.1))
    found = as_chosen(why, analysis, analysis.layers)
    assert found.among == "9 pairs of layers of two models"
    assert "9 pairs of layers of two models: the lower bound" in found.how_sure
    # Without the intervals of all layers it is Sidak's for 9.
    reach = norm.ppf([0.95 ** (1 / 9), 0.95]) / norm.ppf(0.975)
    row = found.whole.iloc[0]
    assert row["lower"] == pytest.approx(why.value - 0.1 * reach[0])
    assert row["upper"] == pytest.approx(why.value + 0.1 * reach[1])
    other = explain(analysis, "one:0", "one:1")
    assert as_chosen(other, analysis, analysis.layers) is other
    assert as_chosen(why, analysis, [a, b]) is why


def test_in_groups_the_mean_over_members_comes_first(analysis):
    grouped = replace(
        analysis,
        layers=[*analysis.layers, *(("two-s1", k) for k in range(3))],
        rsa=np.block(
            [
                [analysis.rsa, analysis.rsa[:, 3:] - 0.1],
                [analysis.rsa[3:] - 0.1, analysis.rsa[3:, 3:]],
            ]
        ),
        spec=replace(
            analysis.spec,
            groups=(("g", ("two", "two-s1")),),
            representations=(*analysis.spec.representations, ("two-s1", "")),
        ),
    )
    (_, i), (_, j) = grouped.most_alike()
    why = explain(analysis, ("one", i), ("two", j))
    found = as_chosen(why, grouped, grouped.layers)
    assert found.among == "18 pairs of layers of models of two groups"
    mean = analysis.rsa[i, 3 + j] - 0.05
    said = f"The mean RSA of 2 pairs of members, one layer {i} and g layer {j}, is {mean:.2f}."
    assert found.headline.startswith(f"{said} Of these, one layer {i} and two layer {j} are")
