"""The built-in stimulus sets, each made by a seeded grammar; nothing is kept on disk."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from mlem_core.base.errors import unknown
from mlem_core.data.stimuli import StimulusSet

_MODULES = {
    "probing": "mlem_core.data.datasets.probing",
    "relative-clauses": "mlem_core.data.datasets.relative_clauses",
}

NAMES: tuple[str, ...] = tuple(_MODULES)


def load(name: str) -> StimulusSet:
    """A built-in stimulus set, the same on every call and every machine.

    Raises
    ------
    InputError
        No built-in set has this name.
    """
    if name not in _MODULES:
        raise unknown("stimulus set", name, NAMES)
    return _load(name)


@cache
def _load(name: str) -> StimulusSet:
    made: StimulusSet = import_module(_MODULES[name]).make()
    return made
