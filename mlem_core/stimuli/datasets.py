"""The built-in stimulus sets: files that come with the program."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from mlem_core.base.errors import check_choice
from mlem_core.stimuli.stimulus_csv import read_written
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.stimuli.treebank import SUFFIX, read_treebank


@dataclass(frozen=True)
class BuiltInSet:
    """A stimulus CSV, packed by gzip, or a treebank.

    `nominal` has the features of a CSV that are nominal though they are numbers.
    """

    file: Path
    nominal: tuple[str, ...] = ()


_FOLDER = Path(__file__).parent / "sets"
# The first is the default; `grammars/` has what made them. More may be added as the program runs.
SETS: dict[str, BuiltInSet] = {
    "probing": BuiltInSet(_FOLDER / "probing.csv.gz", nominal=("person",)),
    "relative-clauses": BuiltInSet(_FOLDER / "relative-clauses.csv.gz"),
    "treebank": BuiltInSet(_FOLDER / "treebank.conllu"),
}


def load(name: str) -> StimulusSet:
    """A built-in stimulus set, the same on every call and every machine.

    Raises InputError: no built-in set has this name.
    """
    check_choice("stimulus set", name, SETS)
    return _read(name, SETS[name])


@cache
def _read(name: str, entry: BuiltInSet) -> StimulusSet:
    if entry.file.suffix == SUFFIX:
        return replace(read_treebank([entry.file]), name=name, notes=())
    content = gzip.decompress(entry.file.read_bytes())
    return read_written(content, name=name, nominal=entry.nominal)
