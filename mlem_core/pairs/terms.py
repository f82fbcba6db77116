"""Terms of a metric model: squared feature distances, their products, or pairs of values.

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
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.labels import SEPARATOR as SEPARATOR
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.columns import ends


@dataclass(frozen=True)
class Columns:
    """The terms that D² is a weighted sum of.

    Without interactions D² = Δᵀ W Δ has a diagonal W and the terms are Δ_f². With them there are
    F (F + 1) / 2: first Δ_f² of the F features, then 2 Δ_f Δ_g of every two. The weight of a term
    is the entry of W. A feature that is resolved by value has the terms of
    `design` in the place of its Δ_f².

    A *part* is what importance permutes as a whole: a feature with all its terms, or, with
    interactions, a term.

    features : (n_features,) names
    interactions : whether products of two features are among the terms
    value_names : for each feature the names of its values where it is resolved, else (); empty
        where none is

    Source: Jalouzot et al. 2024, appendix D.
    """

    features: tuple[str, ...]
    interactions: bool = False
    value_names: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.interactions and any(self.value_names):
            raise InputError(
                "products of two features are weighed for features that differ or do not; the "
                "features of this analysis are resolved by value, so choose no interactions, or "
                "no values."
            )

    @cached_property
    def part(self) -> IntArray:
        """(n_columns,) the part that each term belongs to, ascending."""
        if self.interactions:
            return np.arange(len(self.names))
        of_values = self.value_names or ((),) * len(self.features)
        sizes = [len(v) * (len(v) + 1) // 2 if v else 1 for v in of_values]
        return np.repeat(np.arange(len(self.features)), sizes)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts."""
        return self.names if self.interactions else self.features

    @cached_property
    def first(self) -> IntArray:
        """(n_columns,) the first feature of each term."""
        return self._end(0)

    @cached_property
    def second(self) -> IntArray:
        """(n_columns,) the second feature; the same as the first for Δ_f²."""
        return self._end(1)

    def _end(self, side: int) -> IntArray:
        own = np.arange(len(self.features))
        products = np.triu_indices(len(own), 1)[side]
        return np.concatenate((own, products)) if self.interactions else own

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each term: "a" for Δ_a², "a × b" for 2 Δ_a Δ_b; "a: x/y" and "a: x" for the
        pair of values x and y, and the spread of x, of a feature that is resolved.
        """
        if any(self.value_names):
            both = zip(self.features, self.value_names, strict=True)
            return tuple(name for f, own in both for name in (term_names(f, own) if own else [f]))
        return tuple(
            self.features[a] if a == b else f"{self.features[a]}{SEPARATOR}{self.features[b]}"
            for a, b in zip(self.first, self.second, strict=True)
        )

    def __len__(self) -> int:
        return len(self.names)

    def matrix(self, weights: FloatArray) -> FloatArray:
        """W (..., n_features, n_features) of the weights (..., n_columns) of the terms.

        Raises InputError: a feature is resolved by value, whose weights are no matrix of features.
        """
        if any(self.value_names):
            raise InputError(
                "there is no matrix W where features are resolved by value; read the weights by "
                "their names."
            )
        n = len(self.features)
        full = np.zeros((*weights.shape[:-1], n, n))
        full[..., self.first, self.second] = weights
        full[..., self.second, self.first] = weights
        return full

    def weights(self, matrix: FloatArray) -> FloatArray:
        """(..., n_columns) weights of the terms, from W (..., n_features, n_features)."""
        return matrix[..., self.first, self.second]

    def unit(self, weights: FloatArray) -> FloatArray:
        """Weights (..., n_columns) scaled so that W has the Frobenius norm 1; zeros stay."""
        times = np.where(self.first == self.second, 1.0, 2.0)
        norm = np.sqrt((weights**2 * times).sum(axis=-1, keepdims=True))
        return weights / np.where(norm > 0, norm, 1.0)


def design(n_values: int) -> FloatArray:
    """(n_codes, n_codes) the terms of every unordered pair of n values.

    The columns are w_ab of every two different values, then s_a of every value.
    """
    first, second = ends(n_values)
    codes = np.arange(len(first))
    apart = np.flatnonzero(first != second)
    terms = np.zeros((len(first), len(first)))
    terms[apart, np.arange(len(apart))] = 1.0
    np.add.at(terms, (codes, len(apart) + first), 1.0)
    np.add.at(terms, (codes, len(apart) + second), 1.0)
    return terms


def term_names(feature: str, names: Sequence[str]) -> list[str]:
    """Names of the columns of `design`: "pos: Noun/Verb", ..., "pos: Noun", ...."""
    first, second = ends(len(names))
    pairs = [f"{names[a]}/{names[b]}" for a, b in zip(first, second, strict=True) if a != b]
    return [f"{feature}: {one}" for one in (*pairs, *names)]
