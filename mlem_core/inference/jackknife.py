"""Delete-block jackknife: standard error, confidence interval and p-value of a statistic of pairs.

Blocks of sentences are left out in turn. Where words recur, so are blocks of words, and blocks of
what a sentence and a word have in common (the stimulus): a statistic of stimuli that share
sentences and words varies as V_sentence + V_word - V_both, since what one stimulus adds is in both
of the first two. Rows of left-out values are those of `mlem_core.pairs.units.Blocks`, and
`sizes` says which are which; None stands for blocks of sentences alone.

Sources: Efron and Stein (1981), by whom the standard error of statistics of pairs is too large
rather than too small; Cameron, Gelbach and Miller (2011), equation 2.13, for two kinds of units;
MacKinnon, Nielsen and Webb (2023) for the jackknife in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mlem_core.base import student
from mlem_core.base.student import CONFIDENCE
from mlem_core.base.typing import FloatArray

# Blocks of each kind of unit that are left out in turn (single units if there are fewer).
BLOCKS = 200
# The same where every model is fitted without each block, or all layers are ranked without it.
REFITS = 50


class Interval(NamedTuple):
    """A confidence interval of a value; arrays of one shape."""

    lower: FloatArray
    upper: FloatArray


def standard_error(left_out: FloatArray, sizes: Sequence[int] | None = None) -> FloatArray:
    """The standard error (...) from a value without each block (n_blocks, ...).

    With two kinds of units √(V_sentence + V_item - V_both), but at least that of either alone: the
    difference of two estimates may fall below 0 by chance.

    Parameters
    ----------
    sizes : how many of the blocks are of sentences, of items and of both; None: all of sentences
    """
    if sizes is None or len(sizes) == 1:
        return np.sqrt(_variance(left_out))
    parts = np.split(left_out, np.cumsum(sizes)[:-1])
    sentence, item, both = (_variance(part) for part in parts)
    error: FloatArray = np.sqrt(np.maximum(sentence + item - both, np.maximum(sentence, item)))
    return error


def _variance(left_out: FloatArray) -> FloatArray:
    """Delete-block jackknife variance (...) over the blocks (n_blocks, ...) of one kind of unit."""
    n = len(left_out)
    if n < 2:
        return np.full(left_out.shape[1:], np.nan)
    variance: FloatArray = (n - 1) * left_out.var(axis=0)
    return variance


def fewest(left_out: FloatArray, sizes: Sequence[int] | None = None) -> int:
    """How many blocks there are of the kind of unit that has fewest; t has one degree less."""
    return len(left_out) if sizes is None else min(sizes)


def t_quantile(n_blocks: int) -> float:
    """How many standard errors a confidence interval reaches to either side."""
    return student.quantile(max(1, n_blocks - 1))


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


def shaped(value: FloatArray, bootstrap: FloatArray, reach: FloatArray) -> Interval:
    """Confidence interval (...) of a reach to either side, in the shape of the bootstrap.

    Parameters
    ----------
    value, reach : (...)
    bootstrap : (n_replicates, ...)
    """
    from scipy.stats import norm

    tail = (1 - CONFIDENCE) / 2
    normal = norm.ppf(1 - tail)
    low, high = np.quantile(bootstrap, [tail, 1 - tail], axis=0)
    mean, spread = bootstrap.mean(axis=0), bootstrap.std(axis=0, ddof=1)
    varies = spread > 1e-12
    safe = np.where(varies, spread, 1.0)
    # A quantile in standard deviations, the normal one where no replicate differs (a model without
    # any weight may have some without a block).
    below = np.where(varies, np.minimum((low - mean) / safe, 0.0), -normal)
    above = np.where(varies, np.maximum((high - mean) / safe, 0.0), normal)
    return Interval(value + reach / normal * below, value + reach / normal * above)


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
    value: FloatArray,
    left_out: FloatArray,
    low: float = -np.inf,
    high: float = np.inf,
    sizes: Sequence[int] | None = None,
) -> Interval:
    """`t_interval` of a value (...), from the value without each block (n_blocks, ...).

    `sizes` as in `standard_error`.
    """
    error = standard_error(left_out, sizes)
    return t_interval(value, error, fewest(left_out, sizes), low, high)


def p_value(
    value: FloatArray,
    left_out: FloatArray,
    above: bool = False,
    sizes: Sequence[int] | None = None,
) -> FloatArray:
    """`t_test` of a value (...), from the value without each block (n_blocks, ...).

    `sizes` as in `standard_error`.
    """
    return t_test(value, standard_error(left_out, sizes), fewest(left_out, sizes), above)
