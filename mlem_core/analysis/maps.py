"""The representations of an analysis, and maps of its stimuli in one layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis, same_content
from mlem_core.analysis.selection import check_layers
from mlem_core.analysis.spec import AnalysisSpec, over_repetitions
from mlem_core.analysis.transforms import distances_of, view
from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.data.stimuli import StimulusSet
from mlem_core.measures.nested import levels
from mlem_core.measures.similarity import map_stress as stress_of
from mlem_core.measures.similarity import mds_map
from mlem_core.models import representations
from mlem_core.models.representations import Representations
from mlem_core.pairs.distances import PRECOMPUTED, SQUARED, squared_distances
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

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
    """
    points = _map(analysis, (model, layer), store).points
    return pd.DataFrame({"stimulus": shown_stimuli(analysis), "x": points[:, 0], "y": points[:, 1]})


def kept_points(analysis: Analysis, layer: Layer, store: Store | None) -> FloatArray | None:
    """(n_shown, 2) the points of `stimulus_map`; None where the map is not kept yet."""
    if layer in analysis.maps:
        return analysis.maps[layer]
    kept = None if store is None else MAPS.find(store, analysis.key([layer]))
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


def some_layers(layers: Sequence[Layer], most: int) -> list[Layer]:
    """The first, the last, and others between them, at most so many."""
    at = np.linspace(0, len(layers) - 1, min(most, len(layers))).round().astype(int)
    return [layers[i] for i in np.unique(at)]


def with_levels(
    points: pd.DataFrame, stimuli: StimulusSet, features: Sequence[str]
) -> pd.DataFrame:
    """The points of `stimulus_map` with the level of each stimulus on some features, as text."""
    kinds = {feature.name: feature.kind for feature in stimuli.features}
    rows = points["stimulus"].to_numpy()
    columns = {
        name: levels(stimuli.table[name], kinds[name]).iloc[rows].to_numpy() for name in features
    }
    return points.assign(**columns)


def easiest_to_read(stimuli: StimulusSet, features: Sequence[str]) -> str:
    """Name of the feature that colours a map best, where none is chosen.

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
        They are no longer in the store, or the file has gone; or its content, or the weights of
        the model, are others than those that were analysed.
    """
    spec, files = analysis.spec, dict(analysis.spec.representations)
    source: Representations | None
    if model in files:
        source = file_representations(spec, analysis.whole, files[model], model)
    else:
        source = representations.kept_states(analysis.whole, model, store, spec.extraction)
    if source is None:
        raise InputError(
            f"the representations of {model} are no longer in the store; run the analysis "
            "again to have them."
        )
    analysed = analysis.manifest["models"].get(model, {})
    if not same_content(analysed, source.facts):
        raise InputError(
            f"{model} is no longer what was analysed: its files have changed; run the analysis "
            "again."
        )
    return view(source, analysis.rows, spec.kept.identity, spec.units)


def without_representations(analysis: Analysis, models: Sequence[str], store: Store) -> list[str]:
    """Names of the models for which `representations_of` has nothing."""

    def lacks(model: str) -> bool:
        try:
            representations_of(analysis, model, store)
        except InputError:
            return True
        return False

    return list(filter(lacks, models))


def file_representations(
    spec: AnalysisSpec, stimuli: StimulusSet, path: str, name: str
) -> Representations:
    """`mlem_core.models.representations.from_file` for one file of an analysis."""
    first_column = dict(spec.first_column).get(name, "")
    if over_repetitions(spec, name):
        repeated = representations.from_file(
            path, stimuli, name, repetitions=True, first_column=first_column
        )
        return distances_of(repeated, spec.distance)
    distances = spec.distance_of(name) == PRECOMPUTED
    source = representations.from_file(
        path, stimuli, name, distances=distances, first_column=first_column
    )
    if distances and (spec.distance != PRECOMPUTED or spec.already_squared):
        # The same file taken as representations, or for other distances, is another source.
        facts = {**source.facts, "distances": True, "source_identity": source.identity}
        identity = f"{source.identity} distances{SQUARED * spec.already_squared}"
        read = partial(_roots, source) if spec.already_squared else source._read
        source = replace(source, identity=identity, facts=facts, _read=read)
    return source


def _roots(source: Representations, layer: int) -> FloatArray:
    """The distances of a layer whose squares are given; below 0 remains below 0."""
    squares = source[layer].astype(np.float64)
    roots: FloatArray = np.copysign(np.sqrt(np.abs(squares)), squares)
    return roots
