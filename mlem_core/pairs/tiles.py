"""Tiles of the matrix of distances, the unit of the pass over the pairs: in NumPy and in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlem_core.base.typing import FloatArray, IntArray
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
TorchBand = Callable[[int, int], "torch.Tensor"]
# Below this share of the squared norms, |x|² + |y|² - 2xy has lost too many digits.
CANCELLATION = 1e-8
CHUNK_ELEMENTS = 2**19
# Of a tile whose distances are ranked in classes.
TILE_ELEMENTS = 2**22
# A matrix product of fewer rows is slower.
CHUNK_ROWS = 128
TORCH_ELEMENTS = 2**24


@dataclass(frozen=True)
class LayerDistances:
    """The distances of a layer, some of them at a time and as often as they are asked for.

    row : (n_stimuli,) the row of each stimulus; equal stimuli have one
    band : of these rows
    among : some rows (n,), a row maybe several times, to the band of these
    nbytes : what it takes of memory
    torch_band : of a device of torch, to the band of these rows there; None where the CPU does it
    """

    row: IntArray
    band: Band
    among: Callable[[IntArray], Band]
    nbytes: int
    torch_band: Callable[[str], TorchBand] | None = None

    @property
    def n_rows(self) -> int:
        return int(self.row.max()) + 1

    def of_stimuli(self) -> Band:
        """The same by stimulus, in their order, equal ones apart."""
        return self.band if self.n_rows == len(self.row) else self.among(self.row)

    def on(self, device: str) -> TorchBand:
        """`band` as tensors on a device of torch."""
        import torch

        if self.torch_band is not None:
            return self.torch_band(device)
        return lambda start, stop: torch.from_numpy(self.band(start, stop)).to(device)


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


def torch_band_of(rows: FloatArray, tile: Tile, squared: bool, device: str) -> TorchBand:
    """`band_of` by a `tile` in torch, on a device."""
    import torch

    there = torch.from_numpy(rows).to(device)
    squares = (there * there).sum(dim=1)

    def band(start: int, stop: int) -> torch.Tensor:
        found: torch.Tensor = tile(there, squares, start, stop)
        return found if squared else found.square_()

    return band


def torch_tiles(rows: FloatArray, tile: Tile, squared: bool, device: str) -> Tiles:
    """Squared distances of rows (n_rows, n_units), a band at a time, by a `tile` in torch.

    `squared` says whether those that `tile` gives are squared already.
    """
    band = torch_band_of(rows, tile, squared, device)
    for start, stop in bands(len(rows), TORCH_ELEMENTS):
        yield start, stop, band(start, stop).cpu().numpy()


def squared_euclidean(rows: FloatArray, squares: FloatArray, start: int, stop: int) -> FloatArray:
    """A tile of squared Euclidean distances by one matrix product."""
    from mlem_core.pairs.kernels.tiles import finish_squared

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
