"""Choosing sentences so that the features of their words are as little correlated as can be."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Value = str | int | None
Row = tuple[Value, ...]
Condition = tuple[int, Value]
# A value of a feature (given by its number), and the words among which its share is taken: those
# that meet the conditions and have the feature (for the share of None: whether or not).
Share = tuple[Condition, tuple[Condition, ...]]
T = TypeVar("T")

CANDIDATES = 60
BALANCE = 0.1


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """One of the items. Only `rng.random` is used: its numbers are the same in every Python."""
    return items[int(rng.random() * len(items))]


class PairSums:
    """Sums over all pairs of chosen stimuli from which the feature correlations follow.

    Kept up to date as stimuli come in, in whole numbers, so that the choice does not depend on
    how a processor rounds. Ordered features (int values) have the distance |a - b|, nominal ones
    1 where both values are there and differ, else 0.

    Parameters
    ----------
    types : the distinct rows of feature values a stimulus can have
    targets : the share that a value should have
    """

    def __init__(self, types: Sequence[Row], targets: Mapping[Share, float]) -> None:
        columns = list(zip(*types, strict=True))
        self.n_features = len(columns)
        self.ordered = [all(isinstance(v, int) for v in column) for column in columns]
        self.codes = np.array(
            [
                column if ordered else _codes(column)
                for column, ordered in zip(columns, self.ordered, strict=True)
            ],
            dtype=np.int64,
        ).T
        self.left, self.right = np.triu_indices(self.n_features)
        self.distances: dict[int, NDArray[np.int64]] = {}
        width = self.n_features + len(self.left)
        self.to_chosen = np.zeros((len(types), width), dtype=np.int64)
        self.sums = np.zeros(width, dtype=np.int64)
        self.n = 0
        self.shares = np.array(list(targets.values()))
        self.marks = np.array(
            [
                [_meets(t, given) and t[f] == value for (f, value), given in targets]
                + [
                    _meets(t, given) and (value is None or t[f] is not None)
                    for (f, value), given in targets
                ]
                for t in types
            ],
            dtype=np.int64,
        )
        self.marked = np.zeros(self.marks.shape[1], dtype=np.int64)

    def _distances(self, number: int) -> NDArray[np.int64]:
        """(n_types, width): distances of all types to one, and the products of these distances."""
        if number not in self.distances:
            apart = np.abs(self.codes - self.codes[number])
            here = (self.codes >= 0) & (self.codes[number] >= 0)
            apart = np.where(self.ordered, apart, (apart > 0) & here)
            products = apart[:, self.left] * apart[:, self.right]
            self.distances[number] = np.hstack([apart, products])
        return self.distances[number]

    def add(self, numbers: Sequence[int]) -> None:
        """Take in the words of a sentence, given by the numbers of their types."""
        for number in numbers:
            self.sums += self.to_chosen[number]
            self.to_chosen += self._distances(number)
            self.marked += self.marks[number]
            self.n += 1

    def correlations(self, sums: NDArray[np.int64], n: int) -> NDArray[np.float64]:
        """(..., n_features (n_features + 1) / 2): correlations of the distances over pairs."""
        means = sums / (n * (n - 1) / 2)
        first = means[..., : self.n_features]
        covariance = means[..., self.n_features :] - first[..., self.left] * first[..., self.right]
        variance = np.maximum(covariance[..., self.left == self.right], 1e-9)
        spread = np.sqrt(variance[..., self.left] * variance[..., self.right])
        return np.asarray(covariance / spread)

    def cost(self, sentences: NDArray[np.int64]) -> NDArray[np.float64]:
        """What each sentence, (n_sentences, n_words) types, would make of the chosen set."""
        sums = self.sums + self.to_chosen[sentences].sum(axis=1)
        r = self.correlations(sums, self.n + sentences.shape[1])
        square = r[:, self.left != self.right] ** 2
        marked = self.marked + self.marks[sentences].sum(axis=1)
        k = len(self.shares)
        off = (marked[:, :k] / np.maximum(marked[:, k:], 1) - self.shares) ** 2
        # Added column by column: the order of a reduction differs between processors.
        total: NDArray[np.float64] = sum((square * square).T) + BALANCE * sum(off.T)
        return total


def _meets(row: Row, conditions: tuple[Condition, ...]) -> bool:
    return all(row[feature] == value for feature, value in conditions)


def _codes(column: Sequence[Value]) -> list[int]:
    levels = sorted({str(value) for value in column if value is not None})
    return [-1 if value is None else levels.index(str(value)) for value in column]


def choose(
    sentences: Sequence[Sequence[Row]],
    kinds: Sequence[str],
    first: Sequence[int],
    plan: Mapping[tuple[str, int], int],
    targets: Mapping[Share, float],
    rng: random.Random,
) -> list[int]:
    """Choose sentences one at a time: of some random candidates, the one that does best.

    The cost is the sum of the fourth powers of the correlations of the feature distances, over
    all pairs of words chosen so far, plus how far values are from their target shares.

    Parameters
    ----------
    sentences : for each candidate sentence the feature values of its words
    kinds : what kind of sentence each candidate is
    first : numbers of sentences that are chosen in any case
    plan : kind and number of words of a sentence -> how many of these to choose (with `first`)
    targets : the share that a value should have
    rng : drawn from through `random` only

    Returns
    -------
    numbers of the chosen sentences, `first` first
    """
    types: dict[Row, int] = {}
    numbers = [[types.setdefault(row, len(types)) for row in rows] for rows in sentences]
    sums = PairSums(list(types), targets)
    left = dict(plan)
    pools: dict[tuple[str, int], list[int]] = {stratum: [] for stratum in plan}
    strata = [(kind, len(words)) for kind, words in zip(kinds, numbers, strict=True)]
    for sentence, stratum in enumerate(strata):
        if sentence not in first and stratum in pools:
            pools[stratum].append(sentence)
    chosen = list(first)
    for sentence in first:
        left[strata[sentence]] -= 1
        sums.add(numbers[sentence])
    order = [stratum for stratum, count in left.items() for _ in range(count)]
    for stratum in sorted(order, key=lambda _: rng.random()):
        pool = pools[stratum]
        places = [int(rng.random() * len(pool)) for _ in range(CANDIDATES)]
        cost = sums.cost(np.array([numbers[pool[place]] for place in places]))
        place = places[int(np.argmin(cost))]
        pool[place], pool[-1] = pool[-1], pool[place]
        sentence = pool.pop()
        sums.add(numbers[sentence])
        chosen.append(sentence)
    return chosen
