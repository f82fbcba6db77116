"""Doubts about a table, and findings on its stimuli: a sentence each, with its rows.

A doubt is of a table whose owner may have meant it otherwise. The notices of a run follow from the
findings.

Nothing here changes what is read. Row 1 is the first one below the header.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import eq, itemgetter
from typing import Literal, get_args

import pandas as pd

from mlem_core.base.text import listed, many, short
from mlem_core.data.columns import MISSING_AMONG_NUMBERS, NUMBER, Cells, is_like_number, text_of

_ZEROS = re.compile(r"[+-]?0\d+(\.\d*)?", re.ASCII)
_MOST_ODD = 0.2  # of the cells of a column of numbers
_COUNTED = 10  # of fewer rows a feature may well be 1, 2, 3
_HARD_TO_SEE = {
    "a space before or after it": re.compile(r"\A | \Z"),
    "two spaces side by side": re.compile(r"  "),
    "a character of HTML or of a workbook's XML": re.compile(
        r"&(amp|lt|gt|quot|apos|nbsp|#\d+);|_x[0-9A-F]{4}_"
    ),
    "UTF-8 that was read in another encoding": re.compile(r"[ÂÃ][\x80-\xbf]|â€|ï»¿"),
}
# Controls, spaces of other widths, what joins, parts or turns, what replaces a lost character.
# (U+200C and U+200D are part of words in some scripts, and of emoji.)
_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200b\u200e\u200f\u2028-\u202f\u205f-\u206f"
    r"\u3000\ue000-\uf8ff\ufeff\ufffd]"
)


@dataclass(frozen=True)
class Doubt:
    """What the owner of a table may have meant otherwise.

    Attributes
    ----------
    sentence : what is read, where, and what to do about it
    label : of the button that does it; "" where only another file can
    option, value : what the button chooses, as on the command line: "role" and "freq=nominal"
    """

    sentence: str
    label: str = ""
    option: str = ""
    value: str = ""


def folded(name: str) -> str:
    """A name without case, surplus spaces, signs that nobody sees, and ways to code a character."""
    text = name.strip()
    if NUMBER.fullmatch(text):
        return text_of(float(text)) or ""
    if not text.isascii():
        known = unicodedata.normalize("NFKC", text)
        text = "".join(char for char in known if unicodedata.category(char) != "Cf")
        text = unicodedata.normalize("NFC", text.casefold())
    return " ".join(text.casefold().split())


def of_names(column: str, cells: Cells, guessed: bool, detected: bool) -> Iterator[str]:
    """Doubts about a nominal feature.

    Parameters
    ----------
    guessed : its kind is, from its values
    detected : so are its marks of missing values
    """
    values = {cell for cell in cells if cell is not None}
    odd = [row for row, cell in enumerate(cells) if cell is not None and not NUMBER.fullmatch(cell)]
    # A column of numbers, but for a few cells or for some that are written as elsewhere.
    names = len(odd) - sum(map(cache(is_like_number), (cells[row] or "" for row in odd)))
    if guessed and odd and names < _MOST_ODD * sum(cell is not None for cell in cells):
        row, n = odd[0], len(odd)
        more = f" and {many(n - 1, 'more cell')}" if n > 1 else ""
        others = "all its other values are numbers" if n < len(cells) else "which are no numbers"
        yield (
            f"The feature {short(column)} is nominal because of {short(cells[row] or '')} in row "
            f"{row + 1}{more}, {others}: correct or empty {'it' if n == 1 else 'them'} (a number "
            "is written as -1234.5), or give the column the role nominal if its values are names."
        )
        return
    yield from of_spellings(f"the feature {short(column)}", cells)
    # They count as values, because they may be some: `null`, `?` and the like among words; `none`
    # is one often enough.
    marks = {cell for cell in values if cell.casefold() in MISSING_AMONG_NUMBERS - {"none"}}
    if guessed and detected and all(any(map(str.isalnum, cell)) for cell in values - marks):
        for mark in sorted(marks):
            yield (
                f"In the feature {short(column)} {_at(mark, cells)} counts as a value: empty such "
                "cells, or name it as a missing value, if it says that there is none."
            )


def of_numbers(column: str, cells: Cells) -> Iterator[Doubt]:
    """Doubts about an ordered feature whose kind was guessed: codes, and numbers of rows."""
    zeros = next((cell for cell in cells if cell and _ZEROS.fullmatch(cell)), None)
    if zeros is not None:
        yield Doubt(
            f"The feature {short(column)} has {short(zeros)} in row {cells.index(zeros) + 1}, "
            f"which counts as the number {text_of(float(zeros))}: give the column the role nominal "
            "if its values are codes.",
            *_as_names(column),
        )
    first = int(cells[0] == "1")
    counting = map(str, range(first, first + len(cells)))
    if len(cells) >= _COUNTED and all(map(eq, cells, counting)):
        yield Doubt(
            f"The feature {short(column)} counts the rows from {cells[0]}: give the column the "
            "role ignore if it is an index.",
            *_left_out(column),
        )


def _as_names(column: str) -> tuple[str, str, str]:
    """The button that makes a column categorical."""
    return f"Make {column} categorical", "role", f"{column}=nominal"


def _left_out(column: str) -> tuple[str, str, str]:
    """The button that leaves a column out."""
    return f"Leave {column} out", "role", f"{column}=ignore"


def of_spellings(what: str, cells: Cells) -> Iterator[str]:
    """A sentence about values that count as different and look the same."""
    known: dict[str, str] = {}
    values = [cell for cell in dict.fromkeys(cells) if cell is not None]
    alike = [
        (other, cell) for cell in values if (other := known.setdefault(folded(cell), cell)) != cell
    ]
    if alike:
        first, second = (_at(value, cells) for value in alike[0])
        more = f", and so do {many(len(alike) - 1, 'more value')}" if len(alike) > 1 else ""
        yield (
            f"In {what} {first} and {second} differ only in case, spaces or how their characters "
            f"are coded, and count as two{more}: write them in one way if they are the same."
        )


def _at(value: str, cells: Cells) -> str:
    """A value and where it is first."""
    return f"{short(value)} (row {cells.index(value) + 1})"


def of_sentences(cells: Cells) -> Iterator[str]:
    """Doubts about sentences: what is hard to see in them."""
    marked: dict[str, int] = {}  # the first row of each
    first = {text: row for row, text in reversed([*enumerate(cells, 1)]) if text}
    for text, row in sorted(first.items(), key=itemgetter(1)):
        what = [name for name, pattern in _HARD_TO_SEE.items() if pattern.search(text)]
        for char in sorted(set(_UNSEEN.findall(text))):
            what.append(f"{unicodedata.name(char, 'a character').lower()} (U+{ord(char):04X})")
        if not unicodedata.is_normalized("NFC", text):
            what.append("letters in another Unicode form than most texts (NFC)")
        marked |= {name: row for name in what if name not in marked}
    if marked:
        parts = [f"{what} in row {row}" for what, row in marked.items()]
        yield (
            f"Sentences have what is hard to see, and models read it: {listed(parts, most=6)}; "
            "correct them if that is not meant."
        )


def group_doubts(column: str, ids: Cells, sentences: Cells) -> Iterator[str]:
    """Doubts about what keeps stimuli together: names that look the same, sentences with two."""
    yield from of_spellings(f"the column {short(column)}", ids)
    first: dict[str | None, int] = {}
    for row, sentence in enumerate(sentences):
        other = first.setdefault(sentence, row)
        if ids[other] != ids[row]:
            yield (
                f"The sentence in row {row + 1} has {short(ids[row] or '')} in the column "
                f"{short(column)}, and in row {other + 1} {short(ids[other] or '')}: folds may "
                "test a sentence that they were trained on; give it one value."
            )
            break


def of_thousands(header: Sequence[str], columns: Sequence[Cells]) -> Iterator[str]:
    """Doubts about columns whose decimal signs all stand before three digits, in a table with
    decimal commas."""
    for name, cells in zip(header, columns, strict=True):
        for sign in ",.":
            pattern = re.compile(rf"[+-]?[1-9]\d{{0,2}}\{sign}\d{{3}}", re.ASCII)
            like = [cell for cell in cells if cell and sign in cell]
            if like and all(pattern.fullmatch(cell.strip()) for cell in like):
                yield (
                    f"In the column {short(name)} {_at(like[0], cells)} counts as "
                    f"{float(like[0].replace(',', '.')):g}: write thousands without a sign between "
                    "them if they are meant."
                )


Severity = Literal["problem", "caution", "note"]

MOST_ROWS = 20


@dataclass(frozen=True)
class StimulusFinding:
    """Finding about the stimuli that their owner should know.

    Attributes
    ----------
    severity : "problem" (a result would mean nothing), "caution" (read it with care), "note"
    kind : what it is about, one word: "constant", "copies", "weights", "rare", "identifier",
        "range", "correlated", "determined", "missing", "duplicates", "few", "folds", "levels"
    sentence : what was found, what it means for the result, and what to do
    features : the features it is about
    rows : the rows it is about, 1 for the first stimulus below the header, at most `MOST_ROWS`
    """

    severity: Severity
    kind: str
    sentence: str
    features: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Lint:
    """Findings of `lint`, the gravest first.

    `correlations` are those of the feature distances over all pairs of n_stimuli stimuli, see
    `mlem_core.measures.similarity.correlations_of_features`; these pairs have n_columns columns.
    """

    findings: list[StimulusFinding]
    correlations: pd.DataFrame
    n_stimuli: int
    n_columns: int = 0

    @property
    def counts(self) -> str:
        """Number of problems and cautions, "1 problem and 2 cautions"; empty without any."""
        found = Counter(finding.severity for finding in self.findings)
        grave = get_args(Severity)[:2]
        return listed([many(found[severity], severity) for severity in grave if found[severity]])

    @property
    def said(self) -> list[str]:
        """Notices of every run: each problem, weights that are 0 in a fold, kinds of cautions."""
        grave = [f for f in self.findings if f.severity == "problem" or f.kind == "constant"]
        kinds = [f.kind for f in self.findings if f.severity == "caution"]
        said = [finding.sentence for finding in grave]
        if kinds:
            said.append(
                f"The stimuli have {many(len(kinds), 'caution')} ({listed([*dict.fromkeys(kinds)])}"
                "); the command lint and the form of a new analysis show them in full."
            )
        return said
