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

A factor may be numbers too, such as a size or a date, and several may be tested together. No two
models agree on a number: what is permuted is the part of a factor that the others do not explain,
as it is where labels leave fewer than 20 orders. Numbers that models of one label share more than
others do (intraclass correlation above `CLUSTERED`) are exchanged by these labels as a whole, by
those of the factor with most labels if there are several.

Sources: Krackhardt (1988); Dekker, Krackhardt and Snijders (2007), on double semi-partialing;
Winkler, Webster, Vidaurre, Nichols and Smith (2015), on permutations within and of whole blocks;
Snijders and Kenny (1999), on effects of actors; Shrout and Fleiss (1979), ICC(1), by the size of
groups as of Donner (1986).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mlem_core.base.text import fraction, listed, many
from mlem_core.base.typing import FloatArray, IntArray

# Up to as many as of 7 things (7! = 5,040) every order is looked at, else so many random ones.
EXACT, PERMUTATIONS = 7, 9_999
# With fewer different permutations than 20 no p can be as small, and there is no verdict.
LEVEL = 0.05
# Same group, as a factor beside those that are named.
GROUP = "group"
# Numbers that lie closer within labels than this intraclass correlation are no independent ones.
CLUSTERED = 0.3
# Labels, empty where unknown, or numbers, NaN where unknown; of each model.
Values = Sequence[str] | FloatArray
# A factor, or several that are tested together.
Factor = Values | tuple[Values, ...]
_SAME = 1e-9
_AT_ONCE = 2**22


class FactorTest(NamedTuple):
    """Effect of a factor on the similarity of two models that share its label, and its test.

    Attributes
    ----------
    factor : its name
    value : the coefficient: how much more similar two models (or groups) of the same label are
        than two of others, or of the same number than the two farthest apart, others given; NaN of
        several together
    t : the coefficient over its standard error by least squares; of several together √F
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


def same_label(values: Values) -> FloatArray:
    """(n, n) 1 where two models have the same label, else 0; of numbers 1 less their distance.

    Numbers are scaled to their range. What is unknown has no distance to anything.
    """
    if _is_numeric(values):
        apart = np.abs(np.subtract.outer(values, values))
        largest = np.nanmax(apart, initial=0.0)
        return 1.0 - np.nan_to_num(apart / (largest or 1.0))
    found = np.array(values, dtype=object)
    unknown = found == ""
    same = (found[:, None] == found[None, :]) | unknown[:, None] | unknown
    return np.asarray(same, dtype=np.float64)


def _is_numeric(values: Values) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind == "f"


def _parts(factor: Factor) -> tuple[Values, ...]:
    return factor if isinstance(factor, tuple) and not isinstance(factor[0], str) else (factor,)  # type: ignore[return-value]


def mrqap(
    similarity: FloatArray,
    factors: Mapping[str, Factor],
    *,
    n_permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> tuple[list[FactorTest], list[str]]:
    """Tests of each factor, given the others, and sentences on those that cannot be tested.

    Parameters
    ----------
    similarity : (n_models, n_models) symmetric; its diagonal is not looked at
    factors : of each factor the labels or numbers (n_models,), or several; the group of a model is
        one, where there are groups
    n_permutations : where not every order is looked at, so many random ones
    """
    found, notes = list[FactorTest](), list[str]()
    if why := _untestable(similarity):
        return found, [f"No test of {listed(list(factors))}: {why}"]
    for name in factors:
        if why := _inseparable(name, factors):
            notes.append(f"No test of {name}: {why}")
        else:
            found.append(_tested(similarity, factors, name, n_permutations, seed))
    return found, notes


def _tested(
    similarity: FloatArray,
    factors: Mapping[str, Factor],
    name: str,
    n_permutations: int,
    seed: int,
) -> FactorTest:
    own = _parts(factors[name])
    others = [part for key, factor in factors.items() if key != name for part in _parts(factor)]
    units, strata = _units(own, [_codes(part) for part in others if not _is_numeric(part)])
    every = (similarity, *map(same_label, (*own, *others)))
    within = _by_permutation(every, len(own), units, strata, n_permutations, seed)
    if within.smallest > LEVEL and np.ptp(strata):
        free = _by_permutation(every, len(own), units, 0 * strata, n_permutations, seed)
        within = min((within, free), key=lambda test: test.smallest)
    return within._replace(factor=name)


def _by_permutation(
    every: Sequence[FloatArray],
    n_own: int,
    units: IntArray,
    strata: IntArray,
    n_permutations: int,
    seed: int,
) -> FactorTest:
    """The test of the first `n_own` matrices after the similarities, those behind them given.

    Parameters
    ----------
    every : similarities and matrices of factors, each (n_models, n_models)
    units, strata : see `_units`
    """
    members = np.eye(len(strata))[units]
    members /= members.sum(axis=0)
    first, second = np.triu_indices(len(strata), 1)
    alone = np.eye(len(units), dtype=bool)
    known = (np.where(alone, 0.0, every[0]), *every[1:])
    y, *columns = ((members.T @ one @ members)[first, second] for one in known)
    own, others = np.stack(columns[:n_own]), columns[n_own:]
    n_models = np.bincount(units)
    if any(np.ptp(n_models[strata == stratum]) for stratum in strata):
        # How similar a group is to all others varies less where it is large, and is taken out.
        others += [*np.eye(len(strata))[:, first] + np.eye(len(strata))[:, second]]
    left, sizes, _ = np.linalg.svd(np.column_stack((np.ones(len(y)), *others)), False)
    basis = left[:, sizes > _SAME * sizes[0]]
    beside, free = y - basis @ (basis.T @ y), len(y) - basis.shape[1] - n_own

    def of_units(values: FloatArray) -> FloatArray:
        matrix = np.zeros((len(values), len(strata), len(strata)))
        matrix[:, first, second] = matrix[:, second, first] = values
        return matrix

    raw, rest = of_units(own), of_units(own - (own @ basis) @ basis.T)
    orders = _orders(strata, n_permutations, seed)
    value = observed = 0.0
    as_large, different = 0, set[bytes]()
    size = max(1, _AT_ONCE // (n_own * len(y)))
    for start in range(0, len(orders), size):
        drawn = orders[start : start + size]
        a, b = drawn[:, first], drawn[:, second]
        different.update(map(np.ndarray.tobytes, raw[:, a, b].swapaxes(0, 1).round(9)))
        values, t = _statistics(rest[:, a, b].swapaxes(0, 1), beside, basis, max(1, free))
        if start == 0:  # the labels as they are
            value, observed = float(values[0]), float(t[0])
        as_large += int((np.abs(t) >= abs(observed) * (1 - _SAME)).sum())
    # With others that follow every pair nothing is left to compare.
    smallest = 1 / len(different) if free > 0 else 1.0
    p = as_large / len(orders) if smallest <= LEVEL else np.nan
    permuted = "models" if len(strata) == len(units) else "groups"
    return FactorTest("", value, observed, p, smallest, permuted, len(strata), len(orders))


def _untestable(similarity: FloatArray) -> str:
    """Why similarities cannot be tested; "" where they can."""
    n = len(similarity)
    y = similarity[np.triu_indices(n, 1)]
    if n < 4:
        return f"found {many(n, 'model')}; a test of their similarity needs 4."
    if not np.isfinite(y).all() or not np.ptp(y) > 0:
        return (
            "the similarities of the models are all the same or not defined; expected numbers that "
            "differ."
        )
    return ""


def _inseparable(name: str, factors: Mapping[str, Factor]) -> str:
    """Why a factor cannot be tested beside the others; "" where it can."""
    parts = {key: _parts(factor) for key, factor in factors.items()}
    n = len(parts[name][0])
    pairs = np.triu_indices(n, 1)
    columns = {
        key: np.stack([same_label(one)[pairs] for one in own], 1) for key, own in parts.items()
    }
    for column in columns[name].T:
        if not np.ptp(column) > 0:
            what = "the same label in all models" if column.any() else "another label in each model"
            return f"the factor {name!r} has {what}; expected some that share one."
    others = [np.ones((len(pairs[0]), 1)), *(columns[key] for key in columns if key != name)]
    without = np.column_stack(others)
    whole = np.column_stack((without, columns[name]))
    gained = np.linalg.matrix_rank(whole) - np.linalg.matrix_rank(without)
    if len(pairs[0]) <= whole.shape[1] or gained < columns[name].shape[1]:
        return (
            f"the factors {listed(list(factors))} cannot be separated in {many(n, 'model')}: one "
            "follows from the others; leave one out."
        )
    return ""


def _codes(labels: Values) -> IntArray:
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)


def intraclass_correlation(numbers: FloatArray, codes: IntArray) -> float:
    """Intraclass correlation of numbers (n,) within codes (n,): ICC(1), 0 without groups."""
    known = np.isfinite(numbers)
    values, own = numbers[known], np.unique(codes[known], return_inverse=True)[1]
    sizes = np.bincount(own)
    n, k = len(values), len(sizes)
    if k < 2 or k == n:
        return 0.0
    means = np.bincount(own, values) / sizes
    within = ((values - means[own]) ** 2).sum() / (n - k)
    between = (sizes * (means - values.mean()) ** 2).sum() / (k - 1)
    size = (n - (sizes**2).sum() / n) / (k - 1)
    return float((between - within) / ((between + (size - 1) * within) or 1.0))


def _units(own: Sequence[Values], others: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Units of models that have the values of a factor together, and those that exchange them.

    Parameters
    ----------
    own : of the factor
    others : of each other factor of labels these (n_models,), from 0

    Returns
    -------
    (n_models,) the unit of each model, and (n_units,) the stratum of each unit, from 0
    """
    unit = np.arange(len(own[0]))
    roles = np.column_stack((np.zeros_like(unit), *others))
    labels = [_codes(part) for part in own if not _is_numeric(part)]
    numbers = [np.asarray(part, dtype=np.float64) for part in own if _is_numeric(part)]
    shared = [
        at
        for at, codes in enumerate(others, 1)
        if any(intraclass_correlation(part, codes) > CLUSTERED for part in numbers)
    ]
    finest = max(shared, key=lambda at: int(roles[:, at].max()), default=0)
    for at, codes in enumerate(others, 1):
        whole = at == finest
        for level in np.unique(codes):
            inside = codes == level
            together = labels and all(np.ptp(part[inside]) == 0 for part in labels)
            if whole or (together and not numbers):
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
    """Coefficient and t (n_orders,) of predictors (n_orders, n_own, n_pairs), the others given.

    Of several predictors √F, and no coefficient.

    Parameters
    ----------
    beside : (n_pairs,) the similarities less what the others explain
    basis : (n_pairs, n_others) orthonormal, of the others
    free : degrees of freedom of what is left
    """
    own = drawn - (drawn @ basis) @ basis.T
    gram, moment = own @ own.swapaxes(1, 2), own @ beside
    n_own = drawn.shape[1]
    known = np.linalg.eigvalsh(gram)[:, 0] > _SAME
    gram[~known] = np.eye(n_own)
    value = np.linalg.solve(gram, moment[..., None])[..., 0]
    explained = (value * moment).sum(axis=1)
    rest = np.maximum(beside @ beside - explained, 0.0) / free
    size = np.sqrt(np.maximum(explained, 0.0) / n_own)
    t = np.divide(size, np.sqrt(rest), out=np.full(len(own), np.inf), where=rest > 1e-30)
    coefficient = value[:, 0] if n_own == 1 else np.full(len(own), np.nan)
    sign = np.where(coefficient < 0, -1.0, 1.0)
    return np.where(known, coefficient, np.nan), np.where(known, sign * t, 0.0)


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
    how = f"p = {fraction(test.p, 3)}" if test.p >= 0.001 else f"p = {test.p:.1g}"
    what = "+" * (test.value > 0) + fraction(test.value)
    reliably = "reliably" if test.p <= LEVEL else "not reliably"
    return (
        f"Controlling for the other factors, having the same {test.factor} is {reliably} "
        f"associated with similarity ({what}, {how}; MRQAP, {test.n_permutations:,} permutations "
        f"of {test.n} {test.permuted} within the other factors)."
    )
