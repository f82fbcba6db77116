"""The normal equations of ridge for every layer and training set, and their solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlem_core.base.numbers import nonnegative_quadratic
from mlem_core.base.typing import FloatArray

# The ridge penalty of weights that values are shrunk towards: hardly any.
LEAST = 1e-4
# What stands for the strength where no feature is coded by value.
NOT_APART = 1e12


@dataclass(frozen=True)
class Moments:
    """Centred normal equations of the squared, min-max scaled distances on training sets.

    gram : (n_sets, n_features, n_features)
    moment : (n_layers, n_sets, n_features)
    x_mean : (n_sets, n_features) means of the squared feature distances
    y_mean : (n_layers, n_sets) means of the scaled target
    """

    gram: FloatArray
    moment: FloatArray
    x_mean: FloatArray
    y_mean: FloatArray


def ridge_weights(equations: Moments, penalties: FloatArray) -> FloatArray:
    """Non-negative ridge weights for each penalty.

    Minimises ||y - Xw - b||² + v' P v over v = (w, u) >= 0 and b, on the pairs of each training
    set; u are variables that only the penalty knows. With P = α I and no u that is the objective of
    scikit-learn's `Ridge(positive=True)`.

    `penalties` are (n_penalties, n, n) the matrices P, n at least n_columns; see
    `mlem_core.estimators.ridge_of_moments.penalty_matrices`.

    Returns (n_layers, n_sets, n_penalties, n_columns).
    """
    n_columns, n = equations.gram.shape[-1], penalties.shape[-1]
    more = n - n_columns
    gram = np.pad(equations.gram, ((0, 0), (0, more), (0, more)))[:, None] + penalties
    moment = np.pad(equations.moment, ((0, 0), (0, 0), (0, more)))[:, :, None]
    return nonnegative_quadratic(gram, moment)[..., :n_columns]
