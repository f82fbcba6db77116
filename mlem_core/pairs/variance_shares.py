"""Shares of a layer's variance that lie at one position of the sentences, or in one unit.

In many networks the first token, or a single unit, has activations far beyond all others. Distances
then tell little else. Both shares follow from one pass over the representations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.numbers import moderate
from mlem_core.base.typing import FloatArray

# One of fewer units is no small part of them.
FEWEST_UNITS = 100


class VarianceShares(NamedTuple):
    """Shares of the variance of a layer over the stimuli, from 0 to 1; NaN where not defined.

    first : between the stimuli at position 0 of their sentence and all others
    unit : of the unit with the largest variance, of at least `FEWEST_UNITS`
    """

    first: float
    unit: float


def variance_shares(
    rows: NDArray[np.floating], first: NDArray[np.bool_] | None = None
) -> VarianceShares:
    """The shares of the variance of one layer.

    With m_0 and m_1 the mean representations of the n_0 stimuli at position 0 and of the n_1
    others: n_0 n_1 / (n_0 + n_1) |m_0 - m_1|² / Σ |x - m|².

    Parameters
    ----------
    rows : (n_stimuli, n_units)
    first : (n_stimuli,) whether each stimulus is at position 0; None for whole sentences

    Source: such activations are described by Sun et al. (2024), units by Kovaleva et al. (2021).
    """
    rows = moderate(rows)
    n = len(rows)
    mean = rows.mean(axis=0, dtype=np.float64)
    # Sums in double precision, without a copy of the rows.
    squares = np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
    variance = np.maximum(squares - n * mean**2, 0.0)
    total = float(variance.sum())
    # Rounding is no variance.
    if total <= 1e-9 * float(squares.sum()):
        return VarianceShares(np.nan, np.nan)
    unit = float(variance.max()) / total if rows.shape[1] >= FEWEST_UNITS else np.nan
    n_first = 0 if first is None else int(first.sum())
    if first is None or not 0 < n_first < n:
        return VarianceShares(np.nan, unit)
    away: FloatArray = rows[first].mean(axis=0, dtype=np.float64) - mean
    return VarianceShares(float(n_first * n / (n - n_first) * (away @ away)) / total, unit)
