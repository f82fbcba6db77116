"""Distances of the stimuli on single features, and products of two of them, pair by pair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.columns import FeatureColumn, numbered_values, value_distances

# Distances of a numeric feature are looked up where it has at most so many numbers.
MOST_NUMBERS = 256


# Digits to which distances must agree to be equal: differences of decimals are not.
DIGITS = 9


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
    def from_column(cls, column: FeatureColumn, missing: str) -> FeatureDistance:
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

    def select_stimuli(self, stimuli: IntArray) -> FeatureDistance:
        """Distances of some of the stimuli (n,)."""
        codes = None if self.codes is None else self.codes[stimuli]
        scaled = None if self.scaled is None else self.scaled[stimuli]
        return replace(self, codes=codes, scaled=scaled)

    def cross_distances(self, rows: IntArray, others: IntArray) -> FloatArray:
        """(n_rows, n_others) distances of some stimuli from others."""
        if self.scaled is None:
            assert self.codes is not None and self.table is not None
            return self.table[np.ix_(self.codes[rows], self.codes[others])]
        apart = np.abs(self.scaled[rows][:, None] - self.scaled[others])
        return self._with_missing(apart, self.scaled[rows][:, None], self.scaled[others])

    def pair_values(self, first: IntArray, second: IntArray) -> FloatArray:
        """(n_pairs,) distances of pairs of stimuli."""
        if self.scaled is None:
            assert self.table is not None
            return self.table.take(self.places(first, second))
        values, other = self.scaled.take(first), self.scaled.take(second)
        return self._with_missing(np.abs(values - other), values, other)

    def fill_squares(self, first: IntArray, second: IntArray, values: FloatArray) -> None:
        """Fill values (n_pairs,) with the squared distances of pairs of stimuli."""
        if self.scaled is None:
            # Quicker where places are not checked: all are in the table.
            self._squares.take(self.places(first, second), out=values, mode="clip")
        elif self._has_missing:
            np.square(self.pair_values(first, second), out=values)
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

    def _with_missing(self, apart: FloatArray, values: FloatArray, other: FloatArray) -> FloatArray:
        if self._has_missing:
            unknown = np.isnan(apart)
            differ = np.isnan(values) != np.isnan(other) if self.missing == "level" else 0.0
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
        return FeatureDistance(
            codes, alone.cross_distances(everything, everything), None, self.missing
        )

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
        changed = self.first.select_stimuli(givers) if first else self.first
        if self.second is self.first and first == second:
            return replace(self, first=changed, second=changed)
        other = self.second.select_stimuli(givers) if second else self.second
        return replace(self, first=changed, second=other)

    def cross_distances(self, rows: IntArray, others: IntArray) -> FloatArray:
        """(n_rows, n_others) values for some stimuli with others."""
        apart = self.first.cross_distances(rows, others)
        other = apart if self.second is self.first else self.second.cross_distances(rows, others)
        return self.scale * apart * other

    def pair_values(self, first: IntArray, second: IntArray) -> FloatArray:
        """(n_pairs,) values for pairs of stimuli."""
        apart = self.first.pair_values(first, second)
        other = apart if self.second is self.first else self.second.pair_values(first, second)
        return self.scale * apart * other
