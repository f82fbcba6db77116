"""For `benchmarks.gpu`: the pass over the pairs of a layer on a device, over the one in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.device import NO_GPU, Device
from benchmarks.scale import NOISE, features, planted
from benchmarks.timing import Table, seconds
from mlem_core.pairs.build import PAIR_BYTES, PassOptions, pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.tables import PairTables

FOLDS = 5
MANY = 100_000
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

    def tables(self, device: str | None, memory: int) -> PairTables:
        """The pair tables, in classes where the pairs do not fit the memory."""
        options = PassOptions(device=device, memory=memory)
        return pair_tables(self.index, [lambda: self.rows], train_ranks=True, options=options)

    def room(self, in_classes: bool) -> int:
        """Bytes in which all pairs fit, or half of them do."""
        return PAIR_BYTES * self.index.design.n_pairs // (2 if in_classes else 1)


def apart(ours: PairTables, theirs: PairTables) -> tuple[float, float]:
    """The largest differences of sums of ranks, and of distances, as a share of the largest."""

    def share(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
        return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-300))

    ranks = [share(getattr(ours, name), getattr(theirs, name)) for name in SUMS]
    ranks.append(share(np.asarray(ours.training_ranks), np.asarray(theirs.training_ranks)))
    return max(ranks), share(ours.target_sums, theirs.target_sums)


def passes(table: Table, device: Device, case: Case, in_classes: bool, runs: int) -> None:
    """A layer that the CPU can do too, on both: sums, seconds, memory."""
    n, memory = len(case.rows), case.room(in_classes)
    how = "in tiles, by classes" if in_classes else "sorted at once"
    what = f"pair tables of {n:,} stimuli ({n_pairs(n):,} pairs), {how}"
    ranks, distances = apart(case.tables(device.name, memory), case.tables(None, memory))
    table.add(
        f"{what}: sums of ranks differ from NumPy's by", f"{ranks:.1e}", target="at most 1e-7"
    )
    table.add(f"{what}: sums of distances", f"{distances:.1e}", target="at most 1e-10")
    if not device.is_gpu:
        table.add(f"{what}: seconds on a GPU and on the CPU", "skipped", NO_GPU)
        return
    timed = [device.timed(lambda: case.tables(device.name, memory)) for _ in range(runs)]
    ours, peak = min(took for took, _ in timed), max(peak for _, peak in timed)
    theirs = min(seconds(lambda: case.tables(None, memory)) for _ in range(runs))
    table.add(
        f"{what}: seconds on the GPU and on the CPU",
        f"{ours:.2f} s",
        f"{theirs:.2f} s",
        f"{theirs / ours:.1f}",
    )
    table.add(f"{what}: peak memory", f"{peak:.2f} GB")


def many(table: Table, device: Device, n: int, n_units: int, memory: int) -> None:
    """All pairs of as many stimuli, in tiles on the GPU alone."""
    what = f"all {n_pairs(n):,} pairs of {n:,} stimuli, a layer of {n_units} units, in tiles"
    if not device.is_gpu:
        table.add(what, "skipped", NO_GPU)
        return
    case = Case.of(n, n_units)
    kept: dict[int, float] = {}
    options = PassOptions(
        device=device.name,
        memory=memory,
        keep_classes=lambda position, found: kept.update({position: found.bound}),
    )
    took, peak = device.timed(
        lambda: pair_tables(case.index, [lambda: case.rows], train_ranks=True, options=options)
    )
    table.add(what, f"{took:.0f} s a layer", f"{n_pairs(n) / took:,.0f} pairs/s")
    table.add(f"{what}: a rank is off by at most", f"{kept[0]:.1e} of the pairs")
    table.add(f"{what}: peak memory", f"{peak:.2f} GB")
