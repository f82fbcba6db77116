"""Baselines: an interpolated trigram model and a unigram model, over any units.

Two ways of interpolation: Jelinek-Mercer (one weight for each order, from the development text)
and Kneser-Ney with modified discounts (Chen & Goodman 1999, section 3). A unit that the training
text lacks is spelled: see `Vocabulary`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

Unit = int | str
Document = Sequence[Unit]


class KneserNey:
    """Interpolated modified Kneser-Ney of order 3 over documents of known units.

    `probabilities` gives p(unit | the two units before it) for every unit of a document and its
    end. The lowest order is interpolated with the uniform distribution over `size` units.
    """

    def __init__(self, documents: Sequence[Document], size: int, order: int = 3) -> None:
        self.order, self.size = order, size
        counts: list[Counter[tuple[Unit, ...]]] = [Counter() for _ in range(order)]
        for document in documents:
            units = _padded(document, order)
            for end in range(order - 1, len(units)):
                counts[order - 1][tuple(units[end - order + 1 : end + 1])] += 1
        # Of the lower orders, in how many contexts: the continuation counts.
        for n in range(order - 1, 0, -1):
            for gram in counts[n]:
                counts[n - 1][gram[1:]] += 1
        self.counts = counts
        self.discounts = [_discounts(counter) for counter in counts]
        self.totals: list[dict[tuple[Unit, ...], int]] = []
        self.backoff: list[dict[tuple[Unit, ...], float]] = []
        for counter, discounts in zip(counts, self.discounts, strict=True):
            total: dict[tuple[Unit, ...], int] = defaultdict(int)
            taken: dict[tuple[Unit, ...], float] = defaultdict(float)
            for gram, count in counter.items():
                total[gram[:-1]] += count
                taken[gram[:-1]] += discounts[min(count, 3)]
            self.totals.append(dict(total))
            self.backoff.append({context: taken[context] / total[context] for context in total})

    def probability(self, context: tuple[Unit, ...], unit: Unit) -> float:
        """p(unit | context), the context as long as the order less one."""
        p = 1 / self.size
        for n in range(self.order):
            history = context[len(context) - n :]
            total = self.totals[n].get(history)
            if total is None:
                break
            count = self.counts[n].get((*history, unit), 0)
            kept = max(0.0, count - self.discounts[n][min(count, 3)])
            p = kept / total + self.backoff[n][history] * p
        return p

    def bits(self, document: Document) -> np.ndarray:
        """Bits of each unit of a document and of its end, (n_units + 1,)."""
        units, n = _padded(document, self.order), self.order - 1
        shares = [self.probability(tuple(units[i - n : i]), units[i]) for i in range(n, len(units))]
        bits: np.ndarray = -np.log2(shares)
        return bits


class JelinekMercer:
    """Linear interpolation of the relative frequencies of orders 1 to 3 and the uniform.

    The four weights are fitted by expectation maximisation on the development documents.
    """

    def __init__(
        self, documents: Sequence[Document], dev: Sequence[Document], size: int, order: int = 3
    ) -> None:
        self.order, self.size = order, size
        self.counts: list[Counter[tuple[Unit, ...]]] = [Counter() for _ in range(order)]
        self.totals: list[Counter[tuple[Unit, ...]]] = [Counter() for _ in range(order)]
        for document in documents:
            units = _padded(document, order)
            for end in range(order - 1, len(units)):
                for n in range(order):
                    gram = tuple(units[end - n : end + 1])
                    self.counts[n][gram] += 1
                    self.totals[n][gram[:-1]] += 1
        self.weights = np.full(order + 1, 1 / (order + 1))
        table = np.concatenate([self._shares(document) for document in dev])
        for _ in range(50):
            parts = self.weights * table
            self.weights = (parts / parts.sum(1, keepdims=True)).mean(0)

    def _shares(self, document: Document) -> np.ndarray:
        """(n_units + 1, order + 1): what each order, and the uniform before them, gives."""
        units = _padded(document, self.order)
        rows = []
        for end in range(self.order - 1, len(units)):
            grams = [tuple(units[end - n : end + 1]) for n in range(self.order)]
            shares = [
                self.counts[n][gram] / max(1, self.totals[n][gram[:-1]])
                for n, gram in enumerate(grams)
            ]
            rows.append([1 / self.size, *shares])
        return np.array(rows)

    def bits(self, document: Document) -> np.ndarray:
        """Bits of each unit of a document and of its end, (n_units + 1,)."""
        bits: np.ndarray = -np.log2(self._shares(document) @ self.weights)
        return bits


def _padded(document: Document, order: int) -> list[Unit]:
    # Units are ids from 0 or words: -1 and -2 are no unit.
    return [*([-1] * (order - 1)), *document, -2]


def _discounts(counter: Counter[tuple[Unit, ...]]) -> list[float]:
    """What is taken from a count of 0, 1, 2 and 3 or more."""
    n1, n2, n3, n4 = (max(1, sum(count == k for count in counter.values())) for k in (1, 2, 3, 4))
    y = n1 / (n1 + 2 * n2)
    found = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
    return [0.0, *(min(max(d, 0.1), k) for k, d in enumerate(found, 1))]


class Vocabulary:
    """Words that come at least twice in the training text; the others are spelled letter by letter.

    A word model has to give every word a probability, as the networks do by way of sub-tokens. An
    unknown word costs the unknown unit and its letters, under a trigram model of the letters of
    the rare words.
    """

    UNKNOWN = "<unk>"

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        counts = Counter(word for document in documents for word in document)
        self.known = frozenset(word for word, count in counts.items() if count > 1)
        rare = [tuple(word) for word, count in counts.items() if count == 1]
        self.letters = KneserNey(rare or [("a",)], size=128)

    def units(self, document: Sequence[str]) -> list[str]:
        """The document with `UNKNOWN` for each unknown word."""
        return [word if word in self.known else self.UNKNOWN for word in document]

    def spelling_bits(self, document: Sequence[str]) -> float:
        """What the letters of the unknown words cost."""
        unknown = [word for word in document if word not in self.known]
        return float(sum(self.letters.bits(tuple(word)).sum() for word in unknown))
