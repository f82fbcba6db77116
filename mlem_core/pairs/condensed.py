"""Where each pair of stimuli stands in a condensed vector: (0,1), (0,2), ..., (1,2), ..."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlem_core.base.typing import IntArray


def n_pairs(n_stimuli: int) -> int:
    """Number of unordered pairs of `n_stimuli` stimuli."""
    return n_stimuli * (n_stimuli - 1) // 2


def row_slices(n_stimuli: int) -> Iterator[tuple[int, slice]]:
    """For each stimulus i, where its pairs (i, i+1), (i, i+2), ... stand."""
    start = 0
    for i in range(n_stimuli - 1):
        stop = start + n_stimuli - 1 - i
        yield i, slice(start, stop)
        start = stop


def ends_of(places: IntArray, n_stimuli: int) -> tuple[IntArray, IntArray]:
    """The two stimuli, the lower first, of the pairs at these places."""
    starts = np.cumsum(np.arange(n_stimuli - 1, 0, -1)) - np.arange(n_stimuli - 1, 0, -1)
    first = np.searchsorted(starts, places, side="right") - 1
    return first, places - starts[first] + first + 1


def places_of(i: IntArray, j: IntArray, n_stimuli: int) -> IntArray:
    """Where the pairs (i, j) stand; i differs from j, in either order."""
    low, high = np.minimum(i, j), np.maximum(i, j)
    return low * n_stimuli - low * (low + 1) // 2 - low - 1 + high


def pairs_among(stimuli: IntArray, n_stimuli: int) -> IntArray:
    """Where the pairs among some stimuli, ascending, stand among all pairs."""
    where = np.empty(n_pairs(len(stimuli)), dtype=np.int64)
    for a, at in row_slices(len(stimuli)):
        where[at] = places_of(stimuli[a], stimuli[a + 1 :], n_stimuli)
    return where
