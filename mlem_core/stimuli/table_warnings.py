"""Doubts about a table, and findings on its stimuli: a sentence each, with its rows.

A doubt is of a table whose owner may have meant it otherwise. The notices of a run follow from the
findings.

Nothing here changes what is read. Row 1 is the first one below the header.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from math import fsum, isclose
from operator import eq, itemgetter
from typing import Literal, get_args

import pandas as pd

from mlem_core.base.text import listed, many, short, some
from mlem_core.stimuli.columns import (
    MISSING_AMONG_NUMBERS,
    NUMBER,
    Cells,
    cell_text,
    is_like_number,
)

_DAY = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_DAY_MONTH = re.compile(rf"{_DAY.pattern}|(0?[1-9]|[12]\d|3[01])\.(0?[1-9]|1[0-2])")
_MONTH = "(jan|feb|mar|mär|mrz|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]{0,6}"
_DATE = re.compile(
    rf"\d{{4}}-\d\d-\d\d|\d{{1,2}}[-. /]+{_MONTH}|{_MONTH}[-. /]+\d{{1,2}}", re.IGNORECASE
)
_MISSING_CODE = re.compile(r"(-?(99+|88+|77+)|-[987])(\.0*)?")
_MOST_CLASSES, _FEWEST_ADDED = 20, 4
# Words in names of columns whose few whole numbers are amounts.
_AMOUNT = re.compile(
    "(length|position|index|count|number|num|n|freq|frequency|age|rating|score|size|depth|distance"
    "|level|year|rank|time|degree|duration)s?|words|letters|syllables"
)
_TOTALS = {"total", "totals", "sum", "mean", "average", "summe", "gesamt", "mittelwert", "somme"}
_SPECIAL = re.compile(
    r"\[(?:MASK|CLS|SEP|PAD|UNK)\]|</?(?:s|unk|pad|mask|bos|eos|sep|cls)>|<\|[\w ]+\|>"
)
_TRUTHS = {"true", "t", "yes", "y", "1", "1.0", "false", "f", "no", "n", "0", "0.0"}
_WHOLE = re.compile(r"-?\d+(\.0*)?", re.ASCII)
_ZEROS = re.compile(r"[+-]?0\d+(\.\d*)?", re.ASCII)
_MOST_ODD = 0.2  # of the cells of a column of numbers
_COUNTED = 10  # of fewer rows a feature may well be 1, 2, 3
_HARD_TO_SEE = {
    "a space before or after it": re.compile(r"\A | \Z"),
    "two spaces side by side": re.compile(r"  "),
    "a character of HTML or of a workbook's XML": re.compile(
        r"&(amp|lt|gt|quot|apos|nbsp|#\d+);|_x[0-9A-F]{4}_"
    ),
    "tags or marks of words": re.compile(
        r"</?(?!s>|unk>|pad>|mask>|[be]os>|sep>|cls>)[a-z]\w*>|(?<!\S)\*\w+\*(?!\S)"
    ),
    "words joined by _": re.compile(r"(?<=[^\W\d_])_(?=[^\W\d_])"),
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
    option, values : what the button chooses, as on the command line: "role", ("freq=nominal",)
    """

    sentence: str
    label: str = ""
    option: str = ""
    values: tuple[str, ...] = ()


def folded(name: str) -> str:
    """A name without case, surplus spaces, signs that nobody sees, and ways to code a character."""
    text = name.strip()
    if NUMBER.fullmatch(text):
        return cell_text(float(text)) or ""
    if not text.isascii():
        known = unicodedata.normalize("NFKC", text)
        text = "".join(char for char in known if unicodedata.category(char) != "Cf")
        text = unicodedata.normalize("NFC", text.casefold())
    return " ".join(text.casefold().split())


def nominal_findings(column: str, cells: Cells, guessed: bool, detected: bool) -> Iterator[str]:
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
    if guessed and values and not odd:
        yield (
            f"The feature {short(column)} is nominal because the file has its numbers as text: "
            "give the column the role ordered if their differences matter."
        )
    yield from spelling_finding(f"the feature {short(column)}", cells)
    if len(values) > 2 and {value.casefold() for value in values} <= _TRUTHS:
        yield (
            f"The feature {short(column)} has yes and no in several ways, which count as different "
            f"({listed(sorted(values))}): write each in one way."
        )
    # They count as values, because they may be some: `null`, `?` and the like among words; `none`
    # is one often enough.
    marks = {cell for cell in values if cell.casefold() in MISSING_AMONG_NUMBERS - {"none"}}
    if guessed and detected and all(any(map(str.isalnum, cell)) for cell in values - marks):
        for mark in sorted(marks):
            yield (
                f"In the feature {short(column)} {_where(mark, cells)} counts as a value: empty "
                "such cells, or name it as a missing value, if it says that there is none."
            )


def number_findings(column: str, cells: Cells, marks: Sequence[str]) -> Iterator[Doubt]:
    """Doubts about an ordered feature whose kind was guessed: codes, dates, and numbers of rows.

    `marks` are the missing values that are known already.
    """
    values = {cell: float(cell) for cell in dict.fromkeys(cells) if cell is not None}
    first_of: dict[float, str] = {}
    for cell, value in values.items():
        other = first_of.setdefault(value, cell)
        if other is cell:
            continue
        # 1.1 and 1.10, but not 1 and 1.0
        longer = "." in cell.rstrip("0.") and cell.rstrip("0") == other.rstrip("0")
        if longer or Decimal(cell) != Decimal(other):
            yield Doubt(
                f"In the feature {short(column)} {_where(other, cells)} and {_where(cell, cells)} "
                "are one number: give it the role nominal if its values are codes, versions or "
                "dates.",
                *_as_names(column),
            )
            break
    day = _DAY_MONTH if re.search("dat(e|um)", column, re.IGNORECASE) else _DAY
    if len(values) > 2 and all(map(day.fullmatch, values)):
        yield Doubt(
            f"The feature {short(column)} has dates, such as {_where(next(iter(values)), cells)}, "
            "which count as numbers, so that a new month or year is a jump: give days as numbers, "
            "or the column the role nominal.",
            *_as_names(column),
        )
    codes = {cell for cell in values if _MISSING_CODE.fullmatch(cell)}
    rest = [value for cell, value in values.items() if cell not in codes]
    if codes and len(set(rest)) > 1:
        low, high = min(rest), max(rest)
        gaps = (max(low - values[code], values[code] - high) for code in codes)
        if all(gap > high - low for gap in gaps):
            yield Doubt(
                f"In the feature {short(column)} {_where(min(codes), cells)} lies far from all "
                f"other values, {low:g} to {high:g}: name {some(sorted(codes))} as missing (--na) "
                "if there is no value.",
                f"Read {', '.join(sorted(codes))} as missing",
                "na",
                (",".join([*marks, *sorted(codes)]),),
            )
    zeros = next((cell for cell in cells if cell and _ZEROS.fullmatch(cell)), None)
    if zeros is not None:
        yield Doubt(
            f"The feature {short(column)} has {short(zeros)} in row {cells.index(zeros) + 1}, "
            f"which counts as the number {cell_text(float(zeros))}: give the column the role "
            "nominal if its values are codes.",
            *_as_names(column),
        )
    first = int(cells[0] == "1")
    counting = map(str, range(first, first + len(cells)))
    if len(cells) >= _COUNTED and all(map(eq, cells, counting)):
        yield Doubt(
            f"The feature {short(column)} counts the rows from {cells[0]}: give the column the "
            "role ignore if it is an index.",
            *_role_button(f"Leave {column} out", "ignore", column),
        )


def _as_names(*columns: str) -> tuple[str, str, tuple[str, ...]]:
    """The button that makes columns categorical."""
    return _role_button(f"Make {listed(list(columns), most=3)} categorical", "nominal", *columns)


def _role_button(label: str, role: str, *columns: str) -> tuple[str, str, tuple[str, ...]]:
    """The button that gives columns a role."""
    return label, "role", tuple(f"{column}={role}" for column in columns)


def ordered_findings(columns: Mapping[str, Cells], sentences: Cells) -> Iterator[Doubt]:
    """Doubts about ordered features together: codes of classes, spans, and a row of sums.

    Parameters
    ----------
    columns : the features whose kind was guessed: (n_rows,) cells of each
    """
    classes = []
    for name, cells in columns.items():
        counts = Counter(cell for cell in cells if cell is not None)
        few = 2 < len(counts) <= _MOST_CLASSES and 3 * len(counts) <= counts.total()
        parts = map(str.lower, re.findall("[A-Z]?[a-z]+", name))
        if few and not any(map(_AMOUNT.fullmatch, parts)) and all(map(_WHOLE.fullmatch, counts)):
            classes.append(name)
        if name in ("start_idx", "end_idx"):
            yield Doubt(
                f"The column {short(name)} stands without "
                f"{'end_idx' if name == 'start_idx' else 'start_idx'} and is a feature: leave it "
                "out, or give both ends of the words.",
                *_role_button(f"Leave {name} out", "ignore", name),
            )
    if classes:
        minus = any({"-1", "-1.0"} & {*columns[name]} for name in classes)
        none = ", and name -1 as a missing value if it says that there is none" * minus
        yield Doubt(
            f"{some(classes, 5)} {'has' if len(classes) == 1 else 'have'} few whole numbers, "
            "whose differences count, so that 3 is nearer to 2 than to 0: give the role nominal "
            f"if numbers stand for names{none}.",
            *_as_names(*classes),
        )
    start, end = (
        next((name for name in columns if re.search(part, name, re.IGNORECASE)), "")
        for part in ("start|begin", "end|stop")
    )
    if start and end and _are_spans(columns[start], columns[end], sentences):
        yield Doubt(
            f"The columns {short(start)} and {short(end)} are features, and seem to be the "
            "characters of a word: give them the roles start_idx and end_idx, or leave them out.",
            f"Use {start} and {end}",
            "role",
            (f"{start}=start_idx", f"{end}=end_idx"),
        )
    last = [cells for cells in columns.values() if cells[-1]]
    sums = bool(last) and len(sentences) > _FEWEST_ADDED and all(map(_ends_with_sum, last))
    if sums or (sentences[-1] or "").strip(" :").lower() in _TOTALS:
        yield Doubt(
            f"The last row, {short(sentences[-1] or '')}, seems to be a sum or mean of the others "
            "and counts as a stimulus: remove it from the file if it is none."
        )


def _ends_with_sum(cells: Cells) -> bool:
    *before, last = (float(cell or 0) for cell in cells)
    return any(before) and isclose(last, fsum(before))


def sentence_numbers(columns: Mapping[str, Cells], sentences: Cells) -> Iterator[Doubt]:
    """Doubts about features that number or name the sentences, where some sentences recur."""
    n = len({*sentences})
    for name, cells in columns.items():
        values, pairs = {*cells}, {*zip(cells, sentences, strict=True)}
        # Other numbers may say something of sentences, such as their lengths.
        numbers = sorted(float(cell) for cell in values if cell and _WHOLE.fullmatch(cell))
        counts = numbers in ([], [*range(n)], [*range(1, n + 1)]) and None not in values
        if counts and _FEWEST_ADDED < n == len(values) == len(pairs) < len(cells):
            yield Doubt(
                f"The feature {short(name)} has one value in all rows of a sentence, and another "
                "in each other sentence: give it the role sentence_id if it numbers or names them.",
                *_role_button(f"Keep rows with the same {name} together", "sentence_id", name),
            )


def date_findings(column: str, cells: Cells) -> Iterator[Doubt]:
    """Doubts about a nominal feature some of whose values are dates, as Excel writes 3-4."""
    rows = [row for row, cell in enumerate(cells, 1) if cell and _DATE.fullmatch(cell)]
    others = [cell for cell in dict.fromkeys(cells) if cell and not _DATE.fullmatch(cell)]
    if rows and others:
        where = listed([str(row) for row in rows], most=5)
        yield Doubt(
            f"In the feature {short(column)} {short(cells[rows[0] - 1] or '')} is a date among "
            f"values such as {_where(others[0], cells)}, in row{'s' * (len(rows) > 1)} {where}: "
            "spreadsheet programs turn 3-4 into a date; correct such cells, or leave it out.",
            *_role_button(f"Leave {column} out", "ignore", column),
        )


def spelling_finding(what: str, cells: Cells) -> Iterator[str]:
    """A sentence about values that count as different and look the same."""
    known: dict[str, str] = {}
    values = [cell for cell in dict.fromkeys(cells) if cell is not None]
    alike = [
        (other, cell) for cell in values if (other := known.setdefault(folded(cell), cell)) != cell
    ]
    if alike:
        first, second = (_where(value, cells) for value in alike[0])
        more = f", and so do {many(len(alike) - 1, 'more value')}" if len(alike) > 1 else ""
        yield (
            f"In {what} {first} and {second} differ only in case, spaces or how their characters "
            f"are coded, and count as two{more}: write them in one way if they are the same."
        )


def _where(value: str, cells: Cells) -> str:
    """A value and where it is first."""
    return f"{short(value)} (row {cells.index(value) + 1})"


def sentence_findings(cells: Cells) -> Iterator[str]:
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
    special = {mark: row for text, row in first.items() for mark in _SPECIAL.findall(text)}
    if special:
        marks = [f"{short(mark)} (row {row})" for mark, row in special.items()]
        yield (
            f"Sentences have special tokens of models, {listed(marks, most=6)}: each is one token "
            "in a model that knows it, and text of several tokens in another; compare models of "
            "one tokenizer, or remove them."
        )


def _are_spans(starts: Cells, ends: Cells, sentences: Cells) -> bool:
    """Whether numbers are the first and the last character of a part of each sentence.

    An emoji may count as two characters, as in UTF-16.
    """
    for start, end, sentence in zip(starts, ends, sentences, strict=False):
        if start is None or end is None or sentence is None:
            return False
        if not (start.isdecimal() and end.isdecimal()):
            return False
        if not int(start) < int(end) <= len(sentence.encode("utf-16")) / 2:
            return False
    return True


def group_doubts(column: str, ids: Cells, sentences: Cells) -> Iterator[str]:
    """Doubts about what keeps stimuli together: names that look the same, sentences with two."""
    yield from spelling_finding(f"the column {short(column)}", ids)
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


def thousands_findings(
    header: Sequence[str], columns: Sequence[Cells], decimal: str
) -> Iterator[str]:
    """Doubts about columns whose decimal signs all stand before three digits, in a table with
    decimal commas, or beside larger numbers without one (1.234 and 850)."""
    for name, cells in zip(header, columns, strict=True):
        values = [cell for cell in dict.fromkeys(cells) if cell]
        plain = [int(cell) for cell in values if len(cell) < 4 and cell.isdecimal()]
        for sign in ",." if decimal == "," else "." * bool(plain):
            pattern = re.compile(rf"[+-]?[1-9]\d{{0,2}}\{sign}\d{{3}}", re.ASCII)
            like = [cell for cell in values if sign in cell]
            if like and all(pattern.fullmatch(cell.strip()) for cell in like):
                if decimal == "." and max(plain) <= max(map(float, like)):
                    continue
                yield (
                    f"In the column {short(name)} {_where(like[0], cells)} counts as "
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
    detail : what is particular to its features, in a few words
    """

    severity: Severity
    kind: str
    sentence: str
    features: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    detail: str = ""


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
        counts = Counter(finding.severity for finding in self.findings)
        grave = get_args(Severity)[:2]
        return listed([many(counts[severity], severity) for severity in grave if counts[severity]])

    @property
    def said(self) -> list[str]:
        """Notices of every run: each problem, weights that are 0 in a fold, kinds of cautions."""
        grave = [f for f in self.findings if f.severity == "problem" or f.kind == "constant"]
        kinds = [f.kind for f in self.findings if f.severity == "caution"]
        sentences = [finding.sentence for finding in grave]
        if kinds:
            sentences.append(
                f"The stimuli have {many(len(kinds), 'caution')} ({listed([*dict.fromkeys(kinds)])}"
                "); the command lint and the form of a new analysis show them in full."
            )
        return sentences
