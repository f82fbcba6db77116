"""Tables as LaTeX, for a paper."""

from __future__ import annotations

import re
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
    columns = [frame[name] for name in frame.columns]
    sides = ["r" if pd.api.types.is_numeric_dtype(c) else "l" for c in columns]
    head = " & ".join(escape(name) for name in frame.columns)
    lines = [r"\begin{table}", r"  \centering"]
    if caption:
        lines.append(rf"  \caption{{{escape(caption)}}}")
    if label:
        lines.append(rf"  \label{{{re.sub(r'[^a-zA-Z0-9:-]', '-', label)}}}")
    lines += [rf"  \begin{{tabular}}{{{''.join(sides)}}}", r"    \toprule", rf"    {head} \\"]
    lines.append(r"    \midrule")
    for row in zip(*columns, strict=True):
        lines.append("    " + " & ".join(_cell(value, digits) for value in row) + r" \\")
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


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
