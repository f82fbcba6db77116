"""One pass over the pairs of a layer: sums of distances and ranks by cell."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import Counted, FloatArray, IntArray
from mlem_core.base.work import each, in_order
from mlem_core.pairs.designs import pairs_among
from mlem_core.pairs.patterns import PairIndex, left_out, tested_blocks
from mlem_core.pairs.ranks import (
    IN_MEMORY_BYTES,
    Keys,
    NumbersInFile,
    correlations,
    doubled_ranks,
    keys_of,
)
from mlem_core.pairs.similarities import NOTHING, Similarity

# Distances of so many pairs are summed by one thread.
TOGETHER = 2**23


@dataclass(frozen=True)
class LayerSums:
    """Row of one layer in each array of `PairTables`."""

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
    index: PairIndex,
    squared: FloatArray,
    train_ranks: bool = False,
    *,
    ranks: bool = True,
    overwrite: bool = False,
    threads: int = 1,
) -> tuple[LayerSums, NDArray[np.uint32] | None]:
    """Sums by cell, of one pass over the squared distances (n_pairs,) of a layer.

    Exact: ranks are average ranks of the distances; those that differ by less than what
    `mlem_core.pairs.ranks.keys_of` keeps are ties.

    Parameters
    ----------
    train_ranks : also sum the ranks among the pairs that leave out each fold
    ranks : also give the rank of each pair, which costs more than all sums of ranks
    overwrite : the memory of `squared` may be used for something else
    threads : the sums are the same with any number of them

    Returns the sums, and twice the average rank (n_pairs,) of each pair among all pairs, if wanted.
    """
    from mlem_core.pairs.kernels.sweep import to_cells

    block = index.cell_block.astype(np.min_scalar_type(index.n_blocks))
    target_sums, low, high = _targets(index, block, squared, threads)
    doubled = None
    if ranks:
        keys = keys_of(squared, overwrite, threads)
        doubled = doubled_ranks(keys, threads)
        bits, cell = keys.number_bits, index.cell
        each(lambda at: to_cells(keys.sorted[at], bits, cell), keys.slices(threads), threads)
    else:
        keys = keys_of(squared, overwrite, threads, index.cell)

    training = ~left_out(index.n_folds, index.n_blocks)[: None if train_ranks else 0]
    sums, squares, own_sums, own_squares = _ranked(index, keys, block, training, threads)
    tested = tested_blocks(index.n_folds)
    return LayerSums(
        target_sums=target_sums,
        rank_sums=sums[0],
        within_sums=np.where(np.isin(index.cell_block, tested), own_sums, 0.0),
        rank_squares=float(squares[0]),
        within_squares=own_squares[tested],
        target_low=low,
        target_high=high,
        train_sums=sums[1:] if train_ranks else None,
        train_squares=squares[1:] if train_ranks else None,
    ), doubled


def _targets(
    index: PairIndex, block: NDArray[np.unsignedinteger], squared: FloatArray, threads: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums (n_cells,) of squared distances (n_pairs,), and the ends (n_blocks,) of each block."""
    from mlem_core.pairs.kernels.sweep import sum_targets

    def summed(start: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        part, ends = slice(start, start + TOGETHER), np.full(index.n_blocks, np.inf)
        own = np.zeros(index.n_cells), ends, -ends
        sum_targets(squared[part], index.cell[part], block, *own)
        return own

    # Added in one order, whatever the number of threads.
    parts = in_order(summed, range(0, len(squared), TOGETHER), threads)
    sums, low, high = next(parts)
    for own, lowest, highest in parts:
        sums += own
        low, high = np.minimum(low, lowest), np.maximum(high, highest)
    return sums, low, high


def _ranked(
    index: PairIndex,
    keys: Keys,
    block: NDArray[np.unsignedinteger],
    sets: NDArray[np.bool_],
    threads: int,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sums of centred average ranks by cell, and of their squares.

    Parameters
    ----------
    keys : with cells
    block : (n_cells,) of each cell
    sets : (n_sets, n_blocks) whether the pairs of a block are in each set of pairs

    Returns (1 + n_sets, n_cells), 0 for cells outside a set, and (1 + n_sets,) squares: of the
    ranks among all pairs and then among those of each set; (n_cells,) and (n_blocks,) of those
    among the pairs of a block.
    """
    from mlem_core.pairs.kernels.sweep import count_block_pairs, sweep_ranks

    parts = [keys.sorted[part] for part in keys.slices(threads)]
    blocks = np.bincount(index.cell_block, index.counts, index.n_blocks).astype(np.int64)
    below = np.zeros((len(parts), index.n_blocks), dtype=np.int64)

    def count(part: int) -> None:
        count_block_pairs(parts[part], keys.number_bits, block, below[part + 1])

    each(count, range(len(parts) - 1), threads)
    below = below.cumsum(axis=0)
    # All pairs are the first set.
    members = np.concatenate((np.ones((1, index.n_blocks)), sets)).T.astype(np.int64)
    n_sets = members.shape[1]

    def swept(part: int) -> tuple[NDArray[Any], ...]:
        sums = np.zeros((index.n_cells, n_sets + 1), dtype=np.int64)
        found = sums, np.zeros(n_sets), np.zeros(index.n_blocks)
        sweep_ranks(parts[part], keys.number_bits, block, members, below[part], *found)
        return found

    columns = zip(*each(swept, range(len(parts)), threads), strict=True)
    sums, ties, own_ties = (np.sum(column, axis=0) for column in columns)
    # From twice the ranks to centred ones, in whole numbers as long as they are doubled.
    own = sums[:, -1] - index.counts * (blocks[block] + 1)
    centred = sums[:, :-1] - index.counts[:, None] * (blocks @ members + 1)
    found = np.ascontiguousarray((centred * members[block]).T / 2)
    return found, squares_of(blocks @ members, ties), own / 2, squares_of(blocks, own_ties)


def squares_of(pairs: IntArray, ties: FloatArray) -> FloatArray:
    """Sums of the squared centred average ranks of so many pairs; `ties` are Σ (t³ - t)."""
    n = pairs.astype(np.float64)
    return (n**3 - n - ties) / 12


# Pairs that are multiplied at once.
BAND = 2**16
# What gives what a similarity compares of a layer: the squared distances (n_pairs,) of all pairs,
# in condensed order; or, where it is no sum over pairs, its components (n_stimuli, n_components).
LayerInput = Callable[[], FloatArray]


class PairCells(NamedTuple):
    """Cells and folds of some stimuli and their pairs.

    cells : (n_pairs,) the cell of each pair; none where a similarity is no sum over pairs
    n_cells : how many cells there are
    folds : (n_stimuli,) the fold that leaves a stimulus out; one below 0 has no part
    """

    cells: NDArray[np.integer]
    n_cells: int
    folds: IntArray


class SimilaritySums(NamedTuple):
    """Sums of the values that n_layers layers give the pairs, by cell.

    sums : (n_layers, n_cells) of the centred values; of a pair with two, of their mean
    squares : (n_layers,) sums of their squares over all pairs
    products : (n_layers, n_layers) sums of their products; without pairs, the similarities
    """

    sums: FloatArray
    squares: FloatArray
    products: FloatArray

    @property
    def similarity(self) -> FloatArray:
        """(n_layers, n_layers) within −1 and 1; 0 for a layer whose values are all equal."""
        return correlations(self.products)


def similarity_sums(
    similarity: Similarity,
    layers: Sequence[LayerInput],
    division: PairCells,
    *,
    folder: Path | None = None,
    progress: Counted | None = None,
) -> SimilaritySums:
    """Compare layers by what each gives all pairs of the stimuli, or one turned onto the other.

    Parameters
    ----------
    folder : for a temporary file, where the values of all layers are too many for the memory
    progress : called with the number of layers done and their total

    Raises InputError: too few stimuli.
    """
    told = progress or (lambda *_: None)
    if similarity.aligned is None:
        with tempfile.TemporaryFile(dir=folder) as file:
            return _over_pairs(similarity, layers, division, file, told)
    similarity.check_enough(len(division.folds))
    components: list[FloatArray] = []
    products = np.eye(len(layers))
    for at, layer in enumerate(layers):
        components.append(layer())
        # A layer without any component has nothing in common, not even with itself.
        products[at, at] = float(components[at].size > 0)
        for other in range(at):
            value = similarity.aligned(components[at], components[other], division.folds)
            products[at, other] = products[other, at] = value
        told(at + 1, len(layers))
    return SimilaritySums(np.zeros((len(layers), 0)), np.diag(products).copy(), products)


def _over_pairs(
    similarity: Similarity,
    layers: Sequence[LayerInput],
    division: PairCells,
    file: Any,
    told: Counted,
) -> SimilaritySums:
    from scipy.sparse import csr_array, vstack

    from mlem_core.pairs.kernels.distances import sum_values

    cells, n_cells, _ = division
    counts = np.bincount(cells, minlength=n_cells)
    sums, squares = np.zeros((len(layers), n_cells)), np.zeros(len(layers))
    kept: list[Any] = []
    many = 8 * len(layers) * len(cells) > IN_MEMORY_BYTES
    mean, n_sides = 0.0, 1
    for at, squared in enumerate(layers):
        values, mean = similarity.of(squared())
        n_sides = len(values)
        squares[at] = sum_values(values, cells, sums[at]) / n_sides
        sums[at] = sums[at] / n_sides - counts * mean
        if similarity.sparse:
            kept.append(csr_array(values.reshape(1, -1)))
        else:
            kept.append(NumbersInFile.of(values, file) if many else values.ravel())
        told(at + 1, len(layers))
    if similarity.sparse:
        rows = vstack(kept, format="csr")
        products = (rows @ rows.T).toarray()
    else:
        products = np.zeros((len(layers), len(layers)))
        for start in range(0, len(kept[0]), BAND):
            band = np.stack([own[start : start + BAND] for own in kept]).astype(np.float64)
            products += band @ band.T
    off = mean**2 * len(cells)
    products = products / n_sides - off
    squares -= off
    # Where all pairs have one value, nothing but rounding is left of it.
    equal = squares <= NOTHING * off
    sums[equal], squares[equal], products[equal], products[:, equal] = 0.0, 0.0, 0.0, 0.0
    return SimilaritySums(sums, squares, products)


def of_some(
    similarity: Similarity,
    layers: Sequence[FloatArray],
    division: PairCells,
    kept: NDArray[np.bool_],
) -> tuple[FloatArray, SimilaritySums]:
    """Pairs of each cell (n_cells,), and the sums, of some of the stimuli only.

    Components stay those of all stimuli.

    Parameters
    ----------
    layers : what is compared of each, of all stimuli
    kept : (n_stimuli,) whether a stimulus is one of them
    """
    cells, n_cells, folds = division
    counts, places = np.zeros(n_cells), None
    if similarity.aligned is not None:
        some = division._replace(folds=np.where(kept, folds, -1))
    else:
        places = pairs_among(np.flatnonzero(kept), len(kept))
        some = PairCells(cells[places], n_cells, folds[kept])
        counts += np.bincount(some.cells, minlength=n_cells)
    own = [lambda x=x: x if places is None else x[places] for x in layers]  # type: ignore[misc]
    return counts, similarity_sums(similarity, own, some)
