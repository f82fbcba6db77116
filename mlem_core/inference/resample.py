"""Estimates from a number of all stimuli and the same without each block of them.

The jackknife, of sentences and, where words recur, of words, gives the standard error; the interval
is by Student's t. What a number is without a block follows from the block's influence on it
(`mlem_core.inference.block_influence`). `make validate` measures how often such intervals hold the
truth, see docs/validation.

Sentences say how intervals were computed, and what they do not speak of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.numbers import CONFIDENCE, student_quantile
from mlem_core.base.text import fraction, listed, percent
from mlem_core.base.typing import FloatArray
from mlem_core.estimators.registry import estimator_named
from mlem_core.pairs.designs import BUDGET
from mlem_core.pairs.designs import n_pairs as all_pairs
from mlem_core.pairs.resampling_units import Units

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results

_NO_TEST = np.array(np.nan)
# What a statistic lies between: numbers, or arrays of its shape.
Bounds = tuple[float | FloatArray, float | FloatArray]


class Estimate(NamedTuple):
    """A statistic with its 95 % confidence interval and its test: arrays (...) of one shape.

    value, lower, upper : NaN where there is no interval
    p : of the hypothesis that the truth is 0
    """

    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    p: FloatArray = _NO_TEST

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
    sizes = (len(left_out),) if sizes is None else sizes
    return error_of_kinds(covariances_of_kinds(left_out, left_out, sizes))


def error_of_kinds(variances: FloatArray) -> FloatArray:
    """The standard error (...) from the variances (n_kinds, ...) over the blocks of each kind."""
    if len(variances) == 1:
        return np.sqrt(variances[0])
    sentence, item, both = variances
    return np.asarray(np.sqrt(np.maximum(sentence + item - both, np.maximum(sentence, item))))


def covariances_of_kinds(
    left_out: FloatArray, others: FloatArray, sizes: Sequence[int]
) -> FloatArray:
    """Delete-block jackknife covariances (n_kinds, ...) of two statistics, a kind of unit each.

    Parameters
    ----------
    left_out, others : (n_blocks, ...) the statistics without each block
    sizes : how many of the blocks are of each kind
    """
    ends, covariances = np.cumsum(sizes)[:-1], []
    for parts in zip(np.split(left_out, ends), np.split(others, ends), strict=True):
        moves, n = [part - part.mean(axis=0) for part in parts], len(parts[0])
        covariance = np.einsum("i...,i...->...", *moves)
        covariances.append(covariance * ((n - 1) / n if n > 1 else np.nan))
    return np.stack(covariances)


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


def squared_effect_bounds(value: FloatArray, reach: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds (...) for numbers that grow with the square of an effect, as importances do.

    The error of such a number grows with the effect, so that where the effect happens to be small
    its error is too, and value + reach would end below the truth. The upper bound is therefore
    taken on the scale of the square root, at most twice the reach above the value; the lower one
    is value - reach.

    Parameters
    ----------
    value, reach : (...) reach is the half-width of a confidence interval by t
    """
    positive = np.where(value > 0, value, np.inf)
    further = np.where(value > 0, np.minimum(reach / (4 * positive), 1.0), 1.0)
    return value - reach, value + reach * (1.0 + further)


def estimate_from_error(
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

    degrees = max(1, min(sizes) - 1)
    reach = error * student_quantile(degrees)
    steady = ~(error > 1e-12)
    statistic = value / np.where(steady, 1.0, error)
    tail = stdtr(degrees, -(statistic if above else np.abs(statistic)))
    certain = value > 1e-9 if above else np.abs(value) > 1e-9
    return Estimate(
        value,
        np.maximum(value - reach, within[0]),
        np.minimum(value + reach, within[1]),
        np.where(steady, np.where(certain, 0.0, 1.0), tail if above else 2 * tail),
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
    within, above : as in `estimate_from_error`
    """
    sizes = (len(left_out),) if sizes is None else sizes
    return estimate_from_error(value, standard_error(left_out, sizes), sizes, within, above=above)


FEWEST_SENTENCES = 10
# Stimuli whose labels are permuted, or whose influence is taken, at most, and all pairs of them:
# whole sentences at random.
PERMUTED = 3_000


def check_enough(n_sentences: int) -> None:
    """Raise InputError for too few sentences for intervals."""
    if n_sentences < FEWEST_SENTENCES:
        raise InputError(
            f"found {n_sentences} resampling units; intervals over them need at least "
            f"{FEWEST_SENTENCES}."
        )


# Below this RSA correlation two layers are called hardly similar; below this ρ no feature matters.
HARDLY = 0.1
# Below this RSA correlation, or τ, two layers are called weakly similar.
WEAKLY = 0.3
# A held-out ρ below this part of its ceiling says more of the metric model than of the features.
FAR_BELOW = 0.6
# With fewer sentences an interval is a rough guide; see docs/validation.
FEW_SENTENCES = 80

FITTED = (
    "The weights of this estimator are held: its intervals hold for these fitted models on new "
    "stimuli and are narrower than those of refitted models."
)
ZERO = (
    "Where the population value is exactly 0 (a layer does not encode the feature), intervals are "
    "conservative: they hold 0 in more than 95 % of samples."
)


def generalises(units: Units, *, seeds: bool = False) -> str:
    """A sentence on what intervals and tests over these units generalise to.

    Parameters
    ----------
    seeds : whether there are groups with two models or more
    """
    if seeds:
        return (
            f"Confidence intervals and tests of layers are over {units.others}. Only intervals over"
            " the models of a group generalise to other models of that group; none generalises to "
            "other groups or other kinds of stimuli."
        )
    return (
        f"Confidence intervals and tests are over {units.others}. With one checkpoint per model "
        "they do not generalise to other models, training runs or kinds of stimuli."
    )


def sample_size_caveats(units: Units) -> tuple[str, ...]:
    """Caveats for so many units, if any."""
    few = f"With fewer than {FEW_SENTENCES} {units.groups}, intervals are only a "
    return (f"{few}rough guide.",) if units.n_sentences < FEW_SENTENCES else ()


def interval_sample_sentence(n_stimuli: int, n_pairs: int) -> str:
    """Sentence on the stimuli that intervals are from where these are a sample; else empty."""
    if n_stimuli <= PERMUTED and n_pairs >= all_pairs(n_stimuli):
        return ""
    return (
        f"Intervals are from about {min(n_stimuli, PERMUTED):,} of the {n_stimuli:,} stimuli (all "
        "that stay together, and all their pairs), around the values from all compared pairs."
    )


def permuted_sample_sentence(n_stimuli: int, n_pairs: int) -> str:
    """Sentence on whose labels are permuted where not all pairs are compared; else empty."""
    if all_pairs(n_stimuli) <= min(n_pairs, BUDGET):
        return ""
    some = min(n_stimuli, PERMUTED)
    return (
        f"Labels are permuted among about {some:,} of the {n_stimuli:,} stimuli (all that "
        "stay together, and all their pairs); a test of all stimuli would have more power."
    )


def ceiling_caveats(results: Results, estimator: str) -> str:
    """The models whose mean held-out ρ is far below its ceiling, and what to try; else empty."""
    by_fold = results.scores.groupby(["model", "fold"], sort=False)[["rho", "ceiling"]].mean()
    of_models = by_fold.groupby("model", sort=False)
    # Of noise the mean of ceilings, none of which is below 0, is above 0; some of them are 0.
    means = of_models.mean()[of_models["ceiling"].min() >= HARDLY]
    means = means[means["rho"] < FAR_BELOW * means["ceiling"]]
    each = [f"{m} ({fraction(rho)} of {fraction(most)})" for m, rho, most in means.itertuples()]
    ways = ["the estimator ridge-rank"] * (estimator != "ridge-rank")
    ways += ["coding by value (--values all)"] * (not results.resolved)
    return (
        f"The held-out ρ is below {percent(FAR_BELOW)} of its ceiling in {listed(each, most=4)}: "
        f"try {listed([*ways, 'more features'], last='or')}."
    ) * bool(each)


def how_computed(estimator: str, units: Units) -> str:
    """Computation of the intervals of all layers, with its caveats, for a caption."""
    how = (
        f"Confidence intervals are over {units.over}. They follow from the influence of each of "
        "these on a number (infinitesimal jackknife)."
    )
    fitted = () if estimator_named(estimator).refitted else (FITTED,)
    return " ".join((how, *fitted, *sample_size_caveats(units)))
