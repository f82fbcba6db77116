"""How often intervals of groups of models hold the truth: within, between and universality."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.extensions.systems.mean_profiles import estimate
from mlem_core.extensions.systems.model_groups import group_similarities
from mlem_core.inference.intervals import Left
from validation.work import Row, Task

MEMBERS = (3, 5)
DATA_SETS, PART, QUICK = 800, 50, 4
RECIPES, STIMULI, BLOCKS, REPLICATES = 3, 200, 50, 100
SHARED, OWN = 0.6, 0.4
QUANTITIES = ("within", "between", "universality")
TRUTH = (SHARED + OWN, SHARED, SHARED / (SHARED + OWN))


def drawn(rng: np.random.Generator, n_members: int) -> tuple[FloatArray, Left, IntArray]:
    """Similarities of models of 3 recipes over 200 stimuli, and without blocks of these.

    A model has what all share, what its recipe shares, both more or less so, and noise: two of a
    recipe have a similarity of 1 on average, two of different ones of .6.
    """
    group_of, n = np.repeat(np.arange(RECIPES), n_members), STIMULI
    everyone = rng.standard_normal(n) * np.sqrt(SHARED)
    recipe = rng.standard_normal((RECIPES, n)) * np.sqrt(OWN)
    strength = 1 + 0.4 * rng.standard_normal(len(group_of))
    rows = strength[:, None] * (everyone + recipe[group_of])
    rows += 0.5 * rng.standard_normal(rows.shape)
    blocks = [np.delete(np.arange(n), part) for part in np.array_split(np.arange(n), BLOCKS)]
    without = np.stack([rows[:, part] @ rows[:, part].T / len(part) for part in blocks])
    return (rows @ rows.T / n)[None], Left(without[:, None], (BLOCKS,)), group_of


def part(n_members: int, first: int, n: int) -> list[Row]:
    """The intervals of some data sets, beside the truth."""
    found: list[Row] = []
    for seed in range(first, first + n):
        matrix, stimuli, group_of = drawn(np.random.default_rng([n_members, seed]), n_members)
        own = estimate(group_similarities, matrix, group_of, stimuli, n_replicates=REPLICATES)
        columns = (QUANTITIES, own.value[0], own.lower[0], own.upper[0], TRUTH)
        found += [
            {
                "members": n_members,
                "seed": seed,
                "quantity": quantity,
                "value": value,
                "lower": lower,
                "upper": upper,
                "truth": truth,
            }
            for quantity, value, lower, upper, truth in zip(*columns, strict=True)
        ]
    return found


def tasks(quick: bool) -> list[Task]:
    """The study in parts."""
    size, n = (QUICK, QUICK) if quick else (PART, DATA_SETS)
    return [
        Task(f"{members} members, from {first}", part, (members, first, size))
        for first in range(0, n, size)
        for members in MEMBERS
    ]


def of_populations(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often each interval holds the truth, by the members of a group."""
    held = rows.assign(held=(rows["lower"] <= rows["truth"]) & (rows["truth"] <= rows["upper"]))
    sets = rows.groupby("members")["seed"].nunique()
    table = held.groupby(["members", "quantity"])["held"].mean().unstack("quantity")
    table = table[list(QUANTITIES)].map("{:.1%}".format)
    table.index = pd.Index(
        [f"{n} members ({sets[n]} data sets)" for n in table.index], name="intervals of groups"
    )
    return {"coverage of groups": table.rename_axis(columns=None)}
