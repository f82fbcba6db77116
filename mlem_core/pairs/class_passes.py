"""The two passes over the tiles of a layer, in parts that add up whoever does them.

A part is some bands of the matrix of distances. Which ones depends on the pairs and on the memory
for them alone, and so does the order in which their sums are added: threads, processes or machines
that share the parts out give the same numbers to the last bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import in_order
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.designs import bands, n_pairs
from mlem_core.pairs.patterns import PairIndex, left_out, tested_blocks
from mlem_core.pairs.ranks import bits_dropped
from mlem_core.pairs.tiles import TILE_ELEMENTS, LayerDistances

if TYPE_CHECKING:
    from mlem_core.pairs.kernels.classes import ClassMap, Tile

# Classes where the memory holds them, and the fewest that are used however little it is.
CLASSES = 2**22
FEWEST = 2**10
# Parts of a layer at most, and bytes of the memory for pairs that one of them stands for.
MOST_PARTS, PART_BYTES = 32, 64
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


@dataclass(frozen=True)
class ClassPlan:
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
    def of(cls, index: PairIndex, train_ranks: bool, memory: int) -> ClassPlan:
        """The plan of all layers of these stimuli."""
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


def n_parts(n_pairs: int, memory: int) -> int:
    """How many parts each pass over so many pairs has, where `memory` bytes are for them."""
    return min(MOST_PARTS, max(1, -(-PART_BYTES * n_pairs // memory)))


def bytes_of_counts(n_pairs: int, n_folds: int, memory: int) -> int:
    """What the counts of all parts take at most, where they are files."""
    one = 4 * CLASSES * n_folds * (n_folds + 1) // 2
    return n_parts(n_pairs, memory) * min(memory // 2, one)


class Ranked(NamedTuple):
    """What `mlem_core.pairs.kernels.classes.fill_ranks` fills.

    bound : by what share of its set's pairs a rank is off at most
    """

    ranks: NDArray[Any]
    ties: FloatArray
    bound: float


class PartSums(NamedTuple):
    """What `mlem_core.pairs.kernels.classes.sum_classes` adds to, of the pairs of a part.

    targets (n_cells,), sums (n_cells, n_shared + 1), low and high (n_blocks,)
    """

    targets: FloatArray
    sums: IntArray
    low: FloatArray
    high: FloatArray


class ClassPasses:
    """The passes over the pairs of a layer.

    Parameters
    ----------
    train_ranks, memory : see `mlem_core.pairs.classes.class_sums`
    """

    def __init__(
        self, index: PairIndex, layer: LayerDistances, train_ranks: bool, memory: int
    ) -> None:
        self.index, self.layer = index, layer
        self.plan = ClassPlan.of(index, train_ranks, memory)
        pairs = n_pairs(len(layer.row))
        self.to = class_map(_sample(layer), self.plan.n_classes, pairs)
        self._parts = _parts(layer.n_rows, n_parts(pairs, memory))
        self._order = np.argsort(layer.row, kind="stable")
        self._row = layer.row[self._order]
        self._part = index.look.part[self._order]

    def counts(
        self, parts: Sequence[int], threads: int = 1, done: Callable[[int], None] | None = None
    ) -> NDArray[np.uint32]:
        """The first pass over some parts: how many pairs each class has, by column.

        `done` is called with how many parts are done.
        """
        from mlem_core.pairs.kernels.classes import count_classes

        counts = self._no_counts()
        threads = max(1, min(threads, self.plan.memory // counts.nbytes))
        free: SimpleQueue[NDArray[np.uint32]] = SimpleQueue()
        free.put(counts)
        for _ in range(threads - 1):
            free.put(self._no_counts())

        def count(band: tuple[int, int]) -> None:
            tile, own = self._tile(*band), free.get()
            count_classes(tile, self.plan.column, self.to, own)
            free.put(own)

        for number, part in enumerate(parts, 1):
            for _ in in_order(count, self._parts[part], threads):
                pass
            if done is not None:
                done(number)
        others = [own for own in (free.get() for _ in range(threads)) if own is not counts]
        while others:
            counts += others.pop()
        return counts

    def ranked(self, counts: NDArray[np.integer]) -> Ranked:
        """The ranks of each class, from the counts of all parts."""
        from mlem_core.pairs.kernels.classes import fill_ranks

        plan, n_sets = self.plan, len(self.plan.pairs)
        whole = np.int32 if plan.pairs[0] < 2**31 else np.int64
        ranks = _zeros(len(counts), n_sets, whole)
        ties, largest = np.zeros(n_sets), np.zeros(n_sets, dtype=np.int64)
        fill_ranks(counts, self.to.alone, plan.members, plan.pairs, ranks, ties, largest)
        off = np.maximum(largest - 1, 0) / 2 / np.maximum(plan.pairs, 1)
        return Ranked(ranks, ties, float(off.max()))

    def sums(self, part: int, ranks: NDArray[Any], threads: int = 1) -> PartSums:
        """The second pass over a part, given the ranks of all classes."""
        from mlem_core.pairs.kernels.classes import sum_classes

        index, plan = self.index, self.plan
        free: SimpleQueue[tuple[IntArray, FloatArray]] = SimpleQueue()
        for _ in range(threads):
            ends = np.repeat([[np.inf], [-np.inf]], index.n_blocks, axis=1)
            free.put((np.zeros((index.n_cells, plan.n_shared + 1), dtype=np.int64), ends))
        what = index.look, *self._types, plan.block, plan.lane, self.to, ranks

        def summed(band: tuple[int, int]) -> FloatArray:
            targets, tile, found = np.zeros(index.n_cells), self._tile(*band), free.get()
            sum_classes(tile, *what, targets, *found)
            free.put(found)
            return targets

        # Whole numbers add up in any order, these are added in that of the bands.
        targets = np.zeros(index.n_cells)
        for own in in_order(summed, self._parts[part], threads):
            targets += own
        every = [free.get() for _ in range(threads)]
        low = np.min([own[0] for _, own in every], axis=0)
        high = np.max([own[1] for _, own in every], axis=0)
        return PartSums(targets, np.sum([own for own, _ in every], axis=0), low, high)

    @functools.cached_property
    def _types(self) -> tuple[IntArray, IntArray]:
        """Which stimuli are alike in all features, and one of each type."""
        _, one, type_ = np.unique(
            self.index.look.values, axis=0, return_index=True, return_inverse=True
        )
        return type_, one

    def _no_counts(self) -> NDArray[np.uint32]:
        return _zeros(len(self.to.alone), len(self.plan.members), np.uint32)

    def _tile(self, start: int, stop: int) -> Tile:
        from mlem_core.pairs.kernels.classes import Tile

        values = np.ascontiguousarray(self.layer.band(start, stop))
        ends = np.searchsorted(self._row, [start, stop])
        bits, whose = values.view(np.uint64), (self._order, self._row, self._part)
        return Tile(values, bits, start, *whose, int(ends[0]), int(ends[1]))


def added(parts: Sequence[PartSums]) -> PartSums:
    """The sums of all parts, as a tree of which the shape is that of their number."""
    found = list(parts)
    while len(found) > 1:
        pairs = [found[k : k + 2] for k in range(0, len(found), 2)]
        found = [pair[0] if len(pair) == 1 else _both(*pair) for pair in pairs]
    return found[0]


def _both(one: PartSums, other: PartSums) -> PartSums:
    return PartSums(
        one.targets + other.targets,
        one.sums + other.sums,
        np.minimum(one.low, other.low),
        np.maximum(one.high, other.high),
    )


def _parts(n_rows: int, number: int) -> list[list[tuple[int, int]]]:
    """The bands of each part, of about equally many pairs; of few rows some parts have none."""
    every = list(bands(n_rows, max(1, min(TILE_ELEMENTS, n_rows**2 // number))))
    parts: list[list[tuple[int, int]]] = [[] for _ in range(number)]
    before = 0
    for start, stop in every:
        parts[before * number // (n_rows * n_rows)].append((start, stop))
        before += (stop - start) * (2 * n_rows - start - stop)
    return parts


def _zeros(n: int, width: int, dtype: Any) -> NDArray[Any]:
    """(n, at least width) zeros of which each row is read from memory at once: 64 bytes, or few."""
    size = np.dtype(dtype).itemsize
    wide = width if size * width <= 32 else -(-width * size // 64) * 64 // size
    memory = np.zeros(n * wide + 64 // size, dtype=dtype)
    return memory[-memory.ctypes.data % 64 // size :][: n * wide].reshape(n, wide)


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
