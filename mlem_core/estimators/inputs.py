"""What estimators are given, checked: features, neural data, groups, and numbers as parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.text import some
from mlem_core.base.typing import IntArray
from mlem_core.data.columns import GIVEN
from mlem_core.data.folds import FEWEST_TESTED
from mlem_core.data.stimuli import StimulusSet
from mlem_core.pairs.build import check_rows
from mlem_core.pairs.columns import FeatureColumn

_KINDS = {
    "ordered": "numeric",
    "nominal": "categorical",
    "vector": "given by vectors",
    "rdm": "given by its distances",
}


def matched(columns: Sequence[FeatureColumn], kinds: Mapping[str, str]) -> list[FeatureColumn]:
    """The features that a model was fitted with, by name and in the order of the fit.

    Parameters
    ----------
    kinds : of each feature in the fit, by name

    Raises
    ------
    InputError
        A feature that is missing, that the model does not know, or that is of another kind: codes
        in the place of categories would be numeric.
    """
    given = {column.name: column for column in columns}
    lacks = [name for name in kinds if name not in given]
    extra = [name for name in given if name not in kinds]
    if lacks or extra:
        found = [f"lack {some(lacks)}"] * bool(lacks) + [f"add {some(extra)}"] * bool(extra)
        raise InputError(
            f"the features {' and '.join(found)}; expected those that the model was fitted with, "
            f"in any order: {some(list(kinds))}."
        )
    return [_as_fitted(given[name], kind) for name, kind in kinds.items()]


def _as_fitted(column: FeatureColumn, kind: str) -> FeatureColumn:
    if column.kind == kind:
        return column
    if pd.isna(column.values).all() and not {kind, column.kind} & set(GIVEN):
        # A column without any value says nothing of its kind.
        nothing = np.full(len(column.values), np.nan)
        values = nothing if kind == "ordered" else np.full(len(nothing), None, dtype=object)
        return replace(column, kind=kind, values=values)
    raise InputError(
        f"the feature {column.name!r} is {_KINDS[column.kind]} here and was {_KINDS[kind]} when "
        "the model was fitted; give it as it was then: numbers as numbers, categories as text "
        "(not as codes)."
    )


def neural_rows(y: Any, n_stimuli: int) -> NDArray[Any]:
    """Neural data (n_stimuli, n_units) as an array of numbers.

    Raises
    ------
    InputError
        No numbers; another shape, or number of rows; fewer than 3 stimuli, and so than 3 pairs.
    """
    try:
        masked = isinstance(y, np.ma.MaskedArray)
        rows = y.astype(np.float64).filled(np.nan) if masked else np.asarray(y)
        if rows.dtype.kind not in "biuf":
            rows = rows.astype(np.float64, casting="unsafe" if rows.dtype.kind == "O" else "safe")
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"y, of the type {type(y).__name__}, is no array of real numbers; expected one of the "
            f"shape ({n_stimuli}, units), a row a stimulus."
        ) from None
    check_rows(rows, n_stimuli, "y")
    if n_stimuli < FEWEST_TESTED:
        raise InputError(
            f"found {n_stimuli} stimuli; at least {FEWEST_TESTED} are needed, to form 3 pairs."
        )
    return rows


def stimulus_groups(groups: Any, X: StimulusSet | pd.DataFrame) -> IntArray:
    """The group of each stimulus as a number: (n_stimuli,).

    Without any these are those of a `StimulusSet`; else every stimulus is its own. Raises
    InputError for groups that are not one a stimulus.
    """
    if groups is None:
        return X.groups if isinstance(X, StimulusSet) else np.arange(len(X))
    try:
        given = np.asarray(groups)
        if given.shape == (len(X),) and not pd.isna(given).any():
            return np.unique(given, return_inverse=True)[1].astype(np.int64)
    except (TypeError, ValueError):
        pass
    raise InputError(
        f"the groups are {_cut(groups)}; expected {len(X)} numbers or names without gaps, the "
        "group of each stimulus."
    )


def _cut(value: Any) -> str:
    return repr(value)[:60]


def check_number(
    name: str, value: Any, least: float, below: float = np.inf, whole: bool = False
) -> None:
    """Raise InputError for a parameter that is no number from `least` to below another."""
    types = int | np.integer if whole else int | float | np.integer | np.floating
    if isinstance(value, bool) or not (isinstance(value, types) and least <= value < below):
        until = "" if below == np.inf else f" and below {below:,.12g}"
        raise InputError(
            f"{name} is {_cut(value)}; expected a {'whole' if whole else 'finite'} number of at "
            f"least {least:g}{until}."
        )


def check_numbers(name: str, values: Any, least: float, below: float = np.inf) -> None:
    """Raise InputError for a parameter that is no list of one or more such numbers."""
    if not isinstance(values, Sequence | np.ndarray | pd.Series) or isinstance(values, str):
        raise InputError(f"{name} is {_cut(values)}; expected a list of numbers.")
    if len(values) == 0:
        raise InputError(f"{name} is empty; expected a list of one or more numbers.")
    for at, value in enumerate(values):
        check_number(f"{name}[{at}]", value, least, below)
