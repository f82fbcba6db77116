"""Confidence intervals of all layers, families of tests, and bounds that hold for all at once.

`mlem_core.inference.layer_intervals` computes intervals; tidy tables show them, and tests with
their families.

The largest of many estimates is too large on average, and its own interval seldom holds its truth.
Lower bounds here hold for all at once in 95 % of data sets, whichever is chosen: they are as many
standard errors down as the largest of all deviations is, by the jackknife's replicates (max-T:
Romano and Wolf 2005). Choosing the largest moves no estimate down: its upper bound is its own, and
one-sided too, so that both together miss the truth in about 5 % at most (docs/validation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import check_layers
from mlem_core.base.errors import InputError
from mlem_core.base.numbers import CONFIDENCE
from mlem_core.base.typing import FloatArray, IntArray, Layer, layer_name
from mlem_core.inference.resample import (
    Estimate,
    covariances_of_kinds,
    error_of_kinds,
    estimate_from_error,
    jackknife,
    squared_effect_bounds,
    standard_error,
)
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.measures.similarity import agreement, weighted_tau
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.storage.store import Packed

# What is left without each block is many numbers, and only their spread is used.
Without = Annotated[FloatArray, Packed(np.float32)]
SimilaritiesWithout = Annotated[FloatArray, Packed(np.float32, symmetric=True)]
Similarities = Annotated[FloatArray, Packed(symmetric=True)]


class Left(NamedTuple):
    """A value without each block of stimuli, as `jackknife.standard_error` takes it.

    without : (n_blocks, ...)
    sizes : how many of the blocks are of each kind of unit
    """

    without: Without
    sizes: tuple[int, ...]

    def moves(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Changes of the value with other stimuli, (n, ...), as the jackknife says it varies.

        Each block moves it by a random multiple of what it does when it is left out. With two kinds
        of units what sentences and items do; what both have in common is in both.

        Returns
        -------
        and (...) the variance of the moves
        """
        shape = self.without.shape[1:]
        moved, variance = np.zeros((n, *shape)), np.zeros(shape)
        for part in np.split(self.without, np.cumsum(self.sizes)[:-1])[:2]:
            blocks = len(part)
            away = (part - part.mean(axis=0)) * np.sqrt((blocks - 1) / blocks)
            moved += np.tensordot(rng.standard_normal((n, blocks)), away, axes=1)
            variance += (away**2).sum(axis=0)
        return moved, variance


@dataclass(frozen=True)
class LayerIntervals:
    """Results of n_layers layers, with confidence intervals over sentences and words.

    Attributes
    ----------
    layers : (model, layer) of each
    features, columns : of the terms; of the importances (interactions among them)
    estimator : of the metric models
    scores, scores_lower, scores_upper : (n_layers, 1 + n_columns) ρ and importances
    scores_without : (n_blocks, n_layers, 1 + n_columns) without each block of stimuli
    tau, tau_lower, tau_upper : (n_layers, n_layers)
    values : (n_layers, n_layers) of `similarity`; values_without : (n_blocks, n_layers, n_layers)
    terms : (n_features + 1, n_layers, n_layers) the terms, the last one "unexplained"; none where
        the similarity has no terms
    terms_variance, terms_covariance : (n_kinds, n_features + 1, n_layers, n_layers) jackknife
        variance of the terms over the blocks of each kind, and covariance with the similarity
    units : what was drawn
    sizes : how many of the n_blocks blocks are of each kind of unit, see
        `mlem_core.inference.resample.standard_error`
    similarity : its name, see `mlem_core.pairs.similarities`
    """

    layers: tuple[Layer, ...]
    features: tuple[str, ...]
    columns: tuple[str, ...]
    estimator: str
    scores: FloatArray
    scores_lower: FloatArray
    scores_upper: FloatArray
    scores_without: Without
    tau: Similarities
    tau_lower: Similarities
    tau_upper: Similarities
    values: Similarities
    values_without: SimilaritiesWithout
    terms: Similarities
    terms_variance: Similarities
    terms_covariance: Similarities
    units: Units
    sizes: tuple[int, ...]
    similarity: str = RSA

    def places(self, layers: Sequence[Layer] | None = None) -> list[int]:
        """Places of layers (None: all); InputError for one that is not there."""
        if layers is None:
            return list(range(len(self.layers)))
        check_layers(layers, self.layers)
        place = {layer: at for at, layer in enumerate(self.layers)}
        return [place[layer] for layer in layers]

    @property
    def terms_error(self) -> FloatArray:
        """(n_features + 1, n_layers, n_layers) standard errors of the terms."""
        return error_of_kinds(self.terms_variance)

    def residual_error(self, a: Layer, b: Layer, shares: FloatArray) -> FloatArray:
        """(n_features + 1,) standard errors of T - r S, with T the terms of two layers.

        S is their similarity, and r the `shares` (n_features + 1,).
        """
        i, j = self.places((a, b))
        without = self.values_without[:, i, j]
        variance = covariances_of_kinds(without, without, self.sizes)[:, None]
        of_both = shares * (shares * variance - 2 * self.terms_covariance[..., i, j])
        # What is kept in single precision may leave less than nothing.
        return error_of_kinds(np.maximum(self.terms_variance[..., i, j] + of_both, 0.0))


# A test is significant where its corrected p is below this.
SIGNIFICANT = 0.05
# Permutations of the labels of each feature, by default and at least.
PERMUTATIONS, FEWEST_PERMUTATIONS = 199, 20
# Identities below this part of a similarity are in no sentence, and not on the canvas.
SMALL_IDENTITY = 0.005


class FamilyOfTests(NamedTuple):
    """A table of tests and the family that their p-values are corrected over, for its caption."""

    table: pd.DataFrame
    family: str


def check_permutations(n: int) -> None:
    """Raise InputError for too few permutations of the labels of a feature."""
    if n < FEWEST_PERMUTATIONS:
        raise InputError(
            f"found {n} permutations of a feature; expected at least {FEWEST_PERMUTATIONS}."
        )


def family_of_tests(
    table: pd.DataFrame, what: str, p: str = "p", *, any_error: bool = False
) -> FamilyOfTests:
    """Add corrected p-values to a table, and name the family.

    They are corrected for the false discovery rate (Benjamini and Hochberg 1995), or for the chance
    of any false claim (Holm 1979), however the tests depend on each other.

    Parameters
    ----------
    what : is tested, in the plural
    any_error : correct by Holm
    p : the column of p-values; rows without one are not in the family. The new column is this name
        with "_corrected"
    """
    tested = table[p].notna()
    table = table.assign(**{f"{p}_corrected": np.nan})
    values = table.loc[tested, p].to_numpy(np.float64)
    # As `scipy.stats.false_discovery_control`, whose package takes a second to import.
    descending, n = np.argsort(values)[::-1], len(values)
    corrected = np.empty(n)
    if any_error:
        ascending = descending[::-1]
        corrected[ascending] = np.maximum.accumulate(values[ascending] * np.arange(n, 0, -1))
    else:
        by_rank = values[descending] * (n / np.arange(n, 0, -1))
        corrected[descending] = np.minimum.accumulate(by_rank)
    table.loc[tested, f"{p}_corrected"] = np.minimum(corrected, 1.0)
    by = "Holm" if any_error else "Benjamini-Hochberg"
    return FamilyOfTests(table, f"{tested.sum():,} {what} ({by})")


DRAWS = 2_000
TOGETHER = 2**12  # values whose draws are in memory at once
_SEED = 0


def bounds_of_largest(values: FloatArray, left: Left, *, sides: int = 1) -> Estimate:
    """Correlations (n,) with lower bounds that hold at once, and the upper one of the largest.

    Parameters
    ----------
    left : (n_blocks, n) the same without each block
    sides : 2: upper bounds hold at once too, whatever was chosen
    """
    from scipy.special import ndtr, stdtrit

    most = np.zeros(DRAWS)
    for start in range(0, len(values), TOGETHER):
        part = Left(left.without[:, start : start + TOGETHER], left.sizes)
        # The same draws of the blocks for all.
        moves, variance = part.moves(DRAWS, np.random.default_rng(_SEED))
        moved = moves / np.sqrt(np.where(variance > 1e-24, variance, np.inf))
        most = np.maximum(most, (moved if sides == 1 else np.abs(moved)).max(axis=1))
    # As far out for Student's t, whose degrees of freedom the standard errors have.
    tails = ndtr(np.quantile(most, CONFIDENCE)), CONFIDENCE
    reach, own = stdtrit(max(1, min(left.sizes) - 1), np.maximum(tails, CONFIDENCE))
    error, up = standard_error(*left), own if sides == 1 else reach
    lower, upper = np.maximum(values - reach * error, -1.0), np.minimum(values + up * error, 1.0)
    return Estimate(values, lower, upper)


def with_bounds(
    table: pd.DataFrame, intervals: LayerIntervals, layers: Sequence[Layer]
) -> pd.DataFrame:
    """A table of pairs of layers with rsa_lower and rsa_upper, which hold for all pairs at once.

    Parameters
    ----------
    table : layer_a, layer_b ("model:layer") and more
    layers : among which they were chosen
    """
    a, b = np.triu_indices(len(layers), 1)
    found = bounds_of_largest(*pair_similarities(intervals, layers, a, b), sides=2)
    names = np.array(list(map(layer_name, layers)), dtype=object)
    at = {pair: n for n, pair in enumerate(zip(names[a], names[b], strict=True))}
    rows = [at[pair] for pair in zip(table["layer_a"], table["layer_b"], strict=True)]
    return table.assign(rsa_lower=found.lower[rows], rsa_upper=found.upper[rows])


def pair_similarities(
    intervals: LayerIntervals, layers: Sequence[Layer], first: IntArray, second: IntArray
) -> tuple[FloatArray, Left]:
    """The similarity (n_pairs,) of layers at these places of `layers`, also without each block."""
    a, b = (np.array(intervals.places(layers))[side] for side in (first, second))
    return intervals.values[a, b], Left(intervals.values_without[:, a, b], intervals.sizes)


ENDS = ("value", "lower", "upper")


def score_table(intervals: LayerIntervals, layers: Sequence[Layer] | None = None) -> FamilyOfTests:
    """Held-out ρ and importances of some layers, with tests of importances above 0.

    Returns
    -------
    model, layer, quantity ("rho", "importance"), feature, value, lower, upper, p,
    p_corrected; the last two for importances only. The family is all importances of the table
    """
    at = intervals.places(layers)
    names = [("rho", ""), *(("importance", name) for name in intervals.columns)]
    scores, without = intervals.scores[at], intervals.scores_without[:, at]
    p = jackknife(scores, without, intervals.sizes, above=True).p
    p[:, 0] = np.nan
    of_layers = pd.DataFrame([intervals.layers[i] for i in at], columns=["model", "layer"])
    quantities = pd.DataFrame(names, columns=["quantity", "feature"])
    table = of_layers.merge(quantities, how="cross").assign(
        value=scores.ravel(),
        lower=intervals.scores_lower[at].ravel(),
        upper=intervals.scores_upper[at].ravel(),
        p=p.ravel(),
    )
    return family_of_tests(table, "importances")


def similarity_table(
    intervals: LayerIntervals, layers: Sequence[Layer] | None = None
) -> FamilyOfTests:
    """Both similarities of every two different layers, with tests of RSA against 0.

    Returns
    -------
    layer_a, layer_b ("model:layer"), weighted_tau, weighted_tau_lower, weighted_tau_upper, rsa,
    rsa_lower, rsa_upper, rsa_p, rsa_p_corrected; the family is all pairs of the table. Where the
    intervals are of another similarity its name stands in the place of rsa
    """
    at = np.array(intervals.places(layers), dtype=np.int64)
    names = np.array([layer_name(intervals.layers[i]) for i in at], dtype=object)
    first, second = np.triu_indices(len(at), 1)
    a, b = at[first], at[second]
    name, estimate = intervals.similarity, _estimate(intervals, a, b)
    table = pd.DataFrame(
        {
            "layer_a": names[first],
            "layer_b": names[second],
            "weighted_tau": intervals.tau[a, b],
            "weighted_tau_lower": intervals.tau_lower[a, b],
            "weighted_tau_upper": intervals.tau_upper[a, b],
            name: estimate.value,
            f"{name}_lower": estimate.lower,
            f"{name}_upper": estimate.upper,
            f"{name}_p": estimate.p,
        }
    )
    return family_of_tests(table, SIMILARITIES[name].several, f"{name}_p")


def _estimate(intervals: LayerIntervals, a: int | IntArray, b: int | IntArray) -> Estimate:
    """The similarity of layers that stand at a with those at b."""
    value, without = intervals.values[a, b], intervals.values_without[:, a, b]
    return jackknife(value, without, intervals.sizes, (-1.0, 1.0))


def agreement_interval(
    intervals: LayerIntervals, layers: Sequence[Layer] | None = None
) -> tuple[float, float, float]:
    """Agreement of both similarities, and its interval (NaN with fewer than three layers)."""
    at = intervals.places(layers)
    square = np.ix_(at, at)
    value = agreement(intervals.tau[square], intervals.values[square])
    draws = zip(intervals.scores_without, intervals.values_without, strict=True)
    without = np.array(
        [agreement(weighted_tau(scores[at, 1:]), values[square]) for scores, values in draws]
    )
    interval = jackknife(np.array([value]), without[:, None], intervals.sizes, (-1.0, 1.0))
    return value, float(interval.lower[0]), float(interval.upper[0])


def terms_and_whole(
    intervals: LayerIntervals, a: Layer, b: Layer
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The terms of two layers, and the whole, as an `Explanation` has them.

    Raises InputError: intervals of a similarity without terms; an unknown layer.

    Returns
    -------
    term, value, lower, upper; and quantity (the similarity), value, lower, upper
    """
    i, j = intervals.places((a, b))
    if not len(intervals.terms):
        raise InputError("this similarity has no contributions of features, nor intervals of them.")
    terms = term_estimate(intervals.terms[:, i, j], intervals.terms_error[:, i, j], intervals.sizes)
    estimate = _estimate(intervals, i, j)
    names = (*intervals.features, UNEXPLAINED)
    whole = {end: [getattr(estimate, end)] for end in ENDS}
    return (
        pd.DataFrame({"term": names, **terms.columns(*ENDS)}),
        pd.DataFrame({"quantity": [intervals.similarity], **whole}),
    )


def term_estimate(values: FloatArray, error: FloatArray, sizes: Sequence[int]) -> Estimate:
    """Contributions (n_features + 1,), "unexplained" last, with their intervals and tests.

    `error` are their standard errors from so many blocks of each kind.
    """
    by_t = estimate_from_error(values, error, sizes)
    _, upper = squared_effect_bounds(values, by_t.upper - values)
    upper[-1] = by_t.upper[-1]
    return by_t._replace(upper=upper)


def importance_difference_table(intervals: LayerIntervals, a: Layer, b: Layer) -> FamilyOfTests:
    """Difference of each importance between two layers, the first less the second.

    Returns
    -------
    feature, value, lower, upper, p, p_corrected; the family is the features
    """
    i, j = intervals.places((a, b))
    value = intervals.scores[i, 1:] - intervals.scores[j, 1:]
    without = intervals.scores_without[:, i, 1:] - intervals.scores_without[:, j, 1:]
    columns = jackknife(value, without, intervals.sizes).columns(*ENDS, "p")
    table = pd.DataFrame({"feature": list(intervals.columns), **columns})
    what = f"differences of importance, {layer_name(a)} less {layer_name(b)}"
    return family_of_tests(table, what)
