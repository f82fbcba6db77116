"""Sums over the pairs of stimuli that moments are put together from, by pair of blocks.

Of columns with what a layer gives the pairs, of columns with each other, and of the ranks of every
two layers: one pass over the pairs each, in tiles of the matrix of pairs or, where not all are
compared, in chunks of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.designs import PairDesign, pair_places
from mlem_core.pairs.pair_columns import PairColumns

# Rows of a matrix of pairs that are looked at together hold about so many numbers.
TILE = 2**22
# Pairs of a design that are looked at together, at most.
CHUNK = 2**17
# Numbers of pairs (n_pairs,): doubled ranks, which are centred, or numbers as they are.
Target = NDArray[Any]


def blocks_of_folds(folds: IntArray) -> IntArray:
    """(n_stimuli,) the block of each stimulus: those with the same folds left out are one."""
    return np.unique(folds, return_inverse=True)[1].astype(np.int64)


class MatrixMoments(NamedTuple):
    """Sums over the pairs of every two blocks of numbers that n_matrices matrices have for them.

    Attributes
    ----------
    products : (n_matrices, n_blocks, n_blocks, n_products) with the columns that are sums of
        products
    sums : (n_matrices, n_blocks, n_blocks)
    pairwise_products : (n_pairwise, n_matrices, n_blocks, n_blocks) with the other columns
    low, high : (n_blocks, n_blocks) smallest and largest number of the first matrix
    """

    products: FloatArray
    sums: FloatArray
    pairwise_products: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def stack(cls, parts: Sequence[MatrixMoments]) -> MatrixMoments:
        """Moments over several sets of pairs, which all arrays have as their first axis."""
        return cls(*map(np.stack, zip(*parts, strict=True)))

    def together(self, sets: Sequence[int]) -> MatrixMoments:
        """Moments over all pairs of some of the sets that are stacked, by number."""
        numbers = list(sets)
        return MatrixMoments(
            self.products[numbers].sum(axis=0),
            self.sums[numbers].sum(axis=0),
            self.pairwise_products[numbers].sum(axis=0),
            self.low[numbers].min(axis=0),
            self.high[numbers].max(axis=0),
        )


def layer_moments(
    columns: PairColumns,
    folds: IntArray,
    squared: FloatArray,
    doubled: NDArray[np.uint32],
    design: PairDesign | None = None,
    n_ranked: int | None = None,
) -> MatrixMoments:
    """Moments of the squared distances and of the ranks of a layer with the columns of the pairs.

    Parameters
    ----------
    columns : of the pairs
    folds : (n_stimuli,) the fold that tests each stimulus
    squared : (n_pairs,) squared distances, in the order (0,1), (0,2), ..., (1,2), ...
    doubled : (n_pairs,) twice their average ranks, see `mlem_core.pairs.ranks.pair_ranks`
    design : the compared pairs, in whose order the two are then; None is all pairs
    n_ranked : number of pairs among which they were ranked, where these are not all of them
    """
    block = blocks_of_folds(folds)
    if design is None or design.is_complete:
        return _moments_of_all_pairs(columns, block, [squared, doubled])
    moments = _moments_of_design(columns, block, design, [squared, doubled], n_ranked)[0]
    pairwise = np.moveaxis(moments.products[..., list(columns.pairwise)], -1, 0)
    return moments._replace(
        products=moments.products[..., columns.product_columns], pairwise_products=pairwise
    )


def target_values(
    target: Target, places: IntArray | slice, n_ranked: int | None = None
) -> FloatArray:
    """The numbers of pairs at some places; ranks, among `n_ranked` pairs, are centred."""
    values = target[places].astype(np.float64)
    if target.dtype == np.uint32:
        values -= (n_ranked or len(target)) + 1.0
        values *= 0.5
    return values


def _moments_of_all_pairs(
    columns: PairColumns, block: IntArray, targets: Sequence[Target]
) -> MatrixMoments:
    """Moments of targets in condensed order; without any, of columns that are no products."""
    n_blocks, D = int(block.max()) + 1, len(columns.pairwise)
    n_matrices = len(targets) or D
    by_term = np.zeros((n_matrices, n_blocks, n_blocks, len(columns.column)))
    sums = np.zeros((n_matrices, n_blocks, n_blocks))
    pairwise_products = np.zeros((D, n_matrices, n_blocks, n_blocks))
    low, high = np.full((n_blocks, n_blocks), np.inf), np.full((n_blocks, n_blocks), -np.inf)
    for b, c, rows, others, places in tiles(block, 2 * n_matrices + D) if n_matrices else ():
        pairwise = [column.cross_distances(rows, others) for column in columns.pairwise.values()]
        tile = np.stack([target_values(target, places) for target in targets] or pairwise)
        same = rows[:, None] == others
        tile[:, same] = 0.0
        low[b, c] = min(low[b, c], np.min(tile[0], where=~same, initial=np.inf))
        high[b, c] = max(high[b, c], np.max(tile[0], where=~same, initial=-np.inf))
        crossed = columns.basis[rows].T @ (tile @ columns.basis[others])
        by_term[:, b, c] += crossed[:, columns.left, columns.right]
        sums[:, b, c] += tile.sum(axis=(1, 2))
        for number, values in enumerate(pairwise):
            pairwise_products[number, :, b, c] += (tile * values).sum(axis=(1, 2))
    moments = columns.sum_terms(by_term), sums, pairwise_products
    for values, axes in zip(moments, ((1, 2), (1, 2), (2, 3)), strict=True):
        # Inside a block every pair was met in both orders.
        np.moveaxis(values, axes, (0, 1))[np.arange(n_blocks), np.arange(n_blocks)] /= 2
    return _mirrored(MatrixMoments(*moments, low, high))


def _moments_of_design(
    columns: PairColumns,
    block: IntArray,
    design: PairDesign,
    targets: Sequence[Target] = (),
    n_ranked: int | None = None,
) -> tuple[MatrixMoments, FloatArray]:
    """Moments of targets, without any of all columns, with all columns; and numbers of pairs."""
    n_blocks, K = int(block.max()) + 1, len(columns)
    n_matrices = len(targets) or K
    products = np.zeros((n_matrices, n_blocks, n_blocks, K))
    sums, counts = np.zeros((n_matrices, n_blocks, n_blocks)), np.zeros((1, n_blocks, n_blocks))
    low, high = np.full((n_blocks, n_blocks), np.inf), np.full((n_blocks, n_blocks), -np.inf)
    for b, c, first, second, places in chunks(block, design, K + len(targets)):
        values = columns.pair_values(first, second)
        numbers = values.T
        if targets:
            numbers = np.stack([target_values(target, places, n_ranked) for target in targets])
        products[:, b, c] += numbers @ values
        sums[:, b, c] += numbers.sum(axis=1)
        counts[:, b, c] += len(first)
        low[b, c] = min(low[b, c], numbers[0].min())
        high[b, c] = max(high[b, c], numbers[0].max())
    none = np.zeros((0, n_matrices, n_blocks, n_blocks))
    moments = MatrixMoments(products, sums, none, low, high)
    return _mirrored(moments), _mirror_blocks(counts, (1, 2))[0]


def _mirrored(moments: MatrixMoments) -> MatrixMoments:
    """Moments of two blocks, which are there for one order of the two, for both orders."""
    low, high = moments.low, moments.high
    return MatrixMoments(
        _mirror_blocks(moments.products, (1, 2)),
        _mirror_blocks(moments.sums, (1, 2)),
        _mirror_blocks(moments.pairwise_products, (2, 3)),
        np.minimum(low, low.T),
        np.maximum(high, high.T),
    )


def tiles(
    block: IntArray, matrices: int
) -> Iterator[tuple[int, int, IntArray, IntArray, IntArray]]:
    """Tiles of the matrix of pairs: two blocks, some stimuli of the first, all of the second.

    Parameters
    ----------
    block : (n_stimuli,) block of each stimulus
    matrices : how many matrices of the size of a tile are held at once

    Yields
    ------
    both blocks, the lower one first; (n_rows,) and (n_others,) the stimuli; (n_rows, n_others) the
    place of each pair in condensed order, 0 for a stimulus with itself
    """
    n = len(block)
    members = [np.flatnonzero(block == b) for b in range(int(block.max()) + 1)]
    for b, stimuli in enumerate(members):
        for c, others in enumerate(members[b:], b):
            step = max(16, TILE // (matrices * len(others)))
            for start in range(0, len(stimuli), step):
                rows = stimuli[start : start + step]
                places = pair_places(rows[:, None], others, n)
                places[rows[:, None] == others] = 0
                yield b, c, rows, others, places


def chunks(
    block: IntArray, design: PairDesign, columns: int
) -> Iterator[tuple[int, int, IntArray, IntArray, IntArray | slice]]:
    """Pairs of a design in chunks, each of the stimuli of two blocks.

    Parameters
    ----------
    block : (n_stimuli,) block of each stimulus
    columns : how many numbers of each pair are held at once

    Yields
    ------
    both blocks, the lower one first; (n_pairs,) the stimuli of the pairs, of any block first; their
    places in the design, ascending
    """
    n_blocks = int(block.max()) + 1
    label_of = block.astype(np.min_scalar_type(n_blocks**2))
    step = max(1, min(CHUNK, TILE // columns))
    for start in range(0, design.n_pairs, step):
        first, second = design.pairs(start, start + step)
        first_label, other = label_of.take(first), label_of.take(second)
        label = np.minimum(first_label, other) * n_blocks + np.maximum(first_label, other)
        if (label == label[0]).all():
            # Pairs of two blocks mostly stand together.
            yield *divmod(int(label[0]), n_blocks), first, second, slice(start, start + len(label))
            continue
        for both in np.unique(label).tolist():
            of_both = np.flatnonzero(label == both)
            yield *divmod(both, n_blocks), first[of_both], second[of_both], start + of_both


def _mirror_blocks(values: FloatArray, axes: tuple[int, int]) -> FloatArray:
    """Values of two blocks, which are there for one order of the two, for both orders."""
    swapped = np.swapaxes(values, *axes)
    n_blocks = values.shape[axes[0]]
    shape = np.ones(values.ndim, dtype=int)
    shape[list(axes)] = n_blocks
    return np.where(np.eye(n_blocks, dtype=bool).reshape(shape), values, values + swapped)


class DesignSums(NamedTuple):
    """Sums over the compared pairs of every two blocks, where these are not all pairs.

    Attributes
    ----------
    counts : (n_blocks, n_blocks) number of pairs
    sums : (n_blocks, n_blocks, n_products) of the columns that are sums of products
    products : (n_blocks, n_blocks, n_products, n_products) of products of two of them
    """

    counts: FloatArray
    sums: FloatArray
    products: FloatArray

    def select_columns(self, columns: NDArray[np.bool_]) -> DesignSums:
        """The sums of some of the columns (n_products,)."""
        places = np.flatnonzero(columns)
        products = self.products[:, :, places[:, None], places]
        return DesignSums(self.counts, self.sums[:, :, places], products)


class ColumnMoments(NamedTuple):
    """Moments of the columns with each other.

    Attributes
    ----------
    pairwise : of the columns that are no sums of products
    compared : of the others, where not all pairs are compared
    """

    pairwise: MatrixMoments
    compared: DesignSums | None

    @classmethod
    def together(cls, parts: Sequence[ColumnMoments]) -> ColumnMoments:
        """Moments over the pairs of several designs, which have none in common."""
        if len(parts) == 1:
            return parts[0]
        compared = zip(*(part.compared for part in parts if part.compared), strict=True)
        return cls(
            MatrixMoments.stack([part.pairwise for part in parts]).together(range(len(parts))),
            DesignSums(*(np.sum(arrays, axis=0) for arrays in compared)),
        )


def column_moments(
    columns: PairColumns, folds: IntArray, design: PairDesign | None = None
) -> ColumnMoments:
    """Moments of the columns over the compared pairs; without a design over all pairs."""
    block = blocks_of_folds(folds)
    if design is None or design.is_complete:
        return ColumnMoments(_moments_of_all_pairs(columns, block, []), None)
    moments, counts = _moments_of_design(columns, block, design)
    by_column, sums = np.moveaxis(moments.products, 0, 2), np.moveaxis(moments.sums, 0, 2)
    pairwise, products = list(columns.pairwise), columns.product_columns
    of_pairwise = moments.products[pairwise]
    return ColumnMoments(
        moments._replace(
            products=of_pairwise[..., products],
            sums=moments.sums[pairwise],
            pairwise_products=np.moveaxis(of_pairwise[..., pairwise], -1, 0),
        ),
        DesignSums(counts, sums[..., products], by_column[:, :, products[:, None], products]),
    )


def product_sums(columns: PairColumns, others: PairColumns, A: FloatArray) -> FloatArray:
    """Sums of products of two columns over the pairs inside sets of stimuli.

    Parameters
    ----------
    columns, others : those that are sums of products, n_products and n_products_others of them
    A : (n_sets, n_basis, n_basis_others) Σ φ(i) φ_others(i)ᵀ over the stimuli of each set

    Returns (n_sets, n_products, n_products_others)
    """
    by_basis = np.ascontiguousarray(np.moveaxis(A, 0, -1))
    # No stimulus has two values of one feature, so that most products of their terms are 0.
    together = (by_basis != 0).any(axis=-1)
    left, right = together[columns.left[:, None], others.left], columns.right[:, None]
    term, other = np.nonzero(left & together[right, others.right])
    products = by_basis[columns.left[term], others.left[other]]
    products *= by_basis[columns.right[term], others.right[other]]
    shape = len(columns.product_columns), len(others.product_columns)
    row = np.searchsorted(columns.product_columns, columns.column[term])
    column = np.searchsorted(others.product_columns, others.column[other])
    sign = columns.sign[term] * others.sign[other]
    places = row * shape[1] + column, np.arange(len(term))
    totals = csr_array((sign, places), shape=(shape[0] * shape[1], len(term))) @ products
    both_orders = np.moveaxis(totals.reshape(*shape, len(A)), -1, 0)
    same_stimulus = columns.same_stimulus_values.T @ A @ others.same_stimulus_values
    return np.asarray((both_orders - same_stimulus) / 2)


# Gives the numbers of the pairs first..last-1 of a design in a layer.
ReadPairs = Callable[[int, int, int], NDArray[Any]]


def products_of_layers(
    block: IntArray, n_layers: int, read: ReadPairs, design: PairDesign, centre: float
) -> FloatArray:
    """Sums of products of what every two layers give the pairs, over the pairs of two blocks.

    Parameters
    ----------
    block : (n_stimuli,) block of each stimulus
    read : gives numbers of pairs in the order of the design
    centre : what is taken off each number

    Returns (n_blocks, n_blocks, n_layers, n_layers), the same for both orders of two blocks
    """
    n_blocks = int(block.max()) + 1
    products = np.zeros((n_blocks, n_blocks, n_layers, n_layers))
    for b, c, _, _, places in chunks(block, design, n_layers):
        if isinstance(places, slice):
            numbers = [read(layer, places.start, places.stop) for layer in range(n_layers)]
        else:
            start, stop = int(places[0]), int(places[-1]) + 1
            numbers = [read(layer, start, stop)[places - start] for layer in range(n_layers)]
        some = np.stack(numbers, dtype=np.float64)
        some -= centre
        products[b, c] += some @ some.T
    return _mirror_blocks(products, (0, 1))
