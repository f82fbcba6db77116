"""One pass over the pairs of a layer: sums of distances and ranks by cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import each
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.patterns import PairIndex, left_out, tested_blocks
from mlem_core.pairs.ranks import Keys, doubled_ranks, keys_of


@dataclass(frozen=True)
class LayerSums:
    """One layer's row of each array of `PairTables`.

    rank_bound : by what share of the pairs among which it is a rank is off at most
    """

    target_sums: FloatArray
    rank_sums: FloatArray
    within_sums: FloatArray
    rank_squares: float
    within_squares: FloatArray
    target_low: FloatArray
    target_high: FloatArray
    train_sums: FloatArray | None = None
    train_squares: FloatArray | None = None
    rank_bound: float = 0.0


def layer_sums(
    index: PairIndex,
    squared: FloatArray,
    train_ranks: bool = False,
    *,
    overwrite: bool = False,
    threads: int = 1,
) -> tuple[LayerSums, NDArray[np.uint32]]:
    """One pass over the squared distances (n_pairs,) of a layer: the sums by cell.

    Exact: ranks are average ranks of the distances, of which those that differ by less than what
    `mlem_core.pairs.ranks.keys_of` keeps are ties.

    Parameters
    ----------
    train_ranks : also sum the ranks among the pairs that leave out each fold
    overwrite : the memory of `squared` may be used for something else
    threads : the sums are the same with any number of them

    Returns
    -------
    the sums, and twice the average rank (n_pairs,) of each pair among all pairs
    """
    from mlem_core.pairs.kernels.sweep import sum_targets

    target_sums = np.zeros(index.n_cells)
    low, high = np.full(index.n_blocks, np.inf), np.full(index.n_blocks, -np.inf)
    sum_targets(squared, index.cell, index.cell_block, target_sums, low, high)
    keys = keys_of(squared, overwrite, threads)
    doubled = doubled_ranks(keys, threads)

    # The sets of pairs that have ranks of their own: all, and those that train each fold's model.
    training = ~left_out(index.n_folds, index.n_blocks)[: None if train_ranks else 0]
    sets = np.concatenate((np.ones((1, index.n_blocks), dtype=bool), training))
    ranked = _Ranked.among(index, keys, sets, threads)
    tested = tested_blocks(index.n_folds)
    return LayerSums(
        target_sums=target_sums,
        rank_sums=ranked.sums[0],
        within_sums=np.where(np.isin(index.cell_block, tested), ranked.own_sums, 0.0),
        rank_squares=float(ranked.squares[0]),
        within_squares=ranked.own_squares[tested],
        target_low=low,
        target_high=high,
        train_sums=ranked.sums[1:] if train_ranks else None,
        train_squares=ranked.squares[1:] if train_ranks else None,
    ), doubled


class _Ranked(NamedTuple):
    """Sums of centred average ranks by cell, and of their squares.

    sums, squares : (n_sets, n_cells), 0 for cells outside a set, and (n_sets,)
    own_sums, own_squares : (n_cells,) and (n_blocks,) of the ranks among the pairs of a block
    """

    sums: FloatArray
    squares: FloatArray
    own_sums: FloatArray
    own_squares: FloatArray

    @classmethod
    def among(cls, index: PairIndex, keys: Keys, sets: NDArray[np.bool_], threads: int) -> _Ranked:
        """In each set of pairs; (n_sets, n_blocks) says whether those of a block are in it."""
        from mlem_core.pairs.kernels.sweep import LANES, count_blocks

        cells, block = index.cell, index.cell_block
        parts = [keys.sorted[part] for part in keys.slices(threads)]
        blocks = np.bincount(block, index.counts, index.n_blocks).astype(np.int64)
        below = np.zeros((len(parts), index.n_blocks), dtype=np.int64)
        if len(parts) > 1:

            def count(part: int) -> None:
                count_blocks(parts[part], keys.number_bits, cells, block, below[part + 1])

            each(count, range(len(parts) - 1), threads)
            below = below.cumsum(axis=0)

        found, ties = np.zeros((len(sets), index.n_cells)), np.zeros(len(sets))
        for start in range(0, len(sets), LANES):
            some = sets[start : start + LANES]
            members = np.zeros((index.n_blocks, LANES), dtype=np.int64)
            members[:, : len(some)] = some.T

            def swept(part: int, members: IntArray = members) -> tuple[NDArray[Any], ...]:
                return _swept(Keys(parts[part], keys.number_bits), index, members, below[part])

            columns = zip(*each(swept, range(len(parts)), threads), strict=True)
            sums, tied, own, own_tied = (np.sum(column, axis=0) for column in columns)
            # From twice the ranks to centred ones, in whole numbers as long as they are doubled.
            sums -= index.counts[:, None] * (blocks @ members + 1)
            sums *= members[block]
            found[start : start + LANES] = sums.T[: len(some)] / 2
            ties[start : start + LANES] = tied[: len(some)]
        own -= index.counts * (blocks[block] + 1)
        return cls(found, squares_of(sets @ blocks, ties), own / 2, squares_of(blocks, own_tied))


def _swept(
    keys: Keys, index: PairIndex, members: IntArray, below: IntArray
) -> tuple[NDArray[Any], ...]:
    """What `mlem_core.pairs.kernels.sweep.sweep` fills, of some of the pairs."""
    from mlem_core.pairs.kernels.sweep import LANES, sweep

    sums, ties = np.zeros((index.n_cells, LANES), dtype=np.int64), np.zeros(LANES)
    own, own_ties = np.zeros(index.n_cells, dtype=np.int64), np.zeros(index.n_blocks)
    sweep(*keys, index.cell, index.cell_block, members, below, sums, ties, own, own_ties)
    return sums, ties, own, own_ties


def squares_of(pairs: IntArray, ties: FloatArray) -> FloatArray:
    """Sums of the squared centred average ranks of so many pairs; `ties` are Σ (t³ - t)."""
    n = pairs.astype(np.float64)
    return (n**3 - n - ties) / 12
