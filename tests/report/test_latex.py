"""Tables as LaTeX say what the frame says, and nothing in them is a command."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from mlem_core.report import latex


def cells_of(text: str) -> list[list[str]]:
    """The rows between the rules, as cells."""
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.strip() not in ("", r"\midrule")]
    return [
        [c.strip() for c in re.split(r"(?<!\\)&", r.strip().removesuffix(r" \\"))] for r in rows
    ]


def test_each_cell_is_where_it_was() -> None:
    frame = pd.DataFrame(
        {"feature": ["a_b", "50 %"], "layer": [1, -2], "FI": [0.12345, -0.5], "sd": [np.nan, -1e-9]}
    )
    text = latex.table(frame, caption="Importance & more", label="tab:my table")
    assert cells_of(text) == [
        ["feature", "layer", "FI", "sd"],
        [r"a\_b", "1", "0.123", "--"],
        [r"50 \%", "$-2$", "$-0.500$", "0.000"],
    ]
    assert r"\begin{tabular}{lrrr}" in text
    assert r"\caption{Importance \& more}" in text
    assert r"\label{tab:my-table}" in text


def test_nothing_that_a_user_wrote_is_a_command() -> None:
    nasty = r"\input{/etc/passwd} $x^2$ ~#{}|<>" + "\n\\\\ end"
    text = latex.escape(nasty)
    assert "\n" not in text
    known = r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}"
    rest = re.sub(known + r"|\\[{}&%$#_]", "", text)
    assert not set(rest) & set("\\{}$&#^~%_<>|")


def test_the_letters_of_the_figures_are_set() -> None:
    assert latex.escape("ρ ± 1 × τ") == r"$\rho$ $\pm$ 1 $\times$ $\tau$"
