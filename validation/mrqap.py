"""How often the test of what makes models alike finds a factor: one without effect, and others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.groups.mrqap import mrqap, same_label
from validation.work import Row, Task

DESIGNS = {
    "crossed": "crossed: 12 models of 4 families",
    "nested": "nested: 9 recipes of 3 seeds",
    "few": "unbalanced: 8 models of 2 families",
    "partly": "partly nested: 18 models of 5 families",
    "unequal": "partly nested, unequal: 43 models of 7 families",
    "whole": "nested, unequal, large families alone: 43 models of 12 families",
    "small": "nested, unequal, small families alone: 43 models of 12 families",
}
# Of each family the objectives of its models. A family has a similarity of its own to each other
# one, as a recipe has in the nested design.
FAMILIES = {
    "few": ("00111", "011"),
    "partly": ("0011", "0011", "0011", "000", "111"),
    "unequal": ("0" * 15 + "1" * 5, "00011111", "00000", "1111", "001", "00", "1"),
    "whole": ("0" * 10, "0" * 8, "0" * 6, "0" * 5, "1" * 4, "111", "11", *"11111"),
    "small": ("1" * 10, "1" * 8, "1" * 6, "1" * 5, "1" * 4, "111", "11", *"10000"),
}
FAMILY, PERMUTATIONS, ALPHA = 0.3, 199, 0.05
# Of each effect of the objective so many data sets; beside it the family has one in all.
DATA_SETS = {0.0: 1000, 0.1: 100, 0.2: 100, 0.3: 100}
PART, QUICK = 100, 5


def symmetric(rng: np.random.Generator, n: int) -> FloatArray:
    """(n, n) normal numbers."""
    values = rng.standard_normal((n, n))
    symmetrical: FloatArray = (values + values.T) / 2
    return symmetrical


def labelled(design: str) -> tuple[dict[str, list[str]], IntArray]:
    """The labels of the models of a design, and what of them has a similarity of its own."""
    if design in FAMILIES:
        families = np.repeat(np.arange(len(FAMILIES[design])), [*map(len, FAMILIES[design])])
        objectives = [*"".join(FAMILIES[design])]
        return {"family": list(map(str, families)), "objective": objectives}, families
    group_of = np.arange(12)
    families, objectives = group_of // 3, np.tile([0, 1], 6)
    if design == "nested":
        group_of = np.repeat(np.arange(9), 3)
        families, objectives = group_of // 3, np.array([0, 1, 0, 1, 1, 0, 0, 1, 1])[group_of]
    factors = {"family": list(map(str, families)), "objective": list(map(str, objectives))}
    if design == "nested":
        factors["group"] = list(map(str, group_of))
    return factors, group_of


def similarities(
    rng: np.random.Generator,
    factors: Mapping[str, list[str]],
    group_of: IntArray,
    effect: float,
    family: float = FAMILY,
) -> FloatArray:
    """Similarities of models: two of one family or objective more, each model more or less so."""
    own = rng.standard_normal(len(group_of)) * 0.1
    pairs = symmetric(rng, int(group_of.max()) + 1) * 0.2
    found = family * same_label(factors["family"]) + effect * same_label(factors["objective"])
    found += own[:, None] + own
    found += pairs[np.ix_(group_of, group_of)] + 0.1 * symmetric(rng, len(group_of))
    return found


def part(design: str, effect: float, first: int, n: int) -> list[Row]:
    """The p of the objective in some data sets."""
    factors, group_of = labelled(design)
    at, found = list(factors).index("objective"), list[Row]()
    for seed in range(first, first + n):
        rng = np.random.default_rng([list(DESIGNS).index(design), round(100 * effect), seed])
        similarity = similarities(rng, factors, group_of, effect)
        p = mrqap(similarity, factors, n_permutations=PERMUTATIONS, seed=seed)[0][at].p
        found.append({"design": design, "effect": effect, "seed": seed, "p": p})
    return found


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    return [
        Task(f"{design}, effect {effect:g}, from {first}", part, (design, effect, first, size))
        for effect, n in DATA_SETS.items()
        for size, most in [(QUICK, QUICK) if quick else (PART, n)]
        for first in range(0, most, size)
        for design in DESIGNS
    ]


def of_mrqap(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often the objective is found at 5 %, by its effect."""
    cells = rows.assign(found=rows["p"] <= ALPHA).groupby(["design", "effect"])["found"]
    table = cells.mean().map("{:.1%}".format) + cells.size().map(" ({:,} data sets)".format)
    wide = table.unstack("effect").reindex(list(DESIGNS)).rename(index=DESIGNS)
    wide = wide.rename(columns=lambda effect: f"effect {effect:g}")
    return {"level of mrqap": wide.rename_axis(index="an objective", columns=None)}
