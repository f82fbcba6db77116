"""Tiles of the matrix of distances, the unit of the pass over the pairs: in NumPy and in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mlem_core.base.typing import FloatArray
from mlem_core.pairs.designs import bands

if TYPE_CHECKING:
    import torch

# (start, stop, squared distances of rows start..stop-1 to the rows from `start` on); of two rows,
# those of the lower to the higher count.
Tiles = Iterator[tuple[int, int, FloatArray]]
# What makes a tile: of the rows, their squared norms, start and stop.
Tile = Callable[[Any, Any, int, int], Any]
# Start and stop of some rows, to their squared distances (stop - start, n) to the n rows from
# `start` on, of which those above the diagonal are meant.
Band = Callable[[int, int], FloatArray]
# Below this share of the squared norms, |x|² + |y|² - 2xy has lost too many digits.
CANCELLATION = 1e-8
CHUNK_ELEMENTS = 2**19
# A matrix product of fewer rows is slower.
CHUNK_ROWS = 128
TORCH_ELEMENTS = 2**24


def tile_bands(n_rows: int) -> Iterator[tuple[int, int]]:
    """Bands (start, stop) of the rows, each the work of a thread."""
    return bands(n_rows, max(CHUNK_ELEMENTS, CHUNK_ROWS * n_rows))


def band_of(rows: FloatArray, tile: Tile, squared: bool) -> Band:
    """What gives the squared distances of the rows start..stop-1 to those from `start` on."""
    squares = np.einsum("ij,ij->i", rows, rows)

    def band(start: int, stop: int) -> FloatArray:
        found: FloatArray = tile(rows, squares, start, stop)
        return found if squared else np.square(found, out=found)

    return band


def torch_tiles(rows: FloatArray, tile: Tile, squared: bool, device: str) -> Tiles:
    """Squared distances of rows (n_rows, n_units), a band at a time, by a `tile` in torch.

    `squared` says whether those that `tile` gives are squared already.
    """
    import torch

    there = torch.from_numpy(rows).to(device)
    squares = (there * there).sum(dim=1)
    for start, stop in bands(len(rows), TORCH_ELEMENTS):
        found: torch.Tensor = tile(there, squares, start, stop)
        yield start, stop, (found if squared else found.square_()).cpu().numpy()


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


def squared_difference(a: FloatArray, b: FloatArray) -> FloatArray:
    """(n,) squared Euclidean distances of the rows of a (n, n_units) to those of b."""
    difference = a - b
    return np.einsum("ij,ij->i", difference, difference)


def half(tile: Tile) -> Tile:
    """Half of what a tile is: for rows of norm 1, 1 - cos is half the squared distance."""

    def halved(rows: Any, squares: Any, start: int, stop: int) -> Any:
        found = tile(rows, squares, start, stop)
        found /= 2
        return found

    return halved


def torch_squared_euclidean(
    rows: torch.Tensor, squares: torch.Tensor, start: int, stop: int
) -> torch.Tensor:
    """`squared_euclidean` in torch."""
    import torch

    left, right = rows[start:stop], rows[start:]
    scale = squares[start:stop, None] + squares[None, start:]
    tile = scale - 2.0 * (left @ right.T)
    close_i, close_j = torch.nonzero(tile < CANCELLATION * scale, as_tuple=True)
    step = max(1, TORCH_ELEMENTS // rows.shape[1])
    for at in range(0, len(close_i), step):
        i, j = close_i[at : at + step], close_j[at : at + step]
        tile[i, j] = ((left[i] - right[j]) ** 2).sum(dim=1)
    return tile


def torch_cityblock(rows: torch.Tensor, _: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """A tile of Manhattan distances in torch."""
    import torch

    return torch.cdist(rows[start:stop], rows[start:], p=1.0)
