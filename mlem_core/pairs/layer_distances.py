"""The rows of a layer: checked, which of them are equal, and compared, a band of them at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.numbers import moderate
from mlem_core.base.parallel import each
from mlem_core.base.typing import FloatArray
from mlem_core.pairs.designs import bands
from mlem_core.stimuli.neural_rows import check_finite, checked_distances

# A tile of the matrix of distances, (stop - start, n): of rows start..stop-1 to the n rows from
# `start` on, of which those above the diagonal are meant. It is made of the rows, their squared
# norms, start and stop.
Tile = Callable[[Any, Any, int, int], Any]
# What is done with the squared distances of a tile, from `start` on.
Fill = Callable[[int, FloatArray], None]
# Below this share of the squared norms, |x|² + |y|² - 2xy has lost too many digits.
CANCELLATION = 1e-8
CHUNK_ELEMENTS = 2**19
# A matrix product of fewer rows is slower.
CHUNK_ROWS = 128
# Two rows closer than this share of their norm are one representation: a model run in float32
# gives the same word after the same left context only up to its last bits.
EQUAL_ROWS = {2: 2e-3, 4: 5e-6, 8: 1e-12}
# Where rows lie this many times as far from 0 as from each other, that share would be one of what
# they have in common, and is taken of what they differ by.
FAR = 1e4
_SOME_ROWS, _FEW_ROWS = 1_000, 100
PAIR_ELEMENTS = 2**22


def equal_rows(rows: NDArray[np.floating]) -> NDArray[np.int64]:
    """The first row that each of rows (n_stimuli, n_units) equals, up to its type's precision.

    Returns (n_stimuli,) row numbers; a row that equals no earlier one has its own number.
    """
    from mlem_core.pairs.kernels.distances import join_equal

    tolerance = EQUAL_ROWS.get(rows.dtype.itemsize, 1e-12)
    given = moderate(np.asarray(rows, dtype=np.float32 if rows.dtype.itemsize == 2 else None))
    if (centre := _far_centre(given)) is not None:
        given = given.astype(np.float64) - centre
    # Equal rows have equal projections: only neighbours along one direction need a closer look.
    directions = np.random.default_rng(0).standard_normal((2, given.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    norms, projections = np.empty(len(given)), np.empty((2, len(given)))
    step = max(1, PAIR_ELEMENTS // given.shape[1])
    for start in range(0, len(given), step):
        band = slice(start, start + step)
        exact = given[band].astype(np.float64)
        norms[band] = np.linalg.norm(exact, axis=1)
        projections[:, band] = directions @ exact.T
    order = np.argsort(projections[0], kind="stable")
    first = np.arange(len(given))
    join_equal(given, order, projections, tolerance * norms, first)
    # Name each group by its lowest row, whatever the order of the projections was.
    lowest = np.full(len(given), len(given))
    np.minimum.at(lowest, first, np.arange(len(given)))
    return lowest[first].astype(np.int64)


def _far_centre(rows: NDArray[np.floating]) -> FloatArray | None:
    """The mean (n_units,) of some rows where they lie `FAR` from 0, else None."""
    some = np.asarray(rows[:: max(1, len(rows) // _SOME_ROWS)], dtype=np.float64)
    largest = float(np.abs(some).max(initial=0.0))
    if not 0 < largest < np.inf:
        return None
    centre: FloatArray = some.mean(axis=0)
    # Divided by the largest, so that squares stay finite.
    spread = np.linalg.norm((some - centre) / largest) / np.sqrt(len(some))
    return centre if np.linalg.norm(centre / largest) > FAR * spread > 0 else None


def checked_rows(representations: NDArray[np.floating], layer: str) -> NDArray[np.floating]:
    """Representations (n_stimuli, n_units) as floats, see `mlem_core.base.numbers.moderate`.

    Raises InputError: a value that is not finite.
    """
    rows = np.asarray(representations)
    if not np.issubdtype(rows.dtype, np.floating):
        rows = rows.astype(np.float64)
    check_finite(rows, layer)
    return moderate(rows)


def checked_matrix(
    matrix: NDArray[np.floating], layer: str, *, complete: bool = True
) -> FloatArray:
    """A matrix of distances (n_stimuli, n_stimuli) as float64, of `moderate` size.

    Parameters and errors are those of `mlem_core.stimuli.neural_rows.checked_distances`.
    """
    square = checked_distances(matrix, layer, complete=complete)
    return np.asarray(moderate(square), dtype=np.float64)


def centred_columns(rows: FloatArray) -> FloatArray:
    """Rows (n_stimuli, n_units) with each unit's mean 0, or its median.

    It is the median where a few rows are so large that the mean is `FAR` from most of them: they
    would lose the digits in which they differ.
    """
    mean = rows.mean(axis=0)
    some = np.array(rows[:: max(1, len(rows) // _FEW_ROWS)])
    middle = np.median(some, axis=0)
    usual = np.median(np.linalg.norm(some - middle, axis=1))
    return rows - (middle if np.linalg.norm(mean - middle) > FAR * usual > 0 else mean)


def unit_rows(rows: FloatArray) -> FloatArray:
    """Rows of norm 1; zeros stay."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, np.inf)


def unit_centred_rows(rows: FloatArray) -> FloatArray:
    """Rows of mean 0 and norm 1; zeros where all units of a row are equal."""
    return unit_rows(rows - rows.mean(axis=1, keepdims=True))


def fill_tiles(rows: FloatArray, tile: Tile, squared: bool, fill: Fill, threads: int) -> None:
    """Give the squared distances of rows (n_rows, n_units) to `fill`, a tile after the other.

    Parameters
    ----------
    squared : whether those that `tile` gives are squared already
    fill : called by several threads
    """
    squares = np.einsum("ij,ij->i", rows, rows)

    def fill_band(ends: tuple[int, int]) -> None:
        found: FloatArray = tile(rows, squares, *ends)
        fill(ends[0], found if squared else np.square(found, out=found))

    each(fill_band, bands(len(rows), max(CHUNK_ELEMENTS, CHUNK_ROWS * len(rows))), threads)


def squared_euclidean(rows: FloatArray, squares: FloatArray, start: int, stop: int) -> FloatArray:
    """A tile of squared Euclidean distances by one matrix product."""
    from mlem_core.pairs.kernels.distances import finish_squared

    left, right = rows[start:stop], rows[start:]
    tile: FloatArray = left @ right.T
    finish_squared(tile, left, right, squares[start:], CANCELLATION)
    return tile


def cityblock(rows: FloatArray, _: FloatArray, start: int, stop: int) -> FloatArray:
    """A tile of Manhattan distances."""
    from scipy.spatial.distance import cdist

    return cdist(rows[start:stop], rows[start:], "cityblock")


def half(tile: Tile) -> Tile:
    """Half of what a tile is: for rows of norm 1, 1 - cos is half the squared distance."""

    def halved(rows: Any, squares: Any, start: int, stop: int) -> Any:
        found = tile(rows, squares, start, stop)
        found /= 2
        return found

    return halved
