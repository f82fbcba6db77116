"""Shapley values over the features, of anything that a table of patterns has for a set of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import factorial

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.tables import group_rows, summed

# Up to this many features, and sets times patterns (of a layer pair a few seconds), every set of
# the features is looked at.
EXACT_FEATURES, MOST_SETS = 12, 2**25
# Beyond, this many random orders of the features and their reverses ...
ORDERS = 100
# ... or fewer, where that would be more work (patterns, features in an order, and features in a
# pattern): of a layer pair a few seconds.
FEWEST_ORDERS, MOST_WORK = 4, 3e8
# With more patterns in all sets together their sums would take too much memory.
MOST_GROUPS = 2**18


@dataclass(frozen=True)
class FeatureSet:
    """Some of the features, and the sums by the patterns that they tell apart.

    Attributes
    ----------
    features : (n_chosen,) which, by number
    codes : (n_groups, n_chosen) their distinct patterns
    sums : (n_groups, n) what was summed, by these patterns
    group : (n_patterns,) which of them each pattern of all features falls into
    """

    features: IntArray
    codes: IntArray
    sums: FloatArray
    group: IntArray


Value = Callable[[FeatureSet], FloatArray]


@dataclass(frozen=True)
class Shapley:
    """How the value of all features divides over them.

    Attributes
    ----------
    terms : (n_features, ...) Shapley values; their sum is the value of all features less that of
        none
    whole : (...) the value of all features
    error : None where exact; else (n_features, ...) standard errors of sampled terms
    """

    terms: FloatArray
    whole: FloatArray
    error: FloatArray | None = None


def shapley(
    codes: IntArray, sums: FloatArray, value: Value, *, orders: int | None = None, seed: int = 0
) -> Shapley:
    """Shapley values of the features, from sums by pattern.

    The value of a set of features is computed from the sums by the patterns that these features
    alone tell apart. Each set's sums come from those of a set with one feature more.

    Parameters
    ----------
    codes : (n_patterns, n_features) a number for each level of each feature distance
    sums : (n_patterns, n) what is summed when patterns fall together
    value : of a set of features; of any shape, the same for all sets
    orders : random orders of the features that are sampled, each with its reverse (which makes the
        error smaller); 0 looks at every set of features; None is as `sampled_orders` says

    Source: Shapley (1953); Castro, Gómez and Tejada (2009) for the sampled orders.
    """
    orders = sampled_orders(codes) if orders is None else orders
    if orders == 0:
        return _exact(codes, sums, value)
    return _sampled(codes, sums, value, orders, np.random.default_rng(seed))


def with_feature(
    codes: IntArray, sums: FloatArray, value: Value, feature: int, order: IntArray | None = None
) -> FloatArray:
    """The part of a feature's Shapley value that comes from the sets that it is in: (...).

    The rest, from the sets without it, does not change where its labels do.

    Parameters
    ----------
    codes, sums, value : as in `shapley`
    feature : by number
    order : (n_features,) only the sets along it and its reverse; None is every set
    """
    n = codes.shape[1]
    found: FloatArray = np.zeros(())
    if order is None:
        for subset in _subsets(codes, sums, feature):
            share = _shares(np.isin(np.arange(n), subset.features))[feature]
            found = found + share * np.asarray(value(subset))
        return found
    for way in (order, order[::-1]):
        upto = way[: int(np.flatnonzero(way == feature)[0]) + 1]
        found = found + np.asarray(value(_set_of(codes, sums, upto))) / 2
    return found


def of_feature(
    codes: IntArray, sums: FloatArray, value: Value, feature: int, order: IntArray
) -> FloatArray:
    """Value that a feature adds, the mean of an order of the features and its reverse: (...).

    `codes, sums, value, feature` as in `with_feature`.
    """
    found: FloatArray = with_feature(codes, sums, value, feature, order)
    for way in (order, order[::-1]):
        before = way[: int(np.flatnonzero(way == feature)[0])]
        found = found - np.asarray(value(_set_of(codes, sums, before))) / 2
    return found


def _set_of(codes: IntArray, sums: FloatArray, features: IntArray) -> FeatureSet:
    """The set of some features, given by number."""
    chosen = np.sort(features)
    first, group = group_rows(codes[:, chosen])
    return FeatureSet(chosen, codes[first][:, chosen], summed(group, sums), group)


def without_feature(codes: IntArray, sums: FloatArray, value: Value, order: IntArray) -> FloatArray:
    """Means of the values of the sets before each feature, in an order and its reverse.

    With `with_feature`, less these, what labels of a feature add where they are permuted.

    Returns
    -------
    (n_features, ...)
    """
    known: Known = {}
    before: FloatArray = np.zeros(())
    for way in (order, order[::-1]):
        values = _along(codes, sums, value, way, known)
        before = before + values[:-1][np.argsort(way)] / 2
    return before


def sampled_orders(codes: IntArray, orders: int = ORDERS, exact_up_to: int = EXACT_FEATURES) -> int:
    """Number of orders that are sampled of patterns (n_patterns, n_features); 0: every set.

    Of many patterns of many features they are fewer than `orders`, down to `FEWEST_ORDERS`.
    """
    n_patterns, n = codes.shape
    if n <= exact_up_to and n_patterns << n <= MOST_SETS:
        return 0
    return min(orders, max(FEWEST_ORDERS, int(MOST_WORK / (n_patterns * n**2))))


def _exact(codes: IntArray, sums: FloatArray, value: Value) -> Shapley:
    n = codes.shape[1]
    terms: FloatArray | None = None
    whole = np.empty(0)
    for subset in _subsets(codes, sums):
        set_value = np.asarray(value(subset))
        if terms is None:
            whole, terms = set_value, np.zeros((n, *set_value.shape))
        share = _shares(np.isin(np.arange(n), subset.features))
        terms += share.reshape(-1, *[1] * set_value.ndim) * set_value
    assert terms is not None
    return Shapley(terms, whole)


def _shares(chosen: NDArray[np.bool_]) -> FloatArray:
    """(n_features,) how much the value of a set counts in the Shapley value of each feature.

    A set counts for its members as the larger one, for the others as the smaller one.

    Parameters
    ----------
    chosen : (n_features,) whether each is in the set
    """
    n, size = len(chosen), int(chosen.sum())
    inside = factorial(size - 1) * factorial(n - size) / factorial(n) if size else 0.0
    outside = factorial(size) * factorial(n - size - 1) / factorial(n) if size < n else 0.0
    return np.where(chosen, inside, -outside)


def _subsets(codes: IntArray, sums: FloatArray, kept: int | None = None) -> Iterator[FeatureSet]:
    """Every set of features, or those with the feature `kept`, that of all features first."""
    n = codes.shape[1]
    # The features that make most patterns are left out first: then most sets are small tables.
    levels = [len(np.unique(column)) for column in codes.T]
    order = np.argsort(levels)[::-1]

    def visit(
        members: IntArray, set_codes: IntArray, set_sums: FloatArray, group: IntArray, start: int
    ) -> Iterator[FeatureSet]:
        yield FeatureSet(order[members], set_codes, set_sums, group)
        for leave in range(start, n):
            if order[leave] == kept:
                continue
            at = np.flatnonzero(members != leave)
            first, merged = group_rows(set_codes[:, at])
            yield from visit(
                members[at],
                set_codes[first][:, at],
                summed(merged, set_sums),
                merged[group],
                leave + 1,
            )

    first, group = group_rows(codes)
    yield from visit(np.arange(n), codes[first][:, order], summed(group, sums), group, 0)


# Values of sets that orders share: of none, one and all features.
Known = dict[frozenset[int], FloatArray]


def _along(
    codes: IntArray, sums: FloatArray, value: Value, order: IntArray, known: Known
) -> FloatArray:
    """Values of the first 0, 1, ... features of an order: (n_features + 1, ...)."""
    n = codes.shape[1]
    set_codes, set_sums, group = codes, sums, np.arange(len(codes))
    remaining, values = np.arange(n), list[FloatArray]()
    for leave in (None, *order[::-1]):
        if leave is not None:
            at = np.flatnonzero(remaining != leave)
            remaining = remaining[at]
            first, merged = group_rows(set_codes[:, at])
            set_codes, set_sums = set_codes[first][:, at], summed(merged, set_sums)
            group = merged[group]
        key = frozenset(int(f) for f in remaining)
        found = known.get(key)
        if found is None:
            found = np.asarray(value(FeatureSet(remaining, set_codes, set_sums, group)))
            if len(key) in (0, 1, n):
                known[key] = found
        values.append(found)
    return np.stack(values[::-1])


def _sampled(
    codes: IntArray, sums: FloatArray, value: Value, orders: int, rng: np.random.Generator
) -> Shapley:
    n, known = codes.shape[1], Known()
    mean: FloatArray = np.zeros(())
    squares: FloatArray = np.zeros(())
    for done in range(orders):
        order = rng.permutation(n)
        both = [
            np.diff(_along(codes, sums, value, way, known), axis=0)[np.argsort(way)]
            for way in (order, order[::-1])
        ]
        step = (both[0] + both[1]) / 2 - mean
        mean = mean + step / (done + 1)
        squares = squares + step**2 * done / (done + 1)
    error = np.sqrt(squares / max(1, orders - 1) / orders)
    return Shapley(mean, known[frozenset(range(n))], error)


@dataclass(frozen=True)
class FeatureSubsets:
    """The n_sets sets of n_features features, that of all first and that of none last.

    Which patterns a set tells apart does not depend on the layers or on how often stimuli are
    drawn: it is found once, and a draw then is a few passes over sums. The groups of a set are the
    patterns that it tells apart, numbered through over all sets.

    Attributes
    ----------
    members : (n_sets, n_features) whether a feature is in a set
    begins : (n_sets + 1,) the first group of each set
    source : (n_sets,) a set with one feature more, whose groups add up to those of this one; of the
        first set these are the patterns of all features
    edges : (n_sets + 1,) where the groups of each source begin in `into`
    into : group, within its set, that each group of the source falls into
    coarser : (n_layers, n_groups) the group of the pattern without its last feature in the order of
        priority of the layer; -1 where there is none
    """

    members: FloatArray
    begins: IntArray
    source: IntArray
    edges: IntArray
    into: IntArray
    coarser: IntArray

    @classmethod
    def of(cls, codes: IntArray, priority: IntArray) -> FeatureSubsets | None:
        """That of some patterns; None where the sets have more than `MOST_GROUPS` groups.

        Parameters
        ----------
        codes, priority : see `mlem_core.pairs.crossfit.CrossFit`
        """
        made = _subsets_of(codes.tobytes(), codes.shape)
        return None if made is None else made._of_layers(priority)

    def _of_layers(self, priority: IntArray) -> FeatureSubsets:
        """These sets, for layers with an order of priority each."""
        last = np.where(self.members > 0, priority[:, None], -1).argmax(axis=-1)
        groups = np.arange(self.begins[-1])
        of_group = np.repeat(last, np.diff(self.begins), axis=1)
        return replace(self, coarser=self.coarser[of_group, groups])

    def explained(self, sums: FloatArray) -> FloatArray:
        """What each set explains one way, (n_draws, n_sets, n_layers, n_layers).

        Parameters
        ----------
        sums : (n_patterns, 2, 1 + n_layers, n_folds, n_draws), see `mlem_core.pairs.crossfit`
        """
        from mlem_core.pairs.kernels.cells import explained_by_sets

        by_draw = np.ascontiguousarray(np.moveaxis(sums, -1, 0))
        n_layers = by_draw.shape[3] - 1
        found = np.empty((len(by_draw), len(self.source), n_layers, n_layers))
        parts = self.begins, self.source, self.edges, self.into, self.coarser
        explained_by_sets(by_draw, *parts, found)
        return found

    @cached_property
    def shares(self) -> FloatArray:
        """(n_features, n_sets) how much the value of a set counts in each Shapley value."""
        return np.stack([_shares(members) for members in self.members > 0]).T


@lru_cache(maxsize=4)
def _subsets_of(codes: bytes, shape: tuple[int, int]) -> FeatureSubsets | None:
    """The sets of some patterns, in which `coarser` is of the pattern without each feature."""
    patterns = np.frombuffer(codes, dtype=np.int64).reshape(shape)
    n = shape[1]
    numbers = sorted(range(2**n), key=lambda s: (-s.bit_count(), s))
    at = {number: place for place, number in enumerate(numbers)}
    members = np.array([[s >> f & 1 for f in range(n)] for s in numbers], dtype=bool)
    own, group = group_rows(patterns)
    # Of each set: a pattern of each group, and the group of each pattern.
    one_of, group_of = [own], [group.astype(np.int32)]
    into, source, begins = [group], [0], [0, len(own)]
    for place, s in enumerate(numbers[1:], 1):
        larger = {f: at[s | 1 << f] for f in range(n) if not s >> f & 1}
        nearest = min(larger.values(), key=lambda other: len(one_of[other]))
        first, merged = group_rows(patterns[one_of[nearest]][:, members[place]])
        source.append(nearest)
        into.append(merged)
        one_of.append(one_of[nearest][first])
        group_of.append(merged.astype(np.int32)[group_of[nearest]])
        begins.append(begins[-1] + len(first))
        if begins[-1] > MOST_GROUPS:
            return None
    coarser = np.full((n, begins[-1]), -1)
    for place, s in enumerate(numbers):
        for f in np.flatnonzero(members[place]):
            without = at[s & ~(1 << int(f))]
            groups = slice(begins[place], begins[place + 1])
            coarser[f, groups] = begins[without] + group_of[without][one_of[place]]
    edges = np.concatenate(([0], np.cumsum([len(group) for group in into])))
    arrays = np.array(begins), np.array(source), edges, np.concatenate(into), coarser
    return FeatureSubsets(members.astype(np.float64), *arrays)
