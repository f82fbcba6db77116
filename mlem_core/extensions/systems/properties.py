"""Properties of systems (models or representations files): a table, and distances by it.

A row is a system, a column a property: numbers (a date is its year, sizes over a hundredfold range
are taken as logarithms) or classes. An empty cell is unknown, and has no distance to anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.text import listed, short, some
from mlem_core.base.typing import FloatArray
from mlem_core.extensions.systems.property_tests import GROUP, Factor, Values, same_label
from mlem_core.representations.array_files import array_suffix
from mlem_core.stimuli.columns import guess_kind, parse_number, strip_marks
from mlem_core.stimuli.reading.content import Source
from mlem_core.stimuli.reading.table import read_table

# Positive numbers whose largest is so many times the smallest are compared by their logarithms.
LOG_RANGE = 100.0
# Properties whose distances correlate as much are said to go together.
TOGETHER = 0.7
# The column of a table of systems that names them.
SYSTEM = "system"
# Tables of systems by name; `families`: the 43 models of Salle et al. (2024), third version.
SYSTEMS = {"families": Path(__file__).with_name("families.csv")}
_DATE = re.compile(r"(\d{4})-(\d\d)(?:-(\d\d))?", re.ASCII)


@dataclass(frozen=True)
class Properties:
    """Properties of n_systems systems.

    Attributes
    ----------
    values : of each property by name: numbers (n_systems,), NaN where unknown, or labels, empty
        where unknown
    groups : properties that have one importance together, by the name of the group
    """

    values: Mapping[str, Values]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_cells(
        cls,
        cells: Mapping[str, Sequence[str | None]],
        groups: Iterable[tuple[str, tuple[str, ...]]] = (),
        kinds: Iterable[tuple[str, str]] = (),
    ) -> Properties:
        """Properties of cells as text; those that differ between no two systems are left out.

        Raises InputError: a group of a property that is not there, or that is in two groups.
        """
        kind_of = dict(kinds)
        values = {
            name: kind_and_values(column, kind_of.get(name, ""))[1]
            for name, column in cells.items()
            if kind_of.get(name) != "ignore"
        }
        varying = {
            name: column for name, column in values.items() if (same_label(column) < 1).any()
        }
        seen: dict[str, str] = {}
        for group, names in groups:
            for name in names:
                check_choice(f"property of the group {short(group)}", name, values)
                if name in seen:
                    raise InputError(
                        f"the property {name!r} is in the groups {seen[name]!r} and {group!r}; "
                        "expected it in one."
                    )
                seen[name] = group
        there = {group: tuple(name for name in names if name in varying) for group, names in groups}
        return cls(varying, {group: names for group, names in there.items() if names})

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """What has an importance of its own: each group with its properties, and each other one."""
        grouped = {name for names in self.groups.values() for name in names}
        alone = {name: (name,) for name in self.values if name not in grouped}
        return dict(self.groups) | alone

    @property
    def factors(self) -> dict[str, Factor]:
        """The values of each part, as tests take them."""
        return {
            part: tuple(self.values[name] for name in names)
            if len(names) > 1
            else self.values[names[0]]
            for part, names in self.parts.items()
        }

    def distances(self) -> FloatArray:
        """(n_properties, n_systems, n_systems) from 0 to 1; 0 where a value is unknown."""
        return np.stack([1.0 - same_label(values) for values in self.values.values()])

    def correlations(self) -> pd.DataFrame:
        """Correlations of the distances of every two properties: property, other, r."""
        distances, names = self.distances(), list(self.values)
        first, second = np.triu_indices(len(distances[0]), 1)
        with np.errstate(invalid="ignore"):  # of a property with another label in each system
            r = np.atleast_2d(np.corrcoef(distances[:, first, second]))
        a, b = np.triu_indices(len(names), 1)
        return pd.DataFrame(
            {"property": [names[i] for i in a], "other": [names[i] for i in b], "r": r[a, b]}
        )

    def notes(self) -> list[str]:
        """A sentence on properties that go together, of different parts."""
        if len(self.values) < 2:
            return []
        part_of = {name: part for part, names in self.parts.items() for name in names}
        table = self.correlations()
        apart = table["property"].map(part_of) != table["other"].map(part_of)
        table = table[apart & (table["r"] > TOGETHER)].sort_values("r", ascending=False)
        if table.empty:
            return []
        pairs = [f"{row.property} with {row.other} ({row.r:.2f})" for row in table.itertuples()]
        return [
            f"Properties whose distances correlate above {TOGETHER:g}: {listed(pairs)}. What one "
            "explains may be due to the other."
        ]


def kind_and_values(cells: Sequence[str | None], kind: str = "") -> tuple[str, Values]:
    """Kind of a property ("date", "number", "log" or "class"), guessed if not given; its values."""
    values = strip_marks(cells)
    known = [cell for cell in values if cell is not None and kind != "class"]
    if known and all(_DATE.fullmatch(cell) for cell in known):
        return "date", np.array([np.nan if cell is None else _year(cell) for cell in values])
    if known and guess_kind(values) == "ordered":
        numbers = np.array([np.nan if cell is None else parse_number(cell) for cell in values])
        low, high = np.nanmin(numbers), np.nanmax(numbers)
        log = kind == "log" or (not kind and low > 0 and high >= LOG_RANGE * low)
        return ("log", np.log10(numbers)) if log else ("number", numbers)
    return "class", ["" if cell is None else cell for cell in values]


def _year(cell: str) -> float:
    year, month, day = (int(part or 1) for part in _DATE.fullmatch(cell).groups())  # type: ignore[union-attr]
    try:
        return year + (date(year, month, day) - date(year, 1, 1)).days / 365.25
    except ValueError:
        raise InputError(
            f"the date {cell!r} is in no calendar; expected one such as 2024-07-23."
        ) from None


def read_systems(
    path: Source, name: str | None = None, there: Collection[str] | None = None
) -> dict[str, Any]:
    """Models, representations, groups and labels of an analysis of the systems of a table.

    A row is a model or a representations file, in the column `system`. The column `group` names
    groups, other columns are properties, and those that begin with _ are comments.

    Raises InputError: no column `system`; a row without one, or one that is there twice; a property
    whose name has a colon; a cell that is no label; a table that cannot be read.

    Parameters
    ----------
    path : of a file, the content of one, or a name of `SYSTEMS`
    name : how messages call it; by default the file's name
    there : names of the representations files that there are; by default they are paths
    """
    if isinstance(path, str):
        path = SYSTEMS.get(path, Path(path))
    folder = path.parent if isinstance(path, Path) else Path()
    table = read_table(path, name, what="table of systems")
    names = [str(name) for name in table.frame.columns]
    if SYSTEM not in names:
        raise InputError(
            f"{table.name} has the columns {some(names)}; expected one called {SYSTEM!r}, with a "
            "model or a representations file a row."
        )
    colons = [name for name in names if ":" in name]
    if colons:
        raise InputError(
            f"{table.name} has a column {colons[0]!r}; expected names without a colon."
        )
    systems = table.values(SYSTEM)
    names = [name for name in names if name != SYSTEM and not name.startswith("_")]
    properties = {name: table.values(name) for name in names}
    _check_cells(table.name, properties)
    groups, labels = dict[str, list[str]](), dict[str, list[str]]()
    models, files = list[str](), dict[str, str]()
    for row, system in enumerate(systems, 1):
        if system is None or systems.index(system) < row - 1:
            what = "no system" if system is None else f"the system {system!r} again"
            raise InputError(f"{table.name} has {what} in row {row}; expected a new one a row.")
        suffix = array_suffix(system)
        name = Path(system).name[: -len(suffix)] if suffix else system
        if suffix and there is not None and name not in there:
            raise InputError(
                f"{table.name}, row {row}, column {SYSTEM!r}: found the file {system!r}; expected "
                f"one of the added files ({some(list(there)) or 'none yet'}): add it first."
            )
        if suffix:
            files[name] = str(folder / system)
        else:
            models.append(name)
        for column, cells in properties.items():
            cell = cells[row - 1]
            if cell is not None and column == GROUP:
                groups.setdefault(cell, []).append(name)
            elif cell is not None:
                labels.setdefault(name, []).append(f"{column}:{cell}")
    grouped = tuple((group, tuple(own)) for group, own in groups.items() if {*own} != {group})
    return {
        "models": tuple(models),
        "representations": tuple(files.items()),
        "groups": grouped,
        "labels": tuple((name, tuple(own)) for name, own in labels.items()),
        "property_kinds": (),
    }


def _check_cells(table: str, properties: Mapping[str, Sequence[str | None]]) -> None:
    """Raise InputError, with row and column, for a cell that is no label or date."""
    for name, cells in properties.items():
        dates = all(cell is None or _DATE.fullmatch(cell) for cell in cells)
        for row, cell in enumerate(cells, 1):
            where = f"{table}, row {row}, column {name!r}"
            if cell is not None and set(cell) & {",", ";"}:
                raise InputError(
                    f"{where}: found {cell!r}; expected a value without comma and semicolon."
                )
            if cell is not None and dates and name != GROUP:
                try:
                    _year(cell)
                except InputError as error:
                    raise InputError(f"{where}: {error}") from None
