"""Models as members of groups: layers matched by depth, similarities and distances of models.

Models are the units here. A similarity of two models is the mean of a similarity of layers over
layers of the same relative depth. Two members of a group set the ceiling of what two groups can
share: universality is the one over the other.

There are three distances, each 0 for a system beside itself: the importance profiles over layers,
aligned by dynamic time warping; 1 less the mean similarity of layers of the same relative depth;
and 1 less that of layers matched by it. Noise sets equal models apart in each of them;
`mlem_core.extensions.systems.halves` has squared distances without it.

Sources: Sakoe and Chiba (1978), dynamic time warping; Salle et al. (2026, third version of
arXiv:2406.12620), of importance profiles of models.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.results import Results
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.extensions.systems.group_spec import Member
from mlem_core.inference.intervals import Left
from mlem_core.inference.resample import jackknife

# The step of a member that stands in no trajectory.
NO_STEP = -1


@dataclass(frozen=True)
class Members:
    """Models in groups.

    Attributes
    ----------
    groups : (n_groups,) names
    members : (n_members,) names of the models, group by group
    group_of : (n_members,) the number of each one's group
    steps : (n_members,) the training step of each, `NO_STEP` where the group is no trajectory
    places : of each member, where its layers stand among all layers, by depth
    depths : of each member, the relative depth of these, its number over that of the last one
    """

    groups: tuple[str, ...]
    members: tuple[str, ...]
    group_of: IntArray
    steps: IntArray
    places: tuple[IntArray, ...]
    depths: tuple[FloatArray, ...]

    @classmethod
    def from_table(cls, rows: Sequence[Member], layers: Sequence[Layer]) -> Members:
        """The members that rows of the models table name, which have some of the layers each."""
        groups = tuple(dict.fromkeys(row.group for row in rows))
        places, depths = [], []
        for row in rows:
            at = sorted(
                (number, i) for i, (name, number) in enumerate(layers) if name == row.member
            )
            last = max(1, at[-1][0])
            places.append(np.array([i for _, i in at], dtype=np.int64))
            depths.append(np.array([number / last for number, _ in at]))
        return cls(
            groups,
            tuple(row.member for row in rows),
            np.array([groups.index(row.group) for row in rows], dtype=np.int64),
            np.array([NO_STEP if row.step is None else row.step for row in rows], dtype=np.int64),
            tuple(places),
            tuple(depths),
        )

    @property
    def sizes(self) -> IntArray:
        """(n_groups,) how many members each group has."""
        return np.bincount(self.group_of, minlength=len(self.groups)).astype(np.int64)

    def group_members(self, group: int) -> IntArray:
        """(n,) the numbers of the members of a group."""
        return np.flatnonzero(self.group_of == group)

    def shallowest(self, group: int) -> int:
        """The number of the member with the fewest layers, the first of several."""
        return int(min(self.group_members(group), key=lambda member: len(self.places[member])))

    def matched(self, a: int, b: int) -> tuple[IntArray, IntArray]:
        """Places of the layers of two members that have the same relative depth.

        Each layer of the one with fewer layers and the other's nearest in depth, the lower of two
        as near; members with as many layers are matched layer by layer.
        """
        places, others = self.places[a], self.places[b]
        if len(places) == len(others):
            return places, others
        if len(places) > len(others):
            second, first = self.matched(b, a)
            return first, second
        apart = np.abs(self.depths[a][:, None] - self.depths[b][None, :])
        return places, others[apart.round(12).argmin(axis=1)]

    def member_profiles(self, group: int, values: FloatArray) -> FloatArray:
        """(n_in_group, n_depths, n_columns) of values (n_layers, n_columns), at the shallowest."""
        first = self.shallowest(group)
        return np.stack(
            [values[self.matched(first, member)[1]] for member in self.group_members(group)]
        )


def model_similarity(squares: FloatArray, members: Members) -> FloatArray:
    """Similarities of models: means of those of their layers at the same relative depth.

    (..., n_members, n_members) of squares (..., n_layers, n_layers); NaN on the diagonal.
    """
    n = len(members.members)
    similarity = np.full((*squares.shape[:-2], n, n), np.nan)
    for a, b in itertools.permutations(range(n), 2):
        similarity[..., a, b] = squares[(..., *members.matched(a, b))].mean(axis=-1)
    return similarity


def symmetric_matrix(
    value: Callable[[int, int], FloatArray], n: int, shape: tuple[int, ...], diagonal: float
) -> FloatArray:
    """(*shape, n, n) of the value (*shape,) of every two of n models."""
    matrix = np.full((*shape, n, n), diagonal)
    for a, b in itertools.combinations(range(n), 2):
        matrix[..., a, b] = matrix[..., b, a] = value(a, b)
    return matrix


def group_means(
    matrix: FloatArray, group_of: IntArray, weights: FloatArray | None = None
) -> FloatArray:
    """The mean similarity of different members within and between groups.

    Parameters
    ----------
    matrix : (..., n_members, n_members); its diagonal is not looked at
    weights : (n_members,) how often each member counts; two copies of one member are no pair

    Returns
    -------
    (..., n_groups, n_groups); NaN where there is no pair of different members
    """
    n_groups = int(group_of.max()) + 1
    counts = np.ones(len(group_of)) if weights is None else weights
    belongs = np.eye(n_groups)[group_of] * counts[:, None]
    known = np.where(np.eye(len(group_of), dtype=bool), 0.0, matrix)
    pairs = belongs.T @ (1.0 - np.eye(len(group_of))) @ belongs
    sums = belongs.T @ known @ belongs
    return np.divide(sums, pairs, out=np.full(sums.shape, np.nan), where=pairs > 0)


def group_similarities(
    matrix: FloatArray, group_of: IntArray, weights: FloatArray | None = None
) -> FloatArray:
    """Mean similarity of models within groups, that between groups, and universality.

    Arguments are those of `group_means`. However often members count, each group and each two
    groups count as their pairs do without weights.

    Returns
    -------
    (..., 3): means over the pairs of different models within and between groups, and universality,
    between over within: 1 where groups share as much as members of one do, 0 where they share
    nothing of it. NaN where there is no such pair, or within is not above 0
    """
    means = group_means(matrix, group_of, weights)
    sizes = np.bincount(group_of).astype(np.float64)
    pairs = np.outer(sizes, sizes)
    np.fill_diagonal(pairs, sizes * (sizes - 1))
    same_group = np.eye(len(sizes), dtype=bool)
    averages = []
    for mask in (same_group, ~same_group):
        weight = pairs * mask
        total = weight.sum()
        sums = (np.where(weight > 0, means, 0.0) * weight).sum(axis=(-2, -1))
        averages.append(sums / total if total > 0 else np.full_like(sums, np.nan))
    within, between = averages
    return np.stack((within, between, between / np.where(within > 0, within, np.nan)), axis=-1)


COLUMNS = ["measure", "system", "other", "distance", "lower", "upper", "cross_validated"]
PROFILES, BEST = "profiles", "best_match"


class Squares(NamedTuple):
    """Cross-validated squared distances of systems, see `mlem_core.extensions.systems.halves`.

    values : (n_systems, n_systems), symmetric, 0 on the diagonal, which may be below 0 elsewhere
    left : without each block of stimuli (n_blocks, n_systems, n_systems); None without intervals
    """

    values: FloatArray
    left: Left | None = None


class Measured(NamedTuple):
    """Distances of systems by one measure, and without each block of stimuli.

    values : (n_systems, n_systems), symmetric, 0 on the diagonal
    left : (n_blocks, n_systems, n_systems); None without intervals
    folds : (n_folds, n_systems, n_systems) in each fold, whose mean they are; None where distances
        are of all pairs of stimuli
    chance : (n_systems, n_systems) expected where the stimuli of one of two systems are permuted
    squares : what the second level is fitted to; None: it is not
    """

    values: FloatArray
    left: Left | None = None
    folds: FloatArray | None = None
    chance: FloatArray | float = 1.0
    squares: Squares | None = None


def warped_distance(first: FloatArray, second: FloatArray) -> FloatArray:
    """Distance (...) of profiles (..., n, k) and (..., m, k) by dynamic time warping.

    The cost of two layers is the Euclidean distance of their profiles. A step along both sequences
    counts it twice, one along either once, and the sum is over n + m ("symmetric2", normalised).

    Source: Sakoe and Chiba (1978), symmetric form, without slope constraint.
    """
    total = _accumulated(first, second)[0]
    return np.asarray(total[-1, -1] / sum(total.shape[:2]))


def warping_path(first: FloatArray, second: FloatArray) -> IntArray:
    """(n_steps, 2) layers that `warped_distance` puts together, of (n, k) and (m, k) profiles."""
    total, cost = _accumulated(first, second)
    i, j = len(first) - 1, len(second) - 1
    path = [(i, j)]
    while i or j:
        steps = [(i - 1, j - 1, 2), (i - 1, j, 1), (i, j - 1, 1)]
        i, j, _ = min(
            (step for step in steps if min(step[:2]) >= 0),
            key=lambda step: total[step[0], step[1]] + step[2] * cost[path[-1]],
        )
        path.append((i, j))
    return np.array(path[::-1])


def _accumulated(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Least cost of all ways to each two layers, and the cost of these two: (n, m, ...) each."""
    from mlem_core.extensions.systems.kernels import least_costs

    cost = np.sqrt(((first[..., :, None, :] - second[..., None, :, :]) ** 2).sum(axis=-1))
    n, m = cost.shape[-2:]
    cost = np.ascontiguousarray(np.moveaxis(cost, (-2, -1), (0, 1)))
    total = np.empty_like(cost)
    least_costs(cost.reshape(n, m, -1), total.reshape(n, m, -1))
    return total, cost


def profile_distances(
    results: Results, layers: Sequence[Layer], members: Members, left: Left | None = None
) -> Measured:
    """Warped distances of the held-out importance profiles, the mean over folds.

    `left` has ρ and importances without each block, (n_blocks, n_layers, 1 + n_columns), means over
    folds: how their distances change is how those of the folds do.
    """
    index = ["fold", "model", "layer"]
    wide = results.importance.pivot(index=index, columns="feature", values="importance")
    folds = wide.index.get_level_values("fold").unique()
    by_fold = np.stack([wide.loc[fold].loc[list(layers)].to_numpy() for fold in folds])

    def warped(profiles: FloatArray, others: FloatArray) -> FloatArray:
        """(..., n_systems, n_systems) of profiles (..., n_layers, n_features) beside others."""

        def distance(a: int, b: int) -> FloatArray:
            first, second = members.places[a], members.places[b]
            return warped_distance(profiles[..., first, :], others[..., second, :])

        return symmetric_matrix(distance, len(members.members), profiles.shape[:-2], 0.0)

    folds = warped(by_fold, by_fold)
    # With permuted stimuli importances are 0 on average; those of either system may be permuted.
    values, none = folds.mean(axis=0), np.zeros_like(by_fold)
    chance = (warped(by_fold, none).mean(axis=0) + warped(none, by_fold).mean(axis=0)) / 2
    if left is None:
        return Measured(values, None, folds, chance)
    without, means = left.without[..., 1:], by_fold.mean(axis=0)
    moved = values + warped(without, without) - warped(means, means)
    return Measured(values, Left(moved, left.sizes), folds, chance)


def best_match_distances(
    halves: FloatArray, members: Members, squares: FloatArray, left: Left | None = None
) -> Measured:
    """1 less the similarity of layers that are matched by it in the other half of the stimuli.

    Each layer of either system is matched with the other's most similar layer.

    Parameters
    ----------
    halves : (n_draws, 2, n_layers, n_layers) similarity in each half
    squares, left : (n_layers, n_layers) over all pairs, and without each block: with the matches of
        all halves, how these change is how the distances do
    """

    def matched(values: FloatArray, chosen_by: FloatArray) -> FloatArray:
        """(..., n_systems, n_systems) of values (..., n_layers, n_layers) at these matches."""

        def one_way(a: int, b: int) -> FloatArray:
            rows, columns = np.ix_(members.places[a], members.places[b])
            best = chosen_by[..., rows, columns].argmax(axis=-1)[..., None]
            best = np.broadcast_to(best, (*values.shape[:-2], len(rows), 1))
            return np.take_along_axis(values[..., rows, columns], best, axis=-1).mean(axis=(-2, -1))

        def both_ways(a: int, b: int) -> FloatArray:
            return (one_way(a, b) + one_way(b, a)) / 2

        return symmetric_matrix(both_ways, len(members.members), values.shape[:-2], 1.0)

    values, moved = 1.0 - matched(halves, halves[:, ::-1]).mean(axis=(0, 1)), None
    if left is not None:
        chosen_by = halves.mean(axis=(0, 1))
        change = matched(squares, chosen_by) - matched(left.without, chosen_by)
        moved = Left(values + change, left.sizes)
    return Measured(values, moved)


def similarity_distances(matrix: FloatArray, left: Left | None = None) -> Measured:
    """1 less the similarity (n_systems, n_systems) of systems, as `model_similarity` gives it."""
    same = np.eye(len(matrix), dtype=bool)
    if left is not None:
        left = Left(np.where(same, 0.0, 1.0 - left.without), left.sizes)
    return Measured(np.where(same, 0.0, 1.0 - matrix), left)


def distance_table(measured: Mapping[str, Measured], members: Members) -> pd.DataFrame:
    """Distances as a table, a row for each measure and two systems; bounds are NaN without blocks.

    Returns
    -------
    measure, system, other, distance, lower, upper (95 % interval over stimuli), cross_validated
    (squared distance, NaN where there is none)
    """
    rows: list[tuple[Any, ...]] = []
    names = members.members
    first, second = np.triu_indices(len(names), 1)
    for measure, (values, left, *_, squares) in measured.items():
        crossed = np.full_like(values, np.nan) if squares is None else squares.values
        bounds = np.full((2, *values.shape), np.nan)
        if left is not None:
            bounds = np.stack(jackknife(values, left.without, left.sizes, (0.0, np.inf))[1:3])
        for a, b in zip(first, second, strict=True):
            rows.append(
                (measure, names[a], names[b], values[a, b], *bounds[:, a, b], crossed[a, b])
            )
    return pd.DataFrame(rows, columns=COLUMNS)
