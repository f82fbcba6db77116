"""Patterns of feature differences: how the features tell every two stimuli apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.columns import Kind
from mlem_core.data.folds import fold_pairs
from mlem_core.data.stimuli import StimulusSet
from mlem_core.pairs.condensed import n_pairs, row_slices

Cells = NDArray[np.int32] | NDArray[np.int64]

MISSING = ("ignore", "level")
# Above this many patterns the distances of features with many values are put into bins.
MAX_PATTERNS = 200_000
BINS = (64, 32, 16, 8, 4, 2)
HARD_LIMIT = 2_000_000
# A table from value to value is kept for a feature with up to this many values.
MAX_VALUES = 2_048
LOOKUP_LIMIT = 2**25
CHUNK = 2**20


@dataclass(frozen=True)
class FeatureColumn:
    """One feature of the stimuli.

    values : (n_stimuli,) float64 with NaN (ordered), or objects with None (nominal)
    span : the lowest and the highest value of an ordered feature in the whole stimulus set
    """

    name: str
    kind: str
    values: NDArray[np.float64] | NDArray[np.object_]
    span: tuple[float, float] = (0.0, 1.0)


def feature_columns(
    stimuli: StimulusSet | pd.DataFrame,
    spans: Mapping[str, tuple[float, float]] | None = None,
) -> list[FeatureColumn]:
    """The features of a stimulus set, or of a table with a column a feature.

    The numeric columns of a table (n_stimuli, n_features) are ordered, the others nominal; `spans`
    are the ranges that scale ordered features to [0, 1], by default their own.
    """
    columns = []
    if isinstance(stimuli, StimulusSet):
        raw = [(f.name, f.kind, stimuli.values(f.name)) for f in stimuli.features]
    else:
        raw = [(str(name), *_kind_and_values(stimuli[name])) for name in stimuli.columns]
    for name, kind, values in raw:
        span = (0.0, 1.0)
        if kind == "ordered":
            present = values[~np.isnan(values)]
            own = (float(present.min()), float(present.max())) if len(present) else span
            span = (spans or {}).get(name, own)
        columns.append(FeatureColumn(name, kind, values, span))
    return columns


def _kind_and_values(column: pd.Series) -> tuple[Kind, NDArray[Any]]:
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return "ordered", column.to_numpy(np.float64)
    return "nominal", np.array([None if pd.isna(v) else str(v) for v in column], dtype=object)


def value_codes(column: FeatureColumn) -> tuple[IntArray, FloatArray | None]:
    """Each stimulus's value as a code (-1 missing) and, if ordered, the scaled values."""
    if column.kind == "nominal":
        return pd.factorize(column.values)[0].astype(np.int64), None
    values = np.asarray(column.values, dtype=np.float64)
    missing = np.isnan(values)
    distinct, codes = np.unique(values[~missing], return_inverse=True)
    full = np.full(len(values), -1, dtype=np.int64)
    full[~missing] = codes
    low, high = column.span
    return full, (distinct - low) / (high - low if high > low else 1.0)


def _distance_codes(
    n_values: int, scaled: FloatArray | None, missing: str, bins: int | None
) -> tuple[IntArray, FloatArray, float]:
    """Code of the feature distance of every two values, the distance of each code, and the error.

    The last row and column stand for a missing value.
    """
    if scaled is None:
        apart = 1.0 - np.eye(n_values)
    else:
        apart = np.abs(scaled[:, None] - scaled[None, :])
    table = np.zeros((n_values + 1, n_values + 1))
    table[:n_values, :n_values] = apart
    if missing == "level":
        table[n_values, :n_values] = table[:n_values, n_values] = 1.0
    # Sums of decimals differ in their last bits: 0.3 - 0.1 and 0.2 - 0.0 are one distance.
    table = np.round(table, 12)
    error = 0.0
    if bins is not None and len(np.unique(table)) > bins + 1:
        width = table.max() / bins
        binned = np.where(table > 0, (np.ceil(table / width) - 0.5) * width, 0.0)
        error = float(np.abs(binned - table).max())
        table = binned
    distances, codes = np.unique(table, return_inverse=True)
    return codes.reshape(table.shape).astype(np.int64), distances, error


@dataclass(frozen=True)
class Patterns:
    """The patterns of feature differences that some pairs of stimuli have.

    Attributes
    ----------
    features : (n_features,) names
    kinds : (n_features,) "ordered" or "nominal"
    levels : for each feature, the distinct distances (n_levels,) ascending
    codes : (n_patterns, n_features) the level of each feature distance in each pattern
    """

    features: tuple[str, ...]
    kinds: tuple[str, ...]
    levels: tuple[FloatArray, ...]
    codes: IntArray

    @property
    def n_patterns(self) -> int:
        return len(self.codes)

    @cached_property
    def patterns(self) -> FloatArray:
        """(n_patterns, n_features) feature distances, in [0, 1]."""
        return np.stack(
            [level[self.codes[:, f]] for f, level in enumerate(self.levels)], axis=1
        ).reshape(self.codes.shape)


@dataclass(frozen=True)
class PairIndex(Patterns):
    """Which pattern of feature differences, and which fold block, each pair of stimuli has.

    Attributes
    ----------
    pattern_cell : (n_pairs,) block · n_patterns + pattern, pairs in condensed order
    folds : (n_stimuli,) the fold that tests each stimulus, or, below 0, the two folds between which
        it stands (`mlem_core.data.folds`)
    notes : sentences about what is not exact (bins)

    Source: Jalouzot et al. 2024, section 2.1.1.
    """

    pattern_cell: Cells
    folds: IntArray
    notes: tuple[str, ...] = ()

    @cached_property
    def pair_block(self) -> NDArray[np.integer]:
        """(n_pairs,) the block of each pair, see `left_out`."""
        small = np.uint8 if self.n_blocks <= 256 else np.int32
        return (self.pattern_cell // self.n_patterns).astype(small)

    @property
    def n_folds(self) -> int:
        return int(fold_pairs(self.folds).max()) + 1

    @cached_property
    def n_blocks(self) -> int:
        """Of pairs, see `left_out`."""
        return n_blocks(self.folds)

    @property
    def n_cells(self) -> int:
        return self.n_blocks * self.n_patterns

    @classmethod
    def build(
        cls,
        columns: Sequence[FeatureColumn],
        folds: IntArray,
        missing: str = "ignore",
        max_patterns: int = MAX_PATTERNS,
    ) -> PairIndex:
        """Index all pairs of the stimuli.

        Parameters
        ----------
        columns : n_features columns of n_stimuli values
        folds : (n_stimuli,) fold of each stimulus, see the class
        missing : "ignore": a missing value on either side gives distance 0 (Jalouzot et al. 2024,
            section 2.1.1); "level": missing is a value of its own, at distance 1 from all others
        max_patterns : beyond it, distances of features with many values are put into bins

        Raises InputError: an unknown policy, no features, or fewer than two stimuli.
        """
        if missing not in MISSING:
            raise unknown("policy for missing values", missing, MISSING)
        if not columns:
            raise InputError("no feature is left; choose at least one.")
        if len(folds) < 2:
            raise InputError(f"found {len(folds)} stimuli; at least 2 are needed to form a pair.")
        coded = [value_codes(c) for c in columns]
        for bins in (None, *BINS):
            codes, levels, errors = [], [], []
            for values, scaled in coded:
                n_values, rounding = int(values.max(initial=-1)) + 1, 0.0
                if scaled is not None and n_values > MAX_VALUES:
                    values, scaled, rounding = _coarse(values, scaled, bins or BINS[0])
                    n_values = len(scaled)
                by_value, distances, error = _distance_codes(n_values, scaled, missing, bins)
                codes.append((values, by_value))
                levels.append(distances)
                errors.append(error + rounding)
            # What is left after the coarsest bins are the nominal features' own patterns.
            limit = max_patterns if bins != BINS[-1] else HARD_LIMIT
            found = _patterns(codes, [len(level) for level in levels], limit)
            if found is not None:
                break
        else:
            raise InputError(
                f"the {len(columns)} features tell the pairs of stimuli apart in more than "
                f"{HARD_LIMIT:,} ways; choose fewer features or features with fewer values."
            )
        pattern_codes, table, types = found
        notes = tuple(
            f"Distances of the feature {column.name!r} were put into bins, which moves each by at "
            f"most {error:.3g} of its range, because its values make more than {max_patterns:,} "
            "patterns."
            for column, error in zip(columns, errors, strict=True)
            if error > 0
        )
        return cls(
            features=tuple(c.name for c in columns),
            kinds=tuple(c.kind for c in columns),
            levels=tuple(levels),
            codes=pattern_codes,
            pattern_cell=_pair_cells(table, types, folds, len(pattern_codes)),
            folds=np.asarray(folds, dtype=np.int64),
            notes=notes,
        )


def _coarse(values: IntArray, scaled: FloatArray, bins: int) -> tuple[IntArray, FloatArray, float]:
    """Round the values of a continuous feature to a grid much finer than the bins."""
    grid = np.round(scaled * bins * 8) / (bins * 8)
    distinct, index = np.unique(grid, return_inverse=True)
    recoded = np.where(values >= 0, index[values], -1)
    return recoded, distinct, 2 * float(np.abs(grid - scaled).max())


def _patterns(
    codes: Sequence[tuple[IntArray, IntArray]], sizes: Sequence[int], limit: int
) -> tuple[IntArray, NDArray[np.int32], IntArray] | None:
    """Patterns (n_patterns, n_features), the pattern of every two types, the type of each stimulus.

    A type is a distinct row of feature values. None if there are more than `limit` patterns.
    """
    rows = np.stack([values for values, _ in codes], axis=1)
    distinct, types = np.unique(rows, axis=0, return_inverse=True)
    n_types, n_features = distinct.shape
    table = np.empty((n_types, n_types), dtype=np.int32)
    starts = range(0, n_types, step := max(1, CHUNK // n_types))
    total = np.prod(np.array(sizes, dtype=object))
    if total < 2**62:
        radix = np.concatenate(([1], np.cumprod(np.array(sizes[:-1], dtype=np.int64))))
        terms = [np.arange(size) * radix[f] for f, size in enumerate(sizes)]
    else:
        # Too many combinations to number: sums of random 64-bit numbers tell them apart.
        rng = np.random.default_rng(0)
        terms = [rng.integers(-(2**62), 2**62, size) for size in sizes]

    def levels(start: int, f: int) -> IntArray:
        by_value = codes[f][1]
        return by_value[distinct[start : start + step, f, None], distinct[None, :, f]]

    def keys_of(start: int) -> IntArray:
        keys = terms[0][levels(start, 0)]
        for f in range(1, n_features):
            keys += terms[f][levels(start, f)]
        return keys

    if total <= LOOKUP_LIMIT:
        seen = np.zeros(int(total), dtype=bool)
        for start in starts:
            seen[keys_of(start)] = True
        keys, number = np.flatnonzero(seen), (np.cumsum(seen) - 1).astype(np.int32)
    else:
        keys = np.empty(0, dtype=np.int64)
        for start in starts:
            keys = np.union1d(keys, keys_of(start))
            if len(keys) > limit:
                break
    if len(keys) > limit:
        return None
    pattern_codes = np.empty((len(keys), n_features), dtype=np.int64)
    for start in starts:
        own = keys_of(start)
        found = number[own] if total <= LOOKUP_LIMIT else np.searchsorted(keys, own)
        table[start : start + step] = found
        if total >= 2**62:
            for f in range(n_features):
                pattern_codes[found, f] = levels(start, f)
    if total < 2**62:
        for f, size in enumerate(sizes):
            pattern_codes[:, f] = keys // radix[f] % size
    return pattern_codes, table, types.astype(np.int64)


def _fold_sets(n_folds: int) -> Iterator[frozenset[int]]:
    """The folds that leave out each block: sets of one and two folds, then of three and four."""
    for pair in itertools.combinations_with_replacement(range(n_folds), 2):
        yield frozenset(pair)
    for size in (3, 4):
        yield from map(frozenset, itertools.combinations(range(n_folds), size))


def n_blocks(folds: IntArray) -> int:
    """How many blocks of pairs there are, of the fold of each stimulus (n_stimuli,).

    A block is all pairs that the same folds leave out: one where it tests both stimuli, two where
    each is tested by another, and up to four where stimuli stand between folds.
    """
    n_folds = int(fold_pairs(folds).max()) + 1
    largest = 4 if (folds < 0).any() else 2
    return sum(math.comb(n_folds, size) for size in range(1, largest + 1))


def left_out(n_folds: int, n_blocks: int) -> NDArray[np.bool_]:
    """(n_folds, n_blocks) whether the model that a fold tests is trained without a block."""
    out = np.zeros((n_folds, n_blocks), dtype=bool)
    for number, members in enumerate(itertools.islice(_fold_sets(n_folds), n_blocks)):
        out[list(members), number] = True
    return out


def tested_blocks(n_folds: int) -> IntArray:
    """(n_folds,) number of the block of the pairs that each fold tests."""
    return np.cumsum([0, *range(n_folds, 1, -1)])


def block_numbers(folds: IntArray) -> tuple[IntArray, IntArray]:
    """The part of each stimulus, and the block of the pairs between two parts.

    Parameters
    ----------
    folds : (n_stimuli,) see `PairIndex`; stimuli of the same number are a part

    Returns
    -------
    (n_stimuli,) and (n_parts, n_parts)
    """
    names, parts = np.unique(folds, return_inverse=True)
    own = [frozenset(pair) for pair in fold_pairs(names).tolist()]
    sets = itertools.islice(_fold_sets(max(map(max, own)) + 1), n_blocks(folds))
    number = {members: at for at, members in enumerate(sets)}
    return parts, np.array([[number[a | b] for b in own] for a in own])


def _pair_cells(
    table: NDArray[np.int32], types: IntArray, folds: IntArray, n_patterns: int
) -> Cells:
    parts, numbers = block_numbers(folds)
    small = (numbers.max() + 1) * n_patterns < 2**31
    offsets: NDArray[Any] = (numbers * n_patterns).astype(np.int32 if small else np.int64)
    cells: NDArray[Any] = np.empty(n_pairs(len(types)), offsets.dtype)
    for i, where in row_slices(len(types)):
        cells[where] = table[types[i]][types[i + 1 :]] + offsets[parts[i]][parts[i + 1 :]]
    return cells


def group_rows(codes: IntArray) -> tuple[IntArray, IntArray]:
    """The first of each distinct row of codes (n_rows, n_columns) >= 0, and each row's group."""
    if codes.shape[1] == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(len(codes), dtype=np.int64)
    sizes = codes.max(axis=0, initial=0) + 1
    total = np.prod(sizes.astype(object))
    if total >= 2**62:
        # Too many combinations to number: sums of random 64-bit numbers tell them apart.
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
    from mlem_core.pairs.kernels import group_sums

    sums = np.zeros((*values.shape[:-1], int(group.max(initial=-1)) + 1))
    rows = np.ascontiguousarray(values, dtype=np.float64)
    rows = rows.reshape(math.prod(values.shape[:-1]), len(group))
    group_sums(group, rows, sums.reshape(len(rows), sums.shape[-1]))
    return sums


def summed(group: IntArray, values: FloatArray) -> FloatArray:
    """Sums of rows (n, k) by group: (n_groups, k).

    Parameters
    ----------
    group : (n,) numbers of the groups, 0 to n_groups - 1
    """
    from scipy.sparse import csr_array

    n, shape = len(group), (len(group), int(group.max(initial=-1)) + 1)
    total: FloatArray = csr_array((np.ones(n), group, np.arange(n + 1)), shape).T @ values
    return total
