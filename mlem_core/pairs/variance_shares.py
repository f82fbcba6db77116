"""Shares of a layer's variance that lie at one position of the sentences, or in one unit.

In many networks the first token, or a single unit, has activations far beyond all others, and
distances then tell little else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.numbers import moderate

# One of fewer units is no small part of them, unless it has nearly all of the variance.
FEWEST_UNITS = 100
FEW_UNITS, NEARLY_ALL = 10, 0.9


class VarianceShares(NamedTuple):
    """Shares of the variance of a layer over the stimuli, from 0 to 1; NaN where not defined.

    first : between the stimuli at position 0 of their sentence and all others
    unit : of the unit with the largest variance, of at least `FEWEST_UNITS`; of at least
        `FEW_UNITS` where it is `NEARLY_ALL`
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
    mean = rows.mean(axis=0, dtype=np.float64)
    # Sums in double precision, without a copy of the rows.
    squares = np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
    variance = np.maximum(squares - len(rows) * mean**2, 0.0)
    # Rounding is no variance.
    total = variance.sum() if variance.sum() > 1e-9 * squares.sum() else np.nan
    unit = variance.max() / total
    if rows.shape[1] < (FEW_UNITS if unit >= NEARLY_ALL else FEWEST_UNITS):
        unit = np.nan
    if first is None or first.all() or not first.any():
        return VarianceShares(np.nan, float(unit))
    away = rows[first].mean(axis=0, dtype=np.float64) - mean
    # The same with m_0 - m, which is n_1 / n of m_0 - m_1.
    between = (away @ away) * first.sum() / (1 - first.mean())
    return VarianceShares(float(between / total), float(unit))
