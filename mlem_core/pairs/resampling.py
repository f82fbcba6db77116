"""Stimuli drawn again: the sums by pattern of each draw, from the layers' one order of the pairs.

The unit is the group of stimuli (the sentence), never the pair. A draw says how often each group
counts; a pair of two groups then counts w_g x w_h times and a pair inside a group w_g times, so
that a sentence is never paired with a copy of itself. Ranks among the weighted pairs come from
cumulated weights along the layer's order: nothing is sorted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.parallel import cores
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.designs import PairDesign

# Distances are ranked in this many classes of equal size, unless there are few enough of them to
# keep each: pairs of one class are ties, which moves a rank by 1 / 32,768 of all pairs at most.
CLASSES = 2**14
# Sums of as many draws at once as fit in this many numbers.
CHUNK = 2**23

# How often each group counts: whole numbers, small for those of 10^6 groups.
Weights = NDArray[Any]


@dataclass(frozen=True)
class Draws:
    """Sums over the weighted pairs of n_draws draws.

    counts : (n_draws, n_patterns) weight of the pairs of each pattern
    sums : (n_draws, n_layers, n_patterns) sums of their centred average ranks
    squares : (n_draws, n_layers) sums of the squared ranks over all pairs
    products : (n_draws, n_layers, n_layers) sums of the products of the ranks of two layers, or
        (n_draws, 0, 0) where they were not requested
    """

    counts: FloatArray
    sums: FloatArray
    squares: FloatArray
    products: FloatArray

    def rsa(self) -> FloatArray:
        """(n_draws, n_layers, n_layers) Spearman ρ of the distances of every two layers."""
        spread = np.sqrt(self.squares)
        both = spread[:, :, None] * spread[:, None, :]
        return np.divide(self.products, both, out=np.zeros_like(both), where=both > 0)


@dataclass(frozen=True)
class RankedPairs:
    """All pairs of some stimuli: the pattern of each, and its rank class in each layer.

    Attributes
    ----------
    groups : (n_stimuli,) group of each stimulus, 0 to n_groups - 1
    design : which pairs these are
    cells : (n_pairs,) int32 pattern of each pair
    classes : (n_layers, n_pairs) uint16, ascending with the distance
    n_patterns, n_groups
    """

    groups: IntArray
    design: PairDesign
    cells: NDArray[np.int32]
    classes: NDArray[np.uint16]
    n_patterns: int
    n_groups: int

    @property
    def n_layers(self) -> int:
        return len(self.classes)

    @property
    def by_stimulus(self) -> RankedPairs:
        """Pairs with each stimulus a group of its own, so that any of them can be left out.

        Meant for weights of 0 and 1, with which a group's own pairs count as any others.
        """
        return replace(self, groups=np.arange(len(self.groups)), n_groups=len(self.groups))

    @classmethod
    def of(
        cls,
        ranks: Sequence[NDArray[np.uint32]],
        pattern: NDArray[np.integer],
        groups: IntArray,
        n_patterns: int,
        stimuli: IntArray | None = None,
        design: PairDesign | None = None,
    ) -> RankedPairs:
        """Pairs for resampling, from their ranks.

        Parameters
        ----------
        ranks : for each layer (n_pairs,) numbers that ascend with the distance, equal where tied;
            such as the doubled ranks of `mlem_core.pairs.layer_sums`
        pattern : (n_pairs,) pattern of each pair
        groups : (n_stimuli,) any numbers
        stimuli : only the pairs among these stimuli, ascending; ranks are then those among them
        design : which pairs these are; None is all
        """
        design = design or PairDesign.complete(len(groups))
        names, numbers = np.unique(groups, return_inverse=True)
        if stimuli is not None:
            at, design = design.among(stimuli)
            ranks, pattern = [layer[at] for layer in ranks], pattern[at]
            names, numbers = np.unique(groups[stimuli], return_inverse=True)
        return cls(
            groups=numbers.astype(np.int64),
            design=design,
            cells=np.ascontiguousarray(pattern, dtype=np.int32),
            classes=np.stack([rank_classes(layer) for layer in ranks]),
            n_patterns=n_patterns,
            n_groups=len(names),
        )

    def draw(
        self,
        weights: Weights,
        *,
        products: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Iterator[Draws]:
        """The sums of each draw, in parts of some draws each, one after the other.

        Parameters
        ----------
        weights : (n_draws, n_groups) how often each group counts, at least 0
        products : also sum the products of the ranks of every two layers
        progress : called with the number of draws done and their total
        """
        from mlem_core.pairs.kernels.weighted import weighted_pairs, weighted_two

        n_classes = int(self.classes.max(initial=0)) + 1
        n, n_layers = len(weights), self.n_layers
        # Of two layers, which are drawn most often, a pair's classes lie together.
        side_by_side = np.ascontiguousarray(self.classes.T) if n_layers == 2 else None
        # Weights are small whole numbers, and made floats for some draws only.
        step = max(1, min(CHUNK // ((n_layers + 1) * self.n_patterns), CHUNK // self.n_groups))
        for start in range(0, n, step):
            part = np.ascontiguousarray(weights[start : start + step], dtype=np.float64)
            size, together = len(part), n_layers if products else 0
            found = Draws(
                np.zeros((size, self.n_patterns)),
                np.zeros((size, n_layers, self.n_patterns)),
                np.zeros((size, n_layers)),
                np.zeros((size, together, together)),
            )

            def one(d: int, part: FloatArray = part, found: Draws = found) -> None:
                of_draw = self.design.rows, part[d], self.groups, self.cells
                squares, products = found.squares[d], found.products[d]
                if side_by_side is not None:
                    out = np.zeros((self.n_patterns, 4))
                    weighted_two(*of_draw, side_by_side, n_classes, out, squares, products)
                    found.counts[d], found.sums[d] = out[:, 0], out[:, 1:3].T
                    return
                counts, sums = found.counts[d], found.sums[d]
                weighted_pairs(*of_draw, self.classes, n_classes, counts, sums, squares, products)

            with ThreadPoolExecutor(cores()) as pool:
                for d, _ in enumerate(pool.map(one, range(size)), start + 1):
                    if progress is not None:
                        progress(d, n)
            yield found


def rank_classes(ascending: NDArray[np.integer]) -> NDArray[np.uint16]:
    """Classes of ranks: a number for each value if these are few, else classes of equal size.

    The numbers (n_pairs,), of at least 0, ascend with the distance, as doubled average ranks do.
    """
    # By looking up, not by sorting: doubled ranks are not much higher than there are pairs.
    counts = np.bincount(ascending)
    values = np.flatnonzero(counts)
    number = np.zeros(len(counts), dtype=np.uint16)
    if len(values) <= CLASSES:
        number[values] = np.arange(len(values))
    else:
        middle = np.cumsum(counts) - counts / 2
        number[values] = (middle[values] * CLASSES / len(ascending)).astype(np.int64)
    return number[ascending]


def multinomial(n_groups: int, n_draws: int, rng: np.random.Generator) -> Weights:
    """Bootstrap weights (n_draws, n_groups): as many groups as there are, with replacement."""
    share = np.full(n_groups, 1.0 / n_groups)
    weights = np.empty((n_draws, n_groups), dtype=np.uint16)
    for row in weights:
        row[:] = rng.multinomial(n_groups, share)
    return weights


def leave_out(n_groups: int, n_blocks: int, rng: np.random.Generator) -> Weights:
    """Jackknife weights (n_blocks, n_groups): each time one block of groups is left out.

    Blocks are random and of (nearly) equal size; with n_blocks >= n_groups each is one group.
    """
    n_blocks = min(n_blocks, n_groups)
    block = rng.permutation(np.arange(n_groups) % n_blocks)
    return (block[None, :] != np.arange(n_blocks)[:, None]).astype(np.uint8)
