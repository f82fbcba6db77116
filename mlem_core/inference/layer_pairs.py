"""All pairs of the stimuli of an analysis in some of its layers: what intervals and chance need.

Where an analysis compares only some pairs of its stimuli, these are all pairs of a sample of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores, map_in_order, map_on_all_cores
from mlem_core.base.typing import Counted, FloatArray, IntArray, Layer, counted, layer_name
from mlem_core.inference.resample import PERMUTED
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.ranks import PairRanks, pair_ranks
from mlem_core.pairs.resampling_units import StimulusUnits
from mlem_core.pairs.statistics import ComparedPairs, PairStatistics
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.store import Store


@dataclass(frozen=True)
class LayerPairs:
    """All pairs of some stimuli, with their distances and ranks in some layers.

    Attributes
    ----------
    layers : (model, layer) of each of the n_layers layers
    statistics : of these pairs, with the chosen features
    ranks : for each layer (n_pairs,) twice the average rank of each pair, in condensed order
    squared : for each layer (n_pairs,) squared neural distances
    groups, folds : (n_stimuli,) sentence and fold of each stimulus, see `mlem_core.stimuli.folds`
    items : (n_stimuli,) word, or other item, of each stimulus; None where none recurs
    rows : (n_stimuli,) which stimuli of the analysis these are; None: all
    times : (n_stimuli,) when each came, in lags, see `mlem_core.pairs.designs.PairDesign`
    """

    layers: tuple[Layer, ...]
    statistics: PairStatistics
    ranks: tuple[NDArray[np.uint32], ...]
    squared: tuple[FloatArray, ...]
    groups: IntArray
    folds: IntArray
    items: IntArray | None = None
    rows: IntArray | None = None
    times: FloatArray | None = None

    @classmethod
    def from_analysis(
        cls,
        analysis: Analysis,
        selection: Selection,
        store: Store,
        *,
        most_stimuli: int | None = None,
        progress: Counted | None = None,
    ) -> LayerPairs:
        """Pairs of a selection of an analysis, from the representations in the store.

        Those of all stimuli where the analysis compares all pairs; else those of a sample of about
        `PERMUTED` of them, in whole sentences (or whatever stays together in a fold), in each fold
        as large a part of them.

        Parameters
        ----------
        most_stimuli : of more stimuli a sample of about so many is taken, too
        progress : called with the number of layers done and their number

        Raises InputError: representations that are no longer in the store; pairs that some layer
        has no distance for.
        """
        if analysis.lacks_pairs:
            raise InputError(analysis.lacks_pairs)
        columns, layers = selected_columns(analysis, selection), selection.layers
        stimuli, statistics = analysis.stimuli, None
        is_small = most_stimuli is None or len(stimuli) <= most_stimuli
        if analysis.design.is_complete and is_small:
            rows = np.arange(len(stimuli))
            statistics = analysis.compute_pairs(selection)
        else:
            rows = sampled_rows(analysis, most_stimuli or PERMUTED)
            columns = columns.select_stimuli(rows)
        every, design = len(rows) == len(stimuli), analysis.design

        def distances(layer: Layer) -> FloatArray:
            source = get_representations(analysis, layer[0], store)
            of_rows = source[layer[1]] if every else source.rows(layer[1], rows)
            distance = analysis.spec.neural_distance(layer[0])
            return squared_distances(np.asarray(of_rows), distance, layer=layer_name(layer))

        return cls.from_distances(
            layers,
            list(counted(map_in_order(distances, layers, cores()), len(layers), progress)),
            columns,
            analysis.folds[rows],
            np.unique(stimuli.groups[rows], return_inverse=True)[1].astype(np.int64),
            None if stimuli.items is None else stimuli.items[rows],
            untested_items=None if design.items is None else design.items[rows],
            times=None if design.times is None else design.times[rows],
            rows=None if every else rows,
            statistics=statistics,
        )

    @classmethod
    def from_distances(
        cls,
        layers: Sequence[Layer],
        squared: Sequence[FloatArray],
        columns: PairColumns,
        folds: IntArray,
        groups: IntArray,
        items: IntArray | None = None,
        *,
        untested_items: IntArray | None = None,
        times: FloatArray | None = None,
        rows: IntArray | None = None,
        statistics: PairStatistics | None = None,
    ) -> LayerPairs:
        """Pairs of stimuli with these columns and distances.

        Parameters
        ----------
        squared : for each layer (n_pairs,) squared distances, in condensed order
        untested_items : (n_stimuli,) two of one item test no fold, see
            `mlem_core.stimuli.folds.untested_items`
        statistics : None are computed

        The other parameters are the attributes of the class.
        """
        doubled = map_on_all_cores(pair_ranks, squared)
        if statistics is None:
            design = PairDesign.complete(len(folds), untested_items, times)
            compared = ComparedPairs.from_columns(columns, folds, design)
            ranks = PairRanks(len(layers), design.n_pairs)
            for position, of_layer in enumerate(doubled):
                ranks.put(position, of_layer)
            both = list(zip(squared, doubled, strict=True))
            of_layers = map_on_all_cores(lambda pair: compared.layer_statistics(*pair), both)
            products = compared.rank_products(ranks, range(len(layers)))
            statistics = compared.together(of_layers, products)
        return cls(
            tuple(layers),
            statistics,
            tuple(doubled),
            tuple(squared),
            groups,
            folds,
            items,
            rows,
            times,
        )

    def select_stimuli(self, whole: StimulusSet) -> StimulusSet:
        """The stimuli whose pairs these are, of those of the analysis."""
        return whole if self.rows is None else whole.take(self.rows)

    @property
    def n_groups(self) -> int:
        return int(self.groups.max()) + 1

    @property
    def units(self) -> StimulusUnits:
        """The units that the stimuli are drawn in."""
        return StimulusUnits(self.folds, self.groups, self.items)


def selected_columns(analysis: Analysis, selection: Selection) -> PairColumns:
    """Columns of all pairs of the stimuli of an analysis, of the selected features."""
    columns = analysis.pairs.columns
    numbers = [columns.features.index(name) for name in selection.features]
    interactions = selection.interactions and columns.interactions
    return columns.select_features(numbers, interactions=interactions).columns


def sampled_rows(analysis: Analysis, size: int) -> IntArray:
    """Stimuli of an analysis, ascending: about so many, in whole sentences, from every fold alike.

    All of them where there are no more.
    """
    stimuli, folds = analysis.stimuli, analysis.folds
    if len(stimuli) <= size:
        return np.arange(len(stimuli))
    units = StimulusUnits.from_stimuli(stimuli, folds).together
    _, unit, sizes = np.unique(units, return_inverse=True, return_counts=True)
    unit = unit.ravel()
    fold = np.zeros(len(sizes), dtype=np.int64)
    fold[unit] = folds
    order = np.random.default_rng(analysis.spec.seed).permutation(len(sizes))
    chosen = np.zeros(len(sizes), dtype=bool)
    for own in np.unique(folds):
        members = order[fold[order] == own]
        share = size * (folds == own).mean()
        chosen[members[np.cumsum(sizes[members]) <= max(share, sizes[members[0]])]] = True
    return np.flatnonzero(chosen[unit])
