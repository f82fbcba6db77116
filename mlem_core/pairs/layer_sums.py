"""One pass over the pairs of a layer: sums of distances and ranks by cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.patterns import Cells, PairIndex, block_numbers
from mlem_core.pairs.ranks import average_ranks, order_pairs, ties

CHUNK = 2**20


def _sums(
    cells: Cells,
    values: NDArray[np.generic],
    n_cells: int,
    centre: float,
) -> FloatArray:
    """Sum of values - centre by cell, in chunks so that no copy of all pairs is made."""
    total = np.zeros(n_cells)
    for start in range(0, len(cells), CHUNK):
        part = values[start : start + CHUNK].astype(np.float64)
        part -= centre
        total += np.bincount(cells[start : start + CHUNK], weights=part, minlength=n_cells)
    return total


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


def layer_sums(
    index: PairIndex, squared: FloatArray, train_ranks: bool = False
) -> tuple[LayerSums, NDArray[np.uint32]]:
    """One pass over the pairs of a layer: sums by cell, and the doubled average rank of each pair.

    Parameters
    ----------
    index : the pairs' patterns and blocks
    squared : (n_pairs,) squared neural distances
    train_ranks : also sum the ranks among the pairs that leave out each fold

    Returns
    -------
    LayerSums, and (n_pairs,) uint32, twice the average rank of each pair among all pairs
    """
    cells, n_folds = index.pattern_cell, index.n_folds
    diagonal = np.diag(block_numbers(n_folds))
    n_blocks = n_folds * (n_folds + 1) // 2
    n_cells = n_blocks * index.n_patterns
    total = len(squared)
    order, value = order_pairs(squared)
    ascending, squares = average_ranks(value)
    doubled = np.empty(total, dtype=np.uint32)
    doubled[order] = ascending
    del ascending
    block = index.pair_block[order]
    within = np.zeros(n_cells)
    within_squares = np.zeros(n_folds)
    for fold in range(n_folds):
        at = np.flatnonzero(block == diagonal[fold])
        held_out, within_squares[fold] = average_ranks(value[at])
        within += _sums(cells[order[at]], held_out, n_cells, len(at) + 1.0) / 2
    train, train_squares = None, None
    if train_ranks:
        train, train_squares = _training_sums(cells[order], block, value, n_folds, n_cells)
    low, high = np.full(n_blocks, np.inf), np.full(n_blocks, -np.inf)
    for ends, positions in ((low, order), (high, order[::-1])):
        present, first = _first_of_each(block if ends is low else block[::-1], n_blocks)
        ends[present] = squared[positions[first]]
    sums = LayerSums(
        target_sums=_sums(cells, squared, n_cells, 0.0),
        rank_sums=_sums(cells, doubled, n_cells, total + 1.0) / 2,
        within_sums=within,
        rank_squares=squares,
        within_squares=within_squares,
        target_low=low,
        target_high=high,
        train_sums=train,
        train_squares=train_squares,
    )
    return sums, doubled


def _training_sums(
    cells: Cells,
    block: NDArray[Any],
    value: NDArray[np.uint64],
    n_folds: int,
    n_cells: int,
) -> tuple[FloatArray, FloatArray]:
    """Sums by cell, and of the squares, of the ranks among the pairs that leave out each fold.

    How many training pairs there are up to a pair is its rank among them, unless it is tied.

    Parameters
    ----------
    cells, block, value : (n_pairs,) cell, block and distance of the pairs in ascending order

    Returns
    -------
    (n_folds, n_cells) and (n_folds,)
    """
    numbers = block_numbers(n_folds)
    sums, squares = np.zeros((n_folds, n_cells)), np.zeros(n_folds)
    tied = ties(value)
    pairs = np.bincount(cells, minlength=n_cells)
    for fold in range(n_folds):
        stays = np.ones(int(numbers.max()) + 1, dtype=bool)
        stays[numbers[fold]] = False
        training = stays[block]
        upto = np.cumsum(training, dtype=np.uint32)
        n = float(upto[-1]) if len(upto) else 0.0
        before, after = upto[tied.first] - training[tied.first], upto[tied.last]
        upto *= 2
        upto[tied.members] = np.repeat(before + after + np.uint32(1), tied.sizes)
        total = np.zeros(n_cells)
        for start in range(0, len(cells), CHUNK // 8):
            at = slice(start, start + CHUNK // 8)
            total += np.bincount(cells[at], upto[at].astype(np.float64), n_cells)
        total -= pairs * (n + 1.0)
        sums[fold] = (total.reshape(len(stays), -1) * (stays[:, None] / 2)).ravel()
        sizes = (after - before).astype(np.float64)
        squares[fold] = (n**3 - n - (sizes**3 - sizes).sum()) / 12
    return sums, squares


def _first_of_each(blocks: NDArray[np.integer], n_blocks: int) -> tuple[IntArray, IntArray]:
    """The blocks that occur and where each occurs first; a short look mostly finds them all."""
    size = 64 * n_blocks
    while True:
        present, first = np.unique(blocks[:size], return_index=True)
        if len(present) == n_blocks or size >= len(blocks):
            return present.astype(np.int64), first.astype(np.int64)
        size *= 16
