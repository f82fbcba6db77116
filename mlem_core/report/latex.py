"""Tables as LaTeX, for a paper."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pandas as pd

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "ρ": r"$\rho$",
    "τ": r"$\tau$",
    "α": r"$\alpha$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "−": r"$-$",
}


def escape(text: object) -> str:
    """Text that LaTeX prints as it is, on one line."""
    line = " ".join(str(text).split())
    return "".join(_SPECIAL.get(letter, letter) for letter in line)


def table(frame: pd.DataFrame, caption: str = "", label: str = "", digits: int = 3) -> str:
    """A table with booktabs' rules; `\\usepackage{booktabs}` is all that it needs.

    Numbers stand on the right with `digits` decimals (whole ones without), text on the left; a
    missing cell is a dash. What LaTeX would read as a command is escaped.

    Parameters
    ----------
    frame : a row a row of the table; its index is left out
    caption, label : of the float; `label` may hold letters, digits, `:` and `-`
    """
    sides = ["r" if pd.api.types.is_numeric_dtype(kind) else "l" for kind in frame.dtypes]
    cells = frame.map(lambda value: _cell(value, digits)).set_axis(
        map(escape, frame.columns), axis=1
    )
    # Else long tables would be cut.
    with pd.option_context("styler.render.max_elements", sys.maxsize):
        text = cells.style.hide(axis="index").to_latex(
            hrules=True,
            column_format="".join(sides),
            position_float="centering",
            caption=escape(caption) or None,
            label=re.sub(r"[^a-zA-Z0-9:-]", "-", label) or None,
        )
    return str(text)


def _cell(value: Any, digits: int) -> str:
    if pd.isna(value):
        return "--"
    if isinstance(value, bool | np.bool_):
        return str(value)
    if isinstance(value, float | np.floating) and np.isfinite(value):
        text = f"{value:.{digits}f}"
        negative = text.startswith("-") and float(text) != 0
        return f"${text}$" if negative else text.removeprefix("-")
    if isinstance(value, int | np.integer):
        return f"${value}$" if value < 0 else str(value)
    return escape(value)
