"""Populations of models: groups of one recipe, their mean profiles, and what recipes share.

Models are the units here. A similarity of two models is the mean of a similarity of layers over
layers of the same relative depth, or of each layer and the one that is most like it. Two members of
a recipe set the ceiling of what two recipes can share: universality is the one over the other.
A model that is in no group is one of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base import student
from mlem_core.base.errors import InputError, unknown
from mlem_core.base.typing import FloatArray, IntArray, Layer

MATCHINGS = ("depth", "best")


@dataclass(frozen=True)
class Population:
    """Models in groups.

    Attributes
    ----------
    groups : (n_groups,) names
    members : (n_members,) names of the models, group by group
    group_of : (n_members,) the number of each one's group
    places : of each member, where its layers stand among all layers, by depth
    depths : of each member, the relative depth of these, its number over that of the last one
    """

    groups: tuple[str, ...]
    members: tuple[str, ...]
    group_of: IntArray
    places: tuple[IntArray, ...]
    depths: tuple[FloatArray, ...]

    @classmethod
    def of(
        cls,
        groups: Sequence[tuple[str, Sequence[str]]],
        layers: Sequence[Layer],
        aside: Collection[str] = (),
    ) -> Population:
        """The models of some layers in their groups.

        Parameters
        ----------
        groups : name and members of each; members that have none of the layers are left out
        layers : (model, number) of each
        aside : models that are left out
        """
        models = [one for one in dict.fromkeys(model for model, _ in layers) if one not in aside]
        there = [(name, [one for one in members if one in models]) for name, members in groups]
        grouped = {one for _, members in there for one in members}
        there += [(model, [model]) for model in models if model not in grouped]
        there = [(name, members) for name, members in there if members]
        names = [one for _, members in there for one in members]
        sizes = [len(members) for _, members in there]
        places, depths = [], []
        for name in names:
            at = sorted((number, i) for i, (model, number) in enumerate(layers) if model == name)
            last = max(1, at[-1][0])
            places.append(np.array([i for _, i in at], dtype=np.int64))
            depths.append(np.array([number / last for number, _ in at]))
        return cls(
            tuple(name for name, _ in there),
            tuple(names),
            np.repeat(np.arange(len(sizes)), sizes),
            tuple(places),
            tuple(depths),
        )

    @property
    def sizes(self) -> IntArray:
        """(n_groups,) how many members each group has."""
        return np.bincount(self.group_of, minlength=len(self.groups)).astype(np.int64)

    def members_of(self, group: int) -> IntArray:
        """(n,) the numbers of the members of a group."""
        return np.flatnonzero(self.group_of == group)

    def matched(self, a: int, b: int) -> tuple[IntArray, IntArray]:
        """Where the layers of two members stand that have the same relative depth.

        Each layer of the one with fewer layers and the other's nearest in depth, the lower of two
        as near; members with as many layers are matched layer by layer.
        """
        one, other = self.places[a], self.places[b]
        if len(one) == len(other):
            return one, other
        if len(one) > len(other):
            second, first = self.matched(b, a)
            return first, second
        return one, other[_nearest(self.depths[a], self.depths[b])]


def _nearest(wanted: FloatArray, there: FloatArray) -> IntArray:
    """(n,) the place of the depth that is nearest to each wanted one."""
    apart = np.abs(wanted[:, None] - there[None, :])
    nearest: IntArray = apart.round(12).argmin(axis=1)
    return nearest


def of_members(
    squares: FloatArray,
    population: Population,
    matching: str = "depth",
    by: FloatArray | None = None,
) -> FloatArray:
    """Similarities of models from those of their layers.

    Parameters
    ----------
    squares : (..., n_layers, n_layers)
    matching : "depth": the mean over layers of the same relative depth; "best": the mean over each
        layer and the one of the other model that is most like it, both ways
    by : (n_layers, n_layers) what "best" looks at, such as RSA. It is chosen on the same data, so
        that a similarity is somewhat too high, between as within groups

    Returns
    -------
    (..., n_members, n_members), symmetric where the squares are; NaN on the diagonal

    Raises
    ------
    InputError
        Another matching, or "best" without `by`.
    """
    if matching not in MATCHINGS:
        raise unknown("matching of layers", matching, MATCHINGS)
    if matching == "best" and by is None:
        raise InputError("the best layers are chosen by a similarity; expected one as `by`.")
    n = len(population.members)
    found = np.full((*squares.shape[:-2], n, n), np.nan)
    for a in range(n):
        for b in range(a + 1, n):
            if by is None or matching == "depth":
                i, j = population.matched(a, b)
            else:
                one, other = population.places[a], population.places[b]
                own = np.nan_to_num(by[np.ix_(one, other)], nan=-np.inf)
                i = np.concatenate((one, one[own.argmax(axis=0)]))
                j = np.concatenate((other[own.argmax(axis=1)], other))
            found[..., a, b] = squares[..., i, j].mean(axis=-1)
            found[..., b, a] = squares[..., j, i].mean(axis=-1)
    return found


def member_profiles(importance: FloatArray, population: Population) -> list[FloatArray]:
    """The profiles of the members of each group at the layers of its shallowest member.

    Parameters
    ----------
    importance : (n_layers, n_columns) means over folds

    Returns
    -------
    for each group (n_in_group, n_depths, n_columns)
    """
    found = []
    for group in range(len(population.groups)):
        members = population.members_of(group)
        first = reference(population, members)
        rows = [population.matched(first, one)[1] for one in members]
        found.append(np.stack([importance[at] for at in rows]))
    return found


def reference(population: Population, members: IntArray) -> int:
    """The member with the fewest layers, the first of several."""
    return int(min(members, key=lambda one: len(population.places[one])))


def mean_profiles(
    importance: FloatArray,
    population: Population,
    layers: Sequence[Layer],
    columns: Sequence[str],
) -> pd.DataFrame:
    """The mean importance profile of each group, with the spread over its members.

    Parameters
    ----------
    importance : (n_layers, n_columns) means over folds
    layers : (model, number) of each of the layers
    columns : features, and interactions where they are weighed

    Returns
    -------
    group, members (how many), layer (of the shallowest member), depth (relative), feature,
    importance, lower, upper (95 % by t over the members; NaN for one member)
    """
    rows = []
    for group, values in enumerate(member_profiles(importance, population)):
        first = reference(population, population.members_of(group))
        mean, reach = values.mean(axis=0), t_reach(values)
        for at, (place, depth) in enumerate(
            zip(population.places[first], population.depths[first], strict=True)
        ):
            for column, name in enumerate(columns):
                value, around = mean[at, column], reach[at, column]
                where = (population.groups[group], len(values), layers[place][1], depth, name)
                rows.append((*where, value, value - around, value + around))
    names = ["group", "members", "layer", "depth", "feature", "importance", "lower", "upper"]
    return pd.DataFrame(rows, columns=names)


def t_reach(values: FloatArray) -> FloatArray:
    """Half the 95 % interval of a mean over n members, NaN for one: (...) of (n, ...)."""
    n = len(values)
    if n < 2:
        return np.full(values.shape[1:], np.nan)
    reach: FloatArray = student.quantile(n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return reach


def group_means(
    matrix: FloatArray, group_of: IntArray, weights: FloatArray | None = None
) -> FloatArray:
    """The mean similarity of different members within and between groups.

    Parameters
    ----------
    matrix : (..., n_members, n_members); its diagonal is not looked at
    group_of : (n_members,) the number of each one's group
    weights : (n_members,) how often each member counts; two copies of one member are no pair

    Returns
    -------
    (..., n_groups, n_groups); NaN where there is no pair of different members
    """
    n_groups = int(group_of.max()) + 1
    own = np.ones(len(group_of)) if weights is None else weights
    belongs = np.eye(n_groups)[group_of] * own[:, None]
    known = np.where(np.eye(len(group_of), dtype=bool), 0.0, matrix)
    pairs = belongs.T @ (1.0 - np.eye(len(group_of))) @ belongs
    sums = belongs.T @ known @ belongs
    return np.divide(sums, pairs, out=np.full(sums.shape, np.nan), where=pairs > 0)


class Shared(NamedTuple):
    """Mean similarities of pairs of models: within their recipes, between, and the ratio."""

    within: FloatArray
    between: FloatArray
    universality: FloatArray


def shared(matrix: FloatArray, group_of: IntArray, weights: FloatArray | None = None) -> Shared:
    """How much of what members of a recipe share is shared by models of different recipes.

    Parameters
    ----------
    matrix, weights : as of `group_means`. However often members count, each group and each two
        groups count as their pairs do without weights

    Returns
    -------
    arrays (...): means over the pairs of different models within and between groups, and
    universality, between over within: 1 where recipes share as much as seeds of one do, 0 where
    they share nothing of it. NaN where there is no such pair, or within is not above 0
    """
    means = group_means(matrix, group_of, weights)
    sizes = np.bincount(group_of).astype(np.float64)
    pairs = np.outer(sizes, sizes)
    np.fill_diagonal(pairs, sizes * (sizes - 1))
    one = np.eye(len(sizes), dtype=bool)
    found = []
    for which in (one, ~one):
        weight = pairs * which
        total = weight.sum()
        sums = (np.where(weight > 0, means, 0.0) * weight).sum(axis=(-2, -1))
        found.append(sums / total if total > 0 else np.full_like(sums, np.nan))
    within, between = found
    above = np.where(within > 0, within, np.nan)
    return Shared(within, between, between / above)
