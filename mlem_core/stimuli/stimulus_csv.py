"""The stimulus CSV: a table with its columns is checked into a `StimulusSet`, and written.

In messages, row 1 is the first stimulus below the header. No spreadsheet runs a cell of a table
that is written here as a formula.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, cast

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError
from mlem_core.base.files import replacing
from mlem_core.base.text import short, some
from mlem_core.stimuli.columns import (
    NUMBER,
    Kind,
    cell_text,
    feature_kind,
    guess_kind,
    override_kinds,
    texts,
    typed_column,
)
from mlem_core.stimuli.reading.content import Columns, ReadAs, Source, content, decode, parse
from mlem_core.stimuli.stimulus_set import ITEM, ORDER, Feature, StimulusSet, group_codes
from mlem_core.stimuli.word_numbers import other_words, word_places

CARRIED = ("sentence", "word_index", "word", "sentence_id", ITEM)
# What a spreadsheet may take for a formula, after the apostrophes that we put in front ourselves.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_QUOTED = re.compile(r'[",\r\n]')


def from_frame(
    frame: pd.DataFrame, name: str, *, ordered: Iterable[str] = (), nominal: Iterable[str] = ()
) -> StimulusSet:
    """A checked stimulus set from a table with the columns of the stimulus CSV.

    Parameters
    ----------
    frame : one row a stimulus; cells are str, numbers, booleans, or missing (None, NaN, "")
    name : how messages call the set
    ordered, nominal : features whose kind is not that of `mlem_core.stimuli.columns.feature_kind`

    Raises InputError: the content breaks the contract; one sentence says where and what was
    expected.

    Examples
    --------
    >>> from_frame(pd.DataFrame({"sentence": ["a b", "c d"], "question": [True, False]}), "mine")
    2 sentences of mine: question (nominal)
    """
    columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
    header = [str(column) for column in frame.columns]
    kinds = {name: feature_kind(column) for name, column in zip(header, columns, strict=True)}
    return from_cells(header, [*map(texts, columns)], name, ordered, nominal, kinds)


def read_written(
    source: Source,
    *,
    name: str | None = None,
    ordered: Iterable[str] = (),
    nominal: Iterable[str] = (),
) -> StimulusSet:
    """Read what `write_csv` wrote, to the letter: nothing is detected and no cell means missing
    but an empty one.

    Parameters
    ----------
    source : path, content, or binary file
    name : how the set is called; by default the file's name
    ordered, nominal : features whose kind is not what their values suggest

    Raises InputError: it is no CSV in UTF-8 with commas, or its content breaks the contract.
    """
    data, file_name = content(source)
    name = name or file_name
    header, columns, _, _, notes = parse(decode(data, name, "utf-8")[0], name, ReadAs(header_row=1))
    if notes:
        raise InputError(f"{name} was not written by this program: {notes[0]}")
    return from_cells(header, columns, name, ordered, nominal)


def write_csv(stimuli: StimulusSet | pd.DataFrame, target: str | Path | IO[Any]) -> None:
    """Write stimuli so that `read_written` gives them back, as `write_table` does.

    Parameters
    ----------
    stimuli : a set, or a table with the columns of the stimulus CSV

    Examples
    --------
    >>> write_csv(analysis.stimuli, "copy.csv")
    >>> len(read_csv("copy.csv"))
    120
    """
    write_table(stimuli.table if isinstance(stimuli, StimulusSet) else stimuli, target)


def from_cells(
    header: list[str],
    cells: Columns,
    name: str,
    ordered: Iterable[str] = (),
    nominal: Iterable[str] = (),
    known: Mapping[str, Kind] = MappingProxyType({}),
) -> StimulusSet:
    """Stimulus set of column names and their cells as text, empty ones None, as `from_frame`.

    The kind of a feature is the one that is known, else what its cells suggest.
    """
    _check_header(header, name)
    n_rows = len(cells[0])
    if n_rows < 2:
        size = "one row" if n_rows else "a header and no rows"
        raise InputError(f"{name} has {size}; at least two stimuli are needed to compare.")
    texts = dict(zip(header, cells, strict=True))
    named = "sentence" if "sentence" in header else "stimulus"
    names = [c for c in header if c not in (*CARRIED, named) and not c.startswith("_")]
    if not names:
        raise InputError(
            f"{name} has no feature: its columns are {some(header)}; every column but "
            f"{', '.join(CARRIED)} and those that begin with _ is one."
        )
    for column in {*names, "stimulus", "sentence_id", ITEM} & set(header):
        texts[column] = list(map(cache(_stripped), texts[column]))
    for column in (named, "sentence_id", ITEM):
        cells_of = list(map(cache(_stripped), texts.get(column, ())))
        if None in cells_of:
            advice = " or remove the column" * (column != named)
            raise InputError(
                f"the {column} in row {cells_of.index(None) + 1} is empty; give every row one"
                f"{advice}."
            )
    sentences = cast("list[str]", texts[named])
    word_index = None
    if "word_index" in texts:
        word_index = word_places(texts["word_index"], sentences)
        words = texts.get("word", [None] * n_rows)
        for row in other_words(words, sentences, word_index).tolist()[:1]:
            there = sentences[row].split()[word_index[row]]
            raise InputError(
                f"the word in row {row + 1} is {short(words[row] or '')}, but word_index "
                f"{word_index[row]} of {short(sentences[row])} is {short(there)}; one of them must "
                "be corrected."
            )
    kinds = {column: known.get(column) or guess_kind(texts[column]) for column in names}
    override_kinds(kinds, ordered, nominal)
    columns: dict[str, pd.Series[Any]] = {
        column: typed_column(column, cells, kinds.get(column)) for column, cells in texts.items()
    }
    if word_index is not None:
        columns["word_index"] = pd.Series(word_index)
    if ORDER in texts:
        columns[ORDER] = typed_column(ORDER, texts[ORDER], "ordered")
    without = np.logical_and.reduce([columns[column].isna() for column in names])
    if without.any():
        raise InputError(
            f"row {int(without.argmax()) + 1} has no value for any feature ({some(names)}); give "
            "it at least one or remove the row."
        )
    for column in names:
        distinct = columns[column].dropna().unique()
        if len(distinct) < 2:
            only = [f"only the value {short(str(cell_text(value)))}" for value in distinct]
            values = only[0] if only else "no value"
            raise InputError(
                f"the feature {column!r} has {values}, so that no two stimuli differ in it; "
                "remove the column or rename it with a leading underscore to carry it along."
            )
    table = pd.DataFrame(columns)
    features = tuple(Feature(column, kind) for column, kind in kinds.items())
    return StimulusSet(name, table, features, word_index, group_codes(table))


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
    if "sentence" in header or ("stimulus" in header and "word_index" not in header):
        return
    near = [c for c in header if c.strip("_ ").casefold().rstrip("s") in ("sentence", "text")]
    hint = f"did you mean {near[0]!r}? rename it; " if near else ""
    raise InputError(
        f"{name} has no column 'sentence': {hint}the columns found are {some(header)}."
    )


def _stripped(cell: str | None) -> str | None:
    return (cell or "").strip() or None


def write_table(frame: pd.DataFrame, target: str | Path | IO[Any], *, synced: bool = True) -> None:
    """Write any table as CSV; cells (and column names) that a spreadsheet runs get an apostrophe.

    An index other than 0, 1, 2, ... is written as the first column, under the index's name.

    Parameters
    ----------
    frame : the table
    target : path (written under another name, then renamed), or an open text or binary file
    synced : as of `mlem_core.base.files.replacing`
    """
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.rename_axis(index=frame.index.name or "").reset_index()
    if isinstance(target, (str, Path)):
        with replacing(target, synced=synced) as temporary, temporary.open("wb") as file:
            file.writelines(map(str.encode, _lines(frame)))
    else:
        text = isinstance(target, io.TextIOBase)
        target.writelines(_lines(frame) if text else map(str.encode, _lines(frame)))


def _lines(frame: pd.DataFrame) -> Iterator[str]:
    columns = [
        map(_written, [str(name), *frame.iloc[:, i].tolist()]) for i, name in enumerate(frame)
    ]
    for line in map(",".join, zip(*columns, strict=True)):
        yield f"{line}\n" if line else '""\n'  # an empty line would be no row


def _written(value: Any) -> str:
    """A cell with its quotation marks, if it needs any."""
    if isinstance(value, (float, np.floating)):
        return "" if math.isnan(value) else repr(float(value))
    if value is None or value is pd.NA:
        return ""
    text = str(value)
    if isinstance(value, str) and _FORMULA.match(text) and not NUMBER.fullmatch(text):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
