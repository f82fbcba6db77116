"""How an object shows itself: lines of text, a small table in a notebook, figures of its own."""

from __future__ import annotations

import html
import importlib
from collections.abc import Sequence
from typing import Any

from mlem_core.base.text import number

# A name and what there is of it.
Lines = Sequence[tuple[str, str]]


def as_lines(title: str, lines: Lines) -> str:
    """The title, and below it the lines with their names aligned."""
    width = max((len(name) for name, _ in lines), default=0)
    return "\n".join((title, *(f"  {name:<{width}}  {text}" for name, text in lines)))


def as_html(title: str, lines: Lines, table: Any = None) -> str:
    """The same for a notebook; what a user wrote cannot become markup.

    Parameters
    ----------
    table : a DataFrame that is shown below
    """
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in lines
    )
    parts = [f"<p><b>{html.escape(title)}</b></p>", f"<table>{rows}</table>" if rows else ""]
    if table is not None:
        parts.append(table.to_html(index=False, border=0, float_format=lambda v: number(v, 3)))
    return f"<div>{''.join(parts)}</div>"


class Later:
    """An attribute that is made of its owner by a class of another package, at its first use.

    `plot = Later("report.figures", "ResultsPlots")` gives `results.plot.profiles()` without the
    package of `results` knowing of figures: the name is resolved at run time, as the names of
    `mlem_core` are.
    """

    def __init__(self, home: str, name: str) -> None:
        self._home = home
        self._name = name

    def __get__(self, owner: Any, kind: type) -> Any:
        made = getattr(importlib.import_module(f"mlem_core.{self._home}"), self._name)
        return made if owner is None else made(owner)
