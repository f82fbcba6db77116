"""Intervals over models x stimuli of what groups of models share: other members, other stimuli.

Members of a group are drawn with replacement; two copies of one member are no pair, as they would
be alike without end. Each draw of members meets a draw of the stimuli: the similarities of models
move as their values without blocks of sentences (and of words) do, each block weighted by a random
sign. As for stimuli alone (`mlem_core.inference.replicates`), the draws give an interval its shape
and the jackknife its size: leaving out each member of a group in turn, and each block, with the
degrees of freedom of so few members (Welch and Satterthwaite). What models and stimuli vary in
together is in both, so that an interval is somewhat too wide rather than too narrow.

Groups are not drawn: an interval speaks of other members of these recipes, not of other recipes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mlem_core.base import student
from mlem_core.base.student import CONFIDENCE
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.groups.members import group_means, shared
from mlem_core.inference.intervals import Left
from mlem_core.inference.jackknife import Interval, fewest, shaped, standard_error

REPLICATES = 1000
# A statistic (..., n) of similarities (..., n_members, n_members), by how often each member counts.
Statistic = Callable[[FloatArray, FloatArray], FloatArray]


class Estimate(NamedTuple):
    """A statistic with its interval: arrays of one shape; NaN where there is none."""

    value: FloatArray
    lower: FloatArray
    upper: FloatArray


def within_and_between(matrix: FloatArray, weights: FloatArray, group_of: IntArray) -> FloatArray:
    """(..., 3) means within and between groups and universality, see `shared`."""
    return np.stack(shared(matrix, group_of, weights), axis=-1)


def by_groups(matrix: FloatArray, weights: FloatArray, group_of: IntArray) -> FloatArray:
    """(..., n_groups²) the means of `group_means`."""
    means = group_means(matrix, group_of, weights)
    return means.reshape(*means.shape[:-2], -1)


def estimate(
    statistic: Callable[[FloatArray, FloatArray, IntArray], FloatArray],
    matrix: FloatArray,
    group_of: IntArray,
    stimuli: Left | None = None,
    *,
    n_replicates: int = REPLICATES,
    seed: int = 0,
) -> Estimate:
    """A statistic of similarities of models, with its interval over members and stimuli.

    Parameters
    ----------
    statistic : `within_and_between` or `by_groups`
    matrix : (n_terms, n_members, n_members); the diagonal is not looked at
    group_of : (n_members,) the number of each one's group
    stimuli : the matrix without each block of stimuli; None: the interval is over members alone

    Returns
    -------
    arrays (n_terms, n_statistics). An interval is NaN where it is not defined without some member
    (fewer than three in the group whose members are compared), and where no group has two members
    """

    def of(values: FloatArray, weights: FloatArray) -> FloatArray:
        return statistic(values, weights, group_of)

    every = np.ones(len(group_of))
    value = of(matrix, every)
    variance, freedom = _member_variance(of, matrix, group_of)
    rng = np.random.default_rng(seed)
    drawn = _member_draws(group_of, n_replicates, rng)
    moved = np.zeros((n_replicates, 1, 1, 1))
    if stimuli is not None:
        error = standard_error(of(stimuli.without, every), stimuli.sizes)
        variance = [*variance, error**2]
        freedom = [*freedom, fewest(stimuli.without, stimuli.sizes) - 1]
        moved = _stimulus_draws(stimuli, n_replicates, rng)
    if not len(freedom):
        return Estimate(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    replicates = np.stack(
        [of(matrix + step, weights) for step, weights in zip(moved, drawn, strict=True)]
    )
    reach = _reach(np.stack(variance), np.array(freedom))
    # Members that are drawn so that nothing is compared say nothing of the shape.
    bounds = shaped(value, np.where(np.isfinite(replicates), replicates, value), reach)
    return Estimate(value, bounds.lower, bounds.upper)


def _member_variance(
    of: Statistic, matrix: FloatArray, group_of: IntArray
) -> tuple[list[FloatArray], list[int]]:
    """Jackknife variance over the members of each group that has two, and degrees of freedom."""
    variances, freedom = [], []
    for group in range(int(group_of.max()) + 1):
        members = np.flatnonzero(group_of == group)
        n = len(members)
        if n < 2:
            continue
        without = []
        for member in members:
            weights = np.ones(len(group_of))
            weights[member] = 0.0
            without.append(of(matrix, weights))
        variances.append((n - 1) * np.stack(without).var(axis=0))
        freedom.append(n - 1)
    return variances, freedom


def _member_draws(group_of: IntArray, n: int, rng: np.random.Generator) -> FloatArray:
    """(n, n_members) how often each member is drawn, within its group."""
    drawn = np.ones((n, len(group_of)))
    for group in range(int(group_of.max()) + 1):
        members = np.flatnonzero(group_of == group)
        size = len(members)
        drawn[:, members] = rng.multinomial(size, np.full(size, 1 / size), size=n)
    return drawn


def _stimulus_draws(stimuli: Left, n: int, rng: np.random.Generator) -> FloatArray:
    """(n, ...) how far values move with other stimuli: as the jackknife says they vary.

    With two kinds of units what sentences and items do; what both have in common is in both.
    """
    moved = np.zeros((n, *stimuli.without.shape[1:]))
    kinds = np.split(stimuli.without, np.cumsum(stimuli.sizes)[:-1])
    for without in kinds[:2]:
        blocks = len(without)
        away = (without - without.mean(axis=0)) * np.sqrt((blocks - 1) / blocks)
        moved += np.tensordot(rng.standard_normal((n, blocks)), away, axes=(1, 0))
    return moved


def _reach(variances: FloatArray, freedom: IntArray, confidence: float = CONFIDENCE) -> FloatArray:
    """How far an interval reaches whose variance is a sum of several (n, ...), each of few units.

    Source: Welch (1947); Satterthwaite (1946), for the degrees of freedom.
    """
    whole = variances.sum(axis=0)
    shares = (variances**2 / freedom.reshape(-1, *[1] * (variances.ndim - 1))).sum(axis=0)
    varies = shares > 0
    degrees = np.divide(whole**2, shares, out=np.ones_like(whole), where=varies)
    reach: FloatArray = np.sqrt(whole) * student.quantile(degrees, confidence)
    return reach


def profile_interval(
    values: FloatArray, stimuli: Left | None = None, confidence: float = CONFIDENCE
) -> Interval:
    """The interval of the mean profile of a group, over its members and the stimuli.

    Parameters
    ----------
    values : (n_members, ...) of each member
    stimuli : the same without each block, (n_blocks, n_members, ...)

    Returns
    -------
    (...); NaN for one member
    """
    n, mean = len(values), values.mean(axis=0)
    if n < 2:
        return Interval(np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    variances, freedom = [values.var(axis=0, ddof=1) / n], [n - 1]
    if stimuli is not None:
        variances.append(standard_error(stimuli.without.mean(axis=1), stimuli.sizes) ** 2)
        freedom.append(fewest(stimuli.without, stimuli.sizes) - 1)
    reach = _reach(np.stack(variances), np.array(freedom), confidence)
    return Interval(mean - reach, mean + reach)
