"""Agreement of two measures of the distance of systems, divided over properties of the systems.

Two measures may rank pairs of systems alike. That correlation is divided over the properties as the
RSA correlation of two layers is over features, between disjoint systems.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.data.folds import group_folds
from mlem_core.groups.mrqap import Values
from mlem_core.measures.decomposition import UNEXPLAINED, decompose
from mlem_core.measures.similarity import average_ranks
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import PRECOMPUTED
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.tables import PairTables

# Divisions into folds, systems of a fold (so that it has six pairs), and folds at most.
DIVISIONS, IN_FOLD, MOST_FOLDS = 20, 4, 5
# Numbers have so many levels, each of as many systems: pairs need others of their pattern.
LEVELS = 4
# Properties up to which all of their sets are compared; of more random orders in each division.
EXACT = 8
WHY = ["measure", "other", "term", "contribution"]


def agreement_terms(
    distances: Mapping[str, FloatArray],
    values: Mapping[str, Values],
    parts: Mapping[str, Sequence[str]],
    units: IntArray,
    seed: int = 0,
) -> pd.DataFrame:
    """Contributions of properties to the RSA correlation of every two measures of distance.

    They are means over divisions into folds, and add up to Spearman ρ with what is "unexplained".
    There is no interval over systems.

    Parameters
    ----------
    distances : (n_systems, n_systems) by the name of each measure
    values, parts : of `mlem_core.groups.properties.Properties`
    units : (n_systems,) what is in one fold together

    Returns
    -------
    `WHY`, a row for each two measures and term: a property (or group of them), or "unexplained"

    Raises InputError: systems that make no two folds of three.
    """
    first, second = np.triu_indices(len(units), 1)
    rsa = np.corrcoef([average_ranks(own[first, second]) for own in distances.values()])
    coarse = {name: _coarse(own) for name, own in values.items()}
    divided = []
    for number, folds in enumerate(divisions_of(units, seed)):
        tables = system_tables([*distances.values()], coarse, folds)
        split = decompose(tables, rsa, exact_up_to=EXACT, seed=number)
        place = {name: at for at, name in enumerate(split.features)}
        terms = [sum(split.terms[place[name]] for name in own) for own in parts.values()]
        divided.append(np.stack([*terms, split.unexplained]))
    means, terms = np.mean(divided, axis=0), [*parts, UNEXPLAINED]
    names = list(distances)
    rows = [
        (names[a], names[b], term, value)
        for a, b in itertools.combinations(range(len(names)), 2)
        for term, value in zip(terms, means[:, a, b], strict=True)
    ]
    return pd.DataFrame(rows, columns=WHY)


def _coarse(values: Values) -> Values:
    if not isinstance(values, np.ndarray):
        return values
    ranks = pd.Series(values).rank(pct=True).to_numpy(dtype=np.float64)
    return np.asarray(np.ceil(ranks * LEVELS - 1e-12))


def divisions_of(units: IntArray, seed: int) -> IntArray:
    """(n_divisions, n_systems) the fold of each system, several times; as many folds as can be.

    Raises InputError: units that make no two folds of three systems.
    """
    for n_folds in range(int(np.clip(len(units) // IN_FOLD, 2, MOST_FOLDS)), 0, -1):
        found = list[IntArray]()
        for trial in range(3 * DIVISIONS):
            try:
                found.append(group_folds(units, n_folds, seed + trial, "systems"))
            except InputError:
                continue
            if len(found) == DIVISIONS:
                return np.stack(found)
    raise InputError(
        "found systems that make no two folds of three; expected more of them, or smaller groups."
    )


def system_tables(
    distances: Sequence[FloatArray], values: Mapping[str, Values], folds: IntArray
) -> PairTables:
    """Pair tables of systems; a layer is a measure of their distance."""
    columns = feature_columns(pd.DataFrame({name: _column(own) for name, own in values.items()}))
    index = PairIndex.build(columns, folds, "ignore")
    return pair_tables(index, [lambda own=own: own for own in distances], distance=PRECOMPUTED)  # type: ignore[misc]


def _column(values: Any) -> Any:
    return (
        values
        if isinstance(values, np.ndarray)
        else pd.Series([value or None for value in values], dtype=object)
    )
