"""Student's t: how many standard errors a confidence interval reaches to either side."""

from __future__ import annotations

from typing import overload

from mlem_core.base.typing import FloatArray

CONFIDENCE = 0.95


@overload
def quantile(degrees: int, confidence: float = ...) -> float: ...
@overload
def quantile(degrees: FloatArray, confidence: float = ...) -> FloatArray: ...
def quantile(degrees: int | FloatArray, confidence: float = CONFIDENCE) -> float | FloatArray:
    """How many standard errors an interval reaches to either side.

    Parameters
    ----------
    degrees : of freedom, at least 1 and not necessarily whole; a number or an array (...)
    confidence : how often such an interval is to hold the truth
    """
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    found = stdtrit(degrees, 1 - (1 - confidence) / 2)
    return float(found) if isinstance(degrees, int) else found
