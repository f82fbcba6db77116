"""Words, and those of sentences that many rows share: each is split once, some at a time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.typing import IntArray

_INSIDE = re.compile(r"\w")
_BLOCK = 20_000  # sentences that are split at a time


def bare(word: str) -> str:
    """A word without case and surrounding punctuation (unless it is nothing else)."""
    # One pattern for both edges would look at a run of signs from each of its places.
    first, last = _INSIDE.search(word), _INSIDE.search(word[::-1])
    inside = word[first.start() : len(word) - last.start()] if first and last else word.strip()
    return inside.casefold()


@dataclass(frozen=True, eq=False)
class _Split:
    """The words of some sentences.

    Attributes
    ----------
    rows : (n,) the rows that have these sentences
    own : (n,) which of the sentences each of the rows has
    words : (n_words,) of one sentence after the other
    bounds : (n_sentences + 1,) where among the words each sentence begins, and the last one ends
    """

    rows: IntArray
    own: IntArray
    words: NDArray[np.object_]
    bounds: IntArray


def _split(sentences: Sequence[str | None]) -> Iterator[_Split]:
    codes, distinct = pd.factorize(np.array(sentences, dtype=object))
    texts = [*distinct, ""]
    codes[codes < 0] = len(distinct)
    order = np.argsort(codes, kind="stable")
    for first in range(0, len(texts), _BLOCK):
        low, high = np.searchsorted(codes, (first, first + _BLOCK), sorter=order)
        rows = order[low:high]
        parts = [text.split() for text in texts[first : first + _BLOCK]]
        bounds = np.cumsum([0, *map(len, parts)])
        words = np.array([*chain.from_iterable(parts), None], dtype=object)[:-1]
        yield _Split(rows, codes[rows] - first, words, bounds)


def words_in(sentences: Sequence[str | None]) -> IntArray:
    """How many whitespace-separated words each sentence has: (n_rows,)."""
    counts = np.zeros(len(sentences), dtype=np.int64)
    for part in _split(sentences):
        counts[part.rows] = np.diff(part.bounds)[part.own]
    return counts


def words_at(sentences: Sequence[str], index: IntArray) -> list[str]:
    """The word of each sentence at its index, which is from 0 and in the sentence: (n_rows,)."""
    chosen = np.empty(len(sentences), dtype=object)
    for part in _split(sentences):
        chosen[part.rows] = part.words[part.bounds[part.own] + index[part.rows]]
    words: list[str] = chosen.tolist()
    return words


def places(
    words: Sequence[str | None], sentences: Sequence[str | None]
) -> tuple[IntArray, IntArray]:
    """How often each row's word is in its sentence, and where it is first: (n_rows,) each.

    Words are compared as `bare` has them. Where a sentence does not have the
    word, its place means nothing.
    """
    bare_of = cache(lambda word: bare(word or ""))
    number: defaultdict[str, int] = defaultdict(lambda: len(number))  # of each bare word, from 0
    wanted = np.array([number[bare_of(word)] for word in words], dtype=np.int64)
    times, place = np.zeros((2, len(wanted)), dtype=np.int64)
    for part in _split(sentences):
        there = np.array([number[bare_of(word)] for word in part.words], dtype=np.int64)
        # A word with its sentence is one number; equal ones stand in the order of the sentence.
        sentence = np.repeat(np.arange(len(part.bounds) - 1), np.diff(part.bounds))
        keys = sentence * len(number) + there
        order = np.argsort(keys, kind="stable")
        asked = part.own * len(number) + wanted[part.rows]
        low, high = (np.searchsorted(keys, asked, side, sorter=order) for side in ("left", "right"))
        times[part.rows] = high - low
        place[part.rows] = np.append(order, 0)[low] - part.bounds[part.own]
    return times, place
