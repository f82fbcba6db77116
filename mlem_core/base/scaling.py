"""Numbers of any size, brought where their squares and the squares of these can be computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A fourth power of what lies between these is neither 0 nor infinite, nor is a sum of many.
SMALL, LARGE = 2.0**-150, 2.0**150
_STEP = 2**22


def moderate(values: NDArray[np.floating]) -> NDArray[Any]:
    """The same numbers, divided by a power of 2 only where the largest is far from 1.

    No digit is lost, and ranks, angles and ratios stay; numbers of single precision never need it.
    """
    if values.dtype.itemsize <= 4 or not values.size:
        return values
    # A power where some number is not finite would be none.
    largest = max(_largest(values))
    if not 0 < largest < np.inf or SMALL < largest < LARGE:
        return values
    return np.ldexp(values, -int(np.frexp(largest)[1]))


def _largest(values: NDArray[np.floating]) -> Iterator[float]:
    step = max(1, _STEP // max(1, values[0].size))
    for start in range(0, len(values), step):
        band = values[start : start + step]
        yield float(max(band.max(), -band.min()))
