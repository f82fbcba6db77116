"""For `benchmarks.gpu`: the pass over the pairs of a layer on a device, over the one in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.device import NO_GPU, Device
from benchmarks.scale import NOISE, features, planted
from benchmarks.timing import Table, seconds
from mlem_core.pairs.build import PassOptions, pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.tables import PairTables

FOLDS = 5
SUMS = ("rank_sums", "within_sums", "rank_squares", "within_squares", "train_squares")


@dataclass(frozen=True)
class Case:
    """A made-up layer (n, n_units) and the pairs of its stimuli."""

    index: PairIndex
    rows: NDArray[np.float32]

    @classmethod
    def of(cls, n: int, n_units: int) -> Case:
        """What `benchmarks.scale` plants, and noise in all units."""
        rng = np.random.default_rng(0)
        table = features(n, rng)
        rows = NOISE * rng.standard_normal((n, n_units), dtype=np.float32)
        rows[:, :4] = planted(table, 0)
        return cls(PairIndex.build(feature_columns(table), rng.permutation(n) % FOLDS), rows)

    def tables(self, device: str | None) -> PairTables:
        """The pair tables, of all pairs."""
        options = PassOptions(device=device)
        return pair_tables(self.index, [lambda: self.rows], train_ranks=True, options=options)


def apart(ours: PairTables, theirs: PairTables) -> tuple[float, float]:
    """The largest differences of sums of ranks, and of distances, as a share of the largest."""

    def share(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
        return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-300))

    ranks = [share(getattr(ours, name), getattr(theirs, name)) for name in SUMS]
    ranks.append(share(np.asarray(ours.training_ranks), np.asarray(theirs.training_ranks)))
    return max(ranks), share(ours.target_sums, theirs.target_sums)


def passes(table: Table, device: Device, case: Case, runs: int) -> None:
    """A layer on a device and on the CPU: sums, seconds, memory."""
    n = len(case.rows)
    what = f"pair tables of {n:,} stimuli ({n_pairs(n):,} pairs)"
    ranks, distances = apart(case.tables(device.name), case.tables(None))
    table.add(
        f"{what}: sums of ranks differ from NumPy's by", f"{ranks:.1e}", target="at most 1e-7"
    )
    table.add(f"{what}: sums of distances", f"{distances:.1e}", target="at most 1e-10")
    if not device.is_gpu:
        table.add(f"{what}: seconds on a GPU and on the CPU", "skipped", NO_GPU)
        return
    timed = [device.timed(lambda: case.tables(device.name)) for _ in range(runs)]
    ours, peak = min(took for took, _ in timed), max(peak for _, peak in timed)
    theirs = min(seconds(lambda: case.tables(None)) for _ in range(runs))
    table.add(
        f"{what}: seconds on the GPU and on the CPU",
        f"{ours:.2f} s",
        f"{theirs:.2f} s",
        f"{theirs / ours:.1f}",
    )
    table.add(f"{what}: peak memory", f"{peak:.2f} GB")
