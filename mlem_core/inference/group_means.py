"""Means over the members of a group (subjects, models), with intervals over members and stimuli."""

from __future__ import annotations

import numpy as np

from mlem_core.base.numbers import student_quantile
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.inference.intervals import Left
from mlem_core.inference.resample import Estimate, standard_error


def interval_reach(variances: FloatArray, freedom: IntArray) -> FloatArray:
    """Half-width of an interval whose variance is a sum of several (n, ...), each of few units.

    Source: Welch (1947); Satterthwaite (1946), for the degrees of freedom.
    """
    total = variances.sum(axis=0)
    return np.sqrt(total) * student_quantile(_degrees(total, variances, freedom))


def _degrees(total: FloatArray, variances: FloatArray, freedom: IntArray) -> FloatArray:
    """Degrees of freedom (...) of a total of variances (n, ...), by Satterthwaite."""
    shares = (variances**2 / freedom.reshape(-1, *[1] * (variances.ndim - 1))).sum(axis=0)
    return np.divide(total**2, shares, out=np.ones_like(total), where=shares > 0)


def mean_estimate(
    values: FloatArray, stimuli: Left | None = None, *, counted_once: bool = False
) -> Estimate:
    """The mean over the members of a group, with its interval and its test against 0.

    Arrays (...) of values (n_members, ...), which are (n_blocks, n_members, ...) without each block
    of stimuli. There is no interval for one member.

    Parameters
    ----------
    counted_once : what members and stimuli vary in together, which the variances over both have, is
        taken off once; else intervals are somewhat too wide
    """
    from scipy.special import stdtr

    n, mean = len(values), values.mean(axis=0)
    if n < 2:
        return Estimate(mean, *np.full((3, *mean.shape), np.nan))
    variances, freedom, shared = [values.var(axis=0, ddof=1) / n], [n - 1], np.zeros_like(mean)
    if stimuli is not None:
        left, sizes = stimuli
        means = left.mean(axis=1)
        variances.append(standard_error(means, sizes) ** 2)
        freedom.append(min(sizes) - 1)
        if counted_once:
            # What the stimuli change in each member beyond what they change in all.
            of_members = standard_error(left - means[:, None], sizes) ** 2
            shared = of_members.sum(axis=0) / (n * (n - 1))
    parts = np.stack(variances)
    total = np.maximum(parts.sum(axis=0) - shared, parts.max(axis=0))
    degrees = np.maximum(_degrees(total, parts, np.array(freedom)), max(1, min(freedom)))
    error = np.sqrt(total)
    reach, steady = error * student_quantile(degrees), ~(error > 1e-12)
    p = 2 * stdtr(degrees, -np.abs(mean) / np.where(steady, 1.0, error))
    certain = np.where(np.abs(mean) > 1e-9, 0.0, 1.0)
    return Estimate(mean, mean - reach, mean + reach, np.where(steady, certain, p))
