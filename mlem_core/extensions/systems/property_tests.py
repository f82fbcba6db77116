"""Permutation tests of the properties that make systems similar, of each beside the others.

The similarities of all pairs of systems are regressed on whether the two have the same label, of
every property at once. Pairs that share a system are not independent, so that the p-values are
those of permutations of systems: the t of a property is compared with those of its labels
exchanged. Some systems are measured less well than others, which is no property of pairs: an effect
of each system is taken out (as of actors in the social relations model), and the standard error in
t is that of sums over the pairs of each system, which need not vary alike.

Labels are exchanged only where that leaves every other property as it is: systems exchange them
that agree on all other properties. Where all systems of one label of another property have one
label of the property (it is nested there), they are no replicates of each other: they keep one
label together, as a whole group, which exchanges it with other such groups (one system alone is one
as well). Groups count once each: what is regressed is the mean similarity of their systems. Where
so few exchange labels that no pairs would be left, effects of these are taken out only if their
sizes differ. So the other properties explain as much in each permutation, and permuting the
labels, their part that the others do not explain (double semi-partialing) or the residuals
(Freedman and Lane) is the same.

A property may be numbers too, such as a size or a date, and several may be tested together. No two
systems agree on a number: what is permuted is the part of a property that the others do not
explain, as it is where labels leave fewer than 20 orders. Numbers that systems of one label share
more than others do (intraclass correlation above `CLUSTERED`) are exchanged by these labels as a
whole, by those of the property with most labels if there are several.

Sources: Krackhardt (1988); Dekker, Krackhardt and Snijders (2007), on double semi-partialing;
Winkler, Webster, Vidaurre, Nichols and Smith (2015), on permutations within and of whole blocks;
Snijders and Kenny (1999), on effects of actors; Aronow, Samii and Assenova (2015), on the error of
regressions on pairs; DiCiccio and Romano (2017), on permutations of such a t; Shrout and Fleiss
(1979), ICC(1), by the size of groups as of Donner (1986).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mlem_core.base.text import listed, many
from mlem_core.base.typing import FloatArray, IntArray

# Up to as many as of 7 things (7! = 5,040) every order is looked at, else so many random ones.
EXACT, PERMUTATIONS = 7, 999
# With fewer different permutations than 20 no p can be as small, and there is no verdict.
LEVEL = 0.05
# Same group, as a property beside those that are named.
GROUP = "group"
# Numbers that lie closer within labels than this intraclass correlation are no independent ones.
CLUSTERED = 0.3
# Labels, empty where unknown, or numbers, NaN where unknown; of each system.
Values = Sequence[str] | FloatArray
# A property, or several that are tested together.
Factor = Values | tuple[Values, ...]
_SAME = 1e-9
_AT_ONCE = 2**22


class PropertyTest(NamedTuple):
    """Test of whether two systems of the same label are more, or less, similar, others given.

    Attributes
    ----------
    name : of the property, or of several that are tested together
    t : size of the coefficient over its standard error, see the module; of several together the
        square root of Wald's statistic
    p : two-sided, the share of permutations with as large a t; never 0; NaN where `smallest` is
        above `LEVEL`
    smallest : the smallest p that these systems allow, whatever their similarities: 1 over the
        number of different permutations
    """

    name: str
    t: float
    p: float
    smallest: float


def same_label(values: Values) -> FloatArray:
    """(n, n) 1 where two systems have the same label, else 0; of numbers 1 less their distance.

    Numbers are scaled to their range. What is unknown has no distance to anything.
    """
    if _is_numeric(values):
        apart = np.abs(np.subtract.outer(values, values))
        largest = np.nanmax(apart, initial=0.0)
        return 1.0 - np.nan_to_num(apart / (largest or 1.0))
    labels = np.array(values, dtype=object)
    unknown = labels == ""
    same = (labels[:, None] == labels[None, :]) | unknown[:, None] | unknown
    return np.asarray(same, dtype=np.float64)


def _is_numeric(values: Values) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind == "f"


def _parts(factor: Factor) -> tuple[Values, ...]:
    return factor if isinstance(factor, tuple) and not isinstance(factor[0], str) else (factor,)  # type: ignore[return-value]


def permutation_tests(
    similarity: FloatArray,
    properties: Mapping[str, Factor],
    *,
    n_permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> tuple[list[PropertyTest], list[str]]:
    """Tests of each property, given the others, and sentences on those that cannot be tested.

    Parameters
    ----------
    similarity : (n_systems, n_systems) symmetric; its diagonal is not looked at
    properties : of each property the labels or numbers (n_systems,), or several; the group of a
        system is one, where there are groups
    n_permutations : where not every order is looked at, so many random ones
    """
    tests, notes = list[PropertyTest](), list[str]()
    n, untestable = len(similarity), f"No test of {listed(list(properties))}: "
    pairs = similarity[np.triu_indices(n, 1)]
    if n < 4:
        return tests, [
            f"{untestable}found {many(n, 'system')}; a test of their similarity needs 4."
        ]
    if not np.isfinite(pairs).all() or not np.ptp(pairs) > 0:
        return tests, [
            f"{untestable}the similarities of the systems are all the same or not defined; "
            "expected numbers that differ."
        ]
    for name in properties:
        if why := _inseparable(name, properties):
            notes.append(f"No test of {name}: {why}")
            continue
        columns, others = _parts(properties[name]), list[Values]()
        for other, factor in properties.items():
            others += _parts(factor) if other != name else ()
        units, strata = _units(columns, [_codes(part) for part in others if not _is_numeric(part)])
        every = (similarity, *map(same_label, (*columns, *others)))
        test = _permutation_test(every, len(columns), units, strata, n_permutations, seed)
        if test.smallest > LEVEL and np.ptp(strata):
            free = _permutation_test(every, len(columns), units, 0 * strata, n_permutations, seed)
            test = min((test, free), key=lambda test: test.smallest)
        tests.append(test._replace(name=name))
    return tests, notes


def _permutation_test(
    every: Sequence[FloatArray],
    n_own: int,
    units: IntArray,
    strata: IntArray,
    n_permutations: int,
    seed: int,
) -> PropertyTest:
    """The test of the first `n_own` matrices after the similarities, those behind them given.

    Each of `every` is (n_systems, n_systems); units and strata are those of `_units`.
    """
    members = np.eye(len(strata))[units]
    members /= members.sum(axis=0)
    first, second = np.triu_indices(len(strata), 1)
    known = (np.where(np.eye(len(units), dtype=bool), 0.0, every[0]), *every[1:])
    y, *columns = ((members.T @ matrix @ members)[first, second] for matrix in known)
    predictors, others = np.stack(columns[:n_own]), columns[n_own:]
    n_systems, ends = np.bincount(units), np.eye(len(strata))[first] + np.eye(len(strata))[second]
    all_others = np.column_stack((*others, ends))
    enough = len(y) - n_own - np.linalg.matrix_rank(all_others) >= len(strata)
    # How similar a group is to all others varies less where it is large.
    if enough or any(np.ptp(n_systems[strata == stratum]) for stratum in strata):
        others += [*ends.T]
    left, sizes, _ = np.linalg.svd(np.column_stack((np.ones(len(y)), *others)), False)
    basis = left[:, sizes > _SAME * sizes[0]]
    residuals, free = y - basis @ (basis.T @ y), len(y) - basis.shape[1] - n_own

    def unit_matrices(values: FloatArray) -> FloatArray:
        matrix = np.zeros((len(values), len(strata), len(strata)))
        matrix[:, first, second] = matrix[:, second, first] = values
        return matrix

    raw = unit_matrices(predictors)
    rest = unit_matrices(predictors - (predictors @ basis) @ basis.T)
    orders = _orders(strata, n_permutations, seed)
    observed, as_large, different = 0.0, 0, set[bytes]()
    size = max(1, _AT_ONCE // (n_own * len(y)))
    for start in range(0, len(orders), size):
        drawn = orders[start : start + size]
        a, b = drawn[:, first], drawn[:, second]
        different.update(map(np.ndarray.tobytes, raw[:, a, b].swapaxes(0, 1).round(9)))
        t = _statistics(rest[:, a, b].swapaxes(0, 1), residuals, basis, ends)
        if start == 0:  # the labels as they are
            observed = float(t[0])
        as_large += int((t >= observed * (1 - _SAME)).sum())
    # With others that follow every pair nothing is left to compare.
    smallest = 1 / len(different) if free > 0 else 1.0
    p = as_large / len(orders) if smallest <= LEVEL else np.nan
    return PropertyTest("", observed, p, smallest)


def _inseparable(name: str, properties: Mapping[str, Factor]) -> str:
    """Why a property cannot be tested beside the others; "" where it can."""
    parts = {key: _parts(factor) for key, factor in properties.items()}
    n = len(parts[name][0])
    pairs = np.triu_indices(n, 1)
    columns = {
        key: np.stack([same_label(values)[pairs] for values in columns_of_part], 1)
        for key, columns_of_part in parts.items()
    }
    for column in columns[name].T:
        if not np.ptp(column) > 0:
            what = "the same label in all" if column.any() else "another label in each"
            return f"the property {name!r} has {what}; expected systems that share one."
    others = [np.ones((len(pairs[0]), 1)), *(columns[key] for key in columns if key != name)]
    without = np.column_stack(others)
    together = np.column_stack((without, columns[name]))
    gained = np.linalg.matrix_rank(together) - np.linalg.matrix_rank(without)
    if len(pairs[0]) <= together.shape[1] or gained < columns[name].shape[1]:
        return (
            f"the properties {listed(list(properties))} cannot be separated in "
            f"{many(n, 'system')}: one follows from the others; leave one out."
        )
    return ""


def _codes(labels: Values) -> IntArray:
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)


def intraclass_correlation(numbers: FloatArray, codes: IntArray) -> float:
    """Intraclass correlation of numbers (n,) within codes (n,): ICC(1), 0 without groups."""
    known = np.isfinite(numbers)
    values, groups = numbers[known], np.unique(codes[known], return_inverse=True)[1]
    sizes = np.bincount(groups)
    n, k = len(values), len(sizes)
    if k < 2 or k == n:
        return 0.0
    means = np.bincount(groups, values) / sizes
    within = ((values - means[groups]) ** 2).sum() / (n - k)
    between = (sizes * (means - values.mean()) ** 2).sum() / (k - 1)
    size = (n - (sizes**2).sum() / n) / (k - 1)
    return float((between - within) / ((between + (size - 1) * within) or 1.0))


def _units(values: Sequence[Values], others: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Units of systems that have the values of a property together, and those that exchange them.

    (n_systems,) the unit of each system, and (n_units,) the stratum of each unit, from 0. `others`
    are the labels (n_systems,) of each other property that has labels, as numbers from 0.
    """
    unit = np.arange(len(values[0]))
    roles = np.column_stack((np.zeros_like(unit), *others))
    labels = [_codes(part) for part in values if not _is_numeric(part)]
    numbers = [np.asarray(part, dtype=np.float64) for part in values if _is_numeric(part)]
    shared = [
        at
        for at, codes in enumerate(others, 1)
        if any(intraclass_correlation(part, codes) > CLUSTERED for part in numbers)
    ]
    finest = max(shared, key=lambda at: int(roles[:, at].max()), default=0)
    for at, codes in enumerate(others, 1):
        is_finest = at == finest
        for level in np.unique(codes):
            inside = codes == level
            together = labels and all(np.ptp(part[inside]) == 0 for part in labels)
            if is_finest or (together and not numbers):
                unit[np.isin(unit, unit[inside])] = unit[inside].min()
                roles[inside, at] = -1
    units = np.unique(unit, return_inverse=True)[1]
    of_units = [tuple(np.unique(roles[unit == at], axis=0).flat) for at in np.unique(unit)]
    known = list(dict.fromkeys(of_units))
    return units, np.array([known.index(roles_of_unit) for roles_of_unit in of_units])


def _orders(strata: IntArray, n_permutations: int, seed: int) -> IntArray:
    """(n_orders, n_units) every order of units within strata, or random ones.

    The first is the one that they have.
    """
    blocks = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    n_orders = math.prod(math.factorial(len(block)) for block in blocks)
    if n_orders <= math.factorial(EXACT):
        every = itertools.product(*map(itertools.permutations, blocks))
        orders = np.empty((n_orders, len(strata)), dtype=np.int64)
        orders[:, np.concatenate(blocks)] = [list(itertools.chain(*order)) for order in every]
        return orders
    rng = np.random.default_rng(seed)
    orders = np.tile(np.arange(len(strata)), (n_permutations + 1, 1))
    for block in blocks:
        orders[1:, block] = rng.permuted(orders[1:, block], axis=1)
    return orders


def _statistics(
    drawn: FloatArray, residuals: FloatArray, basis: FloatArray, ends: FloatArray
) -> FloatArray:
    """Size of t (n_orders,) of predictors (n_orders, n_own, n_pairs), the others given.

    Of several predictors the square root of Wald's statistic.

    Parameters
    ----------
    residuals : (n_pairs,) the similarities less what the others explain
    basis : (n_pairs, n_others) orthonormal, of the others
    ends : (n_pairs, n_units) 1 at both units of a pair, else 0
    """
    predictors = drawn - (drawn @ basis) @ basis.T
    gram, moment = predictors @ predictors.swapaxes(1, 2), predictors @ residuals
    known = np.linalg.eigvalsh(gram)[:, 0] > _SAME
    gram[~known] = np.eye(drawn.shape[1])
    value = np.linalg.solve(gram, moment[..., None])
    rest = residuals - (predictors * value).sum(axis=1)
    of_units = (predictors * rest[:, None]) @ ends
    spread = np.linalg.pinv(of_units @ of_units.swapaxes(1, 2), hermitian=True)
    t = np.sqrt(np.maximum(np.einsum("oi,oij,oj->o", moment, spread, moment), 0.0))
    return np.where(known, np.where((rest**2).sum(axis=1) > 1e-30, t, np.inf), 0.0)
