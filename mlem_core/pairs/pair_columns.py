"""Columns of the pairs of stimuli, made of the features: what a metric weighs.

A column has a number for every pair of stimuli. Nearly every column is a sum of a few products of
what each of the two stimuli has,

    (x_i - x_j)² = x_i² · 1 - 2 x_i x_j + 1 · x_j²                        a numeric feature
    1[a_i ≠ a_j] = 1 · 1 - Σ_a h_a(i) h_a(j)                              same or different
    1[{a_i, a_j} = {a, b}] = h_a(i) h_b(j) + h_b(i) h_a(j)                two of its values

with h_a(i) = 1 where stimulus i has the value a, else 0. Sums over pairs then follow from sums
over stimuli, exactly and without looking at a pair (`mlem_core.pairs.moments`). Products of two
feature distances and features that are given by distances are no such sums: these columns are
computed pair by pair.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.column_builder import CodedFeature, ColumnBuilder
from mlem_core.pairs.columns import MISSING, FeatureColumn, coding
from mlem_core.pairs.feature_distances import DIGITS, FeatureDistance, PairwiseColumn

# Pairs whose columns are looked up at once: what they need stays in a processor's cache.
LOOKED_UP = 2**16
# Pairs and columns that are held at once where weighted sums of them are enough.
HELD = 2**22


def number_of_columns(columns: Sequence[FeatureColumn], interactions: bool = False) -> int:
    """Number of columns that pairs of stimuli with these features have."""
    n_values = [len(column.names) for column in columns]
    n_columns = sum(n * (n + 1) // 2 or 1 for n in n_values)
    if interactions and not any(n_values):
        n_columns += len(columns) * (len(columns) - 1) // 2
    return n_columns


@dataclass(frozen=True)
class PairColumns:
    """Columns of all pairs of n_stimuli stimuli.

    A column c that is a sum of products is z_c(i, j) = Σ_t sign_t φ_left(t)(i) φ_right(t)(j) over
    its terms t, in both orders of the two stimuli. The other columns are in `pairwise`.

    Attributes
    ----------
    features : (n_features,) names
    kinds : kind of each feature, see `mlem_core.pairs.columns.FeatureColumn`
    value_names : names of the values of each feature that is coded by value, else ()
    distances : of the stimuli on each feature
    interactions : whether products of two feature distances are columns too
    names : (n_columns,) name of each column
    first_feature, second_feature : (n_columns,) the features of each column, by number; the same
        but for products of two
    basis : (n_stimuli, n_basis) what each stimulus has; the first is 1 for all
    left, right : (n_terms,) the two columns of the basis that a term multiplies
    sign : (n_terms,)
    column : (n_terms,) the column that each term belongs to, ascending
    pairwise : columns that are no sums of products, by number, ascending
    as_distance : (n_columns,) what each column counts in the squared distance of its feature: 1;
        of two values of a feature that is coded by value their squared distance
    basis_feature : (n_basis,) the feature that a column of the basis belongs to, -1 for the first
    """

    features: tuple[str, ...]
    kinds: tuple[str, ...]
    value_names: tuple[tuple[str, ...], ...]
    distances: tuple[FeatureDistance, ...]
    interactions: bool
    names: tuple[str, ...]
    first_feature: IntArray
    second_feature: IntArray
    basis: FloatArray
    left: IntArray
    right: IntArray
    sign: FloatArray
    column: IntArray
    pairwise: dict[int, PairwiseColumn]
    as_distance: FloatArray
    basis_feature: IntArray

    @classmethod
    def from_features(
        cls, columns: Sequence[FeatureColumn], missing: str = "ignore", interactions: bool = False
    ) -> PairColumns:
        """Columns of the pairs of the stimuli that have these features.

        Parameters
        ----------
        columns : n_features features of n_stimuli stimuli, some of them coded by value
        missing : "ignore": a missing value is at distance 0 from every value (Jalouzot et al. 2024,
            section 2.1.1); "level": missing is a value of its own, at distance 1 from all others
        interactions : also 2 Δ_f Δ_g of every two features (Jalouzot et al. 2024, appendix D)

        Raises InputError: an unknown policy, no features, interactions of features that are coded
        by value, or more than `MAX_COLUMNS` columns.
        """
        check_choice("policy for missing values", missing, MISSING)
        if not columns:
            raise InputError("no feature is left; choose at least one.")
        n_stimuli = len(columns[0].values)
        if n_stimuli < 2:
            raise InputError(f"found {n_stimuli} stimuli; at least 2 are needed to form a pair.")
        if interactions and any(column.names for column in columns):
            raise InputError(
                "interactions need features that are coded as same or different, and some are "
                "coded by value; choose no interactions, or no values."
            )
        coded = [CodedFeature.from_column(column, missing) for column in columns]
        return cls.from_coded(n_stimuli, coded, interactions)

    @classmethod
    def from_coded(
        cls, n_stimuli: int, coded: Sequence[CodedFeature], interactions: bool
    ) -> PairColumns:
        """Columns of the pairs of the stimuli that have these features.

        Raises InputError: more than `MAX_COLUMNS` columns.
        """
        builder = ColumnBuilder(n_stimuli)
        for number, feature in enumerate(coded):
            builder.add_feature(number, feature)
        if interactions:
            builder.add_interactions(coded)
        builder.check_number()
        terms = np.array(builder.terms, dtype=np.float64).reshape(-1, 4)
        return cls(
            features=tuple(feature.name for feature in coded),
            kinds=tuple(feature.kind for feature in coded),
            value_names=tuple(feature.value_names for feature in coded),
            distances=tuple(feature.distance for feature in coded),
            interactions=interactions,
            names=tuple(builder.names),
            first_feature=np.array(builder.first_feature, dtype=np.int64),
            second_feature=np.array(builder.second_feature, dtype=np.int64),
            basis=np.stack(builder.basis, axis=1),
            left=terms[:, 0].astype(np.int64),
            right=terms[:, 1].astype(np.int64),
            sign=terms[:, 2],
            column=terms[:, 3].astype(np.int64),
            pairwise=builder.pairwise,
            as_distance=np.array(builder.as_distance),
            basis_feature=np.array(builder.basis_feature, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.names)

    def select_stimuli(self, stimuli: IntArray) -> PairColumns:
        """Columns of the pairs of some of the stimuli (n,) alone."""
        coded = [
            feature._replace(distance=feature.distance.select_stimuli(stimuli))
            for feature in self._coded
        ]
        return self.from_coded(len(stimuli), coded, self.interactions)

    @property
    def _coded(self) -> list[CodedFeature]:
        each = zip(self.features, self.kinds, self.value_names, self.distances, strict=True)
        return list(itertools.starmap(CodedFeature, each))

    def as_one_feature(self) -> PairColumns:
        """The same columns as those of one feature alone, for what all features do together."""
        none = np.zeros(len(self.names), dtype=np.int64)
        return replace(
            self,
            features=("all features",),
            kinds=("",),
            value_names=((),),
            first_feature=none,
            second_feature=none,
            basis_feature=np.minimum(self.basis_feature, 0),
        )

    def with_feature(self, feature: FeatureColumn, missing: str) -> PairColumns:
        """Columns with those of one more feature of the same stimuli.

        Raises InputError: more than `MAX_COLUMNS` columns; interactions with a feature that is
        coded by value.
        """
        if self.interactions and feature.names:
            raise InputError("interactions need features that are coded as same or different.")
        coded = [*self._coded, CodedFeature.from_column(feature, missing)]
        return self.from_coded(len(self.basis), coded, self.interactions)

    def drop_interactions(self) -> ChosenColumns:
        """Columns without the products of two feature distances."""
        return self.select_features(range(len(self.features)), interactions=False)

    def select_features(
        self, features: Sequence[int], *, interactions: bool | None = None
    ) -> ChosenColumns:
        """Columns of some features alone, by number, ascending.

        `interactions` is False for those without products of two; None leaves it as it is.
        """
        keep = np.asarray(features, dtype=np.int64)
        interactions = self.interactions if interactions is None else interactions
        selected = np.isin(self.first_feature, keep) & np.isin(self.second_feature, keep)
        if not interactions:
            selected &= self.first_feature == self.second_feature
        numbers = np.flatnonzero(selected)
        basis = np.flatnonzero(np.isin(self.basis_feature, [-1, *keep]))
        every = self._coded
        columns = self.from_coded(len(self.basis), [every[f] for f in keep], interactions)
        assert columns.basis.shape[1] == len(basis), "values that no stimulus has any more"
        return ChosenColumns(columns, numbers, basis)

    def with_values_of(self, givers: IntArray, features: Sequence[int]) -> PairColumns:
        """Columns where each stimulus has the values of another, of some features alone.

        Parameters
        ----------
        givers : (n_stimuli,) the stimulus whose value each has
        features : by number
        """
        basis, distances = self.basis.copy(), list(self.distances)
        of_features = np.isin(self.basis_feature, features)
        basis[:, of_features] = basis[givers][:, of_features]
        for feature in features:
            distances[feature] = distances[feature].select_stimuli(givers)
        pairwise = {
            number: self.recoded_pairwise(number, givers, features) for number in self.pairwise
        }
        return replace(self, basis=basis, distances=tuple(distances), pairwise=pairwise)

    def recoded_pairwise(
        self, number: int, givers: IntArray, features: Sequence[int]
    ) -> PairwiseColumn:
        """A column that is no sum of products, see `with_values_of`."""
        first = int(self.first_feature[number]) in features
        second = int(self.second_feature[number]) in features
        return self.pairwise[number].with_values_of(givers, first=first, second=second)

    @property
    def part(self) -> IntArray:
        """(n_columns,) part of each column, ascending: its feature; with interactions itself."""
        return np.arange(len(self.names)) if self.interactions else self.first_feature

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of what importance permutes as a whole: features; with interactions the columns."""
        return self.names if self.interactions else self.features

    @property
    def by_value(self) -> tuple[str, ...]:
        """Features that are coded by value."""
        both = zip(self.features, self.value_names, strict=True)
        return tuple(name for name, values in both if values)

    @property
    def coding(self) -> str:
        """Coding of the features, in words that follow "coded"."""
        return coding(self.kinds, self.by_value)

    @cached_property
    def product_columns(self) -> IntArray:
        """(n_products,) numbers of the columns that are sums of products, ascending."""
        places = [c for c in range(len(self.names)) if c not in self.pairwise]
        return np.array(places, dtype=np.int64)

    @cached_property
    def starts(self) -> IntArray:
        """(n_products,) first term of each column that is a sum of products."""
        return np.flatnonzero(np.diff(self.column, prepend=-1))

    @cached_property
    def same_stimulus_values(self) -> FloatArray:
        """(n_basis, n_products) z(i, i) = basis @ this: 0 but for pairs of one value."""
        matrix = np.zeros((self.basis.shape[1], len(self.product_columns)))
        place = np.repeat(np.arange(len(self.starts)), np.diff([*self.starts, len(self.column)]))
        # Only terms with the constant count: of two different values no stimulus has both, and
        # differences of a stimulus from itself are 0.
        with_constant = np.minimum(self.left, self.right) == 0
        spread = (np.bincount(place) == 2) & (np.bincount(place, with_constant) == 2)
        for term in np.flatnonzero(spread[place] & (self.left > 0)):
            matrix[self.left[term], place[term]] = 2.0
        return matrix

    def sum_terms(self, by_term: FloatArray) -> FloatArray:
        """(..., n_products) signed sums of numbers (..., n_terms) over the terms of each column."""
        if not len(self.starts):
            return np.zeros((*by_term.shape[:-1], 0))
        return np.asarray(np.add.reduceat(by_term * self.sign, self.starts, axis=-1))

    def pair_values(self, first: IntArray, second: IntArray) -> FloatArray:
        """(n_pairs, n_columns) values of all columns for pairs of stimuli."""
        # The values of a column stand together.
        values = np.empty((len(self.names), len(first)))
        for start in range(0, len(first), LOOKED_UP):
            part = slice(start, start + LOOKED_UP)
            one, other = np.asarray(first[part], np.intp), np.asarray(second[part], np.intp)
            for feature, distance in enumerate(self.distances):
                own = values[self._columns_of_feature[feature], part]
                if self.value_names[feature]:
                    _fill_values(own, distance, one, other)
                else:
                    distance.fill_squares(one, other, own[0])
            for number in self._products_of_features:
                values[number, part] = self.pairwise[number].pair_values(one, other)
        return values.T

    @cached_property
    def _columns_of_feature(self) -> tuple[slice, ...]:
        """The columns of each feature alone, which stand together."""
        alone = self.first_feature[self.first_feature == self.second_feature]
        edges = np.searchsorted(alone, np.arange(len(self.features) + 1))
        return tuple(slice(*ends) for ends in itertools.pairwise(edges.tolist()))

    @cached_property
    def _products_of_features(self) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self.first_feature != self.second_feature).tolist())

    def predictions(self, weights: FloatArray, first: IntArray, second: IntArray) -> FloatArray:
        """(n_predictions, n_pairs) weighted sums of the columns for pairs of stimuli.

        `weights` are (n_predictions, n_columns).
        """
        # Of a feature that is coded by value, what two values predict is looked up.
        tables = [
            (distance, self.value_table(feature, weights))
            for feature, distance in enumerate(self.distances)
            if self.value_names[feature] and weights[:, self._columns_of_feature[feature]].any()
        ]
        used = np.asarray(weights.any(axis=0))
        for feature, names in enumerate(self.value_names):
            if names:
                used[self._columns_of_feature[feature]] = False
        found = np.zeros((len(weights), len(first)))
        step = max(1, min(LOOKED_UP, HELD // max(1, int(used.sum()))))
        for start in range(0, len(first), step):
            part = slice(start, start + step)
            one, other = np.asarray(first[part], np.intp), np.asarray(second[part], np.intp)
            values = np.empty((int(used.sum()), len(one)))
            for row, number in zip(values, np.flatnonzero(used).tolist(), strict=True):
                if number in self._products_of_features:
                    row[:] = self.pairwise[number].pair_values(one, other)
                else:
                    self.distances[self.first_feature[number]].fill_squares(one, other, row)
            found[:, part] = weights[:, used] @ values
            for distance, table in tables:
                places = distance.places(one, other)
                for row, predicted in zip(found[:, part], table, strict=True):
                    row += predicted.take(places)
        return found

    def part_codes(self, part: int, first: IntArray, second: IntArray) -> IntArray:
        """(n_pairs,) number of the value that a part of the columns has for pairs of stimuli.

        `part` is one of `parts`, by number.
        """
        features = part, part
        if self.interactions:
            features = int(self.first_feature[part]), int(self.second_feature[part])
        one, other = (self._pair_classes[feature] for feature in features)
        if one is None or other is None:
            weights = np.where(self.part == part, 1.0, 0.0)[None]
            values = np.round(self.predictions(weights, first, second)[0], DIGITS)
            return np.unique(values, return_inverse=True)[1].astype(np.int64)
        number = np.arange(len(one.values))
        if one is not other:
            products = np.round(np.outer(one.values, other.values), DIGITS)
            number = np.unique(products, return_inverse=True)[1].ravel()
        codes = np.empty(len(first), dtype=np.int64)
        for start in range(0, len(first), LOOKED_UP):
            at = slice(start, start + LOOKED_UP)
            own = one.pair_values(first[at], second[at])
            if one is not other:
                own = own * len(other.values) + other.pair_values(first[at], second[at])
            codes[at] = number[own]
        return codes

    @cached_property
    def _pair_classes(self) -> tuple[PairClasses | None, ...]:
        each = zip(self.distances, self.value_names, strict=True)
        return tuple(PairClasses.from_distance(distance, bool(names)) for distance, names in each)

    def value_table(self, feature: int, weights: FloatArray) -> FloatArray:
        """(n_predictions, n_values, n_values) sums of the columns of a feature coded by value.

        `weights` are (n_predictions, n_columns).
        """
        n_values = len(self.value_names[feature])
        value_weights = weights[:, self._columns_of_feature[feature]]
        a, b = np.triu_indices(n_values, 1)
        table = np.zeros((len(weights), n_values, n_values))
        table[:, a, b] = table[:, b, a] = value_weights[:, : len(a)]
        of_value = value_weights[:, len(a) :]
        return table + of_value[:, :, None] + of_value[:, None, :]


@dataclass(frozen=True)
class PairClasses:
    """Classes of the pairs of stimuli by what a feature tells of them.

    Attributes
    ----------
    distance : of the stimuli, with codes
    table : (n_codes, n_codes) class of every two codes
    values : (n_classes,) distance of each class
    """

    distance: FeatureDistance
    table: IntArray
    values: FloatArray

    @classmethod
    def from_distance(cls, distance: FeatureDistance, by_value: bool) -> PairClasses | None:
        """Classes of one distance, or by value of two values; None of too many numbers."""
        coded = distance.coded()
        if coded is None or coded.table is None:
            return None
        n_codes = len(coded.table)
        if by_value:
            a, b = np.triu_indices(n_codes)
            table = np.zeros((n_codes, n_codes), dtype=np.int64)
            table[a, b] = table[b, a] = np.arange(len(a))
            return cls(coded, table, coded.table[a, b])
        values, inverse = np.unique(np.round(coded.table, DIGITS), return_inverse=True)
        return cls(coded, inverse.reshape(n_codes, n_codes).astype(np.int64), values)

    def pair_values(self, first: IntArray, second: IntArray) -> IntArray:
        """(n_pairs,) class of pairs of stimuli."""
        return self.table.take(self.distance.places(first, second))


def _fill_values(
    values: FloatArray, distance: FeatureDistance, first: IntArray, second: IntArray
) -> None:
    """Fill the columns (n_columns, n_pairs) of a feature that is coded by value."""
    assert distance.codes is not None and distance.table is not None
    n_values = len(distance.table)
    a, b = np.triu_indices(n_values, 1)
    column = np.zeros((n_values, n_values), dtype=np.int64)
    column[a, b] = column[b, a] = np.arange(len(a))
    one, other = distance.codes.take(first), distance.codes.take(second)
    pair = np.arange(len(first))
    values[:] = 0.0
    differ = np.flatnonzero(one != other)
    values[column[one[differ], other[differ]], differ] = 1.0
    values[len(a) + one, pair] += 1.0
    values[len(a) + other, pair] += 1.0


class ChosenColumns(NamedTuple):
    """Columns of some features, and which they are among those of all features.

    Attributes
    ----------
    numbers : (n_chosen,) numbers of the columns
    basis : (n_basis_chosen,) numbers of the columns of the basis
    """

    columns: PairColumns
    numbers: IntArray
    basis: IntArray
