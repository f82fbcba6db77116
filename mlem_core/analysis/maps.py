"""Maps of the stimuli of an analysis in one layer, and their nested groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis, check_layers
from mlem_core.analysis.representations import representations_of
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.data.stimuli import StimulusSet
from mlem_core.measures.similarity import map_stress as stress_of
from mlem_core.measures.similarity import mds_map
from mlem_core.pairs.distances import squared_distances
from mlem_core.storage.store import Stage, Store

MOST_LEVELS = 8
NONE = ""  # the level of a feature that a group is not divided by


def levels(values: pd.Series, kind: str) -> pd.Series:
    """The values of a feature as levels, as text; None where it is missing.

    An ordered feature with more than `MOST_LEVELS` values is cut into thirds of the stimuli.
    """
    if kind == "ordered":
        values = pd.to_numeric(values, errors="coerce")
        if values.nunique() > MOST_LEVELS:
            low, high = (float(values.quantile(share)) for share in (1 / 3, 2 / 3))
            thirds = np.where(values <= low, 0, np.where(values <= high, 1, 2))
            names = (f"up to {low:.3g}", f"up to {high:.3g}", f"above {high:.3g}")
            texts = pd.Series([names[third] for third in thirds], values.index, dtype=object)
            return texts.where(values.notna(), None)
        values = values.map(lambda value: value if np.isnan(value) else f"{value:g}")
    texts = values.map(str, na_action="ignore").astype(object)
    return texts.where(values.notna(), None)


def outlines(points: pd.DataFrame, features: Sequence[str]) -> dict[tuple[str, ...], FloatArray]:
    """The `outline` of each group by the first feature that has three stimuli, by its level.

    `points` and `features` are as of `nested_groups`.
    """
    groups = points.dropna(subset=[features[0]]).groupby(features[0], sort=True)
    places = {str(level): own[["x", "y"]].to_numpy(dtype=np.float64) for level, own in groups}
    return {(level,): outline(own) for level, own in places.items() if len(own) > 2}


def nested_groups(points: pd.DataFrame, features: Sequence[str]) -> pd.DataFrame:
    """The centre of each group of stimuli in a map, divided by more and more features.

    Parameters
    ----------
    points : x, y and a column of levels, as text, for each feature; None where it is missing, and
        such a stimulus is in no group by that feature
    features : in the order in which they divide

    Returns depth (1: by the first feature, 2: by the first and the second ...), the level of each
    feature (`NONE` below the depth), n, x, y, between. between is of a depth: the share of the
    squared distances to the middle of the map that lies between its groups, less what as many
    groups of random stimuli have on average (ε², Kelley 1935), over the stimuli that have all
    features; NaN with as many groups as stimuli.

    Source: Jalouzot et al. 2024, figures 6 and S13.
    """
    whole = points[points[list(features)].notna().all(axis=1)]
    places = whole[["x", "y"]].to_numpy(dtype=np.float64)
    parts = []
    for depth in range(1, len(features) + 1):
        by = list(features[:depth])
        groups = points.dropna(subset=by).groupby(by, sort=True)
        labels = whole.groupby(by, sort=True).ngroup().to_numpy()
        part = groups[["x", "y"]].mean().assign(n=groups.size(), depth=depth).reset_index()
        part = part.assign(between=_between(places, labels))
        parts.append(part.assign(**dict.fromkeys(features[depth:], NONE)))
    columns = ["depth", *features, "n", "x", "y", "between"]
    return pd.concat(parts, ignore_index=True)[columns]


def _between(places: FloatArray, labels: np.ndarray) -> float:
    """ε² of groups (n,) of points (n, 2)."""
    n, n_groups = len(places), len(np.unique(labels))
    whole = float(((places - places.mean(axis=0)) ** 2).sum()) if n else 0.0
    if n_groups >= n or whole == 0:
        return float("nan")
    counts = np.bincount(labels)[:, None]
    means = np.column_stack([np.bincount(labels, column) for column in places.T]) / counts
    within = float(((places - means[labels]) ** 2).sum())
    return 1.0 - (within / (n - n_groups)) / (whole / (n - 1))


def outline(places: FloatArray, share: float = 0.5) -> FloatArray:
    """The convex hull (n_corners, 2) of the share of some points that are nearest to their middle.

    Their middle is the median of each coordinate: a few stimuli far out do not move the outline.
    Fewer than three points, or points on a line, give the two ends.

    `places` are (n, 2).
    """
    from scipy.spatial import ConvexHull, QhullError

    far = np.linalg.norm(places - np.median(places, axis=0), axis=1)
    near = places[np.argsort(far, kind="stable")[: max(3, round(share * len(places)))]]
    near = near[np.lexsort((near[:, 1], near[:, 0]))]
    try:
        corners = ConvexHull(near).vertices
    except QhullError:
        return near[:: max(1, len(near) - 1)]
    # Counterclockwise from the leftmost one.
    found: FloatArray = near[np.roll(corners, -int(corners.argmin()))]
    return found


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
