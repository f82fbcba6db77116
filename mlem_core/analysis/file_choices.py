"""Choices of an analysis for its representations files: subjects, axes, first columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlem_core.base.parameters import asked
from mlem_core.models.array_files import FIRST_COLUMN

EVERY = "all"


def _first_column(text: str) -> str | None:
    return text if text in FIRST_COLUMN else None


def _subject(text: str) -> str | None:
    return text if text == EVERY or (text.isdecimal() and 0 < int(text) < 10**6) else None


def _axis(text: str) -> str | None:
    word, colon, unit = text.partition(":")
    return text if word.strip() and bool(unit.strip()) == bool(colon) else None


@dataclass(frozen=True, kw_only=True)
class OfFiles:
    """Choices of an analysis for reading its representations files."""

    first_column: tuple[tuple[str, str], ...] = asked(
        (),
        "First column",
        "What the first column of a representations CSV is where it counts the rows or has no "
        "name: skip (row numbers) or unit.",
        metavar=f"NAME={'|'.join(FIRST_COLUMN)}",
        pair=_first_column,
        last=True,
    )
    subjects: tuple[tuple[str, str], ...] = asked(
        (),
        "Subjects",
        "Which subject of a file is read whose arrays are (subjects, stimuli, units): all makes "
        "each a system, NAME@subject1 and so on, in the group NAME. Distances of several subjects "
        "are known as such. Without it a first axis is over repetitions.",
        metavar=f"NAME={EVERY}|NUMBER",
        pair=_subject,
        option="subject",
        last=True,
    )
    axes: tuple[tuple[str, str], ...] = asked(
        (),
        "Axis",
        "What the layers of a file are, such as region, or time:ms. With a unit they are ordered "
        "by the numbers in their names, such as 120 ms.",
        metavar="NAME=WORD|WORD:UNIT",
        pair=_axis,
        option="axis",
        last=True,
    )

    @property
    def axis_of(self) -> Mapping[str, str]:
        """Word for the layers of a file, by its name: "region", "time (ms)"."""
        parts = {name: said.partition(":") for name, said in self.axes}
        return {
            name: f"{word.strip()} ({unit.strip()})" if unit else word.strip()
            for name, (word, _, unit) in parts.items()
        }
