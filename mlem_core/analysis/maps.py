"""The representations of an analysis, and maps of its stimuli in one layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.selection import check_layers
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.analysis.transforms import view
from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray
from mlem_core.data.stimuli import StimulusSet
from mlem_core.measures.similarity import mds_map
from mlem_core.models import representations
from mlem_core.models.representations import Representations
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

# Metric MDS of more stimuli takes too long to look at; a seeded sample shows the same clusters.
MAP_STIMULI = 1_000


def _save(points: FloatArray, folder: Path) -> None:
    np.save(folder / "map.npy", points)


def _load(folder: Path) -> FloatArray:
    points: FloatArray = np.load(folder / "map.npy", allow_pickle=False)
    return points


MAPS = Stage("stimulus-map", 1, _save, _load)


def stimulus_map(analysis: Analysis, model: str, layer: int, store: Store) -> pd.DataFrame:
    """Map (metric MDS) of the stimuli in one layer: stimulus, x, y.

    Of more than `MAP_STIMULI` stimuli a seeded sample is shown.

    Raises
    ------
    InputError
        The layer is not in the analysis, or its representations are no longer in the store.
    """
    check_layers([(model, layer)], analysis.layers)
    n = len(analysis.stimuli)
    rng = np.random.default_rng(analysis.spec.seed)
    shown = np.sort(rng.permutation(n)[:MAP_STIMULI])

    def make() -> FloatArray:
        rows = np.asarray(representations_of(analysis, model, store).of(layer, shown))
        distance = analysis.spec.distance_of(model)
        squared = squared_distances(rows, distance, layer=f"{model} layer {layer}")
        square = np.zeros((len(shown), len(shown)))
        square[np.triu_indices(len(shown), 1)] = np.sqrt(squared)
        return mds_map(square + square.T, max_iter=100)

    points = analysis.maps.get((model, layer))
    if points is None:
        depends_on = {
            "representations": analysis.manifest["models"][model]["identity"],
            "layer": layer,
            "distance": analysis.spec.distance_of(model),
            "seed": analysis.spec.seed,
            "n_stimuli": n,
        }
        points = MAPS.get(store, depends_on, make)
    return pd.DataFrame({"stimulus": shown, "x": points[:, 0], "y": points[:, 1]})


def easiest_to_read(stimuli: StimulusSet, features: Sequence[str]) -> str:
    """That of some features to colour a map with, where none is chosen.

    A nominal one, as a few colours are read more easily than a scale, and seldom missing.
    """
    kinds = {feature.name: feature.kind for feature in stimuli.features}
    return min(
        features, key=lambda name: (kinds[name] != "nominal", stimuli.table[name].isna().sum())
    )


def representations_of(analysis: Analysis, model: str, store: Store) -> Representations:
    """The representations of one of the models of an analysis, from the store or from its file.

    Raises
    ------
    InputError
        They are no longer in the store, or the file has gone.
    """
    spec, files = analysis.spec, dict(analysis.spec.representations)
    source: Representations | None
    if model in files:
        source = from_file(spec, analysis.whole, files[model], model)
    else:
        source = representations.find(analysis.whole, model, store, spec.extraction)
    if source is None:
        raise InputError(
            f"the representations of {model} are no longer in the store; run the analysis "
            "again to have them."
        )
    return view(source, analysis.rows, spec.positions, spec.units)


def from_file(spec: AnalysisSpec, stimuli: StimulusSet, path: str, name: str) -> Representations:
    """`mlem_core.models.representations.from_file` for one file of an analysis."""
    distances = spec.distance_of(name) == PRECOMPUTED
    source = representations.from_file(path, stimuli, name, distances=distances)
    if distances and spec.distance != PRECOMPUTED:
        # The same file taken as representations is another source.
        facts = {**source.facts, "distances": True, "source_identity": source.identity}
        source = replace(source, identity=f"{source.identity} distances", facts=facts)
    return source
