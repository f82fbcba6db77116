"""The pass over the pairs in tiles: for layers whose distances do not fit the memory at once.

A distance is not sorted but put into one of millions of classes of about equally many pairs, which
follow one another as the distances do. A first pass counts the pairs of each class, which gives the
average rank of each; a second sums these ranks by cell. Equal distances are in one class, so that
ties stay ties; a rank is off by at most half of its class, see `LayerSums.rank_bound`. Nothing of
all pairs is held: counts and sums of tiles add up, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import in_order, one_thread_each
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.designs import bands, n_pairs
from mlem_core.pairs.layer_sums import LayerSums, squares_of
from mlem_core.pairs.patterns import PairIndex, left_out, tested_blocks
from mlem_core.pairs.rank_classes import TILE_ELEMENTS, RankClasses
from mlem_core.pairs.ranks import bits_dropped
from mlem_core.pairs.tiles import LayerDistances

if TYPE_CHECKING:
    from mlem_core.pairs.kernels.classes import ClassMap, Tile

# Classes where the memory holds them, and the fewest that are used however little it is.
CLASSES = 2**22
FEWEST = 2**10
# Pairs of the sample that the classes are drawn from, and the fewest stimuli that it pairs at once.
SAMPLE = 2**20
GROUP = 32
SLOTS = 2**13
# A distance that so many pairs of the sample have is a tie.
TIMES = 3
# A key keeps at least 24 bits of the mantissa, however many pairs there are.
DROPPED = 28
# Above all bits of finite numbers.
INFINITY = 0x7FF0000000000000


def class_sums(
    index: PairIndex,
    source: Callable[[], LayerDistances],
    train_ranks: bool = False,
    *,
    memory: int,
    threads: int = 1,
    device: str | None = None,
) -> tuple[LayerSums, RankClasses]:
    """Two passes over the tiles of a layer's distances: the sums by cell, and the classes.

    Parameters
    ----------
    source : gives the distances, whenever they are needed
    train_ranks : also sum the ranks among the pairs that leave out each fold
    memory : bytes that counts and ranks of classes may take, about; on a device of torch a tile
        takes as much
    threads : the sums are the same with any number of them
    device : of torch, which does both passes; None is the CPU without torch
    """
    layer, plan = source(), _Plan.of(index, train_ranks, memory)
    to = class_map(_sample(layer), plan.n_classes, n_pairs(len(layer.row)))
    if device is None:
        tiles = _Tiles(layer, index)
        with one_thread_each():
            ranked = _ranked(plan, to, _counted(plan, tiles, to, threads))
            targets, sums, ends = _summed(plan, index, tiles, (to, ranked.ranks), threads)
    else:
        from mlem_core.pairs.torch_classes import TorchPairs

        pairs = TorchPairs(layer, index.look, to, device, memory)
        ranked = _ranked(plan, to, pairs.counts(plan.column, len(plan.members)))
        targets, sums, ends = pairs.sums(
            ranked.ranks, plan.block, plan.lane, plan.n_shared, index.n_cells
        )
    tested = tested_blocks(index.n_folds)
    rank_sums = np.where(plan.sets[: plan.n_shared, index.cell_block], sums.T[:-1], 0) / 2
    squares = squares_of(plan.pairs, ranked.ties)
    shares = (ranked.ranks[:, 0] / (2 * plan.pairs[0])).astype(np.float32)
    return LayerSums(
        target_sums=targets,
        rank_sums=rank_sums[0],
        within_sums=np.where(np.isin(index.cell_block, tested), sums.T[-1], 0) / 2,
        rank_squares=float(squares[0]),
        within_squares=squares[plan.n_shared :],
        target_low=ends[0],
        target_high=ends[1],
        train_sums=rank_sums[1:] if train_ranks else None,
        train_squares=squares[1 : plan.n_shared] if train_ranks else None,
        rank_bound=ranked.bound,
    ), RankClasses(source, to, shares, ranked.bound)


@dataclass(frozen=True)
class _Plan:
    """What is counted, and which sets of pairs have ranks of their own.

    sets : (n_sets, n_blocks) the blocks of each: of all pairs, of those that train each fold's
        model if asked for (these are shared by several blocks), of those that each fold tests
    n_shared : how many sets the former are
    pairs : (n_sets,) of each set
    members : (n_columns, n_sets) which of them the pairs of a column of counts are in
    column, block : (n_parts, n_parts) the column and the block of the pairs between two parts
    lane : (n_blocks,) the set of the pairs of a block that a fold tests, else 0
    n_classes : at most
    memory : bytes for counts
    """

    sets: NDArray[np.bool_]
    n_shared: int
    pairs: IntArray
    members: IntArray
    column: IntArray
    block: IntArray
    lane: IntArray
    n_classes: int
    memory: int

    @classmethod
    def of(cls, index: PairIndex, train_ranks: bool, memory: int) -> _Plan:
        tested, n = tested_blocks(index.n_folds), index.n_blocks
        training = ~left_out(index.n_folds, n)[: None if train_ranks else 0]
        inside = np.arange(n) == tested[:, None]
        sets = np.concatenate((np.ones((1, n), dtype=bool), training, inside))
        n_shared = 1 + len(training)
        lane = np.zeros(n, dtype=np.int64)
        lane[tested] = n_shared + np.arange(index.n_folds)
        # Blocks that are in the same sets are counted together.
        members, column = np.unique(sets.T, axis=0, return_inverse=True)
        block = index.look.offset // index.n_patterns
        blocks = np.bincount(index.cell_block, index.counts, n).astype(np.int64)
        n_classes, width = CLASSES, 4 * len(members) + 8 * len(sets)
        while n_classes > FEWEST and n_classes * width > memory // 2:
            n_classes //= 2
        return cls(
            sets=sets,
            n_shared=n_shared,
            pairs=sets @ blocks,
            members=members.astype(np.int64),
            column=column.reshape(-1).astype(np.int64)[block],
            block=block,
            lane=lane,
            n_classes=n_classes,
            memory=memory // 2,
        )

    def empty_counts(self, to: ClassMap) -> NDArray[np.uint32]:
        return _zeros(len(to.alone), len(self.members), np.uint32)


def _zeros(n: int, width: int, dtype: Any) -> NDArray[Any]:
    """(n, at least width) zeros of which each row is read from memory at once: 64 bytes, or few."""
    size = np.dtype(dtype).itemsize
    wide = width if size * width <= 32 else -(-width * size // 64) * 64 // size
    memory = np.zeros(n * wide + 64 // size, dtype=dtype)
    return memory[-memory.ctypes.data % 64 // size :][: n * wide].reshape(n, wide)


class _Tiles:
    """The bands of a layer's matrix of distances, and whose distances they are."""

    def __init__(self, layer: LayerDistances, index: PairIndex) -> None:
        self._layer = layer
        self._order = np.argsort(layer.row, kind="stable")
        self._row = layer.row[self._order]
        self._part = index.look.part[self._order]

    def bands(self) -> Iterator[tuple[int, int]]:
        return bands(self._layer.n_rows, TILE_ELEMENTS)

    def of(self, start: int, stop: int) -> Tile:
        from mlem_core.pairs.kernels.classes import Tile

        values = np.ascontiguousarray(self._layer.band(start, stop))
        ends = np.searchsorted(self._row, [start, stop])
        bits, whose = values.view(np.uint64), (self._order, self._row, self._part)
        return Tile(values, bits, start, *whose, int(ends[0]), int(ends[1]))


class _Ranked(NamedTuple):
    """What `mlem_core.pairs.kernels.classes.fill_ranks` fills.

    bound : by what share of its set's pairs a rank is off at most
    """

    ranks: NDArray[Any]
    ties: FloatArray
    bound: float


def _counted(plan: _Plan, tiles: _Tiles, to: ClassMap, threads: int) -> NDArray[np.uint32]:
    """The first pass: how many pairs each class has, by column."""
    from mlem_core.pairs.kernels.classes import count_classes

    counts = plan.empty_counts(to)
    threads = max(1, min(threads, plan.memory // counts.nbytes))
    free: SimpleQueue[NDArray[np.uint32]] = SimpleQueue()
    free.put(counts)
    for _ in range(threads - 1):
        free.put(plan.empty_counts(to))

    def count(band: tuple[int, int]) -> None:
        tile, own = tiles.of(*band), free.get()
        count_classes(tile, plan.column, to, own)
        free.put(own)

    for _ in in_order(count, tiles.bands(), threads):
        pass
    others = [own for own in (free.get() for _ in range(threads)) if own is not counts]
    while others:
        counts += others.pop()
    return counts


def _ranked(plan: _Plan, to: ClassMap, counts: NDArray[np.integer]) -> _Ranked:
    """From the counts to the ranks of each class."""
    from mlem_core.pairs.kernels.classes import fill_ranks

    n_sets = len(plan.pairs)
    whole = np.int32 if plan.pairs[0] < 2**31 else np.int64
    ranks = _zeros(len(counts), n_sets, whole)
    ties, largest = np.zeros(n_sets), np.zeros(n_sets, dtype=np.int64)
    fill_ranks(counts, to.alone, plan.members, plan.pairs, ranks, ties, largest)
    off = np.maximum(largest - 1, 0) / 2 / np.maximum(plan.pairs, 1)
    return _Ranked(ranks, ties, float(off.max()))


def _summed(
    plan: _Plan,
    index: PairIndex,
    tiles: _Tiles,
    ranks: tuple[ClassMap, NDArray[Any]],
    threads: int,
) -> tuple[FloatArray, IntArray, FloatArray]:
    """The second pass: what `mlem_core.pairs.kernels.classes.sum_classes` adds to."""
    from mlem_core.pairs.kernels.classes import sum_classes

    free: SimpleQueue[tuple[IntArray, FloatArray]] = SimpleQueue()
    sets = plan.block, plan.lane
    for _ in range(threads):
        ends = np.repeat([[np.inf], [-np.inf]], index.n_blocks, axis=1)
        free.put((np.zeros((index.n_cells, plan.n_shared + 1), dtype=np.int64), ends))
    _, one, type_ = np.unique(index.look.values, axis=0, return_index=True, return_inverse=True)

    def summed(band: tuple[int, int]) -> FloatArray:
        targets, tile, found = np.zeros(index.n_cells), tiles.of(*band), free.get()
        sum_classes(tile, index.look, type_, one, *sets, *ranks, targets, *found)
        free.put(found)
        return targets

    # Whole numbers add up in any order, these are added in that of the bands.
    targets = np.zeros(index.n_cells)
    for own in in_order(summed, tiles.bands(), threads):
        targets += own
    parts = [free.get() for _ in range(threads)]
    low = np.min([own[0] for _, own in parts], axis=0)
    high = np.max([own[1] for _, own in parts], axis=0)
    return targets, np.sum([own for own, _ in parts], axis=0), np.stack([low, high])


def _sample(layer: LayerDistances) -> FloatArray:
    """Squared distances of some pairs, all stimuli being in about equally many of them."""
    rng, n = np.random.default_rng(0), len(layer.row)
    size = min(n, max(GROUP, 2 * SAMPLE // n))
    rows = layer.row[rng.permutation(n)]
    upper = np.triu_indices(size, 1)
    wanted = range(0, n - size + 1, size)[: max(1, SAMPLE // len(upper[0]))]

    def among(some: IntArray) -> FloatArray:
        return layer.among(some)(0, len(some))[upper]

    return np.concatenate([among(np.sort(rows[k : k + size])) for k in wanted])


def class_map(sample: FloatArray, n_classes: int, n_pairs: int) -> ClassMap:
    """Classes of about equally many pairs, at most n_classes, as a sample of distances (n,) says.

    What is a tie among so many pairs (see `mlem_core.pairs.ranks.keys_of`) is in one class; a
    distance that several pairs of the sample have is a class of its own.
    """
    from mlem_core.pairs.kernels.classes import ClassMap

    dropped = min(DROPPED, bits_dropped(n_pairs))
    rounded = (sample + 0.0).view(np.int64) + (1 << dropped >> 1)
    keys = np.sort(rounded >> dropped)
    n, end = len(keys), (INFINITY >> dropped) + 2
    n_slots = max(4, min(SLOTS, n_classes // 8))
    low, high = int(keys[n // 1000]), int(keys[-1 - n // 1000])
    shift = max(0, (high - low).bit_length() - n_slots.bit_length() + 1)
    starts = low + (np.arange(n_slots) << shift)
    knots = np.concatenate((starts, _knots(keys, starts)))
    knots = np.unique(np.concatenate((knots[(knots > 0) & (knots < end)], [0, 1, end])))
    width = np.diff(knots)
    # What the sample does not have is given some classes too.
    pairs = np.diff(np.searchsorted(keys, knots)) + max(1.0, n / len(width) / 8)
    room = max(0, n_classes - len(width))
    sizes = np.minimum(1 + (room * (pairs / pairs.sum())).astype(np.int64), width)
    base = np.cumsum(sizes) - sizes
    # A little less, so that no rounding reaches the next segment.
    scale = np.where(sizes == width, 1.0, sizes / width * (1 - 2.0**-50))
    at = np.searchsorted(knots, starts).clip(max=len(width) - 1)
    single = (knots[at] == starts) & (width[at] == 1 << shift)
    return ClassMap(
        dropped=dropped,
        knots=knots,
        base=base,
        scale=scale,
        low=low,
        shift=shift,
        slots=np.stack([np.where(single, base[at], -1), scale[at]], axis=1),
        alone=np.repeat(sizes == width, sizes),
    )


def _knots(keys: IntArray, starts: IntArray) -> IntArray:
    """Where else, beside the slots' starts, the density of keys (n,), sorted, may change."""
    n, n_slots = len(keys), len(starts)
    even, slots = np.linspace(0, n - 1, n_slots).astype(int), np.searchsorted(keys, starts)
    inside = np.searchsorted(slots, even, side="right")
    sizes = np.diff(slots, prepend=0, append=n)
    # Where many keys are in a slot, and towards both ends, where they are rare.
    crowded = even[(sizes[inside] > 4 * n / n_slots) | (inside % n_slots == 0)]
    steps = 2 ** np.arange(max(1, n // n_slots).bit_length())
    at = np.unique(np.concatenate((crowded, steps, n - 1 - steps)).clip(0, n - 1))
    reach = np.array([1, 2, 4]) * max(1, int(keys[min(16, n - 1)] - keys[0]))
    beyond = np.array([1, 2, 4]) * max(1, int(keys[-1] - keys[max(0, n - 17)]))
    found, times = np.unique(keys, return_counts=True)
    tied = np.flatnonzero(times >= TIMES)
    tied = found[tied[np.argsort(-times[tied], kind="stable")[:n_slots]]]
    return np.concatenate((keys[at], keys[0] - reach, keys[-1] + beyond, tied, tied + 1))
