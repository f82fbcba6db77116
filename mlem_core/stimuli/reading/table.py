"""Any table, CSV in whatever dialect, workbook, Parquet or JSON Lines, as cells of text.

Where it has words and does not count them, sentences are put together of words, and words are found
by the characters that they span.

In messages about Parquet and JSON Lines, row 1 is the first one.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from operator import eq
from typing import Any

import pandas as pd

from mlem_core.base.errors import InputError, readable
from mlem_core.base.resources import check_memory
from mlem_core.base.text import short, some
from mlem_core.stimuli.columns import (
    Cells,
    Kind,
    kind_of_types,
    strip_marks,
    text_of_value,
    texts,
    with_hyphens,
    with_points,
)
from mlem_core.stimuli.reading.content import (
    LOOKED_AT,
    MAX_BYTES,
    MAX_COLUMNS,
    Columns,
    ReadAs,
    Reading,
    Source,
    content,
    declared_separator,
    decode,
    parse,
)
from mlem_core.stimuli.reading.workbook import is_workbook, read_sheet
from mlem_core.stimuli.table_warnings import thousands_findings

_PARQUET = b"PAR1"  # how such a file begins
_JSON_ARRAY, _BETWEEN = re.compile(r"\s*\[\s*\{"), re.compile(r"[\s,]*")
# What files of other kinds have at their beginning, and what they are.
_OTHERS = {
    r'\A\s*File type = "ooTextFile': "an object of Praat: save it as tab-separated text there",
    r"\A(?i:@(UTF8|Begin)\b|\s*<(\?xml|!doctype|html)\b)": "a transcript in CHAT or XML (ELAN): "
    "export it as a table there",
    r"\A\s*-DOCSTART-|\A(\S+[ \t](\S+[ \t])*(O|[BIESLU]-\S+)\s*\n){3}": "a word a line, as in "
    "CoNLL-2003: write it with a header, and columns word and sentence_id",
    # The first two words of a sentence, with ten columns each.
    r"(?m:^1\t[^\t\n]+(?:\t[^\t\n]*){8}\n2\t[^\t\n]+(?:\t[^\t\n]*){8}$)": "a treebank (ten "
    "columns of CoNLL-U): give it the ending .conllu, so that its trees are read",
}
_ERRORS = {"#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!", "#ERROR!", "#SPILL!"}
_BYTES = 100  # that a cell takes while it is read


def read_parquet(data: bytes, name: str) -> tuple[list[str], Columns, list[Kind | None]]:
    """Header, columns and their kinds of a Parquet file; missing values are None.

    Raises InputError: pyarrow is not installed; a damaged file, or one that unpacks to too much; a
    column of anything but text, numbers, booleans, dates and categories of these.
    """
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError(
            f"{name} is a Parquet file, which needs the package pyarrow: pip install pyarrow, or "
            "save the table as CSV."
        ) from error
    broken = (pa.ArrowException, OSError, ValueError, OverflowError)
    with readable(name, "Parquet file", *broken):
        file = ParquetFile(io.BytesIO(data))
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
        _check_size(n_rows, len(schema), name)
        for field in schema:
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if pa.types.is_nested(kind) or "binary" in str(kind):
                raise _wrong(name, field.name, str(field.type))
        # A text that many rows share stays one text, however long it is.
        text = [field.name for field in schema if "string" in str(field.type)]
        file = ParquetFile(io.BytesIO(data), read_dictionary=text)
        columns = [[*chain(*map(_texts, column.chunks))] for column in file.read().columns]
        if sum(len(cell) for column in columns for cell in column if cell) > MAX_BYTES:
            raise InputError(
                f"{name} has more than {MAX_BYTES:,} characters, the limit for a table."
            )
    kinds: list[Kind | None] = []
    for field in schema:
        number = any(of(field.type) for of in (pa.types.is_integer, pa.types.is_floating))
        is_text = field.name in text or pa.types.is_dictionary(field.type)
        kinds.append("ordered" if number else "nominal" if is_text else None)
    return schema.names, columns, kinds


def _texts(cells: Any) -> list[str | None]:
    """The cells of a column of Arrow."""
    if not hasattr(cells, "dictionary"):
        return list(map(text_of_value, cells.to_pylist()))
    texts = [*map(text_of_value, cells.dictionary.to_pylist()), None]
    return [texts[-1 if place is None else place] for place in cells.indices.to_pylist()]


class _Written(str):
    """A number as a JSON file has it, which is no text."""


def read_json_lines(text: str, name: str) -> tuple[list[str], Columns, list[Kind | None]]:
    """Header, columns and their kinds of a JSON Lines file, an object a line; numbers as written.

    Raises InputError: a line that is no JSON object; a value that is a list or an object.
    """
    columns: dict[str, list[str | None]] = {}
    types: dict[str, set[type]] = {}
    rows = [line for line in text.split("\n") if line.strip()]
    for row, line in enumerate(rows, start=1):
        cells = None
        with contextlib.suppress(ValueError, RecursionError):
            numbers: dict[str, Any] = dict.fromkeys(("parse_int", "parse_float"), _Written)
            cells = json.loads(line, parse_constant=_Written, object_pairs_hook=tuple, **numbers)
        if not isinstance(cells, tuple):
            raise InputError(
                f"row {row} of {name} is {short(line.strip())}; expected a JSON object such as "
                '{"sentence": "the cat sleeps", "word_index": 1} on each line.'
            )
        if twice := [key for key, n in Counter(key for key, _ in cells).items() if n > 1]:
            raise InputError(
                f"row {row} of {name} has the key {short(twice[0])} more than once; expected each "
                "key once."
            )
        for key, value in cells:
            if isinstance(value, (list, tuple)):
                kind = "list" if isinstance(value, list) else "dict"
                raise _wrong(f"row {row} of {name}", key, kind)
            if half := _SURROGATE.search(f"{key}{value}"):
                raise InputError(
                    f"row {row} of {name} has half of a character, {half[0]!a}, in the column "
                    f"{short(key)}; expected whole characters: correct the cell."
                )
            if key not in columns:
                _check_size(len(rows), len(columns) + 1, name)
                columns[key], types[key] = [None] * len(rows), set()
            if value not in (None, ""):
                types[key].add(type(value))
            columns[key][row - 1] = text_of_value(value)
    return list(columns), list(columns.values()), list(map(kind_of_types, types.values()))


def _wrong(where: str, column: str, what: str) -> InputError:
    return InputError(
        f"{where} has {short(what)} in the column {short(column)}; expected text, numbers, "
        "booleans or dates, one value a cell."
    )


def _check_size(n_rows: int, n_columns: int, name: str) -> None:
    if n_columns > MAX_COLUMNS:
        raise InputError(f"{name} has {n_columns:,} columns; expected at most {MAX_COLUMNS:,}.")
    check_memory(_BYTES * n_rows * n_columns, name, "choose fewer rows or columns")


# The roles of the first character of a word in its sentence, and of the one after its last.
SPAN = ("start_idx", "end_idx")
DETECTED = ReadAs()
# JSON may name one of the two numbers that UTF-16 has for an emoji alone.
_SURROGATE = re.compile("[\ud800-\udfff]")
_WIDE = re.compile("[\U00010000-\U0010ffff]")
# What pandas calls a column without a name.
_OF_PANDAS = re.compile(r"Unnamed: \d+|__index_level_\d+__")
_QUOTED = re.compile(r"""(["'“”‘’]).*["'“”‘’]""", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Table:
    """The cells of a file, whatever its columns are called.

    Attributes
    ----------
    name : how messages call the file
    frame : a row a stimulus; cells are str, or None where they are empty; missing-value marks are
        still there, numbers have decimal points
    read_as : how it was read
    notes : sentences about what its program does not show: hidden rows and columns of a workbook
    kinds : of the columns that the file has as text or as numbers, if they are features
    """

    name: str
    frame: pd.DataFrame
    read_as: ReadAs
    notes: tuple[str, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def nameless(self) -> list[str]:
        """The columns without a name in the file, by the names that they have here."""
        return [new for _, name, new in self.read_as.renamed if not name]

    def stripped(self, column: str) -> list[str | None]:
        """The cells of a column without space around them."""
        return [cell and cell.strip() for cell in self.frame[column].tolist()]

    def values(self, column: str) -> list[str | None]:
        """The cells of a column without space around them; empty ones and missing values None."""
        return strip_marks(self.frame[column].tolist(), self.read_as.missing)


def read_table(
    source: Source,
    name: str | None = None,
    read_as: ReadAs = DETECTED,
    what: str = "stimulus table",
) -> Table:
    """The table that a CSV, an .xlsx workbook, a Parquet or a JSON Lines file holds.

    Parameters
    ----------
    source : path, content, or binary file
    name : how messages call it; by default the file's name
    read_as : how it is to be read; what is None there is detected
    what : what messages call a table of this kind

    Raises InputError: the file is missing, over `MAX_BYTES`, in an encoding that cannot be told, no
    table, or ragged; a choice of `read_as` that does not go with it.
    """
    data, file_name = content(source, f"a {what}", "the file")
    name = name or file_name
    notes: tuple[str, ...] = ()
    if is_workbook(data):
        header, columns, kinds, read_as, notes = read_sheet(data, name, read_as)
    elif read_as.sheet is not None:
        raise InputError(f"{name} is no workbook and has no sheet {read_as.sheet!r}.")
    elif data.startswith(_PARQUET):
        header, columns, kinds = read_parquet(data, name)
        read_as = replace(read_as, separator=None, encoding=None)
    else:
        text, encoding = decode(data, name, read_as.encoding)
        header, columns, kinds, read_as, notes = _parse_text(text, encoding, name, read_as)
    if not header:
        raise InputError(f"{name} is empty; expected a header and at least two rows.")
    header = [_plain(cell) for cell in header]
    _check_header(header, columns, name)
    for column, cells in zip(header, columns, strict=True):
        for cell in _ERRORS.intersection(cells):
            raise InputError(
                f"row {cells.index(cell) + 1} of {name} has the error {cell} of a spreadsheet in "
                f"the column {short(column)}; correct its formula."
            )
    header, places, renamed = _own_names(header, columns)
    columns, kinds = [columns[i] for i in places], [kinds[i] for i in places]
    columns = [list(with_hyphens(cells)) for cells in columns]
    # Where commas separate cells, a comma in a number is more often one between thousands.
    decimal = read_as.decimal or "."
    if read_as.decimal is None and read_as.separator != ",":
        written = (cells for cells, kind in zip(columns, kinds, strict=True) if kind is None)
        pointed = (with_points(cells, read_as.missing) for cells in written)
        decimal = "," if any(cells is not None for cells in pointed) else "."
    notes = (*notes, *thousands_findings(header, columns, decimal))
    if decimal == ",":
        columns = [
            (kind is None and with_points(cells, read_as.missing)) or cells
            for cells, kind in zip(columns, kinds, strict=True)
        ]
    frame = pd.DataFrame(dict(zip(header, columns, strict=True)), columns=header, dtype=object)
    read_as = replace(read_as, decimal=decimal, renamed=renamed, found=())
    known = {name: kind for name, kind in zip(header, kinds, strict=True) if kind is not None}
    return Table(name, frame, read_as, notes, known)


def _parse_text(text: str, encoding: str, name: str, read_as: ReadAs) -> Reading:
    """Header, columns and their kinds of a text, how it was read, and sentences about it."""
    for pattern, what in _OTHERS.items():
        if re.search(pattern, text[:LOOKED_AT]):
            raise InputError(f"{name} is no table, but {what}.")
    is_array = read_as.separator is None and _JSON_ARRAY.match(text)
    if is_array:
        text = _lines_of_array(text, name)
    is_json_lines = name.lower().endswith((".jsonl", ".ndjson")) or text.lstrip().startswith('{"')
    if is_array or (read_as.separator is None and is_json_lines):
        return *read_json_lines(text, name), replace(read_as, encoding=encoding), ()
    separator, rest = declared_separator(text)
    if read_as.separator in (None, separator):
        text = rest
    separator = read_as.separator or separator

    quoted_as = replace(read_as, separator=separator, encoding=encoding, literal=False)
    if separator not in "\t|" or '"' not in text:
        return parse(text, name, quoted_as)
    # Such tables often have quotation marks as they are, and some that end in a later row.
    literal_as = replace(quoted_as, literal=True)
    try:
        quoted = parse(text, name, quoted_as)
    except InputError:
        with contextlib.suppress(InputError):
            return parse(text, name, literal_as)
        raise
    with contextlib.suppress(InputError):
        literal = parse(text, name, literal_as)
        if len(literal[1][0]) > len(quoted[1][0]):
            return literal
    return quoted


def _lines_of_array(text: str, name: str) -> str:
    """JSON Lines of a JSON array of objects, each as it is written there."""
    decoder, lines = json.JSONDecoder(), list[str]()
    at = text.index("[") + 1
    with readable(name, "JSON array", ValueError, RecursionError):
        while not text.startswith("]", at := _BETWEEN.match(text, at).end()):  # type: ignore[union-attr]
            _, end = decoder.raw_decode(text, at)
            lines.append(text[at:end].replace("\n", " ").replace("\r", " "))
            at = end
    return "\n".join(lines)


def _plain(name: str) -> str:
    """The name of a column without signs that nobody sees, characters coded in the one way."""
    known = unicodedata.normalize("NFC", name)
    plain = "".join(char for char in known if unicodedata.category(char) != "Cf").strip()
    return "" if _OF_PANDAS.fullmatch(plain) else plain


def _check_header(header: list[str], columns: Columns, name: str) -> None:
    """Raise where a row repeats the header, or its names have quotation marks."""
    if len(header) < 2:
        return
    quoted = [name for name in header if _QUOTED.fullmatch(name)]
    if len(quoted) >= len(header) - 1:
        raise InputError(
            f"the header of {name} has quotation marks in {some(quoted, 3)}; expected names in "
            'marks such as "these", without a space before them, or without any.'
        )
    key = [cell.casefold() for cell in header]
    for first in {cell for cell in set(columns[0]) if _plain(cell or "").casefold() == key[0]}:
        for row, cell in enumerate(columns[0]):
            cells = (_plain(column[row] or "").casefold() for column in columns)
            if cell == first and all(map(eq, cells, key)):
                raise InputError(
                    f"row {row + 1} of {name} is the header again, as where files are put "
                    "together; expected it once: remove the row."
                )


def _own_names(
    header: list[str], columns: Columns
) -> tuple[list[str], list[int], tuple[tuple[int, str, str], ...]]:
    """A name of its own for each column, and their places; none without a name and any cell."""
    places = [i for i, name in enumerate(header) if name or any(columns[i])]
    names: dict[str, int] = {}
    theirs, renamed = set(header), []
    for i in places:
        name = header[i] or f"column_{i + 1}"
        tried = chain([name], (f"{name}_{number}" for number in count(2)))
        new = next(n for n in tried if n not in names and (n == header[i] or n not in theirs))
        if new != header[i]:
            renamed.append((i + 1, header[i], new))
        names[new] = i
    return list(names), places, tuple(renamed)


def having(roles: Mapping[str, str], role: str) -> list[str]:
    """The columns that have a role."""
    return [column for column, its in roles.items() if its == role]


def carried_name(column: str, names: Sequence[str]) -> str:
    """The name of a column that is no feature, where others have these names."""
    carried = column if column.startswith("_") else f"_{column}"
    while carried in names and carried != column:
        carried = f"_{carried}"
    return carried


def has_events(table: Table) -> bool:
    """Whether a table is an events.tsv of BIDS: a row an event, with its onset and duration."""
    names = {str(name) for name in table.frame}
    is_named = table.name.endswith("events.tsv") or "trial_type" in names
    return is_named and {"onset", "duration"} <= names


def _event_names(table: Table) -> list[str]:
    """Name of each event: its stim_file, else its trial_type (or "event") and a number."""
    numbers, none = defaultdict[str, Any](lambda: count(1)), [None] * len(table.frame)
    columns = ("stim_file", "trial_type")
    cells = (table.values(name) if name in table.frame else none for name in columns)
    pairs = [(file, kind or "event") for file, kind in zip(*cells, strict=True)]
    return [file or f"{kind} {next(numbers[kind])}" for file, kind in pairs]


def with_words(
    table: Table, chosen: dict[str, str]
) -> tuple[Table, dict[str, str], tuple[str, ...]]:
    """A table with a sentence and a word_index, its roles, and what is to be said of it.

    Without a sentence they are those of the words of each sentence_id; with spans of characters,
    the word_index is that of the word in which a span ends. Events of BIDS get names. Any other
    table is as it was.

    Raises InputError: an empty word; a span that is not in its sentence, ends with a space, or has
    one side only.
    """
    sentence, word, group, start, end = (
        having(chosen, role) for role in ("sentence", "word", "sentence_id", *SPAN)
    )
    notes: tuple[str, ...] = ()
    if not (sentence or having(chosen, "stimulus")) and len(word) == len(group) == 1:
        columns = _put_together(table.stripped(word[0]), table.stripped(group[0]), word[0])
        notes = (
            f"The sentences of {table.name} are put together from the words of each "
            f"{short(group[0])}, in the order of the rows.",
        )
    elif len(sentence) == len(start) == len(end) == 1 and not having(chosen, "word_index"):
        cells = (texts(table.frame[column[0]]) for column in (sentence, start, end))
        columns = {"word_index": list(map(_stimulus_word, range(len(table.frame)), *cells))}
        if any(map(_WIDE.search, table.frame[sentence[0]].dropna())):
            notes = (
                f"In {start[0]} and {end[0]} an emoji is one character; some programs write 2.",
            )
    elif has_events(table) and not (sentence or having(chosen, "stimulus") or word):
        columns = {"stimulus": _event_names(table)}
        file = "their stim_file, or else " if "stim_file" in table.frame else ""
        notes = (f"The events of {table.name} are named by {file}their type and a number.",)
    elif start or end:
        raise InputError(
            f"the characters of the words of {table.name} are in {some([*start, *end])}; expected "
            "one column each for start_idx, end_idx and the sentence, and none for word_index."
        )
    else:
        return table, chosen, notes
    renamed = {name: carried_name(name, list(chosen)) for name in columns if name in chosen}
    frame = table.frame.rename(columns=renamed)
    first = list(frame).index(sentence[0]) + 1 if sentence else 0
    for place, (name, own) in enumerate(columns.items(), start=first):
        frame.insert(place, name, own)
    roles = {renamed.get(name, name): role for name, role in chosen.items()}
    return replace(table, frame=frame), {name: name for name in columns} | roles, notes


def _put_together(words: Cells, groups: Cells, column: str) -> dict[str, list[str]]:
    parts: defaultdict[str | None, list[str]] = defaultdict(list)
    places = []
    for row, (word, group) in enumerate(zip(words, groups, strict=True), start=1):
        if not word:
            raise InputError(
                f"the word in row {row} of the column {short(column)} is empty; expected one in "
                "each row, as sentences are put together from them."
            )
        parts[group] += word.split()  # of a word with a space the last part is the stimulus
        places.append(str(len(parts[group]) - 1))
    sentences = {group: " ".join(own) for group, own in parts.items()}
    return {"sentence": [sentences[group] for group in groups], "word_index": places}


def _stimulus_word(row: int, sentence: str | None, *span: str | None) -> str:
    text = sentence or ""
    start, end = (int(at) if at and at.strip().isdecimal() else -1 for at in span)
    last = max(end - 1, start)
    if not 0 <= start <= end or last >= len(text) or text[last].isspace():
        found = " to ".join(short(at or "") for at in span)
        raise InputError(
            f"the characters in row {row + 1} are {found}; expected start_idx and end_idx of a "
            f"word, from 0 to {len(text)}, in {short(text)}."
        )
    return str(len(text[: last + 1].split()) - 1)
