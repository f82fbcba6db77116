"""Letters that no font of this machine has: a picture shows boxes in their place."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import plotly.graph_objects as go

# Fonts of any system have these (Latin, Greek, Cyrillic); of the others so many are looked up.
_COMMON, _MOST = 0x0530, 100
_NOT_DRAWN = ("customdata", "hovertemplate", "hovertext", "meta", "template")


def missing_glyphs(texts: Iterable[str]) -> str:
    """A sentence on letters that no font here has; "" where all have one.

    Chromium finds its fonts by fontconfig on Linux; where there is none, nothing is known.
    """
    letters = sorted({char for text in texts for char in text if ord(char) >= _COMMON})
    missing = [char for char in letters if char.isalpha()][:_MOST]
    missing = [char for char in missing if not _has_font(char)]
    if not missing:
        return ""
    shown = " ".join(missing[:10]) + " ..." * (len(missing) > 10)
    return (
        f"No font of this machine has {shown}: PDF and PNG show boxes in their place. Install one "
        "that has them, such as Noto."
    )


def drawn_texts(figure: go.Figure) -> Iterator[str]:
    """The texts of a figure that a picture shows."""

    def within(part: Any) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            for name, value in part.items():
                if name not in _NOT_DRAWN:
                    yield from within(value)
        elif isinstance(part, list):
            for value in part:
                yield from within(value)

    return within(json.loads(figure.to_json()))


@cache
def _has_font(letter: str) -> bool:
    if (command := shutil.which("fc-list")) is None:
        return True
    arguments = [command, f":charset={ord(letter):x}", "family"]
    fonts = subprocess.run(arguments, capture_output=True, timeout=30, check=False)
    return fonts.returncode != 0 or bool(fonts.stdout.strip())
