"""Script and style of the canvas of two layers, for the app and for pages of their own."""

from __future__ import annotations

import functools
import re
from pathlib import Path

# Each imports only what stands before it.
MODULES = (
    "dom",
    "state",
    "strip",
    "matrix",
    "layermap",
    "profiles",
    "scatter",
    "views",
    "finding",
    "bars",
    "maps",
    "words",
    "canvas",
)
_CANVAS = Path(__file__).parent / "canvas"
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)


@functools.cache
def script() -> str:
    """The modules as one script, in which `mount(element, part, data, send)` draws a part.

    Modules are put one after the other, each in a scope of its own: nothing has to be built.
    """
    parts = []
    for name in MODULES:
        text = _IMPORT.sub("", (_CANVAS / f"{name}.js").read_text(encoding="utf-8"))
        names = re.findall(r"^export (?:function|const) (\w+)", text, re.MULTILINE)
        body = re.sub(r"^export ", "", text, flags=re.MULTILINE)
        given = f"{{{', '.join(names)}}}"
        parts.append(f"const {given} = (() => {{\n{body}\nreturn {given};\n}})();\n")
    return "".join(parts)


@functools.cache
def style() -> str:
    """The rules of the canvas."""
    return (_CANVAS / "canvas.css").read_text(encoding="utf-8")
