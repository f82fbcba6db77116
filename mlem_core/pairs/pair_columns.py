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
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.labels import SEPARATOR
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.columns import MISSING, FeatureColumn, coding, numbered_values, value_distances
from mlem_core.pairs.terms import term_names

# More columns than this are refused: their moments would not fit into the memory of a laptop.
MAX_COLUMNS = 1_000
# Pairs whose columns are looked up at once: what they need stays in a processor's cache.
LOOKED_UP = 2**16
# Distances of a numeric feature are looked up where it has at most so many numbers.
MOST_NUMBERS = 256
# Digits to which distances must agree to be equal: differences of decimals are not.
DIGITS = 9
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
class FeatureDistance:
    """Distances of the stimuli on one feature, in [0, 1].

    Attributes
    ----------
    codes : (n_stimuli,) row of `table` of each stimulus
    table : (n_codes, n_codes) distance of every two of them; None for a numeric feature. The codes
        of a feature that is coded by value number its values, the missing one last.
    scaled : (n_stimuli,) values of a numeric feature, NaN where missing; None for others
    missing : "ignore": a missing value is at distance 0 from every value; "level": at distance 1
        from every other value
    """

    codes: IntArray | None
    table: FloatArray | None
    scaled: FloatArray | None
    missing: str

    @classmethod
    def of(cls, column: FeatureColumn, missing: str) -> FeatureDistance:
        """Distances on a feature; `missing` is the policy for missing values."""
        numbers, present = numbered_values(column)
        if column.names:
            n_codes = len(column.names)
            # A missing value, the last, is at distance 1 from the others if it is one of its own.
            apart = np.full((n_codes, n_codes), float(missing == "level"))
            apart[: len(present), : len(present)] = value_distances(column, present)
            np.fill_diagonal(apart, 0.0)
            return cls(np.where(numbers < 0, n_codes - 1, numbers), apart, None, missing)
        if column.kind == "ordered":
            padded = np.append(np.asarray(present, dtype=np.float64), np.nan)
            return cls(None, None, padded[numbers], missing)
        n_values = len(present)
        table = np.zeros((n_values + 1, n_values + 1))
        table[:n_values, :n_values] = value_distances(column, present)
        if missing == "level":
            table[n_values, :n_values] = table[:n_values, n_values] = 1.0
        return cls(np.where(numbers < 0, n_values, numbers), table, None, missing)

    def of_stimuli(self, stimuli: IntArray) -> FeatureDistance:
        """Distances of some of the stimuli (n,)."""
        codes = None if self.codes is None else self.codes[stimuli]
        scaled = None if self.scaled is None else self.scaled[stimuli]
        return replace(self, codes=codes, scaled=scaled)

    @property
    def n_stimuli(self) -> int:
        own = self.codes if self.scaled is None else self.scaled
        assert own is not None
        return len(own)

    def between(self, rows: IntArray, others: IntArray) -> FloatArray:
        """(n_rows, n_others) distances of some stimuli from others."""
        if self.scaled is None:
            assert self.codes is not None and self.table is not None
            return self.table[np.ix_(self.codes[rows], self.codes[others])]
        apart = np.abs(self.scaled[rows][:, None] - self.scaled[others])
        return self._with_missing(apart, self.scaled[rows][:, None], self.scaled[others])

    def of_pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        """(n_pairs,) distances of pairs of stimuli."""
        if self.scaled is None:
            assert self.table is not None
            return self.table.take(self.places(first, second))
        one, other = self.scaled.take(first), self.scaled.take(second)
        return self._with_missing(np.abs(one - other), one, other)

    def fill_squares(self, first: IntArray, second: IntArray, values: FloatArray) -> None:
        """Fill values (n_pairs,) with the squared distances of pairs of stimuli."""
        if self.scaled is None:
            # Quicker where places are not checked: all are in the table.
            self._squares.take(self.places(first, second), out=values, mode="clip")
        elif self._has_missing:
            np.square(self.of_pairs(first, second), out=values)
        else:
            np.subtract(self.scaled.take(first), self.scaled.take(second), out=values)
            np.square(values, out=values)

    @cached_property
    def _squares(self) -> FloatArray:
        """(n_codes ** 2,) squares of the flat `table`."""
        assert self.table is not None
        return self.table.ravel() ** 2

    def places(self, first: IntArray, second: IntArray) -> NDArray[np.unsignedinteger]:
        """(n_pairs,) place in the flat `table` of pairs of stimuli, of a feature that has codes."""
        rows, columns = self._flat_places
        return np.asarray(rows.take(first) + columns.take(second))

    @cached_property
    def _flat_places(self) -> tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger]]:
        """(n_stimuli,) start of the row of `table`, and the column, of each stimulus."""
        assert self.codes is not None and self.table is not None
        # The smaller the numbers, the more of them stay in a processor's cache.
        smallest = np.min_scalar_type(self.table.size)
        return (self.codes * len(self.table)).astype(smallest), self.codes.astype(smallest)

    def _with_missing(self, apart: FloatArray, one: FloatArray, other: FloatArray) -> FloatArray:
        if self._has_missing:
            unknown = np.isnan(apart)
            differ = np.isnan(one) != np.isnan(other) if self.missing == "level" else 0.0
            apart = np.where(unknown, differ, apart)
        return apart

    def coded(self) -> FeatureDistance | None:
        """The same distances looked up in a table; None of a feature with too many numbers."""
        if self.scaled is None:
            return self
        values = np.unique(self.scaled)  # NaN once, last
        if len(values) > MOST_NUMBERS:
            return None
        codes = np.searchsorted(values, self.scaled)
        everything = np.arange(len(values))
        alone = FeatureDistance(None, None, values, self.missing)
        return FeatureDistance(codes, alone.between(everything, everything), None, self.missing)

    @cached_property
    def _has_missing(self) -> bool:
        return self.scaled is not None and bool(np.isnan(self.scaled).any())


@dataclass(frozen=True)
class PairwiseColumn:
    """A column that is computed pair by pair: a scaled product of two feature distances."""

    first: FeatureDistance
    second: FeatureDistance
    scale: float = 1.0

    def with_values_of(self, givers: IntArray, *, first: bool, second: bool) -> PairwiseColumn:
        """The column where each stimulus has the first or second value of another (n_stimuli,)."""
        one = self.first.of_stimuli(givers) if first else self.first
        if self.second is self.first and first == second:
            return replace(self, first=one, second=one)
        other = self.second.of_stimuli(givers) if second else self.second
        return replace(self, first=one, second=other)

    def between(self, rows: IntArray, others: IntArray) -> FloatArray:
        """(n_rows, n_others) values for some stimuli with others."""
        apart = self.first.between(rows, others)
        other = apart if self.second is self.first else self.second.between(rows, others)
        return self.scale * apart * other

    def of_pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        """(n_pairs,) values for pairs of stimuli."""
        apart = self.first.of_pairs(first, second)
        other = apart if self.second is self.first else self.second.of_pairs(first, second)
        return self.scale * apart * other


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
    def of(
        cls, columns: Sequence[FeatureColumn], missing: str = "ignore", interactions: bool = False
    ) -> PairColumns:
        """Columns of the pairs of the stimuli that have these features.

        Parameters
        ----------
        columns : n_features features of n_stimuli stimuli, some of them coded by value
        missing : "ignore": a missing value is at distance 0 from every value (Jalouzot et al. 2024,
            section 2.1.1); "level": missing is a value of its own, at distance 1 from all others
        interactions : also 2 Δ_f Δ_g of every two features (Jalouzot et al. 2024, appendix D)

        Raises
        ------
        InputError
            An unknown policy, no features, interactions of features that are coded by value, or
            more than `MAX_COLUMNS` columns.
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
        return cls.of_distances(
            tuple(c.name for c in columns),
            tuple(c.kind for c in columns),
            tuple(c.names for c in columns),
            tuple(FeatureDistance.of(c, missing) for c in columns),
            interactions,
        )

    @classmethod
    def of_distances(
        cls,
        features: tuple[str, ...],
        kinds: tuple[str, ...],
        value_names: tuple[tuple[str, ...], ...],
        distances: tuple[FeatureDistance, ...],
        interactions: bool = False,
    ) -> PairColumns:
        """Columns of the pairs of the stimuli that have these distances, see the class.

        Raises InputError: more than `MAX_COLUMNS` columns.
        """
        builder = _Builder(distances[0].n_stimuli)
        each = zip(features, kinds, value_names, distances, strict=True)
        for number, (name, kind, names, distance) in enumerate(each):
            builder.add_feature(number, name, kind, names, distance)
        if interactions:
            builder.add_interactions(features)
        builder.check_number()
        terms = np.array(builder.terms, dtype=np.float64).reshape(-1, 4)
        return cls(
            features=features,
            kinds=kinds,
            value_names=value_names,
            distances=distances,
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

    def of_stimuli(self, stimuli: IntArray) -> PairColumns:
        """Columns of the pairs of some of the stimuli (n,) alone."""
        distances = tuple(distance.of_stimuli(stimuli) for distance in self.distances)
        return self.of_distances(
            self.features, self.kinds, self.value_names, distances, self.interactions
        )

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
        return self.of_distances(
            (*self.features, feature.name),
            (*self.kinds, feature.kind),
            (*self.value_names, feature.names),
            (*self.distances, FeatureDistance.of(feature, missing)),
            self.interactions,
        )

    def without_interactions(self) -> ChosenColumns:
        """Columns without the products of two feature distances."""
        return self.of_features(range(len(self.features)), interactions=False)

    def of_features(
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
        terms = np.isin(self.column, numbers)
        columns = PairColumns(
            features=tuple(self.features[f] for f in keep),
            kinds=tuple(self.kinds[f] for f in keep),
            value_names=tuple(self.value_names[f] for f in keep),
            distances=tuple(self.distances[f] for f in keep),
            interactions=interactions,
            names=tuple(self.names[c] for c in numbers),
            first_feature=np.searchsorted(keep, self.first_feature[numbers]),
            second_feature=np.searchsorted(keep, self.second_feature[numbers]),
            basis=self.basis[:, basis],
            left=np.searchsorted(basis, self.left[terms]),
            right=np.searchsorted(basis, self.right[terms]),
            sign=self.sign[terms],
            column=np.searchsorted(numbers, self.column[terms]),
            pairwise={
                int(np.searchsorted(numbers, c)): own
                for c, own in self.pairwise.items()
                if c in numbers
            },
            as_distance=self.as_distance[numbers],
            basis_feature=np.where(
                self.basis_feature[basis] < 0, -1, np.searchsorted(keep, self.basis_feature[basis])
            ),
        )
        return ChosenColumns(columns, numbers, basis)

    def with_values_of(self, givers: IntArray, feature: int) -> PairColumns:
        """Columns where each stimulus has the value of another, of one feature alone.

        Parameters
        ----------
        givers : (n_stimuli,) the stimulus whose value each has
        feature : by number
        """
        basis, distances = self.basis.copy(), list(self.distances)
        of_feature = self.basis_feature == feature
        basis[:, of_feature] = basis[givers][:, of_feature]
        distances[feature] = distances[feature].of_stimuli(givers)
        pairwise = {
            number: column.with_values_of(
                givers,
                first=bool(self.first_feature[number] == feature),
                second=bool(self.second_feature[number] == feature),
            )
            for number, column in self.pairwise.items()
        }
        return replace(self, basis=basis, distances=tuple(distances), pairwise=pairwise)

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
        own = [c for c in range(len(self.names)) if c not in self.pairwise]
        return np.array(own, dtype=np.int64)

    @cached_property
    def starts(self) -> IntArray:
        """(n_products,) first term of each column that is a sum of products."""
        return np.flatnonzero(np.diff(self.column, prepend=-1))

    @cached_property
    def of_same_stimulus(self) -> FloatArray:
        """(n_basis, n_products) z(i, i) = basis @ this: 0 but for pairs of one value."""
        found = np.zeros((self.basis.shape[1], len(self.product_columns)))
        place = np.repeat(np.arange(len(self.starts)), np.diff([*self.starts, len(self.column)]))
        # Only terms with the constant count: of two different values no stimulus has both, and
        # differences of a stimulus from itself are 0.
        spread = np.array([self._is_spread(c) for c in self.product_columns], dtype=bool)
        for term in np.flatnonzero(spread[place] & (self.left > 0)):
            found[self.left[term], place[term]] = 2.0
        return found

    def _is_spread(self, column: int) -> bool:
        """Whether a column counts how many of the two stimuli have one value."""
        own = self.column == column
        return own.sum() == 2 and bool((np.minimum(self.left[own], self.right[own]) == 0).all())

    def sum_terms(self, by_term: FloatArray) -> FloatArray:
        """(..., n_products) signed sums of numbers (..., n_terms) over the terms of each column."""
        if not len(self.starts):
            return np.zeros((*by_term.shape[:-1], 0))
        found: FloatArray = np.add.reduceat(by_term * self.sign, self.starts, axis=-1)
        return found

    def of_pairs(self, first: IntArray, second: IntArray) -> FloatArray:
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
                values[number, part] = self.pairwise[number].of_pairs(one, other)
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
                    row[:] = self.pairwise[number].of_pairs(one, other)
                else:
                    self.distances[self.first_feature[number]].fill_squares(one, other, row)
            found[:, part] = weights[:, used] @ values
            for distance, table in tables:
                places = distance.places(one, other)
                for row, predicted in zip(found[:, part], table, strict=True):
                    row += predicted.take(places)
        return found

    def part_codes(self, part: int, first: IntArray, second: IntArray) -> PartCodes:
        """Numbers of the distinct values that a part of the columns has for pairs of stimuli.

        `part` is one of `parts`, by number.
        """
        features = part, part
        if self.interactions:
            features = int(self.first_feature[part]), int(self.second_feature[part])
        one, other = (self._pair_classes[feature] for feature in features)
        if one is None or other is None:
            weights = np.where(self.part == part, 1.0, 0.0)[None]
            values = np.round(self.predictions(weights, first, second)[0], DIGITS)
            distinct, inverse = np.unique(values, return_inverse=True)
            return PartCodes(inverse.astype(np.int64), len(distinct))
        number = np.arange(len(one.values))
        if one is not other:
            products = np.round(np.outer(one.values, other.values), DIGITS)
            number = np.unique(products, return_inverse=True)[1].ravel()
        codes = np.empty(len(first), dtype=np.int64)
        for start in range(0, len(first), LOOKED_UP):
            at = slice(start, start + LOOKED_UP)
            own = one.of_pairs(first[at], second[at])
            if one is not other:
                own = own * len(other.values) + other.of_pairs(first[at], second[at])
            codes[at] = number[own]
        return PartCodes(codes, int(number.max()) + 1)

    @cached_property
    def _pair_classes(self) -> tuple[PairClasses | None, ...]:
        each = zip(self.distances, self.value_names, strict=True)
        return tuple(PairClasses.of(distance, bool(names)) for distance, names in each)

    def value_table(self, feature: int, weights: FloatArray) -> FloatArray:
        """(n_predictions, n_values, n_values) sums of the columns of a feature coded by value.

        `weights` are (n_predictions, n_columns).
        """
        n_values = len(self.value_names[feature])
        own = weights[:, self._columns_of_feature[feature]]
        a, b = np.triu_indices(n_values, 1)
        table = np.zeros((len(weights), n_values, n_values))
        table[:, a, b] = table[:, b, a] = own[:, : len(a)]
        of_value = own[:, len(a) :]
        return table + of_value[:, :, None] + of_value[:, None, :]


class PartCodes(NamedTuple):
    """Numbers of the distinct values of a part of the columns.

    Attributes
    ----------
    codes : (n_pairs,) number of the value of each pair
    n_codes : all are below it; some may be of no pair
    """

    codes: IntArray
    n_codes: int


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
    def of(cls, distance: FeatureDistance, by_value: bool) -> PairClasses | None:
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

    def of_pairs(self, first: IntArray, second: IntArray) -> IntArray:
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
    one, other, pair = (
        distance.codes.take(first),
        distance.codes.take(second),
        np.arange(len(first)),
    )
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


class _Builder:
    """Columns and their terms, as they are put together one feature after the other."""

    def __init__(self, n_stimuli: int) -> None:
        self.basis = [np.ones(n_stimuli)]
        self.basis_feature = [-1]
        self.names: list[str] = []
        self.first_feature: list[int] = []
        self.second_feature: list[int] = []
        self.terms: list[tuple[int, int, float, int]] = []
        self.pairwise: dict[int, PairwiseColumn] = {}
        self.distances: list[FeatureDistance] = []
        self.as_distance: list[float] = []

    def check_number(self) -> None:
        if len(self.names) > MAX_COLUMNS:
            raise InputError(
                f"the {len(set(self.first_feature))} features have {len(self.names):,} columns; "
                f"expected at most {MAX_COLUMNS:,}: choose fewer features, code those with many "
                "values as same or different, or merge rare values."
            )

    def _add_basis(self, feature: int, values: FloatArray) -> int:
        self.basis.append(values)
        self.basis_feature.append(feature)
        return len(self.basis) - 1

    def _add_column(
        self,
        name: str,
        feature: int,
        *terms: tuple[int, int, float],
        second_feature: int | None = None,
        as_distance: float = 1.0,
    ) -> None:
        number = len(self.names)
        self.terms.extend((left, right, sign, number) for left, right, sign in terms)
        self.names.append(name)
        self.first_feature.append(feature)
        self.as_distance.append(as_distance)
        self.second_feature.append(feature if second_feature is None else second_feature)

    def add_feature(
        self,
        feature: int,
        name: str,
        kind: str,
        value_names: tuple[str, ...],
        distance: FeatureDistance,
    ) -> None:
        """Add the columns of a feature."""
        self.distances.append(distance)
        if value_names:
            self._add_values(feature, name, value_names, distance)
        elif kind == "ordered":
            self._add_numeric(feature, name, distance)
        elif kind == "nominal":
            self._add_categorical(feature, name, distance)
        else:
            self.pairwise[len(self.names)] = PairwiseColumn(distance, distance)
            self._add_column(name, feature)

    def _add_numeric(self, feature: int, name: str, distance: FeatureDistance) -> None:
        assert distance.scaled is not None
        missing = np.isnan(distance.scaled)
        known = self._add_basis(feature, (~missing).astype(float)) if missing.any() else 0
        # Around the middle of the range, where squares are smallest.
        value = np.where(missing, 0.0, distance.scaled - 0.5)
        x, square = self._add_basis(feature, value), self._add_basis(feature, value**2)
        terms = [(square, known, 1.0), (known, square, 1.0), (x, x, -2.0)]
        if missing.any() and distance.missing == "level":
            unknown = self._add_basis(feature, missing.astype(float))
            terms += [(known, unknown, 1.0), (unknown, known, 1.0)]
        self._add_column(name, feature, *terms)

    def _add_categorical(self, feature: int, name: str, distance: FeatureDistance) -> None:
        assert distance.codes is not None and distance.table is not None
        n_values = len(distance.table) - 1
        known = 0
        values = range(n_values + 1)
        if distance.missing == "ignore":
            missing = distance.codes == n_values
            known = self._add_basis(feature, (~missing).astype(float)) if missing.any() else 0
            values = range(n_values)
        terms = [(known, known, 1.0)]
        for value in values:
            has_value = distance.codes == value
            if has_value.any():
                own = self._add_basis(feature, has_value.astype(float))
                terms.append((own, own, -1.0))
        self._add_column(name, feature, *terms)

    def _add_values(
        self, feature: int, name: str, value_names: tuple[str, ...], distance: FeatureDistance
    ) -> None:
        assert distance.codes is not None and distance.table is not None
        n_values = len(value_names)
        has_value = [
            self._add_basis(feature, (distance.codes == value).astype(float))
            for value in range(n_values)
        ]
        names = iter(term_names(name, value_names))
        for first in range(n_values):
            for second in range(first + 1, n_values):
                a, b = has_value[first], has_value[second]
                terms = (a, b, 1.0), (b, a, 1.0)
                squared = float(distance.table[first, second]) ** 2
                self._add_column(next(names), feature, *terms, as_distance=squared)
        for own in has_value:
            self._add_column(next(names), feature, (own, 0, 1.0), (0, own, 1.0), as_distance=0.0)

    def add_interactions(self, features: Sequence[str]) -> None:
        """Add 2 Δ_f Δ_g of every two features."""
        for first in range(len(features)):
            for second in range(first + 1, len(features)):
                product = PairwiseColumn(self.distances[first], self.distances[second], 2.0)
                self.pairwise[len(self.names)] = product
                name = f"{features[first]}{SEPARATOR}{features[second]}"
                self._add_column(name, first, second_feature=second)
