"""All pairs of the stimuli of an analysis in some of its layers: what resampling starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import representations_of
from mlem_core.analysis.selection import check_layers
from mlem_core.base.parallel import side_by_side
from mlem_core.base.typing import FloatArray, IntArray, Layer
from mlem_core.data.folds import kept_together
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import condensed_from_matrix, squared_distances
from mlem_core.pairs.patterns import PairIndex, group_rows
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.resampling import RankedPairs
from mlem_core.pairs.tables import PairTables
from mlem_core.pairs.units import Blocks, blocks_left_out
from mlem_core.storage.store import Store


@dataclass(frozen=True)
class LayerPairs:
    """All pairs of the stimuli of an analysis, with their ranks in some of its layers.

    Attributes
    ----------
    layers : (model, layer) of each of the n_layers layers
    tables : their pair tables, with the chosen features
    ranks : for each layer (n_pairs,) twice the average rank of each pair
    squared : for each layer (n_pairs,) squared neural distances
    cells : (n_pairs,) the cell of `tables` (block of folds and pattern) of each pair
    groups, folds : (n_stimuli,) sentence and fold of each stimulus, see `mlem_core.data.folds`
    items : (n_stimuli,) word, or other item, of each stimulus; None where none recurs
    """

    layers: tuple[Layer, ...]
    tables: PairTables
    ranks: tuple[NDArray[np.uint32], ...]
    squared: tuple[NDArray[np.float32], ...]
    cells: NDArray[np.int32]
    groups: IntArray
    folds: IntArray
    items: IntArray | None = None

    @classmethod
    def of(
        cls,
        analysis: Analysis,
        layers: Sequence[Layer],
        store: Store,
        features: Sequence[str] | None = None,
        interactions: bool | None = None,
    ) -> LayerPairs:
        """Rank the pairs of some layers again, from the representations in the store.

        Parameters
        ----------
        features, interactions : None is what the analysis has

        Raises
        ------
        InputError
            A layer or feature that the analysis does not have; representations that are no longer
            in the store.
        """
        check_layers(layers, analysis.layers)
        if interactions is None:
            interactions = analysis.spec.interactions

        of_features = feature_columns(analysis.stimuli, resolved=analysis.tables.resolved)
        index = PairIndex.build(of_features, analysis.folds, analysis.spec.missing)
        tables = analysis.tables.of_layers([analysis.layers.index(layer) for layer in layers])
        cells = index.cell
        if features is not None:
            chosen = tables.of_features(features)
            if chosen is not tables:
                columns = [tables.features.index(name) for name in chosen.features]
                pattern = group_rows(index.codes[:, columns])[1][index.cell_pattern]
                cells = _numbered(chosen, index.cell_block, pattern)[cells]
            tables = chosen
        ranked = side_by_side(lambda layer: _ranked(analysis, layer, store), layers)
        ranks, squared = zip(*ranked, strict=True)
        return cls(
            layers=tuple(layers),
            tables=tables.with_interactions(interactions),
            ranks=ranks,
            squared=squared,
            cells=cells,
            groups=np.unique(analysis.stimuli.groups, return_inverse=True)[1].astype(np.int64),
            folds=analysis.folds,
            items=analysis.stimuli.items,
        )

    @property
    def n_groups(self) -> int:
        return int(self.groups.max()) + 1

    @cached_property
    def by_stimulus(self) -> LayerPairs:
        """The same pairs, each stimulus a group of its own, so that any of them can be left out.

        See `mlem_core.pairs.resampling.RankedPairs.by_stimulus`.
        """
        alone = replace(self, groups=np.arange(len(self.groups)))
        # What does not depend on the groups is not made again.
        inside = tuple(pairs.by_stimulus for pairs in self.inside)
        vars(alone).update(whole=self.whole.by_stimulus, inside=inside)
        return alone

    def blocks(self, n_blocks: int, rng: np.random.Generator) -> Blocks:
        """The stimuli that are left out in turn, for `by_stimulus`: see `blocks_left_out`."""
        return blocks_left_out(self.groups, self.items, n_blocks, rng)

    def groups_in(self, fold: int) -> IntArray:
        """The sentences with stimuli in a fold, ascending, as `inside` numbers them."""
        return np.unique(self.groups[self.folds == fold])

    @property
    def fold_units(self) -> IntArray:
        """(n_stimuli,) what stays together in a fold, see `kept_together`."""
        return kept_together(self.folds, self.groups, self.items)

    @cached_property
    def pattern(self) -> NDArray[np.int32]:
        """(n_pairs,) the pattern of each pair, a row of `tables.codes`."""
        return self.tables.cell_pattern.astype(np.int32)[self.cells]

    @cached_property
    def whole(self) -> RankedPairs:
        """All pairs, ranked among each other, with their cells of `tables`."""
        return RankedPairs.of(self.ranks, self.cells, self.groups, len(self.tables.counts))

    @cached_property
    def inside(self) -> tuple[RankedPairs, ...]:
        """For each fold its held-out pairs, ranked among each other, with their patterns only."""
        folds = []
        for fold in range(self.tables.n_folds):
            stimuli = np.flatnonzero(self.folds == fold)
            pairs = RankedPairs.of(
                self.ranks, self.pattern, self.groups, len(self.tables.codes), stimuli
            )
            patterns = self.tables.cell_pattern[self.tables.held_out(fold)]
            number = np.full(len(self.tables.codes), -1, dtype=np.int32)
            number[patterns] = np.arange(len(patterns))
            folds.append(replace(pairs, cells=number[pairs.cells], n_patterns=len(patterns)))
        return tuple(folds)

    def bootstrap_weights(self, n_replicates: int, rng: np.random.Generator) -> FloatArray:
        """(n_replicates, n_groups) times each sentence counts: in a fold as many as it has.

        Where folds are over items or both, and a sentence is in several, as many as there are in
        all.
        """
        folds = [self.groups_in(fold) for fold in range(self.tables.n_folds)]
        weights = np.empty((n_replicates, self.n_groups))
        for members in folds if self.fold_units is self.groups else [np.arange(self.n_groups)]:
            n = len(members)
            weights[:, members] = rng.multinomial(n, np.full(n, 1 / n), n_replicates)
        return weights


def _numbered(tables: PairTables, block: IntArray, pattern: IntArray) -> NDArray[np.int32]:
    """The number, in the tables, of cells (n,) that are given by block and pattern."""
    n_patterns = len(tables.codes)
    number = np.full((int(tables.cell_block.max()) + 1) * n_patterns, -1, dtype=np.int32)
    own = np.arange(len(tables.counts), dtype=np.int32)
    number[tables.cell_block * n_patterns + tables.cell_pattern] = own
    return number[block * n_patterns + pattern]


def stimuli_alone(analysis: Analysis) -> LayerPairs:
    """The stimuli of an analysis in none of its layers, for what is drawn of them."""
    return LayerPairs(
        layers=(),
        tables=analysis.tables.of_layers([]),
        ranks=(),
        squared=(),
        cells=np.zeros(0, dtype=np.int32),
        groups=np.unique(analysis.stimuli.groups, return_inverse=True)[1].astype(np.int64),
        folds=analysis.folds,
        items=analysis.stimuli.items,
    )


def _ranked(
    analysis: Analysis, layer: Layer, store: Store
) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Twice the average rank of each pair of stimuli in a layer, and their squared distance."""
    model, number = layer
    rows = np.asarray(representations_of(analysis, model, store)[number])
    name, distance = f"{model} layer {number}", analysis.spec.distance_of(model)
    if distance == "precomputed":
        squared = condensed_from_matrix(rows, layer=name)
    else:
        squared = squared_distances(rows, distance, layer=name)
    return pair_ranks(squared), squared.astype(np.float32)
