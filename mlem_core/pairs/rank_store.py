"""The ranks of all pairs in all layers, kept until the layers have been compared (RSA)."""

from __future__ import annotations

import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mlem_core.base.parallel import cores
from mlem_core.base.typing import FloatArray
from mlem_core.pairs.condensed import n_pairs

# Ranks of all layers up to this size stay in memory; larger ones go to a temporary file.
IN_MEMORY_BYTES = 2**30
BAND = 2**13


class PairRanks:
    """The ranks of all pairs; `folder` gets a temporary file if they are too large for memory."""

    def __init__(self, n_layers: int, n_stimuli: int, folder: Path | None = None) -> None:
        self.n_layers, self.n_pairs = n_layers, n_pairs(n_stimuli)
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

    def rsa(self) -> FloatArray:
        """Spearman ρ of the neural distances of every two layers over all pairs of stimuli.

        A layer whose distances are all equal has ρ = 0 with every other and 1 with itself.

        Returns (n_layers, n_layers).

        Source: Salle et al. 2024, section 4 (feature-agnostic similarity).
        """
        workers = cores()
        step = BAND if self._file is None else 16 * BAND
        edges = np.linspace(0, self.n_pairs, workers + 1).astype(int)

        def part(worker: int) -> FloatArray:
            product = np.zeros((self.n_layers, self.n_layers))
            for start in range(edges[worker], edges[worker + 1], step):
                band = self.band(start, min(start + step, edges[worker + 1]))
                product += band @ band.T
            return product

        with threadpool_limits(1), ThreadPoolExecutor(workers) as pool:
            products = sum(pool.map(part, range(workers)), np.zeros((1, 1)))
        spread = np.sqrt(np.diag(products))
        both = spread[:, None] * spread[None, :]
        rsa = np.divide(products, both, out=np.zeros_like(products), where=both > 0)
        np.fill_diagonal(rsa, 1.0)
        return np.clip(rsa, -1.0, 1.0)
