"""The level of a feature: the coarsest unit that it is constant on, and whose labels it takes.

A feature that is the same for every occurrence of a word also says which word it is, and words
recur on both sides of every split. So chance, for such a feature, is what labels earn that are
permuted among words; among sentences, for one that is the same in all of a sentence; else among
stimuli. A feature that words nearly settle moves with whole words too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.stimuli import StimulusSet, group_name

STIMULUS = "stimulus"
# A unit nearly settles a feature where two of its stimuli differ by that much less than any two.
NEARLY = 0.2
# Words change labels with words of about the same number of stimuli, at least so many of them.
STRATUM = 12
# Chance is computed where so large a part of the stimuli takes the labels of others ...
MOVED = 0.9
# ... that differ at least so much as labels of any units: words of one frequency hardly differ in
# what follows from it.
DIFFERENT = 0.5
_DRAWS = 20


class Exchange(NamedTuple):
    """Units that exchange their values of a feature.

    level : "word" (or "item"), "sentence" (or "group") or "stimulus"
    units : (n_stimuli,) the unit of each stimulus, 0 to n_units - 1
    strata : (n_units,) units of the same number exchange values
    """

    level: str
    units: IntArray
    strata: IntArray

    def moved(self, values: NDArray[Any]) -> float:
        """Share of the stimuli that take the values of another unit, on average.

        Less, down to 0, where these values differ less than half as much as those of any units.

        Parameters
        ----------
        values : (n_stimuli,) of the feature
        """
        sizes = np.bincount(self.units)
        stay = 1.0 / np.bincount(self.strata)[self.strata]
        share = float((sizes * (1.0 - stay)).sum() / max(sizes.sum(), 1))
        free = self._replace(strata=np.zeros_like(self.strata))
        near, far = (_mean_change(values, way) for way in (self, free))
        return share * min(1.0, near / (DIFFERENT * far)) if far > 0 else 0.0

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Stimulus whose value each stimulus takes in n permutations: (n, n_stimuli).

        The values of a unit go over as a list, which begins anywhere and is repeated where the
        other unit has more stimuli.
        """
        order = np.argsort(self.units, kind="stable")
        sizes = np.bincount(self.units)
        starts = np.cumsum(sizes) - sizes
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order)) - np.repeat(starts, sizes)
        by_stratum = np.argsort(self.strata, kind="stable")
        drawn = np.empty((n, len(order)), dtype=np.int64)
        for row in drawn:
            # Sorted by stratum, then at random: who stands where the unit stood gives the values.
            giver = np.empty(len(sizes), dtype=np.int64)
            shuffled = rng.random(len(sizes))
            giver[by_stratum] = np.lexsort((shuffled, self.strata))
            own = giver[self.units]
            begins = rng.integers(0, sizes)[own]
            row[:] = order[starts[own] + (place + begins) % sizes[own]]
        return drawn


def _mean_change(values: NDArray[Any], exchange: Exchange) -> float:
    """Mean change of the value of a stimulus; missing values do not count."""
    givers = exchange.draw(_DRAWS, np.random.default_rng(0))
    if values.dtype == np.float64:
        return float(np.nan_to_num(np.nanmean(np.abs(values[givers] - values))))
    there = ~pd.isna(values)
    both = there[givers] & there
    return float((values[givers] != values)[both].mean()) if both.any() else 0.0


def exchanges(stimuli: StimulusSet, folds: IntArray, feature: str) -> tuple[Exchange, ...]:
    """The ways to permute a feature's labels, that of its level first.

    Parameters
    ----------
    folds : (n_stimuli,) see `mlem_core.data.folds`; stimuli exchange values inside theirs

    Returns
    -------
    one, or several where a unit nearly settles the feature: the largest chance counts
    """
    levels = [level_of(stimuli, feature)]
    if levels == [STIMULUS]:
        settled = unit_agreement(stimuli, feature)
        levels += [level for level, share in settled.items() if share >= NEARLY]
    return tuple(exchange_of(stimuli, folds, level) for level in levels)


def level_of(stimuli: StimulusSet, feature: str) -> str:
    """The coarsest unit on which a feature is constant: "word" or "item", "sentence", "stimulus".

    Where it is constant on words and on sentences, it is of words.
    """
    settled = unit_agreement(stimuli, feature)
    return next((level for level, share in settled.items() if share >= 1.0), STIMULUS)


def unit_agreement(stimuli: StimulusSet, feature: str) -> dict[str, float]:
    """Agreement of a feature within words and sentences: 1 where it is constant on each of them.

    1 less the mean difference of two stimuli of one unit over that of any two (Krippendorff's α
    with the feature's own distance); 0 where units settle nothing. Units that occur once are
    left out.

    Source: Krippendorff (2004), reliability of data.
    """
    units = {} if stimuli.items is None else {stimuli.item_name: stimuli.items}
    units[group_name(stimuli)] = stimuli.groups
    values = stimuli.values(feature)
    there = ~pd.isna(values)
    apart: Callable[[NDArray[Any], IntArray], float] = _mean_difference
    if values.dtype != np.float64:
        values, apart = pd.factorize(values)[0], _differ
    values = values[there]
    overall = apart(values, np.zeros(len(values), dtype=np.int64))
    found = {}
    for level, unit in units.items():
        within = apart(values, unit[there])
        if np.isfinite(within) and overall > 0:
            found[level] = 1.0 - within / overall
    return found


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
    own = sizes[units[order]]
    pairs = (sizes * (sizes - 1.0)).sum() / 2
    total = ((2 * place + 1.0 - own) * values[order]).sum()
    return float(max(total, 0.0) / pairs) if pairs else np.nan


def exchange_of(stimuli: StimulusSet, folds: IntArray, level: str) -> Exchange:
    """The way in which words or items, sentences or stimuli exchange their values."""
    if level == STIMULUS:
        strata = np.unique(folds, return_inverse=True)[1].astype(np.int64)
        return Exchange(level, np.arange(len(stimuli)), strata)
    units = stimuli.groups if level == group_name(stimuli) else stimuli.items
    assert units is not None
    return Exchange(level, units, strata_of(np.bincount(units)))


def strata_of(sizes: IntArray) -> IntArray:
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
    found: IntArray = numbers[np.searchsorted(kinds, sizes)]
    return found
