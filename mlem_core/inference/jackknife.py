"""Delete-block jackknife: standard error, confidence interval and p-value of a statistic of pairs.

Blocks of sentences are left out in turn. Source: Efron and Stein (1981); for statistics of pairs
the standard error is too large rather than too small.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlem_core.base.typing import FloatArray

CONFIDENCE = 0.95
# Blocks of sentences that are left out in turn (single sentences if there are fewer).
BLOCKS = 200
# The same where every model is fitted without each block, or all layers are ranked without it.
REFITS = 50


class Interval(NamedTuple):
    """A confidence interval of a value; arrays of one shape."""

    lower: FloatArray
    upper: FloatArray


def standard_error(left_out: FloatArray) -> FloatArray:
    """The standard error (...) from a value without each block (n_blocks, ...)."""
    n = len(left_out)
    if n < 2:
        return np.full(left_out.shape[1:], np.nan)
    error: FloatArray = np.sqrt((n - 1) * left_out.var(axis=0))
    return error


def t_quantile(n_blocks: int) -> float:
    """How many standard errors a confidence interval reaches to either side."""
    from scipy.stats import t

    return float(t.ppf(1 - (1 - CONFIDENCE) / 2, max(1, n_blocks - 1)))


def t_interval(
    value: FloatArray,
    error: FloatArray,
    n_blocks: int,
    low: float = -np.inf,
    high: float = np.inf,
) -> Interval:
    """Confidence interval by t with a standard error from n_blocks blocks.

    Parameters
    ----------
    value, error : (...)
    low, high : the statistic lies between these
    """
    reach = error * t_quantile(n_blocks)
    return Interval(np.maximum(value - reach, low), np.minimum(value + reach, high))


def t_test(value: FloatArray, error: FloatArray, n_blocks: int, above: bool = False) -> FloatArray:
    """p (...) of the hypothesis that the truth is 0, by t with a standard error from blocks.

    A value that no stimulus changes is 0 for sure (p = 1) or is not (p = 0).

    Parameters
    ----------
    value, error : (...)
    above : against a truth above 0 only; else against any other
    """
    from scipy.stats import t

    steady = ~(error > 1e-12)
    statistic = value / np.where(steady, 1.0, error)
    tail = t.sf(statistic if above else np.abs(statistic), max(1, n_blocks - 1))
    certain = value > 1e-9 if above else np.abs(value) > 1e-9
    return np.where(steady, np.where(certain, 0.0, 1.0), tail if above else 2 * tail)


def jackknife_interval(
    value: FloatArray, left_out: FloatArray, low: float = -np.inf, high: float = np.inf
) -> Interval:
    """`t_interval` of a value (...), from the value without each block (n_blocks, ...)."""
    return t_interval(value, standard_error(left_out), len(left_out), low, high)


def p_value(value: FloatArray, left_out: FloatArray, above: bool = False) -> FloatArray:
    """`t_test` of a value (...), from the value without each block (n_blocks, ...)."""
    return t_test(value, standard_error(left_out), len(left_out), above)
