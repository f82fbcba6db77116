"""The two passes of `mlem_core.pairs.classes` in torch, tile by tile, for a GPU.

Classes, counts and sums of ranks are whole numbers and those of the CPU wherever the distances are;
sums of distances differ in how they are rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.designs import bands
from mlem_core.pairs.tiles import LayerDistances

if TYPE_CHECKING:
    import torch

    from mlem_core.pairs.kernels.cells import Lookup
    from mlem_core.pairs.kernels.classes import ClassMap

# Pairs of a tile: more make no pass faster, fewer are not worth a call.
MOST_PAIRS, FEWEST_PAIRS = 2**24, 2**12
# What a pair of a tile takes at most: whose it is, its distance, class and cell, and their making.
PAIR_BYTES = 160
# Patterns of so many pairs of types are looked up once for all tiles.
TYPE_PAIRS = 2**24


class Tile(NamedTuple):
    """The pairs of some stimuli with later ones, all arrays (n_pairs,) on the device.

    first, second : the two stimuli
    values : their squared distances
    """

    first: torch.Tensor
    second: torch.Tensor
    values: torch.Tensor


def classes_of(values: torch.Tensor, to: TorchMap) -> torch.Tensor:
    """The classes (n,) of distances (n,) float64: those of `kernels.classes.classes_of`."""
    import torch

    # A zero may have a sign. By its bits: arithmetic may take the smallest numbers for zeros.
    bits = values.view(torch.int64) & ((1 << 63) - 1)
    keys = (bits + (1 << to.dropped >> 1)) >> to.dropped
    segment = torch.bucketize(keys, to.inner, right=True)
    within = (keys - to.knots[segment]).double() * to.scale[segment]
    return to.base[segment] + within.long()


class TorchMap(NamedTuple):
    """A `ClassMap` on a device; inner : (n_segments - 1,) the knots but the first and the last."""

    dropped: int
    knots: torch.Tensor
    inner: torch.Tensor
    base: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def of(cls, to: ClassMap, device: str) -> TorchMap:
        """Copied there."""
        knots, base, scale = (_there(own, device) for own in (to.knots, to.base, to.scale))
        return cls(int(to.dropped), knots, knots[1:-1].contiguous(), base, scale)


class TorchPairs:
    """All pairs of the stimuli of a layer on a device, a tile at a time.

    Parameters
    ----------
    layer : its distances
    look : of the pairs' index
    to : the classes
    memory : bytes that a tile may take there, about
    """

    def __init__(
        self, layer: LayerDistances, look: Lookup, to: ClassMap, device: str, memory: int
    ) -> None:
        self._band = layer.on(device)
        self._n_rows, self._n_classes = layer.n_rows, len(to.alone)
        order = np.argsort(layer.row, kind="stable")
        self._row = layer.row[order]
        self._rows, self._order = _there(self._row, device), _there(order, device)
        self._to, self._look = TorchMap.of(to, device), _TorchLook(look, device)
        self._part, self._device = _there(look.part, device), device
        self._pairs = max(FEWEST_PAIRS, min(MOST_PAIRS, memory // PAIR_BYTES))

    def counts(self, column: IntArray, n_columns: int) -> IntArray:
        """(n_classes, n_columns) how many pairs each class has, see `kernels.classes`.

        Parameters
        ----------
        column : (n_parts, n_parts) of the pairs between two parts
        """
        import torch

        columns = _there(column, self._device)
        size = self._n_classes * n_columns
        counts = torch.zeros(size, dtype=torch.int64, device=self._device)
        for tile in self._tiles():
            at = classes_of(tile.values, self._to).mul_(n_columns)
            at += columns[self._part[tile.first], self._part[tile.second]]
            counts.index_add_(0, at, torch.ones_like(at))
        return counts.view(self._n_classes, n_columns).cpu().numpy()

    def sums(
        self, ranks: NDArray[Any], block: IntArray, lane: IntArray, n_shared: int, n_cells: int
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """Sums by cell, see `kernels.classes.sum_classes`, whose parameters these are.

        Returns targets (n_cells,), sums (n_cells, n_shared + 1) and ends (2, n_blocks).
        """
        import torch

        n_sets = int(lane.max(initial=n_shared - 1)) + 1
        of_set = _there(ranks[:, :n_sets].T, self._device)
        blocks, lanes = _there(block, self._device), _there(lane, self._device)
        targets = torch.zeros(n_cells, dtype=torch.float64, device=self._device)
        sums = torch.zeros((n_shared + 1, n_cells), dtype=torch.int64, device=self._device)
        ends = targets.new_full((2, len(lane)), np.inf)
        for tile in self._tiles():
            found = classes_of(tile.values, self._to)
            cell = self._look.cells(tile.first, tile.second)
            own = blocks[self._part[tile.first], self._part[tile.second]]
            targets.index_add_(0, cell, tile.values)
            for number in range(n_shared):
                sums[number].index_add_(0, cell, of_set[number][found].long())
            sums[n_shared].index_add_(0, cell, of_set[lanes[own], found].long())
            ends[0].scatter_reduce_(0, own, tile.values, "amin")
            ends[1].scatter_reduce_(0, own, -tile.values, "amin")
        ends[1].neg_()
        return targets.cpu().numpy(), sums.T.cpu().numpy(), ends.cpu().numpy()

    def _tiles(self) -> Iterator[Tile]:
        import torch

        n = len(self._row)
        for start, stop in bands(self._n_rows, self._pairs):
            band = self._band(start, stop)
            low, high = np.searchsorted(self._row, [start, stop])
            height = max(1, self._pairs // (n - int(low)))
            for first in range(int(low), int(high), height):
                last = min(first + height, int(high))
                a, b = torch.triu_indices(last - first, n - first, 1, device=self._device)
                a, b = a + first, b + first
                one, other = self._rows[a], self._rows[b]
                # Stimuli of one row are at distance 0, whatever stands on the diagonal.
                values = torch.where(one == other, 0.0, band[one - start, other - start])
                yield Tile(self._order[a], self._order[b], values)


class _TorchLook:
    """Cells of pairs on a device, as `mlem_core.pairs.kernels.cells.cell_of` tells them."""

    def __init__(self, look: Lookup, device: str) -> None:
        filled = look.pattern >= 0
        order = np.argsort(look.keys[filled])
        self._keys = _there(look.keys[filled][order], device)
        self._pattern = _there(look.pattern[filled][order].astype(np.int64), device)
        self._width, self._start, self._differ = look.width, look.start, look.differ
        self._terms = _there(look.terms, device)
        self._part, self._offset = _there(look.part, device), _there(look.offset, device)
        self._number = _there(look.number.astype(np.int64), device)
        types, type_ = np.unique(look.values, axis=0, return_inverse=True)
        self._type = self._table = None
        self._values = _there(look.values, device)
        if len(types) ** 2 <= TYPE_PAIRS:
            self._type = _there(type_.reshape(-1), device)
            own = _there(types, device)
            # Of types that no two stimuli have, any number.
            self._table = self._patterns(own[:, None], own[None, :])

    def cells(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """(n,) of the pairs of stimuli first and second (n,)."""
        if self._table is not None and self._type is not None:
            pattern = self._table[self._type[first], self._type[second]]
        else:
            pattern = self._patterns(self._values[first], self._values[second])
        return self._number[self._offset[self._part[first], self._part[second]] + pattern]

    def _patterns(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Patterns of two stimuli of values one and other (..., n_features)."""
        import torch

        key = torch.zeros((), dtype=torch.int64, device=one.device)
        for f, (width, start) in enumerate(zip(self._width, self._start, strict=True)):
            a, b = one[..., f], other[..., f]
            if width > 0:
                key = key + self._terms[int(start) + a * int(width) + b]
            else:
                key = key + int(self._differ[f]) * ((a != b) & (a >= 0) & (b >= 0))
        at = torch.searchsorted(self._keys, key).clamp_(max=len(self._keys) - 1)
        return self._pattern[at]


def _there(array: NDArray[Any], device: str) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
