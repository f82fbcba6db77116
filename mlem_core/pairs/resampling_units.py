"""Units that an interval over other stimuli draws anew, in thought: sentences, and words.

Words recur: the 2,040 probing stimuli are 224 words in 600 sentences. Intervals from sentences
alone then say how a number would vary with other sentences made of the same words. Here both kinds
of units are left out in turn, block by block, and the stimuli too, which have both in common (see
`mlem_core.inference.jackknife.standard_error`).

An item is a word, or what the column `item` of the stimuli says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import IntArray
from mlem_core.data.folds import kept_together
from mlem_core.data.stimuli import StimulusSet
from mlem_core.pairs.resampling import Weights, leave_out, multinomial

# Fewer items than this are not drawn: they say too little of how others would be.
FEWEST_ITEMS = 10
# Up to so many units are left out one by one; more are left out in so many random blocks.
SINGLE, BLOCKS = 200, 50
_SEED = 0


@dataclass(frozen=True)
class Units:
    """Number of units of each kind, and their names in sentences on a screen.

    Attributes
    ----------
    n_sentences : groups of stimuli
    n_items : words or other items that recur from sentence to sentence; 0 where none does
    item : what one of them is called, "word" or "item"
    """

    n_sentences: int
    n_items: int = 0
    item: str = "word"

    @classmethod
    def of(cls, stimuli: StimulusSet) -> Units:
        """Resampling units of some stimuli."""
        known = _known.get(stimuli)
        if known is None:
            items = stimuli.items
            n_items = 0 if items is None else len(np.unique(items))
            known = cls(len(np.unique(stimuli.groups)), n_items, stimuli.item_name)
            _known[stimuli] = known
        return known

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
        return f"sentences and {self.item}s" if self.two_way else "sentences"

    @property
    def others(self) -> str:
        """Resampling units of intervals, and what stays the same in all draws, in words."""
        if self.two_way or not self.n_items:
            return self.over
        return f"sentences {self._made} these {self.item}s"

    @property
    def _made(self) -> str:
        return "made of" if self.item == "word" else "with"

    def held_out(self, folds_over: str) -> str:
        """Held-out stimuli with folds over "sentences", "items" or "both", in words."""
        if folds_over == "items":
            return f"unseen {self.item}s, in sentences that may have been seen"
        if folds_over == "both":
            return f"unseen sentences {self._made} unseen {self.item}s"
        return "unseen sentences" + (f" {self._made} these {self.item}s" if self.n_items else "")

    def permuted(self, folds_over: str) -> str:
        """Units that exchange labels in a permutation test (`mlem_core.inference.permutation`)."""
        what = "sentences" if folds_over == "sentences" else f"{self.item}s"
        part = "part of the folds" if folds_over == "both" else "fold"
        return f"{what} of the same {part} and of as many stimuli"


# A page asks for them many times.
_known: WeakKeyDictionary[StimulusSet, Units] = WeakKeyDictionary()


@dataclass(frozen=True)
class Blocks:
    """Blocks of stimuli that are left out in turn.

    Attributes
    ----------
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

        Parameters
        ----------
        most : blocks of each kind; None is as above
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
        if len(names) == sentence.max() + 1:
            # Each sentence has one item: what both have in common is the sentence, block by block.
            by_both = by_sentence
        else:
            by_both = without(both.ravel())
        parts = (by_sentence, by_item, by_both)
        return Blocks(np.concatenate(parts), tuple(len(part) for part in parts))
