"""How a file was read, or is to be read."""

from __future__ import annotations

from dataclasses import dataclass

from mlem_core.base.errors import InputError
from mlem_core.base.text import listed, short

# What separates the cells of a line, and what it is called.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DECIMALS = {".": "point", ",": "comma"}
_NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "bar": "|", "pipe": "|"}
_ENCODINGS = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "cp1252": "Windows-1252",
}


@dataclass(frozen=True)
class ReadAs:
    """The choices by which a file becomes a table; None is detected.

    What a reader gives back has no None but `missing`, and can be given to it again.

    Attributes
    ----------
    separator : one of `SEPARATORS`; None for a workbook
    encoding : a codec of Python; None for a workbook
    decimal : "." or ","
    missing : cells that are no value, in every feature; None: by the rule of
        `mlem_core.data.columns.missing_marks`
    sheet : of a workbook, by its name
    sheets : all sheets of the workbook
    literal : whether quotation marks are characters like any other
    renamed : (position from 1, name in the file, name here) of columns without a name of their own
    found : what was taken for missing, in order of appearance
    """

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    missing: tuple[str, ...] | None = None
    sheet: str | None = None
    sheets: tuple[str, ...] = ()
    literal: bool = False
    renamed: tuple[tuple[int, str, str], ...] = ()
    found: tuple[str, ...] = ()

    @property
    def encoding_name(self) -> str:
        """The usual name of the encoding: "UTF-8"."""
        return _ENCODINGS.get(str(self.encoding), str(self.encoding or ""))

    @property
    def plain(self) -> bool:
        """Whether there is nothing to say: UTF-8, commas, decimal points, nothing renamed."""
        usual = (self.separator, self.encoding, self.decimal) == (",", "utf-8", ".")
        return usual and not (self.renamed or self.found or self.literal)

    @property
    def sentence(self) -> str:
        """How the file was read: "read as Windows-1252 text separated by semicolons, ..."."""
        if self.sheet is not None:
            others = [short(name) for name in self.sheets if name != self.sheet]
            beside = f" (the others are {listed(others, most=5)})" if others else ""
            parts = [f"read as a workbook: its sheet {short(self.sheet)}{beside}"]
        else:
            separator = SEPARATORS.get(str(self.separator), repr(self.separator))
            parts = [f"read as {self.encoding_name} text separated by {separator}"]
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


def parse_separator(text: str) -> str:
    """The separator that a user names: the character itself, or its name."""
    separator = _NAMES.get(text.strip().casefold().removesuffix("s"), text)
    if separator not in SEPARATORS:
        names = listed([f"{mark!r} ({name})" for mark, name in SEPARATORS.items()], last="or")
        raise InputError(f"found the separator {short(text)}; expected {names}.")
    return separator


def parse_decimal(text: str) -> str:
    """The decimal sign that a user names: "." or ",", or "point" or "comma"."""
    signs = {**{sign: sign for sign in DECIMALS}, **{name: sign for sign, name in DECIMALS.items()}}
    if text.strip().casefold() not in signs:
        raise InputError(f"found the decimal sign {short(text)}; expected '.' or ','.")
    return signs[text.strip().casefold()]


def parse_marks(text: str) -> tuple[str, ...]:
    """The missing-value marks that a user names, separated by commas; none for an empty text."""
    return tuple(mark.strip() for mark in text.split(",") if mark.strip())
