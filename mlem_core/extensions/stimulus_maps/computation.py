"""Maps of the stimuli of an analysis in one layer."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis, check_layers
from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.labels import NAMES
from mlem_core.base.typing import FloatArray, IntArray, Layer, Report, counted, counting
from mlem_core.measures.similarity import map_stress, mds_map
from mlem_core.pairs.distances import squared_distances
from mlem_core.storage.store import Store

# Metric MDS of more stimuli takes too long to look at; a seeded sample shows the same clusters.
MAP_STIMULI = 1_000


# How stimuli are laid out, as a label says it: metric MDS keeps distances, UMAP neighbours.
LAYOUTS = {"mds": "metric MDS", "umap": "UMAP"}
_NEIGHBOURS = 15  # whose distances UMAP keeps


class StimulusMap(NamedTuple):
    """Points (n_shown, 2) of the stimuli in a layer, and the stress of the map (NaN of UMAP)."""

    points: FloatArray
    stress: float


def compute_map(context: SelectionContext, layer: Layer, layout: str = "mds") -> StimulusMap:
    """Map of the stimuli in a layer of an analysis.

    Parameters
    ----------
    layout : one of `LAYOUTS`

    Raises
    ------
    InputError
        An unknown layout, or UMAP is not installed; its representations are no longer in the store.
    """
    from scipy.spatial.distance import squareform

    check_choice("layout of a map", layout, LAYOUTS)
    analysis, (model, number) = context.analysis, layer
    rows = shown_stimuli(analysis)
    source = get_representations(analysis, model, context.required_store)
    distance = analysis.spec.neural_distance(model)
    squared = squared_distances(
        np.asarray(source.rows(number, rows)), distance, layer=NAMES.layer_title(layer)
    )
    square = squareform(np.sqrt(squared))
    if layout == "umap":
        return StimulusMap(umap_map(square, analysis.spec.seed), float("nan"))
    points = mds_map(square, max_iter=100)
    return StimulusMap(points, map_stress(square, points))


def umap_map(distances: FloatArray, seed: int) -> FloatArray:
    """Map in two dimensions in which neighbours stay together (UMAP), the same for the same seed.

    Parameters
    ----------
    distances : (n, n) symmetric, zero on the diagonal

    Returns (n, 2).

    Raises
    ------
    InputError
        umap-learn is not installed, or there are fewer than four points.

    Source: McInnes, Healy and Melville (2018).
    """
    if len(distances) < 4:
        raise InputError(f"found {len(distances)} stimuli; expected at least 4 for UMAP.")
    try:
        import umap
    except ImportError as error:
        raise InputError(
            "UMAP is not installed: install umap-learn, or choose metric MDS."
        ) from error
    reducer = umap.UMAP(
        n_neighbors=min(_NEIGHBOURS, len(distances) - 1),
        metric="precomputed",
        init="random",
        random_state=seed,
        n_jobs=1,
    )
    with warnings.catch_warnings():
        # That of a precomputed metric there is no inverse transform.
        warnings.simplefilter("ignore")
        points = np.asarray(reducer.fit_transform(distances), dtype=np.float64)
    return np.asarray(points - points.mean(axis=0))


def _map_key(context: SelectionContext, layer: Layer, layout: str = "mds") -> dict[str, Any]:
    key = context.analysis.key([layer])
    return key if layout == "mds" else {**key, "layout": layout}


MAP = Stage[StimulusMap]("stimulus-map", 3, StimulusMap, compute_map, key=_map_key)


def stimulus_map(
    analysis: Analysis, model: str, layer: int, store: Store, layout: str = "mds"
) -> pd.DataFrame:
    """Map of the stimuli in one layer: stimulus, x, y; by metric MDS, or by UMAP ("umap").

    Of more than `MAP_STIMULI` stimuli a seeded sample is shown.

    Raises
    ------
    InputError
        The layer is not in the analysis, or its representations are no longer in the store; as
        `compute_map`.

    Examples
    --------
    >>> stimulus_map(analysis, "m", 0, store).shape
    (120, 3)
    """
    check_layers([(model, layer)], analysis.layers)
    context = SelectionContext.from_analysis(analysis, store)
    return map_table(analysis, MAP.get(context, layer=(model, layer), layout=layout))


def map_table(analysis: Analysis, layer_map: StimulusMap) -> pd.DataFrame:
    """Table of a map of the stimuli of an analysis: stimulus, x, y."""
    x, y = layer_map.points.T
    return pd.DataFrame({"stimulus": shown_stimuli(analysis), "x": x, "y": y})


def shown_stimuli(analysis: Analysis) -> IntArray:
    """(n_shown,) the rows of the stimuli that a map shows, ascending."""
    rng = np.random.default_rng(analysis.spec.seed)
    return np.sort(rng.permutation(len(analysis.stimuli))[:MAP_STIMULI])


def compute_for_example(
    analysis: Analysis, pair: tuple[Layer, Layer], store: Store, report: Report
) -> list[Path | None]:
    """Maps of all layers of the packaged example: the folders of their entries in the store."""
    context = SelectionContext.from_analysis(analysis, store)
    progress = counting(report, "maps", "layers")
    for layer in counted(analysis.layers, len(analysis.layers), progress):
        MAP.get(context, layer=layer)
    return [MAP.folder(context, layer=layer) for layer in analysis.layers]
