"""Confidence intervals and tests of what an analysis says, over the stimuli.

Intervals combine two ways of drawing the sentences again. The jackknife (blocks of sentences left
out) gives the standard error: the bootstrap's own is too large here, because a bootstrap draw
counts the noise of a pair three times where the jackknife counts it twice. The bootstrap gives the
shape: its quantiles, brought to the jackknife's standard error, around the value. `make validate`
measures how often such intervals hold the truth, see docs/validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.bootstrap import LayerPairs, Progress, ScoreDraws, score_draws, term_draws
from mlem_core.inference.refits import refitted_scores
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.pairs.resampling import leave_out, multinomial

CONFIDENCE = 0.95
# Blocks of sentences that the jackknife leaves out in turn (single sentences if there are fewer).
BLOCKS = 200
# The same for scores, where each block is left out of the fit too.
REFITS = 50
# With fewer sentences an interval is a rough guide; see docs/validation.
FEW_SENTENCES = 80
CORRECTIONS = {"bh": "Benjamini-Hochberg", "bonferroni": "Bonferroni", "none": "not corrected"}

GENERALISES = (
    "What is resampled is the sentence: an interval or a test says how this would vary with other "
    "stimuli of the same kind. With one checkpoint a model it says nothing about other models, "
    "other training runs or other kinds of stimuli."
)
FITTED = (
    "This estimator is not fitted anew for each draw: its intervals are those of these fitted "
    "models' scores on new stimuli, which is narrower than models fitted to new stimuli would be."
)
ZERO = (
    "Where the truth is exactly 0 (a feature that a layer does not have), intervals are wider than "
    "they need be: they hold 0 more often than 95 times in 100."
)
FEW = (
    f"With fewer than {FEW_SENTENCES} sentences intervals are a rough guide, and the ceiling is "
    "too high."
)


class Interval(NamedTuple):
    """A confidence interval and the standard error of a value; arrays of one shape."""

    lower: FloatArray
    upper: FloatArray
    error: FloatArray


def standard_error(left_out: FloatArray) -> FloatArray:
    """The jackknife's standard error.

    Parameters
    ----------
    left_out : (n_blocks, ...) the value without each block of stimuli

    Source: Efron and Stein (1981): for statistics of pairs it is too large rather than too small.
    """
    n = len(left_out)
    if n < 2:
        return np.full(left_out.shape[1:], np.nan)
    found: FloatArray = np.sqrt((n - 1) * left_out.var(axis=0))
    return found


def interval(
    value: FloatArray,
    draws: FloatArray,
    left_out: FloatArray,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Confidence interval: quantiles of the bootstrap at the scale of the jackknife.

    Parameters
    ----------
    value : (...) from all stimuli
    draws : (n_draws, ...) from bootstrap draws of them
    left_out : (n_blocks, ...) without each block of them
    """
    from scipy.stats import norm, t

    error, tail = standard_error(left_out), (1 - confidence) / 2
    normal = norm.ppf(1 - tail)
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    mean, spread = draws.mean(axis=0), draws.std(axis=0, ddof=1)
    varies = spread > 1e-12
    safe = np.where(varies, spread, 1.0)
    # A quantile of the draws in standard deviations, the normal one where no draw differs (a model
    # without any weight may have some without a block); a little further out for few blocks.
    wider = error * t.ppf(1 - tail, max(1, len(left_out) - 1)) / normal
    lower = value + wider * np.where(varies, np.minimum((low - mean) / safe, 0.0), -normal)
    upper = value + wider * np.where(varies, np.maximum((high - mean) / safe, 0.0), normal)
    return Interval(lower, upper, error)


def p_value(value: FloatArray, left_out: FloatArray, above: bool = False) -> FloatArray:
    """p of the hypothesis that the truth is 0: t with the jackknife's standard error.

    A value that no stimulus changes is 0 for sure (p = 1) or is not (p = 0).

    Parameters
    ----------
    above : against a truth above 0 only; else against any other
    """
    from scipy.stats import t

    error = standard_error(left_out)
    steady = ~(error > 1e-12)
    statistic = value / np.where(steady, 1.0, error)
    tail = t.sf(statistic if above else np.abs(statistic), max(1, len(left_out) - 1))
    found = tail if above else 2 * tail
    certain = value > 1e-9 if above else np.abs(value) > 1e-9
    return np.where(steady, np.where(certain, 0.0, 1.0), found)


def corrected(p: FloatArray, correction: str = "bh") -> FloatArray:
    """p-values (n,) corrected over the family that they make.

    Parameters
    ----------
    correction : "bh" (false discovery rate, Benjamini and Hochberg 1995), "bonferroni" or "none"

    Raises
    ------
    InputError
        An unknown correction.
    """
    from scipy.stats import false_discovery_control

    if correction not in CORRECTIONS:
        raise unknown("correction", correction, CORRECTIONS)
    if correction == "none" or not len(p):
        return p
    if correction == "bonferroni":
        return np.minimum(p * len(p), 1.0)
    found: FloatArray = false_discovery_control(p)
    return found


class Tested(NamedTuple):
    """A table of tests and the family that their p-values are corrected over, for its caption."""

    table: pd.DataFrame
    family: str


def tested(table: pd.DataFrame, what: str, correction: str) -> Tested:
    """Add `p_corrected` to a table with `p`, and name the family."""
    table = table.assign(p_corrected=corrected(table["p"].to_numpy(np.float64), correction))
    return Tested(table, f"{len(table)} {what}; {CORRECTIONS[correction]}")


class Resampling(NamedTuple):
    """One statistic of all stimuli, of bootstrap draws, and without blocks of sentences."""

    value: FloatArray
    draws: FloatArray
    left_out: FloatArray

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        return interval(self.value, self.draws, self.left_out, confidence)


def _checked(pairs: LayerPairs, n_draws: int) -> None:
    if n_draws < 20:
        raise InputError(
            f"found {n_draws} bootstrap draws; an interval needs at least 20, a good one 1000."
        )
    if pairs.n_groups < 10:
        raise InputError(f"found {pairs.n_groups} sentences; intervals over them need at least 10.")


def resampled_terms(
    pairs: LayerPairs, n_draws: int = 1000, seed: int = 0, progress: Progress | None = None
) -> Resampling:
    """The terms of two layers, "unexplained", their RSA and both ceilings: (n_features + 4,).

    Raises
    ------
    InputError
        Too few draws or sentences.
    """
    _checked(pairs, n_draws)

    def statistic(weights: FloatArray) -> FloatArray:
        found = term_draws(pairs.whole, pairs.tables.codes, weights, progress)
        return np.column_stack((found.values, found.rsa, found.ceilings))

    rng, n = np.random.default_rng(seed), pairs.n_groups
    parts = (np.ones((1, n)), multinomial(n, n_draws, rng), leave_out(n, BLOCKS, rng))
    found = statistic(np.concatenate(parts))
    return Resampling(found[0], found[1 : 1 + n_draws], found[1 + n_draws :])


def resampled_scores(
    pairs: LayerPairs,
    estimator: str = "ridge",
    n_draws: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Resampling:
    """ρ, ceiling, and importances of each layer, means over folds: (n_layers, 2 + n_columns).

    The models keep their weights, but the standard errors of importances are those of models that
    are fitted anew where blocks of sentences are left out (`EstimatorSpec.refitted`;
    see `FITTED` for the other estimators).

    Parameters
    ----------
    estimator : name, see `mlem_core.estimators.registry`
    """
    _checked(pairs, n_draws)
    chosen, rng, n = estimator_named(estimator), np.random.default_rng(seed), pairs.n_groups
    fit = chosen.model().cross_validate
    weights = fit(pairs.tables).weights
    drawn = np.concatenate((np.ones((1, n)), pairs.by_fold(n_draws, rng)))
    found = _columns(score_draws(pairs, weights, drawn))
    without = leave_out(n, REFITS, rng)
    fixed = _columns(score_draws(pairs, weights, without, importance=not chosen.refitted))
    if chosen.refitted:
        again = _columns(refitted_scores(pairs, without, fit, progress))
        # Weights are near the best for ρ, which does not notice how they vary; importances do.
        fixed[..., 2:] = again[..., 2:]
    return Resampling(found[0], found[1:], fixed)


def _columns(scores: ScoreDraws) -> FloatArray:
    return np.concatenate(
        (scores.rho[..., None], scores.ceiling[..., None], scores.importance), axis=-1
    )


def score_table(
    pairs: LayerPairs, scores: Resampling, correction: str = "bh", confidence: float = CONFIDENCE
) -> Tested:
    """Held-out ρ, ceiling and importances with intervals, and tests of importances above 0.

    Parameters
    ----------
    scores : from `resampled_scores`

    Returns
    -------
    model, layer, quantity ("rho", "ceiling", "importance"), feature, value, lower, upper, p,
    p_corrected; the last two for importances only. The family is all importances of the table.
    """
    names = [("rho", ""), ("ceiling", "")]
    names += [("importance", feature) for feature in pairs.tables.columns.names]
    own = scores.interval(confidence)
    p = p_value(scores.value, scores.left_out, above=True)
    rows: list[dict[str, Any]] = []
    for at, (model, layer) in enumerate(pairs.layers):
        for column, (quantity, feature) in enumerate(names):
            rows.append(
                {
                    "model": model,
                    "layer": layer,
                    "quantity": quantity,
                    "feature": feature,
                    "value": scores.value[at, column],
                    "lower": own.lower[at, column],
                    "upper": own.upper[at, column],
                    "p": p[at, column] if quantity == "importance" else np.nan,
                }
            )
    table = pd.DataFrame(rows)
    chosen = table["quantity"] == "importance"
    table["p_corrected"] = np.nan
    table.loc[chosen, "p_corrected"] = corrected(table.loc[chosen, "p"].to_numpy(), correction)
    return Tested(table, f"{chosen.sum()} importances; {CORRECTIONS[correction]}")


def compare_importances(
    pairs: LayerPairs, scores: Resampling, correction: str = "bh", confidence: float = CONFIDENCE
) -> Tested:
    """Difference of each importance between two layers, the first less the second.

    Parameters
    ----------
    pairs : of two layers
    scores : of them, from `resampled_scores`

    Returns
    -------
    feature, value, lower, upper, p, p_corrected; the family is the features
    """
    difference = Resampling(*(array[..., 0, 2:] - array[..., 1, 2:] for array in scores))
    return _differences(
        difference,
        {"feature": pairs.tables.columns.names},
        f"differences of importance, {_named(pairs.layers[0])} less {_named(pairs.layers[1])}",
        correction,
        confidence,
    )


def compare_terms(
    first: Resampling,
    second: Resampling,
    features: Sequence[str],
    what: str,
    correction: str = "bh",
    confidence: float = CONFIDENCE,
) -> Tested:
    """Difference of two similarities, and of what each feature contributes to them.

    Parameters
    ----------
    first, second : of two pairs of layers, from `resampled_terms` with the same number of draws
        and the same seed, so that the same stimuli are drawn for both
    what : names the comparison, such as "A:3 and B:20 less A:3 and C:4"

    Returns
    -------
    term (features, "unexplained", "RSA"), value, lower, upper, p, p_corrected
    """
    if first.draws.shape != second.draws.shape:
        raise InputError("two similarities are compared by the same draws of the same stimuli.")
    n = len(features) + 2
    difference = Resampling(
        *(one[..., :n] - other[..., :n] for one, other in zip(first, second, strict=True))
    )
    terms = {"term": (*features, UNEXPLAINED, "RSA")}
    return _differences(difference, terms, f"differences, {what}", correction, confidence)


def _differences(
    difference: Resampling,
    names: Mapping[str, Sequence[str]],
    what: str,
    correction: str,
    confidence: float,
) -> Tested:
    own = difference.interval(confidence)
    table = pd.DataFrame(
        {
            **{column: list(values) for column, values in names.items()},
            "value": difference.value,
            "lower": own.lower,
            "upper": own.upper,
            "p": p_value(difference.value, difference.left_out),
        }
    )
    return tested(table, what, correction)


def _named(layer: Layer) -> str:
    return f"{layer[0]}:{layer[1]}"
