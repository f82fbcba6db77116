"""The representations of an analysis, and maps of its stimuli in one layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.analysis.transforms import view
from mlem_core.base.errors import InputError, unknown
from mlem_core.data.stimuli import StimulusSet
from mlem_core.measures.similarity import mds_map
from mlem_core.models import representations
from mlem_core.models.representations import Representations
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances
from mlem_core.storage.store import Store

# Metric MDS of more stimuli takes too long to look at; a seeded sample shows the same clusters.
MAP_STIMULI = 1_000
MAP_VERSION = 1


def stimulus_map(analysis: Analysis, model: str, layer: int, store: Store) -> pd.DataFrame:
    """Map (metric MDS) of the stimuli in one layer: stimulus, x, y.

    Of more than `MAP_STIMULI` stimuli a seeded sample is shown.

    Raises
    ------
    InputError
        The layer is not in the analysis, or its representations are no longer in the store.
    """
    if (model, layer) not in analysis.layers:
        names = [f"{name}:{number}" for name, number in analysis.layers]
        raise unknown("layer", f"{model}:{layer}", names)
    n = len(analysis.stimuli)
    rng = np.random.default_rng(analysis.spec.seed)
    shown = np.sort(rng.permutation(n)[:MAP_STIMULI])
    if (model, layer) in analysis.maps:
        kept = analysis.maps[model, layer]
        return pd.DataFrame({"stimulus": shown, "x": kept[:, 0], "y": kept[:, 1]})

    def make(folder: Path) -> None:
        rows = np.asarray(representations_of(analysis, model, store).of(layer, shown))
        squared = squared_distances(rows, analysis.spec.distance, layer=f"{model} layer {layer}")
        square = np.zeros((len(shown), len(shown)))
        square[np.triu_indices(len(shown), 1)] = np.sqrt(squared)
        np.save(folder / "map.npy", mds_map(square + square.T, max_iter=100))

    identity = analysis.manifest["models"][model]["identity"]
    folder = store.entry(
        "stimulus-map",
        MAP_VERSION,
        make,
        representations=identity,
        layer=layer,
        distance=analysis.spec.distance,
        seed=analysis.spec.seed,
        n_stimuli=n,
    )
    points = np.load(folder / "map.npy", allow_pickle=False)
    return pd.DataFrame({"stimulus": shown, "x": points[:, 0], "y": points[:, 1]})


def representations_of(analysis: Analysis, model: str, store: Store) -> Representations:
    """The representations of one of the models of an analysis, from the store or from its file.

    Raises
    ------
    InputError
        They are no longer in the store, or the file has gone.
    """
    files = dict(analysis.spec.representations)
    found: Representations | None
    if model in files:
        found = from_file(analysis.spec, analysis.whole, files[model], model)
    else:
        found = representations.find(analysis.whole, model, store, analysis.spec.extraction)
    if found is None:
        raise InputError(
            f"the representations of {model} are no longer in the store; run the analysis "
            "again to have them."
        )
    return view(found, analysis.rows, analysis.spec.positions, analysis.spec.units)


def from_file(spec: AnalysisSpec, stimuli: StimulusSet, path: str, name: str) -> Representations:
    distances = spec.distance == PRECOMPUTED
    return representations.from_file(path, stimuli, name, distances=distances)
