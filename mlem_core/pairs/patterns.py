"""Patterns of feature differences: how the features distinguish every two stimuli."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.text import listed
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.base.work import each
from mlem_core.data.folds import fold_pairs
from mlem_core.pairs.columns import (
    MISSING,
    Coded,
    FeatureColumn,
    bin_steps,
    bins_of,
    codes_of,
    coding,
    differences_of,
)
from mlem_core.pairs.designs import PairDesign, Rows

if TYPE_CHECKING:
    from mlem_core.pairs.kernels.cells import Differences, Lookup

# Above this many patterns, or bytes of the tables of so many layers, the distances of features with
# many values are put into bins. The layers are not those of an analysis: whichever are compared,
# the bins are the same.
MAX_PATTERNS = 200_000
TABLE_BYTES, TABLE_LAYERS = 2**29, 40
HARD_LIMIT = 2_000_000
# Patterns times features: their codes are 128 MB, and what is computed of them a few times that.
MOST_CODES = 2**24


@dataclass(frozen=True)
class Patterns:
    """The patterns of feature differences that some pairs of stimuli have.

    features : (n_features,) names
    kinds : (n_features,) "ordered", "nominal", or, of features given by their distances, "vector"
        and "rdm"
    levels : for each feature the distance (n_levels,) that each of its codes stands for: the
        distinct ones, ascending; or, where it is resolved by value, that of every pair of values
    codes : (n_patterns, n_features) the level of each feature distance in each pattern; or the
        pair of values, see `mlem_core.pairs.columns.ends`
    value_names : for each feature the names of its values where it is resolved by value, else ()
    """

    features: tuple[str, ...]
    kinds: tuple[str, ...]
    levels: tuple[FloatArray, ...]
    codes: IntArray
    value_names: tuple[tuple[str, ...], ...]

    @property
    def resolved(self) -> tuple[str, ...]:
        """The features that are resolved by value."""
        return tuple(f for f, own in zip(self.features, self.value_names, strict=True) if own)

    @property
    def coding(self) -> str:
        """Coding of the features, in words that follow "coded"."""
        return coding(self.kinds, self.resolved)

    @property
    def n_patterns(self) -> int:
        return len(self.codes)

    @cached_property
    def patterns(self) -> FloatArray:
        """(n_patterns, n_features) feature distances, in [0, 1]."""
        return self.distances_of(self.codes)

    def distances_of(self, codes: IntArray) -> FloatArray:
        """(n, n_features) the feature distances of patterns (n, n_features)."""
        return np.stack(
            [level[codes[:, f]] for f, level in enumerate(self.levels)], axis=1
        ).reshape(codes.shape)


@dataclass(frozen=True)
class PairIndex(Patterns):
    """Index of the pairs of stimuli: pattern of feature differences, and fold block, of each.

    A cell is all pairs of one block (see `left_out`) and one pattern; cells without pairs have no
    number.

    design : which pairs are compared
    look : what kernels look up the cell of two stimuli in
    cell_block, cell_pattern, counts : (n_cells,) block, pattern and number of pairs of each cell,
        by block, then by pattern
    folds : (n_stimuli,) the fold that tests each stimulus, or, below 0, the two folds between which
        it stands (`mlem_core.data.folds`)
    notes : sentences about what is not exact (bins)
    coded : (n_features,) how the difference of two values of each feature becomes its code

    Source: Jalouzot et al. 2024, section 2.1.1.
    """

    design: PairDesign
    look: Lookup
    cell_block: IntArray
    cell_pattern: IntArray
    counts: IntArray
    folds: IntArray
    notes: tuple[str, ...] = ()
    coded: tuple[Coded, ...] = ()

    @cached_property
    def cell(self) -> NDArray[np.int32]:
        """(n_pairs,) the cell of each pair, in the order of the design."""
        from mlem_core.pairs.kernels.cells import number_patterns

        look, found = self.look, np.empty(self.design.n_pairs, dtype=np.int32)
        # What has travelled may be read-only, and the kernel is one that may add to it.
        slots = look.keys.copy(), look.pattern.copy()
        none_new = np.empty((0, 2), dtype=np.int64)
        number_patterns(self.design.rows, look.differences, *slots, none_new, found)
        return _to_cells(self.design, look, found)

    @cached_property
    def pair_pattern(self) -> NDArray[np.int32]:
        """(n_pairs,) the pattern of each pair, in the order of the design."""
        return self.cell_pattern.astype(np.int32)[self.cell]

    def of_design(self, number: int) -> tuple[PairIndex, slice]:
        """The index of the pairs of one of the independent designs, and where they stand."""
        first, last = self.design.starts[self.design.parts[number : number + 2]]
        own = slice(int(first), int(last))
        counts = np.bincount(self.cell[own], minlength=self.n_cells)
        present = np.flatnonzero(counts)
        renumbered = np.full(self.n_cells + 1, -1, dtype=np.int32)
        renumbered[present] = np.arange(len(present), dtype=np.int32)
        part = replace(
            self,
            design=self.design.only(number, number + 1),
            look=self.look._replace(number=renumbered[self.look.number]),
            cell_block=self.cell_block[present],
            cell_pattern=self.cell_pattern[present],
            counts=counts[present],
        )
        vars(part)["cell"] = renumbered[self.cell[own]]
        return part, own

    @property
    def n_folds(self) -> int:
        return int(fold_pairs(self.folds).max()) + 1

    @cached_property
    def n_blocks(self) -> int:
        """Number of blocks of pairs, see the function `n_blocks`."""
        return n_blocks(self.folds)

    @property
    def n_cells(self) -> int:
        return len(self.counts)

    @classmethod
    def build(
        cls,
        columns: Sequence[FeatureColumn],
        folds: IntArray,
        missing: str = "ignore",
        most_cells: int | None = None,
        design: PairDesign | None = None,
        like: Patterns | None = None,
    ) -> PairIndex:
        """Index the pairs of the stimuli.

        Parameters
        ----------
        columns : n_features columns of n_stimuli values, some of them resolved by value
        folds : (n_stimuli,) fold of each stimulus, see the class
        missing : "ignore": a missing value on either side gives distance 0 (Jalouzot et al. 2024,
            section 2.1.1); "level": missing is a value of its own, at distance 1 from all others
        most_cells : beyond it, distances of features with many values are put into bins, those of
            the feature with most of them first; by default as `TABLE_BYTES` says
        design : which pairs; None is all
        like : patterns of these features, whose bins are taken in the place of `most_cells`

        Raises InputError: an unknown policy, no features, or fewer than two stimuli.
        """
        check_choice("policy for missing values", missing, MISSING)
        if not columns:
            raise InputError("no feature is left; choose at least one.")
        if len(folds) < 2:
            raise InputError(f"found {len(folds)} stimuli; at least 2 are needed to form a pair.")
        design = design or PairDesign.complete(len(folds))
        n_folds = int(fold_pairs(folds).max()) + 1
        most_cells = most_cells or TABLE_BYTES // (TABLE_LAYERS * bytes_of_cell(n_folds))
        steps = bin_steps(
            [
                0 if one.names or one.kind == "nominal" else len(codes_of(one, missing).distances)
                for one in columns
            ]
        )
        if like is not None:
            steps = [[bins_of(like.levels[like.features.index(c.name)]) for c in columns]]
        features, found, cells = _indexed(columns, missing, steps, (folds, design), most_cells)
        look, block, pattern, counts = cells
        binned = [
            f"{column.name!r} into {len(own.distances) - 1} (r {own.kept:.4f})"
            for column, own in zip(columns, features, strict=True)
            if own.error > 0
        ]
        notes = (
            "Distances were put into bins, so that the pair tables fit into memory: "
            f"{listed(binned)}. r is the correlation of squared distances in bins and exact ones.",
        ) * bool(binned)
        index = cls(
            features=tuple(c.name for c in columns),
            kinds=tuple(c.kind for c in columns),
            levels=tuple(own.distances for own in features),
            codes=found.codes,
            value_names=tuple(c.names for c in columns),
            design=design,
            look=look,
            cell_block=block,
            cell_pattern=pattern,
            counts=counts,
            folds=np.asarray(folds, dtype=np.int64),
            notes=notes,
            coded=tuple(features),
        )
        vars(index)["cell"] = _to_cells(design, look, found.found)
        return index


def bytes_of_cell(n_folds: int) -> int:
    """Number of bytes of a cell in the tables of a layer.

    Sums of distances, of ranks, of those inside folds, and of those that train each fold.
    """
    return 8 * (3 + n_folds)


class _Numbered(NamedTuple):
    """The patterns that pairs have, in the order of their keys.

    codes : (n_patterns, n_features)
    keys, pattern : see `mlem_core.pairs.kernels.cells.Lookup`
    found : (n_pairs,) pattern of each pair
    """

    differences: Differences
    codes: IntArray
    keys: IntArray
    pattern: NDArray[np.int32]
    found: NDArray[np.int32]


# Features as they are coded, the patterns of the pairs, and what `_cells` gives.
_Indexed = tuple[list[Coded], _Numbered, "tuple[Lookup, IntArray, IntArray, IntArray]"]


def _indexed(
    columns: Sequence[FeatureColumn],
    missing: str,
    steps: Sequence[Sequence[int | None]],
    pairs: tuple[IntArray, PairDesign],
    most_cells: int,
) -> _Indexed:
    """The pairs with the bins of the first of the steps that leaves at most so many cells.

    See `PairIndex.build`; `pairs` are its folds and design.
    """
    folds, design = pairs
    hard_limit = min(HARD_LIMIT, MOST_CODES // len(columns))
    limit, policy = min(hard_limit, MAX_PATTERNS), itertools.repeat(missing)

    def tried(step: int) -> _Indexed | None:
        features = list(map(codes_of, columns, policy, steps[step]))
        # What is left after the coarsest bins are the nominal features' own patterns.
        last = step == len(steps) - 1
        found = _numbered(features, design, hard_limit if last else limit)
        if found is None:
            return None
        cells = _cells(found, folds, design)
        return (features, found, cells) if last or len(cells[-1]) <= most_cells else None

    indexed, last = tried(0), len(steps) - 1

    def fits(step: int) -> bool:
        nonlocal indexed
        now = tried(step)
        indexed = now or indexed
        return now is not None

    # Each step leaves fewer cells than the one before.
    if indexed is None and last and bisect_left(range(last), True, 1, key=fits) == last:
        fits(last)
    if indexed is None:
        raise InputError(
            f"the {len(columns)} features divide the pairs of stimuli in more than "
            f"{hard_limit:,} ways; choose fewer features or features with fewer values."
        )
    return indexed


def _numbered(features: Sequence[Coded], design: PairDesign, limit: int) -> _Numbered | None:
    """The patterns of the pairs of a design; None if there are more than `limit`."""
    from mlem_core.pairs.kernels.cells import number_patterns, place_patterns

    differences, total, origin = differences_of(features)
    limit = min(limit, total, design.n_pairs)
    found = np.empty(design.n_pairs, dtype=np.int32)

    def numbered(rows: Rows) -> tuple[IntArray, IntArray, NDArray[np.int32]] | None:
        """Keys, first pairs (n, 2) and numbers of the patterns of some rows."""
        (keys, pattern), first = _empty_slots(limit), np.empty((limit, 2), dtype=np.int64)
        n = number_patterns(rows, differences, keys, pattern, first, found)
        taken = np.flatnonzero(pattern >= 0)
        return None if n > limit else (keys[taken], first[:n], pattern[taken])

    shares = design.shares()
    parts = [part for part in each(numbered, shares, len(shares)) if part is not None]
    if len(parts) < len(shares):
        return None
    own_keys = np.concatenate([keys for keys, _, _ in parts])
    _, chosen, number = np.unique(own_keys + origin, return_index=True, return_inverse=True)
    if len(chosen) > limit:
        return None
    i, j = np.concatenate([first[pattern] for _, first, pattern in parts])[chosen].T
    start = 0
    for (_, _, pattern), (_, starts, _) in zip(parts, shares, strict=True):
        renumbered = np.empty(len(pattern), dtype=np.int32)
        renumbered[pattern] = number[start : start + len(pattern)]
        start += len(pattern)
        own = slice(starts[0], starts[-1])
        found[own] = renumbered[found[own]]
    keys, pattern = _empty_slots(len(chosen))
    place_patterns(own_keys[chosen], keys, pattern)
    codes = np.stack([own.of(i, j) for own in features], axis=1)
    return _Numbered(differences, codes, keys, pattern, found)


def _empty_slots(n_patterns: int) -> tuple[IntArray, NDArray[np.int32]]:
    """Room for the keys and numbers of so many patterns, see `kernels.cells.Lookup`."""
    n_slots = 1 << max(4, (4 * n_patterns).bit_length())
    return np.zeros(n_slots, dtype=np.int64), np.full(n_slots, -1, dtype=np.int32)


def _fold_sets(n_folds: int) -> Iterator[frozenset[int]]:
    """The folds that leave out each block: sets of one and two folds, then of three and four."""
    for pair in itertools.combinations_with_replacement(range(n_folds), 2):
        yield frozenset(pair)
    for size in (3, 4):
        yield from map(frozenset, itertools.combinations(range(n_folds), size))


def n_blocks(folds: IntArray) -> int:
    """Number of blocks of pairs, by the fold of each stimulus (n_stimuli,).

    A block is all pairs that the same folds leave out: one where it tests both stimuli, two where
    each is tested by another, and up to four where stimuli stand between folds.
    """
    n_folds = int(fold_pairs(folds).max()) + 1
    largest = 4 if (folds < 0).any() else 2
    return sum(math.comb(n_folds, size) for size in range(1, largest + 1))


@cache
def left_out(n_folds: int, n_blocks: int) -> NDArray[np.bool_]:
    """(n_folds, n_blocks) whether the model that a fold tests is trained without a block."""
    out = np.zeros((n_folds, n_blocks), dtype=bool)
    for number, members in enumerate(itertools.islice(_fold_sets(n_folds), n_blocks)):
        out[list(members), number] = True
    out.flags.writeable = False
    return out


def tested_blocks(n_folds: int) -> IntArray:
    """(n_folds,) number of the block of the pairs that each fold tests."""
    return np.cumsum([0, *range(n_folds, 1, -1)])


def block_numbers(folds: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """The part of each stimulus, and the blocks of the pairs between two parts, and of one item.

    Pairs of one item, which test no fold, stand in the block that the next fold leaves out too.

    `folds` are those (n_stimuli,) of `PairIndex`; stimuli of the same number are a part.

    Returns (n_stimuli,), (n_parts, n_parts) and (n_parts,).
    """
    names, parts = np.unique(folds, return_inverse=True)
    own = [frozenset(pair) for pair in fold_pairs(names).tolist()]
    n_folds = max(map(max, own)) + 1
    sets = itertools.islice(_fold_sets(n_folds), n_blocks(folds))
    number = {members: at for at, members in enumerate(sets)}
    of_item = [number[a | {(max(a) + 1) % n_folds} if len(a) == 1 else a] for a in own]
    return parts, np.array([[number[a | b] for b in own] for a in own]), np.array(of_item)


def _cells(
    patterns: _Numbered, folds: IntArray, design: PairDesign
) -> tuple[Lookup, IntArray, IntArray, IntArray]:
    """Lookup of the cell of two stimuli; block, pattern and number of pairs of each cell."""
    from mlem_core.pairs.kernels.cells import Lookup, place_pairs

    parts, blocks, same = block_numbers(folds)
    items = np.arange(len(folds)) if design.items is None else design.items
    n_patterns = len(patterns.codes)
    dense = np.zeros((int(blocks.max()) + 1) * n_patterns, dtype=np.int64)
    look = Lookup(
        patterns.differences,
        patterns.keys,
        patterns.pattern,
        parts.astype(np.int64),
        (blocks * n_patterns).astype(np.int64),
        items.astype(np.int64),
        (same * n_patterns).astype(np.int64),
        np.empty(0, dtype=np.int32),
    )
    place_pairs(design.rows, look, patterns.found, dense)
    present = np.flatnonzero(dense)
    number = np.full(len(dense), -1, dtype=np.int32)
    number[present] = np.arange(len(present), dtype=np.int32)
    look = look._replace(number=number)
    return look, present // n_patterns, present % n_patterns, dense[present]


def _to_cells(design: PairDesign, look: Lookup, pattern: NDArray[np.int32]) -> NDArray[np.int32]:
    """The cell of each pair, in the place of its pattern (n_pairs,)."""
    from mlem_core.pairs.kernels.cells import place_pairs

    place_pairs(design.rows, look, pattern, np.empty(0, dtype=np.int64))
    return pattern
