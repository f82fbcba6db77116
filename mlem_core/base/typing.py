"""Types that every package uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# (model, number); layer 0 is the embeddings, layer k what leaves block k.
Layer = tuple[str, int]


@dataclass(frozen=True)
class Progress:
    """How far one stage of a run is: `done` of `total` units (sentences, layers)."""

    stage: str
    model: str | None
    done: int
    total: int
    unit: str


Report = Callable[[Progress], None]
# Called with how many of how many are done.
Counted = Callable[[int, int], None]
