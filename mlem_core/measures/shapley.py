"""Shapley values over the features, of anything that a table of patterns has for a set of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import factorial

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.crossfit import FeatureSet
from mlem_core.pairs.tables import group_rows

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

Value = Callable[[FeatureSet], FloatArray]


@dataclass(frozen=True)
class Shapley:
    """How the value of all features divides over them.

    terms : (n_features, ...) Shapley values; their sum is the value of all features less that of
        none
    whole : (...) the value of all features
    error : None where exact; else (n_features, ...) standard errors of sampled terms
    """

    terms: FloatArray
    whole: FloatArray
    error: FloatArray | None = None


def shapley(
    whole: FeatureSet, value: Value, *, orders: int | None = None, seed: int = 0
) -> Shapley:
    """Shapley values of the features, from sums by pattern.

    The value of a set of features is computed from the sums by the patterns that these features
    alone tell apart. Each set's sums come from those of a set with one feature more.

    Parameters
    ----------
    whole : all features
    value : of a set of features; of any shape, the same for all sets
    orders : random orders of the features that are sampled, each with its reverse (which makes the
        error smaller); 0 looks at every set of features; None is as `sampled_orders` says

    Source: Shapley (1953); Castro, Gómez and Tejada (2009) for the sampled orders.
    """
    n = len(whole.features)
    orders = sampled_orders(whole.codes) if orders is None else orders
    mean: FloatArray = np.zeros(())
    squares: FloatArray = np.zeros(())
    if orders == 0:
        of_all = np.empty(0)
        for subset in _subsets(whole):
            own = np.asarray(value(subset))
            mean = mean + np.multiply.outer(_shares(_chosen(subset, n)), own)
            of_all = own if len(subset.features) == n else of_all
        return Shapley(mean, of_all)
    rng, known = np.random.default_rng(seed), Known()
    for done in range(orders):
        both = [
            np.diff(_along(whole, value, way, known), axis=0)[np.argsort(way)]
            for way in _both_ways(rng.permutation(n))
        ]
        step = (both[0] + both[1]) / 2 - mean
        mean = mean + step / (done + 1)
        squares = squares + step**2 * done / (done + 1)
    error = np.sqrt(squares / max(1, orders - 1) / orders)
    return Shapley(mean, known[frozenset(range(n))], error)


def with_feature(
    whole: FeatureSet, value: Value, feature: int, order: IntArray | None = None
) -> FloatArray:
    """The part of a feature's Shapley value that comes from the sets that it is in: (...).

    The rest, from the sets without it, does not change where its labels do.

    Parameters
    ----------
    whole, value : as in `shapley`
    feature : by number
    order : (n_features,) only the sets along it and its reverse; None is every set
    """
    found: FloatArray = np.zeros(())
    if order is None:
        for subset in _subsets(whole, feature):
            share = _shares(_chosen(subset, len(whole.features)))[feature]
            found = found + share * np.asarray(value(subset))
        return found
    for way in _both_ways(order):
        found = found + _value_before(whole, value, way, _place(way, feature) + 1) / 2
    return found


def of_feature(whole: FeatureSet, value: Value, feature: int, order: IntArray) -> FloatArray:
    """Value that a feature adds, the mean of an order of the features and its reverse: (...).

    `whole, value, feature` as in `with_feature`.
    """
    found: FloatArray = with_feature(whole, value, feature, order)
    for way in _both_ways(order):
        found = found - _value_before(whole, value, way, _place(way, feature)) / 2
    return found


def without_feature(whole: FeatureSet, value: Value, order: IntArray) -> FloatArray:
    """Means of the values of the sets before each feature, in an order and its reverse.

    With `with_feature`, less these, what labels of a feature add where they are permuted.

    Returns (n_features, ...).
    """
    known: Known = {}
    before: FloatArray = np.zeros(())
    for way in _both_ways(order):
        before = before + _along(whole, value, way, known)[:-1][np.argsort(way)] / 2
    return before


def _both_ways(order: IntArray) -> tuple[IntArray, IntArray]:
    return order, order[::-1]


def _place(order: IntArray, feature: int) -> int:
    return int(np.flatnonzero(order == feature)[0])


def _value_before(whole: FeatureSet, value: Value, order: IntArray, place: int) -> FloatArray:
    """Value of the features before a place of an order."""
    return np.asarray(value(whole.only(np.sort(order[:place]))))


def _chosen(subset: FeatureSet, n: int) -> NDArray[np.bool_]:
    """(n_features,) whether each of n features is in a set."""
    return np.isin(np.arange(n), subset.features)


def sampled_orders(codes: IntArray, orders: int = ORDERS, exact_up_to: int = EXACT_FEATURES) -> int:
    """Number of orders that are sampled of patterns (n_patterns, n_features); 0: every set.

    Of many patterns of many features they are fewer than `orders`, down to `FEWEST_ORDERS`.
    """
    n_patterns, n = codes.shape
    if n <= exact_up_to and n_patterns << n <= MOST_SETS:
        return 0
    return min(orders, max(FEWEST_ORDERS, int(MOST_WORK / (n_patterns * n**2))))


def _shares(chosen: NDArray[np.bool_]) -> FloatArray:
    """(n_features,) how much the value of a set counts in the Shapley value of each feature.

    A set counts for its members as the larger one, for the others as the smaller one.

    `chosen` says (n_features,) whether each is in the set.
    """
    n, size = len(chosen), int(chosen.sum())
    inside = factorial(size - 1) * factorial(n - size) / factorial(n) if size else 0.0
    outside = factorial(size) * factorial(n - size - 1) / factorial(n) if size < n else 0.0
    return np.where(chosen, inside, -outside)


def _subsets(whole: FeatureSet, kept: int | None = None) -> Iterator[FeatureSet]:
    """Every set of features, or those with the feature `kept`, that of all features first."""
    # The features that make most patterns are left out first: then most sets are small tables.
    order = np.argsort([len(np.unique(column)) for column in whole.codes.T])[::-1]

    def visit(subset: FeatureSet, start: int) -> Iterator[FeatureSet]:
        yield subset
        for leave in range(start, len(order)):
            if order[leave] != kept:
                rest = np.flatnonzero(subset.features != order[leave])
                yield from visit(subset.only(rest), leave + 1)

    merged = whole.only(np.arange(len(order)))
    yield from visit(replace(merged, features=order, codes=merged.codes[:, order]), 0)


# Values of sets that orders share: of none, one and all features.
Known = dict[frozenset[int], FloatArray]


def _along(whole: FeatureSet, value: Value, order: IntArray, known: Known) -> FloatArray:
    """Values of the first 0, 1, ... features of an order: (n_features + 1, ...)."""
    subset, values = whole, list[FloatArray]()
    for leave in (None, *order[::-1]):
        if leave is not None:
            subset = subset.only(np.flatnonzero(subset.features != leave))
        key = frozenset(subset.features.tolist())
        found = known.get(key)
        if found is None:
            found = np.asarray(value(subset))
            if len(key) in (0, 1, len(order)):
                known[key] = found
        values.append(found)
    return np.stack(values[::-1])


@dataclass(frozen=True)
class FeatureSubsets:
    """The n_sets sets of n_features features, that of all first and that of none last.

    Which patterns a set tells apart does not depend on the layers or on how often stimuli are
    drawn: it is found once, and a draw then is a few passes over sums. The groups of a set are the
    patterns that it tells apart, numbered through over all sets.

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

        `sums` are (n_patterns, 2, 1 + n_layers, n_folds, n_draws), see `mlem_core.pairs.crossfit`.
        """
        from mlem_core.pairs.kernels.cells import explained_by_sets

        by_draw = np.ascontiguousarray(np.moveaxis(sums, -1, 0))
        n_layers = by_draw.shape[3] - 1
        found = np.empty((len(by_draw), len(self.source), n_layers, n_layers))
        parts = self.begins, self.source, self.edges, self.into, self.coarser
        explained_by_sets(by_draw, parts, found)
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
