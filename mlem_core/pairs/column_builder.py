"""Columns of pairs and their terms, as they are put together from one feature after the other.

A nominal feature that says whether two values differ makes every two values equally far apart.
Resolved by value it has a number for every unordered pair of its values, the same value twice among
them, since the stimuli of one value may be closer together than those of another. With n values
there are n (n + 1) / 2 pairs, and as many terms of the metric: w_ab for every two values, and for
each value its spread s_a, which counts once for each of the two stimuli that has it:

    D²(a, b) = w_ab + s_a + s_b,    D²(a, a) = 2 s_a.

That is what squared Euclidean distances between and within classes are: w_ab is the squared
distance of the class means, s_a the variance around the mean of a. A missing value is a value here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.labels import SEPARATOR
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.columns import FeatureColumn, ends
from mlem_core.pairs.feature_distances import FeatureDistance, PairwiseColumn

# More columns than this are refused: their moments would not fit into the memory of a laptop.
MAX_COLUMNS = 1_000


class CodedFeature(NamedTuple):
    """A feature of the stimuli as their pairs have it, see `mlem_core.pairs.pair_columns`."""

    name: str
    kind: str
    value_names: tuple[str, ...]
    distance: FeatureDistance

    @classmethod
    def from_column(cls, column: FeatureColumn, missing: str) -> CodedFeature:
        """A feature with a policy for missing values."""
        distance = FeatureDistance.from_column(column, missing)
        return cls(column.name, column.kind, column.names, distance)


class ColumnBuilder:
    """Columns and their terms, as they are put together one feature after the other."""

    def __init__(self, n_stimuli: int) -> None:
        self.basis = [np.ones(n_stimuli)]
        self.basis_feature = [-1]
        self.names: list[str] = []
        self.first_feature: list[int] = []
        self.second_feature: list[int] = []
        self.terms: list[tuple[int, int, float, int]] = []
        self.pairwise: dict[int, PairwiseColumn] = {}
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

    def add_feature(self, feature: int, coded: CodedFeature) -> None:
        """Add the columns of a feature."""
        if coded.value_names:
            self._add_values(feature, coded)
        elif coded.kind == "ordered":
            self._add_numeric(feature, coded.name, coded.distance)
        elif coded.kind == "nominal":
            self._add_categorical(feature, coded.name, coded.distance)
        else:
            self.pairwise[len(self.names)] = PairwiseColumn(coded.distance, coded.distance)
            self._add_column(coded.name, feature)

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
                basis = self._add_basis(feature, has_value.astype(float))
                terms.append((basis, basis, -1.0))
        self._add_column(name, feature, *terms)

    def _add_values(self, feature: int, coded: CodedFeature) -> None:
        distance, n_values = coded.distance, len(coded.value_names)
        assert distance.codes is not None and distance.table is not None
        has_value = [
            self._add_basis(feature, (distance.codes == value).astype(float))
            for value in range(n_values)
        ]
        names = iter(term_names(coded.name, coded.value_names))
        for first, second in combinations(range(n_values), 2):
            a, b = has_value[first], has_value[second]
            terms = (a, b, 1.0), (b, a, 1.0)
            squared = float(distance.table[first, second]) ** 2
            self._add_column(next(names), feature, *terms, as_distance=squared)
        for present in has_value:
            self._add_column(
                next(names), feature, (present, 0, 1.0), (0, present, 1.0), as_distance=0.0
            )

    def add_interactions(self, features: Sequence[CodedFeature]) -> None:
        """Add 2 Δ_f Δ_g of every two features."""
        for (first, one), (second, other) in combinations(enumerate(features), 2):
            product = PairwiseColumn(one.distance, other.distance, 2.0)
            self.pairwise[len(self.names)] = product
            self._add_column(f"{one.name}{SEPARATOR}{other.name}", first, second_feature=second)


def metric_terms(n_features: int) -> tuple[IntArray, IntArray]:
    """The two features (n_columns,) of each entry of W: first Δ_f², then 2 Δ_f Δ_g of every two.

    Source: Jalouzot et al. 2024, appendix D.
    """
    places = np.arange(n_features)
    first, second = np.triu_indices(n_features, 1)
    return np.concatenate((places, first)), np.concatenate((places, second))


def metric_matrix(weights: FloatArray, n_features: int) -> FloatArray:
    """W (..., n_features, n_features) of D² = Δᵀ W Δ, symmetric.

    Parameters
    ----------
    weights : (..., n_columns) in the order of `metric_terms`; those of Δ_f² alone are a diagonal
    """
    first, second = (of_all[: weights.shape[-1]] for of_all in metric_terms(n_features))
    matrix = np.zeros((*weights.shape[:-1], n_features, n_features))
    matrix[..., first, second] = weights
    matrix[..., second, first] = weights
    return matrix


def term_names(feature: str, names: Sequence[str]) -> list[str]:
    """Names of w_ab of every two values, then of s_a: "pos: Noun/Verb", ..., "pos: Noun", ...."""
    first, second = ends(len(names))
    pairs = [f"{names[a]}/{names[b]}" for a, b in zip(first, second, strict=True) if a != b]
    return [f"{feature}: {term}" for term in (*pairs, *names)]
