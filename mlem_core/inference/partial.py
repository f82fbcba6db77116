"""S_feat, S_rest and transfer of two layers, beside their RSA, with intervals.

The numbers are those of `mlem_core.measures.partial`. S_feat and S_rest are computed from the terms
and vary with them: with blocks of stimuli left out, means and ranks made anew. For transfer the
metrics are fitted anew, as for importances. A ratio varies to first order with what it is made of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlem_core.base.text import fraction
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.estimators.registry import check_values, estimator_named
from mlem_core.inference.intervals import LayerIntervals
from mlem_core.inference.resample import Estimate, by_error
from mlem_core.measures.partial import (
    TRANSFERS,
    PartialSimilarity,
    above_zero,
    feature_similarity,
    partial_similarity,
    rest_similarity,
    transfer,
    with_ratios,
)
from mlem_core.pairs.tables import PairTables

PARTS = ("s_feat", "s_rest")


def parts(tables: PairTables, rsa: float) -> pd.DataFrame:
    """S_feat and S_rest of two layers.

    Raises InputError: tables of one fold.

    Parameters
    ----------
    tables : of the two
    rsa : their RSA correlation

    Returns
    -------
    quantity ("s_feat", "s_rest"), value; NaN where there is no number
    """
    both = partial_similarity(tables, np.full((2, 2), rsa))
    return pd.DataFrame({"quantity": PARTS, "value": [both.features[0, 1], both.rest[0, 1]]})


def parts_of(values: FloatArray, n_features: int, *, drawn: bool = False) -> FloatArray:
    """S_feat and S_rest (..., 2) of two layers, from their terms.

    Parameters
    ----------
    values : (..., n_features + 6) as `mlem_core.inference.replicates.resampled_terms` has them
    drawn : as in `mlem_core.measures.partial.feature_similarity`
    """
    explained = values[..., :n_features].sum(axis=-1)
    rsa, own = values[..., n_features + 1], (values[..., -2], values[..., -1])
    of_features = feature_similarity(explained, *own, drawn=drawn)
    return np.stack((of_features, rest_similarity(rsa, explained, *own, drawn=drawn)), axis=-1)


def limits(values: FloatArray) -> tuple[float, FloatArray]:
    """Limits of intervals of S_feat and S_rest (...): correlations, but for sampling above 1."""
    return -1.0, np.maximum(values, 1.0)


def parts_again(table: pd.DataFrame, values: FloatArray, n_features: int) -> pd.DataFrame:
    """A table whose first two quantities, S_feat and S_rest, follow from other terms.

    Parameters
    ----------
    values, n_features : as in `parts_of`
    """
    found, rows = table.copy(), table.index[: len(PARTS)]
    known = found.loc[rows, "value"].notna()
    found.loc[rows, "value"] = np.where(known, parts_of(values, n_features), np.nan)
    return found


def transfers(tables: PairTables, estimator: str) -> pd.DataFrame:
    """Held-out ρ of each of two layers' metrics in both layers, means over folds.

    Raises InputError: an unknown estimator, or one that cannot be fitted to these tables.

    Parameters
    ----------
    tables : of the two; they say which terms are weighed
    estimator : name, see `mlem_core.estimators.registry`

    Returns
    -------
    quantity (`TRANSFERS`), value; a ratio is NaN where the score below it is not clearly above 0
    """
    check_values(estimator, tables.resolved, tables.interactions)
    weights = estimator_named(estimator).model().cross_validate(tables).weights
    scores = transfer(tables, weights)
    values = with_ratios(scores.mean(axis=-1))
    clear = above_zero(np.stack((scores[1, 1], scores[0, 0])))
    values[4:] = np.where(clear, values[4:], np.nan)
    return pd.DataFrame({"quantity": TRANSFERS, "value": values})


def partial_of_layers(tables: PairTables, rsa: FloatArray, estimator: str) -> PartialSimilarity:
    """All of it for every two layers; without transfer where the estimator is slow.

    Raises as `transfers`.

    Parameters
    ----------
    tables, estimator : as in `transfers`, of n_layers layers
    rsa : (n_layers, n_layers)
    """
    check_values(estimator, tables.resolved, tables.interactions)
    entry = estimator_named(estimator)
    weights = None if entry.slow else entry.model().cross_validate(tables).weights
    return partial_similarity(tables, rsa, weights)


def bounded(table: pd.DataFrame, bounds: Estimate) -> pd.DataFrame:
    """A table of quantities with their 95 % intervals: quantity, value, lower, upper.

    NaN where there is no number, or where it is not defined in every replicate.
    """
    known = table["value"].notna()
    return table.assign(
        lower=np.where(known, bounds.lower, np.nan), upper=np.where(known, bounds.upper, np.nan)
    )


def partial_intervals(
    intervals: LayerIntervals, a: Layer, b: Layer, table: pd.DataFrame
) -> pd.DataFrame:
    """S_feat and S_rest of two layers with their intervals, where these are known.

    Parameters
    ----------
    table : quantity, value of the two, see `parts`, and maybe of more, which have no interval

    Returns
    -------
    quantity, value and, with up to 12 features, lower, upper
    """
    if not len(intervals.partial_error):
        return table
    i, j = intervals.places((a, b))
    two, n = table.iloc[: len(PARTS)], len(PARTS)
    value, error = two["value"].to_numpy(), intervals.partial_error[:, i, j]
    found = bounded(two, by_error(value, error, intervals.sizes, limits(value)))
    return pd.concat((found, table.iloc[n:]), ignore_index=True) if len(table) > n else found


@dataclass(frozen=True)
class Said:
    """Number on two layers, with what it says.

    name : in a few words
    value : as a text; "–" where there is none
    sentence : what it claims, and no more
    """

    name: str
    value: str
    sentence: str


def partial_in_words(table: pd.DataFrame, called: tuple[str, str], coding: str) -> list[Said]:
    """S_feat, S_rest and, where it was computed, cross-model prediction of two layers, in words.

    Parameters
    ----------
    table : quantity, value, and lower, upper where there are intervals; may be empty
    called : what the two layers are called
    coding : of the features, see `mlem_core.pairs.columns.coding`
    """
    rows = {row["quantity"]: row for _, row in table.iterrows()}
    if not rows:
        return []
    of_features = rows["s_feat"]["value"]
    said = [
        _part(
            "Similarity in explained part (S_feat)",
            rows["s_feat"],
            "the explained part",
            "Correlation between the feature-explained parts of the two layers (features coded "
            f"{coding}; computed between different stimuli). 1: both use the features in "
            "proportion; 0: their uses are unrelated. How much the features explain does not "
            f"enter.{' Values above 1 are sampling error.' * (round(of_features, 2) >= 1)}",
        ),
        _part(
            "Similarity in residual part (S_rest)",
            rows["s_rest"],
            "the residual part",
            "RSA correlation of the two layers beyond the feature-explained parts (a partial "
            "RSA). It still has what other features, another coding or more stimuli would explain.",
        ),
    ]
    if TRANSFERS[0] in rows:
        a, b = called
        said.append(_of_transfer((a, b), rows, "A to B"))
        said.append(_of_transfer((b, a), rows, "B to A"))
    return said


def _shown(row: pd.Series) -> str:
    if np.isnan(row["value"]):
        return "–"
    text = fraction(row["value"])
    if "lower" in row.index and np.isfinite(row["lower"]):
        text += f" [{fraction(row['lower'])}, {fraction(row['upper'])}]"
    return text


def _part(name: str, row: pd.Series, of: str, sentence: str) -> Said:
    """S_feat or S_rest; `of` says what is not above 0 where there is no number."""
    if np.isnan(row["value"]):
        sentence = (
            f"There is no number: {of} of at least one layer is not clearly above 0 (its 95 % "
            "interval over folds reaches 0)."
        )
    return Said(name, _shown(row), sentence)


def _of_transfer(called: tuple[str, str], rows: dict[str, pd.Series], way: str) -> Said:
    one, other = called
    ends = way.lower().split(" to ")
    row, own = rows[f"transfer_{''.join(ends)}"], rows[f"score_{ends[1]}"]
    ratio = rows[f"ratio_{''.join(ends)}"]
    text = (
        f"Held-out ρ of the metric fitted to {one} on the distances in {other}. The metric fitted "
        f"to {other} itself reaches {_shown(own)}"
    )
    if not np.isnan(ratio["value"]):
        text += f"; the ratio of the two is {_shown(ratio)}"
    return Said(
        f"Cross-model prediction, {way}",
        _shown(row),
        f"{text}. ρ uses ranks, so even tiny weights break ties.",
    )
