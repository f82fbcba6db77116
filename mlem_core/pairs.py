"""The pair table: what a layer's distances are for each pattern of feature differences.

A pair of stimuli enters every analysis through its pattern, the vector of its feature distances,
and patterns are few. `PairIndex` says which pattern each pair has (it depends on the stimuli
alone); `pair_tables` sums distances and ranks by pattern for each layer; everything after that
works on the `PairTables` and never sees a pair again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mlem_core.columns import Columns
from mlem_core.distances import condensed_from_matrix, n_pairs, squared_distances
from mlem_core.errors import InputError, unknown
from mlem_core.patterns import Cells, FloatArray, IntArray, PairIndex, block_numbers, group_rows
from mlem_core.ranks import average_ranks, order_pairs, ties

CHUNK = 2**20
# The square of a larger number, summed over units, may be more than a float64 can hold.
HUGE = 1e150
T = TypeVar("T")


def cores() -> int:
    """How many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def side_by_side(call: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """`call` of each item, shared out among the cores (NumPy works outside Python's lock)."""
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(call, items))


def sums_by(group: IntArray, values: FloatArray) -> FloatArray:
    """Sums of the last axis by group: (..., n) to (..., n_groups), as one sparse product.

    Parameters
    ----------
    group : (n,) numbers of the groups, 0 to n_groups - 1
    values : (..., n)
    """
    from scipy.sparse import csr_array

    n = len(group)
    chosen = csr_array((np.ones(n), group, np.arange(n + 1)))
    summed: FloatArray = chosen.T @ values.reshape(-1, n).T
    return np.ascontiguousarray(summed.T).reshape(*values.shape[:-1], -1)


@dataclass(frozen=True)
class HeldOut:
    """The pairs inside one fold, by pattern, for n_layers layers.

    Attributes
    ----------
    x : (n_patterns, n_columns) terms of the metric, see `mlem_core.columns.Columns`
    codes : (n_patterns, n_columns) a number for each distinct value of a column of x
    counts : (n_patterns,) pairs
    rank_sums : (n_layers, n_patterns) sums of the centred average ranks among these pairs
    rank_squares : (n_layers,) sum of their squares
    """

    x: FloatArray
    codes: IntArray
    counts: FloatArray
    rank_sums: FloatArray
    rank_squares: FloatArray

    def only(self, layers: IntArray, features: IntArray) -> HeldOut:
        """The same for some layers, with the other features summed out."""
        if len(features) == self.x.shape[1]:
            return replace(
                self, rank_sums=self.rank_sums[layers], rank_squares=self.rank_squares[layers]
            )
        first, group = group_rows(self.codes[:, features])
        return HeldOut(
            x=self.x[np.ix_(first, features)],
            codes=self.codes[np.ix_(first, features)],
            counts=np.bincount(group, self.counts).astype(np.float64),
            rank_sums=sums_by(group, self.rank_sums[layers]),
            rank_squares=self.rank_squares[layers],
        )

    def by_support(self, weights: FloatArray) -> list[tuple[IntArray, IntArray]]:
        """Divide the layers by which features have any weight: pairs of (layers, features).

        A feature without weight does not tell pairs apart: summed out, it leaves far fewer
        patterns. Supports that leave about as many patterns are put together, since each part has
        a cost of its own.

        Parameters
        ----------
        weights : (n_layers, n_predictions, n_features)
        """
        supports, own = np.unique((weights != 0).any(axis=1), axis=0, return_inverse=True)
        sizes = np.array([len(group_rows(self.codes[:, used])[0]) for used in supports])
        parts: list[list[int]] = []
        for s in np.argsort(-sizes):
            if parts and sizes[s] * 5 > sizes[parts[-1][0]]:
                parts[-1].append(int(s))
            else:
                parts.append([int(s)])
        return [
            (np.flatnonzero(np.isin(own, part)), np.flatnonzero(supports[part].any(axis=0)))
            for part in parts
        ]


@dataclass(frozen=True)
class PairTables:
    """Sufficient statistics of the pairs of n_layers layers, by fold block and pattern.

    A cell is a block of folds (a, b) and a pattern that occurs in it; cells are sorted by block.
    Folds are those of the stimuli; n_blocks = n_folds (n_folds + 1) / 2.

    Attributes
    ----------
    features, kinds, levels, codes : as in `PairIndex`
    n_stimuli, n_folds
    cell_block, cell_pattern, counts : (n_cells,) block, pattern and number of pairs of each cell
    target_sums : (n_layers, n_cells) sums of the squared neural distance
    rank_sums : (n_layers, n_cells) sums of the centred average rank among all pairs
    within_sums : (n_layers, n_cells) the same with ranks among the pairs inside a fold (held-out
        pairs); 0 in blocks between two folds
    rank_squares : (n_layers,) sum of the squared centred rank over all pairs
    within_squares : (n_layers, n_folds) the same inside each fold
    target_low, target_high : (n_layers, n_blocks) lowest and highest squared distance
    train_sums : None, or (n_layers, n_folds, n_cells) for each fold k the sums of the centred
        average rank among the pairs that leave out fold k; 0 in the blocks of fold k
    train_squares : None, or (n_layers, n_folds) sums of the squares of those ranks
    interactions : whether metrics of these tables also weigh products of two feature distances
    """

    features: tuple[str, ...]
    kinds: tuple[str, ...]
    levels: tuple[FloatArray, ...]
    codes: IntArray
    n_stimuli: int
    n_folds: int
    cell_block: IntArray
    cell_pattern: IntArray
    counts: FloatArray
    target_sums: FloatArray
    rank_sums: FloatArray
    within_sums: FloatArray
    rank_squares: FloatArray
    within_squares: FloatArray
    target_low: FloatArray
    target_high: FloatArray
    train_sums: FloatArray | None = None
    train_squares: FloatArray | None = None
    interactions: bool = False

    @property
    def n_layers(self) -> int:
        return len(self.target_sums)

    @property
    def n_pairs(self) -> int:
        return n_pairs(self.n_stimuli)

    @cached_property
    def patterns(self) -> FloatArray:
        """(n_patterns, n_features) feature distances, in [0, 1]."""
        return np.stack(
            [level[self.codes[:, f]] for f, level in enumerate(self.levels)], axis=1
        ).reshape(len(self.codes), len(self.features))

    @property
    def columns(self) -> Columns:
        """The terms that metrics of these tables weigh."""
        return Columns(self.features, self.interactions)

    @cached_property
    def terms(self) -> FloatArray:
        """(n_patterns, n_columns) their values."""
        return self.columns.values(self.patterns)

    @cached_property
    def term_codes(self) -> IntArray:
        """(n_patterns, n_columns) a number for each distinct value of a term."""
        if not self.interactions:
            return self.codes
        numbered = [np.unique(term, return_inverse=True)[1] for term in self.terms.T]
        return np.stack(numbered, axis=1).astype(np.int64)

    @cached_property
    def block_edges(self) -> IntArray:
        """(n_blocks + 1,) where each block's cells begin."""
        n_blocks = self.n_folds * (self.n_folds + 1) // 2
        return np.searchsorted(self.cell_block, np.arange(n_blocks + 1))

    def held_out(self, fold: int) -> slice:
        """The cells of the pairs inside a fold."""
        block = block_numbers(self.n_folds)[fold, fold]
        return slice(int(self.block_edges[block]), int(self.block_edges[block + 1]))

    def inside(self, fold: int) -> HeldOut:
        """The pairs inside a fold, by pattern."""
        at = self.held_out(fold)
        pattern = self.cell_pattern[at]
        return HeldOut(
            x=self.terms[pattern],
            codes=self.term_codes[pattern],
            counts=self.counts[at],
            rank_sums=self.within_sums[:, at],
            rank_squares=self.within_squares[:, fold],
        )

    @property
    def training_ranks(self) -> FloatArray:
        """`train_sums`, or an error in a sentence where the tables were made without them."""
        if self.train_sums is None:
            raise InputError(
                "these pair tables were made without ranks among training pairs, which estimators "
                "that fit ranks need; run the analysis again with such an estimator."
            )
        return self.train_sums

    def with_interactions(self, interactions: bool = True) -> PairTables:
        """The same tables for metrics with, or without, products of two feature distances."""
        return replace(self, interactions=interactions)

    def of_layers(self, layers: Sequence[int]) -> PairTables:
        """The same tables with only these layers, by position."""
        keep = list(layers)
        return replace(self, **{name: array[keep] for name, array in self._by_layer().items()})

    def _by_layer(self) -> dict[str, Any]:
        names = BY_LAYER if self.train_sums is None else (*BY_LAYER, *TRAIN)
        return {name: getattr(self, name) for name in names}

    def of_features(self, features: Sequence[str]) -> PairTables:
        """The tables that these features alone would have given: the others are summed out.

        Raises
        ------
        InputError
            An unknown feature, or none.
        """
        for name in features:
            if name not in self.features:
                raise unknown("feature", name, self.features)
        keep = [f for f, name in enumerate(self.features) if name in set(features)]
        if not keep:
            raise InputError("no feature is left; choose at least one.")
        if len(keep) == len(self.features):
            return self
        first, group = group_rows(self.codes[:, keep])
        key = self.cell_block * len(first) + group[self.cell_pattern]
        kept, group = np.unique(key, return_inverse=True)
        return replace(
            self,
            features=tuple(self.features[f] for f in keep),
            kinds=tuple(self.kinds[f] for f in keep),
            levels=tuple(self.levels[f] for f in keep),
            codes=self.codes[first][:, keep],
            cell_block=kept // len(first),
            cell_pattern=kept % len(first),
            counts=np.bincount(group, self.counts).astype(np.float64),
            target_sums=sums_by(group, self.target_sums),
            rank_sums=sums_by(group, self.rank_sums),
            within_sums=sums_by(group, self.within_sums),
            train_sums=None if self.train_sums is None else sums_by(group, self.train_sums),
        )

    def save(self, path: Path) -> None:
        """Write an .npz without pickles."""
        arrays = {name: getattr(self, name) for name in (*BY_CELL, "codes")} | self._by_layer()
        arrays |= {f"level_{f:03d}": level for f, level in enumerate(self.levels)}
        np.savez(
            path,
            features=np.array(self.features),
            kinds=np.array(self.kinds),
            size=np.array([self.n_stimuli, self.n_folds]),
            **arrays,
        )

    @classmethod
    def load(cls, path: Path) -> PairTables:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as kept:
            features = tuple(str(name) for name in kept["features"])
            optional = [name for name in TRAIN if name in kept]
            return cls(
                features=features,
                kinds=tuple(str(kind) for kind in kept["kinds"]),
                levels=tuple(kept[f"level_{f:03d}"] for f in range(len(features))),
                n_stimuli=int(kept["size"][0]),
                n_folds=int(kept["size"][1]),
                **{name: kept[name] for name in (*BY_CELL, *BY_LAYER, "codes", *optional)},
            )


BY_CELL = ("cell_block", "cell_pattern", "counts")
BY_LAYER = (
    "target_sums",
    "rank_sums",
    "within_sums",
    "rank_squares",
    "within_squares",
    "target_low",
    "target_high",
)
TRAIN = ("train_sums", "train_squares")


def _sums(
    cells: Cells,
    values: NDArray[np.generic],
    n_cells: int,
    centre: float,
) -> FloatArray:
    """Sum of values - centre by cell, in chunks so that no copy of all pairs is made."""
    total = np.zeros(n_cells)
    for start in range(0, len(cells), CHUNK):
        part = values[start : start + CHUNK].astype(np.float64)
        part -= centre
        total += np.bincount(cells[start : start + CHUNK], weights=part, minlength=n_cells)
    return total


@dataclass(frozen=True)
class LayerSums:
    """One layer's row of each array of `PairTables`, over all (not only the occurring) cells."""

    target_sums: FloatArray
    rank_sums: FloatArray
    within_sums: FloatArray
    rank_squares: float
    within_squares: FloatArray
    target_low: FloatArray
    target_high: FloatArray
    train_sums: FloatArray | None = None
    train_squares: FloatArray | None = None


def layer_sums(
    index: PairIndex, squared: FloatArray, train_ranks: bool = False
) -> tuple[LayerSums, NDArray[np.uint32]]:
    """One pass over the pairs of a layer: sums by cell, and the doubled average rank of each pair.

    Parameters
    ----------
    index : the pairs' patterns and blocks
    squared : (n_pairs,) squared neural distances
    train_ranks : also sum the ranks among the pairs that leave out each fold

    Returns
    -------
    LayerSums, and (n_pairs,) uint32, twice the average rank of each pair among all pairs
    """
    cells, n_folds = index.pattern_cell, index.n_folds
    diagonal = np.diag(block_numbers(n_folds))
    n_blocks = n_folds * (n_folds + 1) // 2
    n_cells = n_blocks * index.n_patterns
    total = len(squared)
    order, value = order_pairs(squared)
    ascending, squares = average_ranks(value)
    doubled = np.empty(total, dtype=np.uint32)
    doubled[order] = ascending
    del ascending
    block = index.pair_block[order]
    within = np.zeros(n_cells)
    within_squares = np.zeros(n_folds)
    for fold in range(n_folds):
        at = np.flatnonzero(block == diagonal[fold])
        held_out, within_squares[fold] = average_ranks(value[at])
        within += _sums(cells[order[at]], held_out, n_cells, len(at) + 1.0) / 2
    train, train_squares = None, None
    if train_ranks:
        train, train_squares = _training_sums(cells[order], block, value, n_folds, n_cells)
    low, high = np.full(n_blocks, np.inf), np.full(n_blocks, -np.inf)
    for ends, positions in ((low, order), (high, order[::-1])):
        present, first = _first_of_each(block if ends is low else block[::-1], n_blocks)
        ends[present] = squared[positions[first]]
    sums = LayerSums(
        target_sums=_sums(cells, squared, n_cells, 0.0),
        rank_sums=_sums(cells, doubled, n_cells, total + 1.0) / 2,
        within_sums=within,
        rank_squares=squares,
        within_squares=within_squares,
        target_low=low,
        target_high=high,
        train_sums=train,
        train_squares=train_squares,
    )
    return sums, doubled


def _training_sums(
    cells: Cells,
    block: NDArray[Any],
    value: NDArray[np.uint64],
    n_folds: int,
    n_cells: int,
) -> tuple[FloatArray, FloatArray]:
    """Sums by cell, and of the squares, of the ranks among the pairs that leave out each fold.

    How many training pairs there are up to a pair is its rank among them, unless it is tied.

    Parameters
    ----------
    cells, block, value : (n_pairs,) cell, block and distance of the pairs in ascending order

    Returns
    -------
    (n_folds, n_cells) and (n_folds,)
    """
    numbers = block_numbers(n_folds)
    sums, squares = np.zeros((n_folds, n_cells)), np.zeros(n_folds)
    tied = ties(value)
    pairs = np.bincount(cells, minlength=n_cells)
    for fold in range(n_folds):
        stays = np.ones(int(numbers.max()) + 1, dtype=bool)
        stays[numbers[fold]] = False
        training = stays[block]
        upto = np.cumsum(training, dtype=np.uint32)
        n = float(upto[-1]) if len(upto) else 0.0
        before, after = upto[tied.first] - training[tied.first], upto[tied.last]
        upto *= 2
        upto[tied.members] = np.repeat(before + after + np.uint32(1), tied.sizes)
        total = np.zeros(n_cells)
        for start in range(0, len(cells), CHUNK // 8):
            at = slice(start, start + CHUNK // 8)
            total += np.bincount(cells[at], upto[at].astype(np.float64), n_cells)
        total -= pairs * (n + 1.0)
        sums[fold] = (total.reshape(len(stays), -1) * (stays[:, None] / 2)).ravel()
        sizes = (after - before).astype(np.float64)
        squares[fold] = (n**3 - n - (sizes**3 - sizes).sum()) / 12
    return sums, squares


def _first_of_each(blocks: NDArray[np.integer], n_blocks: int) -> tuple[IntArray, IntArray]:
    """The blocks that occur and where each occurs first; a short look mostly finds them all."""
    size = 64 * n_blocks
    while True:
        present, first = np.unique(blocks[:size], return_index=True)
        if len(present) == n_blocks or size >= len(blocks):
            return present.astype(np.int64), first.astype(np.int64)
        size *= 16


RankSink = Callable[[int, NDArray[np.uint32]], None]
LayerSource = Callable[[], NDArray[np.floating]]


def pair_tables(
    index: PairIndex,
    layers: Sequence[LayerSource],
    *,
    names: Sequence[str] | None = None,
    distance: str = "euclidean",
    keep_ranks: RankSink | None = None,
    train_ranks: bool = False,
    failed: Callable[[int, InputError], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
) -> PairTables:
    """Pair tables of many layers, one pass over the pairs for each.

    Parameters
    ----------
    index : the pairs' patterns and blocks
    layers : for each layer a function that gives its representations (n_stimuli, n_units), or its
        distances (n_stimuli, n_stimuli) where `distance` is "precomputed"
    names : how messages call each layer
    distance : see `mlem_core.distances.METRICS`, or "precomputed"
    keep_ranks : called with a layer's position and its (n_pairs,) doubled ranks
    train_ranks : also sum the ranks among the training pairs of each fold, which the estimators
        that fit ranks need
    failed : called with the position of a layer whose distances cannot be computed and the error;
        the layer is then left out of the tables. Without it the error is raised
    progress : called with the number of layers done and their total
    workers : threads; by default one a core

    Raises
    ------
    InputError
        As `squared_distances`; a layer whose number of rows is not that of the stimuli.
    """
    n_stimuli, names = (
        len(index.folds),
        names or [f"layer {i}" for i in range(len(layers))],
    )
    workers = min(workers or cores(), max(1, len(layers)))

    def one(position: int) -> LayerSums:
        rows, name = layers[position](), names[position]
        if len(rows) != n_stimuli:
            raise InputError(
                f"{name} has {len(rows)} rows, but there are {n_stimuli} stimuli; "
                "it must have one row a stimulus, in the order of the CSV."
            )
        if HUGE < max(float(rows.max(initial=0)), -float(rows.min(initial=0))) < np.inf:
            raise InputError(
                f"{name} holds values so large that their distances overflow; divide them by "
                "their standard deviation."
            )
        if distance == "precomputed":
            squared = condensed_from_matrix(rows, layer=name)
        else:
            squared = squared_distances(rows, distance, layer=name)
        sums, doubled = layer_sums(index, squared, train_ranks)
        if keep_ranks is not None:
            keep_ranks(position, doubled)
        return sums

    # The threads share the cores; each one's matrix product gets its part of them.
    with (
        threadpool_limits(max(1, cores() // workers)),
        ThreadPoolExecutor(workers) as pool,
    ):
        futures = {pool.submit(one, position): position for position in range(len(layers))}
        rows: list[LayerSums | None] = [None] * len(layers)
        try:
            for done, future in enumerate(as_completed(futures), 1):
                try:
                    rows[futures[future]] = future.result()
                except InputError as error:
                    if failed is None:
                        raise
                    failed(futures[future], error)
                if progress is not None:
                    progress(done, len(layers))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    done_rows = [row for row in rows if row is not None]
    if not done_rows:
        raise InputError("no layer is left whose distances can be computed.")
    return _assemble(index, done_rows)


def _assemble(index: PairIndex, rows: Sequence[LayerSums]) -> PairTables:
    n_blocks = index.n_folds * (index.n_folds + 1) // 2
    counts = np.bincount(index.pattern_cell, minlength=n_blocks * index.n_patterns)
    cells = np.flatnonzero(counts)

    def stacked(name: str) -> FloatArray:
        return np.stack([getattr(row, name) for row in rows])

    ranked = rows[0].train_sums is not None
    return PairTables(
        features=index.features,
        kinds=index.kinds,
        levels=index.levels,
        codes=index.codes,
        n_stimuli=len(index.folds),
        n_folds=index.n_folds,
        cell_block=cells // index.n_patterns,
        cell_pattern=cells % index.n_patterns,
        counts=counts[cells].astype(np.float64),
        target_sums=stacked("target_sums")[:, cells],
        rank_sums=stacked("rank_sums")[:, cells],
        within_sums=stacked("within_sums")[:, cells],
        rank_squares=stacked("rank_squares"),
        within_squares=stacked("within_squares"),
        target_low=stacked("target_low"),
        target_high=stacked("target_high"),
        train_sums=stacked("train_sums")[:, :, cells] if ranked else None,
        train_squares=stacked("train_squares") if ranked else None,
    )
