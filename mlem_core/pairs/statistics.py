"""Statistics of the pairs of stimuli: moments of all pairs, and the pairs that test each fold.

All that an analysis says of its layers follows from them: fits, scores, importances, similarities
and contributions. They are made in one pass over the pairs of each layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores, map_in_order, one_thread_each
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.columns import FeatureColumn
from mlem_core.pairs.designs import NEAR, PairDesign, pair_places
from mlem_core.pairs.distances import PRECOMPUTED, distance_named, squared_distances
from mlem_core.pairs.moment_sums import (
    ColumnMoments,
    MatrixMoments,
    blocks_of_folds,
    column_moments,
    layer_moments,
    products_of_layers,
)
from mlem_core.pairs.moments import LeftOutPairs, PairMoments, pair_moments
from mlem_core.pairs.pair_columns import PairColumns
from mlem_core.pairs.ranks import PairRanks, pair_ranks
from mlem_core.pairs.scored_pairs import FoldPairsIndex, ScoredPairs
from mlem_core.pairs.variance_shares import VarianceShares, variance_shares
from mlem_core.stimuli.folds import number_of_folds

# All cores share a layer of more pairs: two at once would take twice the memory.
LARGE = 2**24
# Twice the average ranks (n_pairs,) of pairs.
Doubled = NDArray[np.uint32]
# Gives the representations (n_stimuli, n_units) of a layer, or its distances.
LayerSource = Callable[[], NDArray[np.floating]]


@dataclass(frozen=True)
class PairStatistics:
    """Statistics of the pairs of n_stimuli stimuli in n_layers layers.

    Attributes
    ----------
    moments : of all compared pairs
    tests : the pairs that test each fold
    missing : (n_missing,) places, among all pairs, of those that some layer has no distance for,
        ascending; they are left out of everything
    """

    moments: PairMoments
    tests: ScoredPairs
    missing: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def columns(self) -> PairColumns:
        """Columns of the pairs: what a metric weighs."""
        return self.moments.columns

    @property
    def features(self) -> tuple[str, ...]:
        """(n_features,) names of the features."""
        return self.columns.features

    @property
    def resolved(self) -> tuple[str, ...]:
        """Features that are coded by value."""
        return self.columns.by_value

    @property
    def interactions(self) -> bool:
        """Whether products of two feature distances are columns too."""
        return self.columns.interactions

    @property
    def n_folds(self) -> int:
        return self.moments.n_folds

    @property
    def n_pairs(self) -> int:
        """Number of compared pairs."""
        return self.moments.n_pairs

    def select_layers(self, layers: Sequence[int]) -> PairStatistics:
        """Statistics of some layers alone, by position."""
        if list(layers) == list(range(self.moments.n_layers)):
            return self
        moments, tests = self.moments.select_layers(layers), self.tests.select_layers(layers)
        return replace(self, moments=moments, tests=tests)

    def select_features(self, features: Sequence[str]) -> PairStatistics:
        """Statistics that these features alone would have given.

        Raises InputError: an unknown feature, or none.
        """
        return self._with_moments(self.moments.select_features(features))

    def drop_interactions(self) -> PairStatistics:
        """Statistics without the products of two feature distances."""
        return self._with_moments(self.moments.drop_interactions())

    def _with_moments(self, moments: PairMoments) -> PairStatistics:
        if moments is self.moments:
            return self
        return replace(self, moments=moments, tests=self.tests.select_columns(moments.columns))


class LayerStatistics(NamedTuple):
    """What one layer adds to `PairStatistics`, by n_designs independent designs of the pairs.

    Where all pairs are compared, they are one design.

    Attributes
    ----------
    moments : of its squared distances and ranks, all arrays with designs as their first axis
    rank_sums : (n_sums,) sums of the centred ranks of the test pairs, of one fold after the other,
        see `mlem_core.pairs.scored_pairs.FoldPairsIndex`
    rank_squares : (n_folds, n_designs) sums of their squares
    left_out : (2, n_left_out) squared distances and centred ranks, among all pairs, of those in
        `LeftOutPairs`
    """

    moments: MatrixMoments
    rank_sums: FloatArray
    rank_squares: FloatArray
    left_out: FloatArray


@dataclass(frozen=True)
class ComparedPairs:
    """The pairs of stimuli that are compared, and which test each fold; no layer has a part in it.

    Attributes
    ----------
    columns : of the pairs
    folds : (n_stimuli,) the fold that tests each stimulus, see `mlem_core.stimuli.folds`
    design : which pairs are compared
    tests : for each fold its test pairs
    first : (n_stimuli,) whether each stimulus is at position 0; None where they have none
    """

    columns: PairColumns
    folds: IntArray
    design: PairDesign
    tests: tuple[FoldPairsIndex, ...]
    first: NDArray[np.bool_] | None = None

    @classmethod
    def from_features(
        cls,
        features: Sequence[FeatureColumn],
        folds: IntArray,
        missing: str = "ignore",
        *,
        interactions: bool = False,
        design: PairDesign | None = None,
    ) -> ComparedPairs:
        """All pairs of the stimuli, or those of a design.

        Parameters
        ----------
        features : of n_stimuli stimuli, some of them coded by value
        folds : (n_stimuli,)
        missing, interactions : as in `PairColumns.from_features`, which raises for what it refuses
        """
        return cls.from_columns(
            PairColumns.from_features(features, missing, interactions), folds, design
        )

    @classmethod
    def from_columns(
        cls, columns: PairColumns, folds: IntArray, design: PairDesign | None = None
    ) -> ComparedPairs:
        """Pairs that have these columns, all of them or those of a design."""
        design = design or PairDesign.complete(len(folds))
        n_folds = number_of_folds(folds)
        tests = [
            FoldPairsIndex.from_columns(columns, np.flatnonzero(folds == fold), design)
            for fold in range(n_folds)
        ]
        return cls(columns, np.asarray(folds, dtype=np.int64), design, tuple(tests))

    @cached_property
    def left_out_places(self) -> IntArray:
        """(n_left_out,) places, among the compared pairs, of those in `LeftOutPairs`.

        They are the pairs inside a fold of two stimuli of one item, and those of stimuli that came
        closer to each other than the lag.
        """
        items, folds, times = self.design.items, self.folds, self.design.times
        if not self.design.is_complete:
            first, second = self.design.pairs()
            left_out = self.design.are_near(first, second)
            if items is not None:
                same = (items[first] == items[second]) & (folds[first] == folds[second])
                left_out |= same & (folds[first] >= 0)
            return np.flatnonzero(left_out)
        places = [np.empty(0, dtype=np.int64)]
        if items is not None:
            tested = np.flatnonzero(folds >= 0)
            units = np.column_stack((items, folds))[tested]
            unit = np.unique(units, axis=0, return_inverse=True)[1].reshape(-1)
            for number in np.flatnonzero(np.bincount(unit) > 1):
                members = tested[unit == number]
                first, second = np.triu_indices(len(members), 1)
                places.append(pair_places(members[first], members[second], len(folds)))
        if times is not None:
            order = np.argsort(times, kind="stable")
            last = np.searchsorted(times[order], times[order] + NEAR)
            n_near = np.maximum(last - np.arange(len(order)) - 1, 0)
            first = np.repeat(np.arange(len(order)), n_near)
            begins = np.cumsum(n_near) - n_near
            second = first + 1 + np.arange(len(first)) - np.repeat(begins, n_near)
            places.append(pair_places(order[first], order[second], len(folds)))
        return np.unique(np.concatenate(places))

    @cached_property
    def _designs(self) -> tuple[tuple[PairDesign, slice], ...]:
        """The independent designs, and the places of their pairs."""
        starts = self.design.starts[self.design.parts].tolist()
        places = [slice(*ends) for ends in itertools.pairwise(starts)]
        if len(places) == 1:
            return ((self.design, places[0]),)
        return tuple(
            (self.design.only(number, number + 1), part) for number, part in enumerate(places)
        )

    @cached_property
    def _column_moments(self) -> tuple[ColumnMoments, ...]:
        """Moments of the columns with each other, over the pairs of each independent design."""
        return tuple(
            column_moments(self.columns, self.folds, design) for design, _ in self._designs
        )

    def layer_statistics(self, squared: FloatArray, doubled: NDArray[np.uint32]) -> LayerStatistics:
        """Statistics of one layer.

        Parameters
        ----------
        squared : (n_pairs,) squared distances of the compared pairs, in the order of the design
        doubled : (n_pairs,) twice their average ranks, see `mlem_core.pairs.ranks.pair_ranks`
        """
        moments = [
            layer_moments(
                self.columns, self.folds, squared[part], doubled[part], design, len(doubled)
            )
            for design, part in self._designs
        ]
        of_tests = [test.rank_sums(squared[test.places]) for test in self.tests]
        sums, squares = zip(*of_tests, strict=True)
        places = self.left_out_places
        ranks = (doubled[places].astype(np.float64) - (len(doubled) + 1)) / 2
        left_out = np.stack((squared[places].astype(np.float64), ranks))
        stacked = MatrixMoments.stack(moments)
        return LayerStatistics(stacked, np.concatenate(sums), np.stack(squares), left_out)

    def leave_designs_out(
        self, layers: Sequence[LayerStatistics], rank_products: FloatArray
    ) -> Iterator[PairStatistics]:
        """Statistics without each of the independent designs; parameters are as in `together`."""
        n_designs = self.design.n_designs
        for left_out in range(n_designs):
            designs = [number for number in range(n_designs) if number != left_out]
            yield self.together(layers, rank_products, designs)

    def together(
        self,
        layers: Sequence[LayerStatistics],
        rank_products: FloatArray,
        designs: Sequence[int] | None = None,
    ) -> PairStatistics:
        """Statistics of several layers.

        Parameters
        ----------
        layers : of each of n_layers layers
        rank_products : of these layers, see `rank_products`
        designs : numbers of the independent designs whose pairs alone are meant; None is all. Ranks
            stay those among all compared pairs.

        Raises InputError: no layer.
        """
        if not layers:
            raise InputError("no layer is left whose distances can be computed.")
        numbers = list(range(len(self._designs)) if designs is None else designs)
        left_out = None
        if len(self.left_out_places):
            starts = [places.start for _, places in self._designs]
            design_of = np.searchsorted(starts, self.left_out_places, side="right") - 1
            some = np.isin(design_of, numbers)
            first, second = self.design.ends(self.left_out_places[some])
            # First the squared distances of all layers, then their ranks.
            targets = np.concatenate([layer.left_out[:, None, some] for layer in layers], axis=1)
            left_out = LeftOutPairs(
                first, second, np.concatenate(targets), self.design.are_near(first, second)
            )
        moments = pair_moments(
            self.columns,
            self.folds,
            [layer.moments.together(numbers) for layer in layers],
            rank_products[numbers].sum(axis=0),
            left_out,
            ColumnMoments.together([self._column_moments[number] for number in numbers]),
        )
        tests, start = [], 0
        rank_sums = np.stack([layer.rank_sums for layer in layers])
        for fold, test in enumerate(self.tests):
            sums = rank_sums[:, start : start + test.n_sums]
            squares = np.stack([layer.rank_squares[fold] for layer in layers])
            tests.append(test.with_layers(sums, squares, designs))
            start += test.n_sums
        return PairStatistics(moments, ScoredPairs(tuple(tests)))

    def rank_products(self, ranks: PairRanks, layers: Sequence[int]) -> FloatArray:
        """Sums of products of the ranks of every two of some layers, by pair of blocks.

        Returns (n_designs, n_blocks, n_blocks, n_layers, n_layers), of each independent design, see
        `mlem_core.pairs.moment_sums.products_of_layers`.
        """
        block, products = blocks_of_folds(self.folds), []
        for design, places in self._designs:

            def read(position: int, first: int, last: int, start: int = places.start) -> Doubled:
                return ranks.read(layers[position], start + first, start + last)

            centre = self.design.n_pairs + 1.0
            products.append(products_of_layers(block, len(layers), read, design, centre) / 4)
        return np.stack(products)


def pair_statistics(
    pairs: ComparedPairs,
    layers: Sequence[LayerSource],
    *,
    names: Sequence[str] | None = None,
    distance: str | Sequence[str] = "euclidean",
) -> PairStatistics:
    """Statistics of the pairs of stimuli in many layers, one pass over the pairs for each.

    Parameters
    ----------
    pairs : which are compared, and their columns
    layers : for each layer a function that gives its representations (n_stimuli, n_units), or its
        distances (n_stimuli, n_stimuli) where `distance` is "precomputed"
    names : how messages call each layer
    distance : a name in `mlem_core.pairs.distances.DISTANCES`, or one for each layer

    Raises InputError: as `squared_distances`; a layer whose number of rows is not that of the
    stimuli.
    """
    names = names or [f"layer {number}" for number in range(len(layers))]
    distances = [distance] * len(layers) if isinstance(distance, str) else distance
    for name in dict.fromkeys(distances):
        distance_named(name)
    ranks = PairRanks(len(layers), pairs.design.n_pairs)
    statistics = []
    for position, result in enumerate(passes_over_layers(pairs, layers, distances, names)):
        if isinstance(result, InputError):
            raise result
        ranks.put(position, result.doubled)
        statistics.append(result.statistics)
    return pairs.together(statistics, pairs.rank_products(ranks, range(len(layers))))


class LayerPass(NamedTuple):
    """Result of the pass over the pairs of a layer; `doubled` is twice their average ranks."""

    statistics: LayerStatistics
    doubled: NDArray[np.uint32]
    variance: VarianceShares


def passes_over_layers(
    pairs: ComparedPairs,
    layers: Sequence[LayerSource],
    distances: Sequence[str],
    names: Sequence[str],
) -> Iterator[LayerPass | InputError]:
    """The pass over each layer by the cores of this machine, or what is wrong with it.

    Parameters are those of `pair_statistics`, a distance and a name for each layer.
    """
    workers = 1 if pairs.design.n_pairs > LARGE else min(cores(), max(1, len(layers)))
    threads = max(1, cores() // workers)

    def passed(position: int) -> LayerPass | InputError:
        try:
            return pass_over_layer(
                pairs, layers[position], distances[position], names[position], threads
            )
        except InputError as error:
            return error

    # The cores are shared out already: among the layers, or the bands of one.
    with one_thread_each():
        yield from map_in_order(passed, range(len(layers)), workers)


def pass_over_layer(
    pairs: ComparedPairs, layer: LayerSource, distance: str, name: str, threads: int = 1
) -> LayerPass:
    """The pass over the pairs of one layer, the same with any number of threads.

    Parameters and errors are those of `pair_statistics`.
    """
    rows = layer()
    check_rows(rows, len(pairs.folds), name)
    squared = squared_distances(rows, distance, design=pairs.design, layer=name, threads=threads)
    doubled = pair_ranks(squared, threads=threads)
    shares = VarianceShares(np.nan, np.nan)
    if distance != PRECOMPUTED:
        shares = variance_shares(rows, pairs.first)
    return LayerPass(pairs.layer_statistics(squared, doubled), doubled, shares)


def check_rows(rows: NDArray[np.floating], n_stimuli: int, name: str) -> None:
    """Raise InputError for rows that are not (n_stimuli, n_units).

    `name` is how the message calls them.
    """
    if rows.ndim != 2 or rows.shape[1] == 0 or len(rows) != n_stimuli:
        raise InputError(
            f"{name} has the shape {rows.shape}; expected ({n_stimuli}, units), one row a stimulus "
            "in the order of the CSV."
        )
