"""Stimuli and their features: reading, checking and writing the stimulus CSV.

One row is one stimulus. The column `sentence` is required; `word_index` (0-based, counting
whitespace-separated words) makes the set word-level. `word`, `sentence_id` and names that begin
with `_` are carried along; every other column is a feature. An empty cell is a missing value.

In messages, row 1 is the first stimulus below the header.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, unknown
from mlem_core.data.csvfile import MAX_ROWS, NUMBER, Rows, read_rows, short, some, write_table

__all__ = ["Feature", "StimulusSet", "from_frame", "read_csv", "write_csv", "write_table"]

Kind = Literal["ordered", "nominal"]

LARGEST = 1e300  # so that the range of a feature is finite
CARRIED = ("sentence", "word_index", "word", "sentence_id")

_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_MISSING_WORDS = frozenset({"nan", "na", "n/a", "#n/a", "null", "none", "?", "-"})
_EDGES = re.compile(r"^\W+|\W+$")


@dataclass(frozen=True)
class Feature:
    """A column that describes the stimuli; `kind` says how its distance is taken."""

    name: str
    kind: Kind


@dataclass(frozen=True, eq=False)
class StimulusSet:
    """Stimuli with their features, checked. Made by `read_csv`, `from_frame` or `datasets.load`.

    Attributes
    ----------
    name : the built-in set's name or the CSV's file name
    table : n_stimuli rows, all columns in the order of the CSV; ordered features and `word_index`
        are numbers, everything else is str; missing is NaN
    features : in column order
    word_index : (n_stimuli,) int64, or None for a sentence-level set
    groups : (n_stimuli,) int64, codes 0.. of `sentence_id`, without that column of `sentence`
    digest : SHA-256 (hex) of the table's content and the features' kinds; how the file was
        written (quotes, line ends, byte-order mark, 1 or 1.0) does not change it
    """

    name: str
    table: pd.DataFrame
    features: tuple[Feature, ...]
    word_index: NDArray[np.int64] | None
    groups: NDArray[np.int64]
    digest: str

    def __len__(self) -> int:
        return len(self.table)

    @property
    def shape(self) -> tuple[int, int]:
        """(n_stimuli, n_features); scikit-learn takes many rows at once of what has a shape."""
        return len(self), len(self.features)

    def __getitem__(self, rows: Any) -> StimulusSet:
        """The stimuli of a slice, of row numbers or of a mask, as of an array.

        scikit-learn asks for `[rows, ...]`.
        """
        return self.take(np.atleast_1d(np.arange(len(self))[rows]))

    @property
    def level(self) -> Literal["word", "sentence"]:
        """Whether a stimulus is a word in its sentence or a whole sentence."""
        return "sentence" if self.word_index is None else "word"

    @property
    def sentences(self) -> list[str]:
        """The sentence of each stimulus."""
        return cast("list[str]", self.table["sentence"].tolist())

    @property
    def words(self) -> list[str]:
        """The word of each stimulus; in a sentence-level set the sentence."""
        if self.word_index is None:
            return self.sentences
        return [s.split()[i] for s, i in zip(self.sentences, self.word_index, strict=True)]

    def values(self, name: str) -> NDArray[Any]:
        """A feature's values: (n_stimuli,).

        Ordered: float64, missing is NaN. Nominal: object of str, missing is None.

        Raises
        ------
        InputError
            No feature has this name.
        """
        kinds = {feature.name: feature.kind for feature in self.features}
        if name not in kinds:
            raise unknown("feature", name, kinds)
        column = self.table[name]
        if kinds[name] == "ordered":
            return np.asarray(column, dtype=np.float64)
        return np.array([_text(cell) for cell in column], dtype=object)

    def select(self, features: Sequence[str] | None) -> StimulusSet:
        """The same stimuli with only these features, in column order (None: all).

        Raises
        ------
        InputError
            A name that no feature has, or no name at all.
        """
        if features is None:
            return self
        names = [feature.name for feature in self.features]
        for name in features:
            if name not in names:
                raise unknown("feature", name, names)
        kept = tuple(feature for feature in self.features if feature.name in features)
        if not kept:
            raise InputError(f"no feature is chosen; at least one of {some(names)} must be chosen.")
        return StimulusSet(
            self.name,
            self.table,
            kept,
            self.word_index,
            self.groups,
            _digest(self.table, kept),
        )

    def take(self, rows: NDArray[np.int64]) -> StimulusSet:
        """Only the stimuli in these rows, in their order: (n_kept,) row numbers."""
        table = self.table.iloc[rows].reset_index(drop=True)
        return StimulusSet(
            self.name,
            table,
            self.features,
            None if self.word_index is None else self.word_index[rows],
            np.unique(self.groups[rows], return_inverse=True)[1].astype(np.int64),
            _digest(table, self.features),
        )

    def with_kinds(self, ordered: Iterable[str] = (), nominal: Iterable[str] = ()) -> StimulusSet:
        """The same stimuli with the kinds of some features set.

        Raises
        ------
        InputError
            A name that no feature has or that is in both lists; a feature to be ordered that has
            a value which is no number.
        """
        kinds: dict[str, Kind] = {feature.name: feature.kind for feature in self.features}
        _override(kinds, ordered, nominal)
        columns = {str(name): self.table[name] for name in self.table.columns}
        for name, kind in kinds.items():
            texts = [_text(cell) for cell in columns[name]]
            columns[name] = _column(name, texts, kind)
        table = pd.DataFrame(columns)
        features = tuple(Feature(name, kind) for name, kind in kinds.items())
        return StimulusSet(
            self.name, table, features, self.word_index, self.groups, _digest(table, features)
        )


def from_frame(
    frame: pd.DataFrame,
    name: str,
    *,
    ordered: Iterable[str] = (),
    nominal: Iterable[str] = (),
) -> StimulusSet:
    """A checked stimulus set from a table with the columns of the stimulus CSV.

    Parameters
    ----------
    frame : one row a stimulus; cells are str, numbers, booleans, or missing (None, NaN, "")
    name : how messages call the set
    ordered, nominal : features whose kind is not what their values suggest

    Raises
    ------
    InputError
        As `read_csv`, for everything but the file itself.
    """
    rows = [[_text(cell) for cell in row] for row in frame.itertuples(index=False, name=None)]
    return _build([str(c) for c in frame.columns], rows, name, ordered, nominal)


def read_csv(
    source: str | Path | bytes | BinaryIO,
    *,
    name: str | None = None,
    ordered: Iterable[str] = (),
    nominal: Iterable[str] = (),
) -> StimulusSet:
    """Read and check a stimulus CSV (UTF-8, commas, a header).

    A feature whose cells are all plain numbers is ordered, any other one nominal (True and False
    too), unless `ordered` or `nominal` names it. Space around the value of a feature does not
    count. An apostrophe before a character that begins a formula (`'=`) is taken away, as
    `write_csv` put it there.

    Parameters
    ----------
    source : path, content, or binary file
    name : how the set is called; by default the file's name
    ordered, nominal : features whose kind is not what their values suggest

    Raises
    ------
    InputError
        The file is missing, over `MAX_BYTES` or `MAX_ROWS`, no UTF-8, no CSV, or its content
        breaks the contract; one sentence says where and what was expected.
    """
    name, header, rows = read_rows(source, name)
    return _build(header, rows, name, ordered, nominal)


def write_csv(stimuli: StimulusSet | pd.DataFrame, target: str | Path | IO[Any]) -> None:
    """Write stimuli so that `read_csv` gives them back and a spreadsheet runs no cell.

    Cells (and column names) that a spreadsheet would take for a formula get an apostrophe in
    front. A path is written under another name first and then renamed.

    Parameters
    ----------
    stimuli : a set, or a table with the columns of the stimulus CSV
    target : path, or an open text or binary file
    """
    frame = stimuli.table if isinstance(stimuli, StimulusSet) else stimuli
    write_table(frame, target)


def _build(
    header: list[str],
    rows: Rows,
    name: str,
    ordered: Iterable[str],
    nominal: Iterable[str],
) -> StimulusSet:
    _check_header(header, name)
    if len(rows) < 2:
        found = "one row" if rows else "a header and no rows"
        raise InputError(f"{name} has {found}; at least two stimuli are needed to compare.")
    if len(rows) > MAX_ROWS:
        raise InputError(
            f"{name} has {len(rows):,} stimuli; the limit is {MAX_ROWS:,}, as every pair of "
            "stimuli is compared."
        )
    texts = {column: [row[i] for row in rows] for i, column in enumerate(header)}
    names = [c for c in header if c not in CARRIED and not c.startswith("_")]
    if not names:
        raise InputError(
            f"{name} has no feature: its columns are {some(header)}; every column but "
            f"{', '.join(CARRIED)} and those that begin with _ is one."
        )
    for column in names:
        texts[column] = [(cell or "").strip() or None for cell in texts[column]]
    sentences = _sentences(texts["sentence"])
    word_index = None
    if "word_index" in texts:
        word_index = _word_indices(texts["word_index"], sentences)
        if "word" in texts:
            _check_words(texts["word"], sentences, word_index)
    kinds = {column: _guess(texts[column]) for column in names}
    _override(kinds, ordered, nominal)
    columns: dict[str, pd.Series[Any]] = {}
    for column in header:
        if column == "word_index":
            columns[column] = pd.Series(word_index)
        else:
            columns[column] = _column(column, texts[column], kinds.get(column))
    for row in range(len(rows)):
        if all(texts[column][row] is None for column in names):
            raise InputError(
                f"row {row + 1} has no value for any feature ({some(names)}); give it at least "
                "one or remove the row."
            )
    for column in names:
        distinct = columns[column].dropna().unique()
        if len(distinct) < 2:
            found = (
                f"only the value {short(str(_text(distinct[0])))}" if len(distinct) else "no value"
            )
            raise InputError(
                f"the feature {column!r} has {found}, so that it tells no two stimuli apart; "
                "remove the column or rename it with a leading underscore to carry it along."
            )
    table = pd.DataFrame(columns)
    features = tuple(Feature(column, kind) for column, kind in kinds.items())
    groups = _groups(texts.get("sentence_id"), sentences)
    return StimulusSet(name, table, features, word_index, groups, _digest(table, features))


def _check_header(header: list[str], name: str) -> None:
    for position, column in enumerate(header, start=1):
        if not column:
            raise InputError(
                f"column {position} of {name} has no name in the header; every column needs one."
            )
        if column in header[: position - 1]:
            raise InputError(
                f"{name} has two columns named {column!r} (columns {header.index(column) + 1} and "
                f"{position}); every name may occur once."
            )
    if "sentence" in header:
        return
    near = [c for c in header if c.strip("_ ").casefold().rstrip("s") in ("sentence", "text")]
    hint = f"did you mean {near[0]!r}? rename it; " if near else ""
    raise InputError(
        f"{name} has no column 'sentence': {hint}the columns found are {some(header)}."
    )


def _sentences(cells: list[str | None]) -> list[str]:
    for row, cell in enumerate(cells, start=1):
        if cell is None or not cell.strip():
            raise InputError(
                f"the sentence in row {row} is empty; every row needs one in the column 'sentence'."
            )
    return cast("list[str]", cells)


def _word_indices(cells: list[str | None], sentences: list[str]) -> NDArray[np.int64]:
    indices = np.empty(len(cells), dtype=np.int64)
    for row, (cell, sentence) in enumerate(zip(cells, sentences, strict=True)):
        n_words = len(sentence.split())
        allowed = (
            f"0 to {n_words - 1}, a whole number, for the {n_words} words of {short(sentence)}"
        )
        found = (cell or "").strip()
        number = float(found) if NUMBER.fullmatch(found) else math.nan
        if not number.is_integer():
            shown = short(found) if found else "empty"
            raise InputError(f"word_index in row {row + 1} is {shown}; expected {allowed}.")
        if not 0 <= number < n_words:
            raise InputError(
                f"word_index in row {row + 1} is {short(found)}, outside the sentence; "
                f"expected {allowed}."
            )
        indices[row] = int(number)
    return indices


def _check_words(
    cells: list[str | None], sentences: list[str], word_index: NDArray[np.int64]
) -> None:
    for row, (cell, sentence, index) in enumerate(
        zip(cells, sentences, word_index, strict=True), start=1
    ):
        word = sentence.split()[index]
        if cell is not None and _bare(cell) != _bare(word):
            raise InputError(
                f"the word in row {row} is {short(cell)}, but word_index {index} of "
                f"{short(sentence)} is {short(word)}; one of them must be corrected."
            )


def _bare(word: str) -> str:
    """A word without case and surrounding punctuation (unless it is nothing else)."""
    return (_EDGES.sub("", word) or word.strip()).casefold()


def _guess(cells: list[str | None]) -> Kind:
    """Ordered if every value is a number; words for missing or infinite values do not hide that."""
    values = {cell for cell in cells if cell is not None}
    numbers = {cell for cell in values if NUMBER.fullmatch(cell)}
    odd = (
        cell.casefold() in _MISSING_WORDS or _INFINITE.fullmatch(cell) for cell in values - numbers
    )
    return "ordered" if numbers and all(odd) else "nominal"


def _override(kinds: dict[str, Kind], ordered: Iterable[str], nominal: Iterable[str]) -> None:
    """Set the kinds that the user names."""
    ordered, nominal = list(ordered), list(nominal)
    for name in (*ordered, *nominal):
        if name not in kinds:
            raise unknown("feature", name, kinds)
        if name in ordered and name in nominal:
            raise InputError(
                f"the feature {name!r} is named both as ordered and as nominal; choose one."
            )
        kinds[name] = "ordered" if name in ordered else "nominal"


def _column(name: str, cells: list[str | None], kind: Kind | None) -> pd.Series[Any]:
    """A column of the table; `kind` is None for one that is carried along."""
    if kind == "ordered":
        return _numbers(name, cells)
    if kind == "nominal":
        for row, cell in enumerate(cells, start=1):
            if cell in ("NaN", "nan"):
                raise InputError(
                    f"column {name!r} has {cell!r} in row {row}; leave the cell empty if the value "
                    "is missing."
                )
    return pd.Series(cells, dtype="str")


def _numbers(name: str, cells: list[str | None]) -> pd.Series[Any]:
    numbers = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if cell is None:
            continue
        if not NUMBER.fullmatch(cell) and not _INFINITE.fullmatch(cell):
            hint = (
                " (a missing value is an empty cell)" if cell.casefold() in _MISSING_WORDS else ""
            )
            raise InputError(
                f"column {name!r} has {short(cell)} in row {row + 1}; an ordered feature needs a "
                f"number there{hint}."
            )
        number = float(cell)
        if abs(number) > LARGEST:
            raise InputError(
                f"column {name!r} has the infinite or huge value {short(cell)} in row {row + 1}; "
                f"expected a number up to {LARGEST:g} in size or an empty cell."
            )
        numbers[row] = number + 0.0  # -0.0 is 0
    whole = np.isfinite(numbers) & (numbers == np.rint(numbers)) & (np.abs(numbers) < 2**53)
    return pd.Series(numbers.astype(np.int64) if whole.all() else numbers)


def _groups(ids: list[str | None] | None, sentences: list[str]) -> NDArray[np.int64]:
    if ids is not None and None in ids:
        raise InputError(
            f"sentence_id in row {ids.index(None) + 1} is empty; give every row one or remove "
            "the column."
        )
    codes, _ = pd.factorize(np.array(sentences if ids is None else ids, dtype=object))
    return np.asarray(codes, dtype=np.int64)


def _text(value: Any) -> str | None:
    """A cell as text; missing (None, NaN, empty) as None, whole numbers without a decimal point."""
    if value is None or value is pd.NA or value == "":
        return None
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return None
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
    return str(value)


def _digest(table: pd.DataFrame, features: tuple[Feature, ...]) -> str:
    content = {
        "columns": [[name, [_text(cell) for cell in table[name]]] for name in table.columns],
        "features": [[feature.name, feature.kind] for feature in features],
    }
    canonical = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
