"""The distances of a layer, a band of the matrix at a time, without holding those of all pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.distances import PRECOMPUTED, distance_named, distinct
from mlem_core.pairs.rows import check_matrix
from mlem_core.pairs.tiles import band_of

# Start and stop of some rows, to their squared distances (stop - start, n) to the n rows from
# `start` on, of which those above the diagonal are meant.
Band = Callable[[int, int], FloatArray]


@dataclass(frozen=True)
class LayerDistances:
    """The distances of a layer, some of them at a time and as often as they are asked for.

    row : (n_stimuli,) the row of each stimulus; equal stimuli have one
    band : of these rows
    among : some rows (n,), a row maybe several times, to the band of these
    nbytes : what it takes of memory
    """

    row: IntArray
    band: Band
    among: Callable[[IntArray], Band]
    nbytes: int

    @property
    def n_rows(self) -> int:
        return int(self.row.max()) + 1

    def of_stimuli(self) -> Band:
        """The same by stimulus, in their order, equal ones apart."""
        return self.band if self.n_rows == len(self.row) else self.among(self.row)


def can_be_tiled(metric: str) -> bool:
    """Whether the distances of a band of stimuli can be had without those of all."""
    return metric == PRECOMPUTED or distance_named(metric).tile is not None


def layer_distances(
    representations: NDArray[np.floating], metric: str, *, layer: str = "the layer"
) -> LayerDistances:
    """The distances that `mlem_core.pairs.distances.squared_distances` gives of all pairs at once.

    Parameters and errors as there; `metric` is one that can be tiled, see `can_be_tiled`. A
    precomputed matrix may be a memory map, of which a band is read at a time.
    """
    if metric == PRECOMPUTED:
        matrix = np.asanyarray(representations)
        check_matrix(matrix, layer)

        def among(rows: IntArray) -> Band:
            return lambda start, stop: np.square(
                matrix[np.ix_(rows[start:stop], rows[start:])], dtype=np.float64
            )

        return LayerDistances(
            np.arange(len(matrix)),
            lambda start, stop: np.square(matrix[start:stop, start:], dtype=np.float64),
            among,
            0,
        )
    distance = distance_named(metric)
    tile, squared = distance.tile, distance.squared
    assert tile is not None
    rows, position = distinct(representations, distance, layer)
    return LayerDistances(
        position,
        band_of(rows, tile, squared),
        lambda some: band_of(rows[some], tile, squared),
        rows.nbytes,
    )
