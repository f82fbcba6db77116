"""Maps of the stimuli of an analysis in one layer."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis, check_layers
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.base.typing import FloatArray, IntArray, Layer, Report, counting
from mlem_core.measures.similarity import map_stress, mds_map
from mlem_core.pairs.distances import squared_distances
from mlem_core.storage.store import EntryKind, Store

# Metric MDS of more stimuli takes too long to look at; a seeded sample shows the same clusters.
MAP_STIMULI = 1_000


class StimulusMap(NamedTuple):
    """Points (n_shown, 2) of the stimuli in a layer, and the stress of the map."""

    points: FloatArray
    stress: float


STAGE = EntryKind("stimulus-map", 3, StimulusMap)


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
    return map_table(analysis, compute_map(analysis, (model, layer), store))


def map_table(analysis: Analysis, layer_map: StimulusMap) -> pd.DataFrame:
    """Table of a map of the stimuli of an analysis: stimulus, x, y."""
    x, y = layer_map.points.T
    return pd.DataFrame({"stimulus": shown_stimuli(analysis), "x": x, "y": y})


def compute_map(analysis: Analysis, layer: Layer, store: Store) -> StimulusMap:
    """Points of `stimulus_map`, and how far they are off; kept in the store.

    Raises as `stimulus_map`.
    """
    check_layers([layer], analysis.layers)
    model, number = layer
    rows = shown_stimuli(analysis)

    def make() -> StimulusMap:
        representations = np.asarray(get_representations(analysis, model, store).rows(number, rows))
        distance = analysis.spec.neural_distance(model)
        squared = squared_distances(representations, distance, layer=f"{model} layer {number}")
        square = np.zeros((len(rows), len(rows)))
        square[np.triu_indices(len(rows), 1)] = np.sqrt(squared)
        square += square.T
        points = mds_map(square, max_iter=100)
        return StimulusMap(points, map_stress(square, points))

    return STAGE.get(store, analysis.key([layer]), make)


def find_points(analysis: Analysis, layer: Layer, store: Store | None) -> FloatArray | None:
    """(n_shown, 2) the points of `stimulus_map`; None where the map is not in the store."""
    cached = analysis.kept(STAGE, store, [layer])
    return None if cached is None else cached.points


def shown_stimuli(analysis: Analysis) -> IntArray:
    """(n_shown,) the rows of the stimuli that a map shows, ascending."""
    rng = np.random.default_rng(analysis.spec.seed)
    return np.sort(rng.permutation(len(analysis.stimuli))[:MAP_STIMULI])


def compute_for_example(
    analysis: Analysis, pair: tuple[Layer, Layer], store: Store, report: Report
) -> list[Path | None]:
    """Maps of all layers of the packaged example: the folders of their entries in the store."""
    progress = counting(report, "maps", "layers")
    for done, layer in enumerate(analysis.layers, 1):
        compute_map(analysis, layer, store)
        progress(done, len(analysis.layers))
    return [STAGE.where(store, analysis.key([layer])) for layer in analysis.layers]
