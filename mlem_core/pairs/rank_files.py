"""The ranks of all pairs, in a file for each layer that several processes read, or an array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import cores
from mlem_core.base.typing import FloatArray
from mlem_core.pairs.rank_store import (
    RankPart,
    RankSums,
    joined_sums,
    part_sums,
    rank_parts,
    rsa_of,
)
from mlem_core.scale.executor import HERE, Executor

# So many products of two ranks are a second's work: less than it takes to send it away.
LITTLE = 2**33
# Pairs of a layer that are ranked in a few tenths of a second: less is soon done again than kept.
FEW = 2**22


def is_little(n_layers: int, n_pairs: int) -> bool:
    """Whether ranks of so many layers and pairs are not worth a file."""
    return n_pairs <= FEW and n_layers**2 * n_pairs <= LITTLE


@dataclass(frozen=True)
class RankFiles:
    """Twice the average ranks (n_pairs,) uint32 of each layer.

    of_layer : the file that has them as they lie in memory, or they; None has none
    """

    of_layer: tuple[Path | NDArray[np.uint32] | None, ...]
    n_pairs: int

    def read(self, layers: tuple[int, int], first: int, last: int) -> NDArray[np.uint32]:
        """Those of the pairs first..last-1 in some layers."""
        found = np.zeros((layers[1] - layers[0], last - first), dtype=np.uint32)
        for own, ranks in zip(found, self.of_layer[slice(*layers)], strict=True):
            if isinstance(ranks, Path):
                own[:] = np.fromfile(ranks, np.uint32, last - first, offset=4 * first)
            elif ranks is not None:
                own[:] = ranks[first:last]
        return found

    def rsa(self, spans: Sequence[tuple[int, int]], executor: Executor, folder: Path) -> FloatArray:
        """`PairRanks.rsa` over each span of the pairs: (n_spans, n_layers, n_layers).

        Parameters
        ----------
        executor : computes the parts where its workers share `folder`, which the files are in, and
            these are not a little
        """
        n_layers = len(self.of_layer)
        parts = [list(rank_parts(n_layers, *span)) for span in spans]
        every = [part for own in parts for part in own]
        apart = not is_little(n_layers, self.n_pairs) and executor.shares(folder)
        where = executor if apart else HERE
        found = where.results(sums_of_part, every, (self,), folder=folder, threads=cores())
        sums, rsa = iter(found), []
        for (first, last), own in zip(spans, parts, strict=True):
            joined = joined_sums(n_layers, own, (next(sums) for _ in own))
            rsa.append(rsa_of(joined, last - first, (first, last) == (0, self.n_pairs)))
        return np.stack(rsa)


def sums_of_part(files: RankFiles, part: RankPart) -> RankSums:
    """What a worker does: the sums of one part of the products."""
    return part_sums(files.read, files.n_pairs, part)
