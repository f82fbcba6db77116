"""The ranks of all pairs in files, one a layer, that several processes read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.executor import Executor
from mlem_core.base.parallel import cores, in_order
from mlem_core.base.typing import FloatArray
from mlem_core.pairs.rank_store import (
    RankPart,
    RankSums,
    joined_sums,
    part_sums,
    rank_parts,
    rsa_of,
)

# So many products of two ranks are a second's work: less than it takes to send it away.
LITTLE = 2**33


@dataclass(frozen=True)
class RankFiles:
    """Twice the average ranks (n_pairs,) uint32 of each layer, in .npy files; None has none."""

    paths: tuple[Path | None, ...]
    n_pairs: int

    def read(self, layers: tuple[int, int], first: int, last: int) -> NDArray[np.uint32]:
        """Those of the pairs first..last-1 in some layers."""
        found = np.zeros((layers[1] - layers[0], last - first), dtype=np.uint32)
        for own, path in zip(found, self.paths[slice(*layers)], strict=True):
            if path is not None:
                own[:] = np.load(path, mmap_mode="r", allow_pickle=False)[first:last]
        return found

    def rsa(self, spans: Sequence[tuple[int, int]], executor: Executor, folder: Path) -> FloatArray:
        """`PairRanks.rsa` over each span of the pairs: (n_spans, n_layers, n_layers).

        Parameters
        ----------
        executor : computes the parts where its workers share `folder`, which the files are in
        """
        n_layers = len(self.paths)
        parts = [list(rank_parts(n_layers, *span)) for span in spans]
        every = [part for own in parts for part in own]
        found: list[RankSums]
        pairs = sum(last - first for first, last in spans)
        if n_layers**2 * pairs > LITTLE and executor.shares(folder):
            given = dict(executor.each_of(sums_of_part, every, (self,), folder))
            found = [_checked(given[at]) for at in range(len(every))]
        else:
            found = list(in_order(lambda part: sums_of_part(self, part), every, cores()))
        sums, rsa = iter(found), []
        for (first, last), own in zip(spans, parts, strict=True):
            joined = joined_sums(n_layers, own, (next(sums) for _ in own))
            rsa.append(rsa_of(joined, last - first, (first, last) == (0, self.n_pairs)))
        return np.stack(rsa)


def _checked(found: RankSums | Exception) -> RankSums:
    if isinstance(found, Exception):
        raise found
    return found


def sums_of_part(files: RankFiles, part: RankPart) -> RankSums:
    """What a worker does: the sums of one part of the products."""
    return part_sums(files.read, files.n_pairs, part)
