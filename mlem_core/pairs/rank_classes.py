"""Ranks by class of distance: of layers whose pairs do not fit the memory, and their products.

`mlem_core.pairs.classes` makes them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import in_order
from mlem_core.base.typing import FloatArray
from mlem_core.pairs.tiles import TILE_ELEMENTS, LayerDistances

if TYPE_CHECKING:
    from mlem_core.pairs.kernels.classes import ClassMap

# Bytes for the ranks of some pairs in all layers.
RANKS = 2**29
CHUNK = 2**14


@dataclass(frozen=True)
class RankClasses:
    """The ranks of a layer's pairs, by the class of their distance.

    source : gives the distances again
    to : tells the class of each
    ranks : (n_classes,) float32 centred average ranks, as a share of the pairs
    bound : `LayerSums.rank_bound` of the layer
    """

    source: Callable[[], LayerDistances]
    to: ClassMap
    ranks: NDArray[np.float32]
    bound: float

    def as_arrays(self) -> dict[str, Any]:
        """All but the source, by name, to be kept in a file."""
        return {**self.to._asdict(), "ranks": self.ranks, "bound": self.bound}

    @classmethod
    def from_arrays(
        cls, source: Callable[[], LayerDistances], given: Mapping[str, Any]
    ) -> RankClasses:
        """What `as_arrays` gave, numbers maybe as arrays of one."""
        from mlem_core.pairs.kernels.classes import ClassMap

        whole = {"dropped": int(given["dropped"]), "low": int(given["low"])}
        whole["shift"] = int(given["shift"])
        to = ClassMap(**{**{name: given[name] for name in ClassMap._fields}, **whole})
        return cls(source, to, given["ranks"], float(given["bound"]))


class RankProducts:
    """Sums of the products of two layers' centred ranks, as a share of the pairs, span by span.

    Parameters
    ----------
    classes : of each layer

    Attributes
    ----------
    spans : the stimuli of which the pairs with later ones are multiplied at a time; they depend on
        the stimuli and layers alone
    """

    def __init__(self, classes: Sequence[RankClasses], threads: int = 1) -> None:
        self._classes, self._threads = classes, threads
        self._kept: dict[int, LayerDistances] = {}
        self._held = 0
        n = len(self._layer(0).row)
        self._before = np.concatenate(([0], np.cumsum(np.arange(n - 1, -1, -1))))
        self.spans = _spans(self._before, max(n, RANKS // (4 * len(classes))))

    def _layer(self, number: int) -> LayerDistances:
        if number in self._kept:
            return self._kept[number]
        layer = self._classes[number].source()
        if self._held + layer.nbytes <= RANKS:
            self._kept[number] = layer
            self._held += layer.nbytes
        return layer

    def of(self, span: tuple[int, int]) -> FloatArray:
        """(n_layers, n_layers) of one span."""
        start, stop = span
        before = self._before[start : stop + 1]
        ranks = np.empty((len(self._classes), before[-1] - before[0]), dtype=np.float32)
        for number, own in enumerate(ranks):
            of = self._layer(number), self._classes[number]
            _fill(of, before, start, own, self._threads)
        return _product(ranks, self._threads)

    def all(self) -> FloatArray:
        """(n_layers, n_layers) of all pairs."""
        return sum_in_order(map(self.of, self.spans))


def sum_in_order(parts: Iterable[FloatArray]) -> FloatArray:
    """Their sum, from the first to the last."""
    return functools.reduce(np.add, parts)


def _spans(before: NDArray[np.int64], room: int) -> list[tuple[int, int]]:
    spans, start, n = [], 0, len(before) - 1
    while start < n - 1:
        stop = int(np.searchsorted(before, before[start] + room, side="right")) - 1
        spans.append((start, stop))
        start = stop
    return spans


def _fill(
    of: tuple[LayerDistances, RankClasses],
    before: NDArray[np.int64],
    first: int,
    ranks: NDArray[np.float32],
    threads: int,
) -> None:
    """The ranks of the pairs of some stimuli with later ones.

    Parameters
    ----------
    before : (n + 1,) how many pairs there are before those of each stimulus, and after the last
    first : of these stimuli
    ranks : (n_pairs,) filled
    """
    from mlem_core.pairs.kernels.classes import rank_rows

    layer, classes = of
    band = layer.of_stimuli()
    height = max(16, TILE_ELEMENTS // (len(layer.row) - first))
    stop = first + len(before) - 1
    edges = itertools.pairwise([*range(first, stop, height), stop])

    def fill(ends: tuple[int, int]) -> None:
        tile = np.ascontiguousarray(band(*ends))
        low, high = before[np.array(ends) - first] - before[0]
        rank_rows(tile.view(np.uint64), classes.to, classes.ranks, ranks[low:high])

    for _ in in_order(fill, edges, threads):
        pass


def _product(ranks: NDArray[np.float32], threads: int) -> FloatArray:
    """ranks @ ranks.T in float64, in one order whatever the number of threads."""

    def of(start: int) -> FloatArray:
        part = ranks[:, start : start + CHUNK].astype(np.float64)
        return part @ part.T

    total = np.zeros((len(ranks), len(ranks)))
    for own in in_order(of, range(0, ranks.shape[1], CHUNK), threads):
        total += own
    return total
