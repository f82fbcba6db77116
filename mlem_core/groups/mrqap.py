"""Which factor makes models alike: multiple regression of similarities on labels, by permutation.

The similarities of all pairs of models are regressed on whether the two have the same label, of
every factor at once. Pairs that share a model are not independent, so that the p-values are those
of permutations of models: for each factor the part of its "same label" that the others do not
explain is permuted (double semi-partialing), and its t is compared with those of the permutations.

Where a factor says the same of all members of a group, its members are not exchangeable with those
of another, and whole groups are permuted: three seeds of one group are no three groups.

Sources: Krackhardt (1988); Dekker, Krackhardt and Snijders (2007), on double semi-partialing.
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

# Up to so many things (8! = 40,320) every order is looked at, with more so many random ones.
EXACT, PERMUTATIONS = 8, 9_999
LEVEL = 0.05
# Same group, as a factor beside those that are named.
GROUP = "group"
_SAME = 1e-9
_AT_ONCE = 2**22


class FactorTest(NamedTuple):
    """What a factor adds to the similarity of two models that share its label.

    Attributes
    ----------
    factor : its name
    value : the coefficient: how much more alike two models of the same label are, others given
    t : the coefficient over its standard error by least squares
    p : two-sided, the share of permutations with as large a t; never 0
    smallest : the smallest p that these models allow, whatever their similarities
    permuted : "models" or "groups"
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
    group_of: IntArray | None = None,
    *,
    n_permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> list[FactorTest]:
    """Test each factor, given the others.

    Parameters
    ----------
    similarity : (n_models, n_models) symmetric; its diagonal is not looked at
    factors : of each factor the labels (n_models,)
    group_of : (n_models,) the group of each model, which is permuted as a whole in tests of factors
        that do not differ in any group; None: there are none
    n_permutations : where not every order is looked at, so many random ones

    Raises
    ------
    InputError
        Fewer than four models; a factor that has one label, or no label twice, or that the others
        together say already; similarities that are not defined, or all the same.
    """
    n, pairs = len(similarity), np.triu_indices(len(similarity), 1)
    y = similarity[pairs]
    same = {name: same_label(labels)[pairs] for name, labels in factors.items()}
    _check(y, n, same)
    found = []
    for name, own in same.items():
        others = [other for key, other in same.items() if key != name]
        basis = np.linalg.qr(np.column_stack((np.ones(len(y)), *others)))[0]
        units, permuted = _units(factors[name], group_of, n)
        orders = _orders(len(np.unique(units)), n_permutations, seed)
        tested = _tested(y, own, basis, (units[pairs[0]], units[pairs[1]]), orders)
        found.append(FactorTest(name, *tested, permuted, orders.shape[1], len(orders)))
    return found


def _tested(
    y: FloatArray,
    own: FloatArray,
    basis: FloatArray,
    units: tuple[IntArray, IntArray],
    orders: IntArray,
) -> tuple[float, float, float, float]:
    """Value, t and p of a factor (n_pairs,), and the smallest p that there could be.

    Parameters
    ----------
    y : (n_pairs,) the similarities
    basis : (n_pairs, n_others) orthonormal, of the other factors
    units : of the first and the second model of each pair, as of `_units`
    orders : of `_orders`
    """
    rest = own - basis @ (basis.T @ own)
    first, second = units
    # What stands for two models is that of their units: all predictors of whole groups are so.
    blocks = np.zeros((orders.shape[1],) * 2)
    blocks[first, second] = blocks[second, first] = rest
    beside, free = y - basis @ (basis.T @ y), len(y) - basis.shape[1] - 1
    values, observed = _statistics(rest[None], beside, basis, free)
    as_large = same_again = 0
    size = max(1, _AT_ONCE // len(y))
    for start in range(0, len(orders), size):
        some = orders[start : start + size]
        drawn = blocks[some[:, first], some[:, second]]
        t = np.abs(_statistics(drawn, beside, basis, free)[1])
        as_large += int((t >= abs(observed[0]) * (1 - _SAME)).sum())
        same_again += int((np.abs(drawn - rest).max(axis=1) < _SAME).sum())
    n = len(orders)
    return float(values[0]), float(observed[0]), as_large / n, same_again / n


def _check(y: FloatArray, n: int, columns: Mapping[str, FloatArray]) -> None:
    if n < 4:
        raise InputError(f"found {many(n, 'model')}; a test of what makes them alike needs 4.")
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
            f"the factors {listed(list(columns))} cannot be told apart in {many(n, 'model')}: one "
            "follows from the others; leave one out."
        )


def _units(labels: Sequence[str], group_of: IntArray | None, n: int) -> tuple[IntArray, str]:
    """(n_models,) which models are permuted together, and what they are called."""
    if group_of is not None and len(np.unique(group_of)) < n:
        values = np.array(labels, dtype=object)
        within = [set(values[group_of == group]) for group in np.unique(group_of)]
        if all(len(own) == 1 for own in within) and len(within) > len(set(values)):
            return np.unique(group_of, return_inverse=True)[1].astype(np.int64), "groups"
    return np.arange(n), "models"


def _orders(n: int, n_permutations: int, seed: int) -> IntArray:
    """(n_orders, n) every order of n things, or random ones; the first is the one they have."""
    if n <= EXACT:
        return np.array(list(itertools.permutations(range(n))), dtype=np.int64)
    rng = np.random.default_rng(seed)
    drawn = rng.permuted(np.tile(np.arange(n), (n_permutations, 1)), axis=1)
    return np.concatenate((np.arange(n)[None], drawn))


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
    value = np.divide(own @ beside, squares, out=np.zeros(len(own)), where=known)
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
        f"{test.n} {test.permuted} are too few to test {test.factor}: p cannot be below "
        f"{_rounded_down(test.smallest)}, whatever their similarities."
    )


def sentence(test: FactorTest) -> str:
    """What a test says, in a sentence."""
    if few := too_few(test):
        return few
    how = f"p = {test.p:.3f}" if test.p >= 0.001 else f"p = {test.p:.1g}"
    what = f"{test.value:+.2f}".replace("-", "−")
    beyond = f"two models of the same {test.factor} differ in their similarity by {what}"
    told = "" if test.p <= LEVEL else ", which these models do not tell from 0"
    return (
        f"The other factors given, {beyond} from two of another{told} ({how}; MRQAP, "
        f"{test.n_permutations:,} permutations of {test.n} {test.permuted})."
    )


def _rounded_down(p: float) -> str:
    return f"{math.floor(p * 1000 + 1e-9) / 1000:.3f}".rstrip("0")
