"""Ranks by class of distance: of layers whose pairs do not fit the memory, and their products.

`mlem_core.pairs.classes` makes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import cores, in_order
from mlem_core.base.typing import FloatArray
from mlem_core.pairs.tiles import LayerDistances

if TYPE_CHECKING:
    from mlem_core.pairs.kernels.classes import ClassMap

# Bytes for the ranks of some pairs in all layers.
RANKS = 2**29
TILE_ELEMENTS = 2**22
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


def products_of_ranks(classes: Mapping[int, RankClasses], n_layers: int) -> FloatArray:
    """Sums over all pairs of the products of two layers' centred ranks, as a share of the pairs.

    Parameters
    ----------
    classes : by the position of the layer

    Returns (n_layers, n_layers), 0 for layers without classes.
    """
    kept: dict[int, LayerDistances] = {}
    held, at = 0, sorted(classes)

    def layer_at(position: int) -> LayerDistances:
        nonlocal held
        if position in kept:
            return kept[position]
        layer = classes[position].source()
        if held + layer.nbytes <= RANKS:
            kept[position] = layer
            held += layer.nbytes
        return layer

    n = len(layer_at(at[0]).row)
    before = np.concatenate(([0], np.cumsum(np.arange(n - 1, -1, -1))))
    room = max(n, RANKS // (4 * len(at)))
    products = np.zeros((len(at), len(at)))
    start = 0
    while start < n - 1:
        stop = int(np.searchsorted(before, before[start] + room, side="right")) - 1
        ranks = np.empty((len(at), before[stop] - before[start]), dtype=np.float32)
        for own, position in zip(ranks, at, strict=True):
            _fill(layer_at(position), classes[position], before[start : stop + 1], start, own)
        products += _product(ranks)
        start = stop
    found = np.zeros((n_layers, n_layers))
    found[np.ix_(at, at)] = products
    return found


def _fill(
    layer: LayerDistances,
    classes: RankClasses,
    before: NDArray[np.int64],
    first: int,
    ranks: NDArray[np.float32],
) -> None:
    """The ranks of the pairs of some stimuli with later ones.

    Parameters
    ----------
    before : (n + 1,) how many pairs there are before those of each stimulus, and after the last
    first : of these stimuli
    ranks : (n_pairs,) filled
    """
    from mlem_core.pairs.kernels.classes import rank_rows

    band = layer.of_stimuli()
    height = max(16, TILE_ELEMENTS // (len(layer.row) - first))
    stop = first + len(before) - 1
    edges = itertools.pairwise([*range(first, stop, height), stop])

    def fill(ends: tuple[int, int]) -> None:
        tile = np.ascontiguousarray(band(*ends))
        low, high = before[np.array(ends) - first] - before[0]
        rank_rows(tile.view(np.uint64), classes.to, classes.ranks, ranks[low:high])

    for _ in in_order(fill, edges, cores()):
        pass


def _product(ranks: NDArray[np.float32]) -> FloatArray:
    """ranks @ ranks.T in float64, in one order whatever the number of threads."""

    def of(start: int) -> FloatArray:
        part = ranks[:, start : start + CHUNK].astype(np.float64)
        return part @ part.T

    total = np.zeros((len(ranks), len(ranks)))
    for own in in_order(of, range(0, ranks.shape[1], CHUNK), cores()):
        total += own
    return total
