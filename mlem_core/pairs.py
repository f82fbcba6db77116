"""From a layer's distances to its sums by pattern: the one pass over the pairs.

A pair of stimuli enters every analysis through its pattern, the vector of its feature distances,
and patterns are few. `PairIndex` says which pattern each pair has (it depends on the stimuli
alone); `pair_tables` sums distances and ranks by pattern for each layer; everything after that
works on the `PairTables` and never sees a pair again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mlem_core.distances import squared_distances
from mlem_core.errors import InputError
from mlem_core.parallel import cores
from mlem_core.patterns import Cells, FloatArray, IntArray, PairIndex, block_numbers
from mlem_core.ranks import average_ranks, order_pairs, ties
from mlem_core.table_files import Later
from mlem_core.tables import PairTables

CHUNK = 2**20
# The square of a larger number, summed over units, may be more than a float64 can hold.
HUGE = 1e150


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


RankSink = Callable[[int, NDArray[np.uint32]], None]
LayerSource = Callable[[], NDArray[np.floating]]


def pair_tables(
    index: PairIndex,
    layers: Sequence[LayerSource],
    *,
    names: Sequence[str] | None = None,
    distance: str = "euclidean",
    keep_ranks: RankSink | None = None,
    train_ranks: bool = False,
    failed: Callable[[int, InputError], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
    device: str | None = None,
) -> PairTables:
    """Pair tables of many layers, one pass over the pairs for each.

    Parameters
    ----------
    index : the pairs' patterns and blocks
    layers : for each layer a function that gives its representations (n_stimuli, n_units), or its
        distances (n_stimuli, n_stimuli) where `distance` is "precomputed"
    names : how messages call each layer
    distance : see `mlem_core.distances.DISTANCES`
    keep_ranks : called with a layer's position and its (n_pairs,) doubled ranks
    train_ranks : also sum the ranks among the training pairs of each fold, which the estimators
        that fit ranks need
    failed : called with the position of a layer whose distances cannot be computed and the error;
        the layer is then left out of the tables. Without it the error is raised
    progress : called with the number of layers done and their total
    workers : threads; by default one a core
    device : of torch, a GPU; None is the CPU without torch

    Raises
    ------
    InputError
        As `squared_distances`; a layer whose number of rows is not that of the stimuli.
    """
    n_stimuli, names = (
        len(index.folds),
        names or [f"layer {i}" for i in range(len(layers))],
    )
    # A GPU takes one layer at a time.
    workers = 1 if device else min(workers or cores(), max(1, len(layers)))

    def one(position: int) -> LayerSums:
        rows, name = layers[position](), names[position]
        if len(rows) != n_stimuli:
            raise InputError(
                f"{name} has {len(rows)} rows, but there are {n_stimuli} stimuli; "
                "it must have one row a stimulus, in the order of the CSV."
            )
        if HUGE < max(float(rows.max(initial=0)), -float(rows.min(initial=0))) < np.inf:
            raise InputError(
                f"{name} holds values so large that their distances overflow; divide them by "
                "their standard deviation."
            )
        if device:
            from mlem_core import gpu

            squared = gpu.squared_distances(rows, distance, device, layer=name)
            sums, doubled = gpu.layer_sums(index, squared, train_ranks, device)
        else:
            squared = squared_distances(rows, distance, layer=name)
            sums, doubled = layer_sums(index, squared, train_ranks)
        if keep_ranks is not None:
            keep_ranks(position, doubled)
        return sums

    # The threads share the cores; each one's matrix product gets its part of them.
    with (
        threadpool_limits(max(1, cores() // workers)),
        ThreadPoolExecutor(workers) as pool,
    ):
        futures = {pool.submit(one, position): position for position in range(len(layers))}
        rows: list[LayerSums | None] = [None] * len(layers)
        try:
            for done, future in enumerate(as_completed(futures), 1):
                try:
                    rows[futures[future]] = future.result()
                except InputError as error:
                    if failed is None:
                        raise
                    failed(futures[future], error)
                if progress is not None:
                    progress(done, len(layers))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    done_rows = [row for row in rows if row is not None]
    if not done_rows:
        raise InputError("no layer is left whose distances can be computed.")
    return _assemble(index, done_rows)


def tables_without_layers(index: PairIndex) -> PairTables:
    """The patterns and how many pairs have each, for no layer: what the stimuli alone decide."""
    n_blocks = index.n_folds * (index.n_folds + 1) // 2
    counts = np.bincount(index.pattern_cell, minlength=n_blocks * index.n_patterns)
    cells = np.flatnonzero(counts)
    by_cell, by_block = np.zeros((0, len(cells))), np.zeros((0, n_blocks))
    return PairTables(
        features=index.features,
        kinds=index.kinds,
        levels=index.levels,
        codes=index.codes,
        n_stimuli=len(index.folds),
        n_folds=index.n_folds,
        cell_block=cells // index.n_patterns,
        cell_pattern=cells % index.n_patterns,
        counts=counts[cells].astype(np.float64),
        target_sums=by_cell,
        rank_sums=by_cell,
        within_sums=by_cell,
        rank_squares=np.zeros(0),
        within_squares=np.zeros((0, index.n_folds)),
        target_low=by_block,
        target_high=by_block,
    )


def _assemble(index: PairIndex, rows: Sequence[LayerSums]) -> PairTables:
    tables = tables_without_layers(index)
    cells = tables.cell_block * index.n_patterns + tables.cell_pattern

    def stacked(name: str) -> FloatArray:
        return np.stack([getattr(row, name) for row in rows])

    ranked = rows[0].train_sums is not None
    train_sums = stacked("train_sums")[:, :, cells] if ranked else None
    return replace(
        tables,
        target_sums=stacked("target_sums")[:, cells],
        rank_sums=stacked("rank_sums")[:, cells],
        within_sums=stacked("within_sums")[:, cells],
        rank_squares=stacked("rank_squares"),
        within_squares=stacked("within_squares"),
        target_low=stacked("target_low"),
        target_high=stacked("target_high"),
        train_sums=None if train_sums is None else Later(lambda: train_sums),
        train_squares=stacked("train_squares") if ranked else None,
    )
