"""Student's t: how many standard errors a confidence interval reaches to either side."""

from __future__ import annotations

from typing import overload

from mlem_core.base.typing import FloatArray

CONFIDENCE = 0.95


@overload
def quantile(degrees: int) -> float: ...
@overload
def quantile(degrees: FloatArray) -> FloatArray: ...
def quantile(degrees: int | FloatArray) -> float | FloatArray:
    """How many standard errors a 95 % interval reaches to either side.

    Parameters
    ----------
    degrees : of freedom, at least 1 and not necessarily whole; a number or an array (...)
    """
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    found = stdtrit(degrees, 1 - (1 - CONFIDENCE) / 2)
    return float(found) if isinstance(degrees, int) else found
