"""Estimates of statistics of pairs: confidence interval and test, by the delete-block jackknife.

Blocks of sentences are left out in turn. Where words recur, so are blocks of words, and blocks of
what a sentence and a word have in common (the stimulus): a statistic of stimuli that share
sentences and words varies as V_sentence + V_word - V_both, since what one stimulus adds is in both
of the first two. Rows of left-out values are those of `mlem_core.pairs.resampling_units.Blocks`,
and `sizes` says which are which; None stands for blocks of sentences alone.

Sources: Efron and Stein (1981), by whom the standard error of statistics of pairs is too large
rather than too small; Cameron, Gelbach and Miller (2011), equation 2.13, for two kinds of units;
MacKinnon, Nielsen and Webb (2023) for the jackknife in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mlem_core.base.numbers import CONFIDENCE, student_quantile
from mlem_core.base.typing import FloatArray

_NO_TEST = np.array(np.nan)
# What a statistic lies between: numbers, or arrays of its shape.
Bounds = tuple[float | FloatArray, float | FloatArray]


class Estimate(NamedTuple):
    """A statistic with its 95 % confidence interval and its test: arrays (...) of one shape.

    value, lower, upper : NaN where there is no interval
    p : of the hypothesis that the truth is 0
    units : how many blocks of sentences were left out in turn; or of sentences, of items, and of
        combinations of both. Without any, nothing of the stimuli was
    """

    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    p: FloatArray = _NO_TEST
    units: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        """Number of blocks of the kind of unit that has fewest."""
        return min(self.units, default=0)

    def columns(self, *names: str) -> dict[str, FloatArray]:
        """Some of its arrays by their names, the columns of a table."""
        return {name: getattr(self, name) for name in names}


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
    """Number of blocks of the kind of unit that has fewest; t has one degree less."""
    return len(left_out) if sizes is None else min(sizes)


def t_quantile(n_blocks: int) -> float:
    """Half-width of a confidence interval in standard errors."""
    return student_quantile(max(1, n_blocks - 1))


def shaped(
    value: FloatArray, bootstrap: FloatArray, reach: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds (...) of a reach to either side of a value, in the shape of the bootstrap.

    Parameters
    ----------
    value, reach : (...)
    bootstrap : (n_replicates, ...)
    """
    from scipy.special import ndtri  # scipy.stats takes a second to import

    tail = (1 - CONFIDENCE) / 2
    normal = ndtri(1 - tail)
    low, high = np.quantile(bootstrap, [tail, 1 - tail], axis=0)
    mean, spread = bootstrap.mean(axis=0), bootstrap.std(axis=0, ddof=1)
    varies = spread > 1e-12
    safe = np.where(varies, spread, 1.0)
    # A quantile in standard deviations, the normal one where no replicate differs (a model without
    # any weight may have some without a block).
    below = np.where(varies, np.minimum((low - mean) / safe, 0.0), -normal)
    above = np.where(varies, np.maximum((high - mean) / safe, 0.0), normal)
    return value + reach / normal * below, value + reach / normal * above


def by_error(
    value: FloatArray,
    error: FloatArray,
    sizes: Sequence[int],
    within: Bounds = (-np.inf, np.inf),
    *,
    above: bool = False,
) -> Estimate:
    """Estimate by t, with a standard error from blocks.

    A value that no stimulus changes is 0 for sure (p = 1) or is not (p = 0).

    Parameters
    ----------
    value, error : (...)
    sizes : how many blocks there are of each kind of unit
    within : the statistic lies between these
    above : test against a truth above 0 only; else against any other
    """
    from scipy.special import stdtr

    reach = error * t_quantile(min(sizes))
    steady = ~(error > 1e-12)
    statistic = value / np.where(steady, 1.0, error)
    tail = stdtr(max(1, min(sizes) - 1), -(statistic if above else np.abs(statistic)))
    certain = value > 1e-9 if above else np.abs(value) > 1e-9
    return Estimate(
        value,
        np.maximum(value - reach, within[0]),
        np.minimum(value + reach, within[1]),
        np.where(steady, np.where(certain, 0.0, 1.0), tail if above else 2 * tail),
        tuple(sizes),
    )


def jackknife(
    value: FloatArray,
    left_out: FloatArray,
    sizes: Sequence[int] | None = None,
    within: Bounds = (-np.inf, np.inf),
    *,
    above: bool = False,
) -> Estimate:
    """Estimate by t, from a value (...) and the same without each block (n_blocks, ...).

    Parameters
    ----------
    sizes : as in `standard_error`
    within, above : as in `by_error`
    """
    sizes = (len(left_out),) if sizes is None else sizes
    return by_error(value, standard_error(left_out, sizes), sizes, within, above=above)
