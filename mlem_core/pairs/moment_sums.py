"""Sums over the pairs of stimuli that moments are put together from, by pair of blocks.

Of columns with what a layer gives the pairs, of columns with each other, and of the ranks of every
two layers: one pass over the pairs each, in tiles of the matrix of pairs or, where not all are
compared, in chunks of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
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


def blocks_of_folds(folds: IntArray) -> IntArray:
    """(n_stimuli,) the block of each stimulus: those with the same folds left out are one."""
    return np.unique(folds, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class LayerMoments:
    """What one layer adds to `PairMoments`: first of its squared distances, then of its ranks.

    Attributes
    ----------
    products : (2, n_blocks, n_blocks, n_products)
    sums : (2, n_blocks, n_blocks)
    pairwise_products : (n_pairwise, 2, n_blocks, n_blocks)
    low, high : (n_blocks, n_blocks) smallest and largest squared distance
    """

    products: FloatArray
    sums: FloatArray
    pairwise_products: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def stack(cls, parts: Sequence[LayerMoments]) -> LayerMoments:
        """Moments over several sets of pairs, which all arrays have as their first axis."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.stack([getattr(part, name) for part in parts]) for name in names})

    def together(self, sets: Sequence[int]) -> LayerMoments:
        """Moments over all pairs of some of the sets that are stacked, by number."""
        numbers = list(sets)
        return LayerMoments(
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
) -> LayerMoments:
    """Moments of one layer with the columns of the pairs.

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
    if design is not None and not design.is_complete:
        centre = (n_ranked or len(doubled)) + 1
        return _layer_moments_of_design(columns, block, squared, doubled, design, centre)
    n_blocks = int(block.max()) + 1
    by_term = np.zeros((2, n_blocks, n_blocks, len(columns.column)))
    sums = np.zeros((2, n_blocks, n_blocks))
    pairwise_products = np.zeros((len(columns.pairwise), 2, n_blocks, n_blocks))
    low, high = np.full((n_blocks, n_blocks), np.inf), np.full((n_blocks, n_blocks), -np.inf)
    for b, c, rows, others, places in tiles(block, 4, one_order=True):
        tile = np.empty((2, *places.shape))
        tile[0], tile[1] = squared.take(places), doubled.take(places)
        tile[1] = (tile[1] - (len(squared) + 1)) / 2
        if b == c:
            same = rows[:, None] == others
            tile[:, same] = 0.0
            different = tile[0][~same]
        else:
            different = tile[0].ravel()
        if different.size:
            low[b, c] = min(low[b, c], different.min())
            high[b, c] = max(high[b, c], different.max())
        crossed = tile @ columns.basis[others]
        left = columns.basis[rows][:, columns.left]
        by_term[:, b, c] += (left * crossed[:, :, columns.right]).sum(axis=1)
        if b < c:
            left, turned = columns.basis[others][:, columns.left], tile.swapaxes(1, 2)
            crossed = turned @ columns.basis[rows]
            by_term[:, c, b] += (left * crossed[:, :, columns.right]).sum(axis=1)
        sums[:, b, c] += tile.sum(axis=(1, 2))
        for number, column in enumerate(columns.pairwise.values()):
            values = column.cross_distances(rows, others)
            pairwise_products[number, :, b, c] += (tile * values).sum(axis=(1, 2))
    products = columns.sum_terms(by_term)
    within = np.eye(n_blocks, dtype=bool)
    # Inside a block every pair was met in both orders.
    products[:, within] /= 2
    sums[:, within] /= 2
    pairwise_products[:, :, within] /= 2
    sums = _mirror_blocks(sums, (1, 2))
    pairwise_products = _mirror_blocks(pairwise_products, (2, 3))
    low, high = np.minimum(low, low.T), np.maximum(high, high.T)
    return LayerMoments(products, sums, pairwise_products, low, high)


def _layer_moments_of_design(
    columns: PairColumns,
    block: IntArray,
    squared: FloatArray,
    doubled: NDArray[np.uint32],
    design: PairDesign,
    centre: int,
) -> LayerMoments:
    n_blocks, K = int(block.max()) + 1, len(columns)
    products, sums = np.zeros((2, n_blocks, n_blocks, K)), np.zeros((2, n_blocks, n_blocks))
    low, high = np.full((n_blocks, n_blocks), np.inf), np.full((n_blocks, n_blocks), -np.inf)
    for b, c, first, second, places in chunks(block, design, K + 2):
        targets = np.empty((2, len(first)))
        targets[0], targets[1] = squared[places], doubled[places]
        targets[1] = (targets[1] - centre) / 2
        products[:, b, c] += targets @ columns.pair_values(first, second)
        sums[:, b, c] += targets.sum(axis=1)
        low[b, c] = min(low[b, c], targets[0].min())
        high[b, c] = max(high[b, c], targets[0].max())
    products, sums = (_mirror_blocks(values, (1, 2)) for values in (products, sums))
    low, high = np.minimum(low, low.T), np.maximum(high, high.T)
    pairwise = np.moveaxis(products[..., list(columns.pairwise)], -1, 0)
    return LayerMoments(products[..., columns.product_columns], sums, pairwise, low, high)


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


def tiles(
    block: IntArray, matrices: int, *, one_order: bool = False
) -> Iterator[tuple[int, int, IntArray, IntArray, IntArray]]:
    """Tiles of the matrix of pairs: two blocks, some stimuli of the first, all of the second.

    Parameters
    ----------
    block : (n_stimuli,) block of each stimulus
    matrices : how many matrices of the size of a tile are held at once
    one_order : whether of two blocks the lower one is always the first

    Yields
    ------
    both blocks; (n_rows,) and (n_others,) the stimuli; (n_rows, n_others) the place of each pair in
    condensed order, 0 for a stimulus with itself
    """
    n = len(block)
    members = [np.flatnonzero(block == b) for b in range(int(block.max()) + 1)]
    for b, stimuli in enumerate(members):
        for c, others in enumerate(members):
            if one_order and b > c:
                continue
            step = max(16, TILE // (matrices * len(others)))
            for start in range(0, len(stimuli), step):
                rows = stimuli[start : start + step]
                places = pair_places(rows[:, None], others, n)
                places[rows[:, None] == others] = 0
                yield b, c, rows, others, places


class PairwiseMoments(NamedTuple):
    """Moments of the columns that are no sums of products, as those of `LayerMoments`."""

    products: FloatArray
    sums: FloatArray
    pairwise_products: FloatArray


def _moments_of_pairwise(columns: PairColumns, block: IntArray) -> PairwiseMoments:
    n_blocks, D = int(block.max()) + 1, len(columns.pairwise)
    by_term = np.zeros((D, n_blocks, n_blocks, len(columns.column)))
    sums = np.zeros((D, n_blocks, n_blocks))
    both = np.zeros((D, D, n_blocks, n_blocks))
    for b, c, rows, others, _ in tiles(block, 2 * D + 1) if D else ():
        values = np.stack(
            [within.cross_distances(rows, others) for within in columns.pairwise.values()]
        )
        if b == c:
            values[:, rows[:, None] == others] = 0.0
        left = columns.basis[rows][:, columns.left]
        crossed = values @ columns.basis[others]
        by_term[:, b, c] += (left * crossed[:, :, columns.right]).sum(axis=1)
        flat = values.reshape(D, -1)
        sums[:, b, c] += flat.sum(axis=1)
        both[:, :, b, c] += flat @ flat.T
    products = columns.sum_terms(by_term)
    within = np.eye(n_blocks, dtype=bool)
    products[:, within] /= 2
    sums[:, within] /= 2
    both[:, :, within] /= 2
    return PairwiseMoments(products, sums, both)


class ColumnMoments(NamedTuple):
    """Moments of the columns with each other.

    Attributes
    ----------
    pairwise : of the columns that are no sums of products
    compared : of the others, where not all pairs are compared
    """

    pairwise: PairwiseMoments
    compared: DesignSums | None

    @classmethod
    def together(cls, parts: Sequence[ColumnMoments]) -> ColumnMoments:
        """Moments over the pairs of several designs, which have none in common."""
        if len(parts) == 1:
            return parts[0]
        pairwise = zip(*(part.pairwise for part in parts), strict=True)
        compared = zip(*(part.compared for part in parts if part.compared), strict=True)
        return cls(
            PairwiseMoments(*(np.sum(arrays, axis=0) for arrays in pairwise)),
            DesignSums(*(np.sum(arrays, axis=0) for arrays in compared)),
        )


def column_moments(
    columns: PairColumns, folds: IntArray, design: PairDesign | None = None
) -> ColumnMoments:
    """Moments of the columns over the compared pairs; without a design over all pairs."""
    block = blocks_of_folds(folds)
    if design is None or design.is_complete:
        return ColumnMoments(_moments_of_pairwise(columns, block), None)
    n_blocks, K = int(block.max()) + 1, len(columns)
    counts, sums = np.zeros((n_blocks, n_blocks)), np.zeros((n_blocks, n_blocks, K))
    gram = np.zeros((n_blocks, n_blocks, K, K))
    for b, c, first, second, _ in chunks(block, design, K):
        values = columns.pair_values(first, second).T
        counts[b, c] += len(first)
        sums[b, c] += values.sum(axis=1)
        gram[b, c] += values @ values.T
    counts, sums, gram = (_mirror_blocks(own, (0, 1)) for own in (counts, sums, gram))
    pairwise, products = list(columns.pairwise), columns.product_columns
    of_pairwise = np.moveaxis(gram[:, :, pairwise], 2, 0)
    own = PairwiseMoments(
        of_pairwise[..., products],
        np.moveaxis(sums[..., pairwise], -1, 0),
        np.moveaxis(of_pairwise[..., pairwise], -1, 1),
    )
    between = gram[:, :, products[:, None], products]
    return ColumnMoments(own, DesignSums(counts, sums[..., products], between))


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
    together = by_basis.any(axis=-1)
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
