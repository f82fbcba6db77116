"""Which word of a sentence is the stimulus: columns of numbers, or of the words themselves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from mlem_core.base.errors import InputError
from mlem_core.base.text import short
from mlem_core.base.typing import IntArray
from mlem_core.stimuli.columns import NUMBER, Cells
from mlem_core.stimuli.stimulus_set import bare, indexed_words, occurrences, word_counts
from mlem_core.stimuli.table_warnings import Doubt

# The number of the first word; auto is 0, or 1 where the words show it.
AUTO = "auto"
COUNTS_FROM = (AUTO, "0", "1")


def fits_words(numbers: Cells, sentences: Cells, words: Cells, first: int) -> bool:
    """Whether numbers that count from `first` lead to the word of each row that has one.

    All are (n_rows,) cells.
    """
    places = _whole(numbers) - first
    inside = any(words) and ((places >= 0) & (places < word_counts(sentences))).all()
    return bool(inside) and not len(other_words(words, sentences, places))


def other_words(words: Cells, sentences: Cells, places: IntArray) -> IntArray:
    """The rows with a word that is not the one at its place, from 0, in the sentence."""
    bare_of = cache(bare)
    there = indexed_words([sentence or "" for sentence in sentences], places)
    pairs = zip(words, there, strict=True)
    return np.flatnonzero([bool(word) and bare_of(word) != bare_of(at) for word, at in pairs])


def word_places(
    cells: Cells, sentences: Cells, name: str = "word_index", first: int = 0
) -> IntArray:
    """Place from 0 of the word of each sentence, of numbers that count from `first`: (n_rows,).

    Raises `InputError` for a number that is not in its sentence; `name` is that of the column.
    """
    places, n_words = _whole(cells) - first, word_counts(sentences)
    inside = (places >= 0) & (places < n_words)
    if inside.all():
        return places
    row = int(inside.argmin())
    from_1 = not first and ((places >= 1) & (places <= n_words)).all()
    hint = "; all fit if words count from 1: choose that they do (--counts-from 1)" * bool(from_1)
    raise InputError(
        f"the column {name!r} has {short((cells[row] or '').strip() or 'an empty cell')} in row "
        f"{row + 1}; expected a whole number from {first} to {n_words[row] - 1 + first}, one of "
        f"the {n_words[row]} words of {short(sentences[row] or '')}{hint}."
    )


def numbers_words(numbers: Cells, sentences: Cells) -> bool:
    """Whether rows have sentences that recur, each with the number of another of its words."""
    n_pairs = len({*zip(numbers, sentences, strict=True)})
    if not len({*sentences}) < n_pairs == len(sentences):
        return False
    places, n_words = _whole(numbers), word_counts(sentences)
    return any(((places >= first) & (places < n_words + first)).all() for first in (0, 1))


def position_columns(
    numbers: Mapping[str, Cells], words: Mapping[str, Cells], sentences: Cells
) -> dict[str, str]:
    """Columns that count to words in every row, each with the column of these; "" for none.

    Without one it is as of `numbers_words`. All are (n_rows,) cells by the names of their columns.
    """
    found = {name: "" for name, cells in numbers.items() if numbers_words(cells, sentences)}
    for word, cells in words.items():
        if all(cells) and occurrences(cells, sentences)[0].all():
            for name, places in numbers.items():
                if any(fits_words(places, sentences, cells, first) for first in (0, 1)):
                    found[name] = word
    return found


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

    Raises InputError: a word that its sentence does not have, or has more than once; a number that
    is not in its sentence where numbers count from 1.
    """
    present = [cell for cell in cells if cell is not None]
    if sum(bool(NUMBER.fullmatch(cell.strip())) for cell in present) < len(present) / 2:
        times, places = occurrences(cells, sentences)
        for row in np.flatnonzero(times != 1).tolist()[:1]:
            often = f"occurs {times[row]} times" if times[row] else "does not occur"
            raise InputError(
                f"the word {short(cells[row] or '')} in row {row + 1} of the column {name!r} "
                f"{often} in {short(sentences[row] or '')}; give the number of the word, from 0."
            )
        return [*map(str, places.tolist())], []
    places, doubts = _whole(cells), []
    if counts_from == AUTO and len(places) and places.min() > 0:
        parts = (sentences[0] or "").split()
        if fits_words(cells, sentences, words, 1):
            counts_from = "1"
            doubts.append(Doubt(f"The column {short(name)} counts words from 1, as words show."))
        elif not words and places[0] < len(parts):
            here, before = parts[places[0]], parts[places[0] - 1]
            sentence = (
                f"The column {short(name)} is never 0: in row 1 it is {places[0]}, which from 0 is "
                f"{short(here)} in {short(sentences[0] or '')}. If words count from 1 it is "
                f"{short(before)}: choose that they do (--counts-from 1)."
            )
            doubts.append(Doubt(sentence, "Count from 1", "counts_from", ("1",)))
    if counts_from != "1":
        return cells, doubts  # the check of the stimuli names a number that cannot be
    return [*map(str, word_places(cells, sentences, name, 1).tolist())], doubts


def _whole(cells: Cells) -> IntArray:
    """The whole number of each cell; -1 where it has none."""

    @cache
    def number(cell: str | None) -> int:
        text = (cell or "").strip()
        value = float(text) if NUMBER.fullmatch(text) else -1.0
        return int(value) if value.is_integer() and abs(value) < 1e9 else -1

    return np.array([*map(number, cells)], dtype=np.int64)
