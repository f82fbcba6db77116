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
from dataclasses import dataclass, replace
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

    def values(self, patterns: FloatArray, codes: IntArray | None = None) -> FloatArray:
        """The terms (n_patterns, n_columns) of patterns, as `terms` takes them."""
        return self.terms(patterns, codes).dense

    def terms(self, patterns: FloatArray, codes: IntArray | None = None) -> Terms:
        """The terms of patterns, without a column for every two values.

        Parameters
        ----------
        patterns : (n_patterns, n_features) feature distances
        codes : (n_patterns, n_features) their codes; of those that are resolved the pair of values
        """
        resolved = np.flatnonzero([len(own) for own in self.value_names]).astype(np.int64)
        own = np.zeros(patterns.shape, dtype=np.int64) if codes is None else codes
        twice = np.where(self.first == self.second, 1.0, 2.0)
        products = patterns[:, self.first] * patterns[:, self.second] * twice
        plain, codes = np.delete(products, resolved, axis=1), own[:, resolved]
        designs = tuple(design(len(self.value_names[f])) for f in resolved)
        return Terms(self.part, resolved, np.ascontiguousarray(plain.T), codes.T.copy(), designs)

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


@dataclass(frozen=True)
class Terms:
    """The terms of n patterns, those of a resolved feature by the pair of values that it has.

    As an array (`dense`) they have a column for every two values, nearly all of them 0.

    part : (n_columns,) the part that each term belongs to, ascending
    resolved : (n_resolved,) the parts that are features resolved by value, ascending
    plain : (n_plain, n) the terms of the other parts
    codes : (n_resolved, n) the number of the pair of values
    designs : for each resolved feature (n_codes, n_own) its terms in each pair of values
    """

    part: IntArray
    resolved: IntArray
    plain: FloatArray
    codes: IntArray
    designs: tuple[FloatArray, ...]

    @cached_property
    def _columns(self) -> tuple[IntArray, list[IntArray]]:
        """The columns of `plain`, and those of each resolved feature."""
        if not len(self.resolved):
            return np.arange(len(self.part)), []
        own = [np.flatnonzero(self.part == f) for f in self.resolved]
        return np.flatnonzero(~np.isin(self.part, self.resolved)), own

    def of(self, patterns: IntArray) -> Terms:
        """Terms in some of the patterns (n_chosen,), by number."""
        return replace(self, plain=self.plain[:, patterns], codes=self.codes[:, patterns])

    def only(self, parts: IntArray) -> Terms:
        """Terms of some parts, ascending, which are then numbered from 0 on."""
        kept = np.flatnonzero(np.isin(self.resolved, parts))
        return Terms(
            part=np.searchsorted(parts, self.part[np.isin(self.part, parts)]),
            resolved=np.searchsorted(parts, self.resolved[kept]),
            plain=self.plain[np.isin(self.part[self._columns[0]], parts)],
            codes=self.codes[kept],
            designs=tuple(self.designs[k] for k in kept),
        )

    def predictions(self, weights: FloatArray) -> FloatArray:
        """(..., n) weighted sums of the terms, of weights (..., n_columns)."""
        plain, resolved = self._columns
        found: FloatArray = (weights[..., plain] if resolved else weights) @ self.plain
        for own, codes, values in zip(resolved, self.codes, self.designs, strict=True):
            found += (weights[..., own] @ values.T)[..., codes]
        return found

    def sums(self, amounts: FloatArray) -> FloatArray:
        """(k, n_columns) sums of the terms, of amounts (k, n) of each pattern."""
        plain, resolved = self._columns
        found = np.empty((len(amounts), len(self.part)))
        found[:, plain] = amounts @ self.plain.T
        for own, codes, values in zip(resolved, self.codes, self.designs, strict=True):
            by_code = [np.bincount(codes, row, len(values)) for row in amounts]
            found[:, own] = np.stack(by_code) @ values
        return found

    def products(self, counts: FloatArray) -> FloatArray:
        """(n_columns, n_columns) sums of products of two terms, over counts (n,) of each pattern.

        Of resolved features they follow from how often two pairs of values meet.
        """
        plain, resolved = self._columns
        weighted, found = self.plain * counts, np.empty((len(self.part), len(self.part)))
        found[np.ix_(plain, plain)] = weighted @ self.plain.T
        for k, own in enumerate(resolved):
            codes, values = self.codes[k], self.designs[k]
            by_code = [np.bincount(codes, row, len(values)) for row in weighted]
            crossed = np.reshape(by_code, (len(plain), len(values))) @ values
            found[np.ix_(plain, own)], found[np.ix_(own, plain)] = crossed, crossed.T
            for m in range(k, len(resolved)):
                size = len(self.designs[m])
                met = np.bincount(codes * size + self.codes[m], counts, len(values) * size)
                both = values.T @ met.reshape(len(values), size) @ self.designs[m]
                found[np.ix_(own, resolved[m])], found[np.ix_(resolved[m], own)] = both, both.T
        return found

    @property
    def dense(self) -> FloatArray:
        """(n, n_columns) as an array."""
        whole = self.predictions(np.eye(len(self.part))) if len(self.resolved) else self.plain
        return np.ascontiguousarray(whole.T)


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
