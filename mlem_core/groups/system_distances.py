"""Distances of systems (models, or representations files), over all of their layers.

Three measures, each 0 for a system beside itself: the importance profiles over layers, aligned by
dynamic time warping; 1 less the mean similarity of layers of the same relative depth; and 1 less
that of their explained parts (S_feat). Noise in the importances sets profiles of equal models
apart: how far, seeds of one group say.

Sources: Sakoe and Chiba (1978), dynamic time warping; Salle et al. (2026, third version of
arXiv:2406.12620), of importance profiles of models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlem_core.analysis.results import Results
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.groups.members import Members, of_every_two
from mlem_core.inference.intervals import Left
from mlem_core.inference.resample import jackknife
from mlem_core.measures.partial import feature_similarity

COLUMNS = ["measure", "system", "other", "distance", "lower", "upper"]
PROFILES, FEATURES = "profiles", "s_feat"


class Measured(NamedTuple):
    """Distances of systems by one measure, and without each block of stimuli.

    values : (n_systems, n_systems), symmetric, 0 on the diagonal
    left : (n_blocks, n_systems, n_systems); None without intervals
    """

    values: FloatArray
    left: Left | None = None


def warped_distance(one: FloatArray, other: FloatArray) -> FloatArray:
    """Distance of two sequences of profiles by dynamic time warping: (...).

    The cost of two layers is the Euclidean distance of their profiles. A step along both sequences
    counts it twice, one along either once, and the sum is over n + m ("symmetric2", normalised).

    Parameters
    ----------
    one, other : (..., n, n_features) and (..., m, n_features), each by depth

    Source: Sakoe and Chiba (1978), symmetric form, without slope constraint.
    """
    cost = np.sqrt(((one[..., :, None, :] - other[..., None, :, :]) ** 2).sum(axis=-1))
    n, m = cost.shape[-2:]
    cost = np.ascontiguousarray(np.moveaxis(cost, (-2, -1), (0, 1)))
    total = np.empty_like(cost)
    total[:, 0], total[0] = cost[:, 0].cumsum(axis=0), cost[0].cumsum(axis=0)
    for i in range(1, n):
        for j in range(1, m):
            along_one = np.minimum(total[i - 1, j], total[i, j - 1]) + cost[i, j]
            total[i, j] = np.minimum(along_one, total[i - 1, j - 1] + 2 * cost[i, j])
    found: FloatArray = total[-1, -1] / (n + m)
    return found


def of_profiles(
    results: Results, layers: Sequence[Layer], members: Members, left: Left | None = None
) -> Measured:
    """Warped distances of the held-out importance profiles, the mean over folds.

    Parameters
    ----------
    results, layers : of the layers that `members` number, in that order
    left : ρ and importances without each block, (n_blocks, n_layers, 1 + n_columns), means over
        folds: how their distances change is how those of the folds do
    """
    index = ["fold", "model", "layer"]
    wide = results.importance.pivot(index=index, columns="feature", values="importance")
    folds = wide.index.get_level_values("fold").unique()
    by_fold = np.stack([wide.loc[fold].loc[list(layers)].to_numpy() for fold in folds])

    def warped(profiles: FloatArray) -> FloatArray:
        """(..., n_systems, n_systems) of profiles (..., n_layers, n_features)."""

        def both(a: int, b: int) -> tuple[FloatArray, FloatArray]:
            apart = warped_distance(*(profiles[..., members.places[at], :] for at in (a, b)))
            return apart, apart

        return of_every_two(both, len(members.members), profiles.shape[:-2], 0.0)

    values = warped(by_fold).mean(axis=0)
    if left is None:
        return Measured(values)
    moved = warped(left.without[..., 1:])
    return Measured(values, Left(values + moved - warped(by_fold.mean(axis=0)), left.sizes))


def of_similarity(matrix: FloatArray, left: Left | None = None) -> Measured:
    """1 less the similarity of systems, as `mlem_core.groups.members.model_similarity` gives it.

    Parameters
    ----------
    matrix, left : (n_systems, n_systems), and without each block
    """

    def apart(similarity: FloatArray) -> FloatArray:
        one = np.eye(similarity.shape[-1], dtype=bool)
        return np.where(one, 0.0, 1.0 - similarity)

    return Measured(apart(matrix), None if left is None else Left(apart(left.without), left.sizes))


def of_explained_parts(
    explained: FloatArray, members: Members, sizes: Sequence[int] = ()
) -> Measured:
    """1 less S_feat of the layers of the same relative depth together.

    What the features explain of two layers, and of each with itself, is averaged over these first:
    a layer has no S_feat where they explain nothing of it.

    Parameters
    ----------
    explained : (1 + n_blocks, n_layers, n_layers) what the features explain of every two layers, of
        all stimuli and then without each block
    sizes : of the blocks; empty where there are none
    """

    def both(a: int, b: int) -> tuple[FloatArray, FloatArray]:
        i, j = members.matched(a, b)
        parts = (explained[:, x, y].mean(axis=-1) for x, y in ((i, j), (i, i), (j, j)))
        together = feature_similarity(*parts, drawn=True)
        return together, together

    shared = of_every_two(both, len(members.members), explained.shape[:1], 1.0)
    return of_similarity(shared[0], Left(shared[1:], tuple(sizes)) if sizes else None)


def table_of_distances(measured: Mapping[str, Measured], members: Members) -> pd.DataFrame:
    """Distances as a table, a row for each measure and two systems; bounds are NaN without blocks.

    Returns
    -------
    measure, system, other, distance, lower, upper (95 % interval over stimuli)
    """
    rows: list[tuple[Any, ...]] = []
    names = members.members
    first, second = np.triu_indices(len(names), 1)
    for measure, (values, left) in measured.items():
        bounds = np.full((2, *values.shape), np.nan)
        if left is not None:
            bounds = np.stack(jackknife(values, left.without, left.sizes, (0.0, np.inf))[1:3])
        for a, b in zip(first, second, strict=True):
            rows.append((measure, names[a], names[b], values[a, b], *bounds[:, a, b]))
    return pd.DataFrame(rows, columns=COLUMNS)
