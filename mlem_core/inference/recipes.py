"""What an analysis says of its groups of models: profiles, similarities, universality, tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.grouped import labels_of
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.errors import InputError
from mlem_core.base.text import listed, many, number
from mlem_core.base.typing import FloatArray
from mlem_core.inference.intervals import LayerIntervals
from mlem_core.inference.jackknife import Estimate
from mlem_core.inference.mrqap import RECIPE, FactorTest, mrqap, sentence, table_of
from mlem_core.inference.populations import (
    Left,
    by_groups,
    estimate,
    profile_interval,
    within_and_between,
)
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.populations import (
    Population,
    mean_profiles,
    member_profiles,
    of_members,
)
from mlem_core.pairs.resampling_units import Units

RSA = "rsa"
_QUANTITIES = ("within", "between", "universality")


@dataclass(frozen=True)
class Recipes:
    """What is known of the groups of models of an analysis.

    Attributes
    ----------
    population : the models in their groups
    profiles : of `mlem_core.measures.populations.mean_profiles`
    similarity : group_a, group_b, pairs (of different models), rsa, lower, upper; a group beside
        itself is the similarity of its members
    universality : term (a feature, "unexplained" or "rsa"), and value, lower and upper of each of
        within, between and universality; universality only where within is surely above 0
    tests : of the factors on the RSA of models
    notes : sentences about what could not be said
    over : what the intervals are over, such as "models, and sentences"
    """

    population: Population
    profiles: pd.DataFrame
    similarity: pd.DataFrame
    universality: pd.DataFrame
    tests: tuple[FactorTest, ...]
    notes: tuple[str, ...]
    over: str

    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of the command line and the capsule, by their file names."""
        found = {
            "groups.csv": self.profiles,
            "group_similarity.csv": self.similarity,
            "universality.csv": self.universality,
        }
        return found | ({"group_tests.csv": table_of(self.tests)} if self.tests else {})

    def lines(self) -> list[str]:
        """What they say in sentences, of models only as far as there are several of a recipe."""
        names = [
            f"{name} ({many(int(n), 'member')})"
            for name, n in zip(self.population.groups, self.population.sizes, strict=True)
        ]
        row = self.universality.set_index("term").loc[RSA]
        found = [f"Groups: {listed(names)}. {self._recipes(row)}"]
        return [*found, *map(sentence, self.tests), *self.notes]

    def _recipes(self, row: pd.Series) -> str:
        between = f"models of different groups have an RSA of {_with_interval(row, 'between')}"
        if np.isnan(row["between"]) and np.isnan(row["within"]):
            return "With one model there is nothing to compare."
        if np.isnan(row["within"]):
            return (
                f"One model of each group: {between}, which says nothing of other models of these "
                "groups."
            )
        within = f"Members of one group have an RSA of {_with_interval(row, 'within')}"
        if np.isnan(row["within_lower"]):
            claim = "with so few members it says nothing of others"
        else:
            claim = f"95 % intervals are over {self.over}; they speak of others of these groups"
        return f"{within}, {between} ({claim})."


def _with_interval(row: pd.Series, name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_lower", "_upper"))
    if np.isnan(value):
        return "no pair"
    if np.isnan(low):
        return number(value)
    return f"{number(value)} ({number(low)} to {number(high)})"


def recipes(
    analysis: Analysis,
    results: Results,
    selection: Selection | None = None,
    *,
    matching: str = "depth",
    bounds: LayerIntervals | None = None,
    left: Left | None = None,
) -> Recipes:
    """What is known of the groups of models.

    Parameters
    ----------
    results : of the selection
    matching : of layers, see `mlem_core.measures.populations.of_members`
    bounds : of the same layers and features, for the spread of profiles over stimuli
    left : of `mlem_core.inference.layer_intervals.stimuli_left`, for that of similarities; None:
        intervals are over models alone

    Raises
    ------
    InputError
        An unknown matching.
    """
    selection = analysis.select() if selection is None else selection
    aside = _aside(analysis, selection)
    population = Population.of(analysis.spec.groups, selection.layers, aside)
    tables, rsa = analysis.subset(selection)
    divided = decompose(tables.of_features(selection.features), rsa)
    terms = (*divided.names, RSA)
    squares = np.concatenate((divided.values, rsa[None]))
    matrix = of_members(squares, population, matching, rsa)
    notes: list[str] = []
    if aside:
        are = (
            "checkpoints of trajectories are" if len(aside) > 1 else "checkpoint of a trajectory is"
        )
        notes.append(f"{len(aside)} {are} in no group, and left aside here.")
    stimuli = None
    if left is not None and left.without.shape[1] == len(squares):
        without = of_members(left.without, population, matching, rsa)
        stimuli = Left(without, left.sizes)
    shares = estimate(within_and_between, matrix, population.group_of, stimuli)
    last = None if stimuli is None else Left(stimuli.without[:, -1:], stimuli.sizes)
    pairs = estimate(by_groups, matrix[-1:], population.group_of, last)
    over = "models" if stimuli is None else f"models, and {Units.of(analysis.stimuli).over}"
    return Recipes(
        population,
        _profiles(results, population, selection, bounds),
        _similarity(population, pairs),
        _universality(terms, shares),
        _tests(analysis, population, matrix[-1], notes),
        tuple(notes),
        over,
    )


def _aside(analysis: Analysis, selection: Selection) -> set[str]:
    """Checkpoints of trajectories that are in no group: each would be a recipe of its own."""
    trained = {one for _, members in analysis.spec.trajectories for one in members}
    grouped = {one for _, members in analysis.spec.groups for one in members}
    there = {model for model, _ in selection.layers}
    return trained & there - grouped if grouped & there else set()


def _profiles(
    results: Results,
    population: Population,
    selection: Selection,
    bounds: LayerIntervals | None,
) -> pd.DataFrame:
    means = results.importance.groupby(["model", "layer", "feature"], sort=False)["importance"]
    wide = means.mean().unstack("feature", sort=False)
    columns = list(wide.columns)
    values = wide.loc[list(selection.layers)].to_numpy(dtype=np.float64)
    table = mean_profiles(values, population, selection.layers, columns)
    if bounds is None or list(bounds.columns) != columns:
        return table
    without = bounds.scores_without[:, bounds.places(selection.layers)][..., 2:]
    each = zip(*(member_profiles(one, population) for one in without), strict=True)
    lower, upper = [], []
    for own, blocks in zip(member_profiles(values, population), each, strict=True):
        around = profile_interval(own, Left(np.stack(blocks), bounds.sizes))
        lower.append(around.lower.ravel())
        upper.append(around.upper.ravel())
    return table.assign(lower=np.concatenate(lower), upper=np.concatenate(upper))


def _similarity(population: Population, found: Estimate) -> pd.DataFrame:
    n, sizes = len(population.groups), population.sizes
    first, second = np.triu_indices(n)
    at = first * n + second
    same = first == second
    pairs = np.where(same, sizes[first] * (sizes[first] - 1) // 2, sizes[first] * sizes[second])
    names = np.array(population.groups, dtype=object)
    return pd.DataFrame(
        {
            "group_a": names[first],
            "group_b": names[second],
            "pairs": pairs,
            "rsa": found.value[0, at],
            "lower": found.lower[0, at],
            "upper": found.upper[0, at],
        }
    )


def _universality(terms: Sequence[str], found: Estimate) -> pd.DataFrame:
    columns: dict[str, FloatArray] = {}
    for at, name in enumerate(_QUANTITIES):
        for end, values in zip(("", "_lower", "_upper"), found[:3], strict=True):
            columns[name + end] = values[:, at]
    table = pd.DataFrame({"term": list(terms)} | columns)
    # The ratio to what may be 0 has no bounds.
    ratio = [name for name in table if name.startswith("universality")]
    table.loc[~(table["within_lower"] > 0), ratio] = np.nan
    return table


def _tests(
    analysis: Analysis, population: Population, matrix: FloatArray, notes: list[str]
) -> tuple[FactorTest, ...]:
    """The tests of all factors at once, or a note that says why there are none."""
    members, spec = population.members, analysis.spec
    groups = np.array(population.groups, dtype=object)[population.group_of]
    models = [*spec.models, *(name for name, _ in spec.representations)]
    labels = {
        factor: tuple(dict(zip(models, values, strict=True))[one] for one in members)
        for factor, values in labels_of(spec.groups, spec.labels, models).items()
    }
    factors: dict[str, tuple[str, ...]] = {RECIPE: tuple(groups)}
    if len(population.groups) == len(members) or tuple(groups) in map(tuple, labels.values()):
        factors = {}
    factors |= labels
    if not factors:
        return ()
    try:
        return tuple(mrqap(matrix, factors, population.group_of))
    except InputError as error:
        notes.append(f"No test of {listed(list(factors))}: {error}")
        return ()
