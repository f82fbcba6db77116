"""How an object shows itself: a few lines of text, or a small table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from mlem_core.base.text import number

# A name and what there is of it.
Lines = Sequence[tuple[str, str]]


def as_text(title: str, lines: Lines) -> str:
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
