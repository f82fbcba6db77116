"""The ranks of all pairs in all layers, kept until the layers have been compared (RSA)."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import cores, in_order
from mlem_core.base.typing import FloatArray, IntArray

# Ranks of all layers up to this size stay in memory; larger ones go to a temporary file.
IN_MEMORY_BYTES = 2**30
BAND = 2**13
# Of so many layers and so many pairs, ranks are multiplied at once; sums of these are in one order
# whoever computes them.
BLOCK = 256
SEGMENT = 2**17


class RankPart(NamedTuple):
    """Some pairs, first..last-1, of some layers with some others."""

    a: tuple[int, int]
    b: tuple[int, int]
    first: int
    last: int


# First and last layer, first and last pair, to twice the average ranks (n_layers, n_pairs).
ReadRanks = Callable[[tuple[int, int], int, int], NDArray[np.uint32]]
# (n_a, n_b) sums of products of the centred ranks, and sums (n_a,) of those of the first.
RankSums = tuple[FloatArray, FloatArray]


def rank_parts(n_layers: int, first: int, last: int) -> Iterator[RankPart]:
    """What products of the ranks of every two layers over the pairs first..last-1 are made of."""
    edges = [*range(0, n_layers, BLOCK), n_layers]
    for a, b in itertools.combinations_with_replacement(itertools.pairwise(edges), 2):
        for start in range(first, last, SEGMENT):
            yield RankPart(a, b, start, min(start + SEGMENT, last))


def part_sums(read: ReadRanks, n_pairs: int, part: RankPart) -> RankSums:
    """The sums of one part; ranks are among n_pairs."""
    left = read(part.a, part.first, part.last)
    right = left if part.a == part.b else read(part.b, part.first, part.last)
    total, product = np.zeros(len(left)), np.zeros((len(left), len(right)))
    for start in range(0, part.last - part.first, BAND):
        band = left[:, start : start + BAND] - (n_pairs + 1.0)
        other = band if right is left else right[:, start : start + BAND] - (n_pairs + 1.0)
        product += band @ other.T
        total += band.sum(axis=1)
    return product, total


def joined_sums(n_layers: int, parts: Iterable[RankPart], sums: Iterable[RankSums]) -> RankSums:
    """(n_layers, n_layers) and (n_layers,) of all parts, added in their order."""
    products, totals = np.zeros((n_layers, n_layers)), np.zeros(n_layers)
    for part, (product, total) in zip(parts, sums, strict=True):
        products[slice(*part.a), slice(*part.b)] += product
        if part.a == part.b:
            totals[slice(*part.a)] += total
        else:
            products[slice(*part.b), slice(*part.a)] += product.T
    return products, totals


def rsa_of(sums: RankSums, n_pairs: int, whole: bool = True) -> FloatArray:
    """ρ (n_layers, n_layers) from sums over n_pairs; of all pairs (`whole`) ranks add up to 0."""
    products, totals = sums
    return correlations(products if whole else products - np.outer(totals, totals) / n_pairs)


class PairRanks:
    """The ranks of all pairs; `folder` gets a temporary file if they are too large for memory."""

    def __init__(self, n_layers: int, n_pairs: int, folder: Path | None = None) -> None:
        self.n_layers, self.n_pairs = n_layers, n_pairs
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        if 4 * n_layers * self.n_pairs <= IN_MEMORY_BYTES:
            self._ranks = np.empty((n_layers, self.n_pairs), dtype=np.uint32)
        else:
            # Unlinked as soon as it is open: nothing is left behind however the process ends.
            self._file = cast(BinaryIO, tempfile.TemporaryFile(dir=folder))  # noqa: SIM115

    def __enter__(self) -> PairRanks:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, layer: int, doubled: NDArray[np.uint32]) -> None:
        """Keep twice the average ranks (n_pairs,) of a layer."""
        if self._file is None:
            self._ranks[layer] = doubled
        else:
            with self._lock:
                self._file.seek(4 * layer * self.n_pairs)
                self._file.write(doubled.data)

    def put_nothing(self, layer: int) -> None:
        """Keep a place for a layer that has no ranks."""
        if self._file is None:
            self._ranks[layer] = 0
            return
        with self._lock:
            # A hole in a file reads as zeros.
            self._file.truncate(4 * self.n_layers * self.n_pairs)

    def read(self, layers: tuple[int, int], first: int, last: int) -> NDArray[np.uint32]:
        """Twice the ranks of the pairs first..last-1 in some layers."""
        if self._file is None:
            return self._ranks[slice(*layers), first:last]
        part = np.empty((layers[1] - layers[0], last - first), dtype=np.uint32)
        with self._lock:
            for own, layer in zip(part, range(*layers), strict=True):
                self._file.seek(4 * (layer * self.n_pairs + first))
                own[:] = np.frombuffer(self._file.read(4 * (last - first)), np.uint32)
        return part

    def rsa(self, edges: IntArray | None = None) -> FloatArray:
        """Spearman ρ of the neural distances of every two layers over all pairs.

        A layer whose distances are all equal has ρ = 0 with every other and 1 with itself.

        Parameters
        ----------
        edges : (n_parts + 1,) where parts of the pairs begin; ρ is then of the ranks among all
            pairs, over those of each part

        Returns (n_layers, n_layers), or (n_parts, n_layers, n_layers).

        Source: Salle et al. 2024, section 4 (feature-agnostic similarity).
        """
        if edges is not None:
            return np.stack([self._rsa(int(a), int(b)) for a, b in itertools.pairwise(edges)])
        return self._rsa(0, self.n_pairs)

    def _rsa(self, first: int, last: int) -> FloatArray:
        parts = list(rank_parts(self.n_layers, first, last))
        sums = in_order(lambda one: part_sums(self.read, self.n_pairs, one), parts, cores())
        found = joined_sums(self.n_layers, parts, sums)
        return rsa_of(found, last - first, (first, last) == (0, self.n_pairs))


def correlations(products: FloatArray) -> FloatArray:
    """From sums of products of the ranks of every two layers to ρ, both (n_layers, n_layers)."""
    spread = np.sqrt(np.diag(products))
    both = spread[:, None] * spread[None, :]
    rsa = np.divide(products, both, out=np.zeros_like(products), where=both > 0)
    np.fill_diagonal(rsa, 1.0)
    return np.clip(rsa, -1.0, 1.0)
