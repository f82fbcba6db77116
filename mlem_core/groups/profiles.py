"""What changes over training: importances and scores of checkpoints by step, mean over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.groups.members import Population, member_profiles, reference

# Half an interval of the mean over some members, given their places: (n_rows, n_quantities).
Reach = Callable[[IntArray], FloatArray]
RHO = "rho"
IMPORTANCE = "importance"
COLUMNS = (
    "trajectory", "step", "seeds", "layer", "depth", "quantity", "feature",
    "value", "sd", "lower", "upper",
)  # fmt: skip


@dataclass(frozen=True)
class Checkpoints:
    """The layers of one trajectory.

    Attributes
    ----------
    name : of the trajectory
    population : its members, one group
    steps : (n_members,) the training step of each, as `population.members`
    numbers, depths : of each layer that is reported, those of the shallowest member
    """

    name: str
    population: Population
    steps: IntArray
    numbers: tuple[int, ...]
    depths: FloatArray

    @classmethod
    def of(
        cls, name: str, steps: Sequence[tuple[str, int]], layers: Sequence[tuple[str, int]]
    ) -> Checkpoints:
        """The layers of members (name, step); `layers` are (model, number) of these alone."""
        population = Population.of([(name, [one for one, _ in steps])], layers)
        first = reference(population, population.members_of(0))
        at = dict(steps)
        return cls(
            name,
            population,
            np.array([at[one] for one in population.members], dtype=np.int64),
            tuple(layers[place][1] for place in population.places[first]),
            population.depths[first],
        )

    def rows(self, values: FloatArray) -> FloatArray:
        """What is reported of each member: its layers, and last their mean.

        Parameters
        ----------
        values : (n_layers, n_quantities)

        Returns
        -------
        (n_members, n_depths + 1, n_quantities), layers matched by relative depth
        """
        (own,) = member_profiles(values, self.population)
        return np.concatenate((own, own.mean(axis=1, keepdims=True)), axis=1)

    def at(self, step: int) -> IntArray:
        """(n_seeds,) the places of the members of a step."""
        return np.flatnonzero(self.steps == step)


def over_steps(
    checkpoints: Checkpoints, values: FloatArray, columns: Sequence[str], reach: Reach
) -> pd.DataFrame:
    """Score and importances of a trajectory at each step, mean over its seeds.

    Parameters
    ----------
    values : (n_layers, 1 + n_columns) of the layers of `checkpoints`: ρ and importances
    columns : features, and interactions where they are weighed
    reach : half the interval of the mean over the members at some places, NaN for one

    Returns
    -------
    trajectory, step, seeds (how many), layer (of the shallowest member; missing: the mean over
    layers), depth (relative), quantity ("rho" or "importance"), feature, value, sd (over seeds),
    lower, upper; by step. sd and interval are NaN for one seed
    """
    rows = checkpoints.rows(values)
    n_rows, n_quantities = rows.shape[1:]
    quantities = [RHO, *[IMPORTANCE] * len(columns)]
    tables = []
    for step in np.unique(checkpoints.steps):
        members = checkpoints.at(step)
        own = rows[members]
        mean, around = own.mean(axis=0), reach(members)
        sd = own.std(axis=0, ddof=1) if len(own) > 1 else np.full_like(mean, np.nan)
        numbers = np.array([*checkpoints.numbers, -1])
        each = (
            checkpoints.name,
            int(step),
            len(own),
            np.repeat(numbers, n_quantities),
            np.repeat([*checkpoints.depths, np.nan], n_quantities),
            quantities * n_rows,
            ["", *columns] * n_rows,
            *(one.ravel() for one in (mean, sd, mean - around, mean + around)),
        )
        tables.append(pd.DataFrame(dict(zip(COLUMNS, each, strict=True))))
    table = pd.concat(tables, ignore_index=True)
    whole = table["layer"].astype("Int64")
    return table.assign(layer=whole.mask(whole < 0))


def nearest_depth(table: pd.DataFrame, depth: float | None) -> pd.DataFrame:
    """The rows of each trajectory at its layer nearest to a relative depth; None: of the mean.

    Parameters
    ----------
    table : of `over_steps`, of one or more trajectories
    """
    if depth is None:
        return table[table["layer"].isna()]
    kept = []
    for _, own in table[table["layer"].notna()].groupby("trajectory", sort=False):
        depths = own["depth"].unique()
        nearest = depths[np.abs(depths - depth).round(12).argmin()]
        kept.append(own[own["depth"] == nearest])
    return pd.concat(kept) if kept else table.iloc[:0]
