"""Sums over the pairs of the stimuli of a unit: what changes where a unit counts more or less.

A unit is a set of stimuli that are drawn, or left out, together: a sentence, all stimuli of a word,
or some of these. The sums are those of `mlem_core.pairs.moments`, over the pairs of each stimulus
of the unit with all stimuli of a set (those that train the model of a fold, those that test it, or
all), so that a pair inside a unit is in them twice: as often as it changes where each stimulus
counts 1 + ε times and a pair as often as its two stimuli together.

All are centred by the means of the set. `mlem_core.inference.influence` takes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlem_core.base.typing import Counted, FloatArray, IntArray
from mlem_core.pairs.designs import pair_places
from mlem_core.pairs.moment_sums import TILE
from mlem_core.pairs.moments import PairMoments, SetMoments
from mlem_core.pairs.pair_columns import PairColumns

# Gram matrices of so many units are held at once that they have about this many numbers.
MOST_NUMBERS = 2**25


@dataclass(frozen=True)
class UnitSums:
    """Sums over the pairs of each of n_units units, of the layers of `moments`.

    Matrices are, as in `PairMoments`, the columns that are no sums of products, the squared
    distances of the layers, and their ranks. Squared distances are summed over training pairs.

    Attributes
    ----------
    moments : of the same pairs
    members : (n_units, n_stimuli) 1 where a stimulus is of a unit, else 0
    training : (n_folds, n_units, n_matrices, n_columns + 1) sums of products of a matrix with the
        columns over the pairs that train the model of a fold; the last are sums of the matrix
    tested : (n_folds, n_units, n_pairwise + n_layers, n_columns + 1) the same over the pairs that
        test a fold, without the squared distances
    all_ranks : (n_units, n_layers, n_layers) products of the ranks of two layers over all pairs
    all_totals : (n_units, n_layers) sums of the ranks over all pairs
    tested_ranks : (n_folds, n_units, n_layers, n_layers) products over the pairs that test a fold
    """

    moments: PairMoments
    members: csr_array
    training: FloatArray
    tested: FloatArray
    all_ranks: FloatArray
    all_totals: FloatArray
    tested_ranks: FloatArray

    @property
    def n_units(self) -> int:
        return int(self.members.shape[0])

    @cached_property
    def _training_moments(self) -> list[SetMoments]:
        """For each fold moments over the pairs that train its model."""
        moments = self.moments
        return [moments.within(moments.training(fold)) for fold in range(moments.n_folds)]

    @cached_property
    def _tested_moments(self) -> list[SetMoments]:
        """For each fold moments over the pairs that test it."""
        return [self.moments.inside_fold(fold) for fold in range(self.moments.n_folds)]

    def rank_products(self, fold: int | None = None) -> FloatArray:
        """(n_units, n_layers, n_layers) products of the ranks of two layers.

        Over all pairs; with a fold over those that test it.
        """
        moments, products, totals = self.moments, self.all_ranks, self.all_totals
        if fold is None:
            blocks = np.ones(moments.n_blocks, dtype=bool)
            means = moments.within(blocks).rank_means
        else:
            products = self.tested_ranks[fold]
            totals = self.tested[fold, :, moments.n_pairwise :, -1]
            blocks, means = moments.tested(fold), self._tested_moments[fold].rank_means
        centred = products - totals[:, :, None] * means - means[:, None] * totals[:, None, :]
        return centred + np.multiply.outer(self._counts(blocks, fold), np.outer(means, means))

    def training_products(self, fold: int, target: str = "rank") -> FloatArray:
        """(n_units, n_columns, n_layers) products of the columns with the target.

        Over the pairs that train the model of a fold; the target is "rank" or "distance".
        """
        moments, within = self.moments, self._training_moments[fold]
        D, L = moments.n_pairwise, moments.n_layers
        layers, means = slice(-L, None), within.rank_means
        if target == "distance":
            layers, means = slice(D, D + L), within.distance_means
        blocks, sums = moments.training(fold), self.training[fold]
        return self._products(blocks, None, sums, layers, within.means, means)

    def tested_products(self, fold: int) -> FloatArray:
        """(n_units, n_columns, n_layers) products of the columns with the ranks.

        Over the pairs that test a fold.
        """
        within, layers = self._tested_moments[fold], slice(self.moments.n_pairwise, None)
        blocks, sums = self.moments.tested(fold), self.tested[fold]
        return self._products(blocks, fold, sums, layers, within.means, within.rank_means)

    def _products(
        self,
        blocks: NDArray[np.bool_],
        fold: int | None,
        sums: FloatArray,
        layers: slice,
        means: FloatArray,
        target_means: FloatArray,
    ) -> FloatArray:
        """Centred products over the pairs of blocks; `sums` as `training` of a fold."""
        totals, counts = self._column_totals(blocks, fold, sums), self._counts(blocks, fold)
        of_layers = sums[:, layers]
        centred = np.swapaxes(of_layers[..., :-1], 1, 2) - totals[:, :, None] * target_means
        centred -= means[:, None] * of_layers[:, None, :, -1]
        centred += np.multiply.outer(counts, np.outer(means, target_means))
        return np.asarray(centred)

    def training_grams(self, fold: int) -> Iterator[tuple[slice, FloatArray]]:
        """Some units, and (n_column_pairs, n) products of two columns of these, until all are done.

        Over the pairs that train the model of a fold; of two columns in the order of
        `np.triu_indices`.
        """
        blocks, means = self.moments.training(fold), self._training_moments[fold].means
        return self._grams(blocks, None, means, self.training[fold])

    def tested_grams(self, fold: int) -> Iterator[tuple[slice, FloatArray]]:
        """The same over the pairs that test a fold."""
        blocks, means = self.moments.tested(fold), self._tested_moments[fold].means
        return self._grams(blocks, fold, means, self.tested[fold])

    @cached_property
    def _forms(self) -> _GramForms:
        return _GramForms.from_columns(self.moments.columns)

    def _parts(self) -> list[slice]:
        """Units whose Gram matrices are held together."""
        columns = self.moments.columns
        n_numbers = 2 * len(columns) ** 2 + columns.basis.shape[1] ** 2
        step = max(1, MOST_NUMBERS // n_numbers)
        return [slice(start, start + step) for start in range(0, self.n_units, step)]

    def _counts(self, blocks: NDArray[np.bool_], fold: int | None) -> FloatArray:
        """(n_units,) number of pairs."""
        inside = blocks[self.moments.block]
        by_stimulus = inside * float(inside.sum() - 1)
        first, second = _untested(self.moments, fold)
        if len(first):
            by_stimulus -= _stimulus_sums(first, second, np.ones(len(first)), len(inside))
        return np.asarray(self.members @ by_stimulus)

    def _column_totals(
        self, blocks: NDArray[np.bool_], fold: int | None, sums: FloatArray
    ) -> FloatArray:
        """(n_units, n_columns) sums of the columns; `sums` as `training` of a fold."""
        columns = self.moments.columns
        inside = blocks[self.moments.block]
        total = columns.basis[inside].sum(axis=0)
        by_term = columns.basis[:, columns.left] * total[columns.right]
        products = columns.sum_terms(by_term) - columns.basis @ columns.same_stimulus_values
        by_stimulus = np.zeros((len(inside), len(columns)))
        by_stimulus[:, columns.product_columns] = products * inside[:, None]
        first, second = _untested(self.moments, fold)
        if len(first):
            z = columns.pair_values(first, second)
            by_stimulus -= _stimulus_sums(first, second, z, len(inside))
        totals = np.asarray(self.members @ by_stimulus)
        for number, column in enumerate(columns.pairwise):
            totals[:, column] = sums[:, number, -1]
        return totals

    def _grams(
        self,
        blocks: NDArray[np.bool_],
        fold: int | None,
        means: FloatArray,
        sums: FloatArray,
    ) -> Iterator[tuple[slice, FloatArray]]:
        moments, columns = self.moments, self.moments.columns
        inside = blocks[moments.block]
        rows, other = np.triu_indices(len(columns))
        place = {column: number for number, column in enumerate(columns.pairwise)}
        all_totals, all_counts = self._column_totals(blocks, fold, sums), self._counts(blocks, fold)
        first, second = _untested(moments, fold)
        # Pairwise columns are without these pairs already.
        z = columns.pair_values(first, second)
        by_products = ~(np.isin(rows, list(place)) | np.isin(other, list(place)))
        for units in self._parts():
            members = self.members[units]
            grams = self._forms.grams(columns, inside, members)
            for column, number in place.items():
                grams[rows == column] = sums[units, number, column:-1].T
                above = (other == column) & ~np.isin(rows, list(place))
                grams[above] = sums[units, number, rows[above]].T
            if len(first):
                # A pair is untested for both of its stimuli.
                share = (members[:, first] + members[:, second]).tocsr()
                for number in range(members.shape[0]):
                    of_unit = slice(share.indptr[number], share.indptr[number + 1])
                    pairs = z[share.indices[of_unit]]
                    untested = (share.data[of_unit, None] * pairs).T @ pairs
                    grams[by_products, number] -= untested[rows, other][by_products]
            totals = all_totals[units].T
            grams -= totals[rows] * means[other, None]
            grams -= means[rows, None] * totals[other]
            grams += np.outer(means[rows] * means[other], all_counts[units])
            yield units, grams


@dataclass(frozen=True)
class _GramForms:
    """Which products of the basis a product of two columns is a sum of, by pairs of their terms.

    A pair of columns has many pairs of terms; those with the same two columns of the basis to their
    left are one entry of a sparse matrix, whose weights are sums over the other stimuli.

    Attributes
    ----------
    first, second : (n_term_pairs,) the terms
    begin : (n_entries,) where those of an entry begin
    rows, columns : (n_entries,) the pair of columns, in the order of `np.triu_indices`, and the
        pair of columns of the basis
    same : (n_column_pairs, n_basis²) what a stimulus with itself has in a product
    """

    first: IntArray
    second: IntArray
    begin: IntArray
    rows: IntArray
    columns: IntArray
    same: csr_array

    @classmethod
    def from_columns(cls, columns: PairColumns) -> _GramForms:
        n_basis, K = columns.basis.shape[1], len(columns)
        first, second = np.nonzero(columns.column[:, None] <= columns.column)
        row = _triangle_places(columns.column[first], columns.column[second], K)
        entry = row * n_basis**2 + columns.left[first] * n_basis + columns.left[second]
        order = np.argsort(entry, kind="stable")
        begin = np.flatnonzero(np.diff(entry[order], prepend=-1))
        rows, places = np.divmod(entry[order][begin], n_basis**2)
        shape = K * (K + 1) // 2, n_basis**2
        return cls(first[order], second[order], begin, rows, places, _same_forms(columns, shape))

    def grams(
        self, columns: PairColumns, inside: NDArray[np.bool_], members: csr_array
    ) -> FloatArray:
        """(n_column_pairs, n_units) of columns that are sums of products; 0 of others.

        Over the pairs of the stimuli of each unit with those `inside` (n_stimuli,), if they are
        too.
        """
        basis, right, sign = columns.basis, columns.right, columns.sign
        total = basis[inside].T @ basis[inside]
        by_pair = total[right[self.first], right[self.second]] * sign[self.first]
        by_pair *= sign[self.second]
        data = np.add.reduceat(by_pair, self.begin) if len(self.begin) else by_pair
        weights = csr_array((data, (self.rows, self.columns)), shape=self.same.shape)
        moments = np.empty((basis.shape[1] ** 2, members.shape[0]))
        for number in range(members.shape[0]):
            stimuli = members.indices[members.indptr[number] : members.indptr[number + 1]]
            phi = basis[stimuli[inside[stimuli]]]
            moments[:, number] = (phi.T @ phi).ravel()
        return np.asarray((weights - self.same) @ moments)


def _triangle_places(first: IntArray, second: IntArray, n: int) -> IntArray:
    """Places of pairs first <= second of n in the order of `np.triu_indices`."""
    return first * n - first * (first - 1) // 2 + second - first


def _same_forms(columns: PairColumns, shape: tuple[int, int]) -> csr_array:
    """What a stimulus with itself has in the product of two columns, see `_GramForms`."""
    basis, product = np.nonzero(columns.same_stimulus_values)
    value = columns.same_stimulus_values[basis, product]
    column = columns.product_columns[product]
    first, second = np.nonzero(column[:, None] <= column)
    rows = _triangle_places(column[first], column[second], len(columns))
    places = basis[first] * columns.basis.shape[1] + basis[second]
    return csr_array((value[first] * value[second], (rows, places)), shape=shape)


def _untested(moments: PairMoments, fold: int | None) -> tuple[IntArray, IntArray]:
    """Pairs of a fold that do not test it; none without a fold."""
    if fold is None or moments.untested is None:
        none = np.empty(0, dtype=np.int64)
        return none, none
    of_fold = moments.folds[moments.untested.first] == fold
    return moments.untested.first[of_fold], moments.untested.second[of_fold]


def _stimulus_sums(
    first: IntArray, second: IntArray, values: FloatArray, n_stimuli: int
) -> FloatArray:
    """(n_stimuli, ...) sums of values (n_pairs, ...) over the pairs of each stimulus."""
    sums = np.zeros((n_stimuli, *values.shape[1:]))
    np.add.at(sums, first, values)
    np.add.at(sums, second, values)
    return sums


def unit_sums(
    moments: PairMoments,
    is_member: NDArray[Any],
    ranks: Sequence[NDArray[np.uint32]],
    squared: Sequence[FloatArray] | None = None,
    progress: Counted | None = None,
) -> UnitSums:
    """Sums over the pairs of the stimuli of each unit.

    Parameters
    ----------
    moments : of the same pairs of the same layers
    is_member : (n_units, n_stimuli) whether a stimulus is of a unit
    ranks : for each layer (n_pairs,) twice the average ranks of all pairs, in condensed order
    squared : for each layer (n_pairs,) the squared distances; None where no metric is fitted to
        them: they are then 0
    progress : called with the number of stimuli done and their number
    """
    members = csr_array(np.asarray(is_member, dtype=np.float64))
    columns, n, L, D = moments.columns, moments.n_stimuli, len(ranks), moments.n_pairwise
    n_units, n_folds, K = members.shape[0], moments.n_folds, len(columns)
    training = np.zeros((n_folds, n_units, D + 2 * L, K + 1))
    tested = np.zeros((n_folds, n_units, D + L, K + 1))
    all_ranks, all_totals = np.zeros((n_units, L, L)), np.zeros((n_units, L))
    tested_ranks = np.zeros((n_folds, n_units, L, L))
    step = max(1, TILE // ((D + 2 * L + 1) * n))
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        with_all = np.broadcast_arrays(rows[:, None], np.arange(n))
        tile = _matrices(moments, ranks, squared, *with_all)
        of_rows, of_ranks = members[:, rows], tile[:, D + L :]
        all_ranks += _added(of_rows, of_ranks @ np.swapaxes(of_ranks, 1, 2))
        all_totals += of_rows @ of_ranks.sum(axis=2)
        by_block = _sums_by_block(moments, tile)
        block = moments.block[rows]
        for fold in range(n_folds):
            blocks = moments.training(fold)
            stimuli_in_block = np.flatnonzero(blocks[block])
            sums = by_block[blocks][:, stimuli_in_block].sum(axis=0)
            products = _column_products(columns, rows[stimuli_in_block], sums)
            training[fold] += _added(of_rows[:, stimuli_in_block], products)
            blocks = moments.tested(fold)
            stimuli_in_block = np.flatnonzero(blocks[block])
            sums = by_block[blocks][:, stimuli_in_block].sum(axis=0)
            products = _column_products(columns, rows[stimuli_in_block], sums)
            tested[fold, :, :D] += _added(of_rows[:, stimuli_in_block], products[:, :D])
            tested[fold, :, D:] += _added(of_rows[:, stimuli_in_block], products[:, D + L :])
            inside = of_ranks[stimuli_in_block][:, :, blocks[moments.block]]
            tested_ranks[fold] += _added(
                of_rows[:, stimuli_in_block], inside @ np.swapaxes(inside, 1, 2)
            )
        if progress is not None:
            progress(int(rows[-1]) + 1, n)
    for fold in range(n_folds):
        first, second = _untested(moments, fold)
        if not len(first):
            continue
        values = _matrices(moments, ranks, squared, first, second)
        values = np.delete(values, np.arange(D, D + L), axis=1)
        z = np.column_stack((columns.pair_values(first, second), np.ones(len(first))))
        by_stimulus = _stimulus_sums(first, second, values[:, :, None] * z[:, None], n)
        tested[fold] -= _added(members, by_stimulus)
        products = values[:, D:, None] * values[:, None, D:]
        by_stimulus = _stimulus_sums(first, second, products, n)
        tested_ranks[fold] -= _added(members, by_stimulus)
    return UnitSums(moments, members, training, tested, all_ranks, all_totals, tested_ranks)


def _matrices(
    moments: PairMoments,
    ranks: Sequence[NDArray[np.uint32]],
    squared: Sequence[FloatArray] | None,
    first: IntArray,
    second: IntArray,
) -> FloatArray:
    """(n, n_matrices, ...) of pairs of stimuli (n, ...), see `PairMoments`; 0 of one with itself.

    Ranks are centred. The other parameters are those of `unit_sums`.
    """
    D, L, same = moments.n_pairwise, len(ranks), first == second
    places = pair_places(first, second, moments.n_stimuli)
    places[same] = 0
    values = np.zeros((len(first), D + 2 * L, *first.shape[1:]))
    for number, column in enumerate(moments.columns.pairwise.values()):
        values[:, number] = column.pair_values(first, second)
    for layer, distances in enumerate(() if squared is None else squared):
        values[:, D + layer] = distances[places]
    for layer, doubled in enumerate(ranks):
        values[:, D + L + layer] = doubled[places] / 2.0 - (len(doubled) + 1) / 2
    np.moveaxis(values, 1, -1)[same] = 0.0
    return values


def _sums_by_block(moments: PairMoments, tile: FloatArray) -> FloatArray:
    """(n_blocks, n_rows, n_matrices, n_basis + n_pairwise) sums over the stimuli of each block.

    Of products with the basis, then with the columns that are no sums of products; `tile` is
    (n_rows, n_matrices, n_stimuli), as `_matrices` gives it.
    """
    basis, D = moments.columns.basis, moments.n_pairwise
    sums = np.empty((moments.n_blocks, *tile.shape[:2], basis.shape[1] + D))
    for block, block_sums in enumerate(sums):
        others = np.flatnonzero(moments.block == block)
        values = tile[:, :, others]
        block_sums[:, :, : basis.shape[1]] = values @ basis[others]
        block_sums[:, :, basis.shape[1] :] = values @ np.swapaxes(values[:, :D], 1, 2)
    return sums


def _column_products(columns: PairColumns, stimuli: IntArray, sums: FloatArray) -> FloatArray:
    """(n_stimuli, n_matrices, n_columns + 1) products with the columns, and sums.

    `sums` are those of `_sums_by_block` over some blocks.
    """
    products = np.empty((*sums.shape[:2], len(columns) + 1))
    left = columns.basis[stimuli][:, None, columns.left]
    products[:, :, columns.product_columns] = columns.sum_terms(left * sums[:, :, columns.right])
    products[:, :, list(columns.pairwise)] = sums[:, :, columns.basis.shape[1] :]
    products[:, :, -1] = sums[:, :, 0]
    return products


def _added(members: csr_array, values: FloatArray) -> FloatArray:
    """(n_units, ...) sums of values (n_stimuli, ...) over the stimuli of each unit."""
    flat = values.reshape(len(values), math.prod(values.shape[1:]))  # there may be no stimuli
    return np.asarray(members @ flat).reshape(members.shape[0], *values.shape[1:])
