"""Patterns of feature differences: how the features tell every two stimuli apart."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.distances import n_pairs, row_slices
from mlem_core.errors import InputError, unknown
from mlem_core.stimuli import StimulusSet

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MISSING = ("ignore", "level")
# Above this many patterns the distances of features with many values are put into bins.
MAX_PATTERNS = 200_000
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

    Parameters
    ----------
    stimuli : a StimulusSet, or a DataFrame of shape (n_stimuli, n_features) whose numeric columns
        are ordered and whose others are nominal
    spans : for ordered features, the range that scales them to [0, 1]; by default their own
    """
    columns = []
    if isinstance(stimuli, StimulusSet):
        raw = [(f.name, f.kind, stimuli.values(f.name)) for f in stimuli.features]
    else:
        raw = []
        for name in stimuli.columns:
            column = stimuli[name]
            ordered = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(
                column
            )
            values = (
                column.to_numpy(np.float64)
                if ordered
                else np.array([None if pd.isna(v) else str(v) for v in column], dtype=object)
            )
            raw.append((str(name), "ordered" if ordered else "nominal", values))
    for name, kind, values in raw:
        span = (0.0, 1.0)
        if kind == "ordered":
            present = values[~np.isnan(values)]
            own = (float(present.min()), float(present.max())) if len(present) else span
            span = (spans or {}).get(name, own)
        columns.append(FeatureColumn(name, kind, values, span))
    return columns


def _value_codes(column: FeatureColumn) -> tuple[IntArray, FloatArray | None]:
    """Each stimulus's value as a code (-1 missing) and, if ordered, the scaled values."""
    if column.kind == "nominal":
        codes, _ = pd.factorize(column.values)
        return codes.astype(np.int64), None
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
class PairIndex:
    """Which pattern of feature differences, and which fold block, each pair of stimuli has.

    Attributes
    ----------
    features : (n_features,) names
    kinds : (n_features,) "ordered" or "nominal"
    levels : for each feature, the distinct distances (n_levels,) ascending
    codes : (n_patterns, n_features) the level of each feature distance in each pattern
    pattern_cell : (n_pairs,) block · n_patterns + pattern, pairs in condensed order
    folds : (n_stimuli,) the fold that tests each stimulus
    notes : sentences about what is not exact (bins)

    Source: Jalouzot et al. 2024, section 2.1.1.
    """

    features: tuple[str, ...]
    kinds: tuple[str, ...]
    levels: tuple[FloatArray, ...]
    codes: IntArray
    pattern_cell: NDArray[np.int32] | IntArray
    folds: IntArray
    notes: tuple[str, ...] = ()

    @property
    def n_folds(self) -> int:
        return int(self.folds.max()) + 1

    @property
    def n_patterns(self) -> int:
        return len(self.codes)

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
        folds : (n_stimuli,) fold of each stimulus, 0 to n_folds - 1
        missing : "ignore": a missing value on either side gives distance 0 (Jalouzot et al. 2024,
            section 2.1.1); "level": missing is a value of its own, at distance 1 from all others
        max_patterns : beyond it, distances of features with many values are put into bins

        Raises
        ------
        InputError
            An unknown policy, no features, or fewer than two stimuli.
        """
        if missing not in MISSING:
            raise unknown("policy for missing values", missing, MISSING)
        if not columns:
            raise InputError("no feature is left; choose at least one.")
        if len(folds) < 2:
            raise InputError(f"found {len(folds)} stimuli; at least 2 are needed to form a pair.")
        coded = [_value_codes(c) for c in columns]
        bins: int | None = None
        for bins in (None, 64, 32, 16, 8, 4, 2):
            codes, levels, errors = [], [], []
            for values, scaled in coded:
                n_values = int(values.max()) + 1
                if scaled is not None and n_values > MAX_VALUES:
                    values, scaled, rounding = _coarse(values, scaled, bins or 64)
                    n_values = len(scaled)
                else:
                    rounding = 0.0
                table, distances, error = _distance_codes(n_values, scaled, missing, bins)
                codes.append((values, table))
                levels.append(distances)
                errors.append(error + rounding)
            found = _patterns(codes, [len(level) for level in levels], max_patterns)
            if found is not None:
                break
        assert found is not None
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
    n_types = len(distinct)
    table = np.empty((n_types, n_types), dtype=np.int32)
    step = max(1, CHUNK // n_types)
    radix = np.cumprod([1, *(int(s) for s in sizes)], dtype=object)
    if radix[-1] >= 2**62:
        return None

    def combined(start: int) -> IntArray:
        block = distinct[start : start + step]
        total = np.zeros((len(block), n_types), dtype=np.int64)
        for f, (_, by_value) in enumerate(codes):
            total += by_value[block[:, f, None], distinct[None, :, f]] * int(radix[f])
        return total

    starts = range(0, n_types, step)
    if radix[-1] <= LOOKUP_LIMIT:
        seen = np.zeros(int(radix[-1]), dtype=bool)
        for start in starts:
            seen[combined(start)] = True
        keys = np.flatnonzero(seen)
        if len(keys) > limit:
            return None
        number = (np.cumsum(seen) - 1).astype(np.int32)
        for start in starts:
            table[start : start + step] = number[combined(start)]
    else:
        keys = np.empty(0, dtype=np.int64)
        for start in starts:
            keys = np.union1d(keys, combined(start))
            if len(keys) > limit:
                return None
        for start in starts:
            table[start : start + step] = np.searchsorted(keys, combined(start))
    pattern_codes = np.stack(
        [keys // int(radix[f]) % int(sizes[f]) for f in range(len(sizes))], axis=1
    )
    return pattern_codes.astype(np.int64), table, types.astype(np.int64)


def block_numbers(n_folds: int) -> IntArray:
    """(n_folds, n_folds) number of the block of pairs between two folds, the same both ways."""
    numbers = np.zeros((n_folds, n_folds), dtype=np.int64)
    for number, (a, b) in enumerate(itertools.combinations_with_replacement(range(n_folds), 2)):
        numbers[a, b] = numbers[b, a] = number
    return numbers


def _pair_cells(
    table: NDArray[np.int32], types: IntArray, folds: IntArray, n_patterns: int
) -> NDArray[np.int32] | IntArray:
    numbers = block_numbers(int(folds.max()) + 1)
    small = (numbers.max() + 1) * n_patterns < 2**31
    offsets = (numbers * n_patterns).astype(np.int32 if small else np.int64)
    cells = np.empty(n_pairs(len(types)), dtype=offsets.dtype)
    for i, where in row_slices(len(types)):
        cells[where] = table[types[i]][types[i + 1 :]] + offsets[folds[i]][folds[i + 1 :]]
    return cells


def group_rows(codes: IntArray) -> tuple[IntArray, IntArray]:
    """The first of each distinct row and, for every row, the number of its group.

    Parameters
    ----------
    codes : (n_rows, n_columns) whole numbers of at least 0
    """
    if codes.shape[1] == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(len(codes), dtype=np.int64)
    sizes = codes.max(axis=0, initial=0) + 1
    if np.prod(sizes.astype(object)) < 2**62:
        radix = np.concatenate(([1], np.cumprod(sizes[:-1])))
        _, first, inverse = np.unique(codes @ radix, return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.astype(np.int64)
