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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.moment_sums import (
    ColumnMoments,
    DesignSums,
    MatrixMoments,
    blocks_of_folds,
    column_moments,
    product_sums,
)
from mlem_core.pairs.pair_columns import ChosenColumns, PairColumns
from mlem_core.pairs.ranks import correlations
from mlem_core.stimuli.folds import fold_pairs, number_of_folds


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


@dataclass(frozen=True)
class PairMoments:
    """Moments of the pairs of n_stimuli stimuli, by blocks of them, for n_layers layers.

    A matrix is, in this order: a column that is no sum of products; the squared distances of a
    layer; its ranks.

    Attributes
    ----------
    columns : of the pairs
    folds : (n_stimuli,) the fold that tests each stimulus, see `mlem_core.stimuli.folds`
    block : (n_stimuli,) block of each stimulus
    basis_moments : (n_blocks, n_basis, n_basis) A of each block
    products : (n_matrices, n_blocks, n_blocks, n_products) sums of each matrix with the columns
        that are sums of products, over the pairs of two blocks
    sums : (n_matrices, n_blocks, n_blocks) sums of each matrix
    pairwise_products : (n_pairwise, n_matrices, n_blocks, n_blocks) sums of products of the columns
        that are no sums of products with each matrix
    rank_products : (n_blocks, n_blocks, n_layers, n_layers) of the ranks of every two layers
    low, high : (n_layers, n_blocks, n_blocks) smallest and largest squared distance
    untested : pairs that are in sums by blocks, but count in no fit or in no test
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
    untested: LeftOutPairs | None = None
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
        return int(self._sum_pairs(self.counts, np.arange(self.n_blocks)))

    @property
    def n_folds(self) -> int:
        return number_of_folds(self.folds)

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

    def left_out_among(self, blocks: NDArray[np.bool_], fold: int | None = None) -> LeftOutPairs:
        """The pairs inside some blocks (n_blocks,) that do not count; with a fold, as its tests."""
        pairs = self.untested
        if pairs is None:
            none = np.empty(0, dtype=np.int64)
            return LeftOutPairs(none, none, np.empty((2 * self.n_layers, 0)), none.astype(bool))
        inside = blocks[self.block]
        some = inside[pairs.first] & inside[pairs.second]
        if fold is None:
            some &= pairs.near
        return LeftOutPairs(
            pairs.first[some], pairs.second[some], pairs.targets[:, some], pairs.near[some]
        )

    def within(self, blocks: NDArray[np.bool_]) -> SetMoments:
        """Moments over the pairs inside some of the blocks (n_blocks,)."""
        return self._moments(blocks, None)

    def inside_fold(self, fold: int) -> SetMoments:
        """Moments over the pairs that test a fold."""
        return self._moments(self.tested(fold), fold)

    def _moments(self, blocks: NDArray[np.bool_], fold: int | None) -> SetMoments:
        """Moments over the pairs inside blocks, without those that do not test a fold."""
        places = np.flatnonzero(blocks)
        columns, D, L = self.columns, self.n_pairwise, self.n_layers
        K = len(columns)
        sums = self._sum_pairs(self.sums, places)
        product_columns, pairwise = columns.product_columns, np.array(list(columns.pairwise), int)
        totals, gram, crossed = np.zeros(K), np.zeros((K, K)), np.zeros((D + 2 * L, K))
        if len(product_columns):
            block_sums, products = self._product_sums(places)
            totals[product_columns] = block_sums
            gram[np.ix_(product_columns, product_columns)] = products
            crossed[:, product_columns] = self._sum_pairs(self.products, places, axes=(1, 2))
        if D:
            both = self._sum_pairs(self.pairwise_products, places)
            totals[pairwise] = sums[:D]
            gram[np.ix_(pairwise, pairwise)] = both[:, :D]
            gram[np.ix_(pairwise, product_columns)] = crossed[:D, product_columns]
            gram[np.ix_(product_columns, pairwise)] = crossed[:D, product_columns].T
            crossed[D:, pairwise] = both[:, D:].T
        n_pairs, with_targets = float(self._sum_pairs(self.counts, places)), crossed[D:]
        first, second, targets, _ = self.left_out_among(blocks, fold)
        if len(first):
            z = columns.pair_values(first, second)
            n_pairs, totals, gram = n_pairs - len(z), totals - z.sum(axis=0), gram - z.T @ z
            with_targets -= targets @ z
            sums[D:] -= targets.sum(axis=1)
        n_pairs = max(n_pairs, 1.0)
        means, target_means = totals / n_pairs, sums[D:] / n_pairs
        with_targets -= np.outer(target_means, totals)
        return SetMoments(
            n_pairs,
            means,
            gram - n_pairs * np.outer(means, means),
            with_targets[:L],
            with_targets[L:],
            target_means[:L],
            target_means[L:],
        )

    def _product_sums(self, places: IntArray) -> tuple[FloatArray, FloatArray]:
        """Sums (n_products,) of the columns that are sums of products, and of products of two."""
        if self.compared is not None:
            totals = self._sum_pairs(self.compared.sums, places, axes=(0, 1))
            return totals, self._sum_pairs(self.compared.products, places, axes=(0, 1))
        columns, A = self.columns, self.basis_moments[places].sum(axis=0)
        by_term = A[0, columns.left] * A[0, columns.right]
        twice = columns.sum_terms(by_term) - A[0] @ columns.same_stimulus_values
        return twice / 2, product_sums(columns, columns, A[None])[0]

    @staticmethod
    def _sum_pairs(
        values: FloatArray, places: IntArray, axes: tuple[int, int] = (-2, -1)
    ) -> FloatArray:
        """Sums over the pairs inside some blocks; each pair of blocks is there in both orders."""
        inside = values.take(places, axes[0]).take(places, axes[1])
        diagonal = np.diagonal(inside, axis1=axes[0], axis2=axes[1]).sum(axis=-1)
        return np.asarray((inside.sum(axis=axes) + diagonal) / 2)

    def spans(self, blocks: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest squared distance (n_layers,) among the pairs inside some blocks."""
        inside = np.ix_(np.arange(self.n_layers), np.flatnonzero(blocks), np.flatnonzero(blocks))
        return self.low[inside].min(axis=(1, 2)), self.high[inside].max(axis=(1, 2))

    def rank_covariances(self, blocks: NDArray[np.bool_], fold: int | None = None) -> FloatArray:
        """(n_layers, n_layers) sums of products of centred ranks over the pairs inside blocks.

        With a fold these are its blocks, and pairs that do not test it are left out.
        """
        places = np.flatnonzero(blocks)
        products = self._sum_pairs(np.moveaxis(self.rank_products, (2, 3), (0, 1)), places)
        totals = self._sum_pairs(self.sums, places)[self.n_pairwise + self.n_layers :]
        n_pairs = float(self._sum_pairs(self.counts, places))
        ranks = self.left_out_among(blocks, fold).targets[self.n_layers :]
        products, totals = products - ranks @ ranks.T, totals - ranks.sum(axis=1)
        n_pairs -= ranks.shape[1]
        return np.asarray(products - np.outer(totals, totals) / max(n_pairs, 1.0))

    @cached_property
    def rsa(self) -> FloatArray:
        """(n_layers, n_layers) Spearman ρ of the distances of every two layers over all pairs."""
        return correlations(self.rank_covariances(np.ones(self.n_blocks, dtype=bool)))

    def select_layers(self, layers: Sequence[int]) -> PairMoments:
        """Moments of some layers alone, by position."""
        places = np.asarray(layers, dtype=np.int64)
        D, L = self.n_pairwise, self.n_layers
        matrices = np.concatenate((np.arange(D), D + places, D + L + places))
        return replace(
            self,
            products=self.products[matrices],
            sums=self.sums[matrices],
            pairwise_products=self.pairwise_products[:, matrices],
            rank_products=self.rank_products[:, :, places[:, None], places],
            untested=self.untested
            and self.untested._replace(
                targets=self.untested.targets[np.concatenate((places, L + places))]
            ),
            low=self.low[places],
            high=self.high[places],
        )

    def select_features(self, features: Sequence[str]) -> PairMoments:
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
        return self._select_products(self.columns.select_features(keep))

    def drop_interactions(self) -> PairMoments:
        """Moments without the columns that are products of two features."""
        if not self.columns.interactions:
            return self
        return self._select_products(self.columns.drop_interactions())

    def _select_products(self, columns: ChosenColumns) -> PairMoments:
        D, n_matrices = self.n_pairwise, len(self.sums)
        pairwise = [d for d, c in enumerate(self.columns.pairwise) if c in columns.numbers]
        matrices = np.array([*pairwise, *range(D, n_matrices)], dtype=np.int64)
        products = np.isin(self.columns.product_columns, columns.numbers)
        return replace(
            self,
            columns=columns.columns,
            basis_moments=self.basis_moments[:, columns.basis[:, None], columns.basis],
            products=self.products[matrices][..., products],
            sums=self.sums[matrices],
            pairwise_products=self.pairwise_products[pairwise][:, matrices],
            compared=self.compared and self.compared.select_columns(products),
        )


class LeftOutPairs(NamedTuple):
    """Pairs that are in sums by blocks and are taken from them again.

    With folds over items, those of one item inside a fold do not test it; those of stimuli that
    came closer to each other than a lag are in no fit either.

    first, second : (n_left_out,) their stimuli
    targets : (2 * n_layers, n_left_out) squared distances of the layers, then their centred ranks
        among all pairs
    near : (n_left_out,) whether they are closer than the lag
    """

    first: IntArray
    second: IntArray
    targets: FloatArray
    near: NDArray[np.bool_]


def pair_moments(
    columns: PairColumns,
    folds: IntArray,
    layers: Sequence[MatrixMoments],
    rank_products: FloatArray,
    untested: LeftOutPairs | None = None,
    of_columns: ColumnMoments | None = None,
) -> PairMoments:
    """Moments of the compared pairs of the stimuli, put together from those of the layers.

    Parameters
    ----------
    columns : of the pairs
    folds : (n_stimuli,) the fold that tests each stimulus
    layers : see `layer_moments`
    rank_products : (n_blocks, n_blocks, n_layers, n_layers), see `ComparedPairs.rank_products`
    untested : see `PairMoments`
    of_columns : of the columns with each other over the compared pairs; None computes those of all
        pairs
    """
    block = blocks_of_folds(folds)
    n_blocks = int(block.max()) + 1
    basis_moments = np.stack(
        [columns.basis[block == b].T @ columns.basis[block == b] for b in range(n_blocks)]
    )
    own = (of_columns or column_moments(columns, folds)).pairwise
    # First the squared distances of all layers, then their ranks.
    of_layers = [(layer, target) for target in (0, 1) for layer in layers]
    return PairMoments(
        columns=columns,
        folds=np.asarray(folds, dtype=np.int64),
        block=block,
        basis_moments=basis_moments,
        products=np.stack([*own.products, *(layer.products[k] for layer, k in of_layers)]),
        sums=np.stack([*own.sums, *(layer.sums[k] for layer, k in of_layers)]),
        pairwise_products=np.concatenate(
            [own.pairwise_products]
            + [layer.pairwise_products[:, k : k + 1] for layer, k in of_layers],
            axis=1,
        ),
        rank_products=rank_products,
        low=np.stack([layer.low for layer in layers]),
        high=np.stack([layer.high for layer in layers]),
        untested=untested,
        compared=of_columns and of_columns.compared,
    )


def moments_of_columns(columns: PairColumns, folds: IntArray, n_layers: int = 1) -> PairMoments:
    """Moments of the columns of all pairs alone: those of layers whose distances are all 0."""
    n_blocks = int(blocks_of_folds(folds).max()) + 1
    square = np.zeros((2, n_blocks, n_blocks))
    layer = MatrixMoments(
        np.zeros((*square.shape, len(columns.product_columns))),
        square,
        np.zeros((len(columns.pairwise), *square.shape)),
        square[0],
        square[0],
    )
    rank_products = np.zeros((n_blocks, n_blocks, n_layers, n_layers))
    return pair_moments(columns, folds, [layer] * n_layers, rank_products)
