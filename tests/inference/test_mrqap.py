"""The test of what makes models alike: brute force, its level beside a family, its power."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from inputs import refused

from mlem_core.inference.mrqap import mrqap, same_label, table_of, too_few
from validation.mrqap import labelled, similarities, symmetric


def least_squares(y: np.ndarray, columns: list[np.ndarray]) -> tuple[float, float]:
    """The first column's coefficient and its t, by NumPy's least squares."""
    x = np.column_stack([*columns, np.ones(len(y))])
    solved = np.linalg.lstsq(x, y, rcond=None)[0]
    variance = ((y - x @ solved) ** 2).sum() / (len(y) - x.shape[1])
    return solved[0], solved[0] / np.sqrt(variance * np.linalg.inv(x.T @ x)[0, 0])


def brute_force(
    similarity: np.ndarray, factors: dict[str, list[str]], name: str, units: list[int]
) -> tuple[float, float, float]:
    """Coefficient, t and p, one permutation after the other, on whole matrices."""
    n = len(similarity)
    upper = np.triu_indices(n, 1)
    others = [same_label(labels)[upper] for key, labels in factors.items() if key != name]
    own = same_label(factors[name])
    x = np.column_stack([*others, np.ones(len(upper[0]))])
    rest = own[upper] - x @ np.linalg.lstsq(x, own[upper], rcond=None)[0]
    residual = np.zeros((n, n))
    residual[upper] = rest
    residual += residual.T
    value, t = least_squares(similarity[upper], [rest, *others])
    found = []
    for order in itertools.permutations(range(max(units) + 1)):
        moved = np.zeros((n, n))
        for i, j in zip(*upper, strict=True):
            a, b = order[units[i]], order[units[j]]
            # Any two different models of these units: all have the same residual.
            k, m = next(
                (k, m)
                for k, m in itertools.permutations(range(n), 2)
                if (units[k], units[m]) == (a, b)
            )
            moved[i, j] = residual[k, m]
        found.append(abs(least_squares(similarity[upper], [moved[upper], *others])[1]))
    return value, t, float(np.mean(np.array(found) >= abs(t) - 1e-9))


def test_models_permuted_one_by_one() -> None:
    factors = {"family": list("aabbcc"), "objective": list("xyxyyx")}
    similarity = symmetric(np.random.default_rng(0), 6)
    for test in mrqap(similarity, factors):
        value, t, p = brute_force(similarity, factors, test.factor, list(range(6)))
        assert (test.value, test.t, test.p) == pytest.approx((value, t, p))
        assert (test.permuted, test.n, test.n_permutations) == ("models", 6, 720)
        assert test.p >= test.smallest > 0


def test_groups_permuted_as_a_whole() -> None:
    group_of = np.repeat(np.arange(5), 2)
    factors = {"group": [str(g) for g in group_of], "objective": list("xxyyxxyyyy")}
    similarity = symmetric(np.random.default_rng(1), 10)
    recipe, objective = mrqap(similarity, factors, group_of, n_permutations=99)
    value, t, p = brute_force(similarity, factors, "objective", list(group_of))
    assert (objective.value, objective.t, objective.p) == pytest.approx((value, t, p))
    assert (objective.permuted, objective.n) == ("groups", 5)
    # 5 of 10 ways to say which two groups are the x: p cannot be below 1/10.
    assert objective.smallest == pytest.approx(0.1)
    assert (recipe.permuted, recipe.n, recipe.n_permutations) == ("models", 10, 100)


def test_random_orders_come_near_to_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = {"family": list("aaabbbcc"), "objective": list("xyxyyxyx")}
    similarity = symmetric(np.random.default_rng(2), 8) + 0.3 * same_label(factors["family"])
    exact = mrqap(similarity, factors)
    monkeypatch.setattr("mlem_core.inference.mrqap.EXACT", 3)
    drawn = mrqap(similarity, factors)
    assert [test.n_permutations for test in (*exact, *drawn)] == [40320] * 2 + [10000] * 2
    for one, other in zip(exact, drawn, strict=True):
        assert other.p == pytest.approx(one.p, abs=0.02)
        assert other.smallest == pytest.approx(one.smallest, abs=0.005)


@pytest.mark.parametrize(
    ("labels", "smallest", "few"),
    # 3! 3! 2 of 6! orders leave the labels as they are.
    [("xxxyyy", 0.1, True), ("xxxxyyyy", 2 / 70, False)],
)
def test_too_few_models_are_said_to_be(labels: str, smallest: float, few: bool) -> None:
    similarity = symmetric(np.random.default_rng(3), len(labels))
    (test,) = mrqap(similarity, {"objective": list(labels)})
    assert test.smallest == pytest.approx(smallest) and bool(too_few(test)) == few
    assert table_of([test]).loc[0, "p"] == test.p


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        ({"f": "xxxxx"}, ["'f'", "the same label"]),
        ({"f": "abcde"}, ["'f'", "another label"]),
        ({"f": "xxyyy", "g": "aabbb"}, ["f and g", "told apart"]),
        ({"f": "xyy"}, ["3 models"]),
    ],
)
def test_what_cannot_be_tested_is_refused(labels: dict[str, str], facts: list[str]) -> None:
    similarity = symmetric(np.random.default_rng(0), len(labels["f"]))
    with refused(*facts):
        mrqap(similarity, {name: list(each) for name, each in labels.items()})


def test_undefined_similarities_are_refused() -> None:
    with refused("not defined"):
        mrqap(np.ones((4, 4)), {"f": list("xxyy")})


def rejected(effect: float, *, nested: bool, n: int) -> float:
    """How often the objective is found beside a family that has an effect."""
    rng, count = np.random.default_rng(0), 0
    factors, group_of = labelled("nested" if nested else "crossed")
    for _ in range(n):
        similarity = similarities(rng, factors, group_of, effect)
        tests = mrqap(similarity, factors, group_of, n_permutations=199)
        count += tests[list(factors).index("objective")].p <= 0.05
    return count / n


@pytest.mark.parametrize("nested", [False, True])
def test_the_level_holds_beside_a_planted_family_and_an_objective_is_found(nested: bool) -> None:
    assert 0.025 <= rejected(0.0, nested=nested, n=600) <= 0.075
    assert rejected(0.3, nested=nested, n=60) > 0.8


def test_seeds_that_pass_for_recipes_would_find_too_much() -> None:
    """Why groups are permuted: permuting their members, the level would be far from 5 %."""
    rng, count = np.random.default_rng(0), 0
    group_of = np.repeat(np.arange(6), 4)
    objectives = list(map(str, group_of % 2))
    for _ in range(100):
        similarity = symmetric(rng, 6)[np.ix_(group_of, group_of)] + 0.1 * symmetric(rng, 24)
        count += mrqap(similarity, {"objective": objectives}, n_permutations=99)[0].p <= 0.05
    assert count > 20
