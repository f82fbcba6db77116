"""Recurring units: what stimuli share, which a feature may say no more than.

A feature that is the same for every occurrence of a word also says which word it is, and words
recur on both sides of every split. So do sentences, places in the sentence, previous and next
words, frames, documents, and whatever a user says recurs. Chance, for a feature, is what labels
earn that are permuted among the units that (nearly) settle it; of single stimuli where none does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.stimuli.presentation import are_in_time, presentation_order, presentation_runs
from mlem_core.stimuli.stimulus_set import (
    UNIT,
    StimulusSet,
    group_name,
    neighbouring_words,
    sentence_ids,
)

STIMULUS = "stimulus"
# What stands in the place of a unit where labels are shifted in time.
MOMENT = "moment"
# A unit nearly settles a feature where two of its stimuli differ by that much less than any two;
# where it settles most of it, nothing is known of the feature unless its units exchange labels.
NEARLY, MOSTLY = 0.2, 0.5
# Units change labels with units of about the same number of stimuli, at least so many of them.
STRATUM = 12
# Chance is computed where so large a part of the stimuli as can be takes the labels of others ...
MOVED = 0.9
# ... that differ at least so much as labels of any units: words of one frequency hardly differ in
# what follows from it ...
DIFFERENT = 0.5
# ... and where so many different labellings exist.
FEWEST_LABELLINGS = 20
# Parts of speech of all stimuli of a sentence, in their order, are its frame.
PARTS_OF_SPEECH = ("part_of_speech", "upos", "pos", "word_class")
_DRAWS = 20


@lru_cache(maxsize=8)
def recurring_units(stimuli: StimulusSet) -> dict[str, IntArray]:
    """(n_stimuli,) number of the unit of each stimulus, for each kind of unit that there may be.

    The word or item; columns with the role `unit`, and the document of a treebank; the sentence or
    group; of words the place in the sentence, the words before and after it, and the sentence's
    frame (the parts of speech of its stimuli), where a column has these.
    """
    units = {} if stimuli.items is None else {stimuli.item_name: stimuli.items}
    for name in map(str, stimuli.table):
        if name.startswith(UNIT):
            units[name.removeprefix(UNIT)] = _numbers(stimuli.table[name])
    units[group_name(stimuli)] = stimuli.groups
    if stimuli.level != "stimulus":
        units["sentence"] = sentence_ids(stimuli.table)
    if stimuli.word_index is not None:
        units["place"] = _numbers(stimuli.word_index)
        units["previous word"] = _numbers(neighbouring_words(stimuli, -1))
        units["next word"] = _numbers(neighbouring_words(stimuli, 1))
        columns = {str(name).strip("_").lower(): name for name in stimuli.table}
        for name in PARTS_OF_SPEECH:
            if name in columns:
                in_order = np.argsort(stimuli.word_index, kind="stable")
                parts = pd.Series(_numbers(stimuli.table[columns[name]])[in_order])
                frames = parts.groupby(units["sentence"][in_order]).agg(tuple)
                units["frame"] = _numbers(frames.reindex(units["sentence"]))
                break
    return units


def _numbers(values: Any) -> IntArray:
    """A number from 0 for each value: (n_values,); missing ones are one value."""
    return pd.factorize(pd.Series(values), use_na_sentinel=False)[0].astype(np.int64)


class Exchange(NamedTuple):
    """Units that exchange their values of a feature.

    unit : what they are: "word", "sentence", "place", ..., or "stimulus"
    numbers : (n_stimuli,) the unit of each stimulus, 0 to n_units - 1
    strata : (n_units,) units of the same number exchange values
    agreement : of the feature's values inside units, see `unit_agreement`
    """

    unit: str
    numbers: IntArray
    strata: IntArray
    agreement: float = 0.0

    def moved(self, values: NDArray[Any]) -> float:
        """Share of the stimuli that can take the values of another unit that do, on average.

        Less, down to 0, where these values differ less than half as much as those of any units.

        Parameters
        ----------
        values : (n_stimuli,) of the feature
        """
        sizes = np.bincount(self.numbers)
        if len(sizes) < 2:
            return 0.0
        changes = 1.0 - 1.0 / np.bincount(self.strata)[self.strata]
        share = float(sizes @ changes / sizes.sum() / (1.0 - 1.0 / len(sizes)))
        free = self._replace(strata=np.zeros_like(self.strata))
        near, far = (_mean_change(values, way) for way in (self, free))
        return share * min(1.0, near / (DIFFERENT * far)) if far > 0 else 0.0

    def n_labellings(self, values: NDArray[Any]) -> float:
        """The number of different labellings of the units that permutations make.

        Parameters
        ----------
        values : (n_stimuli,) of the feature
        """
        from scipy.special import gammaln

        labels = _numbers(values)
        first = np.unique(self.numbers, return_index=True)[1]
        logarithm = gammaln(np.bincount(self.strata) + 1.0).sum()
        if np.array_equal(labels[first][self.numbers], labels):
            # Units with the same label change places without a change.
            same = np.unique(np.stack((self.strata, labels[first])), axis=1, return_counts=True)[1]
            logarithm -= gammaln(same + 1.0).sum()
        return float(np.exp(min(logarithm, 700.0)))

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Stimulus whose value each stimulus takes in n permutations: (n, n_stimuli).

        Where there are no more than n permutations each is drawn about equally often. The values of
        a unit go over as a list, which begins anywhere and is repeated where the other unit has
        more stimuli.
        """
        order = np.argsort(self.numbers, kind="stable")
        sizes = np.bincount(self.numbers)
        starts = np.cumsum(sizes) - sizes
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order)) - np.repeat(starts, sizes)
        drawn = np.empty((n, len(order)), dtype=np.int64)
        for row, giver in zip(drawn, self._givers(n, rng), strict=True):
            of_stimulus = giver[self.numbers]
            begins = rng.integers(0, sizes)[of_stimulus]
            row[:] = order[starts[of_stimulus] + (place + begins) % sizes[of_stimulus]]
        return drawn

    def _givers(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """(n, n_units) the unit whose values each takes."""
        n_units = len(self.strata)
        if not self.strata.any() and math.factorial(min(n_units, 20)) <= n:
            return np.resize(rng.permutation(list(permutations(range(n_units)))), (n, n_units))
        # Sorted by stratum, then at random: who stands where the unit stood gives the values.
        by_stratum = np.argsort(self.strata, kind="stable")
        givers = np.empty((n, n_units), dtype=np.int64)
        for row in givers:
            row[by_stratum] = np.lexsort((rng.random(n_units), self.strata))
        return givers


class TimeExchange(NamedTuple):
    """Values that move in time inside runs, with what follows them.

    runs : (n_stimuli,) the run of each stimulus, in the order of presentation
    order : (n_stimuli,) row numbers in that order
    blocks : (n_stimuli,) the block of each, in that order, where whole blocks change their order;
        None where values are shifted, from the end of a run to its beginning
    least : by so many stimuli they are shifted at least, in both directions
    """

    runs: IntArray
    order: IntArray
    blocks: IntArray | None
    least: int = 0
    unit: str = MOMENT
    agreement: float = 0.0

    def moved(self, values: NDArray[Any]) -> float:
        """As of `Exchange`; parameters too."""
        free = Exchange(self.unit, np.arange(len(self.order)), np.zeros_like(self.order))
        near, far = _mean_change(values, self), _mean_change(values, free)
        return min(1.0, near / (DIFFERENT * far)) if far > 0 else 0.0

    def n_labellings(self, values: NDArray[Any]) -> float:
        """The number of different orders of blocks, or of shifts."""
        from scipy.special import gammaln

        sizes = np.bincount(self.runs)
        if self.blocks is None:
            logarithm = np.log(np.maximum(sizes + 1.0 - 2 * max(self.least, 1), 1.0)).sum()
        else:
            first = np.unique(self.blocks, return_index=True)[1]
            logarithm = gammaln(np.bincount(self.runs[first]) + 1.0).sum()
        return float(np.exp(min(logarithm, 700.0)))

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Stimulus whose value each stimulus takes in n permutations: (n, n_stimuli)."""
        drawn = np.empty((n, len(self.order)), dtype=np.int64)
        runs = [np.flatnonzero(self.runs == run) for run in np.unique(self.runs)]
        for givers in drawn:
            for places in runs:
                givers[self.order[places]] = self.order[self._moved_places(places, rng)]
        return drawn

    def _moved_places(self, places: IntArray, rng: np.random.Generator) -> IntArray:
        """The places of a run in another order."""
        if self.blocks is None:
            least = self.least if len(places) > 2 * self.least else 0
            return np.roll(places, -int(rng.integers(least, len(places) - least + (least > 0))))
        number = np.unique(self.blocks[places], return_inverse=True)[1]
        rank = rng.permutation(int(number.max()) + 1)
        return places[np.argsort(rank[number], kind="stable")]


def _mean_change(values: NDArray[Any], exchange: Exchange | TimeExchange) -> float:
    """Mean change of the value of a stimulus; missing values do not count."""
    givers = exchange.draw(_DRAWS, np.random.default_rng(0))
    if values.dtype == np.float64:
        return float(np.nan_to_num(np.nanmean(np.abs(values[givers] - values))))
    there = ~pd.isna(values)
    both = there[givers] & there
    return float((values[givers] != values)[both].mean()) if both.any() else 0.0


def exchanges(
    stimuli: StimulusSet, folds: IntArray, feature: str
) -> tuple[Exchange | TimeExchange, ...]:
    """The ways to permute a feature's labels: the largest chance of all counts.

    Parameters
    ----------
    folds : (n_stimuli,) see `mlem_core.stimuli.folds`; stimuli exchange values inside theirs

    Returns those of every unit that nearly settles the feature, first of units that settle it, and
    that of stimuli where none does; of stimuli in time `time_exchanges` too.
    """
    units = recurring_units(stimuli)
    agreement = unit_agreement(stimuli, feature)
    ways: list[Exchange | TimeExchange] = [
        Exchange(unit, units[unit], size_strata(np.bincount(units[unit])), share)
        for unit, share in sorted(agreement.items(), key=lambda item: -item[1])
        if share >= NEARLY
    ]
    if not ways or ways[0].agreement < 1.0:
        ways.insert(0, stimulus_exchange(folds))
    if are_in_time(stimuli):
        ways += time_exchanges(stimuli)
    return tuple(ways)


def time_exchanges(stimuli: StimulusSet) -> tuple[TimeExchange, TimeExchange]:
    """Two ways in which values move in time: blocks change their order, and all are shifted.

    Of few blocks a shift has few different outcomes; a new order of blocks breaks what lasts longer
    than they do. So the larger chance of the two counts.
    """
    runs, order = presentation_runs(stimuli), presentation_order(stimuli)
    length = round(len(runs) / (int(stimuli.groups.max()) + 1))
    return (
        TimeExchange(runs[order], order, stimuli.groups[order]),
        TimeExchange(runs[order], order, None, length),
    )


def stimulus_exchange(folds: IntArray) -> Exchange:
    """The way in which single stimuli exchange their values, inside their folds."""
    return Exchange(STIMULUS, np.arange(len(folds)), _numbers(folds))


def constant_unit(stimuli: StimulusSet, feature: str) -> str:
    """The first kind of unit on which a feature is constant, such as "word"; else "stimulus"."""
    settled = unit_agreement(stimuli, feature)
    return next((unit for unit, share in settled.items() if share >= 1.0), STIMULUS)


def unit_agreement(stimuli: StimulusSet, feature: str) -> dict[str, float]:
    """Agreement of a feature within each kind of unit: 1 where it is constant on each of them.

    1 less the mean difference of two stimuli of one unit over that of any two (Krippendorff's α
    with the feature's own distance); 0 where units settle nothing. Units that occur once are
    left out.

    Source: Krippendorff (2004), reliability of data.
    """
    values = stimuli.values(feature)
    there = ~pd.isna(values)
    apart: Callable[[NDArray[Any], IntArray], float] = _mean_difference
    if values.dtype != np.float64:
        values, apart = pd.factorize(values)[0], _differ
    values = values[there]
    overall = apart(values, np.zeros(len(values), dtype=np.int64))
    agreement = {}
    for kind, numbers in recurring_units(stimuli).items():
        within = apart(values, numbers[there])
        if np.isfinite(within) and overall > 0:
            agreement[kind] = 1.0 - within / overall
    return agreement


def _differ(values: IntArray, units: IntArray) -> float:
    """Share of the pairs of stimuli inside units that differ in a value; NaN without pairs."""
    same = np.unique(np.column_stack((units, values)), axis=0, return_counts=True)[1]
    sizes = np.bincount(units)
    pairs = (sizes * (sizes - 1.0)).sum()
    return float(1.0 - (same * (same - 1.0)).sum() / pairs) if pairs else np.nan


def _mean_difference(values: FloatArray, units: IntArray) -> float:
    """Mean |x - y| over the pairs of stimuli inside units; NaN without pairs."""
    order = np.lexsort((values, units))
    sizes = np.bincount(units)
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    unit_sizes = sizes[units[order]]
    pairs = (sizes * (sizes - 1.0)).sum() / 2
    total = ((2 * place + 1.0 - unit_sizes) * values[order]).sum()
    return float(max(total, 0.0) / pairs) if pairs else np.nan


def size_strata(sizes: IntArray) -> IntArray:
    """(n_units,) the stratum of units of about the same size, `STRATUM` units in each at least.

    Units of one size are in one stratum; with fewer than `STRATUM` units, all are.
    """
    kinds, counts = np.unique(sizes, return_counts=True)
    numbers, inside = np.zeros(len(kinds), dtype=np.int64), 0
    for at, count in enumerate(counts.tolist()):
        left = int(counts[at:].sum())
        # A stratum is full, and what is left is enough for another one.
        if inside >= STRATUM and left >= STRATUM:
            numbers[at:] += 1
            inside = 0
        inside += count
    return numbers[np.searchsorted(kinds, sizes)]
