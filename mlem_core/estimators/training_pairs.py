"""The pairs that rank estimators are fitted to, and the ranks of their distances.

A rank correlation with a prediction is no sum over pairs, so that it does not follow from moments.
Estimators that maximise one look at the pairs of every training set again: at their columns, which
all layers share, and at the distances of one layer after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.scored_pairs import group_pairs
from mlem_core.stimuli.folds import is_training

# Of more pairs than the first a sample is taken without trying to group them; of more than the
# second where they cannot be grouped.
MOST_GROUPED, MOST_PAIRS = 2**23, 2**19
# Pairs of a sample.
SAMPLED = 250_000
# Columns of so many pairs and columns are held at once, which take half a gigabyte.
MOST_VALUES = 2**26
# Gives the squared distances (n_pairs,) of a layer, by position, of the pairs of the design.
ReadDistances = Callable[[int], FloatArray]


class TrainingSums(NamedTuple):
    """What is fitted of one layer on one training set, by group of pairs.

    Attributes
    ----------
    counts : (n_groups,) pairs of the training set in each group
    sums : (n_groups,) sums of the centred average ranks of their distances among the pairs of the
        training set, or of their squared distances
    squares : sum of the squares of those ranks, or of those distances
    """

    counts: FloatArray
    sums: FloatArray
    squares: float


@dataclass(frozen=True)
class TrainingPairs:
    """Pairs of stimuli of n_layers layers, grouped by equal rows of columns where that helps.

    All pairs are used where grouping leaves at most a quarter of them
    (`mlem_core.pairs.scored_pairs.GROUPED`), or where they are at most half a million (fewer with
    more than 32 columns, whose values would not fit into memory). Of more, and always of more than
    8 million, these are a sample of about 250,000 pairs, drawn at random with a fixed seed and
    the same for all layers and training sets: what is fitted is then fitted to that sample.

    Attributes
    ----------
    columns : of the pairs
    folds : (n_stimuli,) the fold that tests each stimulus, see `mlem_core.stimuli.folds`
    n_layers : number of layers
    read_distances : gives the squared distances of a layer, of the pairs of the design
    places : (n_pairs,) which of these the pairs are; None: all of them
    first, second : (n_pairs,) stimuli of each pair
    group : (n_pairs,) group of each pair
    representative : (n_groups,) a pair of each group
    """

    columns: PairColumns
    folds: IntArray
    n_layers: int
    read_distances: ReadDistances
    places: IntArray | None
    first: IntArray
    second: IntArray
    group: IntArray
    representative: IntArray

    @classmethod
    def from_columns(
        cls,
        columns: PairColumns,
        folds: IntArray,
        n_layers: int,
        read_distances: ReadDistances,
        design: PairDesign | None = None,
    ) -> TrainingPairs:
        """Pairs of the stimuli that have these columns.

        Parameters
        ----------
        columns : of the pairs of n_stimuli stimuli
        folds : (n_stimuli,)
        n_layers : number of layers
        read_distances : gives the squared distances of a layer, by position
        design : the pairs whose distances it gives; None is all pairs, in condensed order
        """
        design = design or PairDesign.complete(len(folds))
        rng, places = np.random.default_rng(0), None
        if design.n_pairs > MOST_GROUPED:
            places = np.unique(rng.integers(0, design.n_pairs, SAMPLED))
        first, second = design.ends(np.arange(design.n_pairs) if places is None else places)
        near = design.are_near(first, second)
        if near.any():
            places = np.flatnonzero(~near) if places is None else places[~near]
            first, second = first[~near], second[~near]
        groups = group_pairs(columns, np.arange(len(folds)), first, second)
        if groups is not None:
            group, representative = groups.group, groups.representative
        else:
            most = MOST_VALUES // len(columns)
            if len(first) > min(MOST_PAIRS, most):
                drawn = np.unique(rng.integers(0, len(first), min(SAMPLED, most)))
                places = drawn if places is None else places[drawn]
                first, second = first[drawn], second[drawn]
            group = representative = np.arange(len(first))
        pairs = (places, first, second, group, representative)
        return cls(columns, folds, n_layers, read_distances, *pairs)

    @property
    def is_grouped(self) -> bool:
        return len(self.representative) < len(self.first)

    @cached_property
    def values(self) -> FloatArray:
        """(n_groups, n_columns) the columns of the pairs of each group."""
        of_each = self.representative
        return self.columns.pair_values(self.first[of_each], self.second[of_each])

    def distances(self, layer: int) -> FloatArray:
        """(n_pairs,) squared distances of the pairs in a layer, by position."""
        distances = self.read_distances(layer)
        return distances if self.places is None else distances[self.places]

    def sums(
        self, layer: int, left_out: Sequence[int | None], *, ranked: bool = True
    ) -> Iterator[TrainingSums]:
        """What is fitted of a layer on several training sets, one after the other.

        Ranks are those among the pairs of the training set: held-out pairs have no part in them.

        Parameters
        ----------
        layer : its position
        left_out : the fold that each training set leaves out, or None for all pairs
        ranked : whether the ranks of the distances are fitted, or the squared distances
        """
        distances, n_groups = self.distances(layer), len(self.representative)
        for fold in left_out:
            group, fitted = self.group, distances
            if fold is not None:
                trains = is_training(self.folds, fold)
                in_set = trains[self.first] & trains[self.second]
                group, fitted = group[in_set], distances[in_set]
            if ranked:
                fitted = (pair_ranks(fitted).astype(np.float64) - (len(fitted) + 1)) / 2
            counts = np.bincount(group, minlength=n_groups).astype(np.float64)
            sums = np.bincount(group, fitted, n_groups).astype(np.float64)
            yield TrainingSums(counts, sums, float(fitted @ fitted))
