"""All pairs of the stimuli of an analysis in some of its layers: what resampling starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis, check_layers
from mlem_core.analysis.representations import representations_of
from mlem_core.base.typing import FloatArray, IntArray, Layer, layer_name
from mlem_core.base.work import on_all_cores
from mlem_core.data.stimuli import StimulusSet
from mlem_core.inference.resample import PERMUTED
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import Coded, feature_columns
from mlem_core.pairs.designs import PairDesign, resampled_part
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.resampling_units import RankedPairs, StimulusUnits
from mlem_core.pairs.tables import PairTables, group_rows
from mlem_core.storage.store import Store

# Sums by so many possible cells are looked up; those of more are sorted.
MOST_CELLS = 2**22


@dataclass(frozen=True)
class LayerPairs:
    """Pairs of the stimuli of an analysis, with their ranks in some of its layers.

    Attributes
    ----------
    layers : (model, layer) of each of the n_layers layers
    tables : the pair tables of these pairs, with the chosen features
    ranks : for each layer (n_pairs,) twice the average rank of each pair
    squared : for each layer (n_pairs,) squared neural distances
    design : which pairs these are
    cells : (n_pairs,) the cell of `tables` (block of folds and pattern) of each pair
    groups, folds : (n_stimuli,) sentence and fold of each stimulus, see `mlem_core.data.folds`
    items : (n_stimuli,) word, or other item, of each stimulus; None where none recurs
    coded : (n_features,) see `mlem_core.pairs.patterns.PairIndex`
    rows : (n_stimuli,) which stimuli of the analysis these are; None: all
    """

    layers: tuple[Layer, ...]
    tables: PairTables
    ranks: tuple[NDArray[np.uint32], ...]
    squared: tuple[NDArray[np.float32], ...]
    design: PairDesign
    cells: NDArray[np.int32]
    groups: IntArray
    folds: IntArray
    items: IntArray | None = None
    coded: tuple[Coded, ...] = ()
    rows: IntArray | None = None

    @classmethod
    def of(
        cls,
        analysis: Analysis,
        layers: Sequence[Layer],
        store: Store,
        features: Sequence[str] | None = None,
        interactions: bool | None = None,
        *,
        ranked: bool = True,
    ) -> LayerPairs:
        """Rank the pairs of some layers again, from the representations in the store.

        The pairs are those of the analysis, or a part of them, see `resampled_part`.

        Raises InputError: a layer or feature that the analysis does not have; representations that
        are no longer in the store.

        Parameters
        ----------
        features, interactions : None is what the analysis has
        ranked : False: the pairs and their cells alone, without ranks and distances
        """
        design, rows = _resampled(analysis), np.arange(len(analysis.stimuli))
        made = _Made(analysis, store, rows, design)
        return made.pairs(layers, features, interactions, ranked=ranked)

    @classmethod
    def without_pairs(cls, analysis: Analysis, layers: Sequence[Layer]) -> LayerPairs:
        """The stimuli of an analysis alone, for what is no sum over their pairs."""
        units = StimulusUnits.of(analysis.stimuli, analysis.folds)
        tables, cells = analysis.tables.of_layers([]), np.zeros(0, dtype=np.int32)
        stimuli = units.groups, units.folds, units.items
        return cls(tuple(layers), tables, (), (), analysis.design, cells, *stimuli)

    @classmethod
    def of_sample(
        cls,
        analysis: Analysis,
        layers: Sequence[Layer],
        store: Store,
        features: Sequence[str] | None = None,
        interactions: bool | None = None,
    ) -> LayerPairs:
        """All pairs of the stimuli, or of a sample of about `PERMUTED` where all are not compared.

        The sample is of whole sentences (or whatever stays together in a fold), in each fold as
        large a part of them. Parameters and errors are those of `of`.
        """
        if _resampled(analysis).is_complete:
            return cls.of(analysis, layers, store, features, interactions)
        rows = sampled_rows(analysis, PERMUTED)
        items = analysis.design.items
        design = PairDesign.complete(len(rows), None if items is None else items[rows])
        made = _Made(analysis, store, rows, design)
        return made.pairs(layers, features, interactions)

    def stimuli_of(self, whole: StimulusSet) -> StimulusSet:
        """The stimuli whose pairs these are, of those of the analysis."""
        return whole if self.rows is None else whole.take(self.rows)

    @property
    def n_groups(self) -> int:
        return int(self.groups.max()) + 1

    @cached_property
    def by_stimulus(self) -> LayerPairs:
        """Pairs with each stimulus a group of its own, see `RankedPairs.by_stimulus`."""
        alone = replace(self, groups=np.arange(len(self.groups)))
        # What does not depend on the groups is not made again.
        inside = tuple(pairs.by_stimulus for pairs in self.inside)
        vars(alone).update(whole=self.whole.by_stimulus, inside=inside)
        return alone

    @cached_property
    def coarse(self) -> LayerPairs:
        """Pairs by the cells of `PairTables.coarse`, for means of patterns."""
        return _coarse(self)

    @property
    def units(self) -> StimulusUnits:
        """The units that the stimuli are drawn in; blocks of them are for `by_stimulus`."""
        return StimulusUnits(self.folds, self.groups, self.items)

    def groups_in(self, fold: int) -> IntArray:
        """The sentences with stimuli in a fold, ascending, as `inside` numbers them."""
        return np.unique(self.groups[self.folds == fold])

    @cached_property
    def pattern(self) -> NDArray[np.int32]:
        """(n_pairs,) the pattern of each pair, a row of `tables.codes`."""
        return self.tables.cell_pattern.astype(np.int32)[self.cells]

    @cached_property
    def whole(self) -> RankedPairs:
        """All pairs, ranked among each other, with their cells of `tables`."""
        n_cells = len(self.tables.counts)
        return RankedPairs.of(self.ranks, self.cells, self.groups, n_cells, design=self.design)

    @cached_property
    def inside(self) -> tuple[RankedPairs, ...]:
        """Held-out pairs of each fold, ranked among each other, with their patterns only."""
        folds = []
        for fold in range(self.tables.n_folds):
            stimuli = np.flatnonzero(self.folds == fold)
            pairs = RankedPairs.of(
                self.ranks, self.pattern, self.groups, len(self.tables.codes), stimuli, self.design
            )
            patterns = self.tables.cell_pattern[self.tables.held_out(fold)]
            number = np.full(len(self.tables.codes), -1, dtype=np.int32)
            number[patterns] = np.arange(len(patterns))
            folds.append(replace(pairs, cells=number[pairs.cells], n_patterns=len(patterns)))
        return tuple(folds)


class Relabelled(NamedTuple):
    """Pairs of stimuli that take the values of one feature from others.

    A key is a block and a pattern of the other features (`present`), times `n_codes`, plus the code
    of this one.

    pairs, feature : all pairs of the stimuli, and the number of the feature
    codes : (n_patterns, n_features) patterns of the other features
    present : numbers of the blocks and patterns that pairs have
    base : (n_cells,) what a cell of the pairs adds to the key
    """

    pairs: LayerPairs
    feature: int
    codes: IntArray
    present: IntArray
    base: IntArray

    @classmethod
    def of(cls, pairs: LayerPairs, f: int) -> Relabelled:
        """Pairs that take other values of a feature, given by its number."""
        tables = pairs.tables
        first, group = group_rows(np.delete(tables.codes, f, axis=1))
        outer = tables.cell_block * len(first) + group[tables.cell_pattern]
        present, place = np.unique(outer, return_inverse=True)
        base = place * len(pairs.coded[f].distances)
        return cls(pairs, f, tables.codes[first], present, base)

    @property
    def n_codes(self) -> int:
        """Number of distances, or pairs of values, of the feature."""
        return len(self.pairs.coded[self.feature].distances)

    def keys(self, givers: IntArray) -> IntArray:
        """(n_pairs,) the key of each pair, where stimuli take the values of givers (n_stimuli,)."""
        from mlem_core.pairs.kernels.weighted import relabelled_keys

        coded = self.pairs.coded[self.feature]
        numbers, width, lookup = coded.values, 0, np.zeros(0, dtype=np.int64)
        if coded.codes is not None:
            width, lookup = len(coded.codes), coded.codes.ravel()
            numbers = np.where(numbers < 0, width - 1, numbers)
        keys = np.empty(len(self.pairs.cells), dtype=np.int64)
        relabelled_keys(givers, numbers, lookup, width, self.base, self.pairs.cells, keys)
        return keys

    def sums(
        self, givers: IntArray, values: FloatArray | NDArray[np.uint32]
    ) -> tuple[IntArray, FloatArray]:
        """The keys of the pairs, ascending, with counts and sums of values: (1 + n_values, n_keys).

        Parameters
        ----------
        givers : (n_stimuli,) whose value each stimulus takes
        values : (n_values, n_pairs); of whole numbers, which are twice an average rank, the sums
            are those of centred ranks
        """
        from mlem_core.pairs.kernels.cells import group_sums

        n = len(self.present) * self.n_codes
        keys, names = self.keys(givers), np.arange(n)
        if n > MOST_CELLS:
            names, keys = np.unique(keys, return_inverse=True)
        sums = np.zeros((1 + len(values), len(names)))
        sums[0] = np.bincount(keys, minlength=len(names))
        for own, row in zip(sums[1:], values, strict=True):
            group_sums(keys, row, own)
        kept = np.flatnonzero(sums[0])
        sums = sums[:, kept]
        if values.dtype == np.uint32:
            sums[1:] = 0.5 * (sums[1:] - (len(keys) + 1.0) * sums[0])
        return names[kept], sums

    def tables(self, keys: IntArray) -> PairTables:
        """The tables of the pairs with the cells of such keys; sums are left as they are.

        Keys ascend, and so by block, as the cells of tables do.
        """
        outer, code = np.divmod(keys, self.n_codes)
        block, pattern = np.divmod(self.present[outer], len(self.codes))
        codes = self.codes[pattern]
        codes[:, self.feature] = code
        first, pattern = group_rows(codes)
        return replace(
            self.pairs.tables, codes=codes[first], cell_block=block, cell_pattern=pattern
        )

    def ranked(self, givers: IntArray) -> tuple[RankedPairs, PairTables]:
        """The pairs and their tables where stimuli take the values of givers (n_stimuli,)."""
        names, place = np.unique(self.keys(givers), return_inverse=True)
        sums = self.sums(givers, np.stack(self.pairs.ranks))[1]
        tables = replace(self.tables(names), counts=sums[0], rank_sums=sums[1:])
        cells = place.astype(np.int32)
        return replace(self.pairs.whole, cells=cells, n_patterns=len(names)), tables


def _coarse(pairs: LayerPairs) -> LayerPairs:
    tables, coarser = pairs.tables.coarse, pairs.tables.coarser
    if tables is pairs.tables:
        return pairs
    pattern = coarser.group[pairs.tables.cell_pattern]
    coded = tuple(
        own if own.codes is None else own._replace(codes=numbers[own.codes], distances=levels)
        for own, numbers, levels in zip(pairs.coded, coarser.numbers, coarser.levels, strict=True)
    )
    cells = _numbered(tables, pairs.tables.cell_block, pattern)[pairs.cells]
    return replace(pairs, tables=tables, cells=cells, coded=coded)


def _resampled(analysis: Analysis) -> PairDesign:
    return resampled_part(analysis.design, analysis.folds)


def sampled_rows(analysis: Analysis, size: int) -> IntArray:
    """Stimuli of an analysis, ascending: about so many, in whole sentences, from every fold alike.

    All of them where there are no more.
    """
    stimuli, folds = analysis.stimuli, analysis.folds
    if len(stimuli) <= size:
        return np.arange(len(stimuli))
    units = StimulusUnits.of(stimuli, folds).together
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


def square_of(pairs: LayerPairs, values: NDArray[np.floating], elsewhere: float) -> FloatArray:
    """(n_stimuli, n_stimuli) values (n_pairs,) of pairs; another value where there is none."""
    n = len(pairs.groups)
    square = np.full((n, n), elsewhere)
    first, second = pairs.design.ends(np.arange(len(values)))
    square[first, second] = square[second, first] = values
    return square


def index_of_some(analysis: Analysis, rows: IntArray, design: PairDesign) -> PairIndex:
    """Patterns of pairs of some stimuli, by number, with the spans and values of all of them."""
    stimuli, whole = analysis.stimuli, analysis.tables
    spans = {column.name: column.span for column in feature_columns(stimuli)}
    names = dict(zip(whole.features, whole.value_names, strict=True))
    resolved = {name: names[name] for name in whole.resolved}
    columns, missing = feature_columns(stimuli[rows], spans, resolved), analysis.spec.missing
    return PairIndex.build(columns, analysis.folds[rows], missing, design=design, like=whole)


class _Made(NamedTuple):
    """Some pairs of some stimuli of an analysis, about to be ranked."""

    analysis: Analysis
    store: Store
    rows: IntArray
    design: PairDesign

    def pairs(
        self,
        layers: Sequence[Layer],
        features: Sequence[str] | None,
        interactions: bool | None,
        *,
        ranked: bool = True,
    ) -> LayerPairs:
        """Rank them; their tables are those of the analysis where it has the same pairs."""
        analysis, rows, whole = self.analysis, self.rows, self.analysis.tables
        check_layers(layers, analysis.layers)
        stimuli, folds = analysis.stimuli, analysis.folds[rows]
        index = index_of_some(analysis, rows, self.design)
        if self.design is analysis.design:
            tables = whole.of_layers([analysis.layers.index(layer) for layer in layers])
        else:
            tables = pair_tables(
                index,
                [lambda layer=layer: self.of(layer) for layer in layers],  # type: ignore[misc]
                names=[layer_name(layer) for layer in layers],
                distance=[analysis.spec.distance_of(model) for model, _ in layers],
                train_ranks=whole.train_sums is not None,
            )
        cells, coded = index.cell, index.coded
        if features is not None:
            chosen = tables.of_features(features)
            if chosen is not tables:
                kept = [tables.features.index(name) for name in chosen.features]
                pattern = group_rows(index.codes[:, kept])[1][index.cell_pattern]
                cells = _numbered(chosen, index.cell_block, pattern)[cells]
                coded = tuple(coded[f] for f in kept)
            tables = chosen
        interactions = analysis.spec.interactions if interactions is None else interactions
        of_layers = on_all_cores(self.ranked, layers) if ranked else []
        return LayerPairs(
            layers=tuple(layers),
            tables=tables.with_interactions(interactions),
            ranks=tuple(ranks for ranks, _ in of_layers),
            squared=tuple(squared for _, squared in of_layers),
            design=self.design,
            cells=cells,
            groups=np.unique(stimuli.groups[rows], return_inverse=True)[1].astype(np.int64),
            folds=folds,
            items=None if stimuli.items is None else stimuli.items[rows],
            coded=coded,
            rows=None if len(rows) == len(stimuli) else rows,
        )

    def of(self, layer: Layer) -> NDArray[np.floating]:
        """The representations of these stimuli in a layer, or the distances among them."""
        source = representations_of(self.analysis, layer[0], self.store)
        if len(self.rows) == len(self.analysis.stimuli):
            return source[layer[1]]
        return source.of(layer[1], self.rows)

    def ranked(self, layer: Layer) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Twice the average rank of each pair of stimuli in a layer, and their squared distance."""
        distance = self.analysis.spec.distance_of(layer[0])
        name, rows = f"{layer[0]} layer {layer[1]}", np.asarray(self.of(layer))
        squared = squared_distances(rows, distance, design=self.design, layer=name)
        return pair_ranks(squared), squared.astype(np.float32)


def _numbered(tables: PairTables, block: IntArray, pattern: IntArray) -> NDArray[np.int32]:
    """The number, in the tables, of cells (n,) that are given by block and pattern."""
    n_patterns = len(tables.codes)
    number = np.full((int(tables.cell_block.max()) + 1) * n_patterns, -1, dtype=np.int32)
    own = np.arange(len(tables.counts), dtype=np.int32)
    number[tables.cell_block * n_patterns + tables.cell_pattern] = own
    return number[block * n_patterns + pattern]
