"""What a metric model weighs: squared feature distances and, if asked for, their products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlem_core.base.typing import FloatArray, IntArray

SEPARATOR = " × "


@dataclass(frozen=True)
class Columns:
    """The terms that D² = Δᵀ W Δ is a weighted sum of.

    Without interactions W is diagonal and the terms are Δ_f². With them there are
    F (F + 1) / 2: first Δ_f² of the F features, then 2 Δ_f Δ_g of every two. The weight of a term
    is the entry of W.

    Attributes
    ----------
    features : (n_features,) names
    interactions : whether products of two features are among the terms

    Source: Jalouzot et al. 2024, appendix D.
    """

    features: tuple[str, ...]
    interactions: bool = False

    @cached_property
    def first(self) -> IntArray:
        """(n_columns,) the first feature of each term."""
        return self._ends[0]

    @cached_property
    def second(self) -> IntArray:
        """(n_columns,) the second feature; the same as the first for Δ_f²."""
        return self._ends[1]

    @cached_property
    def _ends(self) -> tuple[IntArray, IntArray]:
        n = len(self.features)
        own = np.arange(n)
        if not self.interactions:
            return own, own
        a, b = np.triu_indices(n, 1)
        return np.concatenate((own, a)), np.concatenate((own, b))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each term: "a" for Δ_a², "a × b" for 2 Δ_a Δ_b."""
        return tuple(
            self.features[a] if a == b else f"{self.features[a]}{SEPARATOR}{self.features[b]}"
            for a, b in zip(self.first, self.second, strict=True)
        )

    def __len__(self) -> int:
        return len(self.first)

    def values(self, patterns: FloatArray) -> FloatArray:
        """The terms (n_patterns, n_columns) of feature distances (n_patterns, n_features)."""
        twice = np.where(self.first == self.second, 1.0, 2.0)
        return patterns[:, self.first] * patterns[:, self.second] * twice

    def matrix(self, weights: FloatArray) -> FloatArray:
        """W (..., n_features, n_features) of the weights (..., n_columns) of the terms."""
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
