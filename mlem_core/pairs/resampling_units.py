"""Units that an interval over other stimuli draws anew, in thought: sentences, and words.

Words recur: the 2,040 probing stimuli are 224 words in 600 sentences. Intervals from sentences
alone then say how a number would vary with other sentences made of the same words. Here both kinds
of units are left out in turn, block by block, and the stimuli too, which have both in common (see
`mlem_core.inference.resample.standard_error`).

An item is a word, or what the column `item` of the stimuli says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.text import plural
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.base.work import cores, in_order
from mlem_core.data.folds import kept_together
from mlem_core.data.stimuli import StimulusSet, group_name
from mlem_core.pairs.designs import PairDesign

# Fewer items than this are not drawn: they say too little of how others would be.
FEWEST_ITEMS = 10
# Up to so many units are left out one by one; more are left out in so many random blocks.
SINGLE, BLOCKS = 200, 50
_SEED = 0


@dataclass(frozen=True)
class Units:
    """Number of units of each kind, and their names in sentences on a screen.

    n_sentences : groups of stimuli
    n_items : words or other items that recur from sentence to sentence; 0 where none does
    item : what one of them is called, "word" or "item"
    group : what a group of stimuli is called, see `mlem_core.data.stimuli.group_name`
    """

    n_sentences: int
    n_items: int = 0
    item: str = "word"
    group: str = "sentence"

    @classmethod
    def of(cls, stimuli: StimulusSet) -> Units:
        """Resampling units of some stimuli."""
        items = stimuli.items
        n_items = 0 if items is None else len(np.unique(items))
        n_groups = len(np.unique(stimuli.groups))
        return cls(n_groups, n_items, stimuli.item_name, group_name(stimuli))

    @property
    def two_way(self) -> bool:
        """Whether intervals are over items too."""
        return self.n_items >= FEWEST_ITEMS

    @property
    def each(self) -> str:
        """Pronoun for what the left-out blocks are of, after `over`."""
        return "each" if self.two_way else "them"

    @property
    def over(self) -> str:
        """Resampling units of intervals, in words."""
        return self.groups + f" and {self.item}s" * self.two_way

    @property
    def groups(self) -> str:
        """Groups of stimuli, in words."""
        return plural(self.group)

    @property
    def others(self) -> str:
        """Resampling units of intervals, and what stays the same in all draws, in words."""
        if self.two_way or not self.n_items:
            return self.over
        return f"{self.groups} {self._made} these {self.item}s"

    @property
    def _made(self) -> str:
        return "made of" if self.item == "word" else "with"

    def held_out(self, folds_over: str) -> str:
        """Held-out stimuli with folds over "sentences", "items" or "both", in words."""
        if folds_over == "items":
            return f"unseen {self.item}s, in {self.groups} that may have been seen"
        if folds_over == "both":
            return f"unseen {self.groups} {self._made} unseen {self.item}s"
        return f"unseen {self.groups}" + (
            f" {self._made} these {self.item}s" if self.n_items else ""
        )

    def permuted(self, folds_over: str) -> str:
        """Units that exchange labels in a permutation test, see `importance_chance`."""
        what = self.groups if folds_over == "sentences" else f"{self.item}s"
        part = "part of the folds" if folds_over == "both" else "fold"
        return f"{what} of the same {part} and of as many stimuli"


@dataclass(frozen=True)
class Blocks:
    """Blocks of stimuli that are left out in turn.

    weights : (n_blocks, n_stimuli) 1, or 0 where the block leaves the stimulus out
    sizes : how many rows are blocks of sentences; or of sentences, of items, and of combinations
        of a sentence and an item
    """

    weights: Weights
    sizes: tuple[int, ...]


class StimulusUnits(NamedTuple):
    """The units that stimuli are drawn in: (n_stimuli,) each.

    folds : the fold that tests a stimulus, see `mlem_core.data.folds`
    groups : its sentence, 0 to n_groups - 1
    items : its word, or other item; None where none recurs
    """

    folds: IntArray
    groups: IntArray
    items: IntArray | None = None

    @classmethod
    def of(cls, stimuli: StimulusSet, folds: IntArray) -> StimulusUnits:
        """Units of stimuli in their folds."""
        groups = np.unique(stimuli.groups, return_inverse=True)[1].astype(np.int64)
        return cls(folds, groups, stimuli.items)

    @property
    def together(self) -> IntArray:
        """(n_stimuli,) what stays together in a fold, see `mlem_core.data.folds.kept_together`."""
        return kept_together(self.folds, self.groups, self.items)

    def bootstrap(self, n_replicates: int, rng: np.random.Generator) -> Weights:
        """(n_replicates, n_groups) times each sentence counts: in a fold as many as it has.

        Where folds are over items or both, and a sentence is in several, as many as there are in
        all.
        """
        n = int(self.groups.max()) + 1
        folds = [np.arange(n)]
        if self.together is self.groups:
            folds = [np.unique(self.groups[self.folds == fold]) for fold in np.unique(self.folds)]
        weights = np.empty((n_replicates, n), dtype=np.uint16)
        for members in folds:
            weights[:, members] = multinomial(len(members), n_replicates, rng)
        return weights

    def permuted(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Stimulus whose labels each stimulus has in n permutations: (n, n_stimuli).

        What stays together in a fold (sentences, say) changes labels with what is of the same fold
        and of as many stimuli, in order.
        """
        units = self.together
        order = np.argsort(units, kind="stable")
        _, starts, sizes = np.unique(units[order], return_index=True, return_counts=True)
        exchangeable: dict[tuple[int, int], list[IntArray]] = {}
        for start, size in zip(starts, sizes, strict=True):
            members = order[start : start + size]
            key = int(self.folds[members[0]]), int(size)
            exchangeable.setdefault(key, []).append(members)
        permuted = np.tile(np.arange(len(units)), (n, 1))
        for alike in exchangeable.values():
            members = np.stack(alike)
            for labels in permuted:
                labels[members] = members[rng.permutation(len(members))]
        return permuted

    def blocks(self, most: int | None = None) -> Blocks:
        """The blocks of each kind of unit that are left out in turn: of these stimuli always these.

        Up to `SINGLE` units are left out one by one; more in `BLOCKS` random blocks of (nearly) as
        many units each. With fewer than `FEWEST_ITEMS` items sentences alone are left out.

        `most` is how many blocks of each kind there may be; None is as above.
        """
        rng = np.random.default_rng(_SEED)

        def without(of_unit: IntArray) -> Weights:
            n = int(of_unit.max()) + 1
            n_blocks = min(n, most) if most else n if n <= SINGLE else BLOCKS
            return leave_out(n, n_blocks, rng)[:, of_unit]

        sentence = np.unique(self.groups, return_inverse=True)[1]
        by_sentence = without(sentence)
        if self.items is None or len(np.unique(self.items)) < FEWEST_ITEMS:
            return Blocks(by_sentence, (len(by_sentence),))
        item = np.unique(self.items, return_inverse=True)[1]
        by_item = without(item)
        names, both = np.unique(np.column_stack((sentence, item)), axis=0, return_inverse=True)
        # Where each sentence has one item, what both have in common is the sentence.
        alone = len(names) == sentence.max() + 1
        parts = (by_sentence, by_item, by_sentence if alone else without(both.ravel()))
        return Blocks(np.concatenate(parts), tuple(len(part) for part in parts))


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
        if stimuli is not None:
            at, design = design.among(stimuli)
            ranks, pattern, groups = [own[at] for own in ranks], pattern[at], groups[stimuli]
        names, numbers = np.unique(groups, return_inverse=True)
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

            for d, _ in enumerate(in_order(one, range(size), cores()), start + 1):
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
