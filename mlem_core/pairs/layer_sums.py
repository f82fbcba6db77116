"""One pass over the pairs of a layer: sums of distances and ranks by cell."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.patterns import Cells, PairIndex, left_out, tested_blocks
from mlem_core.pairs.ranks import Ties, average_ranks, order_pairs, ties

CHUNK = 2**20


@dataclass(frozen=True)
class LayerSums:
    """One layer's row of each array of `PairTables`, over all (not only the occurring) cells."""

    target_sums: FloatArray
    rank_sums: FloatArray
    within_sums: FloatArray
    rank_squares: float
    within_squares: FloatArray
    target_low: FloatArray
    target_high: FloatArray
    train_sums: FloatArray | None = None
    train_squares: FloatArray | None = None


class SortedPairs(Protocol):
    """The pairs of a layer in ascending order of their distance, wherever they are kept.

    Sums are by cell, (n_cells,), over all (not only the occurring) cells: of the squared distances,
    or of the centred average ranks among all pairs, the pairs inside a fold, or those that leave it
    out; with the latter comes the sum of their squares. `ends` are the lowest and the highest
    squared distance of each block, (n_blocks,), infinite if it is empty.
    """

    def target_sums(self) -> FloatArray: ...
    def rank_sums(self) -> tuple[FloatArray, float]: ...
    def within(self, fold: int) -> tuple[FloatArray, float]: ...
    def training(self, fold: int) -> tuple[FloatArray, float]: ...
    def ends(self) -> tuple[FloatArray, FloatArray]: ...


def sums_of(pairs: SortedPairs, n_folds: int, train_ranks: bool) -> LayerSums:
    """The sums of a layer, from its sorted pairs."""
    within = [pairs.within(fold) for fold in range(n_folds)]
    training = [pairs.training(fold) for fold in range(n_folds)] if train_ranks else []
    rank_sums, rank_squares = pairs.rank_sums()
    low, high = pairs.ends()
    return LayerSums(
        target_sums=pairs.target_sums(),
        rank_sums=rank_sums,
        within_sums=np.sum([sums for sums, _ in within], axis=0),
        rank_squares=rank_squares,
        within_squares=np.array([squares for _, squares in within]),
        target_low=low,
        target_high=high,
        train_sums=np.stack([sums for sums, _ in training]) if training else None,
        train_squares=np.array([squares for _, squares in training]) if training else None,
    )


def layer_sums(
    index: PairIndex, squared: FloatArray, train_ranks: bool = False
) -> tuple[LayerSums, NDArray[np.uint32]]:
    """One pass over the squared distances (n_pairs,) of a layer: the sums by cell.

    With `train_ranks` also those of the ranks among the pairs that leave out each fold. Returned
    too is twice the average rank (n_pairs,) of each pair among all pairs.
    """
    pairs = _Sorted(index, squared)
    return sums_of(pairs, index.n_folds, train_ranks), pairs.doubled


class _Sorted:
    """`SortedPairs` in NumPy; `doubled` are twice the average ranks, in condensed order."""

    def __init__(self, index: PairIndex, squared: FloatArray) -> None:
        self._index, self._squared = index, squared
        self._order, self._value = order_pairs(squared)
        ascending, self._squares = average_ranks(self._value)
        self.doubled = np.empty(len(squared), dtype=np.uint32)
        self.doubled[self._order] = ascending
        self._block = index.pair_block[self._order]

    def _sums(self, cells: Cells, values: NDArray[np.generic], centre: float) -> FloatArray:
        """Sum of values - centre by cell, in chunks so that no copy of all pairs is made."""
        total = np.zeros(self._index.n_cells)
        for start in range(0, len(cells), CHUNK):
            part = values[start : start + CHUNK].astype(np.float64)
            part -= centre
            total += np.bincount(cells[start : start + CHUNK], part, self._index.n_cells)
        return total

    def target_sums(self) -> FloatArray:
        return self._sums(self._index.pattern_cell, self._squared, 0.0)

    def rank_sums(self) -> tuple[FloatArray, float]:
        centre = len(self.doubled) + 1.0
        return self._sums(self._index.pattern_cell, self.doubled, centre) / 2, self._squares

    def within(self, fold: int) -> tuple[FloatArray, float]:
        at = np.flatnonzero(self._block == tested_blocks(self._index.n_folds)[fold])
        doubled, squares = average_ranks(self._value[at])
        cells = self._index.pattern_cell[self._order[at]]
        return self._sums(cells, doubled, len(at) + 1.0) / 2, squares

    @cached_property
    def _for_training(self) -> tuple[Cells, Ties, IntArray]:
        """The cells in ascending order, the ties, and how many pairs each cell has."""
        cells = self._index.pattern_cell[self._order]
        return cells, ties(self._value), np.bincount(cells, minlength=self._index.n_cells)

    def training(self, fold: int) -> tuple[FloatArray, float]:
        # How many training pairs there are up to a pair is its rank among them, unless it is tied.
        cells, tied, pairs = self._for_training
        stays = ~left_out(self._index.n_folds, self._index.n_blocks)[fold]
        training = stays[self._block]
        upto = np.cumsum(training, dtype=np.uint32)
        n = float(upto[-1]) if len(upto) else 0.0
        before, after = upto[tied.first] - training[tied.first], upto[tied.last]
        upto *= 2
        upto[tied.members] = np.repeat(before + after + np.uint32(1), tied.sizes)
        total = np.zeros(self._index.n_cells)
        for start in range(0, len(cells), CHUNK // 8):
            at = slice(start, start + CHUNK // 8)
            total += np.bincount(cells[at], upto[at].astype(np.float64), self._index.n_cells)
        total -= pairs * (n + 1.0)
        sizes = (after - before).astype(np.float64)
        squares = (n**3 - n - float((sizes**3 - sizes).sum())) / 12
        return (total.reshape(len(stays), -1) * (stays[:, None] / 2)).ravel(), squares

    def ends(self) -> tuple[FloatArray, FloatArray]:
        n_blocks = self._index.n_blocks
        low, high = np.full(n_blocks, np.inf), np.full(n_blocks, -np.inf)
        for found, step in ((low, 1), (high, -1)):
            present, first = _first_of_each(self._block[::step], n_blocks)
            found[present] = self._squared[self._order[::step][first]]
        return low, high


def _first_of_each(blocks: NDArray[np.integer], n_blocks: int) -> tuple[IntArray, IntArray]:
    """The blocks that occur and where each occurs first; a short look mostly finds them all."""
    size = 64 * n_blocks
    while True:
        present, first = np.unique(blocks[:size], return_index=True)
        if len(present) == n_blocks or size >= len(blocks):
            return present.astype(np.int64), first.astype(np.int64)
        size *= 16
