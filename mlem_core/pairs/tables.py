"""The pair table: what the layers' distances are for each pattern of feature differences.

Sufficient statistics: fits, scores, importances and decompositions follow from them without
touching a pair again. `mlem_core.pairs.build` makes them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.text import listed
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.base.work import each, if_large
from mlem_core.pairs.columns import bin_steps, in_bins
from mlem_core.pairs.patterns import Patterns, left_out, tested_blocks
from mlem_core.pairs.terms import Columns, Terms

# A mean of fewer pairs says little of the pairs of other stimuli. With 422 words of a treebank and
# 17 features nearly every pair has a pattern of its own; with four pairs a pattern ceilings are
# higher, .46 instead of .44 on average over 8 layers. Where patterns are few they are kept.
PAIRS_A_PATTERN, FEWEST_PATTERNS = 4, 5_000
# Gives an array, which is made when it is first asked for.
LazyArray = Callable[[], FloatArray]


@dataclass(frozen=True)
class HeldOut:
    """The pairs inside one fold, by pattern, for n_layers layers.

    terms : of the metric in these patterns; a part of them is what is permuted as a whole
    codes : (n_patterns, n_parts) a number for each distinct value that the terms of a part have
    counts : (n_patterns,) pairs
    rank_sums : (n_layers, n_patterns) sums of the centred average ranks among these pairs
    rank_squares : (n_layers,) sum of their squares
    """

    terms: Terms
    codes: IntArray
    counts: FloatArray
    rank_sums: FloatArray
    rank_squares: FloatArray

    def columns_of(self, parts: IntArray) -> IntArray:
        """The terms of some parts, ascending."""
        return np.flatnonzero(np.isin(self.terms.part, parts))

    def only(self, layers: IntArray, parts: IntArray) -> HeldOut:
        """Pairs inside the fold for some layers, the other parts summed out; `parts` ascend."""
        if len(parts) == self.codes.shape[1]:
            return replace(
                self, rank_sums=self.rank_sums[layers], rank_squares=self.rank_squares[layers]
            )
        first, group = group_rows(self.codes[:, parts])
        return HeldOut(
            terms=self.terms.only(parts).of(first),
            codes=self.codes[np.ix_(first, parts)],
            counts=np.bincount(group, self.counts).astype(np.float64),
            rank_sums=sums_by(group, self.rank_sums[layers]),
            rank_squares=self.rank_squares[layers],
        )

    def by_support(self, weights: FloatArray) -> list[tuple[IntArray, IntArray]]:
        """Divide the layers by which parts have any weight: pairs of (layers, parts).

        A part without weight does not distinguish pairs: summed out, it leaves far fewer patterns.
        Supports that leave about as many patterns are put together, since each has a cost of its
        own.

        `weights` are (n_layers, n_predictions, n_columns).
        """
        used = (weights != 0).any(axis=1)
        starts = np.flatnonzero(np.diff(self.terms.part, prepend=-1))
        weighed = np.logical_or.reduceat(used, starts, axis=1)
        supports, own = np.unique(weighed, axis=0, return_inverse=True)
        sizes = np.array([len(group_rows(self.codes[:, used])[0]) for used in supports])
        groups: list[list[int]] = []
        for s in np.argsort(-sizes):
            if groups and sizes[s] * 5 > sizes[groups[-1][0]]:
                groups[-1].append(int(s))
            else:
                groups.append([int(s)])
        return [
            (np.flatnonzero(np.isin(own, group)), np.flatnonzero(supports[group].any(axis=0)))
            for group in groups
        ]


class Coarser(NamedTuple):
    """Patterns that fall together where distances are put into bins.

    levels, numbers : for each feature its distances in bins, and which of them each of its codes
        becomes
    codes : (n_patterns, n_features) of each pattern in bins
    group : (n_patterns,) which of the patterns in bins each pattern falls into
    """

    levels: tuple[FloatArray, ...]
    numbers: tuple[IntArray, ...]
    codes: IntArray
    group: IntArray

    @property
    def n_patterns(self) -> int:
        """Number of patterns in bins."""
        return int(self.group.max()) + 1


@dataclass(frozen=True)
class PairTables(Patterns):
    """Sufficient statistics of the pairs of n_layers layers, by fold block and pattern.

    A cell is a block (the pairs that the same folds leave out, `mlem_core.pairs.patterns.n_blocks`)
    and a pattern that occurs in it; cells are sorted by block. Folds are those of the stimuli.

    n_stimuli, n_folds
    cell_block, cell_pattern, counts : (n_cells,) block, pattern and number of pairs of each cell
    target_sums : (n_layers, n_cells) sums of the squared neural distance
    rank_sums : (n_layers, n_cells) sums of the centred average rank among all pairs
    within_sums : (n_layers, n_cells) the same with ranks among the pairs inside a fold (held-out
        pairs); 0 in the blocks that no fold tests
    rank_squares : (n_layers,) sum of the squared centred rank over all pairs
    within_squares : (n_layers, n_folds) the same inside each fold
    target_low, target_high : (n_layers, n_blocks) lowest and highest squared distance
    train_sums : None, or what gives `training_ranks`, which are not always needed
    train_squares : None, or (n_layers, n_folds) sums of the squares of those ranks
    interactions : whether metrics of these tables also weigh products of two feature distances
    """

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
    train_sums: LazyArray | None = None
    train_squares: FloatArray | None = None
    interactions: bool = False

    @property
    def n_layers(self) -> int:
        return len(self.target_sums)

    @cached_property
    def trains(self) -> NDArray[np.bool_]:
        """(n_folds, n_blocks) whether the model that a fold tests is trained with a block."""
        return ~left_out(self.n_folds, self.target_low.shape[1])

    @property
    def n_pairs(self) -> int:
        """Number of pairs behind the tables."""
        return round(float(self.counts.sum()))

    @property
    def columns(self) -> Columns:
        """The terms that metrics of these tables weigh."""
        return Columns(self.features, self.interactions, self.value_names)

    @cached_property
    def terms(self) -> Terms:
        """Terms of the metric in the patterns."""
        return self.terms_of(self.codes)

    def terms_of(self, codes: IntArray) -> Terms:
        """The values of the terms in patterns (n, n_features)."""
        return self.columns.terms(self.distances_of(codes), codes)

    @cached_property
    def part_codes(self) -> IntArray:
        """(n_patterns, n_parts) a number for each distinct value that a part's terms have."""
        if not self.interactions:
            return self.codes
        numbered = [np.unique(term, return_inverse=True)[1] for term in self.terms.plain]
        return np.stack(numbered, axis=1).astype(np.int64)

    @cached_property
    def block_edges(self) -> IntArray:
        """(n_blocks + 1,) where each block's cells begin."""
        return np.searchsorted(self.cell_block, np.arange(self.target_low.shape[1] + 1))

    def held_out(self, fold: int) -> slice:
        """The cells of the pairs inside a fold."""
        block = tested_blocks(self.n_folds)[fold]
        return slice(int(self.block_edges[block]), int(self.block_edges[block + 1]))

    def inside(self, fold: int) -> HeldOut:
        """The pairs inside a fold, by pattern."""
        at = self.held_out(fold)
        pattern = self.cell_pattern[at]
        return HeldOut(
            terms=self.terms.of(pattern),
            codes=self.part_codes[pattern],
            counts=self.counts[at],
            rank_sums=self.within_sums[:, at],
            rank_squares=self.within_squares[:, fold],
        )

    @property
    def training_ranks(self) -> FloatArray:
        """Sums of the centred average ranks among the pairs that leave out each fold.

        (n_layers, n_folds, n_cells), 0 in the blocks that the fold leaves out. Raises
        InputError where the tables were made without them.
        """
        if self.train_sums is None:
            raise InputError(
                "these pair tables were made without ranks among training pairs, which estimators "
                "that fit ranks need; run the analysis again with such an estimator."
            )
        return self.train_sums()

    def with_interactions(self, interactions: bool = True) -> PairTables:
        """Tables for metrics with, or without, products of two feature distances."""
        return replace(self, interactions=interactions)

    def of_layers(self, layers: Sequence[int]) -> PairTables:
        """Tables with only these layers, by position."""
        if (keep := list(layers)) == list(range(self.n_layers)):
            return self
        changed: dict[str, Any] = {name: getattr(self, name)[keep] for name in BY_LAYER}
        if self.train_sums is not None and self.train_squares is not None:
            changed["train_sums"] = cache(lambda: self.training_ranks[keep])
            changed["train_squares"] = self.train_squares[keep]
        return replace(self, **changed)

    def of_features(self, features: Sequence[str]) -> PairTables:
        """The tables that these features alone would have given: the others are summed out.

        Raises InputError: an unknown feature, or none.
        """
        for name in features:
            check_choice("feature", name, self.features)
        keep = [f for f, name in enumerate(self.features) if name in set(features)]
        if not keep:
            raise InputError("no feature is left; choose at least one.")
        if len(keep) == len(self.features):
            return self
        by_feature = ("features", "kinds", "levels", "value_names")
        own = {name: tuple(getattr(self, name)[f] for f in keep) for name in by_feature}
        return _merged(self, self.codes[:, keep], **own)

    @cached_property
    def coarser(self) -> Coarser:
        """Bins of the numeric features that leave `PAIRS_A_PATTERN` pairs a pattern, if any do."""
        return _coarser(self)

    @property
    def coarse(self) -> PairTables:
        """Tables of patterns with enough pairs for a mean; these, where patterns are few."""
        few = self.coarser.n_patterns == len(self.codes)
        return self if few else _merged(self, self.coarser.codes, levels=self.coarser.levels)


def same_or_different(tables: PairTables) -> PairTables:
    """The tables with no feature resolved by value: the sums over the pairs of values."""
    codes, levels = tables.codes.copy(), list(tables.levels)
    for f, names in enumerate(tables.value_names):
        if names:
            levels[f], merged = np.unique(tables.levels[f], return_inverse=True)
            codes[:, f] = merged[tables.codes[:, f]]
    return _merged(tables, codes, levels=tuple(levels), value_names=((),) * len(levels))


def _coarser(tables: PairTables) -> Coarser:
    most = tables.n_stimuli * (tables.n_stimuli - 1) // (2 * PAIRS_A_PATTERN)
    most = max(most, FEWEST_PATTERNS)
    each_own = tuple(np.arange(len(own)) for own in tables.levels)
    if len(tables.codes) <= most:
        return Coarser(tables.levels, each_own, tables.codes, np.arange(len(tables.codes)))
    by_value = zip(tables.levels, tables.kinds, tables.value_names, strict=True)
    steps = bin_steps(
        [0 if kind == "nominal" or names else len(own) for own, kind, names in by_value]
    )

    def of(step: int) -> Coarser:
        binned = [
            (own, as_it_is) if bins is None else np.unique(in_bins(own, bins), return_inverse=True)
            for own, as_it_is, bins in zip(tables.levels, each_own, steps[step], strict=True)
        ]
        levels, numbers = zip(*binned, strict=True)
        codes = np.stack([own[tables.codes[:, f]] for f, own in enumerate(numbers)], axis=1)
        return Coarser(levels, numbers, codes, group_rows(codes)[1])

    step = bisect_left(range(len(steps) - 1), -most, key=lambda at: -of(at).n_patterns)
    return of(step)


def coarse_notes(tables: PairTables) -> tuple[str, ...]:
    """A sentence on the bins of coarse tables; none where there are none."""
    into = [
        f"{name!r} into {len(levels) - 1}"
        for name, own, levels in zip(
            tables.features, tables.levels, tables.coarser.levels, strict=True
        )
        if len(levels) < len(own)
    ]
    note = (
        "For contributions and feature ceilings, distances were put into bins, so that a "
        f"pattern has about {PAIRS_A_PATTERN} pairs: {listed(into)}. Metrics were fitted to "
        "the distances as they are."
    )
    return (note,) * bool(into)


def _merged(tables: PairTables, codes: IntArray, **changed: Any) -> PairTables:
    """The tables in which patterns of equal codes (n_patterns, n_codes) are one."""
    first, group = group_rows(codes)
    key = tables.cell_block * len(first) + group[tables.cell_pattern]
    kept, group = np.unique(key, return_inverse=True)
    return replace(
        tables,
        codes=codes[first],
        cell_block=kept // len(first),
        cell_pattern=kept % len(first),
        counts=np.bincount(group, tables.counts).astype(np.float64),
        target_sums=sums_by(group, tables.target_sums),
        rank_sums=sums_by(group, tables.rank_sums),
        within_sums=sums_by(group, tables.within_sums),
        train_sums=tables.train_sums and cache(lambda: sums_by(group, tables.training_ranks)),
        **changed,
    )


def without_training_ranks(tables: PairTables) -> PairTables:
    """Tables without the ranks for training, as they travel, and as replicates have them."""
    return replace(tables, train_sums=None, train_squares=None)


def joined(parts: Sequence[PairTables]) -> PairTables:
    """The tables of the layers of several, which have the same cells, without training ranks."""
    changed: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in BY_LAYER
    }
    return without_training_ranks(replace(parts[0], **changed))


def group_rows(codes: IntArray) -> tuple[IntArray, IntArray]:
    """The first of each distinct row of codes (n_rows, n_columns) >= 0, and each row's group."""
    if codes.shape[1] == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(len(codes), dtype=np.int64)
    sizes = codes.max(axis=0, initial=0) + 1
    total = np.prod(sizes.astype(object))
    if total >= 2**62:
        # Too many combinations to number: sums of random 64-bit numbers distinguish them.
        rng = np.random.default_rng(0)
        terms = [rng.integers(-(2**62), 2**62, size) for size in sizes]
        keys = np.zeros(len(codes), dtype=np.int64)
        for term, column in zip(terms, codes.T, strict=True):
            keys += term[column]
    else:
        keys = codes @ np.concatenate(([1], np.cumprod(sizes[:-1])))
    if total <= 2**16:
        # Few enough to look up: several times faster than sorting.
        at = np.full(int(total), -1)
        at[keys[::-1]] = np.arange(len(keys))[::-1]
        present = at >= 0
        return at[present], (np.cumsum(present) - 1)[keys]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.astype(np.int64)


def sums_by(group: IntArray, values: FloatArray) -> FloatArray:
    """Sums (..., n_groups) of values (..., n) by the group (n,), from 0 on, of each column."""
    from mlem_core.pairs.kernels.cells import group_sums

    sums = np.zeros((*values.shape[:-1], int(group.max(initial=-1)) + 1))
    rows = np.ascontiguousarray(values, dtype=np.float64)
    rows = rows.reshape(math.prod(values.shape[:-1]), len(group))
    found = sums.reshape(len(rows), sums.shape[-1])
    each(
        lambda row: group_sums(group, rows[row], found[row]), range(len(rows)), if_large(rows.size)
    )
    return sums


def summed(group: IntArray, values: FloatArray) -> FloatArray:
    """Sums of rows (n, k) by group: (n_groups, k).

    `group` has the (n,) numbers of the groups, 0 to n_groups - 1.
    """
    from scipy.sparse import csr_array

    n, shape = len(group), (len(group), int(group.max(initial=-1)) + 1)
    total: FloatArray = csr_array((np.ones(n), group, np.arange(n + 1)), shape).T @ values
    return total


BY_LAYER = (
    "target_sums",
    "rank_sums",
    "within_sums",
    "rank_squares",
    "within_squares",
    "target_low",
    "target_high",
)
