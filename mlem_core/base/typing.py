"""Types that every package uses, and how a layer is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# (model, number); layer 0 is the embeddings, layer k what leaves block k.
Layer = tuple[str, int]


def layer_name(layer: Layer) -> str:
    """ "minilm:3" of ("minilm", 3)."""
    return f"{layer[0]}:{layer[1]}"


def parse_layer(text: str) -> Layer:
    """("minilm", 3) of "minilm:3"; raises InputError for a text of another form."""
    model, _, number = str(text).rpartition(":")
    if not model or not number.isdecimal():
        raise InputError(f"{text!r} is not of the form MODEL:LAYER, such as minilm:3")
    return model, int(number)


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
