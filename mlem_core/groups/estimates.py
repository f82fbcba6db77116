"""Intervals of groups of models over models x stimuli: other members, other stimuli.

Members of a group are drawn with replacement; two copies of one member are no pair, as they would
be alike without end. Each draw of members meets a draw of the stimuli: the similarities of models
move as their values without blocks of sentences (and of words) do, each block weighted by a random
sign. As for stimuli alone (`mlem_core.inference.replicates`), the draws give an interval its shape
and the jackknife its size: leaving out each member of a group in turn, and each block, with the
degrees of freedom of so few members (Welch and Satterthwaite). What models and stimuli vary in
together is in both, so that an interval is somewhat too wide rather than too narrow.

Groups are not drawn: an interval speaks of other members of these groups, not of other groups.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlem_core.base.numbers import CONFIDENCE, student_quantile
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.inference.intervals import Left
from mlem_core.inference.jackknife import Estimate, fewest, shaped, standard_error

REPLICATES = 1000
# A statistic of similarities (..., n_members, n_members), by each one's group and how often it
# counts: `group_means` or `within_and_between` of `mlem_core.groups.members`.
Statistic = Callable[[FloatArray, IntArray, FloatArray], FloatArray]


def estimate(
    statistic: Statistic,
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
    matrix : (n_terms, n_members, n_members); the diagonal is not looked at
    group_of : (n_members,) the number of each one's group
    stimuli : the matrix without each block of stimuli; None: the interval is over members alone

    Returns
    -------
    arrays (n_terms, ...). An interval is NaN where it is not defined without some member
    (fewer than three in the group whose members are compared), and where no group has two members
    """
    every = np.ones(len(group_of))
    value = statistic(matrix, group_of, every)
    variance, freedom = _member_variance(statistic, matrix, group_of)
    rng = np.random.default_rng(seed)
    # How often each member is drawn (n_replicates, n_members), within its group.
    drawn = np.ones((n_replicates, len(group_of)))
    for group in range(int(group_of.max()) + 1):
        members = np.flatnonzero(group_of == group)
        size = len(members)
        drawn[:, members] = rng.multinomial(size, np.full(size, 1 / size), size=n_replicates)
    moved = np.zeros((n_replicates, 1, 1, 1))
    if stimuli is not None:
        error = standard_error(statistic(stimuli.without, group_of, every), stimuli.sizes)
        variance = [*variance, error**2]
        freedom = [*freedom, fewest(stimuli.without, stimuli.sizes) - 1]
        moved, _ = stimuli.moves(n_replicates, rng)
    if not len(freedom):
        return Estimate(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    replicates = np.stack(
        [
            statistic(matrix + step, group_of, weights)
            for step, weights in zip(moved, drawn, strict=True)
        ]
    )
    reach = _reach(np.stack(variance), np.array(freedom))
    # Members that are drawn so that nothing is compared say nothing of the shape.
    replicates = np.where(np.isfinite(replicates), replicates, value)
    return Estimate(value, *shaped(value, replicates, reach))


def _member_variance(
    statistic: Statistic, matrix: FloatArray, group_of: IntArray
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
            without.append(statistic(matrix, group_of, weights))
        variances.append((n - 1) * np.stack(without).var(axis=0))
        freedom.append(n - 1)
    return variances, freedom


def _reach(variances: FloatArray, freedom: IntArray, confidence: float = CONFIDENCE) -> FloatArray:
    """How far an interval reaches whose variance is a sum of several (n, ...), each of few units.

    Source: Welch (1947); Satterthwaite (1946), for the degrees of freedom.
    """
    whole = variances.sum(axis=0)
    shares = (variances**2 / freedom.reshape(-1, *[1] * (variances.ndim - 1))).sum(axis=0)
    varies = shares > 0
    degrees = np.divide(whole**2, shares, out=np.ones_like(whole), where=varies)
    reach: FloatArray = np.sqrt(whole) * student_quantile(degrees, confidence)
    return reach


def mean_estimate(
    values: FloatArray, stimuli: Left | None = None, confidence: float = CONFIDENCE
) -> Estimate:
    """The mean over the members of a group, with its interval over these and the stimuli.

    Parameters
    ----------
    values : (n_members, ...) of each member
    stimuli : the same without each block, (n_blocks, n_members, ...)

    Returns
    -------
    arrays (...). There is no interval for one member
    """
    n, mean = len(values), values.mean(axis=0)
    if n < 2:
        return Estimate(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    variances, freedom = [values.var(axis=0, ddof=1) / n], [n - 1]
    if stimuli is not None:
        variances.append(standard_error(stimuli.without.mean(axis=1), stimuli.sizes) ** 2)
        freedom.append(fewest(stimuli.without, stimuli.sizes) - 1)
    reach = _reach(np.stack(variances), np.array(freedom), confidence)
    return Estimate(mean, mean - reach, mean + reach)
