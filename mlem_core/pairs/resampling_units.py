"""Units that an interval over other stimuli draws anew, in thought: sentences, and words.

Words recur: the 2,040 probing stimuli are 224 words in 600 sentences. Intervals from sentences
alone then say how a number would vary with other sentences made of the same words. So the jackknife
takes blocks of both kinds of units, and of the stimuli too, which have both in common (see
`mlem_core.inference.resample.standard_error`).

An item is a word, or what the column `item` of the stimuli says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.text import plural
from mlem_core.base.typing import IntArray
from mlem_core.stimuli.folds import kept_together
from mlem_core.stimuli.stimulus_set import PRESENTED, UNIT, StimulusSet, group_name

# Fewer items than this are not drawn: they say too little of how others would be.
FEWEST_ITEMS = 10
# Up to so many units are left out one by one; more are left out in so many random blocks.
SINGLE, BLOCKS = 200, 50
_SEED = 0


# How often each group counts: whole numbers, small for those of 10^6 groups.
Weights = NDArray[Any]


@dataclass(frozen=True)
class Units:
    """Number of units of each kind, and their names in sentences on a screen.

    n_sentences : groups of stimuli
    n_items : words or other items that recur from sentence to sentence; 0 where none does
    item : what one of them is called, "word" or "item"
    group : what a group of stimuli is called, see `mlem_core.stimuli.stimulus_set.group_name`
    """

    n_sentences: int
    n_items: int = 0
    item: str = "word"
    group: str = "sentence"

    @classmethod
    def from_stimuli(cls, stimuli: StimulusSet) -> Units:
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
        """Units that exchange labels in a permutation test, see `importance_null`."""
        if self.group in (name.removeprefix(UNIT) for name in PRESENTED):
            return "the stimuli of a run, shifted in time by a block at least"
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

    folds : the fold that tests a stimulus, see `mlem_core.stimuli.folds`
    groups : its sentence, 0 to n_groups - 1
    items : its word, or other item; None where none recurs
    """

    folds: IntArray
    groups: IntArray
    items: IntArray | None = None

    @classmethod
    def from_stimuli(cls, stimuli: StimulusSet, folds: IntArray) -> StimulusUnits:
        """Units of stimuli in their folds."""
        groups = np.unique(stimuli.groups, return_inverse=True)[1].astype(np.int64)
        return cls(folds, groups, stimuli.items)

    @property
    def together(self) -> IntArray:
        """(n_stimuli,) what stays together in a fold, see `stimuli.folds.kept_together`."""
        return kept_together(self.folds, self.groups, self.items)

    @property
    def kinds(self) -> tuple[IntArray, ...]:
        """(n_stimuli,) number of the unit of each stimulus, from 0, of each kind of `blocks`:
        sentences; or, with `FEWEST_ITEMS` items or more, sentences, items and both."""
        sentence = np.unique(self.groups, return_inverse=True)[1]
        if self.items is None or len(np.unique(self.items)) < FEWEST_ITEMS:
            return (sentence,)
        item = np.unique(self.items, return_inverse=True)[1]
        both = np.unique(np.column_stack((sentence, item)), axis=0, return_inverse=True)[1]
        return sentence, item, both.ravel()

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of units of each of `kinds`."""
        return tuple(int(kind.max()) + 1 for kind in self.kinds)

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
        many units each.

        `most` is how many blocks of each kind there may be; None is as above.
        """
        rng = np.random.default_rng(_SEED)

        def without(of_unit: IntArray) -> Weights:
            n = int(of_unit.max()) + 1
            n_blocks = min(n, most) if most else n if n <= SINGLE else BLOCKS
            return jackknife_weights(n, n_blocks, rng)[:, of_unit]

        kinds = self.kinds
        parts = [without(kind) for kind in kinds[:2]]
        for both in kinds[2:]:
            # Where each sentence has one item, what both have in common is the sentence.
            parts.append(parts[0] if both.max() == kinds[0].max() else without(both))
        return Blocks(np.concatenate(parts), tuple(len(part) for part in parts))


def jackknife_weights(n_groups: int, n_blocks: int, rng: np.random.Generator) -> Weights:
    """Jackknife weights (n_blocks, n_groups): each time one block of groups is left out.

    Blocks are random and of (nearly) equal size; with n_blocks >= n_groups each is one group.
    """
    n_blocks = min(n_blocks, n_groups)
    block = rng.permutation(np.arange(n_groups) % n_blocks)
    return (block[None, :] != np.arange(n_blocks)[:, None]).astype(np.uint8)


def draw_halves(
    units: IntArray, folds: IntArray, most: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Stimuli, ascending, of two random halves that share no unit, each with as much of every fold.

    Units (n_stimuli,) stay together; folds (n_stimuli,) are those of the stimuli. Of more than
    `most` stimuli a random part is taken, about so many.
    """
    _, first, unit = np.unique(units, return_index=True, return_inverse=True)
    order = rng.permutation(len(first))
    order = order[np.argsort(folds[first[order]], kind="stable")]
    half = np.empty(len(order), dtype=np.int64)
    half[order] = np.arange(len(order)) % 2
    drawn = np.empty(len(order), dtype=bool)
    drawn[order] = np.arange(len(order)) // 2 % max(1.0, len(units) / most) < 1
    return np.flatnonzero((drawn & (half == 0))[unit]), np.flatnonzero((drawn & (half == 1))[unit])
