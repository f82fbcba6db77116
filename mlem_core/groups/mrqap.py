"""Test of the factors that make models similar: MRQAP, a regression of similarities on labels.

The similarities of all pairs of models are regressed on whether the two have the same label, of
every factor at once. Pairs that share a model are not independent, so that the p-values are those
of permutations of models: the t of a factor is compared with those of its labels exchanged.

Labels are exchanged only where that leaves every other factor as it is: models exchange them that
agree on all other factors. Where all models of one label of another factor have one label of the
factor (it is nested there), they are no replicates of each other: they keep one label together, as
a whole group, which exchanges it with other such groups (one model alone is one as well). Groups
count once each: what is regressed is the mean similarity of their models; where groups of different
sizes exchange labels, with an effect of each group (as of actors in the social relations model). So
the other factors explain as much in each permutation, and permuting the labels, their part that the
others do not explain (double semi-partialing) or the residuals (Freedman and Lane) is the same.

Sources: Krackhardt (1988); Dekker, Krackhardt and Snijders (2007), on double semi-partialing;
Winkler, Webster, Vidaurre, Nichols and Smith (2015), on permutations within and of whole blocks;
Snijders and Kenny (1999), on effects of actors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.base.text import listed, many
from mlem_core.base.typing import FloatArray, IntArray

# Up to as many as of 7 things (7! = 5,040) every order is looked at, else so many random ones.
EXACT, PERMUTATIONS = 7, 9_999
# With fewer different permutations than 20 no p can be as small, and there is no verdict.
LEVEL = 0.05
# Same group, as a factor beside those that are named.
GROUP = "group"
_SAME = 1e-9
_AT_ONCE = 2**22


class FactorTest(NamedTuple):
    """Effect of a factor on the similarity of two models that share its label, and its test.

    Attributes
    ----------
    factor : its name
    value : the coefficient: how much more similar two models (or groups) of the same label are,
        others given
    t : the coefficient over its standard error by least squares
    p : two-sided, the share of permutations with as large a t; never 0; NaN where `smallest` is
        above `LEVEL`
    smallest : the smallest p that these models allow, whatever their similarities: 1 over the
        number of different permutations
    permuted : "models", or "groups" where some exchange labels as a whole
    n : how many of them there are
    n_permutations : that were looked at, the models as they are among them
    """

    factor: str
    value: float
    t: float
    p: float
    smallest: float
    permuted: str
    n: int
    n_permutations: int


def same_label(labels: Sequence[str]) -> FloatArray:
    """(n, n) 1 where two models have the same label, else 0."""
    found = np.array(labels, dtype=object)
    return (found[:, None] == found[None, :]).astype(np.float64)


def mrqap(
    similarity: FloatArray,
    factors: Mapping[str, Sequence[str]],
    *,
    n_permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> list[FactorTest]:
    """Test each factor, given the others.

    Parameters
    ----------
    similarity : (n_models, n_models) symmetric; its diagonal is not looked at
    factors : of each factor the labels (n_models,); the group of a model is one, where there are
        groups
    n_permutations : where not every order is looked at, so many random ones

    Raises
    ------
    InputError
        Fewer than four models; a factor that has one label, or no label twice, or that the others
        together say already; similarities that are not defined, or all the same.
    """
    n, pairs = len(similarity), np.triu_indices(len(similarity), 1)
    same = {name: same_label(labels)[pairs] for name, labels in factors.items()}
    _check(similarity[pairs], n, same)
    return [_tested(similarity, factors, name, n_permutations, seed) for name in factors]


def _tested(
    similarity: FloatArray,
    factors: Mapping[str, Sequence[str]],
    name: str,
    n_permutations: int,
    seed: int,
) -> FactorTest:
    codes = {key: np.unique(labels, return_inverse=True)[1] for key, labels in factors.items()}
    own = codes.pop(name)
    units, strata = _units(own, list(codes.values()))
    members = np.eye(len(strata))[units]
    members /= members.sum(axis=0)
    first, second = np.triu_indices(len(strata), 1)
    known = np.where(np.eye(len(own), dtype=bool), 0.0, similarity)
    every = (known, *(same_label(factors[key]) for key in codes))
    y, *others = ((members.T @ one @ members)[first, second] for one in every)
    n_models = np.bincount(units)
    if any(np.ptp(n_models[strata == stratum]) for stratum in strata):
        # How similar a group is to all others varies less where it is large, and is taken out.
        others += [*np.eye(len(strata))[:, first] + np.eye(len(strata))[:, second]]
    left, sizes, _ = np.linalg.svd(np.column_stack((np.ones(len(y)), *others)), False)
    basis = left[:, sizes > _SAME * sizes[0]]
    beside, free = y - basis @ (basis.T @ y), max(1, len(y) - basis.shape[1] - 1)

    orders = _orders(strata, n_permutations, seed)
    labels = own[np.unique(units, return_index=True)[1]]
    value = observed = 0.0
    as_large, different = 0, set[bytes]()
    size = max(1, _AT_ONCE // len(y))
    for start in range(0, len(orders), size):
        drawn = labels[orders[start : start + size]]
        same = drawn[:, first] == drawn[:, second]
        different.update(map(bytes, np.packbits(same, axis=1)))
        values, t = _statistics(same.astype(np.float64), beside, basis, free)
        if start == 0:  # the labels as they are
            value, observed = float(values[0]), float(t[0])
        as_large += int((np.abs(t) >= abs(observed) * (1 - _SAME)).sum())
    smallest = 1 / len(different)
    p = as_large / len(orders) if smallest <= LEVEL else np.nan
    permuted = "models" if len(strata) == len(own) else "groups"
    return FactorTest(name, value, observed, p, smallest, permuted, len(strata), len(orders))


def _check(y: FloatArray, n: int, columns: Mapping[str, FloatArray]) -> None:
    if n < 4:
        raise InputError(f"found {many(n, 'model')}; a test of their similarity needs 4.")
    if not np.isfinite(y).all() or not np.ptp(y) > 0:
        raise InputError(
            "the similarities of the models are all the same or not defined; expected numbers that "
            "differ."
        )
    for name, column in columns.items():
        if not np.ptp(column) > 0:
            what = "the same label in all models" if column.any() else "another label in each model"
            raise InputError(f"the factor {name!r} has {what}; expected some that share one.")
    whole = np.column_stack((np.ones(len(y)), *columns.values()))
    if len(y) <= whole.shape[1] or np.linalg.matrix_rank(whole) < whole.shape[1]:
        raise InputError(
            f"the factors {listed(list(columns))} cannot be separated in {many(n, 'model')}: one "
            "follows from the others; leave one out."
        )


def _units(own: IntArray, others: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Units of models that have one label of a factor together, and those that exchange it.

    Parameters
    ----------
    own : (n_models,) labels of the factor, from 0
    others : of each other factor the same

    Returns
    -------
    (n_models,) the unit of each model, and (n_units,) the stratum of each unit, from 0
    """
    unit = np.arange(len(own))
    roles = np.column_stack((np.zeros_like(unit), *others))
    for at, labels in enumerate(others, 1):
        for level in np.unique(labels):
            inside = labels == level
            if len(np.unique(own[inside])) == 1:
                unit[np.isin(unit, unit[inside])] = unit[inside].min()
                roles[inside, at] = -1
    units = np.unique(unit, return_inverse=True)[1]
    of_units = [tuple(np.unique(roles[unit == at], axis=0).flat) for at in np.unique(unit)]
    known = list(dict.fromkeys(of_units))
    return units, np.array([known.index(one) for one in of_units])


def _orders(strata: IntArray, n_permutations: int, seed: int) -> IntArray:
    """(n_orders, n_units) every order of units within strata, or random ones.

    The first is the one that they have.
    """
    blocks = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    n_orders = math.prod(math.factorial(len(block)) for block in blocks)
    if n_orders <= math.factorial(EXACT):
        every = itertools.product(*map(itertools.permutations, blocks))
        orders = np.empty((n_orders, len(strata)), dtype=np.int64)
        orders[:, np.concatenate(blocks)] = [list(itertools.chain(*one)) for one in every]
        return orders
    rng = np.random.default_rng(seed)
    orders = np.tile(np.arange(len(strata)), (n_permutations + 1, 1))
    for block in blocks:
        orders[1:, block] = rng.permuted(orders[1:, block], axis=1)
    return orders


def _statistics(
    drawn: FloatArray, beside: FloatArray, basis: FloatArray, free: int
) -> tuple[FloatArray, FloatArray]:
    """Coefficient and t (n_orders,) of each predictor (n_orders, n_pairs), the others given.

    Parameters
    ----------
    beside : (n_pairs,) the similarities less what the others explain
    basis : (n_pairs, n_others) orthonormal, of the others
    """
    own = drawn - (drawn @ basis) @ basis.T
    squares = (own**2).sum(axis=1)
    known = squares > _SAME
    value = np.divide(own @ beside, squares, out=np.full(len(own), np.nan), where=known)
    rest = np.maximum(beside @ beside - value**2 * squares, 0.0) / free
    error = np.sqrt(np.divide(rest, squares, out=np.ones(len(own)), where=known))
    t = np.divide(value, error, out=np.full(len(own), np.inf), where=error > 1e-15)
    return value, np.where(known, t, 0.0)


def table_of(tests: Sequence[FactorTest]) -> pd.DataFrame:
    """A row a test: the fields of `FactorTest`."""
    return pd.DataFrame(list(tests), columns=list(FactorTest._fields))


def too_few(test: FactorTest) -> str:
    """A sentence where no similarities of these models could give a p below .05; else empty."""
    if test.smallest <= LEVEL:
        return ""
    return (
        f"{test.n} {test.permuted} are too few to test {test.factor}: with the other factors as "
        f"they are, {many(round(1 / test.smallest), 'way')} to assign its labels can be compared, "
        f"and a verdict needs {round(1 / LEVEL)}."
    )


def sentence(test: FactorTest) -> str:
    """Result of a test, in a sentence."""
    if few := too_few(test):
        return few
    how = f"p = {test.p:.3f}" if test.p >= 0.001 else f"p = {test.p:.1g}"
    what = f"{test.value:+.2f}".replace("-", "−")
    beyond = f"two models of the same {test.factor} differ in their similarity by {what}"
    told = "" if test.p <= LEVEL else ", which these models do not tell from 0"
    return (
        f"The other factors given, {beyond} from two of another{told} ({how}; MRQAP, "
        f"{test.n_permutations:,} permutations of {test.n} {test.permuted} within the other "
        "factors)."
    )
