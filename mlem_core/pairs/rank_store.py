"""The ranks of all pairs in all layers, kept until the layers have been compared (RSA)."""

from __future__ import annotations

import itertools
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mlem_core.base.parallel import cores
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.rank_classes import RankClasses, products_of_ranks

# Ranks of all layers up to this size stay in memory; larger ones go to a temporary file.
IN_MEMORY_BYTES = 2**30
BAND = 2**13


class PairRanks:
    """The ranks of all pairs; `folder` gets a temporary file if they are too large for memory."""

    def __init__(self, n_layers: int, n_pairs: int, folder: Path | None = None) -> None:
        self.n_layers, self.n_pairs = n_layers, n_pairs
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        self._classes: dict[int, RankClasses] = {}
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

    def put_classes(self, layer: int, classes: RankClasses) -> None:
        """Keep the classes of a layer whose ranks do not fit the memory."""
        self._classes[layer] = classes

    @property
    def bound(self) -> float:
        """By what share of the pairs a rank is off at most."""
        return max((own.bound for own in self._classes.values()), default=0.0)

    def band(self, start: int, stop: int) -> FloatArray:
        """Twice the centred ranks of the pairs start..stop-1, (n_layers, stop - start)."""
        if self._file is None:
            part = self._ranks[:, start:stop].astype(np.float64)
        else:
            part = np.empty((self.n_layers, stop - start))
            with self._lock:
                for layer in range(self.n_layers):
                    self._file.seek(4 * (layer * self.n_pairs + start))
                    part[layer] = np.frombuffer(self._file.read(4 * (stop - start)), np.uint32)
        part -= self.n_pairs + 1.0
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
        if self._classes:
            return correlations(products_of_ranks(self._classes, self.n_layers))
        return self._rsa(0, self.n_pairs)

    def _rsa(self, first: int, last: int) -> FloatArray:
        workers = cores()
        step = BAND if self._file is None else 16 * BAND
        edges = np.linspace(first, last, workers + 1).astype(int)

        def part(worker: int) -> tuple[FloatArray, FloatArray]:
            product, total = np.zeros((self.n_layers, self.n_layers)), np.zeros(self.n_layers)
            for start in range(edges[worker], edges[worker + 1], step):
                band = self.band(start, min(start + step, edges[worker + 1]))
                product += band @ band.T
                total += band.sum(axis=1)
            return product, total

        with threadpool_limits(1), ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(part, range(workers)))
        products = sum((one for one, _ in parts), np.zeros((1, 1)))
        if (first, last) != (0, self.n_pairs):
            total = np.sum([own for _, own in parts], axis=0)
            products = products - np.outer(total, total) / (last - first)
        return correlations(products)


def correlations(products: FloatArray) -> FloatArray:
    """From sums of products of the ranks of every two layers to ρ, both (n_layers, n_layers)."""
    spread = np.sqrt(np.diag(products))
    both = spread[:, None] * spread[None, :]
    rsa = np.divide(products, both, out=np.zeros_like(products), where=both > 0)
    np.fill_diagonal(rsa, 1.0)
    return np.clip(rsa, -1.0, 1.0)
