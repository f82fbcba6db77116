"""The features of stimuli as columns, and the code of the difference of every two values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.labels import Names
from mlem_core.base.parameters import names_in
from mlem_core.base.text import listed
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.columns import GIVEN, LARGEST, Kind, text_of
from mlem_core.data.stimuli import Rdm, StimulusSet

if TYPE_CHECKING:
    from mlem_core.pairs.kernels.cells import Differences

# The policies for missing values, each with what a screen calls it.
MISSING = {"ignore": "no distance to any value", "level": "a value of its own"}
# A table from value to value is kept for a feature with up to this many values.
MAX_VALUES = 2_048
# A feature with more values has more terms than its pairs can tell of, resolved by value.
MOST_RESOLVED: dict[str, int] = {"nominal": 24, "ordered": 12, **dict.fromkeys(GIVEN, 24)}
# Into how many bins the distances of a feature are put, where they have to be.
FEWEST_BINS, MOST_BINS = 2, 64
MISSING_NAME = "(missing)"
ALL, NONE = ("all",), ("none",)
# An analysis decides which features are resolved, see `mlem_core.analysis.planning`.
AUTO = ("auto",)


@dataclass(frozen=True)
class FeatureColumn:
    """Column of a feature of the stimuli.

    values : (n_stimuli,) float64 with NaN (ordered), or objects with None (others)
    span : the lowest and the highest value of an ordered feature in the whole stimulus set; of one
        that is given by its distances 0 and the largest of them
    names : of its values, in their order and `MISSING_NAME` last, where the feature is resolved by
        value; else ()
    rdm : the distances of its values, where it is given by them
    """

    name: str
    kind: str
    values: NDArray[np.float64] | NDArray[np.object_]
    span: tuple[float, float] = (0.0, 1.0)
    names: tuple[str, ...] = ()
    rdm: Rdm | None = None

    @property
    def present(self) -> list[Any]:
        """The distinct values, ascending."""
        return sorted(pd.Series(self.values).dropna().unique().tolist())

    @property
    def resolvable(self) -> bool:
        """Whether it has few enough values to be resolved by value."""
        return len(self.present) <= MOST_RESOLVED[self.kind]

    def with_names(self, names: tuple[str, ...] | None = None) -> FeatureColumn:
        """Column coded by value; `names` are by default those of its own values."""
        if names is None:
            own = tuple(str(text_of(value)) for value in self.present)
            names = (*own, MISSING_NAME) if pd.isna(self.values).any() else own
        return replace(self, names=names)


def feature_columns(
    stimuli: StimulusSet | pd.DataFrame,
    spans: Mapping[str, tuple[float, float]] | None = None,
    resolved: Iterable[str] | Mapping[str, tuple[str, ...]] = (),
) -> list[FeatureColumn]:
    """The features of a stimulus set, or of a table with a column a feature.

    The numeric columns of a table (n_stimuli, n_features) are ordered, the others nominal.

    Parameters
    ----------
    spans : the ranges that scale ordered features to [0, 1], by default their own
    resolved : features that are resolved by value, see `resolved_columns`; with the names of
        their values, where these are not those of the stimuli

    Raises InputError: no DataFrame and so no names; two columns of one name, or one called
    "sentence"; a value that is infinite.
    """
    columns = []
    rdms: Mapping[str, Rdm] = stimuli.rdms if isinstance(stimuli, StimulusSet) else {}
    if isinstance(stimuli, StimulusSet):
        raw = [(f.name, f.kind, stimuli.values(f.name)) for f in stimuli.features]
    else:
        raw = _raw(stimuli)
    known: Mapping[str, tuple[str, ...]] = resolved if isinstance(resolved, Mapping) else {}
    to_resolve = set(resolved)
    for name, kind, values in raw:
        span = (0.0, 1.0)
        if kind == "ordered":
            present = values[~np.isnan(values)]
            own = (float(present.min()), float(present.max())) if len(present) else span
            span = (spans or {}).get(name, own)
        elif kind in GIVEN:
            present = [value for value in dict.fromkeys(values.tolist()) if value is not None]
            largest = float(rdms[name].among(present).max(initial=0.0))
            span = (spans or {}).get(name) or (0.0, largest or 1.0)
        column = FeatureColumn(name, kind, values, span, rdm=rdms.get(name))
        columns.append(column.with_names(known.get(name)) if name in to_resolve else column)
    return columns


def _raw(table: Any) -> list[tuple[str, Kind, NDArray[Any]]]:
    """Name, kind and values of each column of a table."""
    if not isinstance(table, pd.DataFrame):
        raise InputError(
            f"the features are of the type {type(table).__name__}; expected a StimulusSet or a "
            "pandas DataFrame, whose columns have names: pandas.DataFrame(values, columns=[...])."
        )
    names = [str(name) for name in table.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"found {names.count(twice)} columns called {twice!r} among the features; every "
            "feature needs a name of its own."
        )
    if "sentence" in names:
        raise InputError(
            "found the column 'sentence' among the features of a table, where each text would be a "
            "value; leave it out, or make stimuli of the table with read_csv or from_frame, which "
            "keep sentences and features apart."
        )
    return [(name, *_kind_and_values(name, table.iloc[:, at])) for at, name in enumerate(names)]


def _kind_and_values(name: str, column: pd.Series) -> tuple[Kind, NDArray[Any]]:
    missing = column.isna()
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        cells = zip(column, missing, strict=True)
        return "nominal", np.array([None if gone else str(v) for v, gone in cells], dtype=object)
    if column.dtype.kind == "c":
        raise InputError(f"column {name!r} holds complex numbers; expected real ones, or text.")
    values = column.to_numpy(np.float64)
    if (huge := np.abs(values) > LARGEST).any():
        at = int(np.argmax(huge))
        raise InputError(
            f"column {name!r} has the infinite or huge value {values[at]:g} in row {at + 1}; "
            f"expected a number up to {LARGEST:g} in size or a missing value."
        )
    return "ordered", values


def resolved_columns(
    stimuli: StimulusSet | pd.DataFrame, names: Sequence[str]
) -> list[FeatureColumn]:
    """`feature_columns`, those of these names resolved by value.

    `names` may be ("all",), every feature that can be, and ("none",) or (), none.

    Raises InputError: an unknown feature, or one with too many values.
    """
    columns, names = feature_columns(stimuli), names_in(names)
    by_name = {column.name: column for column in columns}
    can = [column.name for column in columns if column.resolvable]
    if names == ALL and "all" not in by_name:
        names = tuple(can)
    if names == NONE and "none" not in by_name:
        names = ()
    for name in names:
        if not isinstance(name, str) or name not in by_name:
            raise unknown("feature to resolve by value", name, [*by_name, "all", "none"])
        column = by_name[name]
        if not column.resolvable:
            merge = f"merge its rare values (--merge-rare {name}=20), or "
            raise InputError(
                f"the {column.kind} feature {name!r} has {len(column.present):,} values, too many "
                f"to resolve it by value (the limit is {MOST_RESOLVED[column.kind]}); "
                f"{merge * (column.kind == 'nominal')}choose of {listed(can) if can else 'none'}."
            )
    return [column.with_names() if column.name in names else column for column in columns]


def coding(kinds: Sequence[str], resolved: Sequence[str], names: Names | None = None) -> str:
    """Coding of the features of two stimuli, in words that follow "coded".

    Parameters
    ----------
    kinds : "ordered", "nominal", "vector" or "rdm" of each feature
    resolved : names of those that are resolved by value
    names : how the words call features
    """
    call = (names or Names()).feature
    plain = "as same or different" if "nominal" in kinds else "by distance"
    if not resolved:
        return plain
    if len(resolved) == len(kinds):
        return "by value"
    return f"by value for {listed(list(map(call, resolved)))}, others {plain}"


class Coded(NamedTuple):
    """The difference of every two values of a feature as a code.

    values : (n_stimuli,) each stimulus's value as a number, -1 where it is missing and says nothing
    codes : (n_values + 1, n_values + 1) of every two values, the last being a missing one; without
        that one where the feature is resolved and none is missing; or None where values are only
        equal (0) or not (1), as those of a nominal feature
    distances : (n_codes,) the feature distance that each code stands for, in [0, 1]
    error : how far off a distance may be at most, put into a bin
    kept : correlation of the squared distances in bins with those that are not, over the pairs
    """

    values: IntArray
    codes: IntArray | None
    distances: FloatArray
    error: float = 0.0
    kept: float = 1.0

    def of(self, i: IntArray, j: IntArray) -> IntArray:
        """The codes (n,) of pairs of stimuli (i, j)."""
        a, b = self.values[i], self.values[j]
        if self.codes is None:
            return ((a != b) & (a >= 0) & (b >= 0)).astype(np.int64)
        return self.codes[a, b]


def codes_of(column: FeatureColumn, missing: str, bins: int | None = None) -> Coded:
    """The codes of a feature: its distances, or, where it is resolved, its pairs of values.

    Parameters
    ----------
    missing : "ignore" or "level", see `mlem_core.pairs.patterns.PairIndex.build`
    bins : into how many distances are put at most; None leaves them as they are. Pairs of values
        are never put into bins

    Raises InputError: a value of a resolved feature that is not among its names.
    """
    values, present = numbered_values(column)
    if column.kind == "nominal" and not column.names:
        # A missing value is one of its own, or says nothing.
        level = missing == "level"
        values = np.where(values < 0, len(present), values) if level else values
        most = 1.0 if len(present) + level > 1 else 0.0
        return Coded(values, None, np.unique([0.0, most]))
    rounding, error, kept = 0.0, 0.0, 1.0
    if column.kind == "ordered" and len(present) > MAX_VALUES:
        values, present, rounding = _coarse(values, present, bins or MOST_BINS)
    # The last row and column stand for a missing value.
    apart = value_distances(column, present)
    n_values = len(apart)
    table = np.zeros((n_values + 1, n_values + 1))
    table[:n_values, :n_values] = apart
    if missing == "level":
        table[n_values, :n_values] = table[:n_values, n_values] = 1.0
    # Sums of decimals differ in their last bits: 0.3 - 0.1 and 0.2 - 0.0 are one distance.
    table = np.round(table, 12)
    if column.names:
        first, second = ends(len(column.names))
        return Coded(values, pair_numbers(len(column.names)), table[first, second])
    if bins is not None and len(np.unique(table)) > bins + 1:
        binned = in_bins(table, bins)
        error = float(np.abs(binned - table).max())
        # The last value is a missing one.
        stimuli = np.bincount(values % len(table), minlength=len(table))
        kept = _correlation(table**2, binned**2, stimuli)
        table = binned
    distances, codes = np.unique(table, return_inverse=True)
    codes = codes.reshape(table.shape).astype(np.int64)
    return Coded(values, codes, distances, error + rounding, kept)


def in_bins(distances: FloatArray, bins: int) -> FloatArray:
    """Distances (...) from 0 to 1, each the middle of its bin; 0 stays 0."""
    # An edge of a bin is in it, whatever rounding makes of it.
    middle = (np.ceil(np.round(distances * bins, 9)) - 0.5) / bins
    return np.where(distances > 0, middle, 0.0)


def _correlation(a: FloatArray, b: FloatArray, stimuli: IntArray) -> float:
    """Correlation over the pairs of two tables (n_values, n_values) of so many stimuli of each."""
    pairs = np.outer(stimuli, stimuli) - np.diag(stimuli)
    a, b = (one - (one * pairs).sum() / pairs.sum() for one in (a, b))
    shared, *spreads = ((pairs * one * other).sum() for one, other in ((a, b), (a, a), (b, b)))
    return float(shared / np.sqrt(np.prod(spreads))) if min(spreads) > 0 else 0.0


def bin_steps(sizes: list[int]) -> list[list[int | None]]:
    """Into how many bins the distances of features are put, ever fewer; at first into none.

    In each step those of the feature with most are a quarter fewer.

    `sizes` are the (n_features,) numbers of distances of each; 0 where they stay as they are.
    """
    sizes, steps = list(sizes), list[list[int | None]]([[None] * len(sizes)])
    while max(sizes) > FEWEST_BINS + 1:
        largest = int(np.argmax(sizes))
        bins = min(MOST_BINS, 3 * (sizes[largest] - 1) // 4)
        steps.append([bins if f == largest else own for f, own in enumerate(steps[-1])])
        sizes[largest] = bins + 1
    return steps


def bins_of(levels: FloatArray) -> int | None:
    """Into how many bins a feature's distances, from 0 to 1, were put; None where they were not."""
    # The last level is the middle of the last bin. Of pairs of values it is that of two the same.
    last = float(levels[-1])
    return round(0.5 / (1.0 - last)) if 0.0 < last < 1.0 else None


def numbered_values(column: FeatureColumn) -> tuple[IntArray, NDArray[Any]]:
    """Each stimulus's value as a number, -1 where it is missing, and the values in their order.

    Those of an ordered feature are scaled; those of a resolved one are all that it names.
    """
    if column.names:
        places = {name: at for at, name in enumerate(column.names)}
        texts = [MISSING_NAME if pd.isna(value) else str(text_of(value)) for value in column.values]
        for text in texts:
            if text not in places:
                raise unknown(f"value of the feature {column.name!r}", text, column.names)
        places |= {MISSING_NAME: -1} if MISSING_NAME in places else {}
        numbers = np.array([places[text] for text in texts], dtype=np.int64)
        named = [name for name in column.names if name != MISSING_NAME]
        present: NDArray[Any] = np.array(named, np.float64 if column.kind == "ordered" else object)
    elif column.kind == "ordered":
        values = np.asarray(column.values, dtype=np.float64)
        there = ~np.isnan(values)
        numbers = np.full(len(values), -1, dtype=np.int64)
        present, numbers[there] = np.unique(values[there], return_inverse=True)
    else:
        codes, present = pd.factorize(column.values)
        return codes.astype(np.int64), present
    if column.kind == "ordered":
        low, high = column.span
        present = (present - low) / (high - low if high > low else 1.0)
    return numbers, present


def value_distances(column: FeatureColumn, present: NDArray[Any]) -> FloatArray:
    """(n_values, n_values) the distance of every two values of a feature, see `numbered_values`."""
    if column.rdm is not None:
        return column.rdm.among([str(value) for value in present]) / column.span[1]
    if column.kind == "ordered":
        apart: FloatArray = np.abs(present[:, None] - present[None, :])
        return apart
    return 1.0 - np.eye(len(present))


def differences_of(features: Sequence[Coded]) -> tuple[Differences, int, np.int64]:
    """Differences that kernels take for the pattern of two stimuli; number of patterns; origin.

    Patterns are in the order of their key plus the origin.
    """
    from mlem_core.pairs.kernels.cells import Differences

    sizes = [len(own.distances) for own in features]
    total = int(np.prod(np.array(sizes, dtype=object)))
    if total < 2**62:
        radix = np.concatenate(([1], np.cumprod(np.array(sizes[:-1], dtype=np.int64))))
        terms = [np.arange(size) * radix[f] for f, size in enumerate(sizes)]
    else:
        # Too many combinations to number: sums of random 64-bit numbers distinguish them.
        rng = np.random.default_rng(0)
        terms = [rng.integers(-(2**62), 2**62, size) for size in sizes]
    tables, width, differ, values = [np.empty(0, dtype=np.int64)], [], [], list[IntArray]()
    for own, term in zip(features, terms, strict=True):
        if own.codes is None:
            values.append(own.values)
        else:
            values.append(np.where(own.values < 0, len(own.codes) - 1, own.values))
            tables.append((term - term[0])[own.codes].ravel())
        width.append(0 if own.codes is None else len(own.codes))
        # The same for all pairs is nothing: a key is a sum of what two values add.
        differ.append(term[-1] - term[0] if own.codes is None else 0)
    lengths = np.array(width) ** 2
    starts = np.cumsum(lengths) - lengths
    arrays = np.stack(values, axis=1), width, starts, np.concatenate(tables), differ
    differences = Differences(*(np.asarray(own).astype(np.int64) for own in arrays))
    return differences, total, np.array([term[0] for term in terms]).sum()


def ends(n_values: int) -> tuple[IntArray, IntArray]:
    """The two values, each (n_codes,), of every unordered pair of n values, in their order."""
    first, second = np.triu_indices(n_values)
    return first.astype(np.int64), second.astype(np.int64)


def pair_numbers(n_values: int) -> IntArray:
    """(n_values, n_values) the number of the unordered pair of every two values."""
    numbers = np.empty((n_values, n_values), dtype=np.int64)
    first, second = ends(n_values)
    numbers[first, second] = numbers[second, first] = np.arange(len(first))
    return numbers


def _coarse(values: IntArray, scaled: FloatArray, bins: int) -> tuple[IntArray, FloatArray, float]:
    """Round the values of a continuous feature to a grid much finer than the bins."""
    grid = np.round(scaled * bins * 8) / (bins * 8)
    distinct, index = np.unique(grid, return_inverse=True)
    recoded = np.where(values >= 0, index[values], -1)
    return recoded, distinct, 2 * float(np.abs(grid - scaled).max())
