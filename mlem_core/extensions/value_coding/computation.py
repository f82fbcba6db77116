"""Distances between the values of a feature in a layer, where the feature is coded by value.

The metric gives every two values a and b of a feature the squared distance w_ab + s_a + s_b, and
two stimuli of one value 2 s_a (`mlem_core.pairs.column_builder`). w_ab alone is their *separation*:
the squared distance of the two means. All of it is in units of the target that was fitted, the
squared neural distance scaled to [0, 1] over the training pairs of a layer (or its rank), so that
numbers of two layers are to be compared by their order. What all pairs of stimuli have in common is
the intercept: spreads are to be compared with each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mlem_core.analysis.results import RESULT_TABLES, ResultTable
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.pairs.columns import ends
from mlem_core.pairs.moments import PairMoments
from mlem_core.pairs.statistics import PairStatistics

FILE = "value_distances.csv"
COLUMNS = (
    "model", "layer", "feature", "value_a", "value_b", "distance", "sd", "separation", "n_pairs",
)  # fmt: skip


def value_distances(
    pairs: PairStatistics, weights: FloatArray, layers: Sequence[Layer]
) -> pd.DataFrame:
    """The distance of every two values, and within each, of every feature that is resolved.

    Parameters
    ----------
    pairs : statistics of n_layers layers
    weights : (n_layers, n_folds, n_columns), see `mlem_core.estimators.registry.FoldFits`
    layers : (model, layer) of each

    Returns model, layer, feature, value_a, value_b; distance (squared, in units of the scaled
    target) and separation (its part w_ab, 0 within a value), means over folds; sd of the distance
    over folds; n_pairs, the pairs of stimuli with these values: where it is 0, the numbers are what
    the penalty says. A row an unordered pair of values, the same value twice among them; no rows
    where no feature is resolved.

    Source: the metric on one-hot codes of Jalouzot et al. 2024, with a term for each value.
    """
    parts, layer_table = [], pd.DataFrame(layers, columns=["model", "layer"])
    for f, names in enumerate(pairs.columns.value_names):
        if not names:
            continue
        feature_weights = weights[..., pairs.columns.part == f]
        first, second = ends(len(names))
        tables = pairs.columns.value_table(f, weights.reshape(-1, weights.shape[-1]))
        distances = tables[:, first, second].reshape(*weights.shape[:2], -1)
        separations = np.zeros_like(distances)
        separations[..., first != second] = feature_weights[..., : int((first != second).sum())]
        values = np.array(names, dtype=object)
        value_pairs = pd.DataFrame(
            {
                "feature": pairs.features[f],
                "value_a": values[first],
                "value_b": values[second],
                "n_pairs": count_value_pairs(pairs.moments, f).astype(np.int64),
            }
        )
        part = layer_table.merge(value_pairs, how="cross").assign(
            distance=distances.mean(axis=1).ravel(),
            sd=distances.std(axis=1, ddof=min(1, pairs.n_folds - 1)).ravel(),
            separation=separations.mean(axis=1).ravel(),
        )
        parts.append(part[list(COLUMNS)])
    if not parts:
        return pd.DataFrame(columns=list(COLUMNS))
    return pd.concat(parts, ignore_index=True)


def count_value_pairs(moments: PairMoments, feature: int) -> FloatArray:
    """(n_codes,) pairs of stimuli with every two values of a feature that is coded by value.

    In the order of `mlem_core.pairs.columns.ends`.
    """
    columns = moments.columns
    all_pairs = moments.within(np.ones(moments.n_blocks, dtype=bool))
    totals = (all_pairs.means * all_pairs.n_pairs)[columns.part == feature]
    first, second = ends(len(columns.value_names[feature]))
    different = first != second
    counts = np.zeros(len(first))
    n_different = int(different.sum())
    counts[different] = totals[:n_different]
    # The column of a value counts how many of the two stimuli have it.
    for value, stimuli in enumerate(totals[n_different:]):
        others = counts[different & ((first == value) | (second == value))].sum()
        counts[~different & (first == value)] = (stimuli - others) / 2
    return counts.round()


RESULT_TABLES.register(ResultTable(FILE, value_distances))
