"""The built-in stimulus sets: files that come with the program."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlem_core.base.parameters import Registry
from mlem_core.extending import entry_modules
from mlem_core.stimuli.stimulus_csv import read_written
from mlem_core.stimuli.stimulus_set import StimulusSet


def _read_packed(entry: BuiltInSet) -> StimulusSet:
    content = gzip.decompress(entry.file.read_bytes())
    return read_written(content, name=entry.name, nominal=entry.nominal)


@dataclass(frozen=True)
class BuiltInSet:
    """A stimulus set that comes with the program.

    Attributes
    ----------
    nominal : features that are nominal though they are numbers
    read : gives the stimuli; by default those of a stimulus CSV, packed by gzip
    """

    name: str
    file: Path
    nominal: tuple[str, ...] = ()
    read: Callable[[BuiltInSet], StimulusSet] = _read_packed


_FOLDER = Path(__file__).parent / "sets"
# The first is the default; `grammars/` has what made them.
SETS = Registry[BuiltInSet]("stimulus set", entry_modules)
SETS.register(BuiltInSet("probing", _FOLDER / "probing.csv.gz", nominal=("person",)))
SETS.register(BuiltInSet("relative-clauses", _FOLDER / "relative-clauses.csv.gz"))


@cache
def load(name: str) -> StimulusSet:
    """A built-in stimulus set, the same on every call and every machine.

    Raises InputError: no built-in set has this name.
    """
    entry = SETS.named(name)
    return entry.read(entry)
