"""The built-in stimulus sets, each made by a seeded grammar; nothing is kept on disk."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from mlem_core.base.errors import unknown
from mlem_core.data.stimuli import StimulusSet

# Name -> module with a function `make`, which is imported on first use. The first is the default.
# More may be added while the program runs.
SETS: dict[str, str] = {
    "probing": "mlem_core.data.datasets.probing",
    "relative-clauses": "mlem_core.data.datasets.relative_clauses",
}


def load(name: str) -> StimulusSet:
    """A built-in stimulus set, the same on every call and every machine.

    Raises
    ------
    InputError
        No built-in set has this name.
    """
    if name not in SETS:
        raise unknown("stimulus set", name, SETS)
    return _make(SETS[name])


@cache
def _make(module: str) -> StimulusSet:
    stimuli: StimulusSet = import_module(module).make()
    return stimuli
