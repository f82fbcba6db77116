"""Types that every package uses, and how a layer is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError

T = TypeVar("T")
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# (model, number); layer 0 is the embeddings, layer k what leaves block k.
Layer = tuple[str, int]
# Layers as a user may name them: one or several, in words or as pairs.
Layers = str | Layer | Iterable[str | Layer]


def layer_name(layer: Layer) -> str:
    """ "minilm:3" of ("minilm", 3)."""
    return f"{layer[0]}:{layer[1]}"


def parse_layer(text: str) -> Layer:
    """("minilm", 3) of "minilm:3"; raises InputError for a text of another form."""
    model, _, number = str(text).rpartition(":")
    if not model or not number.isdecimal():
        raise InputError(f"{text!r} is not of the form MODEL:LAYER, such as minilm:3")
    return model, int(number)


def parse_layers(layers: Layers) -> tuple[Layer, ...]:
    """The layers that are named: ("minilm", 3), "minilm:3", "minilm:0,minilm:3", or a list of such.

    Raises InputError: a name of another form.
    """
    if isinstance(layers, str):
        return tuple(parse_layer(part.strip()) for part in layers.split(",") if part.strip())
    if isinstance(layers, tuple) and len(layers) == 2 and not isinstance(layers[1], str | tuple):
        return (_layer(layers),)
    return tuple(_layer(each) for each in layers)


def _layer(layer: Any) -> Layer:
    if isinstance(layer, str):
        return parse_layer(layer)
    try:
        model, number = layer
        return str(model), int(number)
    except (TypeError, ValueError):
        raise InputError(
            f"{layer!r} is no layer; expected ('minilm', 3) or 'minilm:3', or a list of such."
        ) from None


@dataclass(frozen=True)
class Progress:
    """Progress of one stage of a run: `done` of `total` units (sentences, layers).

    Examples
    --------
    >>> Progress("pairs", None, 3, 12, "layers").done
    3
    """

    stage: str
    model: str | None
    done: int
    total: int
    unit: str


Report = Callable[[Progress], None]
# Called with how many of how many are done.
Counted = Callable[[int, int], None]


def counted(items: Iterable[T], total: int, progress: Counted | None) -> Iterator[T]:
    """The items; what is done with one has been counted when the next one comes."""
    for done, item in enumerate(items, 1):
        yield item
        if progress is not None:
            progress(done, total)


def split_progress(progress: Counted | None, n: int) -> list[Counted]:
    """Counts of each of n parts of some work, which together make one count."""

    def count_part(part: int) -> Counted:
        return lambda done, total: progress and progress(part * total + done, n * total)

    return [count_part(part) for part in range(n)]


def counting(report: Report, stage: str, unit: str, model: str | None = None) -> Counted:
    """Reports a stage that says only how many of how many units are done."""
    return lambda done, total: report(Progress(stage, model, done, total, unit))
