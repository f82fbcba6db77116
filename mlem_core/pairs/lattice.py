"""Every set of features, and how the patterns of each follow from those of a larger set.

What features explain (`mlem_core.pairs.crossfit`) is divided over them from its values for all
sets. Which patterns a set tells apart does not depend on the layers or on how often stimuli are
drawn: it is found once, and a draw then is a few passes over sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import factorial

import numpy as np

from mlem_core.base.typing import FloatArray, IntArray
from mlem_core.pairs.groups import group_rows

# With more patterns in all sets together their sums would take too much memory.
MOST_GROUPS = 2**18


@dataclass(frozen=True)
class Lattice:
    """The n_sets sets of n_features features, that of all first and that of none last.

    The groups of a set are the patterns that it tells apart, numbered through over all sets.

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
    def of(cls, codes: IntArray, priority: IntArray) -> Lattice | None:
        """That of some patterns; None where the sets have more than `MOST_GROUPS` groups.

        Parameters
        ----------
        codes, priority : see `mlem_core.pairs.crossfit.CrossFit`
        """
        shapes = codes.shape, priority.shape
        return _lattice(codes.tobytes(), priority.tobytes(), *shapes)

    def explained(self, sums: FloatArray) -> FloatArray:
        """What each set explains one way, (n_draws, n_sets, n_layers, n_layers).

        Parameters
        ----------
        sums : (n_patterns, 2, 1 + n_layers, n_folds, n_draws), see `mlem_core.pairs.crossfit`
        """
        from mlem_core.pairs.kernels.folds import explained_by_sets

        by_draw = np.ascontiguousarray(np.moveaxis(sums, -1, 0))
        n_layers = by_draw.shape[3] - 1
        found = np.empty((len(by_draw), len(self.source), n_layers, n_layers))
        parts = self.begins, self.source, self.edges, self.into, self.coarser
        explained_by_sets(by_draw, *parts, found)
        return found

    @cached_property
    def shares(self) -> FloatArray:
        """(n_features, n_sets) how much the value of a set counts in each Shapley value."""
        n, sizes = self.members.shape[1], self.members.sum(axis=1).astype(int)
        # A set counts for its members as the larger one, for the others as the smaller one.
        inside = [factorial(k - 1) * factorial(n - k) / factorial(n) if k else 0.0 for k in sizes]
        outside = [
            factorial(k) * factorial(n - k - 1) / factorial(n) if k < n else 0.0 for k in sizes
        ]
        return np.where(self.members > 0, np.array(inside)[:, None], -np.array(outside)[:, None]).T


@lru_cache(maxsize=4)
def _lattice(
    codes: bytes, priority: bytes, shape: tuple[int, int], layers: tuple[int, int]
) -> Lattice | None:
    patterns = np.frombuffer(codes, dtype=np.int64).reshape(shape)
    places = np.frombuffer(priority, dtype=np.int64).reshape(layers)
    n = shape[1]
    numbers = sorted(range(2**n), key=lambda s: (-s.bit_count(), s))
    at = {number: place for place, number in enumerate(numbers)}
    features = [np.flatnonzero([s >> f & 1 for f in range(n)]) for s in numbers]
    first, group = group_rows(patterns)
    own, into, source, sizes = [patterns[first]], [group], [0], [len(first)]
    for s in numbers[1:]:
        larger = [at[s | 1 << f] for f in range(n) if not s >> f & 1]
        source.append(min(larger, key=lambda place: sizes[place]))
        place = len(own)
        rest = np.isin(features[source[-1]], features[place])
        first, group = group_rows(own[source[-1]][:, rest])
        own.append(own[source[-1]][first][:, rest])
        into.append(group)
        sizes.append(len(first))
        if sum(sizes) > MOST_GROUPS:
            return None
    begins = np.concatenate(([0], np.cumsum(sizes)))
    coarser = np.full((layers[0], begins[-1]), -1)
    for place, s in enumerate(numbers[:-1]):
        groups = slice(begins[place], begins[place + 1])
        last = features[place][np.argmax(places[:, features[place]], axis=1)]
        for f in np.unique(last):
            without = at[s & ~(1 << int(f))]
            _, group = group_rows(own[place][:, features[place] != f])
            coarser[last == f, groups] = begins[without] + group
    members = np.array([[float(s >> f & 1) for f in range(n)] for s in numbers])
    edges = np.concatenate(([0], np.cumsum([len(group) for group in into])))
    return Lattice(members, begins, np.array(source), edges, np.concatenate(into), coarser)
