"""Groups of stimuli inside groups: by the values of one feature, then by those of a second one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray

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

    Parameters
    ----------
    points, features : as of `nested_groups`
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

    Returns
    -------
    depth (1: by the first feature, 2: by the first and the second ...), the level of each feature
    (`NONE` below the depth), n, x, y, between. between is of a depth: the share of the squared
    distances to the middle of the map that lies between its groups, less what as many groups of
    random stimuli have on average (ε², Kelley 1935), over the stimuli that have all features; NaN
    with as many groups as stimuli.

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

    Parameters
    ----------
    places : (n, 2)
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
