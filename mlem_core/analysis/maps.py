"""Maps of the stimuli of an analysis in one layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis, check_layers
from mlem_core.analysis.layer_sources import representations_of
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.measures.similarity import map_stress as stress_of
from mlem_core.measures.similarity import mds_map
from mlem_core.pairs.distances import squared_distances
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Stage, Store

# Metric MDS of more stimuli takes too long to look at; a seeded sample shows the same clusters.
MAP_STIMULI = 1_000


class _Map(NamedTuple):
    """A map (n_shown, 2), and its stress."""

    points: FloatArray
    stress: float


MAPS = Stage("stimulus-map", 3, _Map)


def stimulus_map(analysis: Analysis, model: str, layer: int, store: Store) -> pd.DataFrame:
    """Map (metric MDS) of the stimuli in one layer: stimulus, x, y.

    Of more than `MAP_STIMULI` stimuli a seeded sample is shown.

    Raises
    ------
    InputError
        The layer is not in the analysis, or its representations are no longer in the store.

    Examples
    --------
    >>> stimulus_map(analysis, "m", 0, store).shape
    (120, 3)
    """
    points = _map(analysis, (model, layer), store).points
    return pd.DataFrame({"stimulus": shown_stimuli(analysis), "x": points[:, 0], "y": points[:, 1]})


def kept_points(analysis: Analysis, layer: Layer, store: Store | None) -> FloatArray | None:
    """(n_shown, 2) the points of `stimulus_map`; None where the map is not kept yet."""
    if layer in analysis.maps:
        return analysis.maps[layer]
    kept = analysis.kept(MAPS, store, [layer])
    return None if kept is None else kept.points


def stimulus_map_stress(analysis: Analysis, model: str, layer: int, store: Store) -> float:
    """Stress of `stimulus_map`, see `mlem_core.measures.similarity.map_stress`.

    Raises as `stimulus_map`.
    """
    return _map(analysis, (model, layer), store).stress


def shown_stimuli(analysis: Analysis) -> IntArray:
    """(n_shown,) the rows of the stimuli that a map shows, ascending."""
    rng = np.random.default_rng(analysis.spec.seed)
    return np.sort(rng.permutation(len(analysis.stimuli))[:MAP_STIMULI])


def _map(analysis: Analysis, at: Layer, store: Store) -> _Map:
    check_layers([at], analysis.layers)
    model, layer = at
    shown = shown_stimuli(analysis)

    def make() -> _Map:
        rows = np.asarray(representations_of(analysis, model, store).of(layer, shown))
        distance = analysis.spec.distance_of(model)
        squared = squared_distances(rows, distance, layer=f"{model} layer {layer}")
        square = np.zeros((len(shown), len(shown)))
        square[np.triu_indices(len(shown), 1)] = np.sqrt(squared)
        square += square.T
        points = mds_map(square, max_iter=100)
        return _Map(points, stress_of(square, points))

    if at in analysis.maps:
        return _Map(analysis.maps[at], analysis.map_stress[at])
    return MAPS.get(store, analysis.key([at]), make)


def easiest_to_read(stimuli: StimulusSet, features: Sequence[str]) -> str:
    """Name of the feature that colours a map best, where none is chosen.

    A nominal one, as a few colours are read more easily than a scale, and seldom missing.
    """
    kinds = {feature.name: feature.kind for feature in stimuli.features}
    return min(
        features, key=lambda name: (kinds[name] != "nominal", stimuli.table[name].isna().sum())
    )
