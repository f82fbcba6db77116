"""The features of stimuli as columns, and the distances of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.labels import Names
from mlem_core.base.parameters import split_names
from mlem_core.base.text import listed
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.stimuli.columns import GIVEN, Kind, cell_text, feature_kind, texts, typed_column
from mlem_core.stimuli.stimulus_set import Rdm, StimulusSet

# The policies for missing values, each with what a screen calls it.
MISSING = {"ignore": "no distance to any value", "level": "a value of its own"}
# A feature with more values is resolved by value only where it is named: it has many columns.
MOST_RESOLVED: dict[str, int] = {"nominal": 24, "ordered": 12, **dict.fromkeys(GIVEN, 24)}
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
    def has_few_values(self) -> bool:
        """Whether it has few enough values to be resolved by value without being named."""
        return len(self.present) <= MOST_RESOLVED[self.kind]

    def with_names(self, names: tuple[str, ...] | None = None) -> FeatureColumn:
        """Column coded by value; `names` are by default those of its own values."""
        if names is None:
            own = tuple(str(cell_text(value)) for value in self.present)
            names = (*own, MISSING_NAME) if pd.isna(self.values).any() else own
        return replace(self, names=names)


def feature_columns(
    stimuli: StimulusSet | pd.DataFrame,
    spans: Mapping[str, tuple[float, float]] | None = None,
    resolved: Iterable[str] | Mapping[str, tuple[str, ...]] = (),
) -> list[FeatureColumn]:
    """The features of a stimulus set, or of a table with a column a feature.

    Kinds in a table (n_stimuli, n_features) are those of `mlem_core.stimuli.columns.feature_kind`.

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
            bounds = (float(present.min()), float(present.max())) if len(present) else span
            span = (spans or {}).get(name, bounds)
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
    kind, cells = feature_kind(column), texts(column)
    if kind == "nominal":
        return kind, np.array(cells, dtype=object)
    return kind, np.asarray(typed_column(name, cells, kind), dtype=np.float64)


def resolved_columns(
    stimuli: StimulusSet | pd.DataFrame, names: Sequence[str]
) -> list[FeatureColumn]:
    """`feature_columns`, those of these names resolved by value.

    `names` may be ("all",), every feature with few enough values, and ("none",) or (), none.

    Raises InputError: an unknown feature.
    """
    columns, names = feature_columns(stimuli), split_names(names)
    by_name = {column.name: column for column in columns}
    if names == ALL and "all" not in by_name:
        names = tuple(column.name for column in columns if column.has_few_values)
    if names == NONE and "none" not in by_name:
        names = ()
    for name in names:
        if not isinstance(name, str) or name not in by_name:
            raise unknown("feature to resolve by value", name, [*by_name, "all", "none"])
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


def numbered_values(column: FeatureColumn) -> tuple[IntArray, NDArray[Any]]:
    """Each stimulus's value as a number, -1 where it is missing, and the values in their order.

    Those of an ordered feature are scaled; those of a resolved one are all that it names.
    """
    if column.names:
        places = {name: at for at, name in enumerate(column.names)}
        texts = [
            MISSING_NAME if pd.isna(value) else str(cell_text(value)) for value in column.values
        ]
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
        return np.asarray(np.abs(present[:, None] - present[None, :]))
    return 1.0 - np.eye(len(present))


def ends(n_values: int) -> tuple[IntArray, IntArray]:
    """The two values, each (n_codes,), of every unordered pair of n values, in their order."""
    first, second = np.triu_indices(n_values)
    return first.astype(np.int64), second.astype(np.int64)
