"""The bytes of a file, the text that they are, the cells of that text, and how they were read.

In messages, row 1 is the first one below the header.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from mlem_core.base.errors import InputError, readable
from mlem_core.base.text import listed, short
from mlem_core.stimuli.columns import Kind
from mlem_core.stimuli.reading.header import MOST_ROWS, PREVIEW, split_header

MAX_BYTES = 500_000_000
MAX_COLUMNS = 2_000
# Of a table, the cells of each column.
Columns = list[list[str | None]]
Source = str | Path | bytes | BinaryIO

# What separates the cells of a line, and what it is called.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
DECIMALS = {".": "point", ",": "comma"}
_ENCODINGS = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "cp1252": "Windows-1252",
}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Of Windows-1252 read as such: what stands between two letters of a word only where the text is in
# another encoding, and a capital after a small letter.
_ODD = re.compile(
    r"(?<=[^\W\d_])(?:[^\x00-\x7f\w’‘“”–—…·­]|[¹³¼½¾])(?=[^\W\d_])|(?<=[a-z])[À-ÞŠŒŽŸ]"
)
MOST_ODD = 0.1
MOST_ACCENTS = 0.3
# An apostrophe that `write_table` put before what a spreadsheet may take for a formula.
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")
_GZIP = b"\x1f\x8b"
LOOKED_AT = 200_000  # characters
# Excel's own way to say it, in the first line.
_SAID = re.compile(r'"?sep=([,;|\t])"?\r?\n', re.IGNORECASE)


@dataclass(frozen=True)
class ReadAs:
    """The choices by which a file becomes a table; None is detected.

    What a reader gives back has no None but `missing`, and can be given to it again.

    Attributes
    ----------
    separator : one of `SEPARATORS`; None for a workbook, Parquet and JSON Lines
    encoding : a codec of Python; None for a workbook and Parquet
    decimal : "." or ","
    missing : cells that are no value, in every feature; None: by the rule of
        `mlem_core.stimuli.columns.missing_marks`
    sheet : of a workbook, by its name
    sheets : all sheets of the workbook
    literal : whether quotation marks are characters like any other
    header_row : row of the file that has the names of the columns, from 1; 0: none has
    renamed : (position from 1, name in the file, name here) of columns without a name of their own
    found : what was taken for missing, in order of appearance
    first_rows, above : of a text or a workbook, and how many of them are above the first stimulus

    Examples
    --------
    >>> table = b"sentence;size\\na;1,5\\nb;2\\nc;3"
    >>> read_csv(table, name="mine", read_as=ReadAs(separator=";", decimal=",")).values("size")
    array([1.5, 2. , 3. ])
    """

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    missing: tuple[str, ...] | None = None
    sheet: str | None = None
    sheets: tuple[str, ...] = ()
    literal: bool = False
    header_row: int | None = None
    renamed: tuple[tuple[int, str, str], ...] = ()
    found: tuple[str, ...] = ()
    first_rows: tuple[tuple[str, ...], ...] = ()
    above: int = 0

    @property
    def encoding_name(self) -> str:
        """The usual name of the encoding: "UTF-8"."""
        return _ENCODINGS.get(str(self.encoding), str(self.encoding or ""))

    @property
    def plain(self) -> bool:
        """Whether there is nothing to say: UTF-8, commas, decimal points, nothing renamed."""
        usual = self.separator in (",", None) and self.encoding in ("utf-8", None)
        odd = self.sheet or self.decimal == "," or self.renamed or self.found or self.literal
        return usual and not odd and self.header_row in (None, 1)

    @property
    def sentence(self) -> str:
        """Account of the reading: "read as Windows-1252 text separated by semicolons, ..."."""
        if self.sheet is not None:
            others = [short(name) for name in self.sheets if name != self.sheet]
            others_named = f" (the others are {listed(others, most=5)})" if others else ""
            parts = [f"read as a workbook: its sheet {short(self.sheet)}{others_named}"]
        elif self.separator is None:
            parts = ["read as JSON Lines" if self.encoding else "read as Parquet"]
        else:
            separator = SEPARATORS.get(str(self.separator), repr(self.separator))
            parts = [f"read as {self.encoding_name} text separated by {separator}"]
        if self.header_row == 0:
            parts.append("no row has names of columns")
        elif self.header_row not in (None, 1):
            parts.append(f"row {self.header_row} has the names of the columns")
        if self.decimal == ",":
            parts.append("numbers have a decimal comma")
        if self.literal:
            parts.append("quotation marks are characters like any other")
        if self.found:
            verb = "is a missing value" if len(self.found) == 1 else "are missing values"
            parts.append(f"{listed([short(mark) for mark in self.found])} {verb}")
        for position, name, new in self.renamed:
            what = f"the second {short(name)}" if name else "without a name"
            parts.append(f"column {position}, {what}, is called {short(new)}")
        return "; ".join(parts) + "."


# Names, cells (empty ones None) and kinds of columns; how they were read; sentences about that.
Reading = tuple[list[str], Columns, list[Kind | None], ReadAs, tuple[str, ...]]


def parse_separator(text: str) -> str:
    """The separator that a user names: the character itself, or its name."""
    named = {name.removesuffix("s"): mark for mark, name in SEPARATORS.items()}
    separator = named.get(text.strip().casefold().removesuffix("s"), text)
    if separator not in SEPARATORS:
        names = listed([f"{mark!r} ({name})" for mark, name in SEPARATORS.items()], last="or")
        raise InputError(f"found the separator {short(text)}; expected {names}.")
    return separator


def parse_decimal(text: str) -> str:
    """The decimal sign that a user names: "." or ",", or "point" or "comma"."""
    for sign, name in DECIMALS.items():
        if text.strip().casefold() in (sign, name):
            return sign
    raise InputError(f"found the decimal sign {short(text)}; expected '.' or ','.")


def parse_marks(text: str) -> tuple[str, ...]:
    """The missing-value marks that a user names, separated by commas; none for an empty text."""
    return tuple(mark.strip() for mark in text.split(",") if mark.strip())


def content(
    source: Source, what: str = "a CSV file", called: str = "the stimulus file"
) -> tuple[bytes, str]:
    """The bytes of a source, refused before they are read when there are too many, and its name.

    Parameters
    ----------
    what, called : what messages say that is expected, and how they call the source

    Raises InputError: the file cannot be read or has more than `MAX_BYTES`.
    """
    if isinstance(source, bytes):
        data, size, name = source, len(source), "the CSV"
    elif isinstance(source, (str, Path)):
        path = Path(source)
        name = path.name
        try:
            size = path.stat().st_size
            data = b"" if size > MAX_BYTES else path.read_bytes()
        except OSError as error:
            raise InputError(
                f"{called} {str(path)!r} cannot be read ({error.strerror}); expected {what}."
            ) from error
    else:
        name = Path(str(getattr(source, "name", "the CSV"))).name
        data = source.read(MAX_BYTES + 1)
        size = len(data)
    if data.startswith(_GZIP):
        with readable(name, "gzip file", zlib.error):
            data = zlib.decompressobj(wbits=31).decompress(data, MAX_BYTES + 1)
        size, name = len(data), name.removesuffix(".gz")
    if size > MAX_BYTES:
        most = MAX_BYTES // 1_000_000
        raise InputError(f"{name} is larger than the limit of {most} MB for {what}.")
    return data, name


def decode(data: bytes, name: str, encoding: str | None = None) -> tuple[str, str]:
    """The text of a file, without a byte-order mark, and its encoding.

    Without `encoding` a byte-order mark decides, then whether it is UTF-8; what is left is
    Windows-1252 (Latin-1 is a part of it) where that makes words: few letters have accents, and no
    sign stands inside a word. (On short English or German text in Windows-1252, charset-normalizer
    3.5 answers cp775, cp852 or cp1250.)

    Raises InputError: it is in none of these, not in `encoding`, or no text.
    """
    requested = encoding
    encoding = encoding or _detect(data)
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except LookupError as error:
        raise InputError(
            f"unknown encoding {short(encoding)}: the choices are those of Python, such as utf-8, "
            "utf-16, latin-1, windows-1252, windows-1250, windows-1251 or mac-roman."
        ) from error
    except UnicodeDecodeError as error:
        where = _row_number(data[: error.start].count(b"\n"))
        raise InputError(
            f"{name} is not {requested or encoding.upper()}: byte {error.start + 1:,} ({where}) is "
            f"0x{data[error.start]:02x}; choose its encoding, or save it in UTF-8."
        ) from error
    except UnicodeError as error:  # as idna and punycode have it
        raise InputError(f"{name} is not {encoding} ({error}); choose its encoding.") from error
    if requested is None and encoding == "cp1252":
        _check_words(text, name)
    if "\0" in text:
        where = _row_number(text[: text.index("\0")].count("\n"))
        raise InputError(
            f"{name} is no text: {where} is a null character; expected plain text, as "
            "SPSS, Stata and R export it, or a choice of its encoding (utf-16 may have no mark)."
        )
    return text, codecs.lookup(encoding).name


def _detect(data: bytes) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    for encoding in ("utf-8", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            data.decode(encoding)
            return encoding
    return "utf-8"  # which says where it is not


def _check_words(text: str, name: str) -> None:
    """Raise where Windows-1252 makes no words of a text."""
    counts = Counter(text)
    letters = sum(n for char, n in counts.items() if char.isalpha())
    accents = {char: n for char, n in counts.items() if not char.isascii()}
    accented = sum(n for char, n in accents.items() if char.isalpha())
    odd = [match.start() for match in _ODD.finditer(text)]
    if accented <= MOST_ACCENTS * letters and len(odd) <= MOST_ODD * sum(accents.values()):
        return
    at = odd[0] if odd else min(map(text.index, accents))
    begin = text.rfind("\n", 0, at) + 1
    raise InputError(
        f"{name} is not UTF-8, and read as Windows-1252 its text makes no words "
        f"({_row_number(text[:at].count(chr(10)))}: {short(text[max(begin, at - 20) : at + 20])}); "
        "choose its encoding, such as windows-1250, windows-1251, mac-roman, shift-jis or gb18030, "
        "or save it in UTF-8."
    )


def _row_number(n_lines: int) -> str:
    return f"in row {n_lines}" if n_lines else "in the header"


def declared_separator(text: str) -> tuple[str, str]:
    """The separator of a text, and the text without the line that says it (`sep=;`).

    It is the one by which most rows have as many cells, at least two; commas where there is none.
    Spaces separate cells only where each of the first lines has quotation marks, as R writes them.
    """
    match = _SAID.match(text)
    if match:
        return match[1], text[match.end() :]
    lines = text[:LOOKED_AT].splitlines()[:MOST_ROWS]
    spaced = len(lines) > 1 and all(line.startswith('"') for line in lines)
    possible = [separator for separator in SEPARATORS if separator != " " or spaced]
    scores = {separator: _score(text, separator) for separator in possible}
    best = max(scores, key=lambda separator: scores[separator])
    return (best if scores[best][1] > 1 else ","), text


def first_rows(text: str, separator: str, *, literal: bool = False) -> list[list[str]]:
    """The first rows of a CSV file, empty ones too."""
    rows: list[list[str]] = []
    with contextlib.suppress(csv.Error):
        rows += islice(_rows(text[:LOOKED_AT], separator, literal), MOST_ROWS)
    if len(text) > LOOKED_AT and 2 < len(rows) < MOST_ROWS:
        rows.pop()  # cut short
    return rows


def _rows(text: str, separator: str, literal: bool, *, strict: bool = False) -> Iterator[list[str]]:
    # Its bytes take less memory than the text in a StringIO.
    lines = io.TextIOWrapper(
        io.BytesIO(text.encode("utf-8", "surrogatepass")), "utf-8", "surrogatepass", newline=""
    )
    return csv.reader(
        lines,
        strict=strict,
        delimiter=separator,
        quoting=csv.QUOTE_NONE if literal else csv.QUOTE_MINIMAL,
    )


def parse(text: str, name: str, read_as: ReadAs) -> Reading:
    """Header and columns of a CSV file, how it was read, and sentences on rows that are left out.

    It says nothing of kinds. Empty cells are None. Rows without any cell that is not empty do not
    count. Without a header columns are called column_1, column_2, ...

    Parameters
    ----------
    name : how messages call the file
    read_as : its separator, whether it is `literal`, and the row of its header

    Raises InputError: no CSV, empty, or ragged.
    """
    separator, literal = read_as.separator or ",", read_as.literal
    kind = SEPARATORS.get(separator, repr(separator))
    head = first_rows(text, separator, literal=literal)
    cell_of = cache(lambda cell: _unescape(cell) or None)
    header: list[str] = []
    row = 0
    try:
        rows = _rows(text, separator, literal, strict=True)
        table = split_header(rows, head, name, read_as.header_row)
        header = [_unescape(cell).strip() for cell in table.names]
        if len(header) > MAX_COLUMNS:
            raise InputError(
                f"{name} has {len(header):,} columns separated by {kind}; expected at most "
                f"{MAX_COLUMNS:,}."
            )
        columns: Columns = [[] for _ in header]
        for row, cells in enumerate(table.rows, start=1):
            if len(cells) != len(header):
                hint = "" if literal else f" (a cell with {kind} in it needs quotation marks)"
                raise InputError(
                    f"row {row} of {name} has {len(cells)} cells; the header has "
                    f"{len(header)}{hint}."
                )
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell_of(cell))
    except csv.Error as error:
        where = f"row {row + 1}" if header else "the header"
        raise InputError(
            f"{where} of {name} cannot be read as CSV ({error}); expected cells separated by "
            f"{kind}, and a closing quotation mark for each opening one."
        ) from error
    if not header:
        raise InputError(f"{name} is empty; expected a header and at least two rows.")
    first = tuple(map(tuple, head[: table.above + PREVIEW]))
    read_as = replace(read_as, header_row=table.header, first_rows=first, above=table.above)
    return header, columns, [None] * len(header), read_as, tuple(table.notes)


def _score(text: str, separator: str) -> tuple[float, int]:
    """The share of rows with as many cells as most have, and how many these are."""
    rows = [cells for cells in first_rows(text, separator) if any(cells)]
    widths = Counter(map(len, rows))
    width = max(widths, key=lambda n: (widths[n], n), default=0)
    return (widths[width] / len(rows), width) if width > 1 else (0.0, width)


def _unescape(cell: str) -> str:
    return cell[1:] if _ESCAPED.match(cell) else cell
