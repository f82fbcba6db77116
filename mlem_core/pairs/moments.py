"""Second moments of the pairs of stimuli: the sufficient statistics of all that is linear.

Stimuli stand in blocks (the stimuli that the same folds leave out). For every set of blocks the
moments of the columns z and of the targets over the pairs inside it follow from sums that are kept
by block: from them come fits of every fold, outer and inner, any subset of features, contributions,
and what each stimulus has to do with each of them, without another look at a pair and without a
bin.

Moments of columns with columns come from sums over stimuli alone: with A = Σ_i φ(i) φ(i)ᵀ over the
stimuli of a set,

    Σ_i Σ_j z_c z_d = Σ_t Σ_u sign_t sign_u A[left_t, left_u] A[right_t, right_u].

Moments of columns with targets come from one matrix product a target, X = R φ block by block.
Columns that are no sums of products (`PairColumns.pairwise`) are handled as targets are.

Where not all pairs are compared (`mlem_core.pairs.designs`), moments are sums over the compared
pairs, those of columns with columns too, with the columns of one chunk of pairs after the other.

Targets of a layer are its squared distances and their centred average ranks among all
compared pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.folds import fold_pairs
from mlem_core.pairs.designs import PairDesign, places_of
from mlem_core.pairs.pair_columns import ChosenColumns, PairColumns

# Rows of a matrix of pairs that are looked at together hold about so many numbers.
TILE = 2**22
# Pairs of a design that are looked at together, at most.
CHUNK = 2**17


class SetMoments(NamedTuple):
    """Moments over the pairs inside a set of stimuli, centred over these pairs.

    Attributes
    ----------
    n_pairs : number of pairs
    means : (n_columns,) of the columns
    gram : (n_columns, n_columns) sums of products of two columns
    with_distances, with_ranks : (n_layers, n_columns) sums of products of the columns with the
        squared distances, and with the ranks
    distance_means, rank_means : (n_layers,)
    """

    n_pairs: float
    means: FloatArray
    gram: FloatArray
    with_distances: FloatArray
    with_ranks: FloatArray
    distance_means: FloatArray
    rank_means: FloatArray


class _SetSums(NamedTuple):
    """Sums over the pairs inside a set of stimuli, before they are centred.

    Attributes
    ----------
    columns : (n_columns,)
    gram : (n_columns, n_columns)
    with_targets : (2 n_layers, n_columns) with the squared distances, then with the ranks
    targets : (2 n_layers,)
    """

    n_pairs: float
    columns: FloatArray
    gram: FloatArray
    with_targets: FloatArray
    targets: FloatArray

    def centred(self, n_layers: int) -> SetMoments:
        n_pairs = max(self.n_pairs, 1.0)
        means, target_means = self.columns / n_pairs, self.targets / n_pairs
        with_targets = self.with_targets - np.outer(target_means, self.columns)
        return SetMoments(
            n_pairs,
            means,
            self.gram - n_pairs * np.outer(means, means),
            with_targets[:n_layers],
            with_targets[n_layers:],
            target_means[:n_layers],
            target_means[n_layers:],
        )


@dataclass(frozen=True)
class PairMoments:
    """Moments of the pairs of n_stimuli stimuli, by blocks of them, for n_layers layers.

    A matrix is, in this order: a column that is no sum of products; the squared distances of a
    layer; its ranks.

    Attributes
    ----------
    columns : of the pairs
    folds : (n_stimuli,) the fold that tests each stimulus, see `mlem_core.data.folds`
    block : (n_stimuli,) block of each stimulus
    basis_moments : (n_blocks, n_basis, n_basis) A of each block
    products : (n_matrices, n_blocks, n_blocks, n_products) sums of each matrix with the columns
        that are sums of products, over the pairs of two blocks
    sums : (n_matrices, n_blocks, n_blocks) sums of each matrix
    pairwise_products : (n_pairwise, n_matrices, n_blocks, n_blocks) sums of products of the columns
        that are no sums of products with each matrix
    rank_products : (n_blocks, n_blocks, n_layers, n_layers) of the ranks of every two layers
    low, high : (n_layers, n_blocks, n_blocks) smallest and largest squared distance
    untested : pairs that do not test the fold that they are in
    compared : sums over the compared pairs, where these are not all pairs
    """

    columns: PairColumns
    folds: IntArray
    block: IntArray
    basis_moments: FloatArray
    products: FloatArray
    sums: FloatArray
    pairwise_products: FloatArray
    rank_products: FloatArray
    low: FloatArray
    high: FloatArray
    untested: Untested | None = None
    compared: DesignSums | None = None

    @property
    def n_layers(self) -> int:
        return len(self.low)

    @property
    def n_stimuli(self) -> int:
        return len(self.block)

    @cached_property
    def counts(self) -> FloatArray:
        """(n_blocks, n_blocks) compared pairs of every two blocks."""
        if self.compared is not None:
            return self.compared.counts
        sizes = self.basis_moments[:, 0, 0]
        return np.outer(sizes, sizes) - np.diag(sizes * (sizes + 1) / 2)

    @property
    def n_pairs(self) -> int:
        """Number of compared pairs."""
        return int(self._over_pairs(self.counts, np.arange(self.n_blocks)))

    @property
    def n_folds(self) -> int:
        return int(fold_pairs(self.folds).max()) + 1

    @property
    def n_pairwise(self) -> int:
        return len(self.columns.pairwise)

    @cached_property
    def left_out(self) -> NDArray[np.bool_]:
        """(n_folds, n_blocks) whether the model that a fold tests is trained without a block."""
        folds = fold_pairs(self._folds_of_blocks)
        return np.stack([(folds == fold).any(axis=1) for fold in range(self.n_folds)])

    @cached_property
    def _folds_of_blocks(self) -> IntArray:
        """(n_blocks,) the fold that tests the stimuli of each block, as `folds` has it."""
        return self.folds[np.unique(self.block, return_index=True)[1]]

    @property
    def n_blocks(self) -> int:
        return len(self.basis_moments)

    def training(self, *without: int) -> NDArray[np.bool_]:
        """(n_blocks,) the blocks that stay where some folds are left out."""
        return np.asarray(~self.left_out[list(without)].any(axis=0))

    def tested(self, fold: int) -> NDArray[np.bool_]:
        """(n_blocks,) the blocks whose stimuli a fold tests."""
        return np.asarray(self._folds_of_blocks == fold)

    def within(self, blocks: NDArray[np.bool_]) -> SetMoments:
        """Moments over the pairs inside some of the blocks (n_blocks,)."""
        return self._sums(blocks).centred(self.n_layers)

    def inside_fold(self, fold: int) -> SetMoments:
        """Moments over the pairs that test a fold."""
        sums = self._sums(self.tested(fold))
        if self.untested is not None:
            own = self.folds[self.untested.first] == fold
            first, second = self.untested.first[own], self.untested.second[own]
            z, ranks = self.columns.of_pairs(first, second), self.untested.ranks[:, own]
            # Squared distances are fitted, not tested: those of these pairs are not kept.
            with_targets = np.concatenate((np.zeros((self.n_layers, len(self.columns))), ranks @ z))
            targets = np.concatenate((np.zeros(self.n_layers), ranks.sum(axis=1)))
            sums = _SetSums(
                sums.n_pairs - len(first),
                sums.columns - z.sum(axis=0),
                sums.gram - z.T @ z,
                sums.with_targets - with_targets,
                sums.targets - targets,
            )
        return sums.centred(self.n_layers)

    def _sums(self, blocks: NDArray[np.bool_]) -> _SetSums:
        chosen = np.flatnonzero(blocks)
        columns, D, L = self.columns, self.n_pairwise, self.n_layers
        K = len(columns)
        sums = self._over_pairs(self.sums, chosen)
        product_columns, pairwise = columns.product_columns, np.array(list(columns.pairwise), int)
        totals, gram, crossed = np.zeros(K), np.zeros((K, K)), np.zeros((D + 2 * L, K))
        if len(product_columns):
            own, products = self._product_sums(chosen)
            totals[product_columns] = own
            gram[np.ix_(product_columns, product_columns)] = products
            crossed[:, product_columns] = self._over_pairs(self.products, chosen, axes=(1, 2))
        if D:
            both = self._over_pairs(self.pairwise_products, chosen)
            totals[pairwise] = sums[:D]
            gram[np.ix_(pairwise, pairwise)] = both[:, :D]
            gram[np.ix_(pairwise, product_columns)] = crossed[:D, product_columns]
            gram[np.ix_(product_columns, pairwise)] = crossed[:D, product_columns].T
            crossed[D:, pairwise] = both[:, D:].T
        n_pairs = float(self._over_pairs(self.counts, chosen))
        return _SetSums(n_pairs, totals, gram, crossed[D:], sums[D:])

    def _product_sums(self, chosen: IntArray) -> tuple[FloatArray, FloatArray]:
        """Sums (n_products,) of the columns that are sums of products, and of products of two."""
        if self.compared is not None:
            totals = self._over_pairs(self.compared.sums, chosen, axes=(0, 1))
            return totals, self._over_pairs(self.compared.products, chosen, axes=(0, 1))
        columns, A = self.columns, self.basis_moments[chosen].sum(axis=0)
        by_term = A[0, columns.left] * A[0, columns.right]
        twice = columns.sum_terms(by_term) - A[0] @ columns.of_same_stimulus
        return twice / 2, gram_of_basis(columns, A)

    @staticmethod
    def _over_pairs(
        values: FloatArray, chosen: IntArray, axes: tuple[int, int] = (-2, -1)
    ) -> FloatArray:
        """Sums over the pairs inside some blocks; each pair of blocks is there in both orders."""
        inside = values.take(chosen, axes[0]).take(chosen, axes[1])
        own = np.diagonal(inside, axis1=axes[0], axis2=axes[1]).sum(axis=-1)
        found: FloatArray = (inside.sum(axis=axes) + own) / 2
        return found

    def spans(self, blocks: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest squared distance (n_layers,) among the pairs inside some blocks."""
        inside = np.ix_(np.arange(self.n_layers), np.flatnonzero(blocks), np.flatnonzero(blocks))
        return self.low[inside].min(axis=(1, 2)), self.high[inside].max(axis=(1, 2))

    def rank_covariances(self, blocks: NDArray[np.bool_], fold: int | None = None) -> FloatArray:
        """(n_layers, n_layers) sums of products of centred ranks over the pairs inside blocks.

        With a fold these are its blocks, and pairs that do not test it are left out.
        """
        chosen = np.flatnonzero(blocks)
        products = self._over_pairs(np.moveaxis(self.rank_products, (2, 3), (0, 1)), chosen)
        totals = self._over_pairs(self.sums, chosen)[self.n_pairwise + self.n_layers :]
        n_pairs = float(self._over_pairs(self.counts, chosen))
        if fold is not None and self.untested is not None:
            ranks = self.untested.ranks[:, self.folds[self.untested.first] == fold]
            products, totals = products - ranks @ ranks.T, totals - ranks.sum(axis=1)
            n_pairs -= ranks.shape[1]
        return np.asarray(products - np.outer(totals, totals) / max(n_pairs, 1.0))

    @cached_property
    def rsa(self) -> FloatArray:
        """(n_layers, n_layers) Spearman ρ of the distances of every two layers over all pairs."""
        products = self.rank_covariances(np.ones(self.n_blocks, dtype=bool))
        spread = np.sqrt(np.diag(products))
        both = spread[:, None] * spread
        found = np.divide(products, both, out=np.zeros_like(products), where=both > 0)
        np.fill_diagonal(found, 1.0)
        return np.clip(found, -1.0, 1.0)

    def of_layers(self, layers: Sequence[int]) -> PairMoments:
        """Moments of some layers alone, by position."""
        own = np.asarray(layers, dtype=np.int64)
        D, L = self.n_pairwise, self.n_layers
        matrices = np.concatenate((np.arange(D), D + own, D + L + own))
        return replace(
            self,
            products=self.products[matrices],
            sums=self.sums[matrices],
            pairwise_products=self.pairwise_products[:, matrices],
            rank_products=self.rank_products[:, :, own[:, None], own],
            untested=self.untested and self.untested._replace(ranks=self.untested.ranks[own]),
            low=self.low[own],
            high=self.high[own],
        )

    def of_features(self, features: Sequence[str]) -> PairMoments:
        """Moments that these features alone would have given.

        Raises InputError: an unknown feature, or none.
        """
        for name in features:
            check_choice("feature", name, self.columns.features)
        keep = [f for f, name in enumerate(self.columns.features) if name in set(features)]
        if not keep:
            raise InputError("no feature is left; choose at least one.")
        if len(keep) == len(self.columns.features):
            return self
        return self._of_columns(self.columns.of_features(keep))

    def without_interactions(self) -> PairMoments:
        """Moments without the columns that are products of two features."""
        if not self.columns.interactions:
            return self
        return self._of_columns(self.columns.without_interactions())

    def _of_columns(self, chosen: ChosenColumns) -> PairMoments:
        D, n_matrices = self.n_pairwise, len(self.sums)
        pairwise = [d for d, c in enumerate(self.columns.pairwise) if c in chosen.numbers]
        matrices = np.array([*pairwise, *range(D, n_matrices)], dtype=np.int64)
        products = np.isin(self.columns.product_columns, chosen.numbers)
        return replace(
            self,
            columns=chosen.columns,
            basis_moments=self.basis_moments[:, chosen.basis[:, None], chosen.basis],
            products=self.products[matrices][..., products],
            sums=self.sums[matrices],
            pairwise_products=self.pairwise_products[pairwise][:, matrices],
            compared=self.compared and self.compared.of_columns(products),
        )


def gram_of_basis(columns: PairColumns, A: FloatArray) -> FloatArray:
    """Sums of products of two columns over the pairs inside a set of stimuli.

    Parameters
    ----------
    columns : those that are sums of products, n_products of them
    A : (n_basis, n_basis) Σ φ(i) φ(i)ᵀ over the stimuli of the set

    Returns
    -------
    (n_products, n_products)
    """
    left, right, starts = columns.left, columns.right, columns.starts
    crossed = A[left[:, None], left] * A[right[:, None], right]
    crossed *= columns.sign[:, None] * columns.sign
    by_column = np.add.reduceat(np.add.reduceat(crossed, starts, axis=0), starts, axis=1)
    own = columns.of_same_stimulus
    return np.asarray((by_column - own.T @ A @ own) / 2)


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
    for b, c, rows, others, places in tiles(block, 4):
        tile = np.empty((2, *places.shape))
        tile[0], tile[1] = squared[places], doubled[places]
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
        sums[:, b, c] += tile.sum(axis=(1, 2))
        for number, column in enumerate(columns.pairwise.values()):
            values = column.between(rows, others)
            pairwise_products[number, :, b, c] += (tile * values).sum(axis=(1, 2))
    products = columns.sum_terms(by_term)
    own = np.eye(n_blocks, dtype=bool)
    # Inside a block every pair was met in both orders.
    products[:, own] /= 2
    sums[:, own] /= 2
    pairwise_products[:, :, own] /= 2
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
        products[:, b, c] += targets @ columns.of_pairs(first, second)
        sums[:, b, c] += targets.sum(axis=1)
        low[b, c] = min(low[b, c], targets[0].min())
        high[b, c] = max(high[b, c], targets[0].max())
    products, sums = (_in_both_orders(own, (1, 2)) for own in (products, sums))
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
        one, other = label_of.take(first), label_of.take(second)
        label = np.minimum(one, other) * n_blocks + np.maximum(one, other)
        if (label == label[0]).all():
            # Pairs of two blocks mostly stand together.
            yield *divmod(int(label[0]), n_blocks), first, second, slice(start, start + len(label))
            continue
        for both in np.unique(label).tolist():
            own = np.flatnonzero(label == both)
            yield *divmod(both, n_blocks), first[own], second[own], start + own


def _in_both_orders(values: FloatArray, axes: tuple[int, int]) -> FloatArray:
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

    def of_columns(self, columns: NDArray[np.bool_]) -> DesignSums:
        """The sums of some of the columns (n_products,)."""
        own = np.flatnonzero(columns)
        products = self.products[:, :, own[:, None], own]
        return DesignSums(self.counts, self.sums[:, :, own], products)


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
    both blocks; (n_rows,) and (n_others,) the stimuli; (n_rows, n_others) the place of each pair in
    condensed order, 0 for a stimulus with itself
    """
    n = len(block)
    members = [np.flatnonzero(block == b) for b in range(int(block.max()) + 1)]
    for b, own in enumerate(members):
        for c, others in enumerate(members):
            step = max(16, TILE // (matrices * len(others)))
            for start in range(0, len(own), step):
                rows = own[start : start + step]
                places = places_of(rows[:, None], others, n)
                places[rows[:, None] == others] = 0
                yield b, c, rows, others, places


class Untested(NamedTuple):
    """Pairs inside a fold that do not test it: two stimuli of one item, with folds over items.

    first, second : (n_untested,) their stimuli
    ranks : (n_layers, n_untested) their centred ranks among all pairs
    """

    first: IntArray
    second: IntArray
    ranks: FloatArray


def pair_moments(
    columns: PairColumns,
    folds: IntArray,
    layers: Sequence[LayerMoments],
    rank_products: FloatArray,
    untested: Untested | None = None,
    of_columns: ColumnMoments | None = None,
) -> PairMoments:
    """Moments of the compared pairs of the stimuli, put together from those of the layers.

    Parameters
    ----------
    columns : of the pairs
    folds : (n_stimuli,) the fold that tests each stimulus
    layers : see `layer_moments`
    rank_products : (n_blocks, n_blocks, n_layers, n_layers), see `products_of_ranks`
    untested : pairs that do not test the fold that they are in
    of_columns : of the columns with each other over the compared pairs; None computes those of all
        pairs
    """
    block = blocks_of_folds(folds)
    n_blocks = int(block.max()) + 1
    basis_moments = np.stack(
        [columns.basis[block == b].T @ columns.basis[block == b] for b in range(n_blocks)]
    )
    own = (of_columns or column_moments(columns, folds)).pairwise
    by_target = [[layer.products[k] for layer in layers] for k in (0, 1)]
    sums = [[layer.sums[k] for layer in layers] for k in (0, 1)]
    pairwise = [[layer.pairwise_products[:, k] for layer in layers] for k in (0, 1)]
    return PairMoments(
        columns=columns,
        folds=np.asarray(folds, dtype=np.int64),
        block=block,
        basis_moments=basis_moments,
        products=np.stack([*own.products, *by_target[0], *by_target[1]]),
        sums=np.stack([*own.sums, *sums[0], *sums[1]]),
        pairwise_products=np.stack(
            [*np.moveaxis(own.pairwise_products, 1, 0), *pairwise[0], *pairwise[1]], axis=1
        ),
        rank_products=rank_products,
        low=np.stack([layer.low for layer in layers]),
        high=np.stack([layer.high for layer in layers]),
        untested=untested,
        compared=of_columns and of_columns.compared,
    )


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
        values = np.stack([own.between(rows, others) for own in columns.pairwise.values()])
        if b == c:
            values[:, rows[:, None] == others] = 0.0
        left = columns.basis[rows][:, columns.left]
        crossed = values @ columns.basis[others]
        by_term[:, b, c] += (left * crossed[:, :, columns.right]).sum(axis=1)
        flat = values.reshape(D, -1)
        sums[:, b, c] += flat.sum(axis=1)
        both[:, :, b, c] += flat @ flat.T
    products = columns.sum_terms(by_term)
    own = np.eye(n_blocks, dtype=bool)
    products[:, own] /= 2
    sums[:, own] /= 2
    both[:, :, own] /= 2
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
        values = columns.of_pairs(first, second).T
        counts[b, c] += len(first)
        sums[b, c] += values.sum(axis=1)
        gram[b, c] += values @ values.T
    counts, sums, gram = (_in_both_orders(own, (0, 1)) for own in (counts, sums, gram))
    pairwise, products = list(columns.pairwise), columns.product_columns
    of_pairwise = np.moveaxis(gram[:, :, pairwise], 2, 0)
    own = PairwiseMoments(
        of_pairwise[..., products],
        np.moveaxis(sums[..., pairwise], -1, 0),
        np.moveaxis(of_pairwise[..., pairwise], -1, 1),
    )
    between = gram[:, :, products[:, None], products]
    return ColumnMoments(own, DesignSums(counts, sums[..., products], between))


# Pairs whose ranks in all layers are multiplied at once.
SEGMENT = 2**17
# Gives the doubled ranks of the pairs first..last-1 in a layer.
ReadRanks = Callable[[int, int, int], NDArray[np.uint32]]


def products_of_ranks(
    block: IntArray,
    n_layers: int,
    read: ReadRanks,
    design: PairDesign | None = None,
    n_ranked: int | None = None,
) -> FloatArray:
    """Sums of products of the centred ranks of every two layers, over the pairs of two blocks.

    Parameters
    ----------
    block : (n_stimuli,) block of each stimulus
    read : gives doubled ranks of pairs in condensed order, or in that of the design, see
        `mlem_core.pairs.ranks.PairRanks`
    design : the compared pairs; None is all pairs
    n_ranked : number of pairs among which they were ranked, where these are not all of them

    Returns
    -------
    (n_blocks, n_blocks, n_layers, n_layers), the same for both orders of two blocks
    """
    n, n_blocks = len(block), int(block.max()) + 1
    found = np.zeros((n_blocks * n_blocks, n_layers, n_layers))
    if design is not None and not design.is_complete:
        for b, c, _, _, places in chunks(block, design, n_layers):
            if isinstance(places, slice):
                ranks = [read(layer, places.start, places.stop) for layer in range(n_layers)]
            else:
                start, stop = int(places[0]), int(places[-1]) + 1
                ranks = [read(layer, start, stop)[places - start] for layer in range(n_layers)]
            some = np.stack(ranks, dtype=np.float64)
            some -= (n_ranked or design.n_pairs) + 1.0
            found[b * n_blocks + c] += some @ some.T
        found = found.reshape(n_blocks, n_blocks, n_layers, n_layers) / 4
        return _in_both_orders(found, (0, 1))
    n_pairs = n * (n - 1) // 2
    sizes = np.arange(n - 1, -1, -1)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    step = max(1, SEGMENT // n)
    for i in range(0, n - 1, step):
        last = min(i + step, n)
        rows = np.arange(i, last)
        first, stop = int(starts[i]), int(starts[last])
        other = np.concatenate([block[row + 1 :] for row in rows])
        own = np.repeat(block[rows], sizes[rows])
        label = np.minimum(own, other) * n_blocks + np.maximum(own, other)
        stacked = np.stack([read(layer, first, stop) for layer in range(n_layers)])
        for both in np.unique(label):
            some = stacked[:, label == both].astype(np.float64)
            some -= n_pairs + 1
            found[both] += some @ some.T
    square = found.reshape(n_blocks, n_blocks, n_layers, n_layers) / 4
    for b in range(n_blocks):
        for c in range(b):
            square[b, c] = square[c, b]
    return square


def moments_of_columns(columns: PairColumns, folds: IntArray) -> PairMoments:
    """Moments of the columns of all pairs alone: those of a layer whose distances are all 0."""
    n_blocks = int(blocks_of_folds(folds).max()) + 1
    square = np.zeros((2, n_blocks, n_blocks))
    layer = LayerMoments(
        np.zeros((*square.shape, len(columns.product_columns))),
        square,
        np.zeros((len(columns.pairwise), *square.shape)),
        square[0],
        square[0],
    )
    return pair_moments(columns, folds, [layer], np.zeros((n_blocks, n_blocks, 1, 1)))
