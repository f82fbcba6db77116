"""Design of the pairs that are compared: all of them, or a balanced choice of some.

The pairs grow with the square of the stimuli: 10,000 have 50 million, 100,000 have 5 billion. A
correlation over M pairs that are drawn of them differs from that over all by about (1 - ρ²) / √M,
2·10⁻⁴ for 20 million, far less than what other sentences would change. So beyond a budget of pairs
an incomplete design takes their place: within every two parts of the stimuli (folds), these are
laid in a ring in random order, and each is paired with the next K. Each stimulus is then in
(nearly) equally many pairs, each two parts have the share of the pairs that they have among all,
and the cost is linear in the stimuli. A design is of several independent ones, each with an order
of its own, whose differences say how much the choice of the pairs matters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray

# Pairs beyond which a design takes the place of all pairs, where nothing else is asked.
BUDGET = 50_000_000
# Pairs that are drawn again at most, for intervals and audits.
RESAMPLED = 8_000_000
# Independent designs that a design is of.
DESIGNS = 8
# With fewer pairs a stimulus, some pair of folds would have none in some design.
FEWEST_A_STIMULUS = 8
# Lags that two stimuli are apart at least; what is less than 1 by rounding is 1.
NEAR = 1.0 - 1e-9


def n_pairs(n_stimuli: int) -> int:
    """Number of unordered pairs of `n_stimuli` stimuli."""
    return n_stimuli * (n_stimuli - 1) // 2


def row_slices(n_stimuli: int) -> Iterator[tuple[int, slice]]:
    """Places of the pairs (i, i+1), (i, i+2), ... of each stimulus i."""
    start = 0
    for i in range(n_stimuli - 1):
        stop = start + n_stimuli - 1 - i
        yield i, slice(start, stop)
        start = stop


def bands(n: int, elements: int) -> Iterator[tuple[int, int]]:
    """Bands of the rows of a matrix of n rows: (start, stop), of about so many elements."""
    height = max(16, elements // max(1, n))
    for start in range(0, n, height):
        yield start, min(n, start + height)


def pair_places(i: IntArray, j: IntArray, n_stimuli: int) -> IntArray:
    """Places of the pairs (i, j); i differs from j, in either order."""
    # Where the pairs of each stimulus as the first one begin, before i and j are combined.
    start_i, start_j = (k * n_stimuli - k * (k + 1) // 2 - k - 1 for k in (i, j))
    return np.where(i < j, start_i + j, start_j + i)


def pairs_among(stimuli: IntArray, n_stimuli: int) -> IntArray:
    """Places of the pairs among some stimuli, ascending, among all pairs."""
    where = np.empty(n_pairs(len(stimuli)), dtype=np.int64)
    for a, at in row_slices(len(stimuli)):
        where[at] = pair_places(stimuli[a], stimuli[a + 1 :], n_stimuli)
    return where


@dataclass(frozen=True)
class PairDesign:
    """The pairs that are compared, by rows: those of a row are of one stimulus with others.

    Arrays of pairs (n_pairs,) have them in this order.

    n_stimuli : pairs are of numbers below it
    stimulus : (n_rows,) int32 the first stimulus of the pairs of each row
    starts : (n_rows + 1,) where the pairs of each row begin
    partner : (n_pairs,) int32 the second stimulus of each pair; or (0,) where all pairs are
        compared: row i then has those of i with i + 1, i + 2, ... (condensed order)
    parts : (n_designs + 1,) the row where each of the independent designs begins
    items : (n_stimuli,) item of each stimulus, two of one being compared but testing no fold, see
        `mlem_core.stimuli.folds.untested_items`; None where all pairs inside a fold test it
    times : (n_stimuli,) when each stimulus came, in lags: two that are less than 1 apart are in no
        sum over pairs, but keep their place; None where all pairs count
    """

    n_stimuli: int
    stimulus: NDArray[np.int32]
    starts: IntArray
    partner: NDArray[np.int32]
    parts: IntArray
    items: IntArray | None = None
    times: FloatArray | None = None

    @classmethod
    def complete(
        cls, n_stimuli: int, items: IntArray | None = None, times: FloatArray | None = None
    ) -> PairDesign:
        """All pairs of the stimuli."""
        starts = np.concatenate(([0], np.cumsum(np.arange(n_stimuli - 1, -1, -1))))
        stimulus, partner = np.arange(n_stimuli, dtype=np.int32), np.empty(0, dtype=np.int32)
        parts = np.array([0, n_stimuli])
        return cls(n_stimuli, stimulus, starts.astype(np.int64), partner, parts, items, times)

    @classmethod
    def from_budget(
        cls,
        folds: IntArray,
        budget: int | None = BUDGET,
        seed: int = 0,
        designs: int = DESIGNS,
        items: IntArray | None = None,
        times: FloatArray | None = None,
    ) -> PairDesign:
        """All pairs where they are within the budget (None: without limit), else some of them.

        Parameters
        ----------
        folds : (n_stimuli,) the fold that tests each stimulus, see `mlem_core.stimuli.folds`
        designs : how many independent ones
        items, times : see the class

        Raises InputError: a budget of fewer than `FEWEST_A_STIMULUS` pairs a stimulus.
        """
        n = len(folds)
        if budget is None or n_pairs(n) <= budget:
            return cls.complete(n, items, times)
        if budget < FEWEST_A_STIMULUS * n:
            raise InputError(
                f"found a budget of {budget:,} pairs for {n:,} stimuli; each stimulus needs to be "
                f"in some pairs of every two folds, so give at least {FEWEST_A_STIMULUS * n:,}."
            )
        share = budget / n_pairs(n) / designs
        rows, partners, parts = list[NDArray[np.int32]](), list[NDArray[np.int32]](), [0]
        for number in range(designs):
            for row, partner in _rings(folds, share, number, seed):
                rows.append(row)
                partners.append(partner)
            parts.append(sum(map(len, rows)))
        sizes = [np.full(len(partner), partner.shape[1]) for partner in partners]
        starts = np.concatenate(([0], np.cumsum(np.concatenate(sizes))))
        partner = np.concatenate([partner.ravel() for partner in partners])
        return cls(n, np.concatenate(rows), starts, partner, np.array(parts), items, times)

    @property
    def is_complete(self) -> bool:
        """Whether these are all pairs of the stimuli."""
        return len(self.partner) == 0 and self.n_pairs == n_pairs(self.n_stimuli)

    @property
    def n_pairs(self) -> int:
        return int(self.starts[-1])

    @property
    def n_designs(self) -> int:
        return len(self.parts) - 1

    def slices(self, n: int) -> list[tuple[int, int]]:
        """Parts, about n with as many pairs, as (first row, last row + 1)."""
        edges = np.searchsorted(self.starts, np.linspace(0, self.n_pairs, n + 1)[1:-1])
        ends = [0, *map(int, edges), len(self.stimulus)]
        return list(itertools.pairwise(ends))

    def ends(self, places: IntArray) -> tuple[IntArray, IntArray]:
        """The two stimuli of the pairs at these places; of all pairs, the lower one first."""
        row = np.searchsorted(self.starts, places, side="right") - 1
        if self.is_complete:
            return row, places - self.starts[row] + row + 1
        return self.stimulus[row].astype(np.int64), self.partner[places].astype(np.int64)

    def pairs(self, start: int = 0, stop: int | None = None) -> tuple[IntArray, IntArray]:
        """(n_chosen,) the two stimuli of the pairs start..stop-1; of all pairs, the lower first."""
        stop = self.n_pairs if stop is None else min(stop, self.n_pairs)
        first, last = np.searchsorted(self.starts, (start, stop - 1), side="right") - 1
        edges: IntArray = np.clip(self.starts[first : last + 2], start, stop)
        sizes = np.diff(edges)
        row = np.repeat(np.arange(first, last + 1), sizes)
        if self.is_complete:
            return row, np.arange(start, stop) - self.starts[row] + row + 1
        return self.stimulus[row].astype(np.int64), self.partner[start:stop].astype(np.int64)

    def only(self, start: int, stop: int) -> PairDesign:
        """The pairs of the designs start..stop-1, which stand together in arrays of pairs."""
        first, last = self.parts[start], self.parts[stop]
        starts = self.starts[first : last + 1]
        return PairDesign(
            self.n_stimuli,
            self.stimulus[first:last],
            starts - starts[0],
            self.partner[starts[0] : starts[-1]],
            self.parts[start : stop + 1] - first,
            self.items,
            self.times,
        )

    def are_near(self, first: IntArray, second: IntArray) -> NDArray[np.bool_]:
        """(n_pairs,) whether two stimuli came closer to each other than the lag."""
        if self.times is None:
            return np.zeros(len(first), dtype=bool)
        return np.asarray(np.abs(self.times[first] - self.times[second]) < NEAR)

    def may_test(self, first: IntArray, second: IntArray) -> NDArray[np.bool_]:
        """(n_pairs,) whether the pairs of two stimuli of one fold test it."""
        if self.items is None:
            return ~self.are_near(first, second)
        return (self.items[first] != self.items[second]) & ~self.are_near(first, second)

    def without(self, missing: IntArray) -> PairDesign:
        """The pairs but for those at some places of all pairs."""
        if not len(missing):
            return self
        first, second = self.pairs()
        stays = ~np.isin(pair_places(first, second, self.n_stimuli), missing)
        starts = np.concatenate(([0], np.cumsum(stays)))[self.starts]
        return replace(self, starts=starts, partner=second[stays].astype(np.int32))

    def among(self, stimuli: IntArray) -> tuple[IntArray, PairDesign]:
        """Places of the pairs that may test a fold among some stimuli; and they as a design.

        Places ascend. In the design the stimuli are numbered in their order.
        """
        n = len(stimuli)
        if self.is_complete:
            complete = PairDesign.complete(n)
            if self.items is None and self.times is None:
                return pairs_among(stimuli, self.n_stimuli), complete
            first, second = complete.pairs()
            tests = self.may_test(stimuli[first], stimuli[second])
            first, second = first[tests], second[tests]
            starts = np.searchsorted(first, np.arange(n + 1))
            places = pair_places(stimuli[first], stimuli[second], self.n_stimuli)
            partner = second.astype(np.int32)
            return places, PairDesign(n, complete.stimulus, starts, partner, complete.parts)
        number = np.full(self.n_stimuli, -1, dtype=np.int32)
        number[stimuli] = np.arange(n, dtype=np.int32)
        rows = np.flatnonzero(number[self.stimulus] >= 0)
        sizes = np.diff(self.starts)[rows]
        # The places of the pairs of these rows, one row after the other.
        before = np.cumsum(sizes) - sizes
        places = np.arange(sizes.sum()) + np.repeat(self.starts[rows] - before, sizes)
        partner = self.partner[places]
        tests = number[partner] >= 0
        if self.items is not None or self.times is not None:
            tests &= self.may_test(np.repeat(self.stimulus[rows], sizes), partner)
        places, partner = places[tests], number[partner[tests]]
        starts = np.append(np.searchsorted(places, self.starts[rows]), len(places))
        parts = np.searchsorted(rows, self.parts)
        return places, PairDesign(n, number[self.stimulus[rows]], starts, partner, parts)


def resampled_part(design: PairDesign, folds: IntArray) -> PairDesign:
    """The pairs that are ranked again, for intervals and audits.

    All of them, but of an incomplete design of more than `RESAMPLED` some of the designs that it is
    of; and of all pairs, where they are beyond `BUDGET`, what that would have in their place.
    """
    if design.is_complete:
        if design.n_pairs <= BUDGET:
            return design
        design = PairDesign.from_budget(folds, BUDGET)
    n_designs = max(1, RESAMPLED * design.n_designs // max(1, design.n_pairs))
    # Also of the arrays of pairs, their pairs are the first.
    return design if n_designs >= design.n_designs else design.only(0, n_designs)


def _rings(
    folds: IntArray, share: float, number: int, seed: int
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Rows (m,) of a design and their partners (m, K), for every two parts of the stimuli."""
    order = np.argsort(folds, kind="stable").astype(np.int32)
    members = np.split(order, np.flatnonzero(np.diff(folds[order])) + 1)
    rng, phases = np.random.default_rng((seed, number)), np.random.default_rng(seed)

    def steps(wanted: float, most: int) -> int:
        # Over the designs they add up to what is wanted of all.
        at = wanted * np.arange(number, number + 2) + phases.random()
        return min(max(1, int(np.diff(np.floor(at))[0])), most)

    for a, own in enumerate(members):
        ring, m = rng.permutation(own), len(own)
        # Up to (m - 1) / 2 steps along the ring, no pair occurs twice.
        k = steps(share * (m - 1) / 2, (m - 1) // 2)
        if k:
            yield ring, ring[(np.arange(m)[:, None] + np.arange(1, k + 1)) % m]
        for other in members[a + 1 :]:
            # The rows are those of the larger part, so that all of the smaller one are reached.
            long, short = sorted((rng.permutation(own), rng.permutation(other)), key=len)[::-1]
            k = steps(share * len(short), len(short))
            begin = np.arange(len(long)) * len(short) // len(long)
            yield long, short[(begin[:, None] + np.arange(k)) % len(short)]
