"""Permutation tests of properties: all orders by hand, least squares, level and power."""

import itertools

import numpy as np
import pytest

from mlem_core.extensions.systems.property_tests import (
    _codes,
    _units,
    permutation_tests,
    same_label,
)
from validation.second_level import symmetric


def least_squares(y, columns, upper):
    """Size of the first column's t, its error by sums over the pairs of each model."""
    x = np.column_stack([*columns, np.ones(len(y))])
    inverse = np.linalg.inv(x.T @ x)
    solved = inverse @ x.T @ y
    scores = x * (y - x @ solved)[:, None]
    meat = 0
    for model in range(upper.max() + 1):
        own = scores[(upper == model).any(axis=0)].sum(axis=0)
        meat = meat + np.outer(own, own)
    return abs(solved[0]) / np.sqrt((inverse @ meat @ inverse)[0, 0])


def brute_force(similarity, factors, name):
    """Size of t, p and the smallest p, over all orders that leave the other factors as they are.

    Where the factor is the same in all of another's labels, these are whole groups that move.
    """
    n, same = len(similarity), {key: same_label(labels) for key, labels in factors.items()}
    orders = np.array(list(itertools.permutations(range(n))))
    upper = np.stack(np.triu_indices(n, 1))
    of_each = [(upper == model).any(axis=0) for model in range(n)]
    others = [square for key, square in same.items() if key != name]
    for other in others:
        moved = other[orders[:, upper[0]], orders[:, upper[1]]]
        orders = orders[(moved == other[*upper]).all(axis=1)]
    rest = [*(other[*upper] for other in others), *of_each[:-1]]
    t = least_squares(similarity[*upper], [same[name][*upper], *rest], upper)
    moved = np.unique(same[name][orders[:, upper[0]], orders[:, upper[1]]], axis=0)
    found = [least_squares(similarity[*upper], [one, *rest], upper) for one in moved]
    return t, float(np.mean(np.array(found) >= t - 1e-9)), 1 / len(moved)


@pytest.mark.parametrize(
    ("kind", "objective"),
    # Unbalanced; partly nested, where two kinds of one model each exchange their objectives.
    [("aaaaabbb", "xxyyyxyx"), ("aaaabbcd", "xyzxxyyx")],
)
def test_models_that_agree_on_the_other_factors_exchange_labels(kind, objective):
    factors = {"objective": list(objective), "kind": list(kind)}
    similarity = symmetric(np.random.default_rng(1), 8)
    found = permutation_tests(similarity, factors)[0][0]
    assert found[1:] == pytest.approx(brute_force(similarity, factors, "objective"))


def test_groups_permuted_as_a_whole():
    """The mean over the models of each two groups stands for them, and is what is regressed."""
    factors = {"group": list("aabbccddeeeff"), "objective": list("xxyyxxzzyyyxx")}
    similarity = symmetric(np.random.default_rng(1), 13)
    group, objective = permutation_tests(similarity, factors, n_permutations=99)[0]
    belongs = np.array([[one == of for one in factors["group"]] for of in "abcdef"], dtype=float)
    means = belongs @ similarity @ belongs.T / np.outer(belongs.sum(axis=1), belongs.sum(axis=1))
    expected = brute_force(means, {"objective": list("xyxzyx")}, "objective")
    assert objective[1:] == pytest.approx(expected)
    # Only models of the same objective exchange their groups, and two of one group as a whole.
    _, strata = _units([factors["group"]], [_codes(factors["objective"])])
    assert len(strata) == 12 and group.p >= 1 / 100


def test_random_orders_come_near_to_all_of_them(monkeypatch):
    factors = {"family": list("aaabbbccc"), "objective": list("xyxyyxyxx")}
    similarity = symmetric(np.random.default_rng(2), 9) + 0.3 * same_label(factors["family"])
    exact = permutation_tests(similarity, factors)[0]
    monkeypatch.setattr("mlem_core.extensions.systems.property_tests.EXACT", 3)
    drawn = permutation_tests(similarity, factors, n_permutations=9_999)[0]
    for one, other in zip(exact, drawn, strict=True):
        assert other.p == pytest.approx(one.p, abs=0.02)
        assert other.smallest == pytest.approx(one.smallest)


@pytest.mark.parametrize(
    ("labels", "smallest", "few"),
    # 3! 3! 2 of 6! orders leave the labels as they are.
    [("xxxyyy", 0.1, True), ("xxxxyyyy", 2 / 70, False)],
)
def test_too_few_models_have_no_p(labels, smallest, few):
    similarity = symmetric(np.random.default_rng(3), len(labels))
    (test,), _ = permutation_tests(similarity, {"objective": list(labels)})
    assert test.smallest == pytest.approx(smallest) and np.isnan(test.p) == few


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        ({"f": "xxxxx"}, ["'f'", "the same label"]),
        ({"f": "abcde"}, ["'f'", "another label"]),
        ({"f": "xxyyy", "g": "aabbb"}, ["f and g", "separated"]),
        ({"f": "xyy"}, ["3 systems"]),
    ],
)
def test_what_cannot_be_tested_is_refused(labels, facts):
    similarity = symmetric(np.random.default_rng(0), len(labels["f"]))
    tests, notes = permutation_tests(
        similarity, {name: list(each) for name, each in labels.items()}
    )
    assert not tests and all(fact in note for fact in facts for note in notes)


def labelled(design):
    """The labels of the models of a design, and what of them has a similarity of its own."""
    if design == "partly":
        objectives = ["0011", "0011", "0011", "000", "111"]
        families = np.repeat(np.arange(5), [*map(len, objectives)])
        return {"family": list(map(str, families)), "objective": [*"".join(objectives)]}, families
    group_of = np.arange(12)
    families, objectives = group_of // 3, np.tile([0, 1], 6)
    if design == "nested":
        group_of = np.repeat(np.arange(9), 3)
        families, objectives = group_of // 3, np.array([0, 1, 0, 1, 1, 0, 0, 1, 1])[group_of]
    factors = {"family": list(map(str, families)), "objective": list(map(str, objectives))}
    if design == "nested":
        factors["group"] = list(map(str, group_of))
    return factors, group_of


def similarities(rng, factors, group_of, effect):
    """Similarities of models: two of one family or objective more, each model more or less so."""
    own = rng.standard_normal(len(group_of)) * 0.1
    pairs = symmetric(rng, int(group_of.max()) + 1) * 0.2
    found = 0.3 * same_label(factors["family"]) + effect * same_label(factors["objective"])
    found += own[:, None] + own
    found += pairs[np.ix_(group_of, group_of)] + 0.1 * symmetric(rng, len(group_of))
    return found


def rejected(effect, design, n):
    """How often the objective is found beside a family that has an effect."""
    rng, count = np.random.default_rng(0), 0
    factors, group_of = labelled(design)
    for _ in range(n):
        tests, _ = permutation_tests(
            similarities(rng, factors, group_of, effect), factors, n_permutations=199
        )
        count += tests[list(factors).index("objective")].p <= 0.05
    return count / n


@pytest.mark.slow
@pytest.mark.parametrize("design", ["crossed", "nested", "partly"])
def test_the_level_holds_beside_a_planted_family_and_an_objective_is_found(design):
    assert 0.02 <= rejected(0.0, design, n=600) <= 0.07
    assert rejected(0.3, design, n=60) > 0.8
