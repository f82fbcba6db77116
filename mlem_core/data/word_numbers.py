"""Which word of a sentence is the stimulus: columns of numbers, or of the words themselves."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.text import short
from mlem_core.data.columns import NUMBER, Cells
from mlem_core.data.doubts import Doubt
from mlem_core.data.stimuli import bare, occurrences

# The number of the first word; auto is 0, or 1 where the words show it.
AUTO = "auto"
COUNTS_FROM = (AUTO, "0", "1")


def fits_words(numbers: Cells, sentences: Cells, words: Cells, first: int) -> bool:
    """Whether numbers that count from `first` lead to the word of each row that has one.

    All are (n_rows,) cells.
    """
    bare_of, split = cache(bare), lru_cache(1)(str.split)
    for number, sentence, word in zip(numbers, sentences, words, strict=True):
        place = _whole(number) - first
        parts = split(sentence or "")
        if not 0 <= place < len(parts) or (word and bare_of(parts[place]) != bare_of(word)):
            return False
    return any(words)


def numbers_words(numbers: Cells, sentences: Cells) -> bool:
    """Whether rows have sentences that recur, each with the number of another of its words."""
    if len({*sentences}) == len(sentences) or len({*zip(numbers, sentences, strict=True)}) < len(
        sentences
    ):
        return False
    count = cache(lambda text: len((text or "").split()))
    places = [*map(_whole, numbers)]
    return any(
        all(first <= at < count(text) + first for at, text in zip(places, sentences, strict=True))
        for first in (0, 1)
    )


def numbers_for_words(columns: Iterable[tuple[str, Cells]], sentences: Cells, words: Cells) -> str:
    """The name of the first column whose numbers lead to every word; "" where none does."""
    return next(
        (
            name
            for name, cells in columns
            if any(fits_words(cells, sentences, words, first) for first in (0, 1))
        ),
        "",
    )


def word_indices(
    cells: Cells, sentences: Cells, words: Cells, name: str, counts_from: str
) -> tuple[Cells, list[Doubt]]:
    """Number from 0 of the word of each row, as cells, and what may be meant otherwise.

    Parameters
    ----------
    cells : (n_rows,) numbers, or words of the sentences
    words : (n_rows,) what the numbers count to, as another column has it; empty without one
    name : of the column, for messages
    counts_from : one of `COUNTS_FROM`

    Raises
    ------
    InputError
        A word that its sentence does not have, or has more than once.
    """
    filled = [cell for cell in cells if cell is not None]
    if sum(bool(NUMBER.fullmatch(cell.strip())) for cell in filled) < len(filled) / 2:
        return _indices_of_words(cells, sentences, name), []
    places = [*map(_whole, cells)]  # if a cell is no number, the check of the stimuli says so
    doubts = []
    if counts_from == AUTO and min(places) > 0:
        if words and fits_words(cells, sentences, words, 1):
            counts_from = "1"
            doubts.append(Doubt(f"The column {short(name)} counts words from 1, as words show."))
        elif not words and places[0] < len(parts := (sentences[0] or "").split()):
            here, before = parts[places[0]], parts[places[0] - 1]
            doubts.append(
                Doubt(
                    f"The column {short(name)} is never 0: in row 1 it is {places[0]}, which from "
                    f"0 is {short(here)} in {short(sentences[0] or '')}. If words count from 1 it "
                    f"is {short(before)}: choose that they do (--counts-from 1).",
                    "Count from 1",
                    "counts_from",
                    ("1",),
                )
            )
    if counts_from == "1":
        return [str(at - 1) if at >= 0 else cell for at, cell in zip(places, cells, strict=True)], (
            doubts
        )
    return cells, doubts


def _whole(cell: str | None) -> int:
    """The whole number of a cell; -1 where it has none."""
    text = (cell or "").strip().removesuffix(".0")
    return int(text) if text.isascii() and text.isdecimal() else -1


def _indices_of_words(cells: Cells, sentences: Cells, name: str) -> Cells:
    times, place = occurrences(cells, sentences)
    wrong = np.flatnonzero(times != 1)
    if len(wrong):
        row = wrong[0]
        often = f"occurs {times[row]} times" if times[row] else "does not occur"
        raise InputError(
            f"the word {short(cells[row] or '')} in row {row + 1} of the column {name!r} {often} "
            f"in {short(sentences[row] or '')}; give the number of the word, from 0."
        )
    return [str(number) for number in place.tolist()]
