"""Tidy tables of the confidence intervals of layers, and of tests with their families."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.base.typing import IntArray, Layer, layer_name
from mlem_core.inference.intervals import FamilyOfTests, LayerIntervals, family_of_tests
from mlem_core.inference.partial import bounded, limits
from mlem_core.inference.resample import Estimate, by_error, jackknife
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.measures.similarity import agreement, weighted_tau
from mlem_core.pairs.similarities import SIMILARITIES

ENDS = ("value", "lower", "upper")


def score_table(
    intervals: LayerIntervals, layers: Sequence[Layer] | None = None, correction: str = "bh"
) -> FamilyOfTests:
    """Held-out ρ, ceiling and importances of some layers, with tests of importances above 0.

    Returns
    -------
    model, layer, quantity ("rho", "ceiling", "importance"), feature, value, lower, upper, p,
    p_corrected; the last two for importances only. The family is all importances of the table
    """
    at = intervals.places(layers)
    names = [("rho", ""), ("ceiling", ""), *(("importance", name) for name in intervals.columns)]
    scores, without = intervals.scores[at], intervals.scores_without[:, at]
    p = jackknife(scores, without, intervals.sizes, above=True).p
    p[:, :2] = np.nan
    table = pd.DataFrame(
        {
            "model": np.repeat([intervals.layers[i][0] for i in at], len(names)),
            "layer": np.repeat([intervals.layers[i][1] for i in at], len(names)),
            "quantity": [quantity for quantity, _ in names] * len(at),
            "feature": [feature for _, feature in names] * len(at),
            "value": scores.ravel(),
            "lower": intervals.scores_lower[at].ravel(),
            "upper": intervals.scores_upper[at].ravel(),
            "p": p.ravel(),
        }
    )
    return family_of_tests(table, "importances", correction)


def similarity_table(
    intervals: LayerIntervals, layers: Sequence[Layer] | None = None, correction: str = "bh"
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
    return family_of_tests(table, SIMILARITIES[name].several, correction, f"{name}_p")


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
        [agreement(weighted_tau(scores[at, 2:]), values[square]) for scores, values in draws]
    )
    interval = jackknife(np.array([value]), without[:, None], intervals.sizes, (-1.0, 1.0))
    return value, float(interval.lower[0]), float(interval.upper[0])


def terms_and_whole(
    intervals: LayerIntervals, a: Layer, b: Layer
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The terms of two layers, and the whole, as an `Explanation` has them.

    Returns
    -------
    term, value, lower, upper; and quantity (the similarity, "ceiling_a", "ceiling_b"), value,
    lower, upper

    Raises
    ------
    InputError
        Contributions to all layers that have no intervals; an unknown layer.
    """
    both = intervals.places((a, b))
    i, j = both
    terms, estimate = _terms(intervals, a, b), _estimate(intervals, i, j)
    errors = intervals.ceilings_error[both]
    ceilings = by_error(intervals.ceilings[both], errors, intervals.sizes, (0.0, 1.0))
    names = (*intervals.features, UNEXPLAINED)
    quantities = (intervals.similarity, "ceiling_a", "ceiling_b")
    whole = {end: [getattr(estimate, end), *getattr(ceilings, end)] for end in ENDS}
    return (
        pd.DataFrame({"term": names, **terms.columns(*ENDS)}),
        pd.DataFrame({"quantity": quantities, **whole}),
    )


def _terms(intervals: LayerIntervals, a: Layer, b: Layer) -> Estimate:
    if not len(intervals.terms):
        raise InputError(
            "contributions to all layers have no intervals with so many features and patterns; "
            "choose fewer features, or two layers."
        )
    i, j = intervals.places((a, b))
    return by_error(intervals.terms[:, i, j], intervals.terms_error[:, i, j], intervals.sizes)


def partial_intervals(
    intervals: LayerIntervals, a: Layer, b: Layer, parts: pd.DataFrame
) -> pd.DataFrame:
    """S_feat and S_rest of two layers with their intervals, where these are known.

    Parameters
    ----------
    parts : quantity, value of the two, see `mlem_core.inference.partial.parts`

    Returns
    -------
    quantity, value and, with up to 12 features, lower, upper
    """
    if not len(intervals.partial_error):
        return parts
    i, j = intervals.places((a, b))
    value, error = parts["value"].to_numpy(), intervals.partial_error[:, i, j]
    return bounded(parts, by_error(value, error, intervals.sizes, limits(value)))


def importance_difference_table(
    intervals: LayerIntervals, a: Layer, b: Layer, correction: str = "bh"
) -> FamilyOfTests:
    """Difference of each importance between two layers, the first less the second.

    Returns
    -------
    feature, value, lower, upper, p, p_corrected; the family is the features
    """
    i, j = intervals.places((a, b))
    value = intervals.scores[i, 2:] - intervals.scores[j, 2:]
    without = intervals.scores_without[:, i, 2:] - intervals.scores_without[:, j, 2:]
    columns = jackknife(value, without, intervals.sizes).columns(*ENDS, "p")
    table = pd.DataFrame({"feature": list(intervals.columns), **columns})
    what = f"differences of importance, {layer_name(a)} less {layer_name(b)}"
    return family_of_tests(table, what, correction)
