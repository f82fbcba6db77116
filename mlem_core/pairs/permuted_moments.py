"""Moments of the columns of features whose values are permuted over the stimuli.

Permuted labels change the columns of these features alone, mostly of one. Their moments with each
other and with the columns of the other features follow from sums over stimuli, those with targets
from X = R φ with the permuted columns φ of the basis of all permutations side by side, block by
block. Columns that are no sums of products are computed pair by pair for each permutation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.moment_sums import TILE, Target, product_sums, target_values, tiles
from mlem_core.pairs.moments import PairMoments
from mlem_core.pairs.pair_columns import ChosenColumns, PairColumns

# Values of a feature of one column beyond which it is looked up pair by pair.
MANY_VALUES = 24


@dataclass(frozen=True)
class PermutedFeature:
    """The columns of features with their values permuted together, those of the others as they are.

    Attributes
    ----------
    columns : of the pairs
    features : that are permuted, by number
    givers : (n_permutations, n_stimuli) the stimulus whose values of these each has
    block : (n_stimuli,) block of each stimulus
    """

    columns: PairColumns
    features: tuple[int, ...]
    givers: IntArray
    block: IntArray

    @cached_property
    def numbers(self) -> IntArray:
        """(n_columns,) numbers of the features' columns, products with others included."""
        first, second = self.columns.first_feature, self.columns.second_feature
        return np.flatnonzero(np.isin(first, self.features) | np.isin(second, self.features))

    @cached_property
    def alone(self) -> ChosenColumns:
        """The columns of the features, without products with others."""
        return self.columns.select_features(self.features)

    @cached_property
    def others(self) -> ChosenColumns:
        """The columns of the other features."""
        n_features = len(self.columns.features)
        return self.columns.select_features(
            [f for f in range(n_features) if f not in self.features]
        )

    @cached_property
    def pairwise(self) -> IntArray:
        """(n_pairwise,) which of its columns are no sums of products, as places in `numbers`."""
        return np.flatnonzero(np.isin(self.numbers, list(self.columns.pairwise)))

    @cached_property
    def products(self) -> IntArray:
        """(n_products,) which of its columns are sums of products, as places in `numbers`."""
        return np.flatnonzero(~np.isin(self.numbers, list(self.columns.pairwise)))

    @cached_property
    def basis(self) -> FloatArray:
        """(n_stimuli, n_basis) the feature's columns of the basis, without the constant."""
        return np.ascontiguousarray(self.alone.columns.basis[:, 1:])

    def target_sums(self, sets: NDArray[np.bool_], targets: Sequence[Target]) -> TargetSums:
        """Sums of products with targets over the pairs inside sets of blocks (n_sets, n_blocks)."""
        return TargetSums(self, sets, self._pair_sums(sets[:, :, None] & sets[:, None], targets))

    def moments(self, moments: PairMoments, targets: Sequence[Target]) -> Iterator[PairMoments]:
        """Moments of all pairs under each permutation.

        Parameters
        ----------
        moments : of the true values, of all pairs
        targets : for each layer (n_pairs,) its squared distances, then for each layer its ranks
        """
        n_blocks, columns = moments.n_blocks, self.columns
        first, second = np.triu_indices(n_blocks)
        each_two = np.zeros((len(first), n_blocks, n_blocks), dtype=bool)
        each_two[np.arange(len(first)), first, second] = True
        number = np.zeros((n_blocks, n_blocks), dtype=np.int64)
        number[first, second] = number[second, first] = np.arange(len(first))
        sums = self._pair_sums(each_two, targets)
        product = np.searchsorted(columns.product_columns, self.numbers[self.products])
        other_product = np.delete(np.arange(len(columns.product_columns)), product)
        of_feature = np.isin(list(columns.pairwise), self.numbers)
        pairwise, others = np.flatnonzero(of_feature), np.flatnonzero(~of_feature)
        of_targets = np.arange(moments.n_pairwise, len(moments.sums))
        for permutation, givers in enumerate(self.givers):
            # For each two blocks, those of the columns of the feature last.
            with_targets, with_pairwise, totals, gram, with_products = (
                np.moveaxis(array[:, permutation][number], (0, 1), (-2, -1)) for array in sums
            )
            products = np.moveaxis(moments.products, -1, 1).copy()
            products[of_targets[:, None], product] = with_targets[:, self.products]
            products[others[:, None], product] = with_pairwise[self.products].swapaxes(0, 1)
            products[pairwise[:, None], product] = gram[:, self.products]
            products[pairwise[:, None], other_product] = with_products
            both, of_pairwise = moments.pairwise_products.copy(), moments.sums.copy()
            both[pairwise[:, None], of_targets] = with_targets[:, self.pairwise].swapaxes(0, 1)
            both[pairwise[:, None], others] = with_pairwise[self.pairwise]
            both[others[:, None], pairwise] = with_pairwise[self.pairwise].swapaxes(0, 1)
            both[pairwise[:, None], pairwise] = gram[:, self.pairwise]
            of_pairwise[pairwise] = totals
            relabelled = columns.with_values_of(givers, self.features)
            of_blocks = [relabelled.basis[self.block == block] for block in range(n_blocks)]
            yield replace(
                moments,
                columns=relabelled,
                basis_moments=np.stack([basis.T @ basis for basis in of_blocks]),
                products=np.moveaxis(products, 1, -1),
                sums=of_pairwise,
                pairwise_products=both,
            )

    def _pair_sums(self, sets: NDArray[np.bool_], targets: Sequence[Target]) -> _PairSums:
        """Sums over the pairs of blocks that are in each set (n_sets, n_blocks, n_blocks)."""
        others = self.others.columns.pairwise.values()
        n_columns, n_matrices, D = len(self.numbers), len(others) + len(targets), len(self.pairwise)
        shape, n_products = (len(sets), len(self.givers)), len(self.others.columns.product_columns)
        with_matrices = np.zeros((n_matrices, *shape, n_columns))
        totals, gram = np.zeros((*shape, D)), np.zeros((*shape, D, n_columns))
        with_products = np.zeros((*shape, D, n_products))
        n_tiles = n_matrices + 2 * D
        for b, c, rows, stimuli, places in tiles(self.block, n_tiles):
            within = np.flatnonzero(sets[:, b, c]).tolist()
            if not within:
                continue
            # Sums of both orders of two stimuli: all columns and targets are the same in both.
            times = 1.0 if b == c else 2.0
            tile = np.empty((n_matrices, *places.shape))
            for number, column in enumerate(others):
                tile[number] = column.cross_distances(rows, stimuli)
            for number, target in enumerate(targets):
                tile[len(others) + number] = target_values(target, places)
            tile[:, rows[:, None] == stimuli] = 0.0
            if len(self.products):
                products = times * self._with_matrices(tile, rows, stimuli)
                for number in within:
                    with_matrices[:, number][..., self.products] += products
            for permutation in range(len(self.givers) if D else 0):
                matrix_sums, *of_tile = self._tile_pairwise_sums(permutation, tile, rows, stimuli)
                for number in within:
                    with_matrices[:, number, permutation, self.pairwise] += times * matrix_sums
                    for sums, added in zip((totals, gram, with_products), of_tile, strict=True):
                        sums[number, permutation] += times * added
        split = len(others)
        return _PairSums(
            np.moveaxis(with_matrices[split:], 0, 2) / 2,
            np.moveaxis(with_matrices[:split], 0, 3) / 2,
            totals / 2,
            gram / 2,
            with_products / 2,
        )

    def _with_matrices(self, tile: FloatArray, rows: IntArray, stimuli: IntArray) -> FloatArray:
        """(n_matrices, n_permutations, n_products) sums of products over a tile."""
        columns, n_basis = self.alone.columns, self.basis.shape[1]
        left, right = columns.left, columns.right
        n_permutations = len(self.givers)
        sums = np.empty((len(tile), n_permutations, len(columns.starts)))
        if len(columns.starts) == 1 and n_basis > MANY_VALUES:
            # One column of many values: looked up pair by pair, it takes less than their products.
            of_pairs, distance = tile.reshape(len(tile), -1), columns.distances[0]
            for permutation, givers in enumerate(self.givers):
                values = distance.cross_distances(givers[rows], givers[stimuli]) ** 2
                sums[:, permutation, 0] = of_pairs @ values.ravel()
            return sums
        flat = tile.reshape(-1, len(stimuli))
        with_constant = tile.sum(axis=2)
        step = max(1, TILE // (max(len(flat), len(stimuli)) * n_basis))
        for start in range(0, n_permutations, step):
            some = slice(start, start + step)
            of_rows = self.basis[self.givers[some, rows].T]
            of_others = self.basis[self.givers[some, stimuli].T]
            n_some = of_rows.shape[1]
            crossed = (flat @ of_others.reshape(len(stimuli), -1)).reshape(
                len(tile), len(rows), n_some, n_basis
            )
            both = np.empty((len(tile), n_some, n_basis + 1, n_basis + 1))
            both[:, :, 0, 0] = with_constant.sum(axis=1)[:, None]
            both[:, :, 0, 1:] = crossed.sum(axis=1)
            of_rows = of_rows.transpose(1, 2, 0)
            both[:, :, 1:, 0] = np.moveaxis(of_rows @ with_constant.T, 2, 0)
            both[:, :, 1:, 1:] = of_rows @ crossed.transpose(0, 2, 1, 3)
            sums[:, some] = columns.sum_terms(both[:, :, left, right])
        return sums

    def _tile_pairwise_sums(
        self, permutation: int, tile: FloatArray, rows: IntArray, stimuli: IntArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Sums over a tile of products of its columns that are no sums of products with matrices
        (n_matrices, n_pairwise), of these columns themselves (n_pairwise,), and of their products
        with all of its columns (n_pairwise, n_columns) and with those of others that are sums of
        products (n_pairwise, n_products).
        """
        numbers, givers = self.numbers[self.pairwise].tolist(), self.givers[permutation]
        columns = (
            self.columns.recoded_pairwise(number, givers, self.features) for number in numbers
        )
        values = np.stack([column.cross_distances(rows, stimuli) for column in columns])
        values[:, rows[:, None] == stimuli] = 0.0
        flat = values.reshape(len(values), -1)
        gram = np.empty((len(values), len(self.numbers)))
        gram[:, self.pairwise] = flat @ flat.T
        alone, others = self.alone.columns, self.others.columns
        basis = np.insert(self.basis[self.givers[permutation]], 0, 1.0, axis=1)
        gram[:, self.products] = _with_products(alone, basis, values, rows, stimuli)
        with_products = _with_products(others, others.basis, values, rows, stimuli)
        with_matrices = tile.reshape(len(tile), -1) @ flat.T
        return with_matrices, flat.sum(axis=1), gram, with_products

    def sums_of_pairs(
        self, first: IntArray, second: IntArray, targets: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Sums over some pairs of the columns, and of their products with targets.

        Parameters
        ----------
        first, second : (n_pairs,) the stimuli
        targets : (n_targets, n_pairs)

        Returns (n_permutations, n_columns); (n_permutations, n_targets, n_columns)
        """
        sums = np.empty((len(self.givers), 1 + len(targets), len(self.numbers)))
        weights = np.concatenate((np.ones((1, len(first))), targets))
        for permutation, givers in enumerate(self.givers):
            columns = self.columns.with_values_of(givers, self.features)
            sums[permutation] = weights @ columns.pair_values(first, second)[:, self.numbers]
        return sums[:, 0], sums[:, 1:]

    def grams_of_pairs(self, first: IntArray, second: IntArray) -> tuple[FloatArray, FloatArray]:
        """Sums over some pairs of products of the columns with each other, and with the others.

        Parameters are those of `sums_of_pairs`.

        Returns (n_permutations, n_columns, n_columns); (n_permutations, n_columns, n_others)
        """
        gram, with_others = [], []
        for givers in self.givers:
            permuted = self.columns.with_values_of(givers, self.features)
            values = permuted.pair_values(first, second)
            columns = values[:, self.numbers].T
            gram.append(columns @ columns.T)
            with_others.append(columns @ values[:, self.others.numbers])
        return np.stack(gram), np.stack(with_others)


class _PairSums(NamedTuple):
    """Sums over pairs of stimuli that need a look at pairs, of the columns of a permuted feature.

    with_targets : (n_sets, n_permutations, n_targets, n_columns) of products of targets with them
    with_pairwise : (n_sets, n_permutations, n_columns, n_pairwise_others) of their products with
        the columns of other features that are no sums of products
    totals, gram, with_products : (n_sets, n_permutations, n_pairwise, ...) of those that are no
        sums of products: their sums; of products with all of them; with the columns of others that
        are sums of products
    """

    with_targets: FloatArray
    with_pairwise: FloatArray
    totals: FloatArray
    gram: FloatArray
    with_products: FloatArray


@dataclass(frozen=True)
class TargetSums:
    """Sums over the pairs inside sets of blocks.

    Attributes
    ----------
    permuted : the columns
    sets : (n_sets, n_blocks)
    of_pairs : those that need a look at pairs
    """

    permuted: PermutedFeature
    sets: NDArray[np.bool_]
    of_pairs: _PairSums

    def select_columns(self, some: slice) -> Iterator[ColumnSums]:
        """For each set, sums of the columns and of their products under some permutations."""
        permuted, by_block = self.permuted, []
        for block in range(self.sets.shape[1]):
            by_block.append(_basis_moments(permuted, some, np.flatnonzero(permuted.block == block)))
        for number, blocks in enumerate(self.sets):
            inside = [by_block[b] for b in np.flatnonzero(blocks)]
            gram, with_others = (np.sum(parts, axis=0) for parts in zip(*inside, strict=True))
            of_pairs = _PairSums(*(sums[number, some] for sums in self.of_pairs))
            yield ColumnSums(permuted, some, of_pairs, gram, with_others)


class ColumnSums(NamedTuple):
    """Sums over the pairs inside a set of stimuli, under n_permutations permutations.

    Attributes
    ----------
    permuted : the columns
    some : which of their permutations
    of_pairs : sums that need a look at pairs
    basis_gram : (n_permutations, n_basis, n_basis) Σ φ(i) φ(i)ᵀ over the stimuli, the constant
        being the first of the feature's basis
    basis_with_others : (n_permutations, n_basis, n_basis_others) with the basis of the others
    """

    permuted: PermutedFeature
    some: slice
    of_pairs: _PairSums
    basis_gram: FloatArray
    basis_with_others: FloatArray

    @property
    def n_pairs(self) -> float:
        n = float(self.basis_gram[0, 0, 0])
        return n * (n - 1) / 2

    def columns(self) -> FloatArray:
        """(n_permutations, n_columns) of the columns of the permuted feature."""
        permuted, A = self.permuted, self.basis_gram
        columns = permuted.alone.columns
        by_term = A[:, 0, columns.left] * A[:, 0, columns.right]
        twice = columns.sum_terms(by_term) - A[:, 0] @ columns.same_stimulus_values
        sums = np.empty((len(A), len(permuted.numbers)))
        sums[:, permuted.products] = twice / 2
        sums[:, permuted.pairwise] = self.of_pairs.totals
        return sums

    def gram(self) -> FloatArray:
        """(n_permutations, n_columns, n_columns) of products of two of these columns."""
        permuted, A = self.permuted, self.basis_gram
        by_product = product_sums(permuted.alone.columns, permuted.alone.columns, A)
        if not len(permuted.pairwise):
            return by_product
        n_columns, pairwise = len(permuted.numbers), permuted.pairwise
        gram = np.empty((len(A), n_columns, n_columns))
        gram[:, permuted.products[:, None], permuted.products] = by_product
        gram[:, pairwise] = self.of_pairs.gram
        gram[:, :, pairwise] = self.of_pairs.gram.transpose(0, 2, 1)
        return gram

    def with_others(self) -> FloatArray:
        """(n_permutations, n_columns, n_others) of products with the columns of other features."""
        permuted, of_pairs = self.permuted, self.of_pairs
        others = permuted.others.columns
        by_product = product_sums(permuted.alone.columns, others, self.basis_with_others)
        if not len(permuted.pairwise) and not others.pairwise:
            return by_product
        crossed = np.empty((len(by_product), len(permuted.numbers), len(others)))
        crossed[:, permuted.products[:, None], others.product_columns] = by_product
        crossed[:, permuted.pairwise[:, None], others.product_columns] = of_pairs.with_products
        crossed[:, :, list(others.pairwise)] = of_pairs.with_pairwise
        return crossed


def _with_products(
    columns: PairColumns, basis: FloatArray, values: FloatArray, rows: IntArray, stimuli: IntArray
) -> FloatArray:
    """(n_values, n_products) sums of products of values (n_values, n_rows, n_others) with columns.

    `basis` is (n_stimuli, n_basis), of the columns that are sums of products.
    """
    crossed = (values @ basis[stimuli])[:, :, columns.right]
    return columns.sum_terms((basis[rows][:, columns.left] * crossed).sum(axis=1))


def _basis_moments(
    permuted: PermutedFeature, some: slice, stimuli: IntArray
) -> tuple[FloatArray, FloatArray]:
    """`basis_gram` and `basis_with_others` of some stimuli, see `ColumnSums`."""
    basis = permuted.basis[permuted.givers[some, stimuli]].transpose(0, 2, 1)
    of_others = permuted.others.columns.basis[stimuli]
    n_basis = basis.shape[1] + 1
    gram = np.empty((len(basis), n_basis, n_basis))
    with_others = np.empty((len(basis), n_basis, of_others.shape[1]))
    gram[:, 0, 0] = len(stimuli)
    gram[:, 0, 1:] = gram[:, 1:, 0] = basis.sum(axis=2)
    gram[:, 1:, 1:] = basis @ basis.transpose(0, 2, 1)
    with_others[:, 0] = of_others.sum(axis=0)
    with_others[:, 1:] = basis @ of_others
    return gram, with_others
