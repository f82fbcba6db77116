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

import numpy as np

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.columns import ends


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
