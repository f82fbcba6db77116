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
from mlem_core.pairs.moments import LeftOutPairs, PairMoments, SetMoments
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

    def products(self, fold: int, target: str = "rank", *, tested: bool = False) -> FloatArray:
        """(n_units, n_columns, n_layers) products of the columns with the target.

        Over the pairs that train the model of a fold, or those that test it; the target is "rank"
        or, of the former, "distance".
        """
        blocks, untested_fold, within, sums = self._set(fold, tested)
        L, target_means = self.moments.n_layers, within.rank_means
        of_layers = sums[:, -L:]
        if target == "distance":
            of_layers, target_means = sums[:, -2 * L : -L], within.distance_means
        totals = self._column_totals(blocks, untested_fold, sums)
        centred = np.swapaxes(of_layers[..., :-1], 1, 2) - totals[:, :, None] * target_means
        centred -= within.means[:, None] * of_layers[:, None, :, -1]
        counts = self._counts(blocks, untested_fold)
        centred += np.multiply.outer(counts, np.outer(within.means, target_means))
        return np.asarray(centred)

    def _set(
        self, fold: int, tested: bool
    ) -> tuple[NDArray[np.bool_], int | None, SetMoments, FloatArray]:
        """The blocks of the pairs that test a fold, or train its model; the fold, where some of
        these may not test it; moments over these pairs, and sums as `training` of a fold.
        """
        if tested:
            return self.moments.tested(fold), fold, self._tested_moments[fold], self.tested[fold]
        return self.moments.training(fold), None, self._training_moments[fold], self.training[fold]

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
        first, second, *_ = self.moments.left_out_among(blocks, fold)
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
        first, second, *_ = self.moments.left_out_among(blocks, fold)
        if len(first):
            z = columns.pair_values(first, second)
            by_stimulus -= _stimulus_sums(first, second, z, len(inside))
        totals = np.asarray(self.members @ by_stimulus)
        for number, column in enumerate(columns.pairwise):
            totals[:, column] = sums[:, number, -1]
        return totals

    def grams(self, fold: int, *, tested: bool = False) -> Iterator[tuple[slice, FloatArray]]:
        """Some units, and (n_column_pairs, n) products of two columns of these, until all are done.

        Over the pairs that train the model of a fold, or those that test it; of two columns in the
        order of `np.triu_indices`.
        """
        blocks, untested_fold, within, sums = self._set(fold, tested)
        moments, columns, means = self.moments, self.moments.columns, within.means
        inside = blocks[moments.block]
        rows, other = np.triu_indices(len(columns))
        place = {column: number for number, column in enumerate(columns.pairwise)}
        all_totals = self._column_totals(blocks, untested_fold, sums)
        all_counts = self._counts(blocks, untested_fold)
        first, second, *_ = moments.left_out_among(blocks, untested_fold)
        # Pairwise columns are without these pairs already.
        z = columns.pair_values(first, second)
        by_products = ~(np.isin(rows, list(place)) | np.isin(other, list(place)))
        weights = _gram_weights(columns, inside)
        for units in self._parts():
            members = self.members[units]
            basis_moments = np.empty((columns.basis.shape[1] ** 2, members.shape[0]))
            for number in range(members.shape[0]):
                stimuli = members.indices[members.indptr[number] : members.indptr[number + 1]]
                phi = columns.basis[stimuli[inside[stimuli]]]
                basis_moments[:, number] = (phi.T @ phi).ravel()
            grams = weights @ basis_moments
            for column, number in place.items():
                grams[rows == column] = sums[units, number, column:-1].T
                above = (other == column) & ~np.isin(rows, list(place))
                grams[above] = sums[units, number, rows[above]].T
            if len(first):
                # A pair is left out for both of its stimuli.
                share = (members[:, first] + members[:, second]).tocsr()
                for number in range(members.shape[0]):
                    of_unit = slice(share.indptr[number], share.indptr[number + 1])
                    pairs = z[share.indices[of_unit]]
                    left_out = (share.data[of_unit, None] * pairs).T @ pairs
                    grams[by_products, number] -= left_out[rows, other][by_products]
            totals = all_totals[units].T
            grams -= totals[rows] * means[other, None]
            grams -= means[rows, None] * totals[other]
            grams += np.outer(means[rows] * means[other], all_counts[units])
            yield units, grams


def _gram_weights(columns: PairColumns, inside: NDArray[np.bool_]) -> csr_array:
    """(n_column_pairs, n_basis²) what gives sums of products of two columns over pairs of a unit.

    Times Σ φ(i) φ(i)ᵀ, flat, over the stimuli of the unit that are `inside` (n_stimuli,), they are
    the sums over the pairs of these with all that are inside; 0 of columns that are no sums of
    products.
    """
    K, basis = len(columns), columns.basis[inside]
    number = np.zeros((K, K), dtype=np.int64)
    number[np.triu_indices(K)] = np.arange(K * (K + 1) // 2)
    total, together = basis.T @ basis, np.abs(basis).T @ np.abs(basis) > 0
    left, right, column = columns.left, columns.right, columns.column
    # No stimulus has two values of one feature, so that most products of their terms are 0.
    both = together[left[:, None], left] & together[right[:, None], right]
    first, second = np.nonzero(both & (column[:, None] <= column))
    weights = total[right[first], right[second]] * columns.sign[first] * columns.sign[second]
    # Less the product of a stimulus with itself.
    at, product = np.nonzero(columns.same_stimulus_values)
    value, same = columns.same_stimulus_values[at, product], columns.product_columns[product]
    one, two = np.nonzero(same[:, None] <= same)
    weights = np.concatenate((weights, -value[one] * value[two]))
    rows = np.concatenate((number[column[first], column[second]], number[same[one], same[two]]))
    n_basis = basis.shape[1]
    entry = np.concatenate((left[first] * n_basis + left[second], at[one] * n_basis + at[two]))
    return csr_array((weights, (rows, entry)), shape=(K * (K + 1) // 2, n_basis**2))


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
            for totals, blocks in (
                (training, moments.training(fold)),
                (tested, moments.tested(fold)),
            ):
                stimuli_in_block = np.flatnonzero(blocks[block])
                sums = by_block[blocks][:, stimuli_in_block].sum(axis=0)
                products = _column_products(columns, rows[stimuli_in_block], sums)
                if totals is tested:
                    products = np.delete(products, np.arange(D, D + L), axis=1)
                totals[fold] += _added(of_rows[:, stimuli_in_block], products)
            inside = of_ranks[stimuli_in_block][:, :, blocks[moments.block]]
            tested_ranks[fold] += _added(
                of_rows[:, stimuli_in_block], inside @ np.swapaxes(inside, 1, 2)
            )
        if progress is not None:
            progress(int(rows[-1]) + 1, n)
    everything = np.ones(moments.n_blocks, dtype=bool)
    left_out = moments.left_out_among(everything)
    values = _matrices(moments, ranks, squared, left_out.first, left_out.second)[:, D + L :]
    all_totals -= _added(members, _stimulus_sums(left_out.first, left_out.second, values, n))
    all_ranks -= _left_out_products(members, left_out, values, values)
    for fold in range(n_folds):
        for totals, blocks, tested_fold in (
            (training, moments.training(fold), None),
            (tested, moments.tested(fold), fold),
        ):
            left_out = moments.left_out_among(blocks, tested_fold)
            first, second = left_out.first, left_out.second
            values = _matrices(moments, ranks, squared, first, second)
            if totals is tested:
                values = np.delete(values, np.arange(D, D + L), axis=1)
                of_ranks = values[:, D:]
                tested_ranks[fold] -= _left_out_products(members, left_out, of_ranks, of_ranks)
            z = np.column_stack((columns.pair_values(first, second), np.ones(len(first))))
            totals[fold] -= _left_out_products(members, left_out, values, z)
    return UnitSums(moments, members, training, tested, all_ranks, all_totals, tested_ranks)


def _left_out_products(
    members: csr_array, pairs: LeftOutPairs, values: FloatArray, others: FloatArray
) -> FloatArray:
    """(n_units, n, m) products of values (n_pairs, n) and others (n_pairs, m) of left-out pairs."""
    products = values[:, :, None] * others[:, None]
    n_stimuli = members.shape[1]
    return _added(members, _stimulus_sums(pairs.first, pairs.second, products, n_stimuli))


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
