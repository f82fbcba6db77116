"""What a column has when its labels are permuted, and the p of what it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.text import many, percent
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.levels import FEWEST_LABELLINGS, MOSTLY, MOVED, Exchange

# Permutations by which the unit is found whose labels earn most.
PILOT = 20
# After so many permutations no more are drawn where at least so many of them have what the true
# labels have: p is large.
FIRST, ENOUGH = 39, 10

# What a column has (n_permutations, ...) where each stimulus takes the value of another
# (n_permutations, n_stimuli).
Statistic = Callable[[IntArray], FloatArray]


class PermutationNull(NamedTuple):
    """What a column has when its labels are permuted: a feature, a candidate, an erased feature.

    unit : whose labels are permuted: of the units that (nearly) settle the column, the one whose
        permuted labels reach most
    moved : share of the stimuli that take the labels of others, of those that can
    n_labellings : how many different ones there are
    givers : (n_permutations, n_stimuli) the stimulus whose value each has
    draws : (1 + n_permutations, ...) what the column has, with its true labels first; where p is
        clearly large, those of `n_drawn` permutations, again and again
    n_drawn : how many permutations were drawn
    """

    unit: str
    moved: float
    n_labellings: float
    givers: IntArray
    draws: FloatArray
    n_drawn: int = 0

    @property
    def unknown(self) -> str:
        """Why the null is not known, in a clause; "" where it is."""
        return why_unknown(self.unit, self.moved, self.n_labellings)


def why_unknown(unit: str, moved: float, n_labellings: float) -> str:
    """Why labels of a unit give no null, in a clause; "" where they do."""
    if n_labellings < FEWEST_LABELLINGS:
        ways = many(round(n_labellings), "different labelling")
        return f"{ways} of the {unit}s, where {FEWEST_LABELLINGS} are needed"
    if moved < MOVED:
        share = f"{percent(moved)} of the stimuli would take the label of another {unit}"
        return f"{share}, where {percent(MOVED)} are needed"
    return ""


def permutation_null(
    ways: Sequence[Exchange],
    values: NDArray[Any],
    statistic: Statistic,
    n_permutations: int,
    rng: np.random.Generator,
    pilot: Statistic,
) -> PermutationNull:
    """What a column has under labels that are permuted among the units that reach most.

    Labels reach their mean and two standard deviations, over `PILOT` permutations. A unit that
    settles most of the column and cannot exchange labels leaves the null unknown: permuted, the
    column then has 0. Permutations are drawn until p is clearly large: those of other columns,
    which are permuted alone, are independent of them.

    Source: Besag and Clifford (1991), sequential Monte Carlo p-values.

    Parameters
    ----------
    ways : of `mlem_core.data.levels.exchanges`
    values : (n_stimuli,) of the column
    pilot : of less work, which gives the reach
    """
    true = np.arange(len(values))[None]
    nulls = [
        PermutationNull(way.unit, way.moved(values), way.n_labellings(values), true, np.empty(0))
        for way in ways
    ]
    able = [pair for pair in zip(ways, nulls, strict=True) if not pair[1].unknown]
    for way, null in zip(ways, nulls, strict=True):
        if null.unknown and (way.agreement >= MOSTLY or not able):
            draws = statistic(true)
            nothing = np.zeros((n_permutations, *draws.shape[1:]))
            return null._replace(draws=np.concatenate((draws, nothing)))
    reach = [0.0]
    if len(able) > 1:
        of_units = [pilot(way.draw(PILOT, rng)) for way, _ in able]
        reach = [float((d.mean(axis=0) + 2.0 * d.std(axis=0)).mean()) for d in of_units]
    way, null = able[int(np.argmax(reach))]
    givers = way.draw(n_permutations, rng)
    draws = statistic(np.concatenate((true, givers[:FIRST])))
    n_above = np.sum(draws[1:] >= draws[0] - 1e-12, axis=0)
    if n_permutations > FIRST and np.any(n_above < ENOUGH):
        draws = np.concatenate((draws, statistic(givers[FIRST:])))
    n_drawn = len(draws) - 1
    permuted = np.resize(draws[1:], (n_permutations, *draws.shape[1:]))
    return null._replace(
        givers=givers, draws=np.concatenate((draws[:1], permuted)), n_drawn=n_drawn
    )


def corrected_p(draws: FloatArray, known: NDArray[np.bool_]) -> FloatArray:
    """p of what columns have, corrected over the columns: (n_columns, ...).

    The share of all rows, the true one among them, in which the largest of all columns is as far
    above its mean, in standard deviations. Mean and standard deviation are over all rows, so that
    the true labels are treated as the permuted ones are.

    Parameters
    ----------
    draws : (1 + n_permutations, n_columns, ...) what they have, with their true labels first
    known : (n_columns,) whether the null is known; NaN where not

    Source: Westfall and Young (1993), the maximum statistic.
    """
    spread = draws.std(axis=0, ddof=1)
    far = (draws - draws.mean(axis=0)) / np.where(spread > 1e-12, spread, np.inf)
    largest = far[:, known].max(axis=1, initial=-np.inf)
    p = np.mean(largest[:, None] >= far[0] - 1e-9, axis=0)
    p[~known] = np.nan
    return np.asarray(p)
