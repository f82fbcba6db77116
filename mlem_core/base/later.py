"""Attributes whose class stands in a package above, and is imported on first use."""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """An attribute that is made of its owner by a class of another package, when it is asked for.

    `plot = Later("figures.plots", "ResultsPlots")` gives `results.plot.profiles()` without the
    package of `results` knowing of figures: the name is resolved at run time, as the names of
    `mlem_core` are.
    """

    def __init__(self, home: str, name: str) -> None:
        self._home = home
        self._name = name

    def __get__(self, owner: Any, kind: type) -> Any:
        made = getattr(importlib.import_module(f"mlem_core.{self._home}"), self._name)
        return made if owner is None else made(owner)
