"""Pairs of stimuli from features and layers that a study has made or loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.pairs.columns import resolved_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.statistics import ComparedPairs, PairStatistics, pair_statistics
from mlem_core.stimuli.stimulus_set import StimulusSet


def statistics_of(
    features: pd.DataFrame | StimulusSet,
    layers: Sequence[NDArray[np.floating]],
    folds: IntArray,
    by_value: Sequence[str] = (),
    *,
    interactions: bool = False,
) -> PairStatistics:
    """Statistics of the pairs of stimuli in layers (n_stimuli, n_units).

    Parameters
    ----------
    by_value : features that are coded by value; "all" is all of them
    """
    columns = resolved_columns(features, by_value)
    pairs = ComparedPairs.from_features(columns, folds, interactions=interactions)
    return pair_statistics(pairs, [partial(np.asarray, rows) for rows in layers])


def layer_pairs_of(
    features: pd.DataFrame | StimulusSet,
    layers: Sequence[FloatArray],
    folds: IntArray,
    groups: IntArray,
    items: IntArray | None = None,
    by_value: Sequence[str] = (),
) -> LayerPairs:
    """All pairs of stimuli in layers (n_stimuli, n_units), named ("m", 0), ("m", 1), ..."""
    columns = PairColumns.from_features(resolved_columns(features, by_value))
    squared = [squared_distances(rows) for rows in layers]
    names = [("m", number) for number in range(len(layers))]
    return LayerPairs.from_distances(names, squared, columns, folds, groups, items)


def of_layers(pairs: LayerPairs, positions: Sequence[int]) -> LayerPairs:
    """Pairs in some of the layers, by position."""
    return replace(
        pairs,
        layers=tuple(pairs.layers[at] for at in positions),
        statistics=pairs.statistics.select_layers(positions),
        ranks=tuple(pairs.ranks[at] for at in positions),
        squared=tuple(pairs.squared[at] for at in positions),
    )
