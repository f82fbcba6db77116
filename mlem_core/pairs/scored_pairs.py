"""The pairs that test each fold: the only ones that are looked at again once moments are summed.

Spearman's ρ of a prediction needs the order of the predictions of single pairs. Where the pairs
inside a fold have few distinct rows of columns (eight categorical features of 2,000 words: about
500 rows), pairs of one row are one group: its predictions are equal, and its ranks are summed.
Elsewhere every pair is a group of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.feature_distances import DIGITS
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.ranks import (
    TIE_DIGITS,
    Score,
    few_at_once,
    pair_ranks,
    score_pairs,
    score_patterns,
)

# Pairs are grouped where that leaves at most this part of them.
GROUPED = 0.25
# ... and permuting a part of the columns combines at most so many rows of others with its own.
MOST_COMBINATIONS = 2**22
# So many values of columns of pairs are held; of more, they are computed for each prediction.
MOST_VALUES = 2**24
# Classes in which predictions are ranked where a score is drawn.
CLASSES = 2**15


def group_rows(codes: IntArray) -> tuple[IntArray, IntArray]:
    """The first of each distinct row of codes (n_rows, n_columns) >= 0, and each row's group."""
    if codes.shape[1] == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(len(codes), dtype=np.int64)
    sizes = codes.max(axis=0, initial=0) + 1
    total = np.prod(sizes.astype(object))
    if total >= 2**62:
        # Too many combinations to number: sums of random 64-bit numbers distinguish them.
        rng = np.random.default_rng(0)
        terms = [rng.integers(-(2**62), 2**62, size) for size in sizes]
        keys = np.zeros(len(codes), dtype=np.int64)
        for term, column in zip(terms, codes.T, strict=True):
            keys += term[column]
    else:
        keys = codes @ np.concatenate(([1], np.cumprod(sizes[:-1])))
    if total <= max(len(codes), 2**16):
        # Few enough to look up: several times faster than sorting.
        at = np.full(int(total), -1)
        at[keys[::-1]] = np.arange(len(keys))[::-1]
        present = at >= 0
        return at[present], (np.cumsum(present) - 1)[keys]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.astype(np.int64)


def group_sums_of_columns(group: IntArray, values: FloatArray) -> FloatArray:
    """Sums (..., n_groups) of values (..., n) by the group (n,), from 0 on, of each column."""
    n_groups = int(group.max(initial=-1)) + 1
    rows = np.asarray(values, dtype=np.float64).reshape(math.prod(values.shape[:-1]), len(group))
    sums = [np.bincount(group, row, n_groups) for row in rows]
    return np.reshape(np.array(sums, dtype=np.float64), (*values.shape[:-1], n_groups))


@dataclass(frozen=True)
class FoldPairs:
    """The pairs that test one fold, in groups, with the ranks of n_layers layers among them.

    Attributes
    ----------
    columns : of the pairs
    stimuli : (n,) stimuli of the fold
    first, second : (n_groups,) a pair of each group, as positions in `stimuli`
    counts : (n_groups,) pairs of each group
    rank_sums : (n_layers, n_groups) sums of their centred average ranks among the pairs of the fold
    rank_squares : (n_layers,) sum of the squared ranks
    codes : (n_groups, n_parts) a number for each distinct value of each part of the columns; None
        where pairs are not grouped
    """

    columns: PairColumns
    stimuli: IntArray
    first: IntArray
    second: IntArray
    counts: FloatArray
    rank_sums: FloatArray
    rank_squares: FloatArray
    codes: IntArray | None

    @property
    def is_grouped(self) -> bool:
        return self.codes is not None

    @cached_property
    def values(self) -> FloatArray | None:
        """(n_groups, n_columns) the columns of the pairs; None where they are too many to hold."""
        if len(self.first) * len(self.columns) > MOST_VALUES:
            return None
        return self.columns.pair_values(self.stimuli[self.first], self.stimuli[self.second])

    def predictions(self, weights: FloatArray) -> FloatArray:
        """(..., n_groups) predictions of weights (..., n_columns)."""
        flat = weights.reshape(-1, len(self.columns))
        if self.values is not None:
            predicted = flat @ self.values.T
        else:
            first, second = self.stimuli[self.first], self.stimuli[self.second]
            predicted = self.columns.predictions(flat, first, second)
        return predicted.reshape(*weights.shape[:-1], -1)

    def prediction_ranks(self, predictions: FloatArray) -> FloatArray:
        """(n_predictions, n_groups) centred average ranks, among the pairs of the fold.

        `predictions` are (n_predictions, n_groups).
        """
        n_pairs = float(self.counts.sum())
        ranks = np.empty(predictions.shape)
        for number, values in enumerate(predictions):
            # Predictions from 0 to 1: those that differ by how sums were rounded are equal.
            low = values.min(initial=np.inf)
            span = values.max(initial=-np.inf) - low
            rounded = np.round((values - low) / (span if span > 0 else 1.0), TIE_DIGITS)
            _, tied = np.unique(rounded, return_inverse=True)
            counts = np.bincount(tied, self.counts)
            ranks[number] = (np.cumsum(counts) - (counts - 1) / 2)[tied]
        return ranks - (n_pairs + 1) / 2

    def score(self, predictions: FloatArray) -> Score:
        """ρ and ρ_a (n_layers, n_predictions) of predictions (n_layers, n_predictions, n_groups).

        See `mlem_core.pairs.ranks.score_patterns`.
        """
        if self.is_grouped:
            return score_patterns(predictions, self.counts, self.rank_sums, self.rank_squares)
        return score_pairs(predictions, self.rank_sums, self.rank_squares)

    def drawn_scores(self, predictions: FloatArray) -> FloatArray:
        """ρ (n_layers, n_predictions) of predictions (n_layers, n_predictions, n_pairs).

        Of ungrouped pairs; many are ranked in `CLASSES` classes, which is quicker than sorting and
        off by less than 1e-5.
        """
        n_classes = 0 if len(self.counts) <= CLASSES // 8 else CLASSES
        return score_pairs(predictions, self.rank_sums, self.rank_squares, n_classes).rho

    def scores(self, weights: FloatArray) -> Score:
        """ρ and ρ_a (n_layers, n_predictions) of weights (n_layers, n_predictions, n_columns)."""
        rho, rho_a = np.empty((2, *weights.shape[:2]))
        for layer, layer_weights in enumerate(weights):
            alone = self.select_layers([layer])
            for at in few_at_once(len(layer_weights), len(self.first)):
                score = alone.score(self.predictions(layer_weights[at])[None])
                rho[layer, at], rho_a[layer, at] = score.rho[0], score.rho_a[0]
        return Score(rho, rho_a)

    def select_layers(self, layers: Sequence[int]) -> FoldPairs:
        """The pairs with the ranks of some layers alone, by position."""
        places = list(layers)
        if places == list(range(len(self.rank_squares))):
            return self
        selected = replace(
            self, rank_sums=self.rank_sums[places], rank_squares=self.rank_squares[places]
        )
        if "values" in vars(self):
            vars(selected)["values"] = self.values
        return selected

    def select_groups(self, groups: IntArray) -> FoldPairs:
        """Some of the groups, by number, with nothing but their columns."""
        grouped = replace(
            self,
            first=self.first[groups],
            second=self.second[groups],
            counts=self.counts[groups],
            rank_sums=self.rank_sums[:, groups],
        )
        if self.values is not None:
            vars(grouped)["values"] = self.values[groups]
        return grouped

    def select_columns(self, columns: PairColumns) -> FoldPairs:
        """The pairs with other columns, those of some of the features."""
        number = group_pairs(columns, self.stimuli, self.first, self.second, self.counts)
        if number is None:
            return replace(self, columns=columns, codes=None)
        return replace(
            self,
            columns=columns,
            first=self.first[number.representative],
            second=self.second[number.representative],
            counts=group_sums_of_columns(number.group, self.counts[None])[0],
            rank_sums=group_sums_of_columns(number.group, self.rank_sums),
            codes=number.codes,
        )


# A ceiling needs so many pairs a group on average: a mean of fewer says little of other stimuli.
PAIRS_A_GROUP = 10


def feature_ceilings(tests: ScoredPairs) -> FloatArray:
    """Cross-fitted ceilings (n_layers, n_folds): how far ρ of a function of the features can go.

    √ of the correlation of the ranks inside a fold with the mean ranks of equal pairs inside the
    other folds; 0 where it is below. NaN where pairs are not grouped, or into groups of fewer than
    `PAIRS_A_GROUP` pairs on average.
    """
    n_layers = len(tests.folds[0].rank_squares)
    if not tests.is_grouped or len(tests.folds) < 2:
        return np.full((n_layers, len(tests.folds)), np.nan)
    sizes = [len(fold.counts) for fold in tests.folds]
    if sum(fold.counts.sum() for fold in tests.folds) < PAIRS_A_GROUP * sum(sizes):
        return np.full((n_layers, len(tests.folds)), np.nan)
    weights = np.random.default_rng(0).uniform(1.0, 2.0, len(tests.columns))
    rows = np.concatenate([fold.predictions(weights) for fold in tests.folds])
    group = np.unique(np.round(rows, DIGITS), return_inverse=True)[1]
    fold_of = np.repeat(np.arange(len(sizes)), sizes)
    counts = np.concatenate([fold.counts for fold in tests.folds])
    # Ranks in standard deviations, as folds differ in size.
    sums = []
    for fold in tests.folds:
        spread = np.sqrt(fold.rank_squares / max(fold.counts.sum(), 1.0))[:, None]
        sums.append(
            np.divide(fold.rank_sums, spread, out=np.zeros_like(fold.rank_sums), where=spread > 0)
        )
    by_row = np.concatenate(sums, axis=1)
    total_counts = group_sums_of_columns(group, counts[None])[0]
    total_sums = group_sums_of_columns(group, by_row)
    ceilings = np.zeros((n_layers, len(sizes)))
    for number in range(len(sizes)):
        inside = fold_of == number
        others = total_counts[group[inside]] - counts[inside]
        rest = total_sums[:, group[inside]] - by_row[:, inside]
        means = np.divide(rest, others, out=np.zeros_like(rest), where=others > 0)
        explained = (means * by_row[:, inside]).sum(axis=1) / max(counts[inside].sum(), 1.0)
        ceilings[:, number] = np.sqrt(np.maximum(explained, 0.0))
    return ceilings


@dataclass(frozen=True)
class PairGroups:
    """Groups of pairs with equal columns.

    Attributes
    ----------
    group : (n_pairs,) group of each pair
    representative : (n_groups,) a pair of each
    codes : (n_groups, n_parts), see `FoldPairs`
    """

    group: IntArray
    representative: IntArray
    codes: IntArray


def group_pairs(
    columns: PairColumns,
    stimuli: IntArray,
    first: IntArray,
    second: IntArray,
    counts: FloatArray | None = None,
) -> PairGroups | None:
    """Groups of the pairs with equal columns; None where there are more than `GROUPED` of them.

    Parameters
    ----------
    columns : of the pairs
    stimuli : (n,)
    first, second : (n_pairs,) positions in `stimuli`
    counts : (n_pairs,) how many pairs each stands for; None is one
    """
    limit = GROUPED * (len(first) if counts is None else counts.sum())
    members = stimuli[first], stimuli[second]
    representative, group = np.zeros(1, dtype=np.int64), np.zeros(len(first), dtype=np.int64)
    for part in range(len(columns.parts)):
        codes = columns.part_codes(part, *members)
        representative, group = group_rows(np.stack((codes, group)).T)
        if len(representative) > limit:
            return None
    members = members[0][representative], members[1][representative]
    codes = np.stack(
        [columns.part_codes(part, *members) for part in range(len(columns.parts))], axis=1
    )
    for part, part_codes in enumerate(codes.T):
        rest, _ = group_rows(np.delete(codes, part, axis=1))
        if len(rest) * (part_codes.max(initial=0) + 1) > MOST_COMBINATIONS:
            return None
    return PairGroups(group, representative, codes)


@dataclass(frozen=True)
class ScoredPairs:
    """The pairs that test each fold, see `FoldPairs`.

    Attributes
    ----------
    folds : n_folds of them
    """

    folds: tuple[FoldPairs, ...]

    @property
    def columns(self) -> PairColumns:
        return self.folds[0].columns

    @property
    def is_grouped(self) -> bool:
        """Whether pairs of every fold are grouped."""
        return all(fold.is_grouped for fold in self.folds)

    def select_layers(self, layers: Sequence[int]) -> ScoredPairs:
        """The pairs with the ranks of some layers alone, by position."""
        return ScoredPairs(tuple(fold.select_layers(layers) for fold in self.folds))

    def select_columns(self, columns: PairColumns) -> ScoredPairs:
        """The pairs with other columns, those of some of the features."""
        return ScoredPairs(tuple(fold.select_columns(columns) for fold in self.folds))


@dataclass(frozen=True)
class FoldPairsIndex:
    """Which pairs test a fold and how they are grouped: what the stimuli alone decide.

    Attributes
    ----------
    stimuli : (n,) stimuli of the fold
    places : (n_pairs,) places of the pairs among all pairs of the design, ascending
    designs : (n_designs + 1,) where, among these pairs, those of each independent design begin
    first, second : (n_pairs,) positions in `stimuli`
    groups : None where pairs are not grouped
    """

    columns: PairColumns
    stimuli: IntArray
    places: IntArray
    designs: IntArray
    first: IntArray
    second: IntArray
    groups: PairGroups | None

    @classmethod
    def from_columns(
        cls, columns: PairColumns, stimuli: IntArray, design: PairDesign
    ) -> FoldPairsIndex:
        """The compared pairs among the stimuli (n,) of a fold that test it."""
        places, among = design.among(stimuli)
        designs = np.searchsorted(places, design.starts[design.parts])
        first, second = among.pairs()
        groups = group_pairs(columns, stimuli, first, second)
        return cls(columns, stimuli, places, designs.astype(np.int64), first, second, groups)

    @property
    def n_sums(self) -> int:
        """Number of sums of ranks: of each group in each design, or else of each pair."""
        if self.groups is None:
            return len(self.first)
        return (len(self.designs) - 1) * len(self.groups.representative)

    def rank_sums(self, distances: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums of centred average ranks of a layer, and of their squares.

        `distances` are (n_pairs,), of these pairs, in their order.

        Returns (n_sums,), those of all groups in a design after the other; (n_designs,).
        """
        ranks = (pair_ranks(distances).astype(np.float64) - (len(distances) + 1)) / 2
        parts = [slice(*ends) for ends in itertools.pairwise(self.designs.tolist())]
        squares = np.array([ranks[part] @ ranks[part] for part in parts])
        if self.groups is None:
            return ranks, squares
        group, n_groups = self.groups.group, len(self.groups.representative)
        sums = [np.bincount(group[part], ranks[part], n_groups) for part in parts]
        return np.concatenate(sums).astype(np.float64), squares

    def with_layers(
        self, rank_sums: FloatArray, rank_squares: FloatArray, designs: Sequence[int] | None = None
    ) -> FoldPairs:
        """The pairs with the ranks of layers.

        Parameters
        ----------
        rank_sums : (n_layers, n_sums)
        rank_squares : (n_layers, n_designs)
        designs : numbers of the independent designs whose pairs alone are meant, their ranks being
            those among all; None is all
        """
        numbers = list(range(len(self.designs) - 1) if designs is None else designs)
        ends = [self.designs[number : number + 2] for number in numbers]
        some = np.concatenate([np.arange(*of_design) for of_design in ends])
        codes = None
        if self.groups is None:
            first, second, sums = self.first[some], self.second[some], rank_sums.take(some, 1)
            counts: FloatArray = np.ones(len(first))
        else:
            representative, codes = self.groups.representative, self.groups.codes
            first, second = self.first[representative], self.second[representative]
            group = self.groups.group[some]
            counts = np.bincount(group, minlength=len(codes)).astype(np.float64)
            by_design = rank_sums.reshape(len(rank_sums), len(self.designs) - 1, len(codes))
            sums = by_design[:, numbers].sum(axis=1)
        squares = rank_squares[:, numbers].sum(axis=1)
        if designs is not None:
            means = sums.sum(axis=1) / max(counts.sum(), 1.0)
            sums, squares = sums - means[:, None] * counts, squares - counts.sum() * means**2
        return FoldPairs(self.columns, self.stimuli, first, second, counts, sums, squares, codes)
